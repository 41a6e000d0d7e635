"""The loop over outputs: what they depend on, and what they do not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import strop
from strop import Pool, SamplerSpec, TabularDenoiser, UserError
from strop.denoisers import Denoiser
from strop.draw import sample_cells
from strop.pool import Output
from strop.spec import CellSpec, GeneratorSpec
from strop.store import Cell, Run

PRECISIONS = ["float64", "float32"]


@pytest.fixture(scope="module")
def denoiser(checkpoint: Path) -> Denoiser:
    return strop.load_denoiser(checkpoint)


@pytest.fixture(scope="module")
def tabular() -> TabularDenoiser:
    """Length 3, five tokens, nothing symmetric about it."""
    law = np.random.default_rng(3).random((5, 5, 5)) + 0.05
    return TabularDenoiser(law / law.sum())


def equal(one: Pool, other: Pool) -> bool:
    return (
        np.array_equal(one.ids, other.ids)
        and one.texts == other.texts
        and np.array_equal(one.nfe, other.nfe)
        and np.array_equal(one.leftover_masks, other.leftover_masks)
    )


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("steps", [3, 16])
def test_fast_outputs_do_not_depend_on_the_batch_size(
    denoiser: Denoiser, precision: str, steps: int
) -> None:
    """Up to rounding: a row alone and among others goes through other products of matrices.

    That this changes scores by less than 1e-5 is checked; so one of the 160 tokens would be drawn
    otherwise in one of a thousand such tests at most.
    """
    ids = torch.full((20, 8), denoiser.mask_id)
    ids[:, ::2] = torch.arange(80).reshape(20, 4) % denoiser.mask_id
    together, alone = denoiser.log_probs(ids), [denoiser.log_probs(row[None]) for row in ids]
    assert (together - torch.cat(alone)).abs().max() < 1e-5
    spec = SamplerSpec(steps=steps, precision=precision)
    reference = strop.draw.sample(denoiser, spec, n=20, seed=9)
    assert len(np.unique(reference.ids, axis=0)) > 10
    for batch_size in (1, 3, 7):
        pool = strop.draw.sample(denoiser, spec, n=20, seed=9, batch_size=batch_size)
        assert equal(pool, reference), batch_size
        assert pool.spec == reference.spec


@pytest.mark.parametrize("precision", PRECISIONS)
def test_fast_outputs_agree_up_to_the_last_bits_of_a_product(
    tabular: TabularDenoiser, precision: str
) -> None:
    """An exact denoiser looks its numbers up, so no bit may depend on the batch."""
    spec = SamplerSpec(steps=8, precision=precision, temperature=0.7)
    pools = [strop.draw.sample(tabular, spec, n=200, seed=1, batch_size=b) for b in (1, 64, 200)]
    assert all(equal(pool, pools[0]) for pool in pools)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_prefixes_agree_when_n_grows(denoiser: Denoiser, precision: str) -> None:
    spec = SamplerSpec(steps=8, precision=precision)
    short, long = (strop.draw.sample(denoiser, spec, n=n, seed=2) for n in (5, 17))
    assert np.array_equal(short.ids, long.ids[:5])
    assert np.array_equal(short.nfe, long.nfe[:5])
    assert short.spec == long.spec


def test_other_seeds_and_indices_give_other_outputs(denoiser: Denoiser) -> None:
    spec = SamplerSpec(steps=8)
    pools = [strop.draw.sample(denoiser, spec, n=10, seed=seed) for seed in (0, 1, 2**63 - 1)]
    together = np.concatenate([pool.ids for pool in pools])
    assert len(np.unique(together, axis=0)) == 30


@pytest.mark.parametrize("implementation", ["fast", "dense"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_memory_and_disk_agree(
    denoiser: Denoiser, tmp_path: Path, implementation: Any, precision: Any
) -> None:
    spec = SamplerSpec(steps=6, implementation=implementation, precision=precision)
    memory = strop.draw.sample(denoiser, spec, n=7, seed=4, batch_size=3)
    disk = strop.draw.sample(denoiser, spec, n=7, seed=4, batch_size=3, out=tmp_path / "run")
    again = strop.draw.sample(denoiser, spec, n=7, seed=4, batch_size=3, out=tmp_path / "run")
    for pool in (disk, again):
        assert equal(pool, memory)
        assert pool.spec == memory.spec
        assert pool.ids.dtype == memory.ids.dtype == np.int64
        assert pool.nfe.dtype == memory.nfe.dtype
    assert np.array_equal(disk.seconds, again.seconds)
    assert [session["outputs"] for session in again.provenance] == [7]


def test_several_cells_are_their_single_selves(denoiser: Denoiser, tmp_path: Path) -> None:
    specs = [
        SamplerSpec(steps=4),
        SamplerSpec(steps=4, implementation="dense"),
        SamplerSpec(steps=8),
    ]
    pools = sample_cells(denoiser, specs, n=5, seed=3, out=tmp_path / "run")
    for spec, pool in zip(specs, pools, strict=True):
        assert pool.spec.generator.sampler == spec
        assert equal(pool, strop.draw.sample(denoiser, spec, n=5, seed=3))


def test_a_number_of_outputs_per_cell(denoiser: Denoiser, tmp_path: Path) -> None:
    specs = [SamplerSpec(steps=4), SamplerSpec(steps=8)]
    for out in (None, tmp_path / "run"):
        pools = sample_cells(denoiser, specs, n=[3, 5], out=out)
        assert [len(pool) for pool in pools] == [3, 5]
        assert equal(pools[0], strop.draw.sample(denoiser, specs[0], n=3))
    run = Run.open(tmp_path / "run")
    assert list(run.wanted().values()) == [3, 5]
    sample_cells(denoiser, specs, n=4, out=run.path)
    assert list(run.wanted().values()) == [4, 5]  # a number may grow, and never shrinks
    with pytest.raises(UserError, match="do not match"):
        sample_cells(denoiser, specs, n=[3])


@pytest.mark.parametrize("implementation", ["fast", "dense"])
def test_a_shorter_length(denoiser: Denoiser, implementation: Any) -> None:
    spec = SamplerSpec(steps=4, implementation=implementation)
    pool = strop.draw.sample(denoiser, spec, n=3, length=5)
    assert pool.ids.shape == (3, 5)
    assert pool.spec.generator.length == 5
    assert pool.spec.id != strop.draw.sample(denoiser, spec, n=3).spec.id


@pytest.mark.parametrize("implementation", ["fast", "dense"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_counts_are_sane(denoiser: Denoiser, implementation: Any, precision: Any) -> None:
    spec = SamplerSpec(steps=5, implementation=implementation, precision=precision)
    pool = strop.draw.sample(denoiser, spec, n=12, seed=8, batch_size=4)
    assert len(pool) == 12
    assert pool.index.tolist() == list(range(12))
    assert ((pool.ids >= 0) & (pool.ids < denoiser.vocab_size)).all()
    assert (pool.ids != denoiser.mask_id).all()
    assert pool.leftover_masks.tolist() == [0] * 12
    assert (pool.nfe >= 1).all()
    assert (pool.nfe <= spec.steps + 1).all()
    assert (pool.seconds > 0).all()
    assert np.isfinite(pool.seconds).all()
    [session] = pool.provenance
    assert session["outputs"] == 12
    assert session["seconds"] == pytest.approx(pool.seconds.sum())
    assert session["packages"]["torch"]


@pytest.mark.parametrize("implementation", ["fast", "dense"])
def test_leftover_masks_are_counted(denoiser: Denoiser, implementation: Any) -> None:
    spec = SamplerSpec(grid=[0.3, 0.7], finish="none", implementation=implementation)
    pool = strop.draw.sample(denoiser, spec, n=10, seed=1)
    assert pool.leftover_masks.tolist() == (pool.ids == denoiser.mask_id).sum(1).tolist()
    assert pool.leftover_masks.sum() > 20
    assert pool.texts is not None
    assert sum(text.count("[MASK]") for text in pool.texts) == pool.leftover_masks.sum()


def test_a_directory_without_a_tokenizer_gives_no_texts(
    bare_checkpoint: Path, tmp_path: Path
) -> None:
    spec = SamplerSpec(steps=2)
    assert strop.draw.sample(bare_checkpoint, spec, n=2).texts is None
    assert strop.draw.sample(str(bare_checkpoint), spec, n=2, out=tmp_path / "run").texts is None


def test_dense_batches_are_part_of_the_identity(denoiser: Denoiser) -> None:
    spec = SamplerSpec(steps=4, implementation="dense")

    def cell(n: int, batch_size: int, spec: SamplerSpec = spec) -> CellSpec:
        generator = GeneratorSpec.of(denoiser.spec, spec, 8)
        return CellSpec.of(generator, 0, n=n, batch_size=batch_size)

    assert cell(8, 4).id == cell(12, 4).id, "whole batches may be added"
    assert cell(8, 4).id != cell(8, 2).id
    assert cell(7, 4).id != cell(8, 4).id, "a short last batch draws other numbers"
    assert cell(7, 4).id != cell(11, 4).id
    assert cell(3, 4).id == cell(3, 100).id, "a batch is never larger than n"
    fast = SamplerSpec(steps=4)
    assert cell(7, 4, fast).id == cell(9, 2, fast).id


def test_dense_grows_by_whole_batches_only(denoiser: Denoiser, tmp_path: Path) -> None:
    spec = SamplerSpec(steps=4, implementation="dense")
    options: dict[str, Any] = {"seed": 1, "out": tmp_path / "run"}
    short = strop.draw.sample(denoiser, spec, n=4, batch_size=4, **options)
    long = strop.draw.sample(denoiser, spec, n=8, batch_size=4, **options)
    assert np.array_equal(long.ids[:4], short.ids)
    assert equal(long, strop.draw.sample(denoiser, spec, n=8, batch_size=4, seed=1))
    with pytest.raises(UserError, match="another spec") as caught:
        strop.draw.sample(denoiser, spec, n=10, batch_size=4, **options)
    assert "n: 8 there, 10 now" in str(caught.value.got)
    assert "`batch_size`" in str(caught.value)


@pytest.mark.parametrize("n", [6, 8])
def test_dense_continues_inside_a_batch(denoiser: Denoiser, tmp_path: Path, n: int) -> None:
    """A batch that was cut short is drawn again whole, and only what is missing is kept."""
    spec = SamplerSpec(steps=4, implementation="dense", precision="float32")
    whole = strop.draw.sample(denoiser, spec, n=n, batch_size=4, seed=6)
    path = tmp_path / "run"
    strop.draw.sample(denoiser, spec, n=n, batch_size=4, seed=6, out=path)
    [cell] = strop.Run.open(path).cells()
    rows = cell.table().to_pylist()
    (cell.path / "outputs.parquet").unlink()
    kept = [rows[i] for i in (0, 2, 5)]
    cell.add(Output(**{k: v for k, v in r.items() if k != "seed"}) for r in kept)
    assert equal(strop.draw.sample(denoiser, spec, n=n, batch_size=4, seed=6, out=path), whole)
    assert [session["outputs"] for session in cell.sessions()] == [n, n - 3]


def test_integers_of_numpy_are_integers(denoiser: Denoiser, tmp_path: Path) -> None:
    counts: dict[str, Any] = {"n": np.int64(3), "seed": np.int32(1), "batch_size": np.int64(2)}
    for out in (None, tmp_path / "run"):
        pool = strop.draw.sample(
            denoiser, SamplerSpec(steps=2), **counts, length=np.int8(4), out=out
        )
        assert pool.ids.shape == (3, 4)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("n", 0),
        ("n", -1),
        ("n", 2.0),
        ("n", "3"),
        ("n", True),
        ("n", 2**32),
        ("seed", -1),
        ("seed", 2**63),
        ("seed", 0.5),
        ("seed", None),
        ("batch_size", 0),
        ("batch_size", 1.5),
        ("length", 0),
        ("length", -3),
        ("length", 9),
        ("length", 4.5),
        ("length", "4"),
    ],
)
@pytest.mark.parametrize("out", [False, True])
def test_arguments_out_of_range_are_refused(
    denoiser: Denoiser, tmp_path: Path, argument: str, value: Any, out: bool
) -> None:
    path = tmp_path / "run"
    options: dict[str, Any] = {"n": 2, "seed": 0, argument: value, "out": path if out else None}
    with pytest.raises(UserError, match=f"{argument}") as caught:
        strop.draw.sample(denoiser, SamplerSpec(steps=2), **options)
    assert caught.value.expected is not None
    assert not path.exists(), "nothing is made for a question that makes no sense"


def test_arguments_of_a_wrong_kind_are_refused(denoiser: Denoiser) -> None:
    with pytest.raises(UserError, match="denoiser"):
        strop.draw.sample(42)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="spec"):
        strop.draw.sample(denoiser, "ancestral")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="path is empty"):
        strop.draw.sample(denoiser, out="")


class Overflowing:
    """A denoiser whose scores stop being numbers after some calls."""

    def __init__(self, inner: TabularDenoiser, calls: int) -> None:
        self._inner, self._left = inner, calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def logits(self, *arguments: Any) -> Any:
        self._left -= 1
        scores = self._inner.logits(*arguments)
        return scores if self._left >= 0 else scores * float("nan")


@pytest.mark.parametrize("implementation", ["fast", "dense"])
def test_scores_that_are_no_numbers_stop_the_run_and_lose_nothing(
    tabular: TabularDenoiser, tmp_path: Path, implementation: Any
) -> None:
    spec = SamplerSpec(steps=3, implementation=implementation)
    options: dict[str, Any] = {"n": 9, "seed": 0, "batch_size": 3, "out": tmp_path / "run"}
    broken: Any = Overflowing(tabular, 6)
    with pytest.raises(UserError, match="not finite"):
        sample_cells(broken, [spec], **options)
    kept = strop.Run.open(tmp_path / "run").cells()[0].indices()
    assert 0 < len(kept) < 9
    [pool] = sample_cells(tabular, [spec], **options)
    assert equal(pool, strop.draw.sample(tabular, spec, n=9, seed=0, batch_size=3))


def test_a_record_that_cannot_be_written_does_not_write_outputs_twice(
    tabular: TabularDenoiser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up after the outputs and before their session's record."""

    def full(*_: Any) -> None:
        raise UserError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(Cell, "record", full)
        patch.setattr("strop.engine.sink.FLUSH_SECONDS", -1.0)  # after every output
        with pytest.raises(UserError, match="full"):
            strop.draw.sample(tabular, SamplerSpec(steps=3), n=9, out=tmp_path / "run")
    [cell] = strop.Run.open(tmp_path / "run").cells()
    assert len(list(cell.path.rglob("*.parquet"))) == len(cell.indices()) == 1
    pool = strop.draw.sample(tabular, SamplerSpec(steps=3), n=9, out=tmp_path / "run")
    assert equal(pool, strop.draw.sample(tabular, SamplerSpec(steps=3), n=9))
    assert [session["outputs"] for session in cell.sessions()] == [8]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_ten_thousand_outputs_of_a_small_target(tabular: TabularDenoiser, precision: Any) -> None:
    pool = strop.draw.sample(tabular, SamplerSpec(steps=64, precision=precision), n=10_000, seed=1)
    assert pool.ids.shape == (10_000, 3)
    assert pool.leftover_masks.sum() == 0
    counts = np.bincount(pool.ids @ [25, 5, 1], minlength=125)
    assert counts.sum() == 10_000
    # Loose on purpose (the law tests are elsewhere): a total variation of 125 cells and 10,000
    # draws has mean 0.04 under the right law, and 0.2 already under the uniform one.
    assert np.abs(counts / 10_000 - tabular.target.ravel()).sum() / 2 < 0.08


@pytest.mark.parametrize("precision", PRECISIONS)
def test_repeated_calls_are_equal(denoiser: Denoiser, precision: Any) -> None:
    for implementation in ("fast", "dense"):
        spec = SamplerSpec(steps=5, precision=precision, implementation=implementation)
        one, other = (strop.draw.sample(denoiser, spec, n=4, seed=3) for _ in range(2))
        assert equal(one, other)


def test_a_finished_run_that_may_only_be_read_is_answered_from(
    tabular: TabularDenoiser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    asked = {"spec": SamplerSpec(steps=2), "seed": 3, "out": tmp_path / "run"}
    drawn, before = strop.draw.sample(tabular, n=4, **asked), files()
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    assert equal(strop.draw.sample(tabular, n=4, **asked), drawn)
    assert np.array_equal(strop.draw.sample(tabular, n=3, **asked).ids, drawn.ids[:3])
    assert files() == before
    more = strop.draw.sample(tabular, n=5, **asked)  # not complete: it can be written after all
    assert np.array_equal(more.ids[:4], drawn.ids)
    assert files() != before
