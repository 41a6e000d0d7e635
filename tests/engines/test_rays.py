"""Ray actors draw what this process draws; nodes, actors and drivers may go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from drills import (
    LONG,
    SEARCH,
    TOTAL,
    N,
    arguments,
    clean,
    drawn,
    on_disk,
    outcome,
    sampled,
    searched,
    source,
    started,
    titled,
)

import warm_processes
from strop.cli.main import run as run_command
from strop.engine import plan
from tiny_models import environment, wait_for

pytest.importorskip("ray")
TWO = ("--engine", "ray", "--devices", "cpu:2")

ALL = """
import json, os, sys
from dataclasses import replace
from strop.cli.main import run
code = run(json.loads(sys.argv[1]))
assert code == 0, code

import strop
from strop.draw.worker import DrawJob, recipe_of
from strop.checkpoints.checkpoint import fingerprint
from strop.engine import rays
from strop.engine.plan import machines
from strop.errors import UserError
import pickle
import ray

model = strop.load_model(sys.argv[2])
recipe = recipe_of(model)
job = DrawJob(recipe, model.spec, fingerprint(recipe.source, None), (), None)
told = []

def refused(job):
    try:
        rays._check(machines(), pickle.dumps(job))
    except UserError as error:
        told.append(error.got)
    else:
        told.append(None)

refused(job)
refused(replace(job, fingerprint="0" * 64))
refused(replace(job, recipe=replace(recipe, source="/nowhere/at/all")))
rays.__version__ = "0.0"
refused(job)
told.append(ray.get(ray.remote(lambda: os.nice(0)).options(num_cpus=0).remote()) - os.nice(0))
print(json.dumps(told))
"""


def in_a_process(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Ray starts and ends with it."""
    return warm_processes.run(
        [sys.executable, "-c", code, *words],
        env=environment(PYTHONPATH=source()),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.mark.slow
def test_a_local_cluster_draws_the_same_and_checks_its_nodes(
    model: Path, local: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    end = in_a_process(ALL, json.dumps(arguments(model, path, *TWO)), str(model))
    assert end.returncode == 0, end.stderr
    assert outcome(path) == outcome(local)
    assert drawn(path) == [N] * 2
    assert clean(path)
    fine, other, missing, version, nicer = json.loads(end.stdout.splitlines()[-1])
    assert fine is None
    assert "files here differ" in other
    assert "/nowhere/at/all" in missing
    assert "and 0.0 where the command runs" in version
    assert nicer == 0, "actors would hardly move beside other work"


def test_ray_s_own_variable_names_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And without it a cluster that somebody else started on this machine is left alone."""
    import ray

    asked: list[str | None] = []
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda address=None, **_: asked.append(address))
    monkeypatch.setattr(plan, "_knock", lambda _: None)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    plan.join(None)
    plan.join("10.0.0.2:6379")
    monkeypatch.setenv("RAY_ADDRESS", "")
    plan.join(None)
    assert asked == ["10.0.0.1:6379", "10.0.0.2:6379", "local"]


def middle(process: subprocess.Popen[str], path: Path) -> None:
    assert wait_for(process, lambda: 3 <= on_disk(path) < TOTAL)


@pytest.mark.slow
def test_a_killed_actor_s_unit_is_drawn_again(model: Path, long_run: Path, tmp_path: Path) -> None:
    """And that of the other one, while the first is being replaced."""
    path = tmp_path / "run"
    process = started(model, path, *TWO, plan=LONG)
    middle(process, path)
    first, second = titled(process.pid, b"ray::Actor")
    os.kill(first, signal.SIGKILL)
    before = on_disk(path)
    assert wait_for(process, lambda: before < on_disk(path) < TOTAL)
    os.kill(second, signal.SIGKILL)
    assert on_disk(path) < TOTAL, "the kill came too late"
    _, told = process.communicate(timeout=600)
    assert process.returncode == 0, told
    assert outcome(path) == outcome(long_run)
    assert drawn(path) == [48, 48]


@pytest.mark.slow
def test_a_killed_driver_is_started_again(model: Path, long_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = started(model, path, *TWO, plan=LONG)
    middle(process, path)
    process.kill()
    process.communicate()
    process = started(model, path, *TWO, plan=LONG)
    _, told = process.communicate(timeout=600)
    assert process.returncode == 0, told
    assert outcome(path) == outcome(long_run)
    assert drawn(path) <= [48, 48]


@pytest.mark.slow
def test_a_removed_node_s_units_are_drawn_elsewhere(
    model: Path, long_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", source())
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    small: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    try:
        other = cluster.add_node(**small)
        cluster.wait_for_nodes()
        path = tmp_path / "run"
        where = ("--ray-address", cluster.address)
        process = started(model, path, *TWO, *where, plan=LONG)
        middle(process, path)
        cluster.remove_node(other)
        assert on_disk(path) < TOTAL, "the node went too late"
        _, told = process.communicate(timeout=600)
        assert process.returncode == 0, told
    finally:
        cluster.shutdown()
    assert outcome(path) == outcome(long_run)
    assert drawn(path) == [48, 48]


@pytest.mark.slow
def test_actors_that_are_kept_find_what_a_local_search_does(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    here, there = tmp_path / "here", tmp_path / "there"
    assert run_command(["tune", str(model), *SEARCH, "-o", str(here)]) == 0
    code = "import sys; from strop.cli.main import main; main(sys.argv[1:])"
    end = in_a_process(code, "tune", str(model), *SEARCH, "-o", str(there), *TWO)
    assert end.returncode == 0, end.stderr
    assert searched(there) == searched(here)


def test_no_cluster_to_join_is_told(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = (*TWO, "--ray-address", "127.0.0.1:1")
    assert sampled(model, tmp_path / "run", *line) == 1
    assert "no Ray cluster to join" in capsys.readouterr().err
