"""Exact denoisers: the Bayes conditionals of a small target law, and of a stationary Markov chain.

A target law that is small enough is tabulated. A chain may be of any length, because a masked token
depends on the visible ones only through its nearest visible neighbours:

    P(X_i = v | a at distance d on the left, b at distance e on the right)
        is proportional to K^d[a, v] K^e[v, b],

with the stationary law in place of a missing left neighbour. Powers of K are tabulated up to the
mixing time, beyond which a neighbour says nothing.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from strop.denoisers.base import Timeless, exact_spec
from strop.denoisers.device import upload
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError
from strop.spec.generator import CheckpointSpec

MIXED = 1e-13


class MarkovDenoiser(Timeless):
    """log P(X_i = v | visible tokens) of a chain with a positive transition matrix.

    Tokens are 0..V-1 and the mask is V. A hidden state holds two numbers per position: which row
    of the left table and which row of the right table belong to its nearest visible neighbours.
    """

    source = "markov"
    codec: TextCodec | None = None

    def __init__(
        self, transition: ArrayLike, length: int = 1024, *, device: torch.device | str = "cpu"
    ) -> None:
        kernel = _kernel_of(transition, length)
        self.transition = kernel
        """The transition matrix, rows normalised."""
        self.length = length
        self.mask_id = len(kernel)
        self.vocab_size = self.mask_id + 1
        self.device = torch.device(device)
        self.spec = _exact_spec("markov", kernel, length)
        powers = _powers(kernel, length)
        self._depth = len(powers)
        start = _stationary(kernel)
        left = np.concatenate([np.log(start)[None], np.log(powers).reshape(-1, self.mask_id)])
        right = np.log(powers).transpose(0, 2, 1).reshape(-1, self.mask_id)
        right = np.concatenate([np.zeros((1, self.mask_id)), right])
        self._left, self._right = (upload(t, self.device) for t in (left, right))

    def hidden(self, ids: Tensor, sigma: Tensor | None) -> Tensor:  # noqa: ARG002
        """Rows of the two tables, [B, L, 2]; row 0 stands for no neighbour within reach."""
        position = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        left = self._neighbour(ids, position)
        right = self._neighbour(ids.flip(1), position).flip(1)
        return torch.stack([left, right], dim=-1)

    def logits(self, hidden: Tensor, sequence: Tensor, position: Tensor) -> Tensor:
        """Log-posteriors of the clean tokens; the mask column is zero and SUBS rules it out."""
        rows = hidden[sequence, position]
        out = torch.zeros((len(rows), self.vocab_size), dtype=torch.float64, device=self.device)
        scores = self._left[rows[:, 0]] + self._right[rows[:, 1]]
        out[:, : self.mask_id] = scores - torch.logsumexp(scores, dim=-1, keepdim=True)
        return out

    def _neighbour(self, ids: Tensor, position: Tensor) -> Tensor:
        """The table row of the nearest visible token strictly before every position."""
        seen = torch.where(ids != self.mask_id, position, -1).cummax(dim=1).values
        before = torch.cat([torch.full_like(seen[:, :1], -1), seen[:, :-1]], dim=1)
        distance = position - before
        token = ids.gather(1, before.clamp(min=0))
        row = 1 + (distance - 1) * self.mask_id + token
        return torch.where((before >= 0) & (distance <= self._depth), row, 0)


def _exact_spec(family: str, law: NDArray[np.float64], length: int) -> CheckpointSpec:
    sha256 = hashlib.sha256(np.ascontiguousarray(law).tobytes()).hexdigest()
    return exact_spec(family, sha256, length, len(law))


def _powers(kernel: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """K, K^2, ... until the rows agree or the sequence ends."""
    out = [kernel]
    while len(out) < length - 1 and np.ptp(out[-1], axis=0).max() > MIXED:
        out.append(out[-1] @ kernel)
    return np.stack(out)


def _stationary(kernel: NDArray[np.float64]) -> NDArray[np.float64]:
    """The law that the chain keeps: the rows of a very high power."""
    power = kernel
    while np.ptp(power, axis=0).max() > MIXED:
        power = power @ power
        power /= power.sum(axis=1, keepdims=True)
    return power.mean(axis=0)


def _kernel_of(transition: ArrayLike, length: int) -> NDArray[np.float64]:
    kernel = np.asarray(transition, dtype=np.float64)
    square = kernel.ndim == 2 and kernel.shape[0] == kernel.shape[1] > 0
    if not square or not np.isfinite(kernel).all() or (kernel <= 0).any():
        raise UserError(
            "A Markov denoiser needs a square transition matrix with positive entries.",
            where="MarkovDenoiser",
            got=f"an array of shape {kernel.shape}",
            fix="mix in a little of the uniform law",
        )
    if np.abs(kernel.sum(axis=1) - 1).max() > 1e-8:
        raise UserError(
            "The rows of a transition matrix must sum to one.",
            where="MarkovDenoiser",
            got=f"sums from {kernel.sum(axis=1).min():.9g} to {kernel.sum(axis=1).max():.9g}",
        )
    if length < 1:
        raise UserError("A sequence needs at least one token.", where="MarkovDenoiser", got=length)
    return kernel / kernel.sum(axis=1, keepdims=True)


LARGEST_TABLE = 20_000_000


class TabularDenoiser(Timeless):
    """log P(X_i = v | visible coordinates) for any full-support law P on V^L.

    Tokens are 0..V-1 and the mask is V. Every context (each coordinate one of V values or masked)
    has its conditionals tabulated, so that a hidden state is just the context's number.
    """

    source = "tabular"
    codec = None

    def __init__(self, target: ArrayLike, *, device: torch.device | str = "cpu") -> None:
        law = _checked(target)
        self.target = law
        """The law itself, normalised, as an array with L axes of V entries."""
        self.length = law.ndim
        self.mask_id = law.shape[0]
        self.vocab_size = self.mask_id + 1
        self.device = torch.device(device)
        self.spec = _exact_spec("tabular", law, self.length)
        self._table = upload(_conditionals(law), self.device)
        self._place = self.vocab_size ** torch.arange(self.length, device=self.device).flip(0)

    def hidden(self, ids: Tensor, sigma: Tensor | None) -> Tensor:  # noqa: ARG002
        """The context's number, repeated at every position: [B, L]."""
        seen = ids.shape[1]  # coordinates beyond a shorter sequence count as masked
        context = (ids * self._place[:seen]).sum(-1) + self.mask_id * self._place[seen:].sum()
        return context[:, None].expand(-1, ids.shape[1]).contiguous()

    def logits(self, hidden: Tensor, sequence: Tensor, position: Tensor) -> Tensor:
        """The conditionals' logarithms; the mask column is zero and SUBS rules it out."""
        return self._table[hidden[sequence, position], position]


def _checked(target: ArrayLike) -> np.ndarray:
    law = np.asarray(target, dtype=np.float64)
    if law.ndim == 0 or len(set(law.shape)) != 1 or law.size == 0:
        raise UserError(
            "A tabular target needs L axes of the same size V.",
            where="TabularDenoiser",
            got=f"an array of shape {law.shape}",
        )
    if not np.isfinite(law).all() or (law <= 0).any():
        raise UserError(
            "A tabular target needs full support: every probability above zero.",
            where="TabularDenoiser",
            got=f"a smallest entry of {law.min()!r}",
            fix="mix in a little of the uniform law, or use strop.theory, which allows zeros",
        )
    if abs(law.sum() - 1) > 1e-6:
        raise UserError(
            "A tabular target does not sum to one.", where="TabularDenoiser", got=law.sum()
        )
    contexts = (law.shape[0] + 1) ** law.ndim
    if contexts * law.ndim * (law.shape[0] + 1) > LARGEST_TABLE:
        raise UserError(
            "The target is too large to tabulate.",
            where="TabularDenoiser",
            got=f"{law.shape[0]} tokens and length {law.ndim}: {contexts:,} contexts",
            expected=f"at most {LARGEST_TABLE:,} table entries: (V + 1)^(L + 1) * L",
        )
    return law / law.sum()


def _conditionals(law: np.ndarray) -> np.ndarray:
    """log P(X_i = v | context) for every context: [(V + 1)^L, L, V + 1], mask column zero."""
    length, tokens = law.ndim, law.shape[0]
    # Appending the sum to every axis gives, in one array, the probability of every context:
    # index V on an axis stands for "masked", that is, summed over.
    extended = law
    for axis in range(length):
        extended = np.concatenate([extended, extended.sum(axis, keepdims=True)], axis=axis)
    table = np.zeros((tokens + 1,) * length + (length, tokens + 1))
    for axis in range(length):
        # P(X_i = v, context without i), whatever the context says at i itself.
        joint = np.moveaxis(extended, axis, -1)[..., :tokens]
        log_conditional = np.log(joint / joint.sum(-1, keepdims=True))
        spread = np.expand_dims(log_conditional, axis)
        table[..., axis, :tokens] = np.broadcast_to(spread, (tokens + 1,) * length + (tokens,))
    return table.reshape((tokens + 1) ** length, length, tokens + 1)
