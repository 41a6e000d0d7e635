"""How sure GEQ is, and how GED moves with the outputs: a cell's scores as one document.

GEQ is a mean of readings that are crossed: an output is read once in every partition, among others
of its group, and what the judge thought of a group moves all of its outputs. Its interval is that
of the crossed model output + group + rest (`strop.stats.crossed`), with Student's limits.

GED has no interval. Its range is that of a partition-blocked Bayesian bootstrap (Rubin 1981). A
replicate draws

- a weight per partition, flat Dirichlet;
- a weight per output, flat Dirichlet, used in every partition;

and with `v` for the first and W_g for the weight of group g's outputs it is

    GED = sum_g v_g W_g GED_g / sum_g v_g W_g,

where GED_g takes its shares from the weights. Equal weights give the plain score back. The range
is no interval: unequal weights lower the entropy of a group whose modes all differ, so it says how
GED moves with the weights, no more.

`score` is the whole: GEQ, GED and diagnostics of every cell as one document.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strop.groupeval.by_prompt import score_by_prompt
from strop.groupeval.judgments import Judgments
from strop.groupeval.scores import (
    TOP,
    JudgedCell,
    PlannedGroups,
    diagnose,
    ged,
    ged_bounds,
    geq_bounds,
)
from strop.groupeval.verdict import GroupVerdict
from strop.rng import derive_seed
from strop.stats.crossed import Crossed, crossed
from strop.stats.interval import LEVEL
from strop.stats.resample import REPLICATES, dirichlet, exponentials

if TYPE_CHECKING:
    from scipy.sparse import csr_array

FLOOR = 5
"""Outputs with a quality above 0 from which an interval of a difference may be read against 0."""
Floats = NDArray[np.float64]


def partition_weights(partitions: Sequence[int], replicates: int, seed: int) -> dict[int, Floats]:
    """A column of replicates for each partition; equal names have equal weights in every cell."""
    names = sorted(set(partitions))
    drawn = dirichlet(len(names), replicates, derive_seed(seed, "groupeval-partitions"))
    return {name: drawn[:, column] for column, name in enumerate(names)}


def output_weights(setting: str, outputs: int, replicates: int, seed: int) -> Iterator[Floats]:
    """Unnormalised weights of a cell's outputs, `[some replicates, outputs]` at a time."""
    return exponentials(outputs, replicates, derive_seed(seed, f"groupeval-outputs:{setting}"))


def replicate(
    cell: JudgedCell,
    shared: dict[int, Floats],
    *,
    seed: int = 0,
    told: Callable[[int], None] = lambda _: None,
) -> Floats:
    """GED of a cell under every draw of the weights.

    `told` hears how many were drawn since it heard last.
    """
    v = np.stack([shared[partition] for partition in cell.partitions], axis=1)
    found, done = [], 0
    terms = _terms(cell)
    for e in output_weights(cell.name, len(cell.outputs), len(v), seed):
        e = np.asfortranarray(e)  # both turn it over, and so do it once
        part = v[done : done + len(e)]
        done += len(e)
        found.append(ged_replicates(cell, part, e, terms))
        told(len(e))
    return np.concatenate(found)


def _sums(columns: Any, w: Floats) -> Floats:
    """`columns.T @ w`, one column after another: BLAS would start threads for it."""
    return np.stack([np.einsum("i,ij->j", column, w) for column in np.asarray(columns, float).T])


def ged_replicates(cell: JudgedCell, v: Floats, e: Floats, terms: Terms | None = None) -> Floats:
    """GED under partition weights `v` and output weights `e`, which need not sum to one.

    `terms` may be given where they are known already.

    W_g GED_g = 10 / log n * (V log V - sum_k m_k log m_k), with V the weight of g's valid outputs
    and m_k that of mode k: the group's own weight cancels, and the bracket scales with the weights.
    A mode of one output, the common case, needs no sum.
    """
    terms = terms or _terms(cell)
    w = np.ascontiguousarray(e.T)
    bracket = terms.signs @ _xlogx(terms.members @ w) - terms.singles @ _xlogx(w)
    weight = _sums(cell.judged, w)
    top = TOP / math.log(cell.size) * (bracket * v.T).sum(axis=0)
    return top / (weight * v.T).sum(axis=0)


@dataclass(frozen=True)
class Terms:
    """Which weights of outputs make the V and m_k of a cell; sparse, so they grow with the pool."""

    members: csr_array
    """`[terms, outputs]`: the outputs of every V, and of every m_k of several outputs."""
    signs: csr_array
    """`[partitions, terms]`: +1 for a V, -1 for an m_k, in the row of its partition."""
    singles: csr_array
    """`[partitions, outputs]`: 1 where an output is alone in its mode, so that m_k is its own."""


def _terms(cell: JudgedCell) -> Terms:
    members: list[list[int]] = []
    signs: list[tuple[int, float]] = []
    singles: list[tuple[int, int]] = []
    column = {partition: r for r, partition in enumerate(cell.partitions)}
    for verdict in cell.verdicts:
        r, modes = column[verdict.partition], _modes(cell, verdict)
        if len(modes) > 1:  # otherwise V log V and the one mode's term cancel
            several = [mode for mode in modes if len(mode) > 1]
            members += [[i for mode in modes for i in mode], *several]
            signs += [(r, 1.0), *[(r, -1.0)] * len(several)]
            singles += [(r, mode[0]) for mode in modes if len(mode) == 1]
    rows = [k for k, mine in enumerate(members) for _ in mine]
    outputs, partitions = len(cell.outputs), len(cell.partitions)
    places = [r for r, _ in signs]
    return Terms(
        _sparse(rows, [i for mine in members for i in mine], len(members), outputs),
        _sparse(places, range(len(signs)), partitions, len(signs), [sign for _, sign in signs]),
        _sparse([r for r, _ in singles], [i for _, i in singles], partitions, outputs),
    )


def _sparse(
    rows: Sequence[int],
    columns: Sequence[int],
    height: int,
    width: int,
    values: Sequence[float] | None = None,
) -> csr_array:
    from scipy.sparse import csr_array

    filled = np.ones(len(rows)) if values is None else np.asarray(values, float)
    places = (np.asarray(rows, np.int64), np.asarray(columns, np.int64))
    return csr_array((filled, places), shape=(height, width))


def _modes(cell: JudgedCell, verdict: GroupVerdict) -> list[list[int]]:
    """The rows of the valid outputs, mode by mode."""
    modes: dict[str | None, list[int]] = {}
    for one in verdict.outputs:
        if one.valid:
            modes.setdefault(one.mode, []).append(cell.row[one.index])
    return list(modes.values())


def _xlogx(x: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        logs = np.log(x)
    logs[x == 0] = 0
    logs *= x
    return logs


def mind(*cells: JudgedCell) -> str | None:
    """What stands beside an interval of these cells' GEQ; docs/groupeval-scores.md has the counts.

    Where nearly all outputs are 0 nothing is known of the good ones that were not drawn.
    """
    some = min(cell.nonzero for cell in cells)
    return f"only {some} outputs above 0: too narrow" if some < FLOOR else None


def geq_of(cell: JudgedCell) -> Crossed:
    """GEQ of a cell, and what its variance is made of."""
    return crossed(cell.q, cell.judged, cell.groups)


def score(
    judgments: Judgments,
    *,
    replicates: int = REPLICATES,
    seed: int = 0,
    told: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """GEQ, GED, uncertainty and diagnostics per cell, unrounded, cells without verdicts too.

    `told` hears of replicates as they are drawn, so many for every cell with modes. Answers to
    prompts need none: their scores are means over prompts (`by_prompt.py`).
    """
    cells = judgments.cells
    everywhere = [partition for cell in cells.values() for partition in cell.partitions]
    shared = partition_weights(everywhere, replicates, seed) if everywhere else {}
    failed: dict[str, Counter[str]] = {}
    for failure in judgments.failures:
        failed.setdefault(failure.cell, Counter())[failure.reason] += 1
    document: dict[str, Any] = {}
    for name, planned in judgments.planned.items():
        cell = cells.get(name)
        if cell is None:
            scores = _nothing(planned)
        elif judgments.by_prompt:
            scores = score_by_prompt(cell, planned)
        else:
            scores = _scored(cell, planned, judgments.modes, shared, seed, told)
        document[name] = {**scores, "failures": dict(failed.get(name, {}))}
        if not judgments.modes:
            document[name]["ged_bounds"] = None
    return {
        "source": judgments.source,
        "profile": judgments.profile,
        "judge": None if judgments.judge is None else judgments.judge.document(),
        "asked_from": "plan" if judgments.from_plan else "file",
        "replicates": replicates,
        "seed": seed,
        "cells": document,
    }


def _scored(
    cell: JudgedCell,
    planned: PlannedGroups,
    modes: bool,
    shared: dict[int, Any],
    seed: int,
    told: Callable[[int], None],
) -> dict[str, Any]:
    diversity = ged(cell) if modes else None
    drawn = replicate(cell, shared, seed=seed, told=told) if modes else None
    quality = geq_of(cell)
    return {
        "geq": quality.interval(),
        "geq_interval_mind": mind(cell),
        "geq_variance": None if quality.variance is None else quality.parts,
        "ged": diversity,
        "ged_weight_sensitivity": None if drawn is None else _middle(drawn),
        "n_outputs": len(cell.outputs),
        "n_outputs_above_0": cell.nonzero,
        "n_groups": len(cell.verdicts),
        "n_outputs_asked": planned.outputs,
        "n_groups_asked": planned.groups,
        "group_size": cell.size,
        "n_partitions": len(cell.partitions),
        **diagnose(cell, modes=modes),
        "geq_bounds": geq_bounds(cell, planned),
        "ged_bounds": ged_bounds(diversity, len(cell.verdicts), planned),
    }


def _middle(replicates: Floats) -> list[float]:
    """Where most replicates lie; no interval of a value, which may be outside."""
    return np.quantile(replicates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()


def _nothing(planned: PlannedGroups) -> dict[str, Any]:
    """A cell that was asked about and has no verdict: no score, and all still open."""
    return {
        "geq": None,
        "ged": None,
        "n_outputs": 0,
        "n_groups": 0,
        "n_outputs_asked": planned.outputs,
        "n_groups_asked": planned.groups,
        "geq_bounds": geq_bounds(None, planned),
        "ged_bounds": ged_bounds(None, 0, planned),
    }
