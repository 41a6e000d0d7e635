"""The version of a sampler's random numbers: part of a cell's identity once it is not the first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import strop
from strop import SamplerSpec, TabularDenoiser
from strop.cli.main import run
from strop.errors import UserError
from strop.generate import cell_spec, sample_cells
from strop.records import SAMPLERS, Sampler
from strop.store import Run

NEW = SamplerSpec(steps=4, precision="float32")
"""A sampler that has changed its stream."""


@pytest.fixture
def denoiser() -> TabularDenoiser:
    law = np.random.default_rng(0).dirichlet(np.ones(27)).reshape(3, 3, 3)
    return TabularDenoiser(law)


def test_which_samplers_have_another_stream(denoiser):
    def stream(spec: SamplerSpec) -> int:
        return cell_spec(denoiser, spec, n=2, seed=0, batch_size=2, length=3).stream

    assert stream(NEW) == 2
    assert stream(SamplerSpec(steps=4)) == 1
    assert stream(NEW.model_copy(update={"implementation": "dense"})) == 1
    changed = {name: dict(one.streams) for name, one in SAMPLERS.items() if one.streams}
    assert changed == {"ancestral": {"float32": 2}, "ancestral-remdm": {"float32": 2}}


@pytest.fixture
def old(denoiser: TabularDenoiser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of three outputs a cell, as written while all streams were the first."""
    with monkeypatch.context() as patch:
        patch.setattr(Sampler, "stream", lambda *_: 1)
        sample_cells(denoiser, [SamplerSpec(steps=4), NEW], n=3, out=tmp_path / "run")
    return Run.open(tmp_path / "run")


def test_a_complete_old_cell_is_read(old, denoiser, capsys):
    before = [cell.pool().ids for cell in old.cells()]
    pools = sample_cells(denoiser, [SamplerSpec(steps=4), NEW], n=3, out=old.path)
    assert [pool.spec.stream for pool in pools] == [1, 1]
    assert all(np.array_equal(pool.ids, ids) for pool, ids in zip(pools, before, strict=True))
    assert [len(cell.sessions()) for cell in old.cells()] == [1, 1]
    assert run(["show", str(old.path)]) == 0
    shown = capsys.readouterr().out
    assert all(cell.id in shown for cell in old.cells())


@pytest.mark.parametrize("grow", [False, True])
def test_an_old_cell_is_not_extended(old, denoiser, grow):
    specs = [SamplerSpec(steps=4), NEW]
    with pytest.raises(UserError) as caught:
        sample_cells(denoiser, specs, n=5, out=old.path, grow=grow)
    told = caught.value
    assert str(told.where).endswith(old.cells()[1].id)
    assert told.got == "3 of 5 outputs, drawn from version 1 of its stream"
    assert "version 2" in str(told.expected)
    assert "new run" in str(told.fix)
    assert list(old.wanted().values()) == [3, 3], "nothing was asked of it"
    assert [len(cell.indices()) for cell in old.cells()] == [3, 3]


def test_a_run_grows_beside_an_old_cell(old, denoiser):
    sample_cells(denoiser, [NEW.model_copy(update={"steps": 5})], n=2, out=old.path, grow=True)
    assert [cell.spec.stream for cell in old.cells()] == [1, 1, 2]


def test_it_is_started_anew_by_force(old, denoiser):
    pool = sample_cells(denoiser, [NEW], n=5, out=old.path, force=True)[0]
    assert pool.spec.stream == 2
    assert [cell.id for cell in old.cells()] == [pool.spec.id]
    assert np.array_equal(pool.ids, strop.sample(denoiser, NEW, n=5).ids)
