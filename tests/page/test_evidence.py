"""What the page says of judgments, answers, losses and two bits, against where it comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chromium import Watched, chromium
from synthetic import report

import strop
from strop.cli.main import run
from strop.groupeval import list_series
from strop.groupeval.verdict import Grade, GroupVerdict
from strop.page import gather, render
from strop.page.data import Report
from strop.page.evidence import apart, judged_groups, task_answers
from strop.page.live.ratings import Ratings
from strop.store import Run
from strop.tasks import results
from strop.theory.temperature import pair


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("judged")
    strop.sample("embedded:leaky", steps=8, temperature=(1.0, 0.7), n=16, out=out / "run")
    assert run(["groupeval", "plan", str(out / "run"), "-o", str(out / "groupeval")]) == 0
    judge = ["groupeval", "judge", str(out / "groupeval"), "--offline", "--features", "ngrams"]
    assert run(judge) == 0
    return out / "groupeval"


def test_groups_are_those_that_the_judge_read(judged: Path) -> None:
    told = judged_groups(str(judged), str.upper)
    assert told is not None
    (series,) = list_series(judged)
    verdicts = {(v.cell.upper(), v.partition, v.group): v for v in series.verdicts()}
    assert told["total"] == len(told["groups"]) == len(verdicts) == len(series.plan.groups)
    assert told["dimensions"] == list(series.profile.dimensions)
    for row in told["groups"]:
        verdict = verdicts[row["cell"], row["partition"], row["group"]]
        texts = series.texts(verdict.cell)
        assert row["texts"] == [[one.index, texts[one.index]] for one in verdict.outputs]
        (said,) = row["said"]
        assert said["grades"] == [
            [one.valid, list(one.scores), one.mode, one.hybrid] for one in verdict.outputs
        ]
        assert len(json.loads(said["reply"])["outputs"]) == len(verdict.outputs)
    assert judged_groups(str(judged / "nothing.jsonl"), str) is None


def verdict(modes: str, scores: list[int]) -> GroupVerdict:
    grades = tuple(
        Grade(i, True, (score, score), mode)
        for i, (mode, score) in enumerate(zip(modes, scores, strict=True))
    )
    return GroupVerdict("x", 0, 0, grades, "high")


def test_how_far_two_judges_are_apart() -> None:
    one = verdict("aab", [2, 1, 0])
    assert apart(one, one) == 0
    assert apart(one, verdict("xxy", [2, 1, 0])) == 0  # names of modes are the judge's own
    assert apart(one, verdict("aaa", [2, 1, 0])) == pytest.approx(2 / 3)  # two of three pairs
    assert apart(one, verdict("aab", [0, 1, 0])) == pytest.approx(1 / 3)  # 4 of 12 points
    assert apart(verdict("ab", [2, 2]), verdict("aa", [0, 0])) == 2
    # Ratings know no modes: only grades are compared then, of the texts that both have.
    grades = tuple(Grade(i, True, (score, score), None) for i, score in ((0, 0), (2, 0)))
    assert apart(one, GroupVerdict("x", 0, 0, grades, "high")) == pytest.approx(1 / 2)
    invalid = GroupVerdict("x", 0, 0, (Grade(0, False, (0, 0), None), *one.outputs[1:]), "high")
    assert apart(one, invalid) == pytest.approx(1 / 3 + 1 / 3)  # an invalid text has no mode


@pytest.fixture(scope="module")
def rated(judged: Path) -> Path:
    """The same with ratings of half of the outputs: 2 for the first generator, 0 and 1 else."""
    run = Run.open(judged.parent / "run")
    ratings = Ratings(run.path)
    for number, cell in enumerate(run.cells()):
        for index in range(8):
            ratings.rate(cell.id, index, 2 if number == 0 else index % 2)
    return run.path


def test_ratings_stand_beside_the_judge(judged: Path, rated: Path) -> None:
    found = gather([rated, judged], outputs=1)
    [told] = found.judgments
    assert told["judges"][1] == "ratings in run"
    assert len(told["judges"]) == 2
    names = [cell.name for cell in found.cells]
    seen = 0
    for row in told["groups"]:
        _, person = row["said"]
        if person is None:
            assert all(index >= 8 for index, _ in row["texts"])
            assert row["apart"] == {}
            continue
        for (index, _), grade in zip(row["texts"], person["grades"], strict=True):
            value = 2 if row["cell"] == names[0] else index % 2
            assert grade == (None if index >= 8 else [True, [value] * 4, None, False])
            seen += grade is not None
        assert set(row["apart"]) == {"0 1"}
    assert seen == 2 * 2 * 8  # every output is in a group of both partitions
    order = [max(row["apart"].values(), default=0.0) for row in told["groups"]]
    assert order == sorted(order, reverse=True)
    assert order[0] > 0
    [table] = found.agreement
    assert "16 outputs graded by both" in table.title
    judge, person = table.rows
    pair = f"{found.cells[1].plain_name} minus {found.cells[0].plain_name}"
    assert (judge["pair"], person["pair"]) == (pair, pair)
    assert all("temperature=" not in str(one.differences.rows) for one in found.series)
    assert any(one.differences.rows for one in found.series)
    assert (person["geq_a"], person["geq_b"], person["outputs"]) == (10.0, 2.5, 16)
    assert person["geq_difference"].value == -7.5
    assert person["geq_difference"].low < -7.5 < person["geq_difference"].high < 0
    [series] = list_series(judged)
    first = {
        (verdict.cell, one.index): sum(one.scores) / 8 * 10
        for verdict in series.verdicts()
        if verdict.partition == 0
        for one in verdict.outputs
        if one.index < 8
    }
    assert len(first) == 16
    of = [[v for (cell, _), v in first.items() if cell == name] for name in series.plan.cells]
    assert judge["geq_a"] == pytest.approx(sum(of[0]) / 8)
    assert judge["geq_b"] == pytest.approx(sum(of[1]) / 8)
    assert judge["geq_difference"].value == pytest.approx(sum(of[1]) / 8 - sum(of[0]) / 8)
    html = render(found).html
    assert "ratings in run" in html
    assert "Krippendorff" in html


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tasks") / "sums"
    asked = ["task", "run", "sums", "embedded:sums", "--limit", "8", "--temperature", "0,2"]
    assert run([*asked, "-o", str(out)]) == 0
    return out


def test_answers_are_those_that_were_graded(tasks: Path) -> None:
    told = task_answers(tasks)
    assert told is not None
    found = results(tasks)
    assert [one["n"] for one in told["settings"]] == [8, 24]  # greedy once, else three seeds
    wrong = 0
    for setting, one in zip(found.settings, told["settings"], strict=True):
        answers = [(seed, answer) for seed in setting.seeds for answer in setting.answered(seed)]
        for (seed, answer), row in zip(answers, one["rows"], strict=True):
            assert row["response"] == answer.response
            assert row["seed"] == (seed if len(setting.seeds) > 1 else None)
            assert row["answers"] == answer.answers
            assert row["outcomes"] == answer.outcomes
            problem = told["problems"][row["id"]]
            assert problem["question"] == answer.item.question
            assert problem["expected"] == answer.item.case["answer"]
            wrong += not answer.passed("last")
    assert 0 < wrong < 32  # else the test of "wrong only" would show nothing
    few = task_answers(tasks, most=10)
    assert few is not None
    assert [(one["n"], len(one["rows"])) for one in few["settings"]] == [(8, 8), (24, 10)]


# ---------------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as context:
        yield context


def opened(browser: Any, found: Report, path: Path) -> Watched:
    path.write_text(render(found).html, "utf-8")
    return Watched(browser, path)


def group(number: int, far: float, grades: list[Any], other: Any) -> dict[str, Any]:
    texts = [[i, f"text {number}.{i} <b>bold</b>\u202e"] for i in range(2)]
    said = [{"grades": grades, "confidence": "high", "reply": "<i>words</i>"}, other]
    return {
        "cell": "a <generator>", "partition": 0, "group": number, "texts": texts,
        "said": said, "apart": {"0 1": far},
    }  # fmt: skip


GRADES = [[True, [2, 1], "A", False], [False, [0, 0], None, False]]
OTHER = {"grades": [[True, [2, 2], "B", True], [True, [1, 1], "C", False]], "reply": ""}


@pytest.mark.browser
def test_judgments_of_two_judges(browser: Any, tmp_path: Path) -> None:
    failed = {"failed": "not_json", "detail": "it ends <early>", "reply": "{"}
    groups = [
        group(0, 1.5, GRADES, {**OTHER, "confidence": "low"}),
        group(1, 0.0, GRADES, failed),
        *(group(i, 0.0, GRADES, None) for i in range(2, 6)),
    ]
    told = {"judges": ["one", "<two>"], "dimensions": ["x", "y"], "groups": groups, "total": 9}
    watched = opened(browser, Report(title="judged", judgments=(told,)), tmp_path / "page.html")
    page = watched.page
    page.wait_for_selector(".judgment")
    assert "6 groups, those on which the judges agree least first" in page.inner_text("#judgments")
    assert "holds 6 of 9" in page.inner_text("#judgments")
    assert page.locator(".judgment").count() == 3
    first = page.locator(".judgment").first
    assert first.locator("tbody tr").count() == 2
    row = first.locator("tbody tr").first.inner_text()
    assert "text 0.0 <b>bold</b>U+202E" in row
    assert "mode A" in row
    assert "3 of 4" in row
    assert "mode B (hybrid)" in row
    assert "invalid" in first.locator("tbody tr").nth(1).inner_text()
    assert "1 modes, confidence high" in first.inner_text()
    first.locator("summary").first.click()
    assert first.locator("pre").inner_text() == "<i>words</i>"
    page.get_by_role("button", name="Show more").click()
    assert page.locator(".judgment").count() == 6
    page.get_by_label("Show", exact=True).select_option("apart")
    assert page.locator(".judgment").count() == 1
    page.get_by_label("Show", exact=True).select_option("failed")
    assert "no verdict (not_json). it ends <early>" in page.inner_text(".judgment")
    page.get_by_label("Beside").select_option("-1")
    assert page.locator(".judgment").count() == 0
    assert watched.wrong == []
    assert watched.asked == []
    page.close()


def focused(page: Any) -> str:
    """The text of the card that has the focus, if it is one and its focus can be seen."""
    return page.evaluate(
        "() => document.activeElement.matches('article.output:focus-visible')"
        " ? document.activeElement.querySelector('h3').textContent : ''"
    )


@pytest.mark.browser
def test_judgments_by_keyboard_alone(
    browser: Any, judged: Path, rated: Path, tmp_path: Path
) -> None:
    found = gather([rated, judged])
    rows = found.judgments[0]["groups"]
    assert len(rows) > 6
    watched = opened(browser, replace(found, answers=()), tmp_path / "page.html")
    page, press = watched.page, watched.page.keyboard.press
    page.wait_for_selector(".judgment")
    part = page.locator("#judgments")
    assert "ratings in run" in part.inner_text()
    part.get_by_label("Judge", exact=True).focus()  # Tab comes here; the rest is by keys
    for _ in range(4):
        press("Tab")
    titles = [
        f"{row['cell']}, group {row['group'] + 1} of partition {row['partition'] + 1}"
        for row in rows
    ]
    assert focused(page) == titles[0]
    for title in titles[1:5]:  # more than are shown at first
        press("j")
        page.wait_for_function(
            "title => document.activeElement.querySelector('h3')?.textContent === title", arg=title
        )
        assert focused(page) == title
    press("k")
    assert focused(page) == titles[3]
    # Through the texts of the group, and to another of the same mode.
    card = page.locator("article:focus")
    shown = next(row for row, title in zip(rows, titles, strict=True) if title == titles[3])
    grades = shown["said"][0]["grades"]
    press("Tab")  # the table, which scrolls
    press("Tab")
    at = "() => [...document.activeElement.parentElement.children].indexOf(document.activeElement)"
    assert page.evaluate(at) == 0
    press("ArrowDown")
    assert page.evaluate(at) == 1
    assert page.evaluate("() => document.activeElement.matches('tr:focus-visible')")
    press("Home")
    same = [
        i for i, one in enumerate(grades) if i and one[2] is not None and one[2] == grades[0][2]
    ]
    press("m")
    assert page.evaluate(at) == (same[0] if same else 0)
    assert card.count() <= 1
    # Only groups on which judge and person differ, one after the other.
    far = [t for row, t in zip(rows, titles, strict=True) if row["apart"].get("0 1", 0) > 0]
    for title in far[4:6]:
        press("w")
        page.wait_for_function(
            "title => document.activeElement.querySelector('h3')?.textContent === title", arg=title
        )
    press("?")
    told = page.locator("dialog.keys")
    assert "next text of the same mode" in told.inner_text()
    assert "rate the output" not in told.inner_text()  # a page in a file takes no ratings
    press("j")  # belongs to the list of keys now
    assert told.is_visible()
    press("Escape")
    told.wait_for(state="detached")
    assert watched.wrong == []
    page.close()


@pytest.mark.browser
def test_answers_by_keyboard_alone(browser: Any, tasks: Path, tmp_path: Path) -> None:
    found = gather([tasks])
    [told] = found.answers
    watched = opened(browser, found, tmp_path / "page.html")
    page, press = watched.page, watched.page.keyboard.press
    page.wait_for_selector(".answer")
    page.get_by_label("Setting", exact=True).focus()
    press("ArrowDown")  # the second setting, by its select
    rows = told["settings"][1]["rows"]
    wrong = [
        f"{row['id']}, seed {row['seed']}" for row in rows if row["outcomes"]["last"] != "passed"
    ]
    assert len(wrong) > 1
    while not focused(page):
        press("Tab")
    press("k")  # the first stays
    seen = [focused(page)] if "✗" in focused(page) else []
    for _ in wrong[len(seen) :]:
        press("w")
        seen.append(focused(page))
    assert [one.rpartition("· ")[2] for one in seen] == wrong
    assert all(one.startswith("✗") for one in seen)
    page.locator("#answers input[type=search]").focus()
    page.keyboard.type("wj?")  # letters, where one writes
    assert page.locator("dialog").count() == 0
    assert page.locator("#answers input[type=search]").input_value() == "wj?"
    assert watched.wrong == []
    page.close()


@pytest.mark.browser
def test_answers_wrong_only_and_search(browser: Any, tasks: Path, tmp_path: Path) -> None:
    watched = opened(browser, gather([tasks]), tmp_path / "page.html")
    page, found = watched.page, results(tasks)
    page.wait_for_selector(".answer")
    answers = [one for seed in range(3) for one in found.settings[1].answered(seed)]
    wrong = [one for one in answers if not one.passed("last")]
    part = page.locator("#answers")
    part.get_by_label("Setting").select_option("1")
    part.get_by_label("Show", exact=True).select_option("wrong")
    assert f"{len(wrong)} of 24 responses" in part.locator(".status").inner_text()
    while page.locator("#answers .more-of-list").is_visible():
        page.locator("#answers .more-of-list").click()
    assert page.locator(".answer").count() == len(wrong)
    assert page.locator(".answer h3").first.inner_text().startswith("✗ ")
    assert f"expected\n{wrong[0].item.case['answer']}" in page.locator(".answer").first.inner_text()
    part.get_by_label("Search").fill(wrong[0].item.question[:20].upper())
    assert 1 <= page.locator(".answer").count() <= len(wrong)
    part.get_by_label("Search").fill("no problem says this")
    assert page.locator(".answer").count() == 0
    assert watched.wrong == []
    page.close()


@pytest.mark.browser
def test_two_bits_are_those_of_the_theory(browser: Any, tmp_path: Path) -> None:
    base = replace(report(steps=(4,)), series=(), studies=(), audits=())
    watched = opened(browser, base, tmp_path / "page.html")
    page = watched.page
    page.wait_for_selector("#theory svg path")
    for s, c, lam in ((0.7, 0.5, 1.0), (0.7, 0.5, 2.3), (0.55, 0.1, 0.6), (0.95, 0.5, 8.0)):
        told = page.evaluate("([s, c, lam]) => strop.theory.pair(s, c, lam)", [s, c, lam])
        expected = pair(s, c, lam)
        for name in ("u", "t", "KL_out", "C_N", "lambda_star"):
            wanted = getattr(expected, name)
            assert told[name] == (wanted if wanted is None else pytest.approx(wanted, abs=1e-10))
    page.focus("#theory-temperature")
    before = page.inner_text("#theory .facts")
    for _ in range(30):
        page.keyboard.press("ArrowLeft")  # to 0.7
    now = page.inner_text("#theory .facts")
    found = pair(0.7, 0.5, 1 / 0.7)
    assert now != before
    assert f"agree {100 * found.t:.1f}% of the time, the data 70%." in now
    page.locator("#theory-rounds").evaluate(
        "at => { at.value = 4; at.dispatchEvent(new Event('input')) }"
    )
    star = pair(0.7, 0.25, 1.0).lambda_star
    assert star is not None
    assert f"exact at temperature {1 / star:.3g};" in page.inner_text("#theory .facts")
    assert watched.wrong == []
    page.close()
