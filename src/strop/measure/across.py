"""Diversity across outputs, as a share of that of held-out texts: what a collapse lowers.

Two texts are alike by k, the square of the cosine of the pairs of neighbouring tokens that are in
them. A pair of tokens that a share s of the held-out texts has weighs sqrt(1 - s): what every text
has says nothing. With S the mean of k over two *different* texts, which does not depend on how many
texts there are,

    diversity = S(held-out) / S(outputs) * min(1, S(outputs, held-out) / S(held-out))^2

Outputs that keep a share of equally likely modes have that share. Noise is like nothing, so it
lowers S(outputs), and the second factor takes that back: of outputs that are noise by a share g
both S(outputs) and the square shrink by (1 - g)^2. And texts weigh less the less they are like
held-out texts at all, so that good outputs and noise together are as diverse as the good ones.

An output's value is its pseudo-value: the mean over outputs is the diversity, and their spread is
that of leaving out each output in turn, widened by what leaving out held-out texts adds. Nothing is
drawn with replacement: copies would be like each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from strop.stats.interval import Interval
from strop.stats.jackknife import jackknife
from strop.stats.resample import POSITIVE, Statistic, mean

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MARGIN = 0.9
"""The share of the held-out texts' diversity that outputs must have."""
DECIDES = 64
"""Outputs below which diversity is printed and decides nothing: no interval would be on a side."""
TEXTS = 512
"""Held-out texts that outputs are compared with."""
UNLIKE = 0.25
"""Of the mean likeness of held-out texts: a text that is less like them than so counts less."""
REACHED = 10
"""One output in so many may be shorter than what is compared."""
TINY = 1e-9
"""What the likenesses of outputs add up to at least, so that their diversity is a number."""
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
        found = share_of(self.shares(outputs))
        return jackknife(found) if np.isfinite(found.value) else None

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
    def _own(self) -> tuple[float, Floats, Floats]:
        """S of the texts, the texts' weights, and every text's weighted likeness to the others."""
        unit, _ = self._whole
        ones = np.ones(len(self.ids))
        likeness = _likeness(unit, unit, ones, others=True) / (len(self.ids) - 1)
        weight = _weights(likeness, float(likeness.mean()))
        return float(likeness.mean()), weight, _likeness(unit, unit, weight, others=True)

    def shares(self, outputs: Ids) -> Floats:
        """The value of every output [n], whose mean is the diversity; nan where it has none.

        Outputs and texts are read on the first tokens that nine tenths of the outputs have.
        """
        lengths = np.sort((np.asarray(outputs) >= 0).sum(axis=1))
        tokens = int(lengths[len(lengths) // REACHED]) if len(lengths) else 0
        if len(outputs) < 2 or len(self.ids) < 2 or tokens < 2:
            return np.full(len(outputs), np.nan)
        if tokens < self.ids.shape[1]:
            return HeldOutPairs(self.ids[:, :tokens]).shares(outputs[:, :tokens])
        return self._shares(np.asarray(outputs)[:, : self.ids.shape[1]])

    def _shares(self, outputs: Ids) -> Floats:
        held, known = self._whole
        mean, text_weight, text_likeness = self._own
        pairs = np.union1d(self.known, _pairs(outputs))
        weight = np.ones(len(pairs))  # of a pair that no held-out text has
        place = np.searchsorted(pairs, self.known)
        weight[place] = known
        unit = _unit(_table(outputs, pairs), weight)
        shared = unit[:, place]
        n, h = len(outputs), len(self.ids)
        own = _weights(_likeness(shared, held, np.ones(h)) / h, mean)
        to_texts, to_outputs = (
            _likeness(shared, held, text_weight),
            _likeness(held, shared, own),
        )
        likeness = _likeness(unit, unit, own, others=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = _share(
                _Sums.of(own, likeness), _Sums.of(text_weight, text_likeness), own @ to_texts
            )
            mine = _share(
                _Sums.without(own, likeness),
                _Sums.of(text_weight, text_likeness),
                own @ to_texts - own * to_texts,
            )
            theirs = _share(
                _Sums.of(own, likeness),
                _Sums.without(text_weight, text_likeness),
                own @ to_texts - text_weight * to_outputs,
            )
            spread = (n - 1) / n * ((mine - mine.mean()) ** 2).sum()
            added = (h - 1) / h * ((theirs - theirs.mean()) ** 2).sum()
            wider = np.sqrt(1 + added / spread) if spread > 0 else 1.0
        return np.asarray(value + (n - 1) * (mine.mean() - mine) * wider)


def share_of(values: Floats) -> Statistic:
    """The diversity, from the values of outputs."""
    return replace(mean(values, span=POSITIVE), left_out=True)


@dataclass(frozen=True)
class _Sums:
    """Of weights, and of likenesses over ordered pairs of different texts."""

    weight: NDArray | float
    pairs: NDArray | float
    likeness: NDArray | float

    @classmethod
    def of(cls, weight: Floats, likeness: Floats) -> _Sums:
        return cls(weight.sum(), weight.sum() ** 2 - weight @ weight, weight @ likeness)

    @classmethod
    def without(cls, weight: Floats, likeness: Floats) -> _Sums:
        """The same without each text in turn [n]."""
        rest = weight.sum() - weight
        pairs = rest**2 - (weight @ weight - weight**2)
        return cls(rest, pairs, weight @ likeness - 2 * weight * likeness)


def _share(outputs: _Sums, texts: _Sums, across: NDArray | float) -> NDArray:
    """The diversity, from sums; of outputs that are like no held-out text it is 0."""
    held = texts.likeness / texts.pairs
    near = np.minimum(1, across / (outputs.weight * texts.weight) / held)
    own = np.maximum(outputs.likeness, TINY) / outputs.pairs
    return np.where(np.asarray(across) <= 0, 0.0, held / own * near**2)


def _weights(likeness: Floats, mean: float) -> Floats:
    """What texts weigh, by how much they are like held-out texts."""
    return np.minimum(1, likeness / (UNLIKE * mean)) if mean > 0 else np.ones(len(likeness))


def _pairs(ids: Ids) -> NDArray[np.int64]:
    """A number per pair of neighbouring tokens [n, L - 1]; -1 where a text is over."""
    ids = np.asarray(ids, np.int64)
    return np.where(ids[:, 1:] < 0, -1, (ids[:, :-1] << 32) | ids[:, 1:])


def _table(ids: Ids, pairs: NDArray[np.int64]) -> csr_array:
    """1 where a text has a pair [texts, pairs], sparse."""
    from scipy.sparse import csr_array

    names = _pairs(ids)
    there = names >= 0
    ends = np.append(0, there.sum(axis=1).cumsum())
    places = np.searchsorted(pairs, names[there])
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


def _likeness(
    rows: csr_array, columns: csr_array, weight: Floats, *, others: bool = False
) -> Floats:
    """Of every row, the weighted sum of its likenesses; with `others` not to itself."""
    found = np.empty(len(rows.indptr) - 1)
    for first in range(0, len(found), ROWS):
        some = (rows[first : first + ROWS] @ columns.T).toarray() ** 2
        if others:
            some[np.arange(len(some)), first + np.arange(len(some))] = 0.0
        found[first : first + ROWS] = some @ weight
    return found
