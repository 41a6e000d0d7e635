"""What a checkpoint's tensors and configuration say about its shape."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from small_checkpoints import FLAT, SMALL, made, random_tensors, with_buffer

from strop.checkpoints.checkpoint import Checkpoint
from strop.checkpoints.config import (
    SHAPES,
    DiTShape,
    expected_tensors,
    infer_shape,
    parameter_count,
)
from strop.errors import UserError


def without(*names: str) -> dict[str, Any]:
    return {k: v for k, v in FLAT.items() if k not in names}


def fails(checkpoint: Checkpoint) -> str:
    with pytest.raises(UserError) as caught:
        infer_shape(checkpoint)
    return str(caught.value)


@pytest.mark.parametrize(
    ("shape", "total"),
    [
        (SHAPES["tiny"], 33_789_010),
        (SHAPES["small"], 169_627_218),
        (SHAPES["medium"], 424_477_010),
        (replace(SHAPES["tiny"], hidden_dim=512), 80_061_266),
        (replace(SHAPES["small"], hidden_dim=1280, n_blocks=36, n_heads=20), 872_868_946),
    ],
)
def test_parameter_counts_of_the_public_shapes(shape: DiTShape, total: int) -> None:
    assert parameter_count(shape) == total


def test_agreement_is_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert infer_shape(made()) == SMALL
        assert infer_shape(made(with_buffer(random_tensors()))) == SMALL
        conditioned = made(config={**FLAT, "time_conditioning": True, "mask_id": 0})
        assert infer_shape(conditioned) == replace(SMALL, time_conditioning=True, mask_id=0)


def test_tensors_win_and_every_disagreement_is_named() -> None:
    wrong = {"vocab_size": 14, "hidden_dim": 32, "cond_dim": 129, "n_blocks": 3, "n_heads": 4}
    checkpoint = made(with_buffer(random_tensors()), {**FLAT, **wrong})
    with pytest.warns(UserWarning, match="contradict") as caught:
        assert infer_shape(checkpoint) == SMALL
    assert len(caught) == 1
    for name, value in wrong.items():
        assert f"{name} is {FLAT[name]}, not {value}" in str(caught[0].message)


def test_length_is_assumed_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="1024"):
        assert infer_shape(made(config=without("model_length"))).length == 1024


def test_heads() -> None:
    assert "number of attention heads" in fails(made(config=without("n_heads")))
    assert "does not fit" in fails(made(config={**FLAT, "n_heads": 3}))
    assert "does not fit" in fails(made(config={**FLAT, "n_heads": 16}))  # odd head size
    assert infer_shape(made(with_buffer(random_tensors()), without("n_heads"))).n_heads == 2
    bad = random_tensors() | {"rotary_emb.inv_freq": torch.ones(3)}
    assert "rotary table" in fails(made(bad))


@pytest.mark.parametrize("width", [256, 512, 768, 1024, 1280])
def test_heads_of_the_public_widths(width: int) -> None:
    heads = {256: 8, 512: 8, 768: 12, 1024: 16, 1280: 20}[width]
    shape = replace(SMALL, hidden_dim=width, n_heads=heads, n_blocks=1)
    tensors = {k: torch.zeros(s) for k, s in expected_tensors(shape).items()}
    assert infer_shape(made(tensors, {"model_length": 8})) == shape


@pytest.mark.parametrize("mask", [-1, 13, 50257])
def test_a_mask_outside_the_vocabulary(mask: int) -> None:
    message = fails(made(config={**FLAT, "mask_id": mask}))
    assert "has no mask" in message
    assert str(mask) in message


def test_missing_unexpected_and_misshapen_tensors_are_named() -> None:
    tensors = random_tensors()
    del tensors["blocks.0.norm1.weight"]
    tensors["blocks.1.extra"] = torch.zeros(1)
    tensors["output_layer.linear.bias"] = torch.zeros(5)
    tensors["blocks.1.norm2.weight"] = torch.zeros(16, dtype=torch.int64)
    message = fails(made(tensors))
    assert "missing: blocks.0.norm1.weight" in message
    assert "unexpected: blocks.1.extra" in message
    assert "wrong shape: output_layer.linear.bias (5,) instead of (13,)" in message
    assert "not floating point: blocks.1.norm2.weight" in message


def test_a_gap_in_the_blocks_is_a_missing_block() -> None:
    tensors = {k.replace("blocks.1.", "blocks.2."): v for k, v in random_tensors().items()}
    with pytest.warns(UserWarning, match="n_blocks"):
        message = fails(made(tensors))
    assert "blocks.1.norm1.weight" in message
    assert "and 6 more" in message


@pytest.mark.parametrize("tensors", [{}, {"transformer.wte.weight": torch.zeros(3, 2)}])
def test_another_family(tensors: dict[str, torch.Tensor]) -> None:
    message = fails(made(tensors))
    assert "not a diffusion transformer" in message
    assert "vocab_embed.embedding" in message


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite(value: float) -> None:
    tensors = random_tensors()
    tensors["blocks.1.mlp.0.bias"][3] = value
    message = fails(made(tensors))
    assert "not finite" in message
    assert "blocks.1.mlp.0.bias" in message


def test_names_from_a_file_reach_the_terminal_as_text() -> None:
    message = fails(made({"\x1b[2Jhidden": torch.zeros(1), "long" * 999: torch.zeros(1)}))
    assert "\x1b" not in message
    assert len(message) < 800
