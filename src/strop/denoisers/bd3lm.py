"""BD3-LM: MDLM's diffusion transformer, in which a position sees its own block and those before.

Sampling reads a canvas of finished blocks and one open block. Training and likelihood read twice as
many tokens, noisy and clean side by side, so that one pass scores every noisy block behind its
clean past; both views agree. A cache of finished blocks is exact, as long as the text fits into the
network's window: it keeps keys before their rotation, so that they move with the window, but they
have seen what the window has since lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from strop.checkpoints.checkpoint import Checkpoint
from strop.checkpoints.config import DiTShape, expected_tensors
from strop.checkpoints.layout import Layout, flat_names
from strop.denoisers.bidirectional_load import END
from strop.denoisers.dit import Rotary
from strop.denoisers.network import MDLM
from strop.errors import UserError
from strop.spec.generator import CheckpointSpec

RELEASED_BLOCKS = 4, 8, 16
"""Block sizes of the public checkpoints."""


@dataclass
class KeptBlocks:
    """Keys and values of finished blocks, layer by layer, before rotation."""

    layers: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    @property
    def columns(self) -> int:
        """The number of positions that are kept."""
        return self.layers[0][0].shape[-2] if self.layers else 0

    def of(self, rows: Tensor) -> KeptBlocks:
        """The kept blocks of some sequences."""
        return KeptBlocks([(key[rows], value[rows]) for key, value in self.layers])

    def last(self, columns: int) -> KeptBlocks:
        """No more than the last so many positions, which then begin the window."""
        start = max(0, self.columns - columns)
        return KeptBlocks([(k[..., start:, :], v[..., start:, :]) for k, v in self.layers])


class BlockSight:
    """Attention of new positions to what is kept and to themselves, under a mask [n, K].

    Positions count from the first one that is kept, or are those of `position` [K]. One call per
    layer; `seen` has the keys and values of each.
    """

    def __init__(
        self, mask: Tensor, kept: KeptBlocks | None = None, position: Tensor | None = None
    ) -> None:
        self.mask, self.kept = mask, kept or KeptBlocks()
        self.position = torch.arange(mask.shape[1], device=mask.device)[None]
        if position is not None:
            self.position = position[None]
        self.seen: list[tuple[Tensor, Tensor]] = []

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, rotary: Rotary) -> Tensor:
        """Values [B, H, n, head_dim] by queries and keys that are not rotated yet."""
        if self.kept.layers:
            past_key, past_value = self.kept.layers[len(self.seen)]
            key, value = torch.cat([past_key, key], -2), torch.cat([past_value, value], -2)
        self.seen.append((key, value))
        n_queries, n_keys = query.shape[-2], key.shape[-2]
        query = rotary(query, self.position[:, -n_queries:], n_keys)
        key = rotary(key, self.position, n_keys)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=self.mask)


def training_sight(length: int, block: int, device: torch.device) -> BlockSight:
    """Of [noisy, clean], 2 `length` tokens: noisy block j sees itself and the clean blocks before
    it, clean block j sees the clean blocks up to itself."""
    position = torch.arange(length, device=device).repeat(2)
    number, noisy = position // block, torch.arange(2 * length, device=device) < length
    query_block, key_block = number[:, None], number[None]
    itself = noisy[:, None] & noisy & (query_block == key_block)
    past = noisy[:, None] & ~noisy & (query_block > key_block)
    clean = ~noisy[:, None] & ~noisy & (query_block >= key_block)
    return BlockSight(itself | past | clean, position=position)


class BD3LM(MDLM):
    """A block diffusion checkpoint as a `BlockDenoiser`; states are those before the head."""

    shifted = False

    @property
    def block_length(self) -> int:
        """Positions per block, as it was trained."""
        return int(self.spec.shape["block_size"])

    @classmethod
    def of_checkpoint(
        cls, checkpoint: Checkpoint, shape: DiTShape, spec: CheckpointSpec, device: torch.device
    ) -> Self:
        """Load with the block size of the configuration, which no tensor shows."""
        block = checkpoint.config.get("block_size")
        if block is None:
            raise UserError(
                "The block size that the network was trained with is unknown.",
                where=checkpoint.path,
                got="no block_size in the configuration",
                expected="one of " + ", ".join(map(str, RELEASED_BLOCKS)) + ", or your own",
                fix='write {"block_size": ...} into a config.json beside the weights',
            )
        complete_spec = spec.model_copy(update={"shape": {**spec.shape, "block_size": block}})
        return super().of_checkpoint(checkpoint, shape, complete_spec, device)

    @property
    def start_id(self) -> int:
        """What a text begins with: the end of another, the last token before the mask."""
        end_id = None if self.codec is None else self.codec.id_of(END)
        return self.mask_id - 1 if end_id is None else end_id

    def hidden(self, ids: Tensor, sigma: Tensor | None) -> Tensor:  # noqa: ARG002
        """States [B, L, D] of a canvas in blocks of the trained size; sigma is always zero."""
        return self.advance(ids, None, block=self.block_length, keep=0)[0]

    @torch.no_grad()
    def advance(
        self,
        ids: Tensor,
        memory: KeptBlocks | None,
        *,
        block: int,
        keep: int,
        seen: Tensor | None = None,
    ) -> tuple[Tensor, KeptBlocks]:
        """States of the columns `ids` [B, n] behind the memory, in blocks of any size.

        The memory that comes back holds the first `keep` columns. `seen` [B, columns] rules keys
        out.
        """
        first = 0 if memory is None else memory.columns
        number = torch.arange(first + ids.shape[1], device=ids.device) // block
        mask = number[first:, None] >= number
        if seen is not None:
            mask = mask & seen[:, None, None, : len(number)]
        sight = BlockSight(mask, memory)
        still = torch.zeros(len(ids), device=ids.device)
        states = self.network.features(ids, still, self.dtype, sight)
        layers = [(k[..., :keep, :], v[..., :keep, :]) for k, v in sight.seen] if keep else []
        return states, KeptBlocks(layers)

    @torch.no_grad()
    def logits(self, hidden: Tensor, sequence: Tensor, position: Tensor) -> Tensor:
        """The head at the rows asked for, in float32."""
        return self.network.head(hidden[sequence, position], self.dtype).float()


def layout(shape: DiTShape, block: int = RELEASED_BLOCKS[0]) -> Layout:
    """The hub's: MDLM's names, and the block size."""
    config = {
        "architectures": ["BD3LM"],
        "model_type": "bd3lm",
        "block_size": block,
        "cross_attn": True,
        "attn_backend": "sdpa",
        "var_min": True,
        **flat_names(shape, without=("mask_id",)),
    }
    return Layout(config, expected_tensors(shape), prefix="backbone.")
