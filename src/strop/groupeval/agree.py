"""How far judges agree: on grades, on modes, and on the order of the cells.

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
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Literal

import numpy as np

from strop.errors import UserError
from strop.groupeval.compare import check_alike
from strop.groupeval.diagnostics import ged
from strop.groupeval.judgment import Grade, Judgment
from strop.groupeval.scores import quality
from strop.groupeval.verdicts import Verdicts

__all__ = ["adjusted_rand", "agree", "alpha", "mode_agreement", "rank_correlation"]

Level = Literal["nominal", "ordinal", "interval"]

Key = tuple[str, int, int]
"""Cell, partition and group."""

Aligned = tuple[Grade, ...]
"""One output in one group, as each judge graded it."""


def agree(judges: Sequence[Verdicts]) -> dict[str, Any]:
    """Agreement of two or more judges on the groups that all of them judged."""
    for other in judges[1:]:
        check_alike(judges[0], other, judges=False)
    tables = [{(j.cell, j.partition, j.group): j for j in one.judgments} for one in judges]
    keys = _common_keys(tables, judges)
    groups = [_aligned([table[key] for table in tables], judges) for key in keys]
    # What one judge graded and another has not yet would move the order of the cells.
    alike = [
        replace(one, judgments=[table[key] for key in keys])
        for one, table in zip(judges, tables, strict=True)
    ]
    outputs = [output for group in groups for output in group]
    pairs = list(combinations(range(len(judges)), 2))
    return {
        "judges": [one.source for one in judges],
        "n_groups": len(groups),
        "n_groups_asked": max(sum(c.groups for c in one.planned.values()) for one in judges),
        "n_outputs": len(outputs),
        "alpha": _alphas(outputs, judges[0].dimensions),
        "modes": [_pair(judges, i, j) | mode_agreement(_modes_of(groups, i, j)) for i, j in pairs]
        if judges[0].modes
        else None,
        "rank_correlations": [
            _pair(judges, i, j) | rank_correlation(alike[i], alike[j]) for i, j in pairs
        ],
    }


def _pair(judges: Sequence[Verdicts], i: int, j: int) -> dict[str, Any]:
    return {"a": judges[i].source, "b": judges[j].source}


def _common_keys(tables: Sequence[dict[Key, Judgment]], judges: Sequence[Verdicts]) -> list[Key]:
    keys = [key for key in tables[0] if all(key in table for table in tables)]
    if not keys:
        raise UserError(
            "There is no group that all of these judges have judged.",
            got="; ".join(f"{len(one.judgments)} groups in {one.source}" for one in judges),
            expected="judgments of one plan: the same cells, partitions and groups",
        )
    return keys


def _aligned(judgments: list[Judgment], judges: Sequence[Verdicts]) -> list[Aligned]:
    by_index = [{one.index: one for one in judgment.outputs} for judgment in judgments]
    first = judgments[0]
    for table, verdicts in zip(by_index, judges, strict=True):
        if table.keys() != by_index[0].keys():
            raise UserError(
                "The judges did not judge the same groups.",
                where=f"cell {first.cell!r}, partition {first.partition}, group {first.group}",
                got=f"outputs {sorted(by_index[0])} in {judges[0].source}, {sorted(table)} in "
                f"{verdicts.source}",
                expected="judgments of one plan",
            )
    return [tuple(table[one.index] for table in by_index) for one in first.outputs]


def _alphas(outputs: list[Aligned], dimensions: Sequence[str]) -> dict[str, float | None]:
    grades = np.array([[one.scores for one in output] for output in outputs], dtype=float)
    totals = [[quality(one) for one in output] for output in outputs]
    valid = [[float(one.valid) for one in output] for output in outputs]
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


def _modes_of(groups: list[list[Aligned]], i: int, j: int) -> list[tuple[list[Any], list[Any]]]:
    labels = []
    for group in groups:
        both = [(output[i].mode, output[j].mode) for output in group]
        both = [(a, b) for a, b in both if a is not None and b is not None]
        labels.append(([a for a, _ in both], [b for _, b in both]))
    return labels


def mode_agreement(labels: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> dict[str, Any]:
    """Co-membership of pairs, from the two judges' modes of each group."""
    counts = [_pair_counts(a, b) for a, b in labels]
    pairs = sum(c[3] for c in counts)
    agreed = sum(n - a - b + 2 * both for both, a, b, n in counts)
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
    for both, a, b, pairs in (_pair_counts(one, other) for one, other in labels):
        if pairs:
            together += both
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


def rank_correlation(a: Verdicts, b: Verdicts) -> dict[str, Any]:
    """Spearman's correlation of two judges' scores across the cells that both have."""
    left, right = a.cells, b.cells
    names = [name for name in left if name in right]
    geq = [[side[name].geq() for name in names] for side in (left, right)]
    diversity = [[ged(side[name]) for name in names] for side in (left, right)]
    return {
        "geq": spearman(*geq),
        "ged": spearman(*diversity) if a.modes and b.modes else None,
        "n_cells": len(names),
    }


def spearman(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Rank correlation; None for fewer than three points or where one side is constant."""
    from scipy.stats import spearmanr

    if len(x) < 3 or len(set(x)) < 2 or len(set(y)) < 2:
        return None
    found: Any = spearmanr(x, y)  # its type stubs do not know the result's names
    return float(found.statistic)
