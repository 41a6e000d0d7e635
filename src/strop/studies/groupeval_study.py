"""What the paper concludes from its panels, computed: signs, intervals, step savings, correlations.

Every function takes a `Panel`, whether it holds the paper's numbers or measured ones.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, Literal

from strop.groupeval.agree import spearman
from strop.studies.groupeval_panel import Contrast, Panel, paper_numbers

__all__ = [
    "PRIMARY",
    "cross_generator",
    "judge_correlations",
    "sign_counts",
    "step_savings",
    "summary",
]

PRIMARY = 16
"""The least number of steps of the primary budgets; below it lies the floor case."""

Score = Literal["geq", "ged"]


def sign_counts(panel: Panel, *, least_steps: int = PRIMARY) -> dict[str, Any]:
    """In how many of the judge-budget pairs the sharpened sampler scores higher."""
    rows = [row for row in panel.rows if row.steps >= least_steps]
    return {
        "pairs": len(rows),
        "geq_higher": sum(_gap(row, "geq") > 0 for row in rows),
        "geq_lower": sum(_gap(row, "geq") < 0 for row in rows),
        "ged_higher": sum(_gap(row, "ged") > 0 for row in rows),
        "ged_lower": sum(_gap(row, "ged") < 0 for row in rows),
        "intervals_above_zero": sum(row.excludes_zero and row.difference > 0 for row in rows),
        "intervals_below_zero": sum(row.excludes_zero and row.difference < 0 for row in rows),
        "by_judge": {
            judge: {
                "geq_higher": sum(_gap(row, "geq") > 0 for row in rows if row.judge == judge),
                "ged_higher": sum(_gap(row, "ged") > 0 for row in rows if row.judge == judge),
                "pairs": sum(row.judge == judge for row in rows),
            }
            for judge in panel.judges
        },
    }


def _gap(row: Contrast, score: Score) -> float:
    standard, sharpened = getattr(row, score)
    return sharpened - standard


def step_savings(panel: Panel, *, few: int = 256, many: int = 1024) -> dict[str, Any]:
    """Sharpened at few steps against standard at many, by judge."""
    judges = {}
    for judge in panel.judges:
        rows = {row.steps: row for row in panel.of(judge)}
        if few in rows and many in rows:
            fast, slow = rows[few], rows[many]
            judges[judge] = {
                "geq": [slow.geq[0], fast.geq[1]],
                "ged": [slow.ged[0], fast.ged[1]],
                "geq_higher": fast.geq[1] > slow.geq[0],
                "ged_higher": fast.ged[1] > slow.ged[0],
            }
    return {
        "few": few,
        "many": many,
        "judges": judges,
        "geq_higher": sum(one["geq_higher"] for one in judges.values()),
        "ged_higher": sum(one["ged_higher"] for one in judges.values()),
        "of": len(judges),
    }


def judge_correlations(panel: Panel, *, judges: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Spearman's correlation of two judges across the sampler-budget cells, for every pair."""
    table = []
    for one, other in combinations(judges or panel.judges, 2):
        scores = {
            score: spearman(_cells(panel, one, score), _cells(panel, other, score))
            for score in ("geq", "ged")
        }
        table.append({"a": one, "b": other, **scores})
    return {"n_cells": 2 * len(panel.of(panel.judges[0])), "pairs": table}


def _cells(panel: Panel, judge: str, score: Score) -> list[float]:
    return [value for row in panel.of(judge) for value in getattr(row, score)]


def cross_generator() -> dict[str, Any]:
    """MDLM against DiDi-Instruct on matched outputs: likelihood and judged quality disagree."""
    rows = paper_numbers("groupeval-exact")["rows"]
    return {
        "comparisons": len(rows),
        "perplexity_favours_didi": sum(
            row["gpt2_large_ratio"] > 1 and row["qwen_ratio"] > 1 for row in rows
        ),
        "geq_favours_mdlm": sum(row["geq"][0] > row["geq"][1] for row in rows),
        "geq_tied": sum(row["geq"][0] == row["geq"][1] for row in rows),
        "ged_favours_mdlm": sum(row["ged"][0] > row["ged"][1] for row in rows),
        "intervals_above_zero": sum(row["interval"][0] > 0 for row in rows),
    }


def summary(panel: Panel) -> dict[str, Any]:
    """All of it for one panel."""
    return {
        "generator": panel.generator,
        "outputs_per_cell": panel.outputs_per_cell,
        "judges": list(panel.judges),
        "sign_counts": sign_counts(panel),
        "step_savings": step_savings(panel),
        "judge_correlations": judge_correlations(panel),
    }
