"""The tokens of outputs that count, and what a comparison reads on them.

Perplexity, entropy and copies are read on the same tokens: those that the span policy scores.
Whatever else an output holds, behind the end of its first document, counts for none of them. And
entropy grows with length, so all pools of a comparison are read on their first m scored tokens,
where m is the most that nine tenths of every pool have. Outputs with fewer are left out, of all
scores alike, and counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.comparing.diversity import COPIES, copies
from strop.comparing.side import Floats, Sample
from strop.errors import UserError
from strop.measure.entropy import entropy

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
        there = self.lengths >= tokens
        ids = np.where(there[:, None], self.ids[:, :tokens], -1)
        return Sample(
            np.where(there, self.nats[:, :tokens].sum(axis=1, dtype=float), 0.0),
            np.where(there, float(tokens), 0.0),
            entropy(ids),
            {COPIES: copies(ids), **(alike or {})},
        )


def common_length(pools: Sequence[Scored]) -> int:
    """The most tokens that nine tenths of the outputs of every pool have."""
    tokens = min(int(np.sort(one.lengths)[one.n // REACHED]) for one in pools)
    if tokens < 1:
        raise UserError(
            "More than a tenth of the outputs of a setting have no token that is scored.",
            expected="outputs that the span policy reads",
            fix="look at them (`strop show`), leave out that temperature, or take another `span`",
        )
    return tokens
