"""The parts of a report that other commands measure: cost, posterior loss, GroupEval.

Studies leave `result.json` in their directory; a GroupEval directory is scored anew from its
journal, which costs no call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strop.disk import reading
from strop.errors import UserError
from strop.metrics.bootstrap import ratio
from strop.report.collect import Scored
from strop.report.data import STANDARD, Cell, CostRow, Estimate, Judged, Posterior, Setting

__all__ = ["cost_rows", "judged_rows", "posterior_rows", "study_result"]

RESULT = "result.json"
MB_PER_GIB = 2**30 / 1e6


def study_result(folder: Path) -> dict[str, Any] | None:
    """A study's result; None if the directory is none of a study."""
    path = folder / RESULT
    try:
        with reading(path):
            document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, error) from None
    return document if isinstance(document, dict) and "study" in document else None


def cost_rows(result: dict[str, Any], where: Path) -> list[CostRow]:
    """Of `strop study cost`; what failed is left out."""
    try:
        return [
            CostRow(
                implementation=row["implementation"],
                steps=row["updates"],
                calls=row["calls"],
                seconds=row["seconds"],
                memory_mb=None if row["extra_gib"] is None else row["extra_gib"] * MB_PER_GIB,
                batch=result["asked"]["batch"],
                setting=Setting(row["temperature"], row["precision"]).label,
            )
            for row in result["rows"]
            if row["failure"] is None
        ]
    except (KeyError, TypeError) as error:
        raise _unreadable(where / RESULT, f"no {error}") from None


def posterior_rows(
    result: dict[str, Any], where: Path, scored: Sequence[Scored]
) -> list[Posterior]:
    """Of `strop study posterior`, each with the perplexity ratio of the cells that match it."""
    try:
        weights = {one["name"]: one["spec"]["sha256"] for one in result["checkpoints"]}
        sharpened, rows = result["asked"]["sharpened"], []
        for one in result["losses"]:
            if one["estimator"] != "masked":  # the same mean as `target`, with less noise
                continue
            at = next(at for at in one["temperatures"] if at["temperature"] == sharpened)
            tau, minus = sharpened, at["minus_one"]
            gain = _gain(scored, weights[one["checkpoint"]], one["steps"], tau)
            loss = Estimate(minus["mean"], minus["low"], minus["high"])
            rows.append(Posterior(one["checkpoint"], one["steps"], tau, loss, one["optimum"], gain))
        return rows
    except (KeyError, TypeError, StopIteration) as error:
        raise _unreadable(where / RESULT, f"no {error}") from None


def _gain(scored: Sequence[Scored], sha256: str, steps: int, tau: float) -> Estimate | None:
    """Perplexity at temperature one over that at tau, both drawn in float64."""

    def find(setting: Setting) -> Scored | None:
        for one in scored:
            if (one.sha256, one.steps, one.setting) == (sha256, steps, setting):
                return one
        return None

    base, sharp = find(STANDARD), find(Setting(tau, STANDARD.precision))
    if base is None or sharp is None:
        return None
    found = ratio(base.perplexity, sharp.perplexity)
    return None if found is None else Estimate(found.value, found.low, found.high)


def judged_rows(source: str, known: Mapping[str, Cell]) -> list[Judged]:
    """GEQ and GED of every series of a GroupEval directory, or of a file of judgments.

    `known` has the report's cells by the names that GroupEval may give them.
    """
    from strop.groupeval.result import score
    from strop.groupeval.verdicts import load

    rows = []
    for series_name in _series_names(source):
        document = score(load(series_name))
        series = _series_label(document, series_name)
        for name, found in document["cells"].items():
            cell = known.get(name)
            span = found.get("geq_interval") or (None, None)
            geq = None if found["geq"] is None else Estimate(found["geq"], *span)
            rows.append(
                Judged(
                    series=series,
                    name=name if cell is None else cell.plain_label,
                    geq=geq,
                    ged=found["ged"],
                    invalid_rate=found.get("invalid_rate"),
                    effective_modes=found.get("effective_modes"),
                    accepted=found["n_groups"],
                    asked=found["n_groups_asked"],
                    below_guard=cell is not None and cell.below_guard,
                )
            )
    return rows


def _series_names(source: str) -> list[str]:
    if not Path(source).is_dir():
        return [source]
    from strop.groupeval.series import list_series

    return [f"{source}@{series.id}" for series in list_series(source)]


def _series_label(document: dict[str, Any], name: str) -> str:
    judge = document.get("judge") or {}
    who = judge.get("name") or judge.get("model") or judge.get("kind") or Path(name).name
    profile = document.get("profile")
    return f"{who}, profile {str(profile)[:8]}" if profile else str(who)


def _unreadable(path: Path, why: object) -> UserError:
    return UserError(
        "A study's result cannot be read.",
        where=path,
        got=str(why).splitlines()[0][:200] if str(why) else type(why).__name__,
        fix="run the study's command again: it writes the same file from what it measured",
    )
