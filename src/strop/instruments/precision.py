"""What the float32 draw does to a generator: truncated probability, entropy, timing.

At a round with hidden share t the public draw offers a token of probability p the weight p (t - s)
against the mask's s. In float32 its clock cannot be shorter than one lattice step, so rare tokens
win less often than they should, and positions wait longer. All of it grows with the number of
steps, because t - s shrinks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from strop.denoisers.base import Denoiser, usable_length
from strop.errors import whole_number
from strop.instruments.cost import draw_batch
from strop.rng import Stream
from strop.samplers.machinery.categorical import clean_log_probs
from strop.samplers.machinery.lattice import BITS, Address, Lattice, first_order
from strop.samplers.machinery.start import RevealGrid, reveal_grid
from strop.spec.generator import SamplerSpec
from strop.spec.value import SEED_LIMIT

LEVELS = (1.0, 0.9, 0.75, 0.5, 0.25, 0.1)
"""Hidden shares at which the draw is looked at."""
MOST_DRAWS = 5_000_000
CONTEXT_STEPS = 32
"""Steps of the float64 samples that serve as contexts: enough for typical ones, cheap."""


@dataclass(frozen=True)
class HiddenShare:
    """The draw at one hidden share, averaged over masked positions of the model's own samples."""

    hidden_share: float
    round: int
    rows: int
    truncated: float
    """Token probability that float32 takes away, closed form: 1 - sum of p r / (e^r - 1)."""
    entropy: float
    """Of the token distribution, in nats."""
    entropy_float32: float
    """Of the distribution that float32 draws from, closed form."""
    reveal: float
    """Probability of being revealed in this round in exact arithmetic."""
    reveal_float32: float
    """The same in float32, closed form."""
    reveal_drawn: float
    """The same, counted in draws from the exact lattice law."""
    reveal_drawn_error: float
    """Standard error of that count."""


@dataclass(frozen=True)
class PrecisionReport:
    """The levels, and what they add up to over a whole run."""

    steps: int
    temperature: float
    bits: int
    levels: list[HiddenShare]
    mean_reveal: float
    """Mean reveal time as a share of all steps, exact: about one half."""
    mean_reveal_float32: float
    leftover: float
    """Share of positions that reach the finish masked, exact: 1e-5."""
    leftover_float32: float


def describe(
    denoiser: Denoiser,
    *,
    steps: int,
    temperature: float = 1.0,
    top_p: float = 1.0,
    samples: int = 4,
    rows: int = 64,
    reveals: int = 4_000,
    seed: int = 0,
    length: int | None = None,
) -> PrecisionReport:
    """Look at the float32 draw of one checkpoint at one number of steps.

    `rows` masked positions are looked at per level, and so many draws made from the exact law that
    about `reveals` of them reveal something.
    """
    seed = whole_number("seed", seed, 0, SEED_LIMIT)
    spec = SamplerSpec(steps=steps, temperature=temperature, top_p=top_p, precision="float32")
    length = usable_length(denoiser, length)
    done = draw_batch(denoiser, SamplerSpec(steps=CONTEXT_STEPS), samples, 0, length, seed)
    texts = torch.from_numpy(np.stack([output.ids for output in done])).to(denoiser.device)
    look = _Look(denoiser, spec, reveal_grid(spec), texts, seed)
    rounds = sorted({min(steps - 1, round((1 - level) * steps)) for level in LEVELS})
    levels = [look.level(k, rows, reveals) for k in rounds]
    return PrecisionReport(steps, temperature, BITS, levels, *_timing(look.grid, levels))


@dataclass(frozen=True)
class _Look:
    """The draw of one checkpoint, looked at on texts of its own."""

    denoiser: Denoiser
    spec: SamplerSpec
    grid: RevealGrid
    texts: torch.Tensor
    seed: int

    def level(self, k: int, rows: int, reveals: int) -> HiddenShare:
        """Look at the draw in round k."""
        t, s = float(self.grid.t[k]), float(self.grid.s[k])
        probs = self.masked_rows(k, rows)
        exact = probs.double().cpu().numpy()
        won = first_order(exact, t, s)
        reveal, reveal32 = (t - s) / t, float(won.sum(-1).mean())
        drawn, error = self.drawn(probs, k, min(MOST_DRAWS, int(reveals / reveal)))
        return HiddenShare(
            hidden_share=t,
            round=k + 1,
            rows=len(probs),
            truncated=1 - reveal32 / reveal,
            entropy=float(_entropy(exact).mean()),
            entropy_float32=float(_entropy(won / won.sum(-1, keepdims=True)).mean()),
            reveal=reveal,
            reveal_float32=reveal32,
            reveal_drawn=drawn,
            reveal_drawn_error=error,
        )

    def masked_rows(self, k: int, rows: int) -> torch.Tensor:
        """Clean-token probabilities [R, V] at masked positions of texts hidden to the share t."""
        denoiser, (n, length), device = self.denoiser, self.texts.shape, self.texts.device
        stream = Stream(self.seed, "precision-mask")
        u = stream.uniform(np.arange(n)[:, None], k, np.arange(length), 0)
        hide = torch.from_numpy(u < float(self.grid.t[k])).to(device)
        hide[0, 0] = True  # at least one row, however small the share
        ids = torch.where(hide, denoiser.mask_id, self.texts)
        sequence, position = torch.nonzero(hide, as_tuple=True)
        pick = torch.linspace(0, len(sequence) - 1, min(rows, len(sequence))).long().to(device)
        hidden = denoiser.hidden(ids, self.grid.sigmas()[k].expand(n).to(device))
        logits = denoiser.logits(hidden, sequence[pick], position[pick])
        law = clean_log_probs(logits, denoiser.mask_id, self.spec.temperature, self.spec.top_p)
        return law.float().exp()

    def drawn(self, probs: torch.Tensor, k: int, draws: int) -> tuple[float, float]:
        """The reveal rate among draws from the exact law, with its standard error."""
        lattice, stream = Lattice(), Stream(self.seed, "precision-draw")
        mass, mask_weight = (self.grid.t[k] - self.grid.s[k]).numpy(), self.grid.s[k].numpy()
        row, mask = np.arange(draws) % len(probs), self.denoiser.mask_id
        where = Address(np.arange(draws), np.full(draws, k), row)
        offers = lattice.offer(stream, where, np.full(draws, mass), np.full(draws, mask_weight))
        waiting = np.flatnonzero(offers.open)
        chunk = max(1, 2**22 // probs.shape[1])
        revealed = 0
        for start in range(0, len(waiting), chunk):
            part = waiting[start : start + chunk]
            weights = probs[torch.from_numpy(row[part]).to(probs.device)] * float(mass)
            token, _ = lattice.settle(offers[part], weights, mask, stream)
            revealed += int((token != mask).sum())
        rate = revealed / draws
        return rate, float(np.sqrt(rate * (1 - rate) / draws))


def _entropy(probs: NDArray[np.float64]) -> NDArray[np.float64]:
    return -(probs * np.log(np.where(probs > 0, probs, 1.0))).sum(-1)


def _timing(grid: RevealGrid, levels: list[HiddenShare]) -> tuple[float, float, float, float]:
    """Mean reveal time and leftover share, exact and with the hazard scaled as at the levels.

    Between levels the ratio of the two hazards is interpolated linearly in the hidden share.
    """
    t, s = grid.t.double().numpy(), grid.s.double().numpy()
    share = np.array([level.hidden_share for level in levels][::-1])
    ratio = np.array([level.reveal_float32 / level.reveal for level in levels][::-1])

    def walk(factor: NDArray[np.float64]) -> tuple[float, float]:
        survive = np.cumprod(1 - (t - s) / t * factor)
        before = np.append(1.0, survive[:-1])
        time = (np.arange(len(t)) + 1) / len(t)
        return float(((before - survive) * time).sum() + survive[-1]), float(survive[-1])

    exact, left = walk(np.ones_like(t))
    rough, rough_left = walk(np.interp(t, share, ratio))
    return exact, rough, left, rough_left
