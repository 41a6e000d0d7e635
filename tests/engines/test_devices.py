"""One process per device draws what this process draws, whatever happens to whom."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from drills import (
    DENSE,
    LONG,
    TOTAL,
    WARM,
    Dying,
    Failing,
    N,
    alive,
    arguments,
    clean,
    descendants,
    drawn,
    indices,
    on_disk,
    outcome,
    sampled,
    source,
    started,
)

import strop
import warm_processes
from strop.cli.main import run as run_command
from strop.engine import Engine, cut
from strop.engine.devices import REPLACEMENTS, Processes
from strop.engine.sink import Sink
from strop.engine.workers import Lost, run_by
from strop.errors import UserError
from strop.store import Run
from tiny_models import environment, wait_for

TWO = ("--devices", "cpu:2")


@pytest.mark.slow
def test_a_process_that_loads_everything_draws_the_same(
    model: Path, local: Path, tmp_path: Path
) -> None:
    """A real start; those of the other tests have loaded torch."""
    assert sampled(model, tmp_path / "run", "--devices", "cpu:1") == 0
    assert outcome(tmp_path / "run") == outcome(local)
    assert clean(tmp_path / "run")


def test_two_processes_draw_what_one_does(
    model: Path, local: Path, tmp_path: Path, warm_workers: None
) -> None:
    path = tmp_path / "run"
    assert sampled(model, path, *TWO) == 0
    assert outcome(path) == outcome(local)
    assert drawn(path) == [N] * 2
    assert clean(path)
    for cell in Run.open(path).cells():
        for session in cell.sessions():
            assert session["device"] == "cpu"
            assert session["host"]
            assert session["checkpoint"] == str(model)
            assert session["indices"]
    line = ["--evaluator", "embedded:tales-ar", "--vendi", "off"]
    assert run_command(["score", str(path), *line, *TWO]) == 0
    assert run_command(["score", str(local), *line]) == 0
    for one, other in zip(Run.open(path).cells(), Run.open(local).cells(), strict=True):
        tables = one.scores(), other.scores()
        assert tables[0].keys() == tables[1].keys()
        for name, table in tables[0].items():
            for column, values in table.columns.items():
                assert values.tolist() == tables[1][name].columns[column].tolist(), column


def test_dense_batches_stay_whole_and_memory_needs_no_disk(
    model: Path, tmp_path: Path, warm_workers: None
) -> None:
    for name, more in (("one", ()), ("two", TWO)):
        assert sampled(model, tmp_path / name, *more, plan=DENSE) == 0
    assert outcome(tmp_path / "one") == outcome(tmp_path / "two")
    [cell] = Run.open(tmp_path / "one").cells()
    spec = cell.spec.generator.sampler
    pool = strop.draw.sample(
        str(model), spec, n=N, seed=5, batch_size=3, engine=Engine.of(devices="cpu:2")
    )
    assert (pool.ids == cell.pool().ids).all()
    assert sum(one["outputs"] for one in pool.provenance) == N


def middle(process: subprocess.Popen[str], path: Path) -> None:
    """Until some outputs are on disk and others are not."""
    assert wait_for(process, lambda: 3 <= on_disk(path) < TOTAL)


def test_a_killed_worker_s_unit_is_drawn_again(model: Path, long_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = started(model, path, *TWO, plan=LONG, before=WARM)
    middle(process, path)
    worker = descendants(process.pid)[0]
    os.kill(worker, signal.SIGKILL)
    assert on_disk(path) < TOTAL, "the kill came too late"
    _, told = process.communicate(timeout=300)
    assert process.returncode == 0, told
    assert outcome(path) == outcome(long_run)
    assert drawn(path) == [48, 48]
    assert clean(path)


@pytest.mark.slow
def test_a_killed_driver_leaves_no_worker_and_is_started_again(
    model: Path, long_run: Path, tmp_path: Path, warm_workers: None
) -> None:
    path = tmp_path / "run"
    process = started(model, path, *TWO, plan=LONG, before=WARM)
    middle(process, path)
    workers = descendants(process.pid)
    assert len(workers) == 2
    process.kill()
    process.communicate()
    kept = sum(indices(path))
    assert 0 < kept < TOTAL
    end = time.monotonic() + 60
    while any(alive(one) for one in workers):
        assert time.monotonic() < end, "a worker outlived its driver"
        time.sleep(0.05)
    assert sampled(model, path, *TWO, plan=LONG) == 0
    assert outcome(path) == outcome(long_run)
    assert drawn(path) <= [48, 48], "a kill may fall between outputs and their record"
    assert clean(path)


@pytest.mark.slow
def test_two_drivers_share_the_units_of_one_run(
    model: Path, long_run: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    processes = [started(model, path, *more, plan=LONG, before=WARM) for more in (TWO, ())]
    ends = [(one.communicate(timeout=300), one.returncode) for one in processes]
    assert [code for _, code in ends] == [0, 0], ends
    assert outcome(path) == outcome(long_run)
    assert drawn(path) == [48, 48], "nothing was drawn twice"
    assert clean(path)


FULL = """
import resource, sys
from strop.cli.main import run
import strop.draw, strop.engine.sink  # everything is loaded before the disk is full
strop.engine.sink.FLUSH_SECONDS = 0.01
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.exit(run(sys.argv[2:]))
"""


# Files of three outputs are larger than the first, merged ones than the second.
@pytest.mark.parametrize("limit", [3000, 5000])
def test_a_full_disk_loses_nothing(
    model: Path, local: Path, tmp_path: Path, warm_workers: None, limit: int
) -> None:
    path = tmp_path / "run"
    end = warm_processes.run(
        [sys.executable, "-c", WARM + FULL, str(limit), *arguments(model, path, *TWO)],
        env=environment(PYTHONPATH=source()),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert end.returncode == 1, end
    assert end.stderr.count("The disk is full.") == 1
    assert "Traceback" not in end.stderr
    assert sampled(model, path, *TWO) == 0
    assert outcome(path) == outcome(local)
    assert drawn(path) == [N] * 2
    assert clean(path)


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers find the jobs of these tests."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent), source()])
    monkeypatch.setenv("PYTHONPATH", path)


def test_a_worker_that_always_dies_is_given_up(importable: None, warm_workers: None) -> None:
    workers = Processes(["cpu"])
    with pytest.raises(Lost, match="All workers died") as caught, workers:
        run_by(workers, Dying(), Sink(cut([[range(2)]]), []))
    assert "SIGKILL" in str(caught.value.got)
    assert workers._replaced == [REPLACEMENTS]
    assert caught.value.exit_code == 2


def test_what_a_worker_lacks_is_told_in_its_words(importable: None, warm_workers: None) -> None:
    workers = Processes(["cpu"])
    with pytest.raises(UserError, match="no such thing") as caught, workers:
        run_by(workers, Failing(), Sink(cut([[range(2)]]), []))
    assert caught.value.where == "cpu"


def test_what_other_processes_cannot_do_is_refused(model: Path, tmp_path: Path) -> None:
    engine = Engine.of(devices="cpu:2")
    made = strop.load_denoiser(model)
    with pytest.raises(UserError, match="can be watched"):
        strop.draw.sample(made, engine=engine, on_step=lambda *_: None)
    del made.recipe  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="cannot load this model"):
        strop.draw.sample(made, engine=engine)
    with pytest.raises(UserError, match="no CUDA"):
        strop.draw.sample(str(model), engine=Engine.of("devices"))
