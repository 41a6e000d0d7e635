"""GEQ and GED of two sides at one entropy.

Each side is drawn at the temperature at which its frontier has the middle entropy of the common
range, and both pools are judged in groups of eight. The offline judge counts; others read the same
groups later (`strop groupeval judge RUN/groupeval/... --base-url URL`), and the next call of the
same comparison includes them. GED has no interval: a side is less diverse by it where it is more
than a tenth below the other's and the ranges over weights are apart.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from strop.comparing.diversity import TENTH, Diversity, State
from strop.groupeval.scores import FACTORS
from strop.verbs.points import GROUP
from strop.verbs.verb import Ask

if TYPE_CHECKING:
    from strop.comparing.outputs import Point, SideOutputs
    from strop.comparing.result import SideAtBudget


@dataclass(frozen=True)
class Judged:
    """The scores of one judge for both sides at one entropy."""

    diversity: Diversity | None
    """By GED, where both sides have one."""
    rows: tuple[dict[str, Any], ...]
    """A line per side."""


def judged(
    ask: Ask,
    number: int,
    sides: Sequence[SideOutputs],
    measured: Sequence[SideAtBudget],
    tokens: int,
    entropy: float,
) -> list[Judged]:
    """Every judge's scores of both sides; none where both are the same cell."""
    from strop.groupeval.bootstrap import score
    from strop.verbs.points import judge_texts

    points = [_point_at(*pair, tokens, entropy) for pair in zip(sides, measured, strict=True)]
    least = min(len(point.texts) for point in points) // GROUP * GROUP
    texts = [list(point.texts)[:least] for point in points]
    # Named by what they hold, in one order: swapping the sides changes no group.
    names = [
        hashlib.sha256(json.dumps(side_texts).encode()).hexdigest()[:12] for side_texts in texts
    ]
    if names[0] == names[1] or not least:
        return []
    planned = dict(sorted(zip(names, texts, strict=True)))
    folder = ask.out / "groupeval" / "-".join(planned)
    results = []
    for judge, judgments in judge_texts(planned, folder, seed=ask["seed"]).items():
        cells = [score(judgments)["cells"][name] for name in names]
        rows = [
            _row(number, judge, letter, point, tokens, cell)
            | {"drawn": 0 if point in side.points() else point.scored.n}
            for letter, point, cell, side in zip("AB", points, cells, measured, strict=True)
        ]
        results.append(Judged(_by_ged(judge, *cells), tuple(rows)))
    return results


def _row(
    number: int, judge: str, letter: str, point: Point, tokens: int, cell: dict[str, Any]
) -> dict[str, Any]:
    return {
        "steps": number,
        "judge": judge,
        "side": letter,
        "setting": point.setting,
        "entropy": _entropy(point, tokens),
        "geq": cell["geq"],
        "ged": cell["ged"],
        **{name: cell[name] for name in FACTORS},
    }


def _by_ged(judge: str, a: dict[str, Any], b: dict[str, Any]) -> Diversity | None:
    if a["ged"] is None or b["ged"] is None:
        return None
    return Diversity(f"GED {judge}", a["ged"], b["ged"], _judged_state(a, b), _judged_state(b, a))


def _judged_state(own: dict[str, Any], other: dict[str, Any]) -> State:
    if own["ged"] >= (1 - TENTH) * other["ged"]:
        return "not less"
    ranges = own["ged_weight_sensitivity"], other["ged_weight_sensitivity"]
    apart = None not in ranges and ranges[0][1] < ranges[1][0]
    return "less" if apart else "undecided"


def _entropy(point: Point, tokens: int) -> float:
    sample = point.sample(tokens)
    return float(sample.levels(np.ones((1, sample.n)))[1][0])


def _point_at(side: SideOutputs, at_budget: SideAtBudget, tokens: int, entropy: float) -> Point:
    """The side's outputs at the temperature that has the entropy; of a pool, the pool."""
    if not side.named.tunable:
        return at_budget.published
    levels = [_entropy(point, tokens) for point in at_budget.frontier]
    order = np.argsort(levels)
    taus = np.array([point.temperature for point in at_budget.frontier], float)
    tau = round(float(np.interp(entropy, np.array(levels)[order], taus[order])), 3)
    base = at_budget.base
    assert base is not None
    return side.at(base.model_copy(update={"temperature": tau}))
