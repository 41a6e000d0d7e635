"""How a decoder draws its tokens for users: numbers with an address, and never the mask.

A token is drawn from the network's law over clean tokens, tempered, then cut by top_p and top_k. In
float64 by exact inversion; in float32 with the law of the float32 race on its lattice, as elsewhere
in this package (the public codes of these decoders draw in float64 or in the logits' own dtype).
Numbers are addressed by (output, the output's round, position), so that neither the batch nor the
order of the work matters. The forms that follow a public code's generator are in `public_draws`.

How a decoder scores positions: the higher, the earlier it is committed.

Scores of the drawn token (`confidence`) make the choice depend on the draw, which changes the law
of what comes out. All others are known before a token is drawn: with a perfect denoiser, one
position a round and temperature 1 the output then has the exact law.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.base import NEG_INFINITY
from strop.denoisers.device import Numbers, Truths, upload, upload_rows
from strop.rng import Stream
from strop.samplers.machinery.addressed import Address, ExactDraw, Weights, addressed
from strop.samplers.machinery.categorical import Normalisers, shaped
from strop.samplers.machinery.reading import View
from strop.spec import SamplerSpec

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


def scattered(values: Tensor, where: Truths, empty: float) -> Tensor:
    """Values [n] at the true cells of `where` [R, W], row by row, and `empty` elsewhere."""
    table = torch.full(where.shape, empty, dtype=values.dtype, device=values.device)
    table[upload_rows(values.device, *np.nonzero(where))] = values
    return table


def rule_out(logits: Tensor, tokens: Sequence[int]) -> None:
    """Leave some tokens without any weight; in place."""
    for token in tokens:  # an index that is a list would have to be copied to the device
        logits[:, token] = -torch.inf


TOKEN, ORDER, RACE = 0, 1, 2
"""The purposes of random numbers: each has a stream of its own."""


class Draws(Protocol):
    """Random numbers, and tokens made from them."""

    def propose(self, view: View, score: Confidence) -> tuple[Tensor, Tensor]:
        """Tokens and scores at all open cells: two tables [R, W]."""
        ...

    def tokens(self, view: View, where: Truths) -> Tensor:
        """Tokens at the true cells of `where` [R, W]; anything elsewhere."""
        ...

    def numbers(self, view: View) -> Tensor:
        """A random number in [0, 1) at every open cell, [R, W]."""
        ...

    def pick(self, view: View, weights: Tensor, count: Numbers) -> Tensor:
        """`count` [R] cells of each row, drawn by weight [R, W] without replacement."""
        ...


class AddressedDraws:
    """For users: the same law whatever the batch."""

    def __init__(
        self,
        seed: int,
        spec: SamplerSpec,
        outputs: Numbers,
        places: Numbers,
        mask_id: int,
        *,
        name: str | None = None,
        top_k: int = 0,
        forbid: Sequence[int] = (),
        hush: Sequence[int] = (),
    ) -> None:
        """With the temperature, the cut and the precision of a sampler's settings.

        Numbers are addressed by the sampler's name, or by another.
        """
        self.spec, self.outputs, self.mask_id, self.top_k = spec, outputs, mask_id, top_k
        self.places = places
        """[B, L], the address of each column: its number among the open ones."""
        self.forbid = list(forbid)
        """Tokens that are never drawn."""
        self.hush = list(hush)
        """Tokens that count for nothing in a score of the network's own law."""
        self._streams = [
            Stream(seed, f"{name or spec.name}/{purpose}") for purpose in ("token", "order", "race")
        ]
        self._draws = addressed(spec.precision, self._streams[TOKEN])
        self.confirm = Normalisers()

    def propose(self, view: View, score: Confidence) -> tuple[Tensor, Tensor]:
        """A draw and a score wherever one is open, some rows of the head at a time."""
        tokens = torch.full(view.open.shape, self.mask_id, device=view.device)
        value = torch.full(view.open.shape, NOT_OPEN, dtype=torch.float64, device=view.device)
        for sequence, column, logits in view.chunks(view.open):
            drawn, scored = self._row(view, sequence, column, logits, score)
            at = upload_rows(view.device, sequence, column)
            tokens[at] = drawn
            if scored is not None:
                value[at] = scored.double()
        return tokens, value

    def tokens(self, view: View, where: Truths) -> Tensor:
        """The head runs at these cells only."""
        tokens = torch.full(where.shape, self.mask_id, device=view.device)
        for sequence, column, logits in view.chunks(where):
            drawn, _ = self._row(view, sequence, column, logits, None)
            tokens[upload_rows(view.device, sequence, column)] = drawn
        return tokens

    def numbers(self, view: View) -> Tensor:
        """One number for each cell, from its address."""
        return self._uniform(view, ORDER)

    def pick(self, view: View, weights: Tensor, count: Numbers) -> Tensor:
        """The earliest of exponential clocks; cells that are not open come last."""
        clocks = -torch.log1p(-self._uniform(view, RACE))
        score = torch.where(view.opened, weights.double() / clocks, NOT_OPEN)
        order = torch.sort(score, dim=1, descending=True, stable=True).indices
        places = torch.arange(score.shape[1], device=score.device)
        first = places < upload(count, score.device)[:, None]
        return torch.zeros_like(first).scatter(1, order, first) & view.opened

    def _row(
        self,
        view: View,
        sequence: Numbers,
        column: Numbers,
        logits: Tensor,
        score: Confidence | None,
    ) -> tuple[Tensor, Tensor | None]:
        rule_out(logits, [self.mask_id, *self.forbid])
        own = None if score is None or score.blind or score.tempered else logits.clone()
        heat = float(self.spec.temperature)
        law = self._law(logits, heat)
        probs = None
        if own is not None:
            rule_out(own, self.hush)
            probs = own.softmax(-1)
        elif score is not None and not score.blind:
            # At temperature 0 the public codes score by the untempered law, cut all the same.
            probs = (law if heat else self._law(logits, 1.0)).exp()
        drawn = self._draw(view, sequence, column, law.clone())
        if probs is None or score is None:
            return drawn, None
        return drawn, score(probs, drawn)

    def _law(self, logits: Tensor, temperature: float) -> Tensor:
        """Log-probabilities of the clean tokens: tempered, then cut."""
        law = shaped(logits.clone(), self.mask_id, self.spec, self.confirm, temperature)
        if self.top_k and temperature:
            kept = law >= law.topk(min(self.top_k, law.shape[-1]), dim=-1).values[:, -1:]
            law = law.masked_fill(~kept, NEG_INFINITY)
            law = law - law.logsumexp(-1, keepdim=True)
        return law

    def _draw(self, view: View, sequence: Numbers, column: Numbers, law: Tensor) -> Tensor:
        """By address; a law that is certain needs no number, and none is wasted."""
        row = view.rows[sequence]
        place = self.places[row, column + view.start]
        where = Address(self.outputs[row], view.rounds[sequence], place)
        if isinstance(self._draws, ExactDraw):
            return self._draws.tokens(law, where)  # nobody has to know what came out
        certain = Weights.certain(len(place))
        return upload(self._draws.draw(law, where, certain, self.mask_id), law.device)

    def _uniform(self, view: View, purpose: int) -> Tensor:
        output, round_ = self.outputs[view.rows][:, None], view.rounds[:, None]
        columns = slice(view.start, view.start + view.open.shape[1])
        position = self.places[view.rows, columns]
        u = self._streams[purpose].uniform(output, round_, position, 0)
        return upload(u, view.device)
