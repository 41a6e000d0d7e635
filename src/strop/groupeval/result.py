"""The scores of every cell as one document: what `strop groupeval score` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from strop.groupeval.bootstrap import REPLICATES, interval, mind, partition_weights, replicate
from strop.groupeval.cells import Cell
from strop.groupeval.diagnostics import diagnose, ged
from strop.groupeval.missing import ged_bounds, geq_bounds
from strop.groupeval.verdicts import Planned, Verdicts

__all__ = ["score"]


def score(
    verdicts: Verdicts,
    *,
    replicates: int = REPLICATES,
    seed: int = 0,
    told: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """GEQ, GED, uncertainty and diagnostics per cell, unrounded, cells without judgments too.

    `told` hears of replicates as they are drawn, so many for every cell with judgments.
    """
    cells = verdicts.cells
    everywhere = [partition for cell in cells.values() for partition in cell.partitions]
    shared = partition_weights(everywhere, replicates, seed) if everywhere else {}
    failed: dict[str, Counter[str]] = {}
    for failure in verdicts.failures:
        failed.setdefault(failure.cell, Counter())[failure.reason] += 1
    document: dict[str, Any] = {}
    for name, planned in verdicts.planned.items():
        cell = cells.get(name)
        document[name] = {
            **(
                _scored(cell, planned, verdicts.modes, shared, seed, told)
                if cell
                else _nothing(planned)
            ),
            "failures": dict(failed.get(name, {})),
        }
        if not verdicts.modes:
            document[name]["ged_bounds"] = None
    return {
        "source": verdicts.source,
        "profile": verdicts.profile,
        "judge": verdicts.judge,
        "asked_from": "plan" if verdicts.from_plan else "file",
        "replicates": replicates,
        "seed": seed,
        "cells": document,
    }


def _scored(
    cell: Cell,
    planned: Planned,
    modes: bool,
    shared: dict[int, Any],
    seed: int,
    told: Callable[[int], None],
) -> dict[str, Any]:
    drawn = replicate(cell, shared, seed=seed, modes=modes, told=told)
    diversity = ged(cell) if modes else None
    return {
        "geq": cell.geq(),
        "geq_interval": interval(drawn.geq),
        "geq_interval_mind": mind(cell),
        "ged": diversity,
        "ged_weight_sensitivity": None if drawn.ged is None else interval(drawn.ged),
        "n_outputs": len(cell.outputs),
        "n_outputs_above_0": cell.nonzero,
        "n_groups": len(cell.judgments),
        "n_outputs_asked": planned.outputs,
        "n_groups_asked": planned.groups,
        "group_size": cell.size,
        "n_partitions": len(cell.partitions),
        **diagnose(cell, modes=modes),
        "geq_bounds": geq_bounds(cell, planned),
        "ged_bounds": ged_bounds(diversity, len(cell.judgments), planned),
    }


def _nothing(planned: Planned) -> dict[str, Any]:
    """A cell that was asked about and has no accepted judgment: no score, and all still open."""
    return {
        "geq": None,
        "geq_interval": None,
        "ged": None,
        "n_outputs": 0,
        "n_groups": 0,
        "n_outputs_asked": planned.outputs,
        "n_groups_asked": planned.groups,
        "geq_bounds": geq_bounds(None, planned),
        "ged_bounds": ged_bounds(None, 0, planned),
    }
