"""Prompts of different lengths in one batch, where the network can tell padding from text."""

from __future__ import annotations

from typing import Any

import pytest
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
NAMES = [name for name, one in SAMPLERS.items() if one.family == "mdlm" and one.fast]


@pytest.fixture(scope="module", params=["llada", "dream"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp(request.param)
    write_random(place, LAYOUTS[request.param](small(40)), 0)
    return strop.load_model(place, device="cpu")


def drawn(model: Any, name: str, outputs: list[int], slots: int) -> dict[int, list[int]]:
    spec = spec_of(name, "fast", "float64")
    job: dict[str, Any] = {"seed": 2, "outputs": outputs, "slots": slots, "length": 0}
    return {one.index: one.ids.tolist() for one in fast(model, spec, **job, canvases=PROMPTS)}


@pytest.mark.parametrize("name", NAMES)
def test_an_output_is_what_it_is_alone(
    model: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    padded = type(model).padded
    batches: list[list[int]] = []

    def counting(self: Any, ids: Any, starts: Any) -> Any:
        batches.append(starts.tolist())
        return padded(self, ids, starts)

    alone = {i: drawn(model, name, [i], 1)[i] for i in range(8)}
    monkeypatch.setattr(type(model), "padded", counting)
    assert drawn(model, name, list(range(8)), 8) == alone
    assert any(0 in starts and 2 in starts for starts in batches), "they share a batch"


def test_little_of_a_batch_is_padding() -> None:
    assert by_shape(PROMPTS, range(4)) == [(12, [0]), (10, [1, 2]), (7, [3])]
    assert by_shape(PROMPTS, range(5), padding=True) == [(12, [0, 1, 2, 4]), (7, [3])]
