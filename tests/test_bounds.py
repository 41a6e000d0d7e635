"""What one call may ask for is looked at before a model is loaded or a file is made."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from strop import SamplerSpec, TabularDenoiser, runtime
from strop.cli.main import run as strop
from strop.draw import sample_cells
from strop.errors import UserError
from strop.runtime import MOST_AT_ONCE, MOST_OUTPUTS, bounded_batch, bounded_outputs


def test_the_outputs_of_all_cells_are_added_up() -> None:
    bounded_outputs([MOST_OUTPUTS - 5, 5])
    with pytest.raises(UserError, match="`n` asks for too much"):
        bounded_outputs([MOST_OUTPUTS - 5, 6])


def test_a_batch_is_bounded_by_its_positions() -> None:
    bounded_batch(MOST_AT_ONCE // 1024, 1024)
    with pytest.raises(UserError, match="`batch_size` asks for too much"):
        bounded_batch(MOST_AT_ONCE // 1024 + 1, 1024)


@pytest.mark.parametrize(
    "flags",
    [
        ["-n", "4000000000"],
        ["--steps", "1000000000"],
        ["--length", "1000000000"],
        ["--batch-size", "1000000000"],
        ["--devices", "cpu:1000000"],
    ],
)
def test_a_mistyped_number_is_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    start = time.process_time()
    assert strop(["sample", "nowhere/no-checkpoint", *flags, "-o", str(tmp_path / "run")]) == 1
    err = capsys.readouterr().err
    assert flags[0] in err
    assert "no-checkpoint" not in err  # nothing was looked for
    assert not (tmp_path / "run").exists()
    assert time.process_time() - start < 20


def test_a_task_adds_up_its_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from strop.tasks.running import run_task

    with pytest.raises(UserError, match="too much"):
        run_task("sums", ["nowhere/no-checkpoint"], seeds=10**9, out=tmp_path / "run")


def test_a_task_adds_up_its_temperatures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """256 problems under one seed, at one temperature, are within the bound, and at two are not."""
    from strop.tasks.running import run_task

    monkeypatch.setattr(runtime, "MOST_OUTPUTS", 256)
    for temperatures, told in (((1.0,), "nowhere"), ((1.0, 0.5), "too much in one call")):
        with pytest.raises(UserError, match=told):
            run_task(
                "sums", ["nowhere/no-model"], tmp_path / "run", temperatures=temperatures, seeds=1
            )


def test_drawing_looks_at_all_cells_and_at_the_length_of_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever calls it: a search, a comparison, a study."""
    model = TabularDenoiser(np.full((3, 3), 1 / 9))
    specs = [SamplerSpec(steps=1), SamplerSpec(steps=2)]
    monkeypatch.setattr(runtime, "MOST_OUTPUTS", 8)
    assert [len(pool) for pool in sample_cells(model, specs, n=[4, 4])] == [4, 4]
    with pytest.raises(UserError, match="`n` asks for too much"):
        sample_cells(model, specs, n=[4, 5])
    monkeypatch.setattr(runtime, "MOST_AT_ONCE", 8)
    assert len(sample_cells(model, specs[:1], n=4, batch_size=4)[0]) == 4
    with pytest.raises(UserError, match="`batch_size` asks for too much") as caught:
        sample_cells(model, specs[:1], n=4, batch_size=5)
    assert caught.value.got == "10"


def test_replicates_are_bounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["groupeval", "score", str(tmp_path / "nowhere"), "--replicates"]
    assert strop([*words, str(runtime.MOST_REPLICATES + 1)]) == 1
    assert "at most 1,000,000" in capsys.readouterr().err
    assert strop([*words, str(runtime.MOST_REPLICATES)]) == 1
    assert "--replicates" not in capsys.readouterr().err


def test_cores_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert runtime.cores() == len(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7})
    assert runtime.cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert runtime.cores() == os.cpu_count()
