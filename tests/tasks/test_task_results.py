"""Statistics by hand, outcome counts, what counts of a response, JSON and the figure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strop.errors import UserError
from strop.pool import Output
from strop.prompts import Canvas, Canvases
from strop.spec import CellSpec, CheckpointSpec, GeneratorSpec, SamplerSpec
from strop.stats.resample import wilson
from strop.store import Run
from strop.tasks import TASKS, Entrant, Filter, Item, Task, TaskRun, Verdict, paired
from strop.tasks.outcome import Results, paired_p
from strop.tasks.running import grade_cell
from strop.tasks.tables import (
    answer,
    checkpoint_table,
    document,
    draw,
    notes,
    setting_table,
    write_result,
)
from strop.verbs.study import Result

RIGHT, WRONG, NONE, EMPTY, LOST = "yes", "no", "?", "", "lost"
TEXTS = (EMPTY, RIGHT, WRONG, NONE, LOST)
END, PROBLEMS, LENGTH = 9, 4, 6


def _items() -> Sequence[Item]:
    return [Item(f"p/{i}", f"problem {i}", RIGHT) for i in range(PROBLEMS)]


def _found(item: Item, response: str) -> str | None:
    return None if response.strip() == NONE else response


def _check(item: Item, answer: str, box: object) -> Verdict:
    return Verdict("lost" if answer == LOST else "passed" if answer == RIGHT else "wrong")


@pytest.fixture
def task() -> Iterator[Task]:
    """Whether a response says yes; by a second filter everything with an answer is wrong."""
    one = Task(
        name="yes-or-no",
        summary="",
        source="",
        items=_items,
        filters=(Filter("first", _found), Filter("second", lambda *_: WRONG)),
        check=_check,
        wrong=lambda *_: {},
        length=LENGTH,
        version="1",
    )
    TASKS.add(one)
    yield one
    TASKS.forget(one.name)


def _entrant(label: str) -> Entrant:
    shape: dict[str, int | float | bool] = {"vocab_size": 10, "mask_id": 8, "length": 64}
    spec = CheckpointSpec(family="llada", sha256=f"{len(label):064x}", shape=shape)
    return Entrant(label, label, spec, False, "tokenizer", ("<end>",), (END,))


def _answer(
    task_run: TaskRun,
    entrant: Entrant,
    temperature: float,
    texts: Sequence[Sequence[str]],
    calls: Sequence[int] = (4, 4, 4, 4),
) -> None:
    """Responses [seeds][problems] of a checkpoint, as a sampler would have left them."""
    prompts = tuple(Canvas(f"p/{i}", (i, *[None] * LENGTH)) for i in range(PROBLEMS))
    canvases = Canvases(prompts)
    sampler = SamplerSpec(name="llada", steps=LENGTH, temperature=temperature)
    for seed, row in enumerate(texts):
        generator = GeneratorSpec(
            checkpoint=entrant.checkpoint, sampler=sampler, length=LENGTH, prompts=canvases.spec
        )
        spec = CellSpec(generator=generator, seed=seed)
        asked = {"checkpoint": entrant.source, "n": len(row), "seed": 0}
        run = Run.prepare(task_run.path / entrant.label, asked, [spec], grow=True)
        run.keep_prompts(canvases, [None] * PROBLEMS)
        cell = run.cell(spec.id)
        cell.add(_output(i, text, temperature, calls[i]) for i, text in enumerate(row))
        cell.merge()
        grade_cell(cell, task_run.task, entrant, None)


def _output(index: int, text: str, temperature: float, calls: int) -> Output:
    """Three tokens and an end; hot ones never end. A call takes an eighth of a second."""
    ended = temperature < 2
    ids = np.array([1, 2, 3, END, 4, 5] if ended else [1, 2, 3, 4, 5, 6], np.int64)
    words = f"{text}<end>and on" if ended else text
    return Output(
        index, ids, calls, calls / 8, 0, np.zeros_like(ids), text=words, prompt=f"p/{index}"
    )


@pytest.fixture
def found(task: Task, tmp_path: Path) -> Results:
    task_run = TaskRun.make(tmp_path / "run", task, LENGTH, force=False)
    for label, cold in (("a", [RIGHT, RIGHT, RIGHT, WRONG]), ("bb", [WRONG, NONE, EMPTY, RIGHT])):
        task_run, entrant = task_run.enter(_entrant(label))
        _answer(task_run, entrant, 0, [cold])
        if label == "a":
            seeds = [[RIGHT, WRONG, WRONG, WRONG], [RIGHT, RIGHT, NONE, EMPTY], [RIGHT] * 4]
            _answer(task_run, entrant, 1, seeds)
            _answer(task_run, entrant, 2, [[LOST, RIGHT, WRONG, RIGHT]])
    return Results.of(task_run)


def test_accuracy_seed_mean_and_standard_error(found: Results) -> None:
    _, warm, _, _ = found.settings
    assert warm.by_seed("first").tolist() == [0.25, 0.5, 1.0]
    assert warm.accuracy("first").value == pytest.approx(7 / 12)
    # Standard deviation of 1/4, 1/2, 1 with n - 1, over the root of three.
    spread = np.sqrt(((np.array([3, 6, 12]) / 12 - 7 / 12) ** 2).sum() / 2 / 3)
    assert warm.standard_error("first") == pytest.approx(spread)
    assert found.settings[0].standard_error("first") is None
    assert warm.accuracy("second").value == 0


def test_the_interval_is_over_problems_with_their_seeds(found: Results) -> None:
    warm = found.settings[1]
    shares = warm.by_problem("first")
    assert shares.tolist() == pytest.approx([1, 2 / 3, 1 / 3, 1 / 3])
    got = warm.accuracy("first")
    # Twelve answers to four problems are worth as many as have the problems' variance: 12 at most.
    worth = 7 / 12 * 5 / 12 / (shares.var(ddof=1) / 4)
    assert 4 < worth < 12
    assert got.ends == pytest.approx(wilson(7 / 12, worth).ends)
    assert (got.n, got.how) == (4, "Wilson")
    # A single seed is worth its problems.
    assert found.settings[0].accuracy("first").ends == pytest.approx(wilson(3 / 4, 4).ends)


def test_pass_at_k_is_over_the_seeds_of_a_problem(found: Results) -> None:
    """Of three answers 3, 2, 1 and 1 are right: of two of them one is, in 1, 1, 2/3 and 2/3."""
    cold, warm, *_ = found.settings
    assert warm.pass_at(1, "first").value == pytest.approx(7 / 12)
    two = warm.pass_at(2, "first")
    assert two.value == pytest.approx((1 + 1 + 2 / 3 + 2 / 3) / 4)
    assert two.n == 4
    assert warm.pass_at(3, "first").value == 1
    with pytest.raises(UserError, match="fewer answers"):
        warm.pass_at(4, "first")
    row = setting_table(found).rows[1]
    assert row["pass_at"]["2"] == two
    assert "pass_at" not in setting_table(found).rows[0]
    assert cold.pass_at(1, "first") == cold.accuracy("first")


def test_differences_have_an_exact_p(found: Results) -> None:
    cold, warm, _, other = found.settings
    assert paired_p(other, cold, "first") == pytest.approx(2 * 5 / 16)  # one better, three worse
    assert paired_p(warm, cold, "first") == 1.0  # shares +0, -1/3, -2/3, +1/3
    assert setting_table(found).rows[1]["p"] == 1.0
    table = checkpoint_table(found)
    assert table is not None
    assert table.rows[0]["p"] == pytest.approx(2 * 5 / 16)


def test_paired_differences_are_over_the_same_problems(found: Results) -> None:
    cold, warm, hot, other = found.settings
    assert paired(warm, cold, "first").value == pytest.approx(7 / 12 - 3 / 4)  # pyright: ignore[reportOptionalMemberAccess]
    # The lost verdict leaves three problems: 1, 2 and 3.
    assert hot.index.tolist() == [1, 2, 3]
    assert paired(hot, cold, "first").value == pytest.approx(2 / 3 - 2 / 3)  # pyright: ignore[reportOptionalMemberAccess]
    # Problem by problem -1, -1, -1, +1: the difference's own interval, by all its resamples.
    difference = paired(other, cold, "first")
    assert difference is not None
    assert difference.value == -0.5
    assert (difference.low, difference.high) == (-1.0, 0.5)


def test_outcomes_are_counted_apart(found: Results) -> None:
    _, warm, hot, other = found.settings
    assert dict(warm.counts("first")) == {"passed": 7, "wrong": 3, "invalid": 1, "empty": 1}
    assert dict(other.counts("first")) == {"passed": 1, "wrong": 1, "invalid": 1, "empty": 1}
    assert hot.ungraded == 1
    row = setting_table(found).rows[3]
    assert (row["empty"], row["invalid"], row["failed"]) == (1, 1, 0)


def test_a_lost_verdict_is_asked_for_again(found: Results, task: Task) -> None:
    hot = found.settings[2]
    cell = hot.grades[0].cell
    calm = Task(**{**vars(task), "check": lambda *_: Verdict("passed")})
    grade_cell(cell, calm, hot.entrant, None)
    again = Results.of(found.run).settings[2]
    assert again.ungraded == 0
    assert again.by_problem("first").tolist() == [1, 1, 0, 1]  # the other verdicts stay


def test_tokens_calls_and_ends(found: Results) -> None:
    cold, _, hot, _ = found.settings
    assert (cold.tokens, cold.calls, cold.seconds) == (4, 4, 0.5)
    assert cold.tokens_per_call == 1
    assert (cold.truncated, hot.truncated) == (0, 1)
    assert hot.tokens_per_call == 1.5


def test_what_comes_after_the_end_does_not_count(found: Results) -> None:
    told = found.greedy("a").answered()
    assert [one.response for one in told] == [RIGHT, RIGHT, RIGHT, WRONG]
    assert [one.passed("first") for one in told] == [True, True, True, False]
    assert told[0].answers == {"first": RIGHT, "second": WRONG}
    assert told[0].item.id == "p/0"


def test_every_row_says_what_it_is_compared_with(found: Results) -> None:
    rows = setting_table(found).rows
    assert [row["against"] for row in rows] == [None, 1, 1, None]
    assert [row["against"] for row in setting_table(found, against=4).rows] == [4, 4, 4, None]
    between = checkpoint_table(found)
    assert between is not None
    assert [(r["checkpoint"], r["minus"], r["difference"].value) for r in between.rows] == [
        ("bb", "a", -0.5)
    ]


def test_the_document_is_json_with_every_number(found: Results) -> None:
    told: dict[str, Any] = json.loads(json.dumps(document(found), allow_nan=False))
    assert told["filters"] == ["first", "second"]
    assert told["settings"][1]["by_seed_first"] == [0.25, 0.5, 1.0]
    assert told["settings"][1]["outcomes_first"]["empty"] == 1
    assert [one["label"] for one in told["checkpoints"]] == ["a", "bb"]


def test_the_figure_shows_every_row_of_both_filters(found: Results) -> None:
    figure = draw(setting_table(found))
    assert len(figure.axes) == 2
    bars: list[Any] = figure.axes[0].containers
    assert [len(one.lines[0].get_xdata()) for one in bars] == [3, 1]


def test_problems_that_not_all_seeds_have_answered_do_not_count(found: Results) -> None:
    cold = found.settings[0]
    assert notes(found)[-1].startswith("1 responses have no verdict")
    _answer(found.run, cold.entrant, 2, [[LOST, RIGHT, WRONG, RIGHT], [WRONG, RIGHT]])
    again = Results.of(found.run)
    assert again.settings[2].index.tolist() == [1]
    assert any("only those of all seeds" in one for one in notes(again))


def test_other_checkpoints_are_told(found: Results) -> None:
    from strop.errors import UserError

    with pytest.raises(UserError, match="no graded responses of 'nobody'"):
        found.greedy("nobody")


def test_the_result_holds_what_the_tables_say(found: Results) -> None:
    write_result(found)
    told = json.loads((found.run.path / "result.json").read_text())
    result, between = Result.read(told), checkpoint_table(found)
    assert between is not None
    assert told["study"] == "task run"
    assert result.table.rows == [dict(row) for row in setting_table(found).rows]
    assert result.more["between"].rows == [dict(row) for row in between.rows]
    assert result.notes == tuple(notes(found))
    assert result.asked == {
        "checkpoints": ["a", "bb"],
        "task": "yes-or-no",
        "fingerprint": found.task.fingerprint,
        "length": LENGTH,
    }
    lines = (found.run.path / "table.csv").read_text().splitlines()
    assert len(lines) == 1 + len(found.settings)


def test_the_page_shows_the_result_and_counts_nothing_itself(found: Results) -> None:
    from strop.page import gather

    assert gather([found.run.path]).studies == ()
    write_result(found)
    file = found.run.path / "result.json"
    told = json.loads(file.read_text())
    told["rows"][0]["accuracy_first"] |= {"value": 0.125, "low": 0.0, "high": 0.25}
    file.write_text(json.dumps(told))
    [part] = gather([found.run.path]).studies
    assert part.name == "task-yes-or-no"
    assert part.result.table.rows[0]["accuracy_first"].value == 0.125
    assert part.record is not None
    assert part.record.title == "Accuracy against temperature"
    assert part.record.draw is not None
    assert part.record.draw(part.result).axes


def test_a_run_that_is_started_anew_has_no_result(found: Results) -> None:
    write_result(found)
    TaskRun.make(found.run.path, found.task, LENGTH, force=True)
    assert not any((found.run.path / name).exists() for name in ("result.json", "table.csv"))


def test_costs_stand_beside_their_own_verdicts(task: Task, tmp_path: Path) -> None:
    """Also where the verdict of one in between was lost."""
    task_run = TaskRun.make(tmp_path / "run", task, LENGTH, force=False)
    task_run, entrant = task_run.enter(_entrant("a"))
    _answer(task_run, entrant, 0, [[RIGHT, LOST, WRONG, RIGHT]], calls=(1, 2, 4, 8))
    [setting] = Results.of(task_run).settings
    [grades] = setting.grades
    assert grades.index.tolist() == [0, 2, 3]
    assert grades.passed("first").tolist() == [1, 0, 1]
    assert grades.columns["calls"].tolist() == [1, 4, 8]
    assert grades.columns["seconds"].tolist() == [1 / 8, 4 / 8, 8 / 8]
    assert (setting.calls, setting.ungraded) == (pytest.approx(13 / 3), 1)


def test_the_answer_names_the_best_and_who_may_be_as_good(found: Results) -> None:
    words = answer(found)
    assert words.startswith("a with llada (float64), 6 steps at temperature 0 is right in 75.0% [")
    assert words.endswith(
        "] of 4 problems, with 4 calls an answer: the most of 4 settings, but 3 of the others "
        "cannot be told from it."
    )
    alone = replace(found, settings=found.settings[:1])
    assert answer(alone).endswith("of 4 problems, with 4 calls an answer.")
    assert document(found)["answer"] == [words]


@pytest.mark.parametrize(("right", "sure"), [(40, True), (6, False)])
def test_the_best_is_surely_better_only_after_every_pair_is_counted(
    right: int, sure: bool, monkeypatch: pytest.MonkeyPatch, found: Results
) -> None:
    """Three settings, three pairs: 2 x 2^-6 = .031 is no proof, though it is below .05."""
    import strop.tasks.tables as tables

    chance = 2.0 * 0.5**right
    monkeypatch.setattr(tables, "paired_p", lambda *_: chance)
    words = answer(replace(found, settings=found.settings[:3]))
    assert ("surely more often than each of the 2 other settings" in words) is sure


def test_the_cheapest_of_the_equals_is_named(task: Task, tmp_path: Path) -> None:
    task_run = TaskRun.make(tmp_path / "run", task, LENGTH, force=False)
    task_run, entrant = task_run.enter(_entrant("a"))
    _answer(task_run, entrant, 0, [[RIGHT] * 4], (6, 6, 6, 6))
    _answer(task_run, entrant, 1, [[RIGHT, RIGHT, RIGHT, WRONG]], (2, 2, 2, 2))
    words = answer(Results.of(task_run))
    assert "at temperature 0 is right in 100.0% [51.0, 100.0]" in words
    assert words.endswith(
        "the cheapest of them a with llada (float64), 6 steps at temperature 1 with 2 calls."
    )
