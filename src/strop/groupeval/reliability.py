"""How far a judge can be trusted, from its own journal: repeats, controls, positions, lengths.

- Repeats: the same groups asked again. What changes is the judge's noise.
- Controls: groups of their own with a copy of a text, a text with its words shuffled and an empty
  text. A sound judge gives the copy the mode and the grades of its original, the shuffled text no
  better coherence, and calls the empty one invalid.
- Positions: the display order is random, so a position cannot earn a grade. The p-value is of a
  permutation test within groups: the share of random orders whose position means differ as much.
- Lengths: Spearman's correlation of characters and quality within a cell. It may be real (a longer
  text can be better); compare it between judges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strop.groupeval.agree import alpha, mode_agreement, spearman
from strop.groupeval.cells import by_cell
from strop.groupeval.diagnostics import ged
from strop.groupeval.judgment import Grade, Judgment
from strop.groupeval.scores import quality

if TYPE_CHECKING:
    from strop.groupeval.series import Series

__all__ = ["control_results", "length_effect", "position_effect", "reliability", "repeat_noise"]

PERMUTATIONS = 2000
COHERENCE = 1
"""Which dimension a text with its words shuffled must not gain in."""

Floats = NDArray[np.float64]


def reliability(series: Series, *, seed: int = 0) -> dict[str, Any]:
    """All four reports about one judge."""
    first = series.judgments()
    repeats = [series.judgments(repeat=r) for r in range(1, series.repeats)]
    return {
        "judge": series.judge,
        "n_groups": len(first),
        "n_groups_asked": series.asked,
        "repeats": [repeat_noise(first, other, series.profile.modes) for other in repeats],
        "controls": control_results(_controls(series)),
        "n_controls_asked": len(series.plan.controls),
        "positions": position_effect(_rows(series), seed=seed),
        "lengths": {
            name: length_effect(cell.outputs, cell.per_output, series.texts(name))
            for name, cell in by_cell(first).items()
        },
    }


def repeat_noise(
    first: Sequence[Judgment], again: Sequence[Judgment], modes: bool
) -> dict[str, Any]:
    """What changed when the same groups were asked again."""
    old = {(j.cell, j.partition, j.group): j for j in first}
    pairs = [(old[key], j) for j in again if (key := (j.cell, j.partition, j.group)) in old]
    if not pairs:
        return {"n_groups": 0}
    grades = [
        (a, b) for one, other in pairs for a, b in zip(one.outputs, other.outputs, strict=True)
    ]
    totals = np.array([[quality(a), quality(b)] for a, b in grades])
    cells = [by_cell([pair[side] for pair in pairs]) for side in (0, 1)]
    labels = [_shared_modes(one, other) for one, other in pairs]
    return {
        "n_groups": len(pairs),
        "n_outputs": len(grades),
        "grades_equal": float(np.mean([a.scores == b.scores for a, b in grades])),
        "valid_equal": float(np.mean([a.valid == b.valid for a, b in grades])),
        "quality_mean_abs_change": float(np.abs(totals[:, 1] - totals[:, 0]).mean()),
        "quality_alpha": alpha(totals, "interval"),
        "geq_change": {n: cells[1][n].geq() - cells[0][n].geq() for n in cells[0]},
        "ged_change": {n: ged(cells[1][n]) - ged(cells[0][n]) for n in cells[0]} if modes else None,
        "modes": mode_agreement(labels) if modes else None,
    }


def _shared_modes(one: Judgment, other: Judgment) -> tuple[list[Any], list[Any]]:
    both = [
        (a.mode, b.mode)
        for a, b in zip(one.outputs, other.outputs, strict=True)
        if a.valid and b.valid
    ]
    return [a for a, _ in both], [b for _, b in both]


def control_results(groups: Sequence[dict[str, Grade]]) -> dict[str, Any]:
    """How often the judge said what it must; each group by what was planted."""
    copies = [(g["copied"], g["duplicate"]) for g in groups]
    orders = [(g["ordered"], g["shuffled"]) for g in groups]
    return {
        "n_groups": len(groups),
        "duplicate_same_mode": _rate([a.valid == b.valid and a.mode == b.mode for a, b in copies]),
        "duplicate_same_grades": _rate([a.scores == b.scores for a, b in copies]),
        "shuffled_not_more_coherent": _rate(
            [b.scores[COHERENCE] <= a.scores[COHERENCE] for a, b in orders]
        ),
        "shuffled_lower_quality": _rate([quality(b) < quality(a) for a, b in orders]),
        "shuffled_quality_change": float(np.mean([quality(b) - quality(a) for a, b in orders]))
        if orders
        else None,
        "empty_invalid": _rate([not g["empty"].valid for g in groups]),
    }


def _rate(facts: Sequence[bool]) -> float | None:
    return sum(facts) / len(facts) if facts else None


def position_effect(rows: Floats, *, seed: int = 0) -> dict[str, Any] | None:
    """Mean quality by display position, from `[groups, positions]`; None without any group."""
    if not len(rows):
        return None
    centred = rows - rows.mean(axis=1, keepdims=True)
    place = np.arange(rows.shape[1]) - (rows.shape[1] - 1) / 2
    rng = np.random.default_rng(seed)
    spread = _spread(centred)
    shuffled = [_spread(rng.permuted(centred, axis=1)) for _ in range(PERMUTATIONS)]
    # The observed order is one of the possible ones; so a p-value is never zero.
    extreme = 1 + sum(value >= spread - 1e-12 for value in shuffled)
    return {
        "n_groups": len(rows),
        "mean_quality": [float(mean) for mean in rows.mean(axis=0)],
        "slope_per_position": float((centred @ place).mean() / (place @ place)),
        "p_value": extreme / (1 + PERMUTATIONS),
    }


def _spread(centred: Floats) -> float:
    return float((centred.mean(axis=0) ** 2).sum())


def length_effect(
    outputs: Sequence[int], quality_of: Floats, texts: Sequence[str]
) -> dict[str, Any]:
    """Rank correlation of length and quality over the outputs of one cell."""
    lengths = [float(len(texts[index])) for index in outputs]
    return {"n_outputs": len(outputs), "spearman": spearman(lengths, list(quality_of))}


def _rows(series: Series) -> Floats:
    """Quality by position, for the sheets that have verdicts, `[sheets, positions]`."""
    rows = []
    for sheet, said in series.states():
        grades = {
            (one.cell, grade.index): grade
            for one in said
            if isinstance(one, Judgment)
            for grade in one.outputs
        }
        if grades:
            places = zip(sheet.pools, sheet.indices, strict=True)
            rows.append(
                [quality(grades[series.plan.blinding[code], index]) for code, index in places]
            )
    return np.array(rows, dtype=float)


def _controls(series: Series) -> list[dict[str, Grade]]:
    return [
        dict(zip(sheet.planted, one.outputs, strict=True))
        for sheet, said in series.states("control")
        for one in said
        if isinstance(one, Judgment)
    ]
