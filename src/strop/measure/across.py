"""Diversity across outputs, as a share of that of held-out texts: what a collapse lowers.

Two texts are alike by k, the square of the cosine of the pairs of neighbouring tokens that are in
them. A pair of tokens that a share s of the held-out texts has weighs sqrt(1 - s): what every text
has says nothing. Every output has a ratio, its mean likeness to the *other* outputs over that to
held-out texts, which does not depend on how many outputs there are, and

    diversity = min(1, S(outputs, held-out) / S(held-out)) / mean ratio of an output

with S the mean of k, and a mean ratio below a tenth counted as a tenth. Outputs that keep a share
of equally likely modes have that share. An output's ratio is 1 on average if outputs have the law
of held-out texts, whether it is a common text or a rare one: that texts differ in this adds no
noise, which a ratio of two means would have. Noise inside outputs makes them less like each other
by the square of what it makes them less like held-out texts, so it lowers the mean ratio, and the
first factor takes that back. And texts weigh less the less they are like held-out texts at all, so
that good outputs and noise together are as diverse as the good ones.

Held-out texts that are near each other in their file are often pieces of one document, and those
are alike. So S(held-out) is over texts that are at least a quarter of the file apart.

An output's value is its pseudo-value: the mean over outputs is the diversity, and their spread is
that of leaving out each output in turn, widened by what leaving out runs of held-out texts adds.
Nothing is drawn with replacement: copies would be like each other.

The file also turns per-output sums into a pool's numbers: perplexity in three forms, and the share
of bytes that was read. No network is loaded for any of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from strop.stats.interval import Interval
from strop.stats.resample import POSITIVE, SHARE, Statistic, jackknife, mean

if TYPE_CHECKING:
    from scipy.sparse import csr_array


# ------------------------------------------------------------------------------------- aggregates

Columns = Mapping[str, NDArray]


def pooled(columns: Columns) -> Statistic:
    """exp(total nll / total tokens)."""
    return Statistic(np.stack(_sums(columns), 1), _exp_ratio, span=POSITIVE)


def macro(columns: Columns) -> Statistic:
    """exp of the mean over outputs of their mean nll; outputs without a scored token left out."""
    nll, tokens = _sums(columns)
    scored = tokens > 0
    mean = np.where(scored, nll / np.where(scored, tokens, 1), 0.0)
    return Statistic(np.stack([mean, scored.astype(float)], 1), _exp_ratio, span=POSITIVE)


def bits_per_byte(columns: Columns) -> Statistic:
    """Total bits / total bytes."""
    sums = np.stack([_sums(columns)[0] / np.log(2), columns["bytes"]], 1)
    return Statistic(sums, _ratio, span=POSITIVE)


def kept(columns: Columns) -> Statistic:
    """The share of the outputs' bytes that was read."""
    sums = np.stack([columns["kept_bytes"], columns["source_bytes"]], 1)
    return Statistic(sums, _ratio, span=SHARE)


def statistics(columns: Columns) -> dict[str, Statistic]:
    """All of them by name, each a function of sums over outputs."""
    return {
        statistic.__name__: statistic(columns) for statistic in (pooled, macro, bits_per_byte, kept)
    }


def _sums(columns: Columns) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nats and tokens of every output; for `public-code` with the filler that counts in a pool."""
    nll, tokens = columns["nll"].astype(float), columns["tokens"].astype(float)
    if "read" in columns:
        short = columns["read"] < columns["read"].max(initial=0)
        nll = nll + np.where(short, columns["filler_nll"], 0.0)
        tokens = tokens + np.where(short, columns["filler_tokens"], 0)
    return nll, tokens


def _ratio(totals: NDArray) -> NDArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return totals[..., 0] / totals[..., 1]


def _exp_ratio(totals: NDArray) -> NDArray:
    with np.errstate(over="ignore"):
        return np.exp(_ratio(totals))


# ----------------------------------------------------------------------------------------- across

MARGIN = 0.92
"""The share of the held-out texts' diversity that outputs must have."""
DECIDES = 64
"""Outputs below which diversity is told and decides nothing: its interval is too rough."""
FEWEST = 8
"""Outputs below which nothing is told: two that share no pair of tokens are no more diverse."""
COMPARED = 2**14
"""Outputs that are compared, the first ones: the work grows with the square of their number."""
TEXTS = 512
"""Held-out texts that outputs are compared with."""
UNLIKE = 0.25
"""Of the mean likeness of held-out texts: a text that is less like them than so counts less,
by the square of how much less."""
APART = 4
"""Held-out texts are compared if one in so many of all texts, or more, lie between them."""
RUNS = 20
"""Runs of held-out texts that are left out in turn; no two texts of one are compared."""
REACHED = 10
"""One output in so many may be shorter than what is compared."""
LEAST = 0.1
"""The mean ratio of outputs counts as at least this: outputs of which hardly any two share a pair
have a ratio near 0, and noise that is a little like held-out texts would pass as diverse."""
TINY = 1e-9
"""Of the value: a spread below it is rounding."""
ROWS = 512
"""Rows of likenesses that are held at a time."""

Floats = NDArray[np.float64]
Ids = NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class HeldOutPairs:
    """Held-out texts by their pairs of neighbouring tokens."""

    ids: Ids
    """[texts, tokens], all of one length."""

    @property
    def usable(self) -> bool:
        """Whether any two of the texts are alike at all."""
        return len(self.ids) > 1 and self.ids.shape[1] > 1 and self._own[0] > 0

    def diversity(self, outputs: Ids) -> Interval | None:
        """Of outputs, with its interval; None where it is not defined."""
        share = share_of(self.shares(outputs))
        return jackknife(share) if np.isfinite(share.value) else None

    @cached_property
    def known(self) -> NDArray[np.int64]:
        """The pairs that occur, in order."""
        return np.unique(_pairs(self.ids))

    @cached_property
    def _whole(self) -> tuple[csr_array, Floats]:
        """The texts as unit vectors over the known pairs, and what each of these weighs."""
        table = _table(self.ids, self.known)
        weight = np.sqrt(1 - np.asarray(table.mean(axis=0)).ravel())
        return _unit(table, weight), weight

    @cached_property
    def _own(self) -> tuple[float, _Texts]:
        """The mean likeness of two texts that are compared, and the texts with their weights."""
        unit, _ = self._whole
        h = len(self.ids)
        near = -(-h // APART)  # how many places apart texts are compared from
        ones = np.ones(h)
        likeness = _likeness(unit, unit, ones, within=near)
        others = _others(ones, near)
        mean = float(likeness.sum() / others.sum())
        weight = _weights(likeness / others, mean)
        weighted = _likeness(unit, unit, weight, within=near)
        return mean, _Texts(weight, _others(weight, near), weighted)

    def shares(self, outputs: Ids, n: int | None = None) -> Floats:
        """The value of every output [n], whose mean is the diversity; nan where it has none.

        Outputs and texts are read on the first tokens that nine tenths of the outputs have.
        Outputs beyond the first `COMPARED` have none, and need not be given; `n` counts them.
        """
        n = len(outputs) if n is None else n
        if n > COMPARED:
            return np.append(self.shares(outputs[:COMPARED]), np.full(n - COMPARED, np.nan))
        lengths = np.sort((np.asarray(outputs) >= 0).sum(axis=1))
        tokens = int(lengths[len(lengths) // REACHED]) if len(lengths) else 0
        if 1 < tokens < self.ids.shape[1]:
            return HeldOutPairs(self.ids[:, :tokens]).shares(outputs[:, :tokens])
        if len(outputs) < FEWEST or tokens < 2 or not self.usable:
            return np.full(len(outputs), np.nan)
        return self._shares(np.asarray(outputs)[:, : self.ids.shape[1]])

    def _shares(self, outputs: Ids) -> Floats:
        held, known_weights = self._whole
        mean, texts = self._own
        pairs = np.union1d(self.known, _pairs(outputs))
        weight = np.ones(len(pairs))  # of a pair that no held-out text has
        columns = np.searchsorted(pairs, self.known)
        weight[columns] = known_weights
        unit = _unit(_table(outputs, pairs), weight)
        shared = unit[:, columns]
        n, h = len(outputs), len(self.ids)
        runs = np.linspace(0, h, min(RUNS, h) + 1).astype(int)[:-1]
        run = np.searchsorted(runs, np.arange(h), side="right") - 1
        in_run = texts.weight[:, None] * (run[:, None] == np.arange(len(runs)))
        to_runs = _likeness(shared, held, in_run)  # [outputs, runs]
        to_texts = to_runs.sum(axis=1)
        sums_of_texts, without = texts.sums(), texts.without(runs)
        to_others = to_texts[:, None] - to_runs
        weight_of_output = _weights(to_texts / sums_of_texts.weight, mean)
        owns = _weights(to_others / without.weight, mean)  # without each run
        over, overs = _over(sums_of_texts.weight, to_texts), _over(without.weight, to_others)
        alike = _likeness(
            unit, unit, np.column_stack([weight_of_output, weight_of_output * over, owns]), within=1
        )
        # The ratio of a pair is the mean of those of its two outputs.
        drawn = _Texts(
            weight_of_output, _others(weight_of_output, 1), (alike[:, 0] * over + alike[:, 1]) / 2
        )
        ratios = (owns * alike[:, 2:] * overs).sum(axis=0)
        mines = _Sums(owns.sum(0), owns.sum(0) ** 2 - (owns**2).sum(0), ratios)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = _share(drawn.sums(), sums_of_texts, weight_of_output @ to_texts)
            less = _share(
                drawn.without(np.arange(n)),
                sums_of_texts,
                weight_of_output @ to_texts - weight_of_output * to_texts,
            )
            without_runs = _share(mines, without, (owns * to_others).sum(axis=0))
            spread, added = _jackknifed(less), _jackknifed(without_runs)
            # Outputs that are all alike differ by rounding only, which must not be widened.
            wider = np.sqrt(1 + added / spread) if spread > (TINY * value) ** 2 else 1.0
        return np.asarray(value + (n - 1) * (less.mean() - less) * wider)


def share_of(values: Floats) -> Statistic:
    """The diversity, from the values of outputs; of those that are compared."""
    return replace(mean(values[:COMPARED], span=POSITIVE), left_out=True)


class _Sums(NamedTuple):
    """Of weights, and over the ordered pairs of texts that are compared."""

    weight: NDArray | float
    pairs: NDArray | float
    likeness: NDArray | float


class _Texts(NamedTuple):
    """Texts among themselves: of each its weight, and over those that it is compared with..."""

    weight: Floats
    others: Floats
    """... the sum of their weights,"""
    likeness: Floats
    """... and the weighted sum of its likenesses."""

    def sums(self) -> _Sums:
        return _Sums(self.weight.sum(), self.weight @ self.others, self.weight @ self.likeness)

    def without(self, runs: NDArray[np.integer]) -> _Sums:
        """The same without each run of texts in turn, from where they begin."""
        total = self.sums()
        gone = [
            np.add.reduceat(values, runs)
            for values in (self.weight, self.weight * self.others, self.weight * self.likeness)
        ]
        return _Sums(total[0] - gone[0], total[1] - 2 * gone[1], total[2] - 2 * gone[2])


def _share(outputs: _Sums, texts: _Sums, across: NDArray | float) -> NDArray:
    """The diversity, from sums; of outputs that are like no held-out text it is 0."""
    held = texts.likeness / texts.pairs
    near = np.minimum(1, across / (outputs.weight * texts.weight) / held)
    ratio = np.maximum(outputs.likeness / outputs.pairs, LEAST)
    return np.where(np.asarray(across) <= 0, 0.0, near / ratio)


def _over(above: NDArray | float, below: Floats) -> Floats:
    """A quotient; 0 where it has none."""
    return np.divide(above, below, out=np.zeros_like(below), where=below > 0)


def _jackknifed(values: Floats) -> float:
    """The variance, from the values without each part in turn."""
    return float((len(values) - 1) / len(values) * ((values - values.mean()) ** 2).sum())


def _weights(likeness: Floats, mean: float) -> Floats:
    """What texts weigh, by how much they are like held-out texts."""
    return np.minimum(1, likeness / (UNLIKE * mean)) ** 2 if mean > 0 else np.ones(len(likeness))


def _others(weight: Floats, within: int) -> Floats:
    """For every text, the weights of those that are at least so many places away."""
    sums, places = np.append(0.0, weight.cumsum()), np.arange(len(weight))
    before = sums[np.maximum(0, places - within + 1)]
    return before + sums[-1] - sums[np.minimum(len(weight), places + within)]


def _pairs(ids: Ids) -> NDArray[np.int64]:
    """A number per pair of neighbouring tokens [n, L - 1]; -1 where a text is over."""
    ids = np.asarray(ids, np.int64)
    return np.where(ids[:, 1:] < 0, -1, (ids[:, :-1] << 32) | ids[:, 1:])


def _table(ids: Ids, pairs: NDArray[np.int64]) -> csr_array:
    """1 where a text has a pair [texts, pairs], sparse."""
    from scipy.sparse import csr_array

    names = _pairs(ids)
    present = names >= 0
    ends = np.append(0, present.sum(axis=1).cumsum())
    places = np.searchsorted(pairs, names[present])
    table = csr_array((np.ones(len(places)), places, ends), shape=(len(ids), len(pairs)))
    table.sum_duplicates()
    table.data[:] = 1.0  # whether a pair is in a text, not how often
    return table


def _unit(table: csr_array, weight: Floats) -> csr_array:
    """Rows of length one, columns weighed."""
    from scipy.sparse import csr_array, diags_array

    weighed = csr_array(table @ diags_array(weight))
    length = np.sqrt(np.asarray(weighed.power(2).sum(axis=1)).ravel())
    return csr_array(diags_array(1 / np.where(length > 0, length, 1.0)) @ weighed)


def _likeness(rows: csr_array, columns: csr_array, weight: Floats, *, within: int = 0) -> Floats:
    """Of every row, the weighted sum of its likenesses; `within` so many places there is none.

    Weights may be several columns.
    """
    sums = np.empty((len(rows.indptr) - 1, *weight.shape[1:]))
    places = np.arange(len(weight))
    for first in range(0, len(sums), ROWS):
        products = (rows[first : first + ROWS] @ columns.T).toarray() ** 2
        row_numbers = first + np.arange(len(products))
        products[abs(row_numbers[:, None] - places) < within] = 0.0
        sums[first : first + ROWS] = products @ weight
    return sums
