"""Diversity across outputs at equal sharpness, which no score of single outputs can see.

Two outputs are alike from 0 to 1. Whatever the measure, the number is the mean over pairs of
different outputs: it does not depend on how many there are, and it can be resampled. A side is
`less` diverse where its pairs are clearly more than `TENTH` more alike than the other's plus
`PAIRS`, and `not less` where they clearly are not; else `undecided`.

`copies` is the measure that needs no embeddings: two outputs are copies if the one with fewer
n-grams shares at least half of them with the other. Distinct n-grams of a pool would not do: what
makes no sense is more distinct than what does, so a better generator would look less diverse.

Against held-out texts the guard's own measure says whether a side has collapsed as published.

`Scored` holds the tokens of outputs that count. Perplexity, entropy and copies are read on the same
tokens: those that the span policy scores. Whatever else an output holds, behind the end of its
first document, counts for none of them. And entropy grows with length, so all pools of a comparison
are read on their first m scored tokens, where m is the most that nine tenths of every pool have.
Outputs with fewer are left out, of all scores alike, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from strop.comparing.frontier import Grid, Level
from strop.comparing.side import Curve, Floats, Sample
from strop.errors import UserError
from strop.measure.entropy import NGRAM, entropy, ngrams
from strop.stats.interval import LEVEL, Interval
from strop.stats.resample import order_statistics

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from strop.measure.guard import Guard

State = Literal["less", "not less", "undecided"]
COPIES = "copies"
HELD_OUT = "share of held-out diversity"
TENTH, PAIRS = 0.1, 0.001
LEAST = 32
"""Outputs below which nothing is claimed of copies; see `unseen_copies`."""
HALF = 0.5
ROWS = 512
"""Rows of the table of copies that are made at a time."""


@dataclass(frozen=True)
class Diversity:
    """How alike the outputs of each side are, by one measure, at equal sharpness."""

    measure: str
    a: float
    b: float
    """Means over the common range."""
    state_a: State
    """Whether A is less diverse than B."""
    state_b: State

    def mirrored(self) -> Diversity:
        """With the sides swapped."""
        return Diversity(self.measure, self.b, self.a, self.state_b, self.state_a)


def diversity(a: Curve, b: Curve, where: Grid, level: Level, measures: int = 1) -> list[Diversity]:
    """By every measure that both sides have at every temperature."""
    names = [set(sample.alike) for side in (a, b) for sample in side.side.frontier]
    results = []
    for name in sorted(set.intersection(*names)):
        few = name == COPIES and min(a.side.n, b.side.n) < LEAST
        own, other = (where.averaged(curve.at(where.points, curve.alike(name))) for curve in (a, b))
        results.append(
            Diversity(
                name,
                float(own[0].mean()),
                float(other[0].mean()),
                "undecided" if few else _state(own, other, level, measures),
                "undecided" if few else _state(other, own, level, measures),
            )
        )
    return results


def _state(own: Floats, other: Floats, level: Level, measures: int) -> State:
    """`less` in some part, all of them and all measures together; `not less` in every part."""
    excess = own - (1 + TENTH) * other - PAIRS
    together = 1 - (1 - level.different) / (excess.shape[1] * measures)
    if any(order_statistics(column[1:], together)[0] > 0 for column in excess.T):
        return "less"
    fine = all(order_statistics(column[1:], level.same)[1] <= 0 for column in excess.T)
    return "not less" if fine else "undecided"


def held_out_diversity(shares: Sequence[Interval | None], guard: Guard) -> Diversity | None:
    """Both sides against held-out texts, by the guard's words; None where one has no word.

    A side is less diverse only if it is below the guard and the other is not: what is undecided, or
    below it on both sides, does not tell them apart.
    """
    words = [guard.diverse(share) for share in shares]
    if None in words or shares[0] is None or shares[1] is None:
        return None
    less: list[State] = [
        "less" if own == "below" != other else "not less" for own, other in (words, words[::-1])
    ]
    return Diversity(HELD_OUT, shares[0].value, shares[1].value, *less)


def unseen_copies(n: int) -> float:
    """The most that one text may be of what a side writes where no two of n outputs are copies.

    The share that n outputs meet less than twice with probability 5%: about 4.7/n. Resampling says
    nothing of it, for what was not drawn is in no resample.
    """
    from scipy.special import bdtri

    return float(bdtri(1, n, 1 - LEVEL))


def copies(ids: NDArray[np.integer], n: int = NGRAM) -> Floats:
    """1 where two outputs are copies of each other, else 0 [N, N]; -1 behind an id is no token."""
    return np.concatenate(
        [np.zeros((0, len(ids))), *(block.toarray() for block in _copied(ids, n))]
    )


def with_copy(ids: NDArray[np.integer], n: int = NGRAM) -> NDArray[np.bool_]:
    """Which outputs have a copy among the others [N]."""
    has_copy = (block.sum(axis=1) > 0 for block in _copied(ids, n))
    return np.concatenate([np.zeros(0, bool), *has_copy])


def _copied(ids: NDArray[np.integer], n: int) -> Iterator[csr_array]:
    """The table of copies, some rows at a time; sparse, for few of many texts are copies."""
    from scipy.sparse import csr_array

    n = max(1, min(n, ids.shape[1]))
    names, complete = ngrams(ids, n), ids[:, n - 1 :] >= 0
    ends = np.append(0, complete.sum(1).cumsum())
    shape = (len(ids), int(names.max(initial=0)) + 1)
    table = csr_array((np.ones(ends[-1]), names[complete], ends), shape=shape)
    table.sum_duplicates()
    table.data[:] = 1.0  # whether an n-gram is in an output, not how often
    counts, columns = np.asarray(table.sum(axis=1)).ravel(), csr_array(table.T)
    # An output that is too short for an n-gram is a copy of what is equal to it.
    short = np.flatnonzero(counts == 0)
    same = np.unique(ids[short], axis=0, return_inverse=True)[1].ravel()
    for first in range(0, len(ids), ROWS):
        shared = (table[first : first + ROWS] @ columns).tocoo()
        alike = shared.data >= HALF * np.minimum(counts[first + shared.row], counts[shared.col])
        in_block = np.flatnonzero((short >= first) & (short < first + ROWS))
        left, other = np.nonzero(same[in_block][:, None] == same)
        row = np.concatenate([shared.row[alike], short[in_block][left] - first])
        column = np.concatenate([shared.col[alike], short[other]])
        others = first + row != column
        where = row[others], column[others]
        size = min(ROWS, len(ids) - first), len(ids)
        yield csr_array((np.ones(len(where[0])), where), shape=size)


# ----------------------------------------------------------------------------------------- scored

REACHED = 10
"""One output in so many may be shorter than what is compared."""


@dataclass(frozen=True, eq=False)
class Scored:
    """A pool's scored tokens."""

    ids: NDArray[np.int64]
    """Of the evaluator [n, W]; -1 behind an output that is shorter."""
    nats: Floats
    """What each costs under the evaluator [n, W]; zero behind."""

    @classmethod
    def of(cls, columns: Mapping[str, NDArray]) -> Scored:
        """From stored tokens."""
        return cls(columns["ids"].astype(np.int64), columns["nats"].astype(float))

    @property
    def n(self) -> int:
        """Outputs."""
        return len(self.ids)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Scored tokens of every output [n]."""
        return (self.ids >= 0).sum(axis=1)

    def first(self, tokens: int, alike: Mapping[str, NDArray] | None = None) -> Sample:
        """The sample of the first so many tokens; outputs with fewer have none."""
        long_enough = self.lengths >= tokens
        ids = np.where(long_enough[:, None], self.ids[:, :tokens], -1)
        return Sample(
            np.where(long_enough, self.nats[:, :tokens].sum(axis=1, dtype=float), 0.0),
            np.where(long_enough, float(tokens), 0.0),
            entropy(ids),
            {COPIES: copies(ids), **(alike or {})},
        )


def common_length(pools: Sequence[Scored]) -> int:
    """The most tokens that nine tenths of the outputs of every pool have."""
    tokens = min(int(np.sort(pool.lengths)[pool.n // REACHED]) for pool in pools)
    if tokens < 1:
        raise UserError(
            "More than a tenth of the outputs of a setting have no token that is scored.",
            expected="outputs that the span policy reads",
            fix="look at them (`strop show`), leave out that temperature, or take another `span`",
        )
    return tokens
