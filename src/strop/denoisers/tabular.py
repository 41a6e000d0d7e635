"""An exact denoiser: the Bayes conditionals of a target law small enough to tabulate."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from strop.denoisers.base import all_log_probs, checked_ids
from strop.errors import UserError
from strop.spec import CheckpointSpec

LARGEST_TABLE = 20_000_000


class TabularDenoiser:
    """log P(X_i = v | visible coordinates) for any full-support law P on V^L.

    Tokens are 0..V-1 and the mask is V. Every context (each coordinate one of V values or masked)
    has its conditionals tabulated, so that a hidden state is just the context's number.
    """

    time_conditioned = False
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
        self.spec = CheckpointSpec(
            family="tabular",
            sha256=hashlib.sha256(np.ascontiguousarray(law).tobytes()).hexdigest(),
            weights="exact",
            shape={"vocab_size": self.vocab_size, "length": self.length, "mask_id": self.mask_id},
            network_dtype="float64",
            normalisation_dtype="float64",
        )
        self._table = torch.from_numpy(_conditionals(law)).to(self.device)
        self._place = self.vocab_size ** torch.arange(self.length, device=self.device).flip(0)

    def hidden(self, ids: Tensor, sigma: Tensor | None) -> Tensor:  # noqa: ARG002
        """The context's number, repeated at every position: [B, L]."""
        seen = ids.shape[1]  # coordinates beyond a shorter sequence count as masked
        context = (ids * self._place[:seen]).sum(-1) + self.mask_id * self._place[seen:].sum()
        return context[:, None].expand(-1, ids.shape[1]).contiguous()

    def logits(self, hidden: Tensor, sequence: Tensor, position: Tensor) -> Tensor:
        """The conditionals' logarithms; the mask column is zero and SUBS rules it out."""
        return self._table[hidden[sequence, position], position]

    def log_probs(self, ids: Tensor, sigma: Tensor | None = None) -> Tensor:
        """Exact log-probabilities [B, L, V + 1], visible tokens carried over."""
        return all_log_probs(self, checked_ids(ids, self), sigma).cpu()


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
