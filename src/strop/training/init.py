"""An initialisation for short runs: skip the steps in which only word frequencies are learned.

The public recipe starts with closed gates and a zero head; a small network then spends its first
minutes at the unigram plateau. Here the gates are open, the output bias is the log frequency of
each token, and in the first blocks some heads attend to the nearest neighbours: the shift of the
norm is a constant vector, query and key answer to it, and the rotary positions turn that constant
into a preference for one offset. Same keys, same functions, another starting point.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.dit import ROTARY_BASE, Block, DiT

OFFSETS = ((-1, 1, -2, 2, -3, 3, -4, 4), (-1, 1), (-1, 1))
"""Neighbours that the heads of the first blocks look at; further blocks repeat the last."""
MARK = 4.0
"""Norm of the constant that marks every position."""
SHARPNESS = 20.0
"""Score of the preferred neighbour before the division by the root of the head's size."""
FAST_PAIRS = 16
"""Rotary pairs that tell neighbours apart; slower ones hardly turn in a few positions."""
GAIN = 0.6


@torch.no_grad()
def local_init(network: DiT, frequencies: np.ndarray) -> None:
    """Overwrite a freshly made network's weights, drawing from torch's current generator."""
    shape = network.shape
    counts = np.asarray(frequencies, dtype=np.float64)[: shape.mask_id] + 0.5
    bias = network.output_layer.linear.bias
    bias[: shape.mask_id] = torch.from_numpy(np.log(counts / counts.sum())).to(bias.dtype)
    width = shape.hidden_dim
    network.vocab_embed.embedding.normal_(0, 1 / math.sqrt(width))
    for number, block in enumerate(network.blocks):
        assert isinstance(block, Block)
        _scale(block, width, shape.n_blocks)
        offsets = OFFSETS[min(number, len(OFFSETS) - 1)]
        _look_at_neighbours(block, width, shape.n_heads, offsets)


def _scale(block: Block, width: int, blocks: int) -> None:
    """Normal weights whose branches add up to a moderate stream, with open gates."""
    block.attn_qkv.weight.normal_(0, GAIN / math.sqrt(width))
    block.attn_out.weight.normal_(0, GAIN / math.sqrt(width * 2 * blocks))
    first, last = block.mlp[0], block.mlp[2]
    assert isinstance(first, torch.nn.Linear)
    assert isinstance(last, torch.nn.Linear)
    first.weight.normal_(0, GAIN / math.sqrt(width))
    last.weight.normal_(0, GAIN / math.sqrt(4 * width * 2 * blocks))
    first.bias.zero_()
    last.bias.zero_()
    modulation = block.adaLN_modulation.bias
    modulation[2 * width : 3 * width] = 1.0
    modulation[5 * width :] = 1.0


def _look_at_neighbours(block: Block, width: int, heads: int, offsets: tuple[int, ...]) -> None:
    mark = torch.randn(width)
    unit = mark / mark.norm()
    block.adaLN_modulation.bias[:width] = unit * MARK
    size = width // heads
    turn = ROTARY_BASE ** (-torch.arange(0, size, 2).float() / size)
    pairs = min(FAST_PAIRS, size // 2)
    strength = math.sqrt(SHARPNESS) / MARK
    for head, offset in zip(range(heads), offsets, strict=False):
        key, query = torch.zeros(size), torch.zeros(size)
        key[:pairs] = strength
        # The score of positions i, j is a sum of cos((i - j) turn + phase): a query turned by the
        # offset has its peak at j = i + offset.
        query[:pairs] = strength * torch.cos(offset * turn[:pairs])
        query[size // 2 : size // 2 + pairs] = strength * torch.sin(offset * turn[:pairs])
        for part, answer in ((0, query), (1, key)):
            first = part * width + head * size
            _answer(block.attn_qkv.weight[first : first + size], unit, answer)


def _answer(weight: Tensor, unit: Tensor, answer: Tensor) -> None:
    """Let a matrix map `unit` to `answer` and leave everything orthogonal to it alone."""
    weight -= torch.outer(weight @ unit, unit)
    weight += torch.outer(answer, unit)
