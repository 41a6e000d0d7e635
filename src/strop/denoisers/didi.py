"""DiDi-Instruct: a distilled student, the discriminator that guides it, and a network besides.

The student predicts clean tokens at masks like MDLM, with two differences that the public sampler
makes: it is given the true noise level, and the mask keeps its place in the softmax. Training files
also hold the network that was trained (`base`), of which the student is the average; the public
code finishes with it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from strop.denoisers.base import all_log_probs, checked_ids
from strop.denoisers.discriminator import Discriminator
from strop.denoisers.dit import DiT
from strop.denoisers.mdlm import MDLM
from strop.denoisers.network import NetworkDenoiser
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError
from strop.spec import CheckpointSpec

__all__ = ["DiDi"]


class DiDi(NetworkDenoiser):
    """A DiDi-Instruct checkpoint as a `Denoiser`; hidden states and logits are the student's."""

    def __init__(
        self,
        network: DiT,
        spec: CheckpointSpec,
        *,
        source: str,
        discriminator: Discriminator | None = None,
        base: DiT | None = None,
        codec: TextCodec | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(network, spec, source=source, codec=codec, device=device)
        self.time_conditioned = True
        self.base = None if base is None else MDLM(base, spec, source=source, device=device)
        """The trained network behind the averaged student, where the file holds it."""
        self._discriminator = discriminator
        if discriminator is not None:
            discriminator.to(device).eval().requires_grad_(False)

    @property
    def discriminator(self) -> Discriminator:
        """The reward; its absence is the user's error, told when it is needed."""
        if self._discriminator is None:
            raise UserError(
                "The checkpoint has no discriminator, which reward-guided sampling needs.",
                where=self.source,
                expected="discriminator.safetensors beside model.safetensors, or a training file",
                fix="add the file, or sample without the reward: `sampler=didi-ancestral`",
            )
        return self._discriminator

    @torch.no_grad()
    def log_probs(self, ids: Tensor, sigma: Tensor | None = None) -> Tensor:
        """Log-probabilities [B, L, V] of clean tokens, visible ones carried over, on the CPU."""
        ids = checked_ids(ids, self)
        return all_log_probs(self, ids, self._sigma(sigma, len(ids))).cpu()
