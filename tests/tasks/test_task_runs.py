"""A task run: drawn, graded, continued, and what it refuses."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import warm_processes
from strop.assets import MODELS
from strop.errors import UserError
from strop.registry import register, resolve
from strop.store import Run
from strop.tasks import TASKS, Box, Filter, Item, TaskRun, Verdict, results, run_task, score_task
from strop.tasks.outcome import label_of
from tiny_models import command, environment, wait_for

AR = "embedded:sums-ar"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three problems, greedy and at temperature 1 under two seeds."""
    out = tmp_path_factory.mktemp("task_run") / "sums"
    run_task("sums", AR, out, temperatures=(0, 1), seeds=2, limit=3)
    return out


def test_a_cell_per_temperature_and_seed_and_one_for_greedy(small: Path) -> None:
    cells = Run.open(small / "sums-ar").cells()
    found = sorted((c.spec.generator.sampler.temperature, c.spec.seed) for c in cells)
    assert found == [(0.0, 0), (1.0, 0), (1.0, 1)]
    assert [len(cell.indices()) for cell in cells] == [3, 3, 3]


def test_output_i_answers_problem_i(small: Path) -> None:
    found = results(small)
    told = found.greedy("sums-ar").answered()
    assert [one.item.id for one in told] == ["sums/0", "sums/1", "sums/2"]
    # The control gets 98% of the problems right: at least two of three, or it read other ones.
    assert sum(one.passed("last") for one in told) >= 2
    assert all("<|endoftext|>" not in one.response for one in told)


def test_the_run_of_a_checkpoint_is_an_ordinary_run_with_an_accuracy(small: Path) -> None:
    from strop.measure.frame import read_run

    [greedy, *_] = read_run(Run.open(small / "sums-ar"))
    score = greedy.of("task")
    assert score is not None
    accuracy = score.interval("accuracy")
    assert accuracy is not None
    assert accuracy.value == results(small).greedy("sums-ar").accuracy("last").value


@pytest.mark.slow
def test_it_grows_by_problems_temperatures_seeds_and_checkpoints(
    small: Path, tmp_path: Path
) -> None:
    out = tmp_path / "sums"
    shutil.copytree(small, out)
    before = [one.response for one in results(small).greedy("sums-ar").answered()]
    copied = tmp_path / "other"
    shutil.copytree(MODELS / "sums-ar", copied)
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-5}))
    run_task("sums", AR, out, temperatures=(0, 1, 0.5), seeds=3, limit=4)
    run_task("sums", [AR, copied], out, temperatures=(0,), limit=4)
    found = results(out)
    assert found.labels == ("sums-ar", "other")
    asked = {
        "sums-ar": [(0.0, (0,)), (0.5, (0, 1, 2)), (1.0, (0, 1, 2))],
        "other": [(0.0, (0,))],
    }
    for label, settings in asked.items():
        answered = found.of_label(label)
        assert [(s.temperature, s.seeds) for s in answered] == settings
        assert all(len(s.index) == 4 for s in answered)
    now = [one.response for one in found.greedy("sums-ar").answered()]
    assert now[:3] == before


def test_nothing_is_drawn_or_graded_twice(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {p: p.stat().st_mtime_ns for p in small.rglob("*.parquet")}
    run_task("sums", AR, small, temperatures=(0, 1), seeds=2, limit=3)
    assert {p: p.stat().st_mtime_ns for p in small.rglob("*.parquet")} == files


def test_the_same_weights_under_two_names_are_one_checkpoint(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "sums"
    shutil.copytree(small, out)
    copied = tmp_path / "copy"
    shutil.copytree(MODELS / "sums-ar", copied)
    found = run_task("sums", copied, out, temperatures=(0,), limit=3)
    assert found.labels == ("sums-ar",)


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    out = tmp_path / "sums"
    asked = ["task", "run", "sums", AR, "--temperature", "0", "--batch-size", "1", "-o", out]
    cells = out / "sums-ar" / "cells"

    def begun() -> bool:
        return any(cells.glob("*/parts/*.parquet"))

    quiet = {"env": environment(), "stderr": subprocess.DEVNULL}
    with warm_processes.Popen(command(*asked), **quiet) as process:
        assert wait_for(process, begun)
        process.send_signal(signal.SIGKILL)
    [cell] = Run.open(out / "sums-ar").cells()
    held = {row["index"]: row for row in cell.table().to_pylist()}
    assert 0 < len(held) < 256
    # The shortest way on: nothing but what the first problems lack, at once.
    found = run_task("sums", AR, out, temperatures=(0,), limit=8)
    now = {row["index"]: row for row in cell.table().to_pylist()}
    assert now.keys() == held.keys() | set(range(8))
    assert {index: now[index] for index in held} == held
    assert found.greedy("sums-ar").index.tolist() == sorted(now)


def test_verdicts_that_were_removed_are_given_again(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "sums"
    shutil.copytree(small, out)
    for file in out.rglob("scores/*.parquet"):
        file.unlink()
    assert results(out).settings == ()
    again = score_task(out)
    old = results(small)
    assert [
        np.array_equal(a.by_seed("last"), b.by_seed("last"))
        for a, b in zip(again.settings, old.settings, strict=True)
    ] == [True, True]


def test_force_starts_anew(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "sums"
    shutil.copytree(small, out)
    (out / "mine").mkdir()
    (out / "mine" / "strop.json").write_text("mine")
    found = run_task("sums", AR, out, temperatures=(1,), seeds=1, limit=1, force=True)
    assert (out / "mine" / "strop.json").read_text() == "mine"
    assert [(s.temperature, len(s.index)) for s in found.settings] == [(1.0, 1)]


@pytest.mark.parametrize(
    ("source", "label"),
    [
        ("embedded:sums", "sums"),
        ("GSAI-ML/LLaDA-8B-Instruct@abc", "LLaDA-8B-Instruct"),
        ("/a/b c/", "b-c"),
        ("..", "checkpoint"),
    ],
)
def test_labels_are_names_of_folders(source: str, label: str) -> None:
    assert label_of(source) == label


class TestRefusals:
    def test_unknown_task(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="no task called 'sumz'"):
            run_task("sumz", AR, tmp_path / "x")

    def test_unknown_checkpoint_before_the_first_one_is_asked(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="no embedded model called 'nobody'"):
            run_task("sums", [AR, "embedded:nobody"], tmp_path / "x", limit=1)
        assert not (tmp_path / "x").exists()

    @pytest.mark.parametrize(
        "wrong",
        [
            {"limit": 0},
            {"seeds": 0},
            {"length": 0},
            {"temperatures": ()},
            {"temperatures": (-1,)},
            {"bos": "sometimes"},
            {"revision": "main"},
            {"chat": True},
            {"precision": "float8"},
            {"length": 90},
        ],
    )
    def test_values_out_of_range(self, wrong: dict, tmp_path: Path) -> None:
        with pytest.raises(UserError):
            run_task("sums", AR, tmp_path / "x", **{"limit": 1, **wrong})

    def test_another_task_or_length(self, small: Path) -> None:
        with pytest.raises(UserError, match="another task run") as told:
            run_task("gsm8k", AR, small, limit=1)
        assert told.value.got == "sums, 24 tokens there, gsm8k, 256 tokens now"
        with pytest.raises(UserError, match="another task run"):
            run_task("sums", AR, small, length=12)

    def test_problems_put_in_another_way(self, small: Path) -> None:
        with pytest.raises(UserError, match="with other prompt settings") as told:
            run_task("sums", AR, small, bos="never", limit=1)
        assert "bos: tokenizer there, never now" in str(told.value.got)

    def test_what_was_refused_leaves_no_trace_in_the_run(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="no chat template"):
            run_task("sums", AR, tmp_path / "x", chat=True, limit=1)
        found = run_task("sums", AR, tmp_path / "x", temperatures=(0,), limit=1)
        assert found.labels == ("sums-ar",)

    def test_a_task_that_changed(self, small: Path, tmp_path: Path) -> None:
        out = tmp_path / "sums"
        shutil.copytree(small, out)
        document = json.loads((out / "strop.json").read_text())
        document["asked"]["fingerprint"] = "0" * 16
        (out / "strop.json").write_text(json.dumps(document))
        for call in (lambda: score_task(out), lambda: run_task("sums", AR, out, limit=1)):
            with pytest.raises(UserError, match="has changed since"):
                call()

    def test_a_directory_of_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "mine.txt").write_text("mine")
        with pytest.raises(UserError, match="holds files but no task run"):
            run_task("sums", AR, tmp_path, limit=1)
        with pytest.raises(UserError, match="not a task run"):
            TaskRun.open(tmp_path)

    @pytest.mark.parametrize("asked", [{}, {"task": "sums", "checkpoints": [3]}])
    def test_a_damaged_mark(self, small: Path, tmp_path: Path, asked: dict[str, object]) -> None:
        out = tmp_path / "sums"
        shutil.copytree(small, out)
        document = json.loads((out / "strop.json").read_text())
        for text in (json.dumps({**document, "asked": asked}), "{"):
            (out / "strop.json").write_text(text)
            for call in (lambda: results(out), lambda: run_task("sums", AR, out, limit=1)):
                with pytest.raises(UserError, match="damaged") as caught:
                    call()
                assert caught.value.where == str(out / "strop.json")
        assert "`force`" in str(caught.value.fix)


def test_a_task_whose_own_code_fails_is_graded_to_the_end(small: Path, tmp_path: Path) -> None:
    """Verdicts and answers of a run with responses that a filter or the check cannot read."""
    sums = TASKS["sums"]

    def extract(item: Item, response: str) -> str | None:
        if item.id == "sums/1":
            raise ValueError("cannot read this")
        return resolve(sums.filters[0].extract)(item, response)

    def check(item: Item, answer: str, box: Box | None) -> Verdict:
        if item.id == "sums/2":
            raise ArithmeticError("cannot check this")
        return resolve(sums.check)(item, answer, box)

    changed = replace(
        sums, name="fragile", filters=(Filter("last", extract),), check=check, version="1"
    )
    notes: list[str] = []
    register(changed)
    try:
        run_task(changed, AR, tmp_path / "run", temperatures=(0,), limit=3, note=notes.append)
        found = score_task(tmp_path / "run")  # reads what was kept, and has nothing to do
        answered = found.greedy("sums-ar").answered()
    finally:
        TASKS.forget("fragile")
    expected = [one.outcomes["last"] for one in results(small).greedy("sums-ar").answered()]
    outcomes = [one.outcomes["last"] for one in answered]
    assert outcomes == [expected[0], "invalid", "invalid"]
    assert [one.answers["last"] is None for one in answered] == [False, True, False]
    [warning] = [one for one in notes if one.startswith("warning")]
    assert "failed on 2 responses of sums-ar" in warning
    assert "sums/1: the filter last raised ValueError: cannot read this" in warning
