"""The tokens that end a text and a turn: where they come from, and what `end` does with them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import strop
from strop.checkpoints.config import SHAPES, DiTShape
from strop.checkpoints.layout import write_random
from strop.denoisers import dream, llada
from strop.errors import UserError

LAYOUTS = {"llada": llada.layout, "dream": dream.layout}
TURN = {"llada": "<|eot_id|>", "dream": "<|im_end|>"}


def small(vocab_size: int) -> DiTShape:
    sizes = {**vars(SHAPES["tiny"]), "hidden_dim": 32, "n_blocks": 1, "n_heads": 4, "length": 32}
    return DiTShape(**{**sizes, "vocab_size": vocab_size, "mask_id": vocab_size - 1})


@pytest.fixture(scope="module", params=LAYOUTS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model in which the second token that it thinks of ends a text."""
    path = tmp_path_factory.mktemp("stops") / request.param
    write_random(path, LAYOUTS[request.param](small(4110)), 0)
    ids, call = drawn(strop.load_model(path, device="cpu"), "fast", "free")
    tokens = ids[0, call[0].argsort()]
    config = json.loads((path / "config.json").read_text())
    config["eos_token_id"] = int(tokens[tokens != tokens[0]][0])
    (path / "config.json").write_text(json.dumps(config))
    return path


def drawn(
    model: object, implementation: str, end: str, temperature: float = 0.0
) -> tuple[NDArray, NDArray]:
    """Greedy outputs [n, L], and the call in which each token came."""
    spec = strop.SamplerSpec(
        name="llada",
        steps=16,
        block_length=16,
        temperature=temperature,
        end=end,
        implementation=implementation,
    )
    call = np.full((1, 16), -1)

    def told(output: int, round_: int, positions: NDArray, tokens: NDArray) -> None:
        del tokens
        call[output, positions] = round_

    pool = strop.draw.sample(model, spec, n=1, seed=0, length=16, on_step=told)
    return pool.ids, call


def test_they_are_read_from_configuration_and_tokenizer(path: Path) -> None:
    model = strop.load_model(path, device="cpu")
    eos, turn = model.stop_ids
    assert eos == model.eos_id
    assert model.codec.decode([turn]) == TURN[path.name]


@pytest.mark.parametrize("implementation", ["fast", "dense"])
def test_never_and_last_do_what_they_say(path: Path, implementation: str) -> None:
    model = strop.load_model(path, device="cpu")
    eos = model.eos_id
    free, when = drawn(model, implementation, "free")
    first = when[free == eos].min()
    assert 1 < first < 16
    never, _ = drawn(model, implementation, "never")
    assert not (never == eos).any()
    last, later = drawn(model, implementation, "last")
    assert not (last[later <= first] == eos).any()  # others are committed in its place


def test_above_temperature_zero_the_public_switch_holds_back_one_end_and_fast_both(
    path: Path,
) -> None:
    """docs/samplers.md names this as the one exception to `fast` having the law of `dense`."""
    model = strop.load_model(path, device="cpu")
    free, when = drawn(model, "dense", "free", 1e-9)  # as good as greedy
    first = when[free == model.eos_id].min()
    early = {}
    for implementation in ("fast", "dense"):
        ids, call = drawn(model, implementation, "last", 1e-9)
        early[implementation] = bool((ids[call <= first] == model.eos_id).any())
    assert early == {"fast": False, "dense": True}


@pytest.mark.parametrize("implementation", ["fast", "dense"])
def test_where_nothing_ends_a_text_it_is_said(tmp_path: Path, implementation: str) -> None:
    write_random(tmp_path / "ids", llada.layout(small(40)), 0)
    config = json.loads((tmp_path / "ids" / "config.json").read_text())
    config["eos_token_id"] = None
    (tmp_path / "ids" / "config.json").write_text(json.dumps(config))
    model = strop.load_model(tmp_path / "ids", device="cpu")
    assert model.stop_ids == ()
    with pytest.raises(UserError, match="tokens that end a text"):
        drawn(model, implementation, "last")
    ids, _ = drawn(model, implementation, "free")
    assert ids.shape == (1, 16)
