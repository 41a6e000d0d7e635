"""The categorical draw, in one place: what is drawn from, and how.

`clean_log_probs` shapes the distribution over clean tokens (temperature, nucleus); `race` is the
public draw, a race of exponential clocks at the precision of its random numbers; `invert` is the
same law in exact arithmetic for one random number a row.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from strop.denoisers.base import NEG_INFINITY, refuse_infinite, subs
from strop.denoisers.device import Floats, Numbers
from strop.records.record import SAMPLERS, Nucleus
from strop.rng import RACE_EPSILON
from strop.spec.generator import SamplerSpec

Confirm = Callable[[Tensor], None]
"""What looks at the normalisers of scores."""


class Normalisers:
    """A `Confirm` for callers that must not wait.

    The first normalisers are looked at, which shows damaged weights; the sum of all is, in the end.
    """

    def __init__(self) -> None:
        self._sum: Tensor | None = None

    def __call__(self, normaliser: Tensor) -> None:
        """Add the normalisers of some scores; one that is not finite makes the sum so."""
        if self._sum is None:
            self._sum = normaliser.sum(dtype=torch.float64)
            self.refuse_infinite()
        else:
            self._sum += normaliser.sum()

    def refuse_infinite(self) -> None:
        """Refuse what was drawn if any scores were not finite; waits."""
        if self._sum is not None:
            refuse_infinite(self._sum)

    def fetched(self, ids: Tensor, chance: Tensor) -> tuple[Numbers, Floats]:
        """Ids and their chances on the host, if all scores were finite: in one copy."""
        total = ids.new_zeros((), dtype=torch.float64) if self._sum is None else self._sum
        parts = [ids.double().flatten(), chance.double().flatten(), total[None]]
        numbers = torch.cat(parts).cpu()  # waits; exact for any token
        refuse_infinite(numbers[-1])
        tokens, chances = numbers[:-1].view(2, *ids.shape)
        return tokens.long().numpy(), chances.numpy()


LARGEST_INVERSE = 1e30
"""Largest 1/tau used: beyond it only exact ties are left, and float32 overflows soon after."""

NUCLEUS_TOLERANCE = 1e-6
"""A set whose mass falls short of top_p by rounding alone counts as having reached it."""


def shaped(
    logits: Tensor,
    mask_id: int,
    spec: SamplerSpec,
    confirm: Confirm = refuse_infinite,
    temperature: float | Tensor | None = None,
) -> Tensor:
    """The clean-token law that a sampler draws from; may overwrite `logits`.

    Under a schedule `temperature` is that of the round, or of every row's.
    """
    heat = spec.temperature if temperature is None else temperature
    nucleus = SAMPLERS[spec.name].nucleus
    return clean_log_probs(logits, mask_id, heat, spec.top_p, nucleus, confirm)


def clean_log_probs(
    logits: Tensor,
    mask_id: int,
    temperature: float | Tensor,
    top_p: float,
    nucleus: Nucleus = "reaching",
    confirm: Confirm = refuse_infinite,
) -> Tensor:
    """Normalised log-probabilities over clean tokens; the mask's is about -1e6.

    Temperature acts on the logits before the mask outcome joins (the paper's eq. 1). At 1 nothing
    is rescaled, so that the public code's bits come out; at 0 the best token, the lowest on ties,
    takes everything. A tensor has one temperature per row. May overwrite `logits`. `confirm` is
    told of the normalisers, see `subs`.
    """
    if isinstance(temperature, Tensor):
        law = torch.empty_like(logits)
        for heat in temperature.unique().tolist():  # waits; a batch of `fast` has few
            rows = temperature == heat
            law[rows] = clean_log_probs(logits[rows], mask_id, heat, top_p, nucleus, confirm)
        return law
    if temperature == 0:  # on the host
        return _certain(subs(logits, mask_id, confirm))
    if temperature != 1:  # on the host
        # Ruled out for good: at a very low temperature no constant would hold the mask down.
        logits[..., mask_id] = -torch.inf
        logits = _scaled(logits, temperature)
        logits[..., mask_id] = -torch.inf  # also where the factor has rounded to zero
    log_probs = subs(logits, mask_id, confirm)
    return log_probs if top_p == 1 else _nucleus(log_probs, top_p, nucleus)


def any_log_probs(logits: Tensor, temperature: float, top_p: float = 1.0) -> Tensor:
    """Normalised log-probabilities over all classes alike: no mask, or one that takes part."""
    if temperature == 0:
        return _certain(logits)
    log_probs = _scaled(logits, temperature).log_softmax(-1)
    return log_probs if top_p == 1 else _nucleus(log_probs, top_p, "reaching")


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    """Logits over temperature; the best is moved to zero, since its quotient would overflow."""
    if temperature == 1:
        return logits
    logits = logits - logits.amax(-1, keepdim=True)
    logits *= min(1 / temperature, LARGEST_INVERSE)
    return logits


def _certain(log_probs: Tensor) -> Tensor:
    best = log_probs.argmax(-1, keepdim=True)
    return torch.full_like(log_probs, NEG_INFINITY).scatter_(-1, best, 0.0)


def _nucleus(log_probs: Tensor, top_p: float, rule: Nucleus) -> Tensor:
    """Keep the most probable tokens up to a mass of top_p, renormalised.

    `reaching` keeps the smallest set whose mass reaches top_p. `within` keeps the largest set whose
    mass does not exceed it, and the best token always: at most one token fewer, and sharper.
    """
    ordered, order = torch.sort(log_probs, dim=-1, descending=True, stable=True)
    mass = ordered.double().exp()
    total = mass.cumsum(-1)
    if rule == "reaching":
        out = total - mass >= top_p - NUCLEUS_TOLERANCE
    else:
        out = total > top_p + NUCLEUS_TOLERANCE
        out[..., 0] = False
    dropped = torch.zeros_like(log_probs, dtype=torch.bool).scatter_(-1, order, out)
    cut = log_probs.masked_fill(dropped, NEG_INFINITY)
    return cut - torch.logsumexp(cut, dim=-1, keepdim=True)


def race(weights: Tensor, uniforms: Tensor) -> Tensor:
    """argmax of weight over exponential clock, the lowest index on ties (the public draw)."""
    clocks = RACE_EPSILON - (uniforms + RACE_EPSILON).log()
    return (weights / clocks).argmax(dim=-1)


def invert(log_probs: Tensor, uniforms: Tensor) -> Tensor:
    """One token a row by inverting the cumulative distribution, summed in float64.

    Overwrites `log_probs` with the probabilities.
    """
    cumulative = log_probs.exp_().cumsum(-1, dtype=torch.float64)
    # Staying strictly below the total keeps a rounded product from running off the end.
    level = uniforms * (1 - 2.0**-53) * cumulative[:, -1]
    token = torch.searchsorted(cumulative, level[:, None], right=True)[:, 0]
    return token.clamp_(max=log_probs.shape[-1] - 1)


def share(weights: Tensor, token: Tensor) -> Tensor:
    """Each token's share of the weights of its row [R, V]; anything for one that has none."""
    weight = weights.gather(-1, token.clamp(max=weights.shape[-1] - 1)[:, None])[:, 0]
    return weight / weights.sum(-1)


def log_share(scores: Tensor, token: Tensor) -> Tensor:
    """The same from unnormalised log weights [..., V]."""
    score = scores.gather(-1, token[..., None])[..., 0]
    return (score - scores.logsumexp(-1)).exp()
