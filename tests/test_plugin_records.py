"""Samplers and families that somebody else brings: their version tells their cells apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

import strop
from strop import SamplerSpec, TabularDenoiser, UserError
from strop.cli.main import run
from strop.records import FAMILIES, SAMPLERS, Family, Sampler
from strop.samplers.machinery.dense import DenseRun
from strop.spec import CheckpointSpec


def all_zero(run: DenseRun) -> Tensor:
    """Token 0 everywhere, in one update."""
    ids = run.start()
    run.calls += 1
    return run.step(ids, ids * 0)


ZEROS = Sampler("all-zero", "token 0 everywhere", "draw", dense=all_zero, version="1")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    SAMPLERS.forget("all-zero")
    FAMILIES.forget("pairs")


def spec(**fields: Any) -> SamplerSpec:
    return SamplerSpec(name="all-zero", implementation="dense", **fields)


def test_a_sampler_of_ones_own_works_everywhere(tmp_path: Path, capsys: Any) -> None:
    strop.register(ZEROS)
    pool = strop.draw.sample("embedded:tales", spec(), n=3, length=8, out=tmp_path / "run")
    assert (pool.ids == 0).all()
    assert [one.tolist() for one in pool.changed if one is not None] == [[1] * 8] * 3
    assert pool.spec.generator.sampler.version == "1"
    assert '"version":"1"' in pool.spec.canonical()
    assert run(["show", str(tmp_path / "run")]) == 0
    assert "all-zero" in capsys.readouterr().out


def test_another_version_is_another_cell(tmp_path: Path) -> None:
    strop.register(ZEROS)
    model = TabularDenoiser(np.full((2, 2), 0.25))
    first = strop.draw.sample(model, spec(), n=2, out=tmp_path / "run")
    strop.register(replace(ZEROS, version="2"), replace=True)
    assert spec().id != first.spec.generator.sampler.id
    old = first.spec.generator.sampler
    assert SamplerSpec(**json.loads(old.canonical())) == old, "cells on disk keep theirs"
    assert strop.Run.open(tmp_path / "run").cells()[0].spec == first.spec
    with pytest.raises(UserError, match="has changed since"):
        strop.draw.sample(model, old, n=3)
    with pytest.raises(UserError):  # the run was asked of the other version
        strop.draw.sample(model, spec(), n=3, out=tmp_path / "run")


def test_built_in_records_have_no_version_in_their_identity() -> None:
    assert "version" not in SamplerSpec().canonical()
    checkpoint = CheckpointSpec(family="mdlm", sha256="0" * 64, shape={})
    assert "version" not in checkpoint.canonical()
    assert checkpoint.id != checkpoint.model_copy(update={"version": "1"}).id
    assert all(one.version is None for one in SAMPLERS.builtin.values())
    assert all(one.version is None for one in FAMILIES.builtin.values())


def test_a_run_of_a_sampler_that_is_gone(tmp_path: Path, capsys: Any) -> None:
    strop.register(ZEROS)
    strop.draw.sample("embedded:tales", spec(), n=1, length=8, out=tmp_path / "runs" / "run")
    SAMPLERS.forget("all-zero")
    assert run(["ls", str(tmp_path / "runs")]) == 0
    capsys.readouterr()
    assert run(["show", str(tmp_path / "runs" / "run")]) == 1
    assert "all-zero" in capsys.readouterr().err


class Pairs(TabularDenoiser):
    """Two tokens that agree."""

    def __init__(self, source: str) -> None:
        super().__init__(np.array([[0.49, 0.01], [0.01, 0.49]]))
        self.source = source
        self.spec = CheckpointSpec(family="pairs", sha256="1" * 64, shape={}, version="1")


PAIRS = Family(
    "pairs",
    "Pairs",
    "ancestral",
    load=lambda found, loading: Pairs(found.source),  # noqa: ARG005
    reads="mdlm",
    names=("two_of_a_kind",),
    version="1",
)


@pytest.mark.parametrize("word", ["pairs", "two-of-a-kind", "Two_Of_A_Kind"])
def test_a_family_of_ones_own_is_known_by_its_names(tmp_path: Path, word: str) -> None:
    strop.register(PAIRS)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": word}))
    pool = strop.draw.sample(tmp_path, SamplerSpec(steps=64), n=200)
    assert (pool.ids[:, 0] == pool.ids[:, 1]).mean() > 0.9
    assert pool.spec.generator.checkpoint.version == "1"
    with pytest.raises(UserError, match="does not fit"):
        strop.draw.sample(tmp_path, SamplerSpec(name="sedd-analytic"), n=1)


def test_a_family_can_be_named_where_the_files_say_nothing(tmp_path: Path) -> None:
    strop.register(PAIRS)
    model = strop.load_denoiser(tmp_path, family="pairs")
    assert model.vocab_size == 3
    with pytest.raises(UserError, match="family"):
        strop.load_denoiser(tmp_path, family="pair")
