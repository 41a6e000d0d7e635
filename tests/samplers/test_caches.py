"""The bench of caches: every output follows the prompt of its number, whatever shares its batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from test_stops import LAYOUTS, small

import strop
from strop.checkpoints.layout import write_random
from strop.samplers.caches import CacheBench
from strop.samplers.decoders import fill, recipe

PROMPTS = ((5, 9, 30, 31), (7, 1), (8, 8, 20, 4), (3,))
LENGTH = 8
CACHES = ("none", "prefix", "dual")
SPEC = strop.SamplerSpec(
    name="fast-dllm", steps=LENGTH, block_length=4, cache="dual", temperature=1.0
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("bench")
    # Two layers: in a single one no key depends on other tokens, and no cache is ever stale.
    write_random(place, LAYOUTS["llada"](replace(small(40), n_blocks=2)), 0)
    made = strop.load_model(place, device="cpu")
    for one in made.network.parameters():  # fresh weights are so small that nothing heeds a token
        if one.ndim > 1:
            one.mul_(4)
    return made


def bench(model: Any, outputs: Any, batch_size: int = 16, prompts: Any = PROMPTS) -> CacheBench:
    return CacheBench(model, SPEC, LENGTH, outputs, seed=1, prompts=prompts, batch_size=batch_size)


def filled(model: Any, output: int, cache: str) -> Any:
    """One output by the decoder itself, after the prompt of its number."""
    prompt = PROMPTS[output % len(PROMPTS)]
    ids = torch.tensor([[*prompt, *[model.mask_id] * LENGTH]])
    mine = recipe(SPEC.name, {**SPEC.settings, "cache": cache})
    spec = SPEC.model_copy(update={"steps": LENGTH})
    return fill(model, mine, ids, spec, seed=1, outputs=[output])


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize(
    ("outputs", "batch_size"),
    [([5, 2, 8, 3, 1], 16), ([9, 4, 12], 1), (range(3, 6), 2)],
)
def test_an_output_is_what_the_decoder_writes_after_its_prompt(
    model: Any, cache: str, outputs: Any, batch_size: int
) -> None:
    found = bench(model, outputs, batch_size).run(cache)
    assert found.ids.shape == (len(outputs), LENGTH)
    for place, output in enumerate(outputs):
        alone = filled(model, output, cache)
        assert found.ids[place].tolist() == alone.ids[0, -LENGTH:].tolist()
        assert found.calls[place] == alone.calls[0]
        assert found.positions[place] == alone.positions[0]


def test_prompts_matter_here(model: Any) -> None:
    """The control: with the prompt of another number the outputs are others."""
    outputs = [0, 1, 2, 3]
    there = bench(model, outputs).run("none").ids
    turned = bench(model, outputs, prompts=(*PROMPTS[1:], PROMPTS[0])).run("none").ids
    assert (there != turned).any(1).all()


@pytest.mark.parametrize(("outputs", "batch_size"), [([5, 2, 8, 3], 16), ([9, 4], 1)])
def test_laws_belong_to_their_outputs(model: Any, outputs: list[int], batch_size: int) -> None:
    """Up to rounding, whatever shares the batch: sums of float32 laws in another order."""
    mine = bench(model, outputs, batch_size).laws(["prefix", "dual"])
    assert set(mine) == {"prefix", "dual"}
    for place, output in enumerate(outputs):
        alone = bench(model, [output]).laws(["prefix", "dual"])
        for cache, laws in mine.items():
            assert laws.kl[place].sum() > 1e-4
            assert laws.kl[place] == pytest.approx(alone[cache].kl[0], rel=1e-2, abs=1e-5)
            assert laws.open[place].tolist() == alone[cache].open[0].tolist()


def test_batches_are_of_one_length_and_hold_every_output_once(model: Any) -> None:
    outputs = [4, 1, 9, 2, 7, 0, 6]
    for size in (1, 2, 16):
        batches = list(bench(model, outputs, size).batches())
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(outputs)))
        for batch in batches:
            assert len(batch) <= size
            assert len({len(PROMPTS[outputs[place] % len(PROMPTS)]) for place in batch}) == 1


def test_another_seed_is_another_draw(model: Any) -> None:
    mine = bench(model, [0, 1])
    assert (mine.run("none", seed=1).ids == mine.run("none").ids).all()
    assert (mine.run("none", seed=2).ids != mine.run("none").ids).any(1).all()
    assert (mine.run("none", seed=0).ids != mine.run("none").ids).any(1).all()
