"""DiDi-Instruct: a distilled student, the discriminator that guides it, and a network besides.

The student predicts clean tokens at masks like MDLM, with two differences that the public sampler
makes: it is given the true noise level, and the mask keeps its place in the softmax. Training files
also hold the network that was trained (`base`), of which the student is the average; the public
code finishes with it.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from strop.checkpoints.checkpoint import Checkpoint
from strop.checkpoints.config import DiTShape, check_tensors, expected_tensors
from strop.checkpoints.hub import DISCRIMINATOR as DISCRIMINATOR_FILE
from strop.checkpoints.layout import Layout, flat_names
from strop.checkpoints.modules import BASE, DISCRIMINATOR
from strop.denoisers.base import all_log_probs, checked_ids
from strop.denoisers.discriminator import Discriminator, discriminator_tensors
from strop.denoisers.dit import DiT
from strop.denoisers.mdlm import MDLM
from strop.denoisers.network import NetworkDenoiser, described, filled
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError
from strop.spec import CheckpointSpec


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

    @classmethod
    def of_checkpoint(
        cls, checkpoint: Checkpoint, shape: DiTShape, spec: CheckpointSpec, device: torch.device
    ) -> Self:
        """The student with the networks beside it, checked like it."""
        network = filled(DiT, shape, checkpoint.tensors)
        others = _others(checkpoint, shape)
        return cls(network, spec, device=device, **others, **described(checkpoint, shape))

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


def _others(checkpoint: Checkpoint, shape: DiTShape) -> dict[str, Any]:
    """The networks beside the student."""
    path, networks = checkpoint.path, {}
    if BASE in checkpoint.modules:
        tensors = checkpoint.modules[BASE]
        check_tensors(tensors, expected_tensors(shape), path, shape)
        networks["base"] = filled(DiT, shape, tensors)
    if DISCRIMINATOR in checkpoint.modules:
        tensors = checkpoint.modules[DISCRIMINATOR]
        seen = tensors.get("vocab_embed.embedding")
        if seen is not None and len(seen) != shape.vocab_size:
            raise UserError(
                "The discriminator's vocabulary is not the student's.",
                where=path,
                got=f"{len(seen)} against {shape.vocab_size} classes",
                fix="put the discriminator that was trained with the student beside it",
            )
        check_tensors(tensors, discriminator_tensors(shape), path, shape)
        networks["discriminator"] = filled(Discriminator, shape, tensors)
    return networks


def layout(shape: DiTShape) -> Layout:
    """The student as a flat file, its discriminator in another."""
    beside = {DISCRIMINATOR_FILE: discriminator_tensors(shape)}
    return Layout(flat_names(shape), expected_tensors(shape), beside=beside)
