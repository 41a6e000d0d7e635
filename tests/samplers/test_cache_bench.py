"""The bench of caches without a network: what is asked of the decoder, and how laws are compared.

`test_caches.py` asks networks.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import strop
from strop.samplers import caches
from strop.samplers.caches import CacheBench, Laws, Shadowed, _compared
from strop.samplers.machinery.committing import NetworkReader, Turn, View

MASK, LENGTH = 3, 4
DENOISER: Any = SimpleNamespace(mask_id=MASK, spec=SimpleNamespace(family="llada"))
SPEC = strop.SamplerSpec(
    name="fast-dllm", steps=4, block_length=2, cache="dual", temperature=0.5, top_p=0.9
)
PROMPTS = ((7, 8), (9,), (5, 6))
OUTPUTS = (4, 3, 8, 1, 2)
"""They follow the prompts 1, 0, 2, 1, 2: of 1, 2, 2, 1, 2 tokens."""


def bench(batch_size: int = 16, **given: Any) -> CacheBench:
    common = {"seed": 6, "prompts": PROMPTS, "batch_size": batch_size}
    return CacheBench(DENOISER, SPEC, LENGTH, OUTPUTS, **common | given)


def test_two_laws_by_hand() -> None:
    """3/4, 1/4, 0 against 1/2, 1/2, 0 and against themselves; the mask counts in neither."""
    logits = torch.tensor([[3.0, 1.0], [1.0, 3.0], [1.0, 1.0]]).log().float()
    logits = torch.cat([logits, torch.full((3, 1), -50.0), torch.full((3, 1), 9.0)], 1)
    other = torch.tensor([[1.0, 1.0], [1.0, 3.0], [1.0, 3.0]]).log()
    other = torch.cat([other, torch.full((3, 1), -50.0), torch.full((3, 1), -4.0)], 1)
    kl, moved = _compared(logits, other, MASK)
    first = 0.75 * np.log(0.75 / 0.5) + 0.25 * np.log(0.25 / 0.5)
    last = 0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)
    assert kl.tolist() == pytest.approx([first, 0.0, last], abs=1e-7)
    assert (kl.dtype, bool((kl >= 0).all())) == (torch.float64, True)
    assert moved.tolist() == [False, False, True]


def test_laws_are_added_up_by_sequence_and_call() -> None:
    laws = Laws.empty(2, 3)
    assert laws.kl.shape == laws.moved.shape == laws.open.shape == (2, 3)
    row, call = np.array([1, 1, 0]), np.array([2, 2, 0])
    for _ in range(2):
        laws.add(row, call, torch.tensor([0.5, 0.25, 1.0]), torch.tensor([True, False, True]))
    assert laws.kl.tolist() == [[2, 0, 0], [0, 0, 1.5]]
    assert laws.moved.tolist() == [[2, 0, 0], [0, 0, 2]]
    assert laws.open.tolist() == [[2, 0, 0], [0, 0, 4]]


@pytest.mark.parametrize(
    ("size", "batches"),
    [(16, [[0, 3], [1, 2, 4]]), (2, [[0, 3], [1, 2], [4]]), (1, [[0], [3], [1], [2], [4]])],
)
def test_batches_are_of_prompts_of_one_length(size: int, batches: list[list[int]]) -> None:
    assert [one.tolist() for one in bench(size).batches()] == batches


def test_the_recipe_is_the_cached_one_that_reads_everything() -> None:
    from strop.samplers.decoders import fitting, recipe

    mine = recipe(SPEC.name, SPEC.settings)
    assert mine.cache == "dual"
    found = bench().recipe
    assert (found.cache, found.decoder) == ("none", fitting(mine, DENOISER))
    dream: Any = SimpleNamespace(mask_id=MASK, spec=SimpleNamespace(family="dream"))
    assert CacheBench(dream, SPEC, LENGTH, OUTPUTS).recipe.decoder.opening


@pytest.fixture
def fills(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the decoder is asked; every fill takes two seconds."""
    calls: list[Any] = []
    now = [10.0]

    def fill(denoiser: Any, mine: Any, ids: Any, spec: Any, **how: Any) -> Any:
        calls.append((denoiser, mine, ids.tolist(), {**how, "spec": spec}))
        now[0] += 2
        numbers = how["outputs"]
        laws = getattr(how["reading"], "keywords", {}).get("laws", {})
        for k, one in enumerate(laws.values()):
            one.kl[:, 1] += numbers + 100 * k
            one.open[:] += 1
        tokens = np.concatenate([np.asarray(ids)[:, :-LENGTH], numbers[:, None] + np.arange(4)], 1)
        return SimpleNamespace(tokens=tokens, calls=numbers + 100, positions=numbers + 200)

    monkeypatch.setattr(caches, "fill", fill)
    monkeypatch.setattr(caches.time, "perf_counter", lambda: now[0])
    return calls


@pytest.mark.parametrize(("size", "seconds"), [(16, 4.0), (1, 10.0)])
def test_outputs_come_back_in_their_order(fills: list[Any], size: int, seconds: float) -> None:
    found = bench(size).run("prefix")
    assert found.ids.tolist() == [[n, n + 1, n + 2, n + 3] for n in OUTPUTS]
    assert found.calls.tolist() == [n + 100 for n in OUTPUTS]
    assert found.positions.tolist() == [n + 200 for n in OUTPUTS]
    assert found.seconds == seconds
    assert {one.dtype for one in (found.ids, found.calls, found.positions)} == {np.dtype(np.int64)}


def test_what_the_decoder_is_asked(fills: list[Any]) -> None:
    mine = bench()
    mine.run("prefix")
    mine.run("dual", seed=0)
    masks = [MASK] * LENGTH
    denoiser, recipe, ids, how = fills[0]
    assert denoiser is DENOISER
    assert ids == [[9, *masks], [9, *masks]]
    assert fills[1][2] == [[7, 8, *masks], [5, 6, *masks], [5, 6, *masks]]
    assert how.pop("outputs").tolist() == [4, 1]
    assert how == {"seed": 6, "spec": SPEC, "reading": NetworkReader}
    assert recipe.cache == "prefix"
    assert (fills[2][1].cache, fills[2][3]["seed"]) == ("dual", 0)


def test_laws_stand_at_their_outputs(fills: list[Any]) -> None:
    found = bench(2).laws(["prefix", "dual"])
    assert list(found) == ["prefix", "dual"]
    for k, laws in enumerate(found.values()):
        assert laws.kl.tolist() == [[0, n + 100 * k, 0, 0] for n in OUTPUTS]
        assert laws.open.tolist() == [[1] * LENGTH] * 5
    assert {call[1].cache for call in fills} == {"none"}
    assert {call[3]["seed"] for call in fills} == {6}
    assert all(isinstance(call[3]["reading"], partial) for call in fills)


# ---------------------------------------------------------------- the shadows


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What each reader is asked; through a cache the best token is another one."""
    calls: list[Any] = []

    def begin(self: Any, denoiser: Any, given: Any, **how: Any) -> None:
        self.cache = how.get("cache", "none")
        calls.append(("made", denoiser, given, how))

    def read(self: Any, canvas: Any, rows: Any, inside: Any, candidates: Any, turn: Turn) -> View:
        calls.append((self.cache, rows.tolist(), turn.round))
        start = 0 if self.cache == "none" or turn.round == 0 else 1

        def scores(sequence: Any, column: Any) -> torch.Tensor:
            table = torch.zeros(len(sequence), 4)
            table[:, 0 if self.cache == "none" else 1] = 1.0
            if self.cache != "none":  # the cell that is asked for is one of its own
                assert ((column + start) < 4).all()
                assert (sequence < len(rows)).all()
            return table

        open_ = candidates[rows, start:]
        return View(rows, start, open_, open_, open_, False, rows * 0, scores, 4)

    monkeypatch.setattr(NetworkReader, "__init__", begin)
    monkeypatch.setattr(NetworkReader, "read", read)
    return calls


def test_every_cache_is_asked_at_every_call_and_opened_with_the_block(reads: list[Any]) -> None:
    laws = {"dual": Laws.empty(3, 4)}
    starts = np.array([0, 1, 0])
    given = np.zeros((3, 4), bool)
    shadowed = Shadowed(DENOISER, given, laws=laws, guidance=0.0, starts=starts)
    how = {"guidance": 0.0, "starts": starts}
    assert reads == [
        ("made", DENOISER, given, how),
        ("made", DENOISER, given, {"cache": "dual", "starts": starts}),
    ]
    reads.clear()
    canvas: Any = SimpleNamespace(calls=np.array([5, 7, 2]), mask_id=MASK)
    inside = np.array([[0, 1, 1, 0]] * 2 + [[0] * 4]).astype(bool)
    open_ = inside.copy()
    first = shadowed.read(canvas, np.array([1]), inside, open_, Turn(np.arange(3), 2, starts, 0))
    assert (first.rows.tolist(), first.start) == ([1], 0)
    canvas.calls += np.array([0, 1, 1])
    open_[1, 1] = False
    shadowed.read(canvas, np.array([0, 1]), inside, open_, Turn(np.arange(3), 2, starts, 0))
    canvas.calls += 1
    shadowed.read(canvas, np.array([0]), inside, open_, Turn(np.arange(3), 2, starts, 2))
    # The block is opened for all that have it; from then on windows are read.
    assert reads == [
        ("none", [1], 0),
        ("dual", [0, 1], 0),
        ("none", [0, 1], 0),
        ("dual", [0, 1], 1),
        ("none", [0], 2),
        ("dual", [0], 2),
    ]
    assert laws["dual"].open.tolist() == [[2, 2, 0, 0], [2, 1, 0, 0], [0] * 4]
    assert laws["dual"].moved.tolist() == laws["dual"].open.tolist()
    e = np.e
    apart = (e - 1) / (e + 2)  # sum of p log(p / q), where one of three has one nat more
    assert laws["dual"].kl == pytest.approx(apart * laws["dual"].open)
    other = np.roll(inside, 1, axis=1)
    shadowed.read(canvas, np.array([0]), other, other, Turn(np.arange(3), 2, starts, 3))
    assert reads[-1] == ("dual", [0, 1], 0)  # another block
    assert laws["dual"].open[0].tolist() == [4, 2, 0, 0]
