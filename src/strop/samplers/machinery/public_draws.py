"""The draws of the public decoders, number for number from one generator.

`PowerDraws` is LLaDA's and Fast-dLLM's for LLaDA, `CategoricalDraws` Dream's and Fast-dLLM's for
Dream. What they draw in vain, they draw here as well: the next number of the generator is part of
what the parity vectors hold.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.device import Numbers, Truths, brought, upload, upload_rows
from strop.samplers.machinery.drawing import NOT_OPEN, Confidence, rule_out, scattered
from strop.samplers.machinery.reading import View

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
        """Of the random order."""
        self.network_dtype = network_dtype
        self.twice = twice
        """Whether a call through a cache draws once more in vain (Fast-dLLM's prefix cache)."""
        self.forbid, self.hush = list(forbid), list(hush)

    def propose(self, view: View, score: Confidence) -> tuple[Tensor, Tensor]:
        """Tokens, and the untempered probability of each."""
        logits = self._logits(view, view.open)
        drawn = self._draw(view, view.open, logits)
        tokens = scattered(drawn, view.open, 0)
        if score.blind:
            return tokens, tokens
        rule_out(logits, self.hush)
        probs = logits.softmax(-1, dtype=self.score_dtype)
        return tokens, scattered(score(probs, drawn), view.open, NOT_OPEN)

    def tokens(self, view: View, where: Truths) -> Tensor:
        """Tokens without scores."""
        return scattered(self._draw(view, where, self._logits(view, where)), where, 0)

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
        return tokens, scattered(score(probs, drawn), view.open, NOT_OPEN)

    def tokens(self, view: View, where: Truths) -> Tensor:
        """Tokens without scores."""
        if view.extent is None:
            view.extent = where
        return scattered(self._drawn(view, where)[1], where, 0)

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
        mine = where[extent]
        if mine.all():
            return probs, drawn
        rows = upload(np.flatnonzero(mine), view.device)
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
            gone = torch.zeros_like(logits, dtype=torch.bool).scatter_(-1, order, over)
            logits = logits.masked_fill(gone, least)
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


def _rand(generator: torch.Generator, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    """Numbers where the generator is."""
    return torch.rand(shape, dtype=dtype, generator=generator, device=generator.device)
