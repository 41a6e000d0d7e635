"""How a decoder draws its tokens, and how it scores positions.

For users (`AddressedDraws`) numbers have an address, and the mask is never drawn. A token is drawn
from the network's law over clean tokens, tempered, then cut by top_p and top_k. In float64 by exact
inversion; in float32 with the law of the float32 race on its lattice, as elsewhere in this package
(the public codes of these decoders draw in float64 or in the logits' own dtype). Numbers are
addressed by (output, the output's round, position), so that neither the batch nor the order of the
work matters.

The public decoders' draws are here too, number for number from one generator: `PowerDraws` is
LLaDA's and Fast-dLLM's for LLaDA, `CategoricalDraws` Dream's and Fast-dLLM's for Dream. Numbers
that they draw in vain are drawn here as well: the next number of the generator is part of what the
parity vectors hold.

A `Confidence` scores positions: the higher, the earlier a position is committed. Scores of the
drawn token (`confidence`) make the choice depend on the draw, which changes the law of what comes
out. All others are known before a token is drawn: with a perfect denoiser, one position a round and
temperature 1 the output then has the exact law.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.base import NEG_INFINITY
from strop.denoisers.device import Numbers, Truths, brought, upload, upload_rows
from strop.rng import Stream
from strop.samplers.machinery.categorical import Normalisers, log_share, shaped, share
from strop.samplers.machinery.committing import View
from strop.samplers.machinery.lattice import Address, ExactDraw, Weights, addressed
from strop.spec.generator import SamplerSpec

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
    """A rule that scores positions."""

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
        view.chance = value.float()
        for sequence, column, logits in view.chunks(view.open):
            drawn, chance, scored = self._row(view, sequence, column, logits, score)
            at = upload_rows(view.device, sequence, column)
            tokens[at], view.chance[at] = drawn, chance.float()
            if scored is not None:
                value[at] = scored.double()
        return tokens, value

    def tokens(self, view: View, where: Truths) -> Tensor:
        """The head runs at these cells only."""
        tokens = torch.full(where.shape, self.mask_id, device=view.device)
        view.chance = torch.zeros(where.shape, device=view.device)
        for sequence, column, logits in view.chunks(where):
            drawn, chance, _ = self._row(view, sequence, column, logits, None)
            at = upload_rows(view.device, sequence, column)
            tokens[at], view.chance[at] = drawn, chance.float()
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
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Tokens, how likely each was, and scores."""
        rule_out(logits, [self.mask_id, *self.forbid])
        untempered = None if score is None or score.blind or score.tempered else logits.clone()
        heat = float(self.spec.temperature)
        law = self._law(logits, heat)
        probs = None
        if untempered is not None:
            rule_out(untempered, self.hush)
            probs = untempered.softmax(-1)
        elif score is not None and not score.blind:
            # At temperature 0 the public codes score by the untempered law, cut all the same.
            probs = (law if heat else self._law(logits, 1.0)).exp()
        drawn, chance = self._draw(view, sequence, column, law.clone())
        if probs is None or score is None:
            return drawn, chance, None
        return drawn, chance, score(probs, drawn)

    def _law(self, logits: Tensor, temperature: float) -> Tensor:
        """Log-probabilities of the clean tokens: tempered, then cut."""
        law = shaped(logits.clone(), self.mask_id, self.spec, self.confirm, temperature)
        if self.top_k and temperature:
            in_top = law >= law.topk(min(self.top_k, law.shape[-1]), dim=-1).values[:, -1:]
            law = law.masked_fill(~in_top, NEG_INFINITY)
            law = law - law.logsumexp(-1, keepdim=True)
        return law

    def _draw(
        self, view: View, sequence: Numbers, column: Numbers, law: Tensor
    ) -> tuple[Tensor, Tensor]:
        """By address; a law that is certain needs no number, and none is wasted."""
        row = view.rows[sequence]
        open_index = self.places[row, column + view.start]
        where = Address(self.outputs[row], view.rounds[sequence], open_index)
        if isinstance(self._draws, ExactDraw):
            return self._draws.tokens(law, where)  # nobody has to know what came out
        certain = Weights.certain(len(open_index))
        token, chance = self._draws.draw(law, where, certain, self.mask_id)
        return upload(token, law.device), chance

    def _uniform(self, view: View, purpose: int) -> Tensor:
        output, round_ = self.outputs[view.rows][:, None], view.rounds[:, None]
        columns = slice(view.start, view.start + view.open.shape[1])
        position = self.places[view.rows, columns]
        u = self._streams[purpose].uniform(output, round_, position, 0)
        return upload(u, view.device)


SIMPLEX_TOLERANCE = 1e-6
"""How far from one torch lets a row of probabilities sum before it refuses to draw."""


def _scores(view: View, where: Truths, dtype: torch.dtype | None) -> Tensor:
    """The network's scores, in the dtype that its head had."""
    logits = view.logits(where)
    return logits if dtype is None else logits.to(dtype)


class PowerDraws:
    """argmax of exp(l) / (-ln u)^T in float64, one u for each class and column of the window."""

    def __init__(
        self,
        generator: torch.Generator,
        temperature: float,
        *,
        score_dtype: torch.dtype | None = None,
        number_dtype: torch.dtype = torch.float32,
        network_dtype: torch.dtype | None = None,
        twice: bool = False,
        forbid: Sequence[int] = (),
        hush: Sequence[int] = (),
    ) -> None:
        self.generator, self.temperature = generator, temperature
        self.score_dtype = score_dtype
        """In which the confidence is computed; None is the network's own."""
        self.number_dtype = number_dtype
        """The dtype of the random order's numbers."""
        self.network_dtype = network_dtype
        self.twice = twice
        """Whether a call through a cache draws once more in vain (Fast-dLLM's prefix cache)."""
        self.forbid, self.hush = list(forbid), list(hush)

    def propose(self, view: View, score: Confidence) -> tuple[Tensor, Tensor]:
        """Tokens, and the untempered probability of each."""
        logits = self._logits(view, view.open)
        drawn = self._draw(view, view.open, logits)
        tokens = scattered(drawn, view.open, 0)
        self._tell(view, view.open, logits, drawn)
        if score.blind:
            return tokens, tokens
        rule_out(logits, self.hush)
        probs = logits.softmax(-1, dtype=self.score_dtype)
        return tokens, scattered(score(probs, drawn), view.open, NOT_OPEN)

    def tokens(self, view: View, where: Truths) -> Tensor:
        """Tokens without scores."""
        logits = self._logits(view, where)
        drawn = self._draw(view, where, logits)
        self._tell(view, where, logits, drawn)
        return scattered(drawn, where, 0)

    def _tell(self, view: View, where: Truths, logits: Tensor, drawn: Tensor) -> None:
        """Powers of clocks draw from the tempered law; at 0 the best token is certain."""
        chance = torch.ones(drawn.shape, device=view.device)
        if self.temperature:
            chance = log_share(logits.float() / self.temperature, drawn)
        view.chance = scattered(chance, where, torch.nan)

    def numbers(self, view: View) -> Tensor:
        """One for every column of the window."""
        u = _rand(self.generator, *view.open.shape, dtype=self.number_dtype)
        return brought(u, view.device)

    def pick(self, view: View, weights: Tensor, count: Numbers) -> Tensor:  # noqa: ARG002
        """Only Dream's code picks positions by a race: `alg_temp` is its setting alone."""
        raise TypeError("LLaDA's and Fast-dLLM's public codes pick no positions by a race")

    def _logits(self, view: View, where: Truths) -> Tensor:
        logits = _scores(view, where, self.network_dtype)
        rule_out(logits, self.forbid)
        return logits

    def _draw(self, view: View, where: Truths, logits: Tensor) -> Tensor:
        if self.temperature == 0:
            return logits.argmax(-1)
        shape = (*view.open.shape, view.vocab_size)
        if self.twice and view.windowed:
            _rand(self.generator, *shape, dtype=torch.float64)
        u = _rand(self.generator, *shape, dtype=torch.float64)
        u = brought(u[upload_rows(u.device, *np.nonzero(where))], view.device)
        clocks = (-torch.log(u)) ** self.temperature
        return (logits.double().exp() / clocks).argmax(-1)


class CategoricalDraws:
    """argmax of p / E with exponential clocks E, p tempered and cut, in the dtype of the network.

    Where torch refuses a row because its probabilities do not sum to one, which rounding in half
    precision brings about, the public code takes the best token at every row of the call and says
    nothing. This says so.
    """

    def __init__(
        self,
        generator: torch.Generator,
        temperature: float,
        *,
        top_p: float | None = None,
        top_k: int | None = None,
        wide: bool = False,
        network_dtype: torch.dtype | None = None,
        forbid: Sequence[int] = (),
    ) -> None:
        self.generator, self.temperature = generator, temperature
        self.top_p, self.top_k, self.forbid = top_p, top_k, list(forbid)
        self.wide = wide
        """Whether a draw is made at all masks that were read, the block's or not."""
        self.network_dtype = network_dtype
        self.greedy_calls = 0
        """Calls in which a draw was refused."""

    def propose(self, view: View, score: Confidence) -> tuple[Tensor, Tensor]:
        """Tokens, and scores from the law that they were drawn from."""
        probs, drawn = self._drawn(view, view.open)
        tokens = scattered(drawn, view.open, 0)
        self._tell(view, view.open, probs, drawn)
        return tokens, scattered(score(probs, drawn), view.open, NOT_OPEN)

    def tokens(self, view: View, where: Truths) -> Tensor:
        """Tokens without scores."""
        if view.extent is None:
            view.extent = where
        probs, drawn = self._drawn(view, where)
        self._tell(view, where, probs, drawn)
        return scattered(drawn, where, 0)

    def _tell(self, view: View, where: Truths, probs: Tensor, drawn: Tensor) -> None:
        """At temperature 0 the best token is certain, whatever it scores."""
        chance = share(probs, drawn) if self.temperature else torch.ones_like(drawn).float()
        view.chance = scattered(chance.float(), where, torch.nan)

    def numbers(self, view: View) -> Tensor:
        """One for every open position of the batch, row by row."""
        u = _rand(self.generator, int(view.open.sum()))
        return scattered(brought(u, view.device), view.open, 1.0)

    def pick(self, view: View, weights: Tensor, count: Numbers) -> Tensor:
        """torch's own draw without replacement; one count for all rows."""
        source = self.generator
        chosen = torch.multinomial(weights.to(source.device), int(count[0]), generator=source)
        return torch.zeros_like(view.opened).scatter(1, brought(chosen, view.device), True)

    def _drawn(self, view: View, where: Truths) -> tuple[Tensor, Tensor]:
        """The laws at the true cells of `where`, and a token from each."""
        extent = view.extent
        if extent is None:
            extent = view.masked if self.wide else view.open
        logits = _scores(view, extent, self.network_dtype)
        rule_out(logits, self.forbid)
        probs = self._law(logits)
        drawn = probs.max(-1).indices if self.temperature == 0 else self._draw(probs)
        chosen = where[extent]
        if chosen.all():
            return probs, drawn
        rows = upload(np.flatnonzero(chosen), view.device)
        return probs[rows], drawn[rows]

    def _law(self, logits: Tensor) -> Tensor:
        if self.temperature > 0:
            logits = logits / self.temperature
        least = torch.finfo(logits.dtype).min
        if self.top_p is not None and self.top_p < 1:
            ordered, order = torch.sort(logits, descending=True)
            over = ordered.softmax(-1).cumsum(-1) > self.top_p
            over = over.roll(1, -1)  # a token goes if those before it already exceed top_p
            over[..., 0] = False
            dropped = torch.zeros_like(logits, dtype=torch.bool).scatter_(-1, order, over)
            logits = logits.masked_fill(dropped, least)
        if self.top_k:
            smallest = torch.topk(logits, min(self.top_k, logits.shape[-1])).values[..., -1:]
            logits = logits.masked_fill(logits < smallest, least)
        return logits.softmax(-1)

    def _draw(self, probs: Tensor) -> Tensor:
        normal = probs / probs.sum(-1, keepdim=True)
        off = (normal.sum(-1) - 1).abs()
        if not bool((off < SIMPLEX_TOLERANCE).all() & (normal >= 0).all()):  # waits
            self.greedy_calls += 1
            bad = int((off >= SIMPLEX_TOLERANCE).sum())  # waits
            warnings.warn(
                f"The public sampler draws nothing in this call: {bad} of {len(probs)} rows of "
                f"{probs.dtype} probabilities do not sum to one, so it takes the best token "
                "everywhere, and so does this literal form. `implementation=fast` draws.",
                stacklevel=2,
            )
            return probs.max(-1).indices
        clocks = torch.empty(probs.shape, dtype=probs.dtype, device=self.generator.device)
        clocks.exponential_(1, generator=self.generator)
        return (normal / brought(clocks, probs.device)).argmax(-1)


Draws = AddressedDraws | PowerDraws | CategoricalDraws
"""Random numbers, and tokens made from them.

`propose`: tokens and scores at all open cells, two tables [R, W]. `tokens`: those at the true cells
of `where` [R, W], anything elsewhere. `numbers`: one in [0, 1) at every open cell. `pick`: `count`
[R] cells of each row, drawn by weight [R, W] without replacement.
"""


def _rand(generator: torch.Generator, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    """Numbers where the generator is."""
    return torch.rand(shape, dtype=dtype, generator=generator, device=generator.device)
