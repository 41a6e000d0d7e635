"""Partition-blocked Bayesian bootstrap (Rubin 1981): how far GEQ hangs on which outputs were drawn.

One replicate draws

- a weight per partition, flat Dirichlet, shared by all cells that are compared;
- a weight per output of a cell, flat Dirichlet, used in every partition, independent between cells
  (their outputs are not paired);

and computes the scores again under these weights. With `v` and `w` for them,

    GEQ = sum_i w_i * (sum_r v_r q_ir / sum_r v_r), the inner sums over i's judgments;
    GED = sum_g v_g W_g GED_g / sum_g v_g W_g, W_g being the weight of group g's outputs,

where GED_g takes its shares from the weights. Equal weights give the plain scores back. The range
of GEQ is an interval given the judgments. The range of GED is not: unequal weights lower the
entropy of a group whose modes all differ, so it says how GED moves with the weights, no more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.groupeval.cells import Cell
from strop.groupeval.judgment import Judgment
from strop.groupeval.scores import TOP
from strop.rng import derive_seed

__all__ = [
    "FEW",
    "FLOOR",
    "REPLICATES",
    "Replicates",
    "ged_replicates",
    "geq_replicates",
    "interval",
    "mind",
    "output_weights",
    "partition_weights",
    "replicate",
]

REPLICATES = 10_000
FLOOR = 5
"""Outputs with a quality above 0 from which an interval of a difference may be read against 0."""
FEW = 32
"""Outputs below which intervals are narrower than they say."""
CHUNK = 2**16
"""Weights held at a time: half a megabyte stays in the processor's cache."""
BLOCK = 64
"""Groups taken together."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Replicates:
    """The scores of one cell under every draw of the weights."""

    geq: Floats
    ged: Floats | None
    """None where the profile has no modes."""


def partition_weights(partitions: Sequence[int], replicates: int, seed: int) -> dict[int, Floats]:
    """A column of replicates for each partition; equal names have equal weights in every cell."""
    rng = np.random.default_rng(derive_seed(seed, "groupeval-partitions"))
    names = sorted(set(partitions))
    drawn = rng.dirichlet(np.ones(len(names)), replicates)
    return {name: drawn[:, column] for column, name in enumerate(names)}


def output_weights(setting: str, outputs: int, replicates: int, seed: int) -> Iterator[Floats]:
    """Unnormalised weights of a cell's outputs, `[some replicates, outputs]` at a time."""
    rng = np.random.default_rng(derive_seed(seed, f"groupeval-outputs:{setting}"))
    rows = max(1, CHUNK // max(1, outputs))
    for start in range(0, replicates, rows):
        yield rng.standard_exponential((min(rows, replicates - start), outputs))


def replicate(
    cell: Cell,
    shared: dict[int, Floats],
    *,
    seed: int = 0,
    modes: bool = True,
    setting: str | None = None,
) -> Replicates:
    """All replicates of a cell; `setting` names its stream of weights, by default the cell does."""
    v = np.stack([shared[partition] for partition in cell.partitions], axis=1)
    geq, ged, done = [], [], 0
    terms = _terms(cell) if modes else None
    for e in output_weights(setting or cell.name, len(cell.outputs), len(v), seed):
        part = v[done : done + len(e)]
        done += len(e)
        geq.append(geq_replicates(cell, part, e))
        if terms is not None:
            ged.append(ged_replicates(cell, part, e, terms))
    return Replicates(np.concatenate(geq), np.concatenate(ged) if modes else None)


def geq_replicates(cell: Cell, v: Floats, e: Floats) -> Floats:
    """GEQ under partition weights `v` and output weights `e`, which need not sum to one."""
    if cell.judged.all():
        weighted = ((e @ cell.q) * v).sum(axis=1) / v.sum(axis=1)
    else:
        # q is 0 and `judged` False where a judgment is missing: both sums skip it.
        weighted = (e * (v @ cell.q.T) / (v @ cell.judged.T)).sum(axis=1)
    return weighted / e.sum(axis=1)


def ged_replicates(cell: Cell, v: Floats, e: Floats, terms: Terms | None = None) -> Floats:
    """GED under the same weights; `terms` may be given where they are known already.

    W_g GED_g = 10 / log n * (V log V - sum_k m_k log m_k), with V the weight of g's valid outputs
    and m_k that of mode k: the group's own weight cancels, and the bracket scales with the weights.
    A mode of one output, the common case, needs no sum.
    """
    terms = terms or _terms(cell)
    bracket = -(_xlogx(e) @ terms.singles)
    for block in terms.blocks:
        mine = e if len(block.outputs) == e.shape[1] else e[:, block.outputs]
        bracket += _xlogx(mine @ block.sums) @ block.signs
    weight = e @ cell.judged
    top = TOP / math.log(cell.size) * (bracket * v).sum(axis=1)
    return top / (weight * v).sum(axis=1)


@dataclass(frozen=True)
class Block:
    """The weights V and m_k of some groups, as sums over the weights of their outputs."""

    outputs: list[int]
    """Rows of the cell's outputs, in the order of the rows of `sums`."""
    sums: Floats
    """`[outputs, sums]`: which outputs each V or m_k is the sum of."""
    signs: Floats
    """`[sums, partitions]`: +1 for a V, -1 for an m_k, in the column of its partition."""


@dataclass(frozen=True)
class Terms:
    """Which weights of outputs make the V and m_k of a cell."""

    singles: Floats
    """`[outputs, partitions]`: 1 where an output is alone in its mode, so that m_k is its own."""
    blocks: list[Block]
    """All V, and the m_k of several outputs."""


def _terms(cell: Cell) -> Terms:
    return Terms(_singles(cell), list(_blocks(cell)))


def _blocks(cell: Cell) -> Iterator[Block]:
    """Groups a few dozen at a time, so that the matrices grow with the pool, not its square."""
    for start in range(0, len(cell.judgments), BLOCK):
        terms: list[tuple[list[int], int, float]] = []
        for judgment in cell.judgments[start : start + BLOCK]:
            r, modes = cell.partitions.index(judgment.partition), _modes(cell, judgment)
            if len(modes) > 1:  # otherwise V log V and the one mode's term cancel
                terms.append(([i for mode in modes for i in mode], r, 1.0))
                terms += [(mode, r, -1.0) for mode in modes if len(mode) > 1]
        outputs = sorted({i for members, _, _ in terms for i in members})
        if len(outputs) > len(cell.outputs) // 2:
            outputs = list(range(len(cell.outputs)))  # then gathering costs more than it saves
        place = {i: at for at, i in enumerate(outputs)}
        sums = np.zeros((len(outputs), len(terms)))
        signs = np.zeros((len(terms), len(cell.partitions)))
        for k, (members, r, sign) in enumerate(terms):
            sums[[place[i] for i in members], k] = 1
            signs[k, r] = sign
        yield Block(outputs, sums, signs)


def _singles(cell: Cell) -> Floats:
    singles = np.zeros(cell.q.shape)
    for judgment in cell.judgments:
        modes = _modes(cell, judgment)
        alone = [mode[0] for mode in modes if len(mode) == 1 and len(modes) > 1]
        singles[alone, cell.partitions.index(judgment.partition)] = 1
    return singles


def _modes(cell: Cell, judgment: Judgment) -> list[list[int]]:
    """The rows of the valid outputs, mode by mode."""
    modes: dict[str | None, list[int]] = {}
    for one in judgment.outputs:
        if one.valid:
            modes.setdefault(one.mode, []).append(cell.row[one.index])
    return list(modes.values())


def _xlogx(x: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        logs = np.log(x)
    logs[x == 0] = 0
    logs *= x
    return logs


def mind(*cells: Cell) -> str | None:
    """What stands beside an interval of these cells' GEQ; docs/groupeval-scores.md has the counts.

    The bootstrap weighs the outputs that were drawn. Where nearly all are 0 it knows nothing of
    the good ones that were not drawn, and where there are few of any kind it is too narrow.
    """
    least = min(len(cell.outputs) for cell in cells)
    some = min(cell.nonzero for cell in cells)
    told = []
    if some < FLOOR:
        told.append(f"only {some} outputs above 0")
    if least < FEW:
        told.append(f"only {least} outputs")
    return f"{' and '.join(told)}: too narrow" if told else None


def interval(replicates: Floats, level: float = 0.95) -> list[float]:
    """The central range of the replicates, by percentiles."""
    tail = (1 - level) / 2
    low, high = np.quantile(replicates, [tail, 1 - tail])
    return [float(low), float(high)]
