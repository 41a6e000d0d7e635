"""Batches that do not fit: halved where that is asked for, else told; dense ones are left alone."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import strop
from strop import SamplerSpec, TabularDenoiser, UserError
from strop.denoisers import device
from strop.draw.worker import CellDraw, DrawWorker, largest_batch
from strop.instruments.gpu import loaded
from strop.instruments.pretend import moved, pretended
from strop.spec import CellSpec, GeneratorSpec
from strop.store import Run

LAW = np.random.default_rng(3).random((5, 5, 5)) + 0.05
SPEC = SamplerSpec(steps=3)


class Small(TabularDenoiser):
    """A device that holds only so many sequences."""

    def __init__(self, most: int, after: int = 0, words: str | None = None) -> None:
        super().__init__(LAW / LAW.sum())
        self.most, self.after, self.words = most, after, words
        self.calls = 0
        self.sizes: list[int] = []

    def hidden(self, ids: torch.Tensor, sigma: torch.Tensor | None) -> torch.Tensor:
        self.calls += 1
        if self.calls > self.after and len(ids) > self.most:
            if self.words is None:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            raise RuntimeError(self.words)
        self.sizes.append(len(ids))
        return super().hidden(ids, sigma)


@pytest.mark.parametrize(
    "words", [None, "DefaultCPUAllocator: can't allocate memory"], ids=["cuda", "cpu"]
)
def test_auto_halves_until_it_fits_and_draws_the_same(words: str | None) -> None:
    plain = strop.draw.sample(Small(99), SPEC, n=40, seed=1)
    small = Small(3, after=1, words=words)  # the first call is the look at one sequence
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        pool = strop.draw.sample(small, SPEC, n=40, seed=1, batch_size="auto")
    assert np.array_equal(pool.ids, plain.ids)
    assert max(small.sizes) <= 3
    assert [int(str(one.message).rstrip(".").split()[-1]) for one in said] == [20, 10, 5, 2]


def test_what_was_drawn_before_memory_ran_out_is_kept(tmp_path: Path) -> None:
    """Unit after unit is drawn; the one that fails loses nothing of those before it."""
    small = Small(0, after=8)
    with pytest.raises(UserError, match="not enough memory") as caught:
        strop.draw.sample(small, SPEC, n=40, seed=1, batch_size=4, out=tmp_path / "run")
    assert "batch_size=auto" in str(caught.value)
    [cell] = Run.open(tmp_path / "run").cells()
    done = cell.indices()
    assert 0 < len(done) < 40
    pool = strop.draw.sample(Small(99), SPEC, n=40, seed=1, out=tmp_path / "run")
    assert np.array_equal(pool.ids, strop.draw.sample(Small(99), SPEC, n=40, seed=1).ids)


def test_a_single_sequence_that_does_not_fit_is_told() -> None:
    with (
        pytest.raises(UserError, match="not enough memory"),
        pytest.warns(UserWarning, match="batches of 1"),
    ):
        strop.draw.sample(Small(0, after=1), SPEC, n=4, batch_size="auto")


def test_other_errors_are_not_taken_for_want_of_memory() -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        strop.draw.sample(Small(0, after=1, words="a bug"), SPEC, n=4, batch_size="auto")


def test_dense_refuses_auto() -> None:
    spec = SamplerSpec(steps=3, implementation="dense")
    with pytest.raises(UserError, match="share random numbers"):
        strop.draw.sample(Small(9), spec, n=4, batch_size="auto")


def test_the_rule_follows_the_memory_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    denoiser = Small(10**9)
    sizes = []
    for free in (0, 10**4, 10**5, 10**12, None):
        monkeypatch.setattr("strop.draw.worker.free_bytes", lambda _, free=free: free)
        sizes.append(largest_batch(denoiser, SPEC, 3))
    assert sizes[0] == 1
    assert 1 < sizes[1] < sizes[2] < sizes[3]
    assert sizes[3] == sizes[4] == 1024


def test_a_worker_asks_its_own_gpu_how_many_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever cut the plan: the command's process has no model to ask."""
    model = loaded("mdlm", tmp_path)
    generator = GeneratorSpec(checkpoint=model.spec, sampler=SPEC, length=32)
    cell = CellSpec(generator=generator, seed=0)

    def size(auto: bool) -> int:
        return DrawWorker(model, [CellDraw(cell, 2000, 1000, auto)], None)._fitted(0).size

    assert size(auto=True) == 8192 // 32  # what is usual on a CPU, and no more
    with pretended():
        moved(model)
        assert size(auto=True) == 1000  # as many as it was given
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (1 << 20, 1 << 30))
        assert size(auto=True) == 1
        assert size(auto=False) == 1000  # which was asked for


GB = 2**30


def group(tmp_path: Path, folder: str, version: int, most: str, used: int, files: int) -> None:
    """A control group as the kernel writes it."""
    place = tmp_path / "root" / folder
    place.mkdir(parents=True, exist_ok=True)
    limit, usage, kept = device.SECOND if version == 2 else device.FIRST
    (place / limit).write_text(f"{most}\n")
    (place / usage).write_text(f"{used}\n")
    (place / "memory.stat").write_text(f"anon 5\ninactive_file 7\n{kept} {files}\nslab 1\n")


@pytest.mark.parametrize(
    ("own", "groups", "left"),
    [
        ("0::/a/b\n", {"a/b": (2, str(2 * GB), GB, 1000)}, GB + 1000),
        ("0::/a/b\n", {"a/b": (2, "max", GB, 0), "a": (2, str(3 * GB), GB, 0)}, 2 * GB),
        ("0::/a/b\n", {"a/b": (2, str(5 * GB), GB, 0), "a": (2, str(3 * GB), GB, 5)}, 2 * GB + 5),
        ("0::/a/b\n", {"a/b": (2, "max", GB, 0)}, None),
        ("0::/\n", {"": (2, str(GB), GB - 9, 0)}, 9),
        ("0::/host/path\n", {"": (2, str(GB), 2 * GB, 0)}, 0),
        ("3:cpu:/c\n4:memory:/m\n0::/\n", {"memory/m": (1, str(GB), 100, 60)}, GB - 40),
        ("4:cpu,memory:/m\n", {"memory": (1, str(GB), 100, 0)}, GB - 100),
        ("4:cpu:/m\n", {"memory/m": (1, str(GB), 100, 0)}, None),
        ("nonsense\n", {}, None),
        ("0::/a\n", {"a": (2, "much", 1, 0)}, None),
    ],
)
def test_a_container_leaves_what_is_below_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, groups: Any, left: int | None
) -> None:
    """The nearest limit of all groups; files that can be dropped do not count as used."""
    for folder, given in groups.items():
        group(tmp_path, folder, *given)
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(device, "ROOT", tmp_path / "root")
    monkeypatch.setattr(device, "OWN", tmp_path / "own")
    assert device.left_in_container() == left


def test_a_batch_is_as_large_as_the_container_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    for here, container, free in ((9, 4, 4), (4, 9, 4), (4, None, 4), (None, 5, 5)):
        monkeypatch.setattr(device, "_free_here", lambda here=here: here)
        monkeypatch.setattr(device, "left_in_container", lambda left=container: left)
        assert device.free_bytes(cpu) == free
