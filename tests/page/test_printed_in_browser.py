"""What programs printed, from the verdict to the results, a merged copy and the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from chromium import Watched, chromium

from strop.page import gather, render
from strop.pool import Output
from strop.prompts import Canvas, Canvases
from strop.spec import CellSpec, CheckpointSpec, GeneratorSpec, SamplerSpec
from strop.store import Cell, Run
from strop.tasks import TASKS, Filter, Task, Verdict, results
from strop.tasks.outcome import Entrant, TaskRun
from strop.tasks.running import grade_cell
from strop.tasks.tables import write_result
from strop.tasks.task import Item

EVIL = (
    "<img src=x onerror=\"document.title='owned'\"> \u202eevil\n</script><script>alert(1)</script>"
)
LENGTH, PROBLEMS = 4, 3


def _items() -> Sequence[Item]:
    return [Item(f"p/{i}", f"problem {i}", "yes") for i in range(PROBLEMS)]


def _check(item: Item, answer: str, box: object) -> Verdict:
    if answer == "quiet":
        return Verdict("passed")
    return Verdict("wrong", f"detail of {item.id}", printed=f"{item.id} {EVIL}")


@pytest.fixture
def graded(tmp_path: Path) -> Iterator[tuple[TaskRun, Cell]]:
    """Three programs: the first says nothing."""
    task = Task(
        name="talks",
        summary="",
        source="",
        items=_items,
        filters=(Filter("program", lambda _, response: response),),
        check=_check,
        wrong=lambda *_: {},
        length=LENGTH,
        sandboxed=True,
        version="1",
    )
    TASKS.add(task)
    task_run = TaskRun.make(tmp_path / "run", task, LENGTH, force=False)
    shape: dict[str, Any] = {"vocab_size": 10, "mask_id": 8, "length": 64}
    spec = CheckpointSpec(family="llada", sha256=f"{1:064x}", shape=shape)
    task_run, entrant = task_run.enter(Entrant("a", "a", spec, False, "tokenizer", (), (9,)))
    canvases = Canvases(tuple(Canvas(f"p/{i}", (i, *[None] * LENGTH)) for i in range(PROBLEMS)))
    sampler = SamplerSpec(name="llada", steps=LENGTH)
    cell_spec = CellSpec(generator=GeneratorSpec.of(spec, sampler, LENGTH, canvases.spec), seed=0)
    asked = {"checkpoint": "a", "n": PROBLEMS, "seed": 0}
    run = Run.prepare(task_run.path / "a", asked, [cell_spec], grow=True)
    run.keep_prompts(canvases, [None] * PROBLEMS)
    cell = run.cell(cell_spec.id)
    ids = np.arange(LENGTH)
    cell.add(
        Output(i, ids, 1, 0.1, 0, np.ones(LENGTH, np.int32), text=text, prompt=f"p/{i}")
        for i, text in enumerate(["quiet", "loud", "loud"])
    )
    box: Any = SimpleNamespace(level="bubblewrap")
    grade_cell(cell, task, entrant, box)
    yield task_run, cell
    TASKS.forget(task.name)


def test_results_have_it_and_older_ones_read_without(graded: tuple[TaskRun, Cell]) -> None:
    task_run, cell = graded
    (setting,) = results(task_run.path).settings
    told = [one.said for one in setting.answered()]
    assert told[0] == {}
    for i, one in enumerate(told[1:], 1):
        assert one == {"program": {"printed": f"p/{i} {EVIL}", "detail": f"detail of p/{i}"}}
    (file,) = cell.path.glob("scores/*.jsonl")
    (metric,) = [one.metric for one in cell.scores().values()]
    assert file.stem == metric.id
    cell.add_words(metric, {0: {"program": {"printed": "late", "detail": ""}}})
    assert sorted(cell.words(metric)) == [0, 1, 2]
    assert cell.words(metric)[2] == told[2]
    file.unlink()
    (setting,) = results(task_run.path).settings
    assert [dict(one.said) for one in setting.answered()] == [{}, {}, {}]
    assert [one.passed("program") for one in setting.answered()] == [True, False, False]
    file.write_text('{"index": 0')
    with pytest.raises(Exception, match="damaged"):
        setting.answered()


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_shows_it_as_text(
    graded: tuple[TaskRun, Cell], tmp_path: Path, width: int
) -> None:
    page = tmp_path / "page.html"
    write_result(results(graded[0].path))
    page.write_text(render(gather([graded[0].path])).html, "utf-8")
    with chromium() as context:
        watched = Watched(context, page, {"width": width, "height": 800})
        watched.page.wait_for_selector(".answer")
        shown = watched.page.locator(".answer").all_inner_texts()
        assert ["The program printed" in one for one in shown] == [False, True, True]
        assert "detail of p/1" in shown[1]
        assert "<img src=x onerror" in shown[1]
        assert "<script>alert(1)</script>" in shown[1]
        assert "\u202e" not in shown[1]
        assert watched.page.locator(".answer img").count() == 0
        assert watched.page.title() != "owned"
        wide = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert watched.page.evaluate(wide) <= 0
        watched.page.locator("#answers").screenshot(path=str(tmp_path / "answers.png"))
        assert watched.wrong == []
        assert watched.asked == []
