"""MDLM: a diffusion transformer that predicts the clean token at every masked position."""

from __future__ import annotations

import torch
from torch import Tensor

from strop.denoisers.base import all_log_probs, checked_ids
from strop.denoisers.config import DiTShape
from strop.denoisers.dit import DiT
from strop.denoisers.tokenizer import TextCodec
from strop.spec import CheckpointSpec

__all__ = ["MDLM"]


class MDLM:
    """A masked diffusion checkpoint as a `Denoiser`."""

    def __init__(
        self,
        network: DiT,
        spec: CheckpointSpec,
        *,
        source: str,
        codec: TextCodec | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        shape: DiTShape = network.shape
        self.network = network.to(device).eval().requires_grad_(False)
        self.spec = spec
        self.source = source
        self.codec = codec
        self.device = torch.device(device)
        self.dtype: torch.dtype = getattr(torch, spec.network_dtype)
        self.vocab_size = shape.vocab_size
        self.mask_id = shape.mask_id
        self.length = shape.length
        self.time_conditioned = shape.time_conditioning

    @torch.no_grad()
    def hidden(self, ids: Tensor, sigma: Tensor | None) -> Tensor:
        """Final features [B, L, D]; without time conditioning every sigma is read as zero."""
        if sigma is None or not self.time_conditioned:
            sigma = torch.zeros(ids.shape[0], device=ids.device)
        return self.network.features(ids, sigma, self.dtype)

    @torch.no_grad()
    def logits(self, hidden: Tensor, sequence: Tensor, position: Tensor) -> Tensor:
        """The head at the rows asked for, in float32."""
        return self.network.head(hidden[sequence, position], self.dtype).float()

    @torch.no_grad()
    def log_probs(self, ids: Tensor, sigma: Tensor | None = None) -> Tensor:
        """SUBS log-probabilities [B, L, V] on the CPU, visible tokens carried over."""
        ids = checked_ids(ids, self)
        sigma = None if sigma is None else torch.as_tensor(sigma).expand(len(ids)).to(self.device)
        return all_log_probs(self, ids, sigma).cpu()
