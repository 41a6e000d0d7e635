"""How a decoder scores positions: the higher, the earlier it is committed.

Scores of the drawn token (`confidence`) make the choice depend on the draw, which changes the law
of what comes out. All others are known before a token is drawn: with a perfect denoiser, one
position a round and temperature 1 the output then has the exact law.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

NOT_OPEN = -torch.inf
"""The score of a position where nothing may be committed."""

ENTROPY_EPSILON = 1e-10
"""Dream's guard inside the logarithm."""


def _confidence(probs: Tensor, tokens: Tensor) -> Tensor:
    """The probability of the drawn token."""
    return probs.gather(-1, tokens[:, None])[:, 0]


def _top(probs: Tensor, tokens: Tensor) -> Tensor:  # noqa: ARG001
    """The probability of the best token, whatever was drawn."""
    return probs.max(-1).values


def _margin(probs: Tensor, tokens: Tensor) -> Tensor:  # noqa: ARG001
    """The best token's lead over the second."""
    best = probs.topk(2, dim=-1).values
    return best[:, 0] - best[:, 1]


def _entropy(probs: Tensor, tokens: Tensor) -> Tensor:  # noqa: ARG001
    """Minus the entropy."""
    return (probs * (probs + ENTROPY_EPSILON).log()).sum(-1)


SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "confidence": _confidence,
    "top": _top,
    "margin": _margin,
    "entropy": _entropy,
}
"""From the law of a row [n, V] and the token drawn there [n]."""


@dataclass(frozen=True)
class Confidence:
    """One way to score."""

    kind: str
    """A name in `SCORES`, or `random` or `left`, which need no network."""
    tempered: bool = False
    """Whether it reads the law that the token is drawn from, or the network's own."""
    late: bool = False
    """Whether a score that needs no network is made after the draw all the same, as LLaDA does."""

    @property
    def blind(self) -> bool:
        """Whether it needs no network."""
        return self.kind in ("random", "left")

    def __call__(self, probs: Tensor, tokens: Tensor) -> Tensor:
        """Scores [n] from the law [n, V] and the tokens drawn there."""
        return SCORES[self.kind](probs, tokens)


def scattered(values: Tensor, where: Tensor, empty: float) -> Tensor:
    """Values [n] at the true cells of `where` [R, W], row by row, and `empty` elsewhere."""
    table = torch.full(where.shape, empty, dtype=values.dtype, device=values.device)
    table[where] = values
    return table
