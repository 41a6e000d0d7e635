"""A diffusion transformer behind the `Denoiser` contract: what its families share, MDLM and DUO."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn

from strop.checkpoints.checkpoint import Checkpoint
from strop.checkpoints.config import BUFFER, DiTShape, expected_tensors
from strop.checkpoints.layout import Layout, flat_names
from strop.denoisers.base import all_log_probs, all_logits, checked_ids, in_one_line
from strop.denoisers.dit import DiT, Trunk
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError
from strop.spec.generator import CheckpointSpec


class NetworkDenoiser:
    """Hidden states and logits of a network; what they mean is the family's business."""

    __repr__ = in_one_line

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
        self.dtype = product_dtype(spec.network_dtype)
        self.network = network.to(device).eval().requires_grad_(False)
        cast_products(self.network, self.dtype)
        self.spec, self.source, self.codec, self.device = spec, source, codec, torch.device(device)
        self.vocab_size, self.mask_id, self.length = shape.vocab_size, shape.mask_id, shape.length
        self.time_conditioned = shape.time_conditioning

    @classmethod
    def of_checkpoint(
        cls, checkpoint: Checkpoint, shape: DiTShape, spec: CheckpointSpec, device: torch.device
    ) -> Self:
        """The denoiser of a checkpoint whose shape is known."""
        network = filled(DiT, shape, checkpoint.tensors, device)
        return cls(network, spec, device=device, **described(checkpoint, shape))

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

    @torch.no_grad()
    def log_probs(self, ids: Tensor, sigma: Tensor | None = None) -> Tensor:
        """SUBS log-probabilities [B, L, V] on the CPU, visible tokens carried over."""
        ids = checked_ids(ids, self)
        return all_log_probs(self, ids, self._sigma(sigma, len(ids))).cpu()  # waits

    def _levels(self, sigma: Tensor | float | None, batch: int) -> Tensor:
        """The noise levels, required because the prediction depends on them."""
        levels = self._sigma(sigma, batch)
        if levels is None:
            raise UserError(
                f"{type(self).__name__}'s prediction depends on the noise level, and none was "
                "given.",
                where=self.source,
                fix="pass sigma",
            )
        return levels

    def _sigma(self, sigma: Tensor | float | None, batch: int) -> Tensor | None:
        """One noise level for each sequence, from whatever the caller has."""
        if sigma is None:
            return None
        return torch.as_tensor(sigma, dtype=torch.float32).expand(batch).to(self.device)  # waits


def product_dtype(name: str) -> torch.dtype:
    """That of the matrix products in blocks and head; embedding and noise level are float32.

    The public codes of these families have bfloat16 there and return bfloat16 scores: `public` is
    the same network as `bfloat16`, and the dense sampler also goes on in bfloat16 as they do.
    """
    return torch.bfloat16 if name == "public" else getattr(torch, name)


def cast_products(network: Trunk, dtype: torch.dtype) -> None:
    """Keep the matrices of blocks and head in the dtype of their products.

    autocast rounds them to it anyway, and frozen ones anew in every call.
    """
    if dtype == torch.float32:
        return
    for part in (network.blocks, getattr(network, "output_layer", None)):
        for layer in () if part is None else part.modules():
            if isinstance(layer, nn.Linear):
                layer.to(dtype)


def described(checkpoint: Checkpoint, shape: DiTShape) -> dict[str, Any]:
    """A denoiser's source and tokenizer."""
    source = checkpoint.source
    if checkpoint.revision is not None:
        source = f"{source.partition('@')[0]}@{checkpoint.revision}"
    return {"source": source, "codec": TextCodec.for_checkpoint(checkpoint, shape.vocab_size)}


Network = TypeVar("Network", bound=nn.Module)


def filled(
    kind: Callable[[DiTShape], Network],
    shape: DiTShape,
    tensors: Mapping[str, Tensor],
    device: torch.device,
) -> Network:
    """A network of a shape with the tensors of a file; on `meta` only their sizes are looked at."""
    with torch.device("meta"):  # no memory and no time for weights that are replaced at once
        network = kind(shape)
    # A copy: the tensors may be views of the file, which could be written to later.
    target = device if device.type == "meta" else torch.device("cpu")
    copies = {
        key: tensor.to(target, torch.float32, copy=True)
        for key, tensor in tensors.items()
        if key != BUFFER
    }
    network.load_state_dict(copies, assign=True)
    return network


class MDLM(NetworkDenoiser):
    """A masked diffusion checkpoint, which predicts the clean token at every mask."""


def layout(shape: DiTShape) -> Layout:
    """The hub's: flat names, one backbone."""
    return Layout(flat_names(shape), expected_tensors(shape), prefix="backbone.")


class DUO(NetworkDenoiser):
    """A uniform-state checkpoint (DUO, DUO-DCD), which predicts the clean token behind a noisy one.

    There is no mask: noise replaces a token by a uniform one, so every position may be wrong and
    every prediction depends on the noise level. The distilled network (DCD) has the same form.
    """

    @torch.no_grad()
    def log_probs(self, ids: Tensor, sigma: Tensor | None = None) -> Tensor:
        """Log-probabilities [B, L, V] of the clean token; nothing is carried over."""
        ids = checked_ids(ids, self)
        return all_logits(self, ids, self._levels(sigma, len(ids))).log_softmax(-1).cpu()  # waits


def duo_layout(shape: DiTShape) -> Layout:
    """The hub's: flat names without a mask, one backbone."""
    flat = flat_names(shape, without=("mask_id", "time_conditioning"))
    config = {"model_type": "duo", **flat, "causal": False, "var_min": True}
    return Layout(config, expected_tensors(shape), prefix="backbone.")
