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
from typing import TYPE_CHECKING, Any

import numpy as np

from strop.comparing.diversity import TENTH, Diversity, State
from strop.studies.study import Ask

if TYPE_CHECKING:
    from strop.studies.compare import Measured
    from strop.studies.compare_sides import Outputs, Point

__all__ = ["judged"]


def judged(
    ask: Ask, number: int, sides: Sequence[Outputs], measured: Sequence[Measured], entropy: float
) -> list[Diversity]:
    """What every judge says of the diversity of both sides at one entropy."""
    from strop.groupeval.bootstrap import score
    from strop.studies.measure import judge_texts

    points = [_matched(*one, entropy) for one in zip(sides, measured, strict=True)]
    least = min(len(one.texts) for one in points)
    least -= least % 8
    texts = {name: list(one.texts)[:least] for name, one in zip("AB", points, strict=True)}
    asked = json.dumps([number, least, ask["seed"], *([one.setting for one in points])])
    folder = ask.out / "groupeval" / hashlib.sha256(asked.encode()).hexdigest()[:16]
    found = []
    for judge, judgments in judge_texts(texts, folder, seed=ask["seed"]).items():
        cells = score(judgments)["cells"]
        a, b = (cells[name] for name in "AB")
        ask.note(f"M = {number}, entropy {entropy:.2f}: {_said(judge, a, b)}")
        if a["ged"] is not None and b["ged"] is not None:
            states = _state(a, b), _state(b, a)
            found.append(Diversity(f"GED {judge}", a["ged"], b["ged"], *states))
    return found


def _said(judge: str, a: dict[str, Any], b: dict[str, Any]) -> str:
    def one(name: str, cell: dict[str, Any]) -> str:
        value, ends = cell["geq"], cell["geq_interval"]
        told = "none" if value is None else f"{value:.2f}"
        told += "" if not ends else f" [{ends[0]:.2f}, {ends[1]:.2f}]"
        diverse = "none" if cell["ged"] is None else f"{cell['ged']:.2f}"
        return f"{name} GEQ {told}, GED {diverse}"

    return f"{judge}: {one('A', a)}; {one('B', b)}"


def _state(mine: dict[str, Any], other: dict[str, Any]) -> State:
    if mine["ged"] >= (1 - TENTH) * other["ged"]:
        return "not less"
    ranges = mine["ged_weight_sensitivity"], other["ged_weight_sensitivity"]
    apart = None not in ranges and ranges[0][1] < ranges[1][0]
    return "less" if apart else "undecided"


def _matched(side: Outputs, one: Measured, entropy: float) -> Point:
    """The side's outputs at the temperature that has the entropy; of a pool, the pool."""
    if not side.named.tunable:
        return one.published
    levels = [float(point.sample.entropy.mean()) for point in one.frontier]
    order = np.argsort(levels)
    taus = np.array([point.temperature for point in one.frontier], float)
    tau = round(float(np.interp(entropy, np.array(levels)[order], taus[order])), 3)
    base = one.base
    assert base is not None
    return side.at(base.model_copy(update={"temperature": tau}))
