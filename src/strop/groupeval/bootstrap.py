"""How sure GEQ is, and how GED moves with the outputs: a cell's scores as one document.

GEQ is a mean of readings that are crossed: an output is read once in every partition, among others
of its group, and what the judge thought of a group moves all of its outputs. Its interval is that
of the crossed model output + group + rest (`strop.stats.resample`), with Student's limits.

GED has no interval. Its range is that of a partition-blocked Bayesian bootstrap (Rubin 1981). A
replicate draws

- a weight per partition, flat Dirichlet;
- a weight per output, flat Dirichlet, used in every partition;

and with `v` for the first and W_g for the weight of group g's outputs it is

    GED = sum_g v_g W_g GED_g / sum_g v_g W_g,

where GED_g takes its shares from the weights. Equal weights give the plain score back. The range
is no interval: unequal weights lower the entropy of a group whose modes all differ, so it says how
GED moves with the weights, no more.

`score` is the whole: GEQ, GED and diagnostics of every cell as one document. `compare` sets two
generators against each other: a difference with an interval for GEQ, without one for GED. It means
something only if profile, judge and group size are the same on both sides. That its interval
excludes zero is said only where both sides have a few outputs above zero (`FLOOR`).
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.groupeval.by_prompt import compare_by_prompt, score_by_prompt
from strop.groupeval.judgments import Judgments, check_alike, unchecked
from strop.groupeval.scores import (
    TOP,
    JudgedCell,
    PlannedGroups,
    counted,
    diagnose,
    factors,
    ged,
    ged_bounds,
    geq_bounds,
)
from strop.groupeval.verdict import GroupVerdict
from strop.rng import derive_seed
from strop.stats.interval import LEVEL
from strop.stats.resample import REPLICATES, Crossed, crossed, dirichlet, exponentials

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
    replicates, done = [], 0
    terms = _terms(cell)
    for e in output_weights(cell.name, len(cell.outputs), len(v), seed):
        e = np.asfortranarray(e)  # both turn it over, and so do it once
        part = v[done : done + len(e)]
        done += len(e)
        replicates.append(ged_replicates(cell, part, e, terms))
        told(len(e))
    return np.concatenate(replicates)


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
    # One column after another: BLAS would start threads for a product.
    weight = np.stack([np.einsum("i,ij->j", c, w) for c in np.asarray(cell.judged, float).T])
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
    outputs, partitions = len(cell.outputs), len(cell.partitions)
    places = [(k, i, 1.0) for k, rows in enumerate(members) for i in rows]
    return Terms(
        _sparse(places, len(members), outputs),
        _sparse([(r, k, sign) for k, (r, sign) in enumerate(signs)], partitions, len(signs)),
        _sparse([(r, i, 1.0) for r, i in singles], partitions, outputs),
    )


def _sparse(places: Sequence[tuple[int, int, float]], height: int, width: int) -> csr_array:
    """From rows, columns and values."""
    from scipy.sparse import csr_array

    table = np.array(places, float).reshape(-1, 3)
    rows, columns = table[:, :2].astype(np.int64).T
    return csr_array((table[:, 2], (rows, columns)), shape=(height, width))


def _modes(cell: JudgedCell, verdict: GroupVerdict) -> list[list[int]]:
    """The rows of the valid outputs, mode by mode."""
    modes: dict[str | None, list[int]] = {}
    for output in verdict.outputs:
        if output.valid:
            modes.setdefault(output.mode, []).append(cell.row[output.index])
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
    nonzero = min(cell.nonzero for cell in cells)
    return f"only {nonzero} outputs above 0: too narrow" if nonzero < FLOOR else None


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
            # Asked about without a verdict: no score, and all still open.
            scores = {"geq": None, "ged": None, **counted(None, planned)}
            scores["geq_bounds"] = geq_bounds(None, planned)
            scores["ged_bounds"] = ged_bounds(None, 0, planned)
        elif judgments.by_prompt:
            scores = score_by_prompt(cell, planned)
        else:
            scores = _scored(cell, planned, judgments.modes)
            if judgments.modes:
                drawn = replicate(cell, shared, seed=seed, told=told)
                # Where most replicates lie; no interval of a value, which may be outside.
                ends = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
                scores["ged_weight_sensitivity"] = ends.tolist()
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


def _scored(cell: JudgedCell, planned: PlannedGroups, modes: bool) -> dict[str, Any]:
    diversity, quality = ged(cell) if modes else None, geq_of(cell)
    return {
        "geq": quality.interval(),
        "geq_interval_mind": mind(cell),
        "geq_variance": None if quality.variance is None else quality.parts,
        "ged": diversity,
        "ged_weight_sensitivity": None,
        "group_size": cell.size,
        **counted(cell, planned),
        **diagnose(cell, modes=modes),
        "geq_bounds": geq_bounds(cell, planned),
        "ged_bounds": ged_bounds(diversity, len(cell.verdicts), planned),
    }


# ---------------------------------------------------------------- two generators


def compare(a: Judgments, b: Judgments) -> dict[str, Any]:
    """B minus A, for the one cell of each, or for every cell that both have by name."""
    check_alike(a, b)
    pairs = _pairs(a, b)
    rows = [_row(a, b, _cell(a, left), _cell(b, right)) for left, right in pairs]
    return {
        "a": a.source,
        "b": b.source,
        "difference": "b minus a",
        "unchecked": unchecked(a, b),
        "pairs": rows,
    }


def against_first(judgments: Judgments) -> list[dict[str, Any]]:
    """Every other cell minus the first one that has verdicts; what cannot be compared is absent."""
    rows: list[dict[str, Any]] = []
    judged = judgments.cells
    cells = [judged[name] for name in judgments.planned if name in judged]
    for other in cells[1:]:
        with contextlib.suppress(UserError):  # another group size, or no prompt in common
            rows.append(_row(judgments, judgments, cells[0], other))
    return rows


def _row(a: Judgments, b: Judgments, left: JudgedCell, right: JudgedCell) -> dict[str, Any]:
    row = compare_by_prompt(left, right) if a.by_prompt else _difference(left, right, a.modes)
    for side, judgments, cell in (("a", a, left), ("b", b, right)):
        row |= {
            f"cell_{side}": cell.name,
            f"n_outputs_{side}": len(cell.outputs),
            f"n_outputs_above_0_{side}": cell.nonzero,
            f"n_groups_{side}": len(cell.verdicts),
            f"n_groups_asked_{side}": judgments.planned[cell.name].groups,
        }
    return row


def _difference(left: JudgedCell, right: JudgedCell, modes: bool) -> dict[str, Any]:
    """B minus A: their outputs are not paired, and no group holds both."""
    if left.size != right.size:
        raise UserError(
            "The group sizes differ.",
            got=f"{left.size} outputs per group in {left.name!r}, {right.size} in {right.name!r}",
            expected="one size: GED depends on it, and a judge grades a text among its neighbours",
        )
    between = (geq_of(right) - geq_of(left)).interval()
    enough = min(left.nonzero, right.nonzero) >= FLOOR
    return {
        "geq_a": left.geq(),
        "geq_b": right.geq(),
        "geq_difference": between,
        "geq_interval_excludes_zero": enough and between.excludes(0),
        "geq_interval_mind": mind(left, right),
        "ged_a": ged(left) if modes else None,
        "ged_b": ged(right) if modes else None,
        "ged_difference": ged(right) - ged(left) if modes else None,
        **{
            f"{name}_{side}": value
            for side, cell in (("a", left), ("b", right))
            for name, value in factors(cell.verdicts, modes=modes).items()
        },
    }


def _pairs(a: Judgments, b: Judgments) -> list[tuple[str, str]]:
    if len(a.planned) == len(b.planned) == 1:
        pairs = [(next(iter(a.planned)), next(iter(b.planned)))]
    else:
        pairs = [(name, name) for name in a.planned if name in b.planned]
    if a.source == b.source and any(left == right for left, right in pairs):
        raise UserError(
            "Both sides are the same.",
            where=a.source,
            got=", ".join(left for left, _ in pairs[:3]),
            fix="name two cells: " + " ".join(f"{a.source}:{name}" for name in list(a.planned)[:2]),
        )
    if not pairs:
        raise UserError(
            "The two have no cell in common.",
            got=f"{_cell_names(a)} in {a.source}; {_cell_names(b)} in {b.source}",
            expected="cells of the same names, or one cell on each side",
            fix="name the cells, such as RUN:CELL",
        )
    return pairs


def _cell(judgments: Judgments, name: str) -> JudgedCell:
    if name not in judgments.cells:
        raise UserError(
            "A cell has no accepted judgment.",
            where=f"{judgments.source}:{name}",
            got=f"0 of {judgments.planned[name].groups} groups",
            fix="judge it first; strop groupeval show says what failed",
        )
    return judgments.cells[name]


def _cell_names(judgments: Judgments) -> str:
    return ", ".join(list(judgments.planned)[:5])
