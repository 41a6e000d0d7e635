"""Conditional GEQ of two task runs: pairing, labels, judges, and what is refused."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_tasks import CAUSAL, worse

sys.path.append(str(Path(__file__).parents[1] / "groupeval"))

from called import Called
from scripted_server import Action, serving

import strop
from strop.errors import UserError
from strop.groupeval import Series, judge_spec, list_series
from strop.groupeval.session import answer_series, pending
from strop.store import Run
from strop.tasks import TASKS, Answered, Results, TaskRun, run_task
from strop.tasks.humaneval import HUMANEVAL
from strop.tasks.sums import SUMS, answer_of
from strop.verbs.conditional import Answers, _text, judge_scores, judged, paired
from strop.verbs.entrants import DIFFUSION

DATA = re.compile(r'^\{"(?:task|id)": .*\}$', re.MULTILINE)

ONE = Answers(
    "one",
    "toy",
    "f0",
    ("q/0", "q/1", "q/2", "q/3"),
    tuple(f"What is {i} plus 1?" for i in range(4)),
    ("1", "7", "3", "9"),
    (True, False, True, False),
    "runs/one",
)
OTHER = replace(
    ONE,
    name="other",
    texts=("1", "2", "8", "8"),
    passed=(True, True, False, False),
    origin="runs/b",
)


def test_answers_pair_by_problem() -> None:
    assert paired(ONE, OTHER) == (ONE, OTHER)
    for change, words in (
        ({"task": "sums"}, "different tasks"),
        ({"fingerprint": "f1"}, "different problems"),
        ({"items": ONE.items[:3]}, "same problems"),
        ({"items": ONE.items[::-1]}, "same problems"),
        ({"name": "one"}, "same name"),
    ):
        with pytest.raises(UserError, match=words):
            paired(ONE, replace(OTHER, **change))


def test_labels_reach_the_score_and_never_the_judge(tmp_path: Path) -> None:
    """A judge that knows the sums is right about all labels, in either order of the two."""
    for pair in ((ONE, OTHER), (OTHER, ONE)):
        out = tmp_path / pair[0].name
        judged(pair, out, seed=3)
        [offline] = list_series(out)
        spec = judge_spec("offline", offline.profile).model_copy(update={"name": "knows"})
        series = Series.create(out, spec)
        seen = []

        def answer(labels, texts, task, seen=seen):
            seen.append((tuple(texts), task))
            right = str(int(task.split()[2]) + 1)
            outputs = [
                {"id": name, "valid": True, "readability": 2, "reasoning": 2,
                 "success": 2 * (text == right), "nondegeneration": 2}
                for name, text in zip(labels, texts, strict=True)
            ]  # fmt: skip
            return json.dumps({"outputs": outputs, "confidence": "high"})

        with series.writing():
            answer_series(series, pending(series), answer)
        assert sorted(task for _, task in seen) == sorted(ONE.questions)
        found = judged(pair, out, seed=3)  # again: from the journals, nothing is asked twice
        assert set(found) == {"knows", "offline-v1/counts"}
        told = judge_scores(pair, "knows", found["knows"], seed=0)
        assert told["generators"] == [one.name for one in pair]
        assert told["auroc"].value == 1
        assert told["success"] == [0.5, 0.5]
        assert told["n_pairs"] == {"both": 1, "only_first": 1, "only_second": 1, "neither": 1}
        assert told["n_preferred"] == {"right": 2, "tied": 0, "wrong": 0}
        frozen = json.dumps(json.loads((out / "plan.json").read_text()))
        assert "one" not in frozen.split('"')
        assert "passed" not in frozen


# ---------------------------------------------------------------- from end to end


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sums of the causal model and of a worse one, in one run and in two."""
    place = tmp_path_factory.mktemp("runs")
    bad = worse(place / "worse")
    run_task("sums", [CAUSAL, bad], place / "both", temperatures=(0,), limit=8)
    run_task("sums", [bad], place / "worse-run", temperatures=(0,), limit=8)
    return place


def test_two_checkpoints_of_one_run(runs: Path, call: Called) -> None:
    out = runs / "judged"
    code, document, err = call("study", "conditional", runs / "both", "-o", out)
    assert code == 0
    [row] = document["rows"]
    assert (row["judge"], row["task"], row["judged"]) == ("offline-v1/counts", "sums", 8)
    found = Results.of(TaskRun.open(runs / "both"))
    rates = [found.greedy(label).accuracy("last").value for label in ("sums-ar", "worse")]
    assert row["success"] == rates
    pairs = document["tables"]["pairs"]["rows"][0]
    assert sum(pairs[k] for k in ("both", "only_first", "only_second", "neither")) == 8
    assert pairs["both"] + pairs["only_first"] == round(8 * rates[0])
    assert pairs["right"] + pairs["tied"] + pairs["wrong"] == row["discordant"]
    assert [r["task"] for r in document["tables"]["paper"]["rows"]] == ["gsm8k", "humaneval"]
    assert any("cannot check an answer" in note for note in document["notes"])
    assert f"strop groupeval judge {out / 'groupeval/sums'}" in err
    # What was judged: questions and responses, cut at their ends, nothing of labels or names.
    [series] = list_series(out / "groupeval/sums")
    texts = series.texts("sums-ar")
    answered = found.greedy("sums-ar").answered()
    assert texts == [one.response for one in answered]
    sheet = series.plan.sheets[0]
    assert series.sheet_texts(sheet)[1] in [one.item.question for one in answered]
    # Again: the journal answers, nothing is asked twice.
    journal = (out / "groupeval/sums/series" / series.id / "calls.jsonl").read_bytes()
    assert call("study", "conditional", runs / "both", "-o", out)[1] == document
    assert (out / "groupeval/sums/series" / series.id / "calls.jsonl").read_bytes() == journal


def test_a_torn_journal_goes_on(runs: Path, call: Called) -> None:
    """As a kill in the middle of judging leaves it: half of the verdicts, and a torn line."""
    out, words = runs / "torn", ("study", "conditional", runs / "both", "-o", runs / "torn")
    whole = call(*words)[1]
    [series] = list_series(out / "groupeval/sums")
    lines = series.journal.path.read_bytes().splitlines(keepends=True)
    series.journal.path.write_bytes(b"".join(lines[:4]) + lines[4][:20])
    assert call(*words)[1] == whole
    assert len(series.journal.path.read_bytes().splitlines()) == len(lines)


def knows(body: dict[str, Any], _: int) -> Action:
    """A judge that counts for itself, from the question and the response alone."""
    lines = [json.loads(line) for line in DATA.findall(body["messages"][-1]["content"])]
    answers = {one.question: one.case["answer"] for one in SUMS.all_items()}
    right = int(answers[lines[0]["task"]])
    outputs = [
        {"id": one["id"], "valid": True, "readability": 2, "reasoning": 1,
         "success": 2 * (answer_of(one["text"]) == right), "nondegeneration": 2}
        for one in lines[1:]
    ]  # fmt: skip
    return Action(json.dumps({"outputs": outputs, "confidence": "high"}))


def test_a_served_judge_takes_part_as_far_as_it_is(runs: Path, call: Called) -> None:
    out, words = runs / "served", ("study", "conditional", runs / "both", "-o", runs / "served")
    assert call(*words)[0] == 0
    with serving(knows) as served:
        judge = ["groupeval", "judge", out / "groupeval/sums", "--base-url", served.url]
        judge += ["--model", "m"]
        assert call(*judge, "--max-calls", 4)[0] == 2
        rows = {row["judge"]: row for row in call(*words)[1]["rows"]}
        assert 0 < rows["m"]["judged"] < rows["offline-v1/counts"]["judged"] == 8
        assert any("m has judged" in note for note in call(*words)[1]["notes"])
        assert call(*judge)[0] == 0
        assert len(served.requests) == 8  # one per condition, none twice
    document = call(*words)[1]
    rows = {row["judge"]: row for row in document["rows"]}
    assert rows["m"]["judged"] == 8
    assert rows["m"]["discordant"] > 0, "the worse model is not worse"
    assert [rows["m"][key]["value"] for key in ("auroc", "lead")] == [1, 2.5]
    [pairs] = [row for row in document["tables"]["pairs"]["rows"] if row["judge"] == "m"]
    assert pairs["right"] == rows["m"]["discordant"]


def test_sides_of_two_runs(runs: Path, call: Called) -> None:
    words = ("study", "conditional", f"{runs / 'both'}:worse", runs / "worse-run")
    code, document, _ = call(*words, "-o", runs / "same")
    assert code == 0
    assert document["models"] == ["both:worse", "worse-run:worse"]
    [row] = document["rows"]
    assert row["difference"]["value"] == 0
    assert row["discordant"] == 0
    assert row["lead"] is None


def test_checkpoints_answer_first(runs: Path, call: Called) -> None:
    words = ("study", "conditional", CAUSAL, runs / "worse", "--task", "sums", "--limit", 8)
    code, document, _ = call(*words, "-o", runs / "fresh")
    assert code == 0
    before = json.loads((runs / "judged/result.json").read_text())
    assert [row["cgeq"] for row in document["rows"]] == [row["cgeq"] for row in before["rows"]]


def test_the_paper_stands_beside(runs: Path, call: Called) -> None:
    """The check's counts share a row; what a judge said stands in a row of that judge."""
    names = zip(DIFFUSION, (CAUSAL, runs / "worse"), strict=True)
    words = [one for name, source in names for one in ("--checkpoint", f"{name}={source}")]
    words += ["--smoke", "--limit", 8, "-o", runs / "fresh"]
    code, document, _ = call("reproduce", "conditional", *words)
    assert code == 0
    told = {
        (r["task"], r["what"], r["judge"]): (r["paper"], r["measured"]) for r in document["rows"]
    }
    assert told["gsm8k", "right, A", "none"] == (207, None)
    assert told["sums", "right, A", "none"][1] in range(9)
    assert told["humaneval", "right, only B", "none"] == (30, None)
    [auroc, nothing] = told["gsm8k", "AUROC", "gpt-oss-120b (paper)"]
    assert [auroc[end] for end in ("value", "low", "high")] == [0.91, 0.87, 0.95]
    assert nothing is None
    [gap, _] = told["humaneval", "cGEQ, B minus A", "gpt-oss-120b (paper)"]
    assert [gap[end] for end in ("value", "low", "high")] == [0.27, -0.13, 0.65]
    assert told["humaneval", "AUROC, B", "gpt-oss-120b (paper)"] == ("above 0.85", None)
    assert ("sums", "AUROC, B", "offline-v1/counts") in told
    assert told["sums", "cGEQ, A", "offline-v1/counts"][0] is None


@pytest.fixture(scope="module")
def odd(runs: Path) -> Iterator[Path]:
    """Runs that cannot be compared: warm, short, begun, of another task."""
    run_task("sums", CAUSAL, runs / "warm", temperatures=(1,), seeds=1, limit=2)
    run_task("sums", CAUSAL, runs / "short", temperatures=(0,), limit=2)
    run_task("sums", CAUSAL, runs / "begun", temperatures=(0,), limit=3)
    begun = Run.open(runs / "begun/sums-ar")
    # As a kill leaves it: eight were asked for, three are there.
    specs = [cell.spec for cell in begun.cells()]
    Run.prepare(begun.path, {**begun.asked, "n": 8}, specs, grow=True)
    strop.register(replace(SUMS, name="other-sums"))
    run_task("other-sums", CAUSAL, runs / "other", temperatures=(0,), limit=8)
    yield runs
    TASKS.forget("other-sums")


@pytest.mark.parametrize(
    ("sources", "code", "words"),
    [
        ((), 1, "Two sides"),
        (("both", "worse-run"), 1, "3 checkpoints"),
        (("both:nobody", "worse-run"), 1, "nobody"),
        (("worse-run",), 1, "1 checkpoints"),
        (("both:worse", "warm"), 2, "no graded greedy answers of sums-ar"),
        (("both:worse", "short"), 1, "did not answer the same problems"),
        (("both:worse", "begun"), 2, "5 of 8 greedy answers of sums-ar are missing"),
        (("both:worse", "other"), 1, "different tasks"),
        (("both:worse", CAUSAL), 1, "a checkpoint"),
        (("both:worse", "odd"), 1, "not a task run"),
    ],
)
def test_what_does_not_pair(
    odd: Path, call: Called, sources: tuple[str, ...], code: int, words: str
) -> None:
    (odd / "odd").mkdir(exist_ok=True)
    places = [one if one == CAUSAL else odd / one for one in sources]
    found, document, _ = call("study", "conditional", *places, "-o", odd / "refused")
    assert found == code
    assert words in json.dumps(document)
    assert not (odd / "refused").exists()


def test_what_runs_have_already_is_not_asked(runs: Path, call: Called) -> None:
    for flag, value in (("--limit", 4), ("--task", "sums"), ("--filter", "strict")):
        words = ("study", "conditional", runs / "both", flag, value)
        code, document, _ = call(*words, "-o", runs / "refused")
        assert code == 1
        assert flag in json.dumps(document)


def test_programs_are_judged_as_they_ran() -> None:
    """The sanitised program; where there is none, what the model wrote."""
    item = HUMANEVAL.all_items()[0]
    good = Answered(item, "x", {"program": "def f(): return 1"}, {"program": "passed"})
    none = Answered(item, "no <|startoftext|>code", {"program": None}, {"program": "invalid"})
    assert _text(HUMANEVAL, good, "program") == "def f(): return 1"
    assert _text(HUMANEVAL, none, "program") == "no code"
    said = Answered(item, " 1 + 2<|pad|>\n", {"last": "3"}, {"last": "passed"})
    assert _text(SUMS, said, "last") == "1 + 2"
