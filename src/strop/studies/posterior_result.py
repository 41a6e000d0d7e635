"""From losses per sequence to the posterior study's numbers, as one JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from strop.metrics.bootstrap import REPLICATES
from strop.metrics.paired import Mean, Resampled
from strop.metrics.posterior import Losses
from strop.spec import CheckpointSpec

__all__ = ["ESTIMATORS", "Cells", "conclude", "flat_rows", "short_names"]

ESTIMATORS = ("masked", "target")
"""The mean over all hidden positions first: it is the sharper one."""


@dataclass(frozen=True, eq=False)
class Cells:
    """What was measured on one checkpoint."""

    source: str
    spec: CheckpointSpec
    losses: dict[int, Losses]
    """By number of steps; arrays [sequences, temperatures]."""
    profile: Losses | None
    """Arrays [sequences, levels, 1]: at tau = 1."""
    session: dict[str, Any]


def conclude(
    measured: Sequence[Cells],
    temperatures: tuple[float, ...],
    sharpened: float,
    levels: int,
    seed: int,
) -> dict[str, Any]:
    """All estimates with their intervals; every checkpoint and temperature shares its replicates.

    Differences between checkpoints are later minus earlier in the order given, at tau = 1.
    """
    names = short_names([one.source for one in measured])
    columns: dict[Any, Any] = {}
    for name, one in zip(names, measured, strict=True):
        for steps, losses in one.losses.items():
            for estimator in ESTIMATORS:
                grid = getattr(losses, estimator)
                columns |= {
                    (name, steps, estimator, tau): grid[:, k] for k, tau in enumerate(temperatures)
                }
                columns[name, steps, estimator, "slope"] = getattr(losses, f"{estimator}_slope")
    drawn = Resampled(columns, seed=seed)
    budgets = list(measured[0].losses)
    return {
        "checkpoints": [
            {
                "name": name,
                "source": one.source,
                "spec": one.spec.model_dump(mode="json"),
                "session": one.session,
            }
            for name, one in zip(names, measured, strict=True)
        ],
        "unit": "nats per token",
        "replicates": REPLICATES,
        "losses": [
            _losses(drawn, columns, name, steps, estimator, temperatures, sharpened)
            for name in names
            for steps in budgets
            for estimator in ESTIMATORS
        ],
        "differences": [
            {
                "later": later,
                "earlier": earlier,
                "steps": steps,
                "estimator": estimator,
                **_told(
                    drawn.interval((later, steps, estimator, 1.0), (earlier, steps, estimator, 1.0))
                ),
            }
            for earlier, later in combinations(names, 2)
            for steps in budgets
            for estimator in ESTIMATORS
        ],
        "profile": _profile(names, measured, levels, seed),
    }


def _losses(
    drawn: Resampled,
    columns: dict[Any, Any],
    name: str,
    steps: int,
    estimator: str,
    temperatures: tuple[float, ...],
    sharpened: float,
) -> dict[str, Any]:
    """One checkpoint at one budget under one estimator."""
    here = (name, steps, estimator)
    best, shares = drawn.lowest([(*here, tau) for tau in temperatures])
    optimum = temperatures[best]
    return {
        "checkpoint": name,
        "steps": steps,
        "estimator": estimator,
        "temperatures": [
            {
                "temperature": tau,
                "loss": asdict(drawn.interval((*here, tau))),
                "minus_one": _told(drawn.interval((*here, tau), (*here, 1.0))),
                "optimum_share": float(share),
            }
            for tau, share in zip(temperatures, shares, strict=True)
        ],
        "optimum": optimum,
        "optimum_at_edge": optimum in (min(temperatures), max(temperatures)),
        "slope": _told(drawn.interval((*here, "slope"))),
        "variance_ratio": _ratio(columns, (name, steps), 1.0, None),
        "contrast_variance_ratio": _ratio(columns, (name, steps), sharpened, 1.0),
    }


def _ratio(
    columns: dict[Any, Any], cell: tuple[str, int], tau: float, minus: float | None
) -> float | None:
    """Variance of the one-target estimate over that of the mean over hidden positions."""
    target, masked = (
        columns[*cell, name, tau] - (0.0 if minus is None else columns[*cell, name, minus])
        for name in ("target", "masked")
    )
    return float(target.var() / masked.var()) if masked.var() > 0 else None


def _told(interval: Mean) -> dict[str, Any]:
    return {**asdict(interval), "excludes_zero": interval.excludes_zero}


def _profile(
    names: list[str], measured: Sequence[Cells], levels: int, seed: int
) -> dict[str, Any] | None:
    """c(a)/L at tau = 1 by the mean over hidden positions, and its mean over the left grid."""
    if not levels:
        return None
    columns: dict[Any, Any] = {}
    for name, one in zip(names, measured, strict=True):
        assert one.profile is not None
        values = one.profile.masked[:, :, 0]
        columns |= {(name, k): values[:, k] for k in range(levels)}
        columns[name, "mean"] = values.mean(axis=1)
    drawn = Resampled(columns, seed=seed)
    keys: list[Any] = [*range(levels), "mean"]
    return {
        "sequences": len(next(iter(columns.values()))),
        "levels": [
            {
                "checkpoint": name,
                "visible": k / levels,
                "loss": asdict(drawn.interval((name, k))),
            }
            for name in names
            for k in range(levels)
        ],
        "means": [
            {"checkpoint": name, "loss": asdict(drawn.interval((name, "mean")))} for name in names
        ],
        "differences": [
            {
                "later": later,
                "earlier": earlier,
                "visible": key if key == "mean" else key / levels,
                **_told(drawn.interval((later, key), (earlier, key))),
            }
            for earlier, later in combinations(names, 2)
            for key in keys
        ],
    }


def flat_rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    """One line per checkpoint, budget, estimator and temperature."""
    return [
        {
            "checkpoint": row["checkpoint"],
            "steps": row["steps"],
            "estimator": row["estimator"],
            "temperature": at["temperature"],
            **{f"loss_{k}": v for k, v in at["loss"].items()},
            **{f"minus_one_{k}": v for k, v in at["minus_one"].items()},
            "optimum_share": at["optimum_share"],
            "slope_at_one": row["slope"]["mean"],
        }
        for row in result["losses"]
        for at in row["temperatures"]
    ]


def short_names(sources: Sequence[str]) -> list[str]:
    """The shortest endings of some paths, by whole parts, that tell them apart."""
    parts = [source.rstrip("/").split("/") for source in sources]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(one[-depth:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    return list(sources)
