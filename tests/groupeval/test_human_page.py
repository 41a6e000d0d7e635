"""The page for people in a real browser: what is answered is kept, whatever else happens."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_runs import planned, pools

from strop.groupeval.human import human_page, import_answers
from strop.groupeval.series import open_plan

pytestmark = pytest.mark.browser

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return planned(tmp_path / "run", pools(), controls=1)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    sync = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not found:
        pytest.skip("no Chromium: apt-get install chromium, or set CHROMIUM=/path/to/chromium")
    with sync.sync_playwright() as play:
        started = play.chromium.launch(executable_path=found, headless=True, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    """A profile of its own: what a test's tabs hold, no other test's see."""
    context = chromium.new_context(accept_downloads=True)
    yield context
    context.close()


def opened(browser: Any, path: Path) -> Any:
    page = browser.new_page()
    page.goto(path.as_uri())
    return page


@pytest.fixture
def page_file(run: Path, tmp_path: Path) -> Path:
    path = tmp_path / "page.html"
    path.write_text(human_page(run, first=3))
    return path


def grade(page: Any, text: int, name: str, value: int) -> None:
    card = page.locator("#texts .card").nth(text)
    card.get_by_label("Is it usable text?: Yes").check()
    card.get_by_label(f"{name}: {value}").check()


def until(page: Any, truth: str) -> None:
    """The page's policy forbids playwright's own waiting, which evaluates text."""
    for _ in range(500):
        if page.evaluate(truth):
            return
        page.wait_for_timeout(20)
    raise AssertionError(truth)


def kept(page: Any) -> dict[str, Any]:
    return page.evaluate("JSON.parse(localStorage.getItem(key))")


def test_grading_in_a_browser(run: Path, page_file: Path, browser: Any, tmp_path: Path) -> None:
    """Grade two groups with keys and clicks, reload in between, download, import."""
    page_file.write_text(human_page(run, first=2))
    page = browser.new_page()
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: said.append(request.url))
    page.goto(page_file.as_uri())
    plan, _ = open_plan(run)
    _grade_by_keys(page, modes="ABCDEFGH")
    page.click("#download")
    assert "name or initials" in page.locator("#message").inner_text()  # nobody's file
    page.fill("#name", "Béa")
    page.reload()
    assert page.locator("#done").inner_text() == "1 done"
    assert page.input_value("#name") == "Béa"
    page.click("#open")
    assert page.locator("#where").inner_text() == "Group 2 of 2"
    _grade_by_clicks(page)
    assert page.locator("#done").inner_text() == "2 done"
    with page.expect_download() as download:
        page.click("#download")
    answers_file = tmp_path / "download.json"
    download.value.save_as(answers_file)
    assert page.evaluate("window.broken") is None
    # Nothing but the page itself was asked for, and nothing went wrong in it.
    assert set(said) <= {page_file.as_uri()} | {u for u in said if u.startswith("blob:")}
    _fits_a_phone(page)
    done = import_answers(run, answers_file)
    assert (done.added, done.series.name) == (2, "Béa")
    first, second = (s for s in plan.sheets[:2])
    read = {(s.id): said for s, said in done.series.states(first.kind) if said}[first.id][0]
    assert [one.mode for one in read.outputs] == list("ABCDEFGH")
    assert {one.scores for one in read.outputs} == {(0, 1, 2, 1)}
    assert [one.hybrid for one in read.outputs] == [True] + [False] * 7
    assert read.confidence == "medium"
    read = {(s.id): said for s, said in done.series.states(second.kind) if said}[second.id][0]
    assert [one.valid for one in read.outputs] == [False] + [True] * 7
    assert {one.mode for one in read.outputs[1:]} == {"C"}
    assert read.confidence == "low"


def _grade_by_keys(page: Any, modes: str) -> None:
    page.locator("#texts fieldset input").first.focus()
    for position, mode in enumerate(modes):
        for pressed in ["y", "0", "1", "2", "1"]:
            page.keyboard.press(pressed)
        if position == 0:
            page.keyboard.press("m")  # mixed, from any question of the card
        page.keyboard.press(mode.lower())
    page.keyboard.press("m")  # the group as a whole: medium


def _grade_by_clicks(page: Any) -> None:
    cards = page.locator("#texts .card")
    cards.nth(0).get_by_label("No: invalid").check()
    for position in range(1, cards.count()):
        card = cards.nth(position)
        card.get_by_label("Is it usable text?: Yes").check()
        for name in ("Readability", "Coherence", "Substance", "Nondegeneration"):
            card.get_by_label(f"{name}: 2").check()
        card.get_by_label("Mode: C").check()
    page.get_by_label("Low").check()


def _fits_a_phone(page: Any) -> None:
    page.set_viewport_size({"width": 360, "height": 640})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_stale_tab_overwrites_nothing_but_its_own_answer(page_file: Path, browser: Any) -> None:
    one, two = opened(browser, page_file), opened(browser, page_file)
    # The second tab sleeps: it hears nothing of the first.
    two.evaluate("window.addEventListener('storage', e => e.stopImmediatePropagation(), true)")
    two.evaluate("pull = (original => () => window.awake ? original() : false)(pull)")
    for text in range(4):
        grade(one, text, "Coherence", 2)
    one.fill("#name", "anna")
    two.evaluate("window.awake = true")
    grade(two, 5, "Substance", 1)
    sheet = next(iter(kept(two)["sheets"].values()))
    grades = [output["grades"] for output in sheet["outputs"].values()]
    assert grades.count({"coherence": 2}) == 4
    assert grades.count({"substance": 1}) == 1
    assert kept(two)["name"] == two.input_value("#name") == "anna"
    one.reload()
    assert one.locator("input[aria-label='Coherence: 2']:checked").count() == 4
    assert one.locator("input[aria-label='Substance: 1']:checked").count() == 1


def test_a_tab_shows_what_another_one_answers(page_file: Path, browser: Any) -> None:
    one, two = opened(browser, page_file), opened(browser, page_file)
    grade(one, 0, "Readability", 1)
    two.wait_for_selector("input[aria-label='Readability: 1']:checked", state="attached")
    two.click("#next")
    grade(two, 0, "Readability", 2)
    until(one, "Object.keys(state.sheets).length === 2")
    assert one.locator("#where").inner_text() == "Group 1 of 3"  # where one is, is the tab's own
    one.wait_for_selector("input[aria-label='Readability: 1']:checked", state="attached")


def loaded(page: Any, path: Path, document: Any) -> str:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    page.locator("#message").evaluate("element => { element.textContent = ''; }")
    page.set_input_files("#load", path)
    until(page, "document.getElementById('message').textContent !== ''")
    return page.locator("#message").inner_text()


def downloaded(page: Any, path: Path) -> dict[str, Any]:
    with page.expect_download() as download:
        page.click("#download")
    download.value.save_as(path)
    return json.loads(path.read_text())


def test_a_file_is_checked_before_it_is_continued(
    page_file: Path, browser: Any, tmp_path: Path
) -> None:
    page = opened(browser, page_file)
    _grade_by_keys(page, modes="ABCDEFGH")
    page.fill("#name", "anna")
    saved = downloaded(page, tmp_path / "saved.json")
    before = kept(page)["sheets"]
    path = tmp_path / "file.json"
    wrong = [
        "{",
        "[]",
        "null",
        {**saved, "plan": "0" * 64},
        {**saved, "kind": "other"},
        {k: v for k, v in saved.items() if k not in ("draft", "replies")},
        {**saved, "draft": {"sheets": 3}, "replies": {"00000": 3}},
    ]
    for document in wrong:
        assert "cannot be continued" in loaded(page, path, document)
        assert kept(page)["sheets"] == before
    page.reload()
    assert page.locator("#done").inner_text() == "1 done"


def test_a_file_without_a_draft_is_continued_from_its_judgments(
    page_file: Path, browser: Any, tmp_path: Path
) -> None:
    page = opened(browser, page_file)
    _grade_by_keys(page, modes="ABCDEFGH")
    page.fill("#name", "anna")
    saved = downloaded(page, tmp_path / "saved.json")
    del saved["draft"]
    page.evaluate("localStorage.clear()")
    page.reload()
    assert page.locator("#done").inner_text() == "0 done"
    assert "1 groups" in loaded(page, tmp_path / "file.json", saved)
    for _ in range(2):
        assert page.locator("#done").inner_text() == "1 done"
        assert page.input_value("#name") == "anna"
        page.reload()
    again = downloaded(page, tmp_path / "again.json")
    assert again["replies"] == saved["replies"]


@pytest.mark.parametrize("accept", [True, False])
def test_answers_are_replaced_only_if_one_says_so(
    page_file: Path, browser: Any, tmp_path: Path, accept: bool
) -> None:
    page = opened(browser, page_file)
    _grade_by_keys(page, modes="ABCDEFGH")
    page.click("#next")
    grade(page, 0, "Readability", 0)
    page.fill("#name", "anna")
    saved = downloaded(page, tmp_path / "saved.json")
    page.click("#previous")
    grade(page, 0, "Readability", 2)  # newer than the file
    page.click("#next")
    page.click("#next")
    grade(page, 3, "Substance", 1)  # in no file
    asked: list[str] = []

    def answer(dialog: Any) -> None:
        asked.append(dialog.message)
        dialog.accept() if accept else dialog.dismiss()

    page.on("dialog", answer)
    loaded(page, tmp_path / "file.json", saved)
    assert len(asked) == 1
    assert "other answers to 1 of the 2 groups" in asked[0]
    first, _, third = kept(page)["sheets"].values()
    assert next(iter(first["outputs"].values()))["grades"]["readability"] == (0 if accept else 2)
    assert [o["grades"] for o in third["outputs"].values()].count({"substance": 1}) == 1


def test_what_the_browser_holds_and_cannot_be_read_is_put_aside(
    page_file: Path, browser: Any
) -> None:
    page = opened(browser, page_file)
    for broken in ("undefined", "{", '{"sheets": 3}', "null"):
        page.evaluate("raw => localStorage.setItem(key, raw)", broken)
        page.reload()
        grade(page, 0, "Readability", 1)
        page.reload()
        page.wait_for_selector("input[aria-label='Readability: 1']:checked", state="attached")
        assert page.evaluate("localStorage.getItem(key + ':unreadable')") == broken
        assert page.locator("#message").inner_text() == ""


def test_help_meanings_and_modes_are_at_hand(page_file: Path, browser: Any) -> None:
    page = opened(browser, page_file)
    assert page.locator("#help").get_attribute("open") is not None
    assert page.locator("#rules").is_visible()
    told = page.locator("#help").inner_text()
    assert "The cut itself is no fault." in told
    assert "`" not in told
    for text, mode in ((0, "A"), (3, "A"), (1, "C")):
        card = page.locator("#texts .card").nth(text)
        card.get_by_label("Is it usable text?: Yes").check()
        card.get_by_label(f"Mode: {mode}").check()
    assert page.locator("#modes").inner_text() == "Modes so far: A: texts 1, 4; C: text 2"
    page.locator("#texts .card").nth(0).get_by_label("Substance: 1").focus()
    meaning = page.locator("#meaning")
    assert "1 some content, but thin" in meaning.inner_text()
    assert meaning.is_visible()
    page.locator("#texts .card").nth(0).get_by_label("Is it usable text?: No: invalid").check()
    assert page.locator("#modes").inner_text() == "Modes so far: A: text 4; C: text 2"
    page.reload()
    assert page.locator("#help").get_attribute("open") is None  # the first visit only
    _fits_a_phone(page)


def test_what_would_turn_a_text_around_is_shown(browser: Any, tmp_path: Path) -> None:
    """A bidirectional override must not make people read another text than the model wrote."""
    texts = {"writer": [f"{i} plain \u202edesrever\u202c and \u200bhidden" for i in range(8)]}
    run = planned(tmp_path / "turned", texts)
    path = tmp_path / "turned.html"
    path.write_text(human_page(run))
    page = opened(browser, path)
    first = page.locator("#texts .card pre.text").first
    assert "\u202e" not in first.inner_text()
    assert first.locator(".unseen").all_inner_texts() == ["U+202E", "U+202C", "U+200B"]
