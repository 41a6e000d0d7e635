"""Accuracy against temperature: rows, figure, protocol, and the paper's numbers beside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from called import Called
from small_tasks import CAUSAL, random_llada

from strop.assets import known_models
from strop.errors import UserError
from strop.figures import write_figure
from strop.stats.interval import Interval
from strop.table import Table
from strop.tasks import Results, TaskRun
from strop.verbs import paper
from strop.verbs.entrants import DIFFUSION, MODES, PROTOCOLS, protocol
from strop.verbs.study import Result
from strop.verbs.tasks import STUDY, curves

ASKED = ("--task", "sums", "--temperature", "0,1", "--seeds", 2, "--limit", 4)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random LLaDA and the causal model at four sums."""
    place = tmp_path_factory.mktemp("tasks")
    sources = [str(random_llada(place / "random")), CAUSAL]
    ask = STUDY.ask(
        place / "out", sources, task=("sums",), temperature=(0.0, 1.0), seeds=2, limit=4
    )
    from strop.verbs.study import carry_out

    carry_out(ask)
    return place


def test_rows_are_those_of_the_exam(run: Path) -> None:
    document = json.loads((run / "out/result.json").read_text())
    found = Results.of(TaskRun.open(run / "out/tasks/sums"))
    rows = {(row["model"], row["temperature"]): row for row in document["rows"]}
    assert set(rows) == {(m, t) for m in ("random", "sums-ar") for t in (0.0, 1.0)}
    for one in found.settings:
        row = rows[one.label, one.temperature]
        assert row["accuracy"] == one.accuracy("last").document()
        assert row["seeds"] == (1 if one.temperature == 0 else 2)
        assert row["error"] == one.standard_error("last")
        assert (row["error"] is None) == (one.temperature == 0)
        assert row["right"] == pytest.approx(4 * row["accuracy"]["value"])
    assert rows["sums-ar", 0.0]["source"] == CAUSAL
    sampler = rows["random", 1.0]["sampler"]
    assert (sampler["name"], sampler["precision"], sampler["steps"]) == ("fast-dllm", "float32", 24)
    assert sampler["settings"]["commit"] == "quota"
    assert sampler["top_p"] == 1
    assert (run / "out/tasks.svg").stat().st_size > 500


def test_the_same_command_answers_from_disk(run: Path, call: Called) -> None:
    files = {p: p.stat().st_mtime_ns for p in (run / "out").rglob("*.parquet")}
    code, document, err = call("study", "tasks", run / "random", CAUSAL, *ASKED, "-o", run / "out")
    assert code == 0
    assert {p: p.stat().st_mtime_ns for p in (run / "out").rglob("*.parquet")} == files
    assert "best at temperature" in " ".join(document["answer"])
    assert f"strop study conditional {run / 'out/tasks/sums'}" in err


def test_modes_lie_apart_and_are_all_described(run: Path, call: Called) -> None:
    assert set(MODES) == set(PROTOCOLS)
    words = ("study", "tasks", run / "random", "--task", "sums", "--temperature", "0")
    code, document, _ = call(*words, "--limit", 2, "--protocol", "parallel", "-o", run / "out")
    assert code == 0
    assert (run / "out/tasks/sums-parallel/strop.json").exists()
    [row] = document["rows"]
    assert row["sampler"]["settings"]["commit"] == "threshold"
    assert row["sampler"]["settings"]["block_length"] == 24


def test_the_papers_numbers_stand_in_the_rows_of_its_models(run: Path) -> None:
    """A full run's checkpoints stand for the paper's; a smoke run's for nobody's."""
    rows = [
        {"task": task, "model": model, "source": source, "filter": "strict", "temperature": t,
         "accuracy": Interval(0.5, 0.4, 0.6)}
        for task in ("gsm8k", "humaneval")
        for model, source in (("mine", "runs/mine"), ("other", "runs/other"))
        for t in (0.0, 1.0)
    ]  # fmt: skip
    result = Result({}, Table("x", STUDY.run.__globals__["COLUMNS"], rows))
    item = next(one for one in STUDY.items if one.id == "large-models")
    roles = {"runs/mine": "LLaDA-8B-Instruct", "runs/other": "Dream-v0-Base-7B"}
    full = item.beside(result, STUDY.ask(run / "x"), roles)
    greedy = {(r["task"], r["model"]): r for r in full.rows if r["temperature"] == 0}
    assert greedy["gsm8k", "LLaDA-8B-Instruct"]["paper"] == "80.9 (207 of 256)"
    assert greedy["gsm8k", "Dream-v0-Base-7B"]["paper"] == "75.4 (193 of 256)"
    assert greedy["humaneval", "LLaDA-8B-Instruct"]["paper"] == "40.2 (66 of 164)"
    assert greedy["humaneval", "Dream-v0-Base-7B"]["paper"] == "51.2 (84 of 164)"
    assert all(row["measured"] == Interval(50, 40, 60) for row in full.rows)
    assert len(full.rows) == len(rows)
    small = item.beside(result, STUDY.ask(run / "x", smoke=True), roles)
    assert all((row["paper"] is None) != (row["measured"] is None) for row in small.rows)


def test_the_control_has_the_ends_of_its_range(run: Path) -> None:
    item = next(one for one in STUDY.items if one.id == "large-models-control")
    names = list(item.sources)
    rows = [
        {"task": "humaneval", "model": name, "source": name, "filter": "program",
         "temperature": 0.0, "accuracy": Interval(level, level, level)}
        for name, level in zip(names, (0.3, 0.2, 0.5, 0.4), strict=True)
    ]  # fmt: skip
    result = Result({}, Table("x", (), rows))
    found = item.beside(result, STUDY.ask(run / "x"), {name: name for name in names})
    told = {
        row["model"]: (row["paper"], row["measured"].value) for row in found.rows if row["measured"]
    }
    assert told["lowest of the four"] == ("23.8 (39 of 164)", 20)
    assert told["highest of the four"] == ("56.7 (93 of 164)", 50)
    assert item.values["task_temperature"]["humaneval"][-1] == 1
    settings = paper.table("large-models-control").settings
    assert list(item.sources) == settings["models"]
    known = {one.source for one in known_models()}
    assert {*item.sources.values(), *DIFFUSION.values()} <= known


def test_the_control_in_small(call: Called, tmp_path: Path) -> None:
    words = ("reproduce", "large-models-control", "--smoke", "--limit", 1, "-o", tmp_path / "out")
    code, document, _ = call(*words)
    assert code == 0
    told = [(row["task"], row["model"], row["temperature"]) for row in document["rows"]]
    assert told[:2] == [
        ("humaneval", "lowest of the four", 0.0),
        ("humaneval", "highest of the four", 0.0),
    ]
    assert told[2:] == [("sums", "sums-ar", t) for t in (0.0, 0.5, 1.0, 1.5, 2.0)]
    assert any("Chosen here" in note for note in document["result"]["notes"])
    assert (tmp_path / "out/tasks.png").exists()


def synthetic(tasks: tuple[str, ...], models: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {"task": task, "model": model, "temperature": t, "accuracy": Interval(0.8 - 0.3 * t),
         "error": 0.02 if t else None}
        for task in tasks
        for model in models
        for t in (0.0, 1.0, 2.0)
    ]  # fmt: skip


@pytest.mark.parametrize("tasks", [("sums",), ("gsm8k", "humaneval")])
def test_a_panel_per_task_and_a_line_per_model(tasks: tuple[str, ...], tmp_path: Path) -> None:
    rows = synthetic(tasks, ("one", "two", "three", "four", "five", "six"))
    figure = curves(rows)
    assert len(figure.axes) == len(tasks)
    for axes in figure.axes:
        lines: list[Any] = list(axes.containers)
        assert len(lines) == 6
        assert lines[0].lines[0].get_ydata().tolist() == pytest.approx([80, 50, 20])
        assert [one.get_text() for one in axes.get_xticklabels()] == ["0", "1", "2"]
    path = tmp_path / "figure.svg"
    write_figure(lambda: curves(rows), [path])
    content = path.read_text()
    assert all(f"<!-- {name}" in content for name in ("one", "six", "temperature"))


def test_what_cannot_be_asked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="task called"):
        STUDY.ask(tmp_path, [CAUSAL], task=("sumz",))
    with pytest.raises(UserError, match="task called"):
        STUDY.ask(tmp_path, [CAUSAL], task_temperature={"nope": (0.0,)})
    assert STUDY.ask(tmp_path).sources == tuple(DIFFUSION.values())


def test_the_protocol_is_that_of_the_family() -> None:
    class Model:
        def __init__(self, family: str) -> None:
            self.spec = type("Spec", (), {"family": family})

    told: Any = protocol("baseline", Model("llada"), "gsm8k")  # type: ignore[arg-type]
    assert (told["steps"], told["settings"]["block_length"]) == ((256,), 32)
    told = protocol("cached", Model("dream"), "gsm8k")  # type: ignore[arg-type]
    assert told["sampler"] == "fast-dllm-dream"
    assert (told["steps"], told["settings"]["cache"]) == ((8,), "prefix")
    assert protocol("cached", Model("ar"), "gsm8k") == {"precision": "float32"}  # type: ignore[arg-type]
