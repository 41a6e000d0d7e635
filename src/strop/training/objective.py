"""The loss is a form of the negative ELBO of masked diffusion, or the causal loss:

`public`, the continuous-time form as the public code estimates it: one noise level t per sequence,
stratified over the batch on [1e-3, 1]; every token is masked with probability (1 - 1e-3) t; a
masked token costs -log p(token | visible) / t, others nothing. It estimates the bound clipped to
those times, not the whole of it.

`any-order`: a mask count k uniform on 1..L, stratified, and a uniform set of that size; a masked
token costs -log p(token | visible) L / k, so that a sequence costs, per token, the mean over the
masked ones. It is unbiased for the bound itself: the area under the loss profile.

`llada`, as LLaDA is trained: t uniform on [1e-3, 1] (stratified here), every token masked with
probability t itself; a masked token costs -log p(token | visible) / t.

In blocks (BD3-LM), each form is drawn for every block by itself (`block_noise`), and a block is
predicted behind the clean blocks before it. One pass over twice as many tokens, noisy and clean
side by side, does that for all blocks of a row. One block as long as the row is masked diffusion.

In rows of prompt and response, each form is drawn over the response alone and put where it lies
(`placed`): nothing of a prompt is ever masked, and the loss is per token of the response.

Visible tokens cost nothing, so the head is asked at masked positions only; the numbers are those
of the dense formula.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from strop.denoisers.base import NEG_INFINITY
from strop.denoisers.bd3lm import training_sight
from strop.denoisers.device import upload
from strop.denoisers.dit import DiT
from strop.samplers.machinery.start import NOISE_EPSILON, sigma_of

TIME_EPSILON = 1e-3
"""The smallest time that training sees."""


def stratified_times(batch: int, generator: torch.Generator | None = None) -> Tensor:
    """One time in each of `batch` equal strata of [1e-3, 1]."""
    offsets = torch.rand(batch, generator=generator)
    u = (offsets / batch + torch.arange(batch) / batch) % 1
    return (1 - TIME_EPSILON) * u + TIME_EPSILON


@dataclass(frozen=True)
class Noise:
    """Which tokens of a batch are hidden, and what a hidden one counts."""

    hidden: Tensor
    """[B, L], true where masked."""
    weight: Tensor
    """[B], or [B, L] in blocks: the factor of a masked token's surprise in the loss per token."""
    sigma: Tensor | None = None
    """[B], the noise level; forms without one have none."""
    text: Tensor | None = None
    """[B, up to L], true up to the response's end, in rows of prompt and response: the rest is
    filling that no token may look at. None: every row is text to its end."""
    cells: Tensor | None = None
    """[2, n], row and column of every masked token, in order; None: not computed yet."""

    def part(self, rows: slice | Tensor) -> Noise:
        """The noise of some of the sequences."""
        hidden, weight, sigma, text, _ = self.tensors()
        parts = (None if part is None else part[rows] for part in (hidden, weight, sigma, text))
        return Noise(*parts)  # pyright: ignore[reportArgumentType]

    def to(self, device: torch.device) -> Noise:
        """The same elsewhere, from the host, which made it and goes on while it is copied.

        Where the masked tokens lie, and how far the longest text goes, is found out here: a device
        that was asked for it would be waited for.
        """
        text = self.text
        if text is not None:
            text = text[:, : int(text.sum(1).max())]
        cells = torch.stack(self.hidden.nonzero(as_tuple=True))
        return Noise(
            *(
                None if tensor is None else upload(tensor, device)
                for tensor in (self.hidden, self.weight, self.sigma, text, cells)  # pyright: ignore[reportArgumentType]
            )
        )

    def tensors(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """The fields, in order: what a module's `forward` takes after the ids."""
        return self.hidden, self.weight, self.sigma, self.text, self.cells

    def where(self) -> tuple[Tensor, Tensor]:
        """Rows and columns of the masked tokens; waits for a device, unless `to` has them."""
        cells = self.hidden.nonzero(as_tuple=True) if self.cells is None else self.cells
        return cells[0], cells[1]


def public_noise(batch: int, length: int, generator: torch.Generator | None = None) -> Noise:
    """The public form: stratified times, independent masking, weight 1/t."""
    t = stratified_times(batch, generator)
    sigma = sigma_of(t)
    move = 1 - (-sigma).exp()
    hidden = torch.rand(batch, length, generator=generator) < move[:, None]
    rate = (1 - NOISE_EPSILON) / (1 - (1 - NOISE_EPSILON) * t)  # d sigma / dt
    return Noise(hidden, rate / torch.expm1(sigma), sigma)


def any_order_noise(batch: int, length: int, generator: torch.Generator | None = None) -> Noise:
    """The any-order form: a stratified uniform mask count k in 1..L, weight L/k.

    One offset for the whole batch keeps every sequence's k uniform; a random shift of the strata
    keeps which sequence gets which stratum from mattering.
    """
    offset = torch.rand(1, generator=generator, dtype=torch.float64)
    u = (torch.arange(batch, dtype=torch.float64) / batch + offset) % 1
    count = 1 + (u * length).long().clamp(max=length - 1)
    order = torch.rand(batch, length, generator=generator).argsort(1).argsort(1)
    return Noise(order < count[:, None], length / count.float())


def llada_noise(batch: int, length: int, generator: torch.Generator | None = None) -> Noise:
    """LLaDA's form: stratified times, masked with probability t, weight 1/t."""
    t = stratified_times(batch, generator)
    return Noise(torch.rand(batch, length, generator=generator) < t[:, None], 1 / t)


def placed(noise: Noise, prompts: Tensor, length: int) -> Noise:
    """Noise over responses alone, moved into rows of `length` behind prompts of these lengths.

    The weights are scaled so that a loss per token of the row is one per token of the response.
    """
    response = noise.hidden.shape[1]
    within = torch.arange(length) - prompts[:, None]
    inside = (within >= 0) & (within < response)
    hidden = noise.hidden.gather(1, within.clamp(0, response - 1)) & inside
    return Noise(hidden, noise.weight * (length / response), noise.sigma, within < response)


def block_noise(
    form: str, batch: int, length: int, block: int, generator: torch.Generator | None = None
) -> Noise:
    """A form drawn for every block of `batch` rows by itself, the row's first token given.

    The first token is where every text begins; nothing predicts it. A block that is cut short,
    there or at the row's end, keeps the form's law: a part of a uniform order is uniform. The loss
    is one per predicted token.
    """
    blocks = -(-length // block)
    noise = NOISES[form](batch * blocks, block, generator)
    hidden = noise.hidden.view(batch, -1)[:, :length].clone()
    hidden[:, 0] = False
    weight = noise.weight.view(batch, -1).repeat_interleave(block, 1)[:, :length]
    return Noise(hidden, weight * (length / (length - 1)))


NOISES: dict[str, Callable[[int, int, torch.Generator | None], Noise]] = {
    "public": public_noise,
    "any-order": any_order_noise,
    "llada": llada_noise,
}
"""The forms by name."""


def hidden_surprise(
    network: DiT,
    ids: Tensor,
    noise: Noise,
    mask_id: int,
    *,
    time_conditioned: bool = False,
    dtype: torch.dtype = torch.float32,
    block: int | None = None,
) -> Tensor:
    """-log p(token | visible) at the masked tokens only, in the order of `ids[noise.hidden]`.

    With `block`, visible are the rest of a token's own block and the clean blocks before it.
    """
    noisy = torch.where(noise.hidden, mask_id, ids)
    # Without time conditioning the condition is one constant vector: one row, broadcast.
    sigma = noise.sigma if time_conditioned else torch.zeros(1, device=ids.device)
    assert sigma is not None  # the spec refuses the combination
    if block is None or block >= ids.shape[1]:
        features = network.features(noisy, sigma, dtype)
    else:
        sight = training_sight(ids.shape[1], block, ids.device)
        doubled = network.features(torch.cat([noisy, ids], 1), sigma, dtype, sight)
        features = doubled[:, : ids.shape[1]]
    where = noise.where()
    logits = network.head(features[where], dtype).float()
    return surprise_of(logits, ids[where], mask_id)


def surprise_of(logits: Tensor, tokens: Tensor, mask_id: int) -> Tensor:
    """-log p(token) of each row of scores [n, V], the mask ruled out; the scores are changed."""
    with torch.no_grad():  # a constant: its gradient is the identity, which needs no graph
        logits[:, mask_id] += NEG_INFINITY  # the mask is no clean token (SUBS)
    return F.cross_entropy(logits, tokens, reduction="none")


def loss_of(surprise: Tensor, noise: Noise) -> Tensor:
    """Loss per token of every sequence, [B], from the masked tokens' surprise."""
    batch, length = noise.hidden.shape
    total = torch.zeros(batch, dtype=surprise.dtype, device=surprise.device)
    row, column = noise.where()
    if noise.weight.dim() == 2:
        return total.index_add(0, row, surprise * noise.weight[row, column]) / length
    return total.index_add(0, row, surprise) * noise.weight / length


def causal_surprise(logits: Tensor, ids: Tensor) -> Tensor:
    """-log p(token | tokens before it), [B, L - 1]; the first token has no prediction."""
    flat = logits[:, :-1].float().flatten(0, 1)
    return F.cross_entropy(flat, ids[:, 1:].flatten(), reduction="none").view(len(ids), -1)
