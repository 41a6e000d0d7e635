"""Prompts of different lengths in one batch, where the network can tell padding from text.

An output in a batch of several lengths is compared with the same output of a prompt that is truly
alone: a set of one prompt, where no column is padding. Both are one computation up to rounding, and
the seeds are such that rounding decides nothing. A network that sees the padding is the control.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from test_stops import LAYOUTS, small
from test_trace import spec_of

import strop
from strop.checkpoints.layout import write_random
from strop.prompts import Canvas, Canvases
from strop.records import SAMPLERS
from strop.samplers import fast
from strop.samplers.machinery.start import by_shape

OPEN = (None,) * 6
PROMPTS = Canvases(
    (
        Canvas("long", (5, 6, 7, 8, 9, 10, *OPEN)),
        Canvas("less", (11, 12, 13, 14, *OPEN)),
        Canvas("gaps", (5, None, None, 6, None, 7, None, None, 8, None)),
        Canvas("short", (15, *OPEN)),
    )
)
OUTPUTS = [0, 1, 2, 5]
"""One of the longest prompt, and three that are padded to share its batch."""
NAMES = [
    name for name, one in SAMPLERS.items() if one.family == "mdlm" and one.fast and one.padding
]
CASES = [(name, None) for name in NAMES]
CASES += [
    (name, cache)
    for name in NAMES
    if "cache" in SAMPLERS[name].settings
    for cache in ("none", "prefix", "dual")
    if cache != SAMPLERS[name].settings["cache"].default
]


@pytest.fixture(scope="module", params=["llada", "dream"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp(request.param)
    write_random(place, LAYOUTS[request.param](small(40)), 0)
    made = strop.load_model(place, device="cpu")
    for one in made.network.parameters():  # fresh weights are so small that nothing heeds a token
        if one.ndim > 1:
            one.mul_(8)
    return made


def drawn(
    model: Any, name: str, kept: str | None, outputs: list[int], canvases: Canvases = PROMPTS
) -> dict[int, list[int]]:
    spec = spec_of(name, "fast", "float64")
    if kept is not None:
        spec = spec.model_copy(update={"cache": kept})
    job: dict[str, Any] = {"seed": 2, "outputs": outputs, "slots": len(outputs), "length": 0}
    return {one.index: one.ids.tolist() for one in fast(model, spec, **job, canvases=canvases)}


@pytest.fixture(scope="module")
def alone(model: Any) -> Callable[[str, str | None], dict[int, list[int]]]:
    """By sampler and cache: every output as the answer to the only prompt that there is."""

    @cache
    def found(name: str, kept: str | None) -> dict[int, list[int]]:
        rows = {}
        for i in OUTPUTS:
            rows |= drawn(model, name, kept, [i], Canvases((PROMPTS.prompt_of(i),)))
        return rows

    return found


@pytest.mark.parametrize(("name", "kept"), CASES)
def test_an_output_is_what_it_is_alone(
    model: Any, name: str, kept: str | None, alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    padded, remember = type(model).padded, type(model).remember
    batches: list[list[int]] = []

    def counting(self: Any, ids: Any, starts: Any) -> Any:
        batches.append(starts.tolist())
        return padded(self, ids, starts)

    def keeping(self: Any, ids: Any, starts: Any = None) -> Any:
        batches.append([0] if starts is None else starts.tolist())
        return remember(self, ids, starts)

    monkeypatch.setattr(type(model), "padded", counting)
    monkeypatch.setattr(type(model), "remember", keeping)
    apart = alone(name, kept)
    assert not any(any(starts) for starts in batches), "nothing is padded alone"
    batches.clear()
    assert drawn(model, name, kept, OUTPUTS) == apart
    assert any(2 in starts for starts in batches), "a shorter prompt was padded"
    if kept in (None, "none"):
        assert any(0 in starts and 2 in starts for starts in batches), "they share a batch"


@pytest.mark.parametrize(("name", "kept"), CASES)
def test_a_network_that_sees_the_padding_is_noticed(
    model: Any, name: str, kept: str | None, alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the same weights, which read what stands before a prompt as text."""
    apart = alone(name, kept)

    def blind(self: Any, ids: Any, starts: Any) -> Any:
        return self._unpadded(self._states(ids), torch.zeros_like(starts))

    remember = type(model).remember
    monkeypatch.setattr(type(model), "padded", blind)
    monkeypatch.setattr(type(model), "remember", lambda self, ids, _=None: remember(self, ids))
    together = drawn(model, name, kept, OUTPUTS)
    assert {i for i in OUTPUTS if together[i] != apart[i]}, "it goes unnoticed"
    assert together[0] == apart[0], "the longest is not padded"


def test_little_of_a_batch_is_padding() -> None:
    assert by_shape(PROMPTS, range(4)) == [(12, [0]), (10, [1, 2]), (7, [3])]
    assert by_shape(PROMPTS, range(5), padding=True) == [(12, [0, 1, 2, 4]), (7, [3])]
    # Eight tenths of the longest are enough to share its batch.
    wide = Canvases(tuple(Canvas(str(n), (*[5] * n, None)) for n in (9, 7, 6)))
    assert by_shape(wide, range(3), padding=True) == [(10, [0, 1]), (7, [2])]
