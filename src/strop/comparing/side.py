"""One side of a comparison: what was measured on its outputs, and resamples of it.

Resamples are counts per output that depend on the number of outputs and the seed alone
(`strop.stats.resample`). So all temperatures of a side are resampled by the same outputs, and so
are both sides where they have equally many: pools of one seed stay paired. Independent pools lose
degrees of freedom by it, which matters for few outputs (`of_one_setting`). Since nothing depends on
which side is named first, swapping them negates every replicate of every difference exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.rng import derive_seed
from strop.stats.interval import Interval
from strop.stats.resample import BOOTSTRAP, order_statistics, resamples

Floats = NDArray[np.float64]
BAND = "studentised bootstrap band"


@dataclass(frozen=True, eq=False)
class Sample:
    """The outputs of a generator at one setting."""

    nll: Floats
    """Nats of every output under the evaluator [n]."""
    tokens: Floats
    """The tokens that these are over [n]; an output without any is left out."""
    entropy: Floats
    """Unigram entropy of every output [n]."""
    alike: Mapping[str, NDArray] = field(default_factory=dict)
    """By measure, how alike two outputs are, from 0 to 1 [n, n]; the diagonal is not read."""

    def __post_init__(self) -> None:
        if not len(self.nll) == len(self.tokens) == len(self.entropy) > 0:
            raise UserError(
                "A sample needs nats, tokens and entropy of every output.",
                got=f"{len(self.nll)}, {len(self.tokens)} and {len(self.entropy)}",
            )
        if not np.sum(self.tokens) > 0:
            raise UserError("No token of a sample was scored.")

    @property
    def n(self) -> int:
        """Outputs."""
        return len(self.nll)

    def first(self, n: int) -> Sample:
        """The first outputs alone."""
        alike = {name: pairs[:n, :n] for name, pairs in self.alike.items()}
        return Sample(self.nll[:n], self.tokens[:n], self.entropy[:n], alike)

    @property
    def counted(self) -> NDArray[np.bool_]:
        """Which outputs have tokens that count [n]."""
        return self.tokens > 0

    def levels(self, weights: Floats) -> tuple[Floats, Floats]:
        """Log-perplexity and mean entropy under every row of weights [R, n]."""
        counted = self.counted
        columns = [self.nll * counted, self.tokens, self.entropy * counted, counted]
        sums = weights @ np.stack(columns, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return sums[:, 0] / sums[:, 1], sums[:, 2] / sums[:, 3]


@dataclass(frozen=True, eq=False)
class Side:
    """One generator: its sample as published, tuned, and at every temperature of its frontier."""

    frontier: Sequence[Sample]
    """By temperature; a single one where there is nothing to tune."""
    published: Sample | None = None
    tuned: Sample | None = None

    def __post_init__(self) -> None:
        counts = {sample.n for sample in self.frontier}
        if len(counts) != 1:
            raise UserError(
                "The temperatures of a side need equally many outputs.",
                got=", ".join(map(str, sorted(counts))) or "no temperature",
            )

    @property
    def n(self) -> int:
        """Outputs per temperature."""
        return self.frontier[0].n


@dataclass(frozen=True, eq=False)
class Curve:
    """A side's frontier in every replicate; the outputs as they are come first."""

    side: Side
    replicates: int
    seed: int

    @cached_property
    def rows(self) -> Floats:
        """Counts per output [1 + R, n]: the outputs as they are, then resamples of them."""
        n = self.side.n
        drawn = resamples(n, self.replicates, derive_seed(self.seed, "compare-resamples", n))
        return np.concatenate([np.ones((1, n)), drawn])

    @cached_property
    def _levels(self) -> tuple[Floats, Floats, NDArray[np.int64]]:
        pairs = [sample.levels(self.rows) for sample in self.side.frontier]
        level, entropy = (np.stack([pair[i] for pair in pairs], 1) for i in (0, 1))
        return level, entropy, entropy.argsort(axis=1, kind="stable")

    @cached_property
    def level(self) -> Floats:
        """Log-perplexity [1 + R, T], in order of entropy within each replicate."""
        level, _, order = self._levels
        return np.take_along_axis(level, order, 1)

    @cached_property
    def entropy(self) -> Floats:
        """Mean entropy [1 + R, T], ascending within each replicate."""
        _, entropy, order = self._levels
        return np.take_along_axis(entropy, order, 1)

    @cached_property
    def left_out(self) -> Floats:
        """The share of outputs that no score is of, over all points [1 + R]."""
        gone = np.stack([~sample.counted for sample in self.side.frontier], 1).mean(axis=1)
        return self.rows @ gone / self.side.n

    @property
    def order(self) -> NDArray[np.int64]:
        """The points of the frontier in order of entropy, of the outputs as they are [T]."""
        return self._levels[2][0]

    @cached_property
    def missed(self) -> Floats:
        """Every inner point's distance from the line between its neighbours [1 + R, T - 2]."""
        level, width = self.level, np.diff(self.entropy, axis=1)
        before, after = width[:, :-1], width[:, 1:]
        with np.errstate(divide="ignore", invalid="ignore"):
            line = (level[:, :-2] * after + level[:, 2:] * before) / (before + after)
        return level[:, 1:-1] - line

    def bend(self, entropies: Floats) -> Floats:
        """How far straight lines between the points may be off at some entropies [K].

        A point that is left out lies off the line between its neighbours by half the curvature
        times its distances from both; what noise alone would do is taken off, since the intervals
        have it already. Between two points, where nothing can be left out, the larger curvature of
        the two ends is taken. Two points show no curvature: nothing is known.
        """
        level, entropy = self.level[0], self.entropy[0]
        if len(level) < 3:
            return np.full(len(entropies), 0.0 if len(level) == 1 else np.inf)
        width = np.diff(entropy)
        usable = self.missed[1:][np.isfinite(self.missed[1:]).all(axis=1)]
        beyond = np.sqrt(np.maximum(self.missed[0] ** 2 - usable.var(axis=0), 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            curvature = beyond * 2 / (width[:-1] * width[1:])
        curvature = np.pad(np.nan_to_num(curvature, nan=np.inf), 1, mode="edge")
        upper = np.clip((entropy[:, None] <= entropies).sum(axis=0), 1, len(entropy) - 1)
        larger = np.maximum(curvature[upper - 1], curvature[upper])
        apart = np.abs((entropies - entropy[upper - 1]) * (entropy[upper] - entropies))
        return np.where(apart > 0, larger * apart / 2, 0.0)

    def alike(self, measure: str) -> Floats:
        """The mean over pairs of outputs of how alike they are [1 + R, T], in the same order.

        A resample holds some outputs twice; an output and itself are not a pair.
        """
        means = [
            _pairs(sample.alike[measure], self.rows * sample.counted)
            for sample in self.side.frontier
        ]
        return np.take_along_axis(np.stack(means, 1), self._levels[2], 1)

    def at(self, entropies: Floats, values: Floats | None = None) -> Floats:
        """Log-perplexity (or other values [1 + R, T]) at given entropies [K] or [1 + R, K]."""
        level, entropy = self.level if values is None else values, self.entropy
        wanted = np.broadcast_to(entropies, (len(entropy), np.shape(entropies)[-1]))
        if entropy.shape[1] == 1:
            return np.broadcast_to(level, wanted.shape)
        right = (entropy[:, :, None] <= wanted[:, None, :]).sum(axis=1)
        right = np.clip(right, 1, entropy.shape[1] - 1)
        ends = [np.take_along_axis(entropy, right - k, 1) for k in (1, 0)]
        width = ends[1] - ends[0]
        share = np.divide(wanted - ends[0], width, out=np.zeros_like(width), where=width > 0)
        share = np.clip(share, -1, 2)  # a replicate may end before the common range does
        low, high = (np.take_along_axis(level, right - k, 1) for k in (1, 0))
        return low + (high - low) * share


def _pairs(alike: NDArray, rows: Floats) -> Floats:
    others = np.array(alike, float)
    np.fill_diagonal(others, 0.0)
    pairs = rows.sum(1) ** 2 - (rows**2).sum(1)
    if not others.any():
        return np.zeros(len(rows))
    total = ((rows @ others) * rows).sum(1)
    return np.divide(total, pairs, out=np.zeros(len(rows)), where=pairs > 0)


def interval(values: Floats, level: float, n: int) -> Interval:
    """Of a column whose first row is the outputs as they are, and the others are replicates."""
    ends = order_statistics(values[1:], level)
    low, high = (end if np.isfinite(end) else None for end in ends)
    return Interval(float(values[0]), low, high, level, n, BOOTSTRAP)


def of_one_setting(values: Floats, level: float, n: int) -> Interval:
    """The interval with Student's limits at n - 1 degrees of freedom in place of the normal ones.

    Resampling eight outputs has seven eighths of the variance and knows nothing of its error: an
    interval of 98% would miss 9% of the time, and at 32 outputs 3%.
    """
    from scipy.special import ndtri, stdtrit

    plain = interval(values, level, n)
    if n < 2:
        return Interval(plain.value, level=level, n=n, how=plain.how)
    quantile = (1 + level) / 2
    wider = float(stdtrit(n - 1, quantile) / ndtri(quantile)) * (n / (n - 1)) ** 0.5
    return plain.mapped(lambda end: plain.value + wider * (end - plain.value))


def simultaneous(gaps: Floats, level: float, n: int) -> tuple[Interval, ...]:
    """Intervals of columns that all hold together: the largest studentised error of a replicate.

    The first row is the outputs as they are, the others are replicates.
    """
    value, replicates = gaps[0], gaps[1:][np.isfinite(gaps[1:]).all(axis=1)]
    if not len(replicates):
        return tuple(Interval(float(middle), level=level, n=n, how=BAND) for middle in value)
    error = replicates.std(axis=0)
    scaled = np.abs(replicates - value) / np.where(error > 0, error, 1.0)
    largest = np.sort(scaled.max(axis=1, initial=0.0))
    reach = largest[min(len(largest) - 1, int(np.ceil(level * len(largest))))] * error
    return tuple(
        Interval(float(middle), float(middle - far), float(middle + far), level, n, BAND)
        for middle, far in zip(value, reach, strict=True)
    )
