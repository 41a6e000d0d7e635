"""What the families share: a diffusion transformer behind the `Denoiser` contract."""

from __future__ import annotations

import torch
from torch import Tensor

from strop.checkpoints.config import DiTShape
from strop.denoisers.dit import DiT
from strop.denoisers.tokenizer import TextCodec
from strop.spec import CheckpointSpec

__all__ = ["NetworkDenoiser"]


class NetworkDenoiser:
    """Hidden states and logits of a network; what they mean is the family's business."""

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
        """The network's state; without time conditioning every sigma is read as zero."""
        if sigma is None or not self.time_conditioned:
            sigma = torch.zeros(ids.shape[0], device=ids.device)
        return self.network.state(ids, sigma, self.dtype)

    @torch.no_grad()
    def logits(self, hidden: Tensor, sequence: Tensor, position: Tensor) -> Tensor:
        """The rest of the network at the rows asked for, in float32."""
        return self.network.scores(hidden, sequence, position, self.dtype).float()

    def _sigma(self, sigma: Tensor | float | None, batch: int) -> Tensor | None:
        """One noise level for each sequence, from whatever the caller has."""
        if sigma is None:
            return None
        return torch.as_tensor(sigma, dtype=torch.float32).expand(batch).to(self.device)
