"""How far judges can be trusted: each by its own journal, several by how far they agree.

`reliability` of one judge:

- Repeats: the same groups asked again. What changes is the judge's noise.
- Controls: groups of their own with a copy of a text, a text with its words shuffled and an empty
  text. A sound judge gives the copy the mode and the grades of its original, the shuffled text no
  better coherence, and calls the empty one invalid.
- Positions: the display order is random, so a position cannot earn a grade. The p-value is of a
  permutation test within groups: the share of random orders whose position means differ as much.
- Lengths: Spearman's correlation of characters and quality within a cell. It may be real (a longer
  text can be better); compare it between judges.

`agree` of two or more:

- Grades: Krippendorff's alpha over outputs in their groups, per dimension (ordinal), for the
  rubric total (interval) and for validity (nominal). 1 is agreement, 0 what chance gives.
- Modes: their names are local to a group and to a judge, so only co-membership is compared: which
  pairs of outputs of one group are of one mode. The adjusted Rand index of all groups together is
  (T - E) / (M - E), T pairs together under both judges, M the mean of those together under either,
  E what is expected if the judge's modes kept their sizes and were dealt out at random within each
  group; T, M and E are summed over groups. Outputs that either judge calls invalid have no mode
  and stand aside.
- Order: Spearman's rank correlation of GEQ and of GED across the cells, from the same groups.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.groupeval.judgments import Judgments, check_alike
from strop.groupeval.scores import PlannedGroups, by_cell, ged, quality, share
from strop.groupeval.verdict import Grade, GroupVerdict

if TYPE_CHECKING:
    from strop.groupeval.series import Series

PERMUTATIONS = 2000
COHERENCE = 1
"""Which dimension a text with its words shuffled must not gain in."""

Floats = NDArray[np.float64]


def reliability(series: Series, *, seed: int = 0) -> dict[str, Any]:
    """All four reports about one judge."""
    first = series.verdicts()
    repeats = [series.verdicts(repeat=r) for r in range(1, series.repeats)]
    lengths = {}
    for name, cell in by_cell(first).items():
        texts = series.texts(name)
        sizes = [float(len(texts[index])) for index in cell.outputs]
        lengths[name] = {"n_outputs": len(sizes), "spearman": spearman(sizes, [*cell.per_output])}
    return {
        "judge": series.judge.document(),
        "n_groups": len(first),
        "n_groups_asked": series.asked,
        "repeats": [repeat_noise(first, other, series.profile.modes) for other in repeats],
        "controls": control_results(
            [
                dict(zip(sheet.planted, judgment.outputs, strict=True))
                for sheet, judgments in series.states("control")
                for judgment in judgments
                if isinstance(judgment, GroupVerdict)
            ]
        ),
        "n_controls_asked": len(series.plan.controls),
        "positions": position_effect(_rows(series), seed=seed),
        "lengths": lengths,
    }


def repeat_noise(
    first: Sequence[GroupVerdict], again: Sequence[GroupVerdict], modes: bool
) -> dict[str, Any]:
    """What changed when the same groups were asked again."""
    old = {(j.cell, j.partition, j.group): j for j in first}
    pairs = [(old[key], j) for j in again if (key := (j.cell, j.partition, j.group)) in old]
    if not pairs:
        return {"n_groups": 0}
    grades = [
        (a, b) for left, right in pairs for a, b in zip(left.outputs, right.outputs, strict=True)
    ]
    totals = np.array([[quality(a), quality(b)] for a, b in grades])
    cells = [by_cell([pair[side] for pair in pairs]) for side in (0, 1)]
    labels = [_shared_modes(zip(a.outputs, b.outputs, strict=True)) for a, b in pairs]
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


def _shared_modes(outputs: Iterable[tuple[Grade, Grade]]) -> tuple[list[Any], list[Any]]:
    """The modes of those outputs that are in one by both judgments."""
    common = [(a.mode, b.mode) for a, b in outputs if a.mode is not None and b.mode is not None]
    return [a for a, _ in common], [b for _, b in common]


def control_results(groups: Sequence[dict[str, Grade]]) -> dict[str, Any]:
    """How often the judge said what it must; each group by what was planted."""
    copies = [(g["copied"], g["duplicate"]) for g in groups]
    orders = [(g["ordered"], g["shuffled"]) for g in groups]
    return {
        "n_groups": len(groups),
        "duplicate_same_mode": share([a.valid == b.valid and a.mode == b.mode for a, b in copies]),
        "duplicate_same_grades": share([a.scores == b.scores for a, b in copies]),
        "shuffled_not_more_coherent": share(
            [b.scores[COHERENCE] <= a.scores[COHERENCE] for a, b in orders]
        ),
        "shuffled_lower_quality": share([quality(b) < quality(a) for a, b in orders]),
        "shuffled_quality_change": float(np.mean([quality(b) - quality(a) for a, b in orders]))
        if orders
        else None,
        "empty_invalid": share([not g["empty"].valid for g in groups]),
    }


def position_effect(rows: Floats, *, seed: int = 0) -> dict[str, Any] | None:
    """Mean quality by display position, from `[groups, positions]`; None without any group."""
    if not len(rows):
        return None
    centred = rows - rows.mean(axis=1, keepdims=True)
    position = np.arange(rows.shape[1]) - (rows.shape[1] - 1) / 2
    rng = np.random.default_rng(seed)
    spread = _spread(centred)
    shuffled = [_spread(rng.permuted(centred, axis=1)) for _ in range(PERMUTATIONS)]
    # The observed order is one of the possible ones; so a p-value is never zero.
    extreme = 1 + sum(value >= spread - 1e-12 for value in shuffled)
    return {
        "n_groups": len(rows),
        "mean_quality": [float(mean) for mean in rows.mean(axis=0)],
        "slope_per_position": float((centred @ position).mean() / (position @ position)),
        "p_value": extreme / (1 + PERMUTATIONS),
    }


def _spread(centred: Floats) -> float:
    return float((centred.mean(axis=0) ** 2).sum())


def _rows(series: Series) -> Floats:
    """Quality by position, for the sheets that have verdicts, `[sheets, positions]`."""
    rows = []
    for sheet, judgments in series.states():
        grades = {
            (judgment.cell, grade.index): grade
            for judgment in judgments
            if isinstance(judgment, GroupVerdict)
            for grade in judgment.outputs
        }
        if grades:
            places = zip(sheet.pools, sheet.indices, strict=True)
            rows.append(
                [quality(grades[series.plan.blinding[code], index]) for code, index in places]
            )
    # Prompts may have different numbers of answers; places are compared among groups of one size.
    usual = Counter(map(len, rows)).most_common(1)
    return np.array([row for row in rows if len(row) == usual[0][0]], dtype=float)


Level = Literal["nominal", "ordinal", "interval"]

Key = tuple[str, int, int]
"""Cell, partition and group."""

Aligned = tuple[Grade, ...]
"""One output in one group, as each judge graded it."""


def agree(judges: Sequence[Judgments]) -> dict[str, Any]:
    """Agreement of two or more judges on the groups that all of them judged."""
    asked = max(sum(c.groups for c in judgments.planned.values()) for judgments in judges)
    # What one judge graded and another has not yet would move the order of the cells.
    alike = common(judges)
    groups = [
        _aligned(list(verdicts), judges)
        for verdicts in zip(*(judgments.verdicts for judgments in alike), strict=True)
    ]
    outputs = [output for group in groups for output in group]
    modes, ranks = [], []
    for i, j in combinations(range(len(judges)), 2):
        pair = {"a": judges[i].source, "b": judges[j].source}
        ranks.append(pair | rank_correlation(alike[i], alike[j]))
        if alike[0].modes:
            labels = [_shared_modes((output[i], output[j]) for output in group) for group in groups]
            modes.append(pair | mode_agreement(labels))
    return {
        "judges": [judgments.source for judgments in judges],
        "n_groups": len(groups),
        "n_groups_asked": asked,
        "n_outputs": len(outputs),
        "alpha": _alphas(outputs, judges[0].dimensions),
        "modes": modes if alike[0].modes else None,
        "rank_correlations": ranks,
    }


def common(judges: Sequence[Judgments]) -> list[Judgments]:
    """Judgments of what all judges judged, in one order: groups, or single outputs.

    Who rated outputs one by one is held against what others said of these outputs in the first
    group that has them; modes are then out of question.
    """
    if any(map(_rated_alone, judges)):
        judges = [
            judgments if _rated_alone(judgments) else _one_by_one(judgments) for judgments in judges
        ]
    for other in judges[1:]:
        check_alike(judges[0], other, judges=False)
    tables = [
        {(j.cell, j.partition, j.group): j for j in judgments.verdicts} for judgments in judges
    ]
    keys = _common_keys(tables, judges)
    cells = {cell for cell, *_ in keys}
    order = [name for name in judges[0].planned if name in cells]  # one generator is first for all
    return [
        replace(
            judgments,
            verdicts=[table[key] for key in keys],
            planned={name: judgments.planned[name] for name in order},
        )
        for judgments, table in zip(judges, tables, strict=True)
    ]


def _rated_alone(judgments: Judgments) -> bool:
    """Whether it is a file of single outputs under their own numbers, as a page keeps ratings."""
    return not judgments.from_plan and all(
        len(verdict.outputs) == 1
        and (verdict.partition, verdict.group) == (0, verdict.outputs[0].index)
        for verdict in judgments.verdicts
    )


def _one_by_one(judgments: Judgments) -> Judgments:
    """Every output a group of its own, by the first of its groups."""
    by_output: dict[tuple[str, int], GroupVerdict] = {}
    for verdict in sorted(judgments.verdicts, key=lambda item: (item.partition, item.group)):
        for output in verdict.outputs:
            alone = (replace(output, mode=None, hybrid=False),)
            new = GroupVerdict(verdict.cell, 0, output.index, alone, verdict.confidence)
            by_output.setdefault((verdict.cell, output.index), new)
    counts = Counter(cell for cell, _ in by_output)
    planned = {name: PlannedGroups(counts[name], counts[name], 1) for name in judgments.planned}
    return replace(judgments, verdicts=list(by_output.values()), planned=planned, modes=False)


def _common_keys(
    tables: Sequence[dict[Key, GroupVerdict]], judges: Sequence[Judgments]
) -> list[Key]:
    keys = [key for key in tables[0] if all(key in table for table in tables)]
    if not keys:
        raise UserError(
            "There is no group that all of these judges have judged.",
            got="; ".join(
                f"{len(judgments.verdicts)} groups in {judgments.source}" for judgments in judges
            ),
            expected="judgments of one plan: the same cells, partitions and groups",
        )
    return keys


def _aligned(verdicts: list[GroupVerdict], judges: Sequence[Judgments]) -> list[Aligned]:
    by_index = [{output.index: output for output in verdict.outputs} for verdict in verdicts]
    first = verdicts[0]
    for table, judgments in zip(by_index, judges, strict=True):
        if table.keys() != by_index[0].keys():
            raise UserError(
                "The judges did not judge the same groups.",
                where=f"cell {first.cell!r}, partition {first.partition}, group {first.group}",
                got=f"outputs {sorted(by_index[0])} in {judges[0].source}, {sorted(table)} in "
                f"{judgments.source}",
                expected="judgments of one plan",
            )
    return [tuple(table[output.index] for table in by_index) for output in first.outputs]


def _alphas(outputs: list[Aligned], dimensions: Sequence[str]) -> dict[str, float | None]:
    grades = np.array([[grade.scores for grade in output] for output in outputs], dtype=float)
    totals = [[quality(grade) for grade in output] for output in outputs]
    valid = [[float(grade.valid) for grade in output] for output in outputs]
    return {
        **{
            name: alpha(grades[:, :, d], "ordinal")
            for d, name in enumerate(dimensions[: grades.shape[2]])
        },
        "quality": alpha(np.array(totals), "interval"),
        "valid": alpha(np.array(valid), "nominal"),
    }


def alpha(values: Any, level: Level) -> float | None:
    """Krippendorff's alpha of `[outputs, judges]`; None where all values are equal."""
    import krippendorff

    values = np.asarray(values, dtype=float)
    if len(np.unique(values)) < 2:
        return None
    return float(krippendorff.alpha(reliability_data=values.T, level_of_measurement=level))


def mode_agreement(labels: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> dict[str, Any]:
    """Co-membership of pairs, from the two judges' modes of each group."""
    counts = [_pair_counts(a, b) for a, b in labels]
    pairs = sum(c[3] for c in counts)
    agreed = sum(n - a - b + 2 * together for together, a, b, n in counts)
    return {
        "adjusted_rand": adjusted_rand(labels),
        "pairs_agreed": agreed / pairs if pairs else None,
        "n_pairs": pairs,
        "n_pairs_together_a": sum(c[1] for c in counts),
        "n_pairs_together_b": sum(c[2] for c in counts),
    }


def adjusted_rand(labels: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> float | None:
    """The adjusted Rand index of all groups together; None where nothing could disagree."""
    together = expected = most = 0.0
    for in_both, a, b, pairs in (_pair_counts(left, right) for left, right in labels):
        if pairs:
            together += in_both
            expected += a * b / pairs
            most += (a + b) / 2
    return None if math.isclose(most, expected) else (together - expected) / (most - expected)


def _pair_counts(a: Sequence[Any], b: Sequence[Any]) -> tuple[int, int, int, int]:
    """Pairs of one group that are together under both, under a, under b; and all pairs."""
    return (
        _pairs(Counter(zip(a, b, strict=True)).values()),
        _pairs(Counter(a).values()),
        _pairs(Counter(b).values()),
        math.comb(len(a), 2),
    )


def _pairs(counts: Any) -> int:
    return sum(math.comb(count, 2) for count in counts)


def rank_correlation(a: Judgments, b: Judgments) -> dict[str, Any]:
    """Spearman's correlation of two judges' scores across the cells that both have."""
    left, right = a.cells, b.cells
    names = [name for name in left if name in right]
    geq = [[side[name].geq() for name in names] for side in (left, right)]
    modes = a.modes and b.modes
    diversity = [[ged(side[name]) for name in names if modes] for side in (left, right)]
    return {
        "geq": spearman(*geq),
        "ged": spearman(*diversity),
        "n_cells": len(names),
    }


def spearman(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Rank correlation; None for fewer than three points or where one side is constant."""
    from scipy.stats import spearmanr

    if len(x) < 3 or len(set(x)) < 2 or len(set(y)) < 2:
        return None
    correlation: Any = spearmanr(x, y)  # its type stubs do not know the result's names
    return float(correlation.statistic)
