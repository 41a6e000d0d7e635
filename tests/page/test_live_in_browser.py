"""The served page's outputs, ratings and player in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from chromium import Watched, chromium

import strop
from strop.store import Run

pytestmark = pytest.mark.browser
pytest.importorskip("starlette")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("served") / "run"
    strop.sample("embedded:leaky", steps=8, temperature=(1.0, 0.7), n=20, out=out)
    return Run.open(out)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as context:
        yield context


@pytest.fixture(scope="module")
def opened(browser: Any, drawn: Run) -> Iterator[Watched]:
    from served import served

    with served([drawn.path]) as address:
        page = browser.new_page()
        watched = Watched.__new__(Watched)
        watched.page, watched.wrong, watched.asked = page, [], []
        page.on("console", lambda message: watched.wrong.append(message.text))
        page.on("pageerror", lambda error: watched.wrong.append(str(error)))
        page.on("request", lambda request: watched.asked.append(request.url))
        page.goto(address + "0/")
        page.wait_for_selector("#pairs article.a")
        yield watched
        assert watched.wrong == []
        assert all(url.startswith((address, "data:")) for url in watched.asked)
        page.close()


def texts(run: Run, cell: int) -> list[Any]:
    return run.cells()[cell].table()["text"].to_pylist()


def test_outputs_are_fetched_a_few_at_a_time(opened: Watched, drawn: Run) -> None:
    opened.settled("Left: 20 of 20 outputs. Right: 20 of 20.")
    cards = opened.page.locator("#pairs article.a")
    assert cards.count() == 6
    for wanted in (12, 18, 20):
        opened.page.click("#more")
        opened.page.wait_for_function(
            "n => document.querySelectorAll('#pairs article.a').length === n", arg=wanted
        )
    shown = opened.page.locator("#pairs article.a .text").all_inner_texts()
    assert shown == texts(drawn, 0)
    assert opened.page.locator("#more").is_hidden()
    found = [one for one in texts(drawn, 0) if "Rose" in one]
    assert 0 < len(found) < 20
    opened.page.fill("#search", "rose")
    opened.settled(f"Left: {len(found)} of 20")
    opened.page.fill("#search", "")
    opened.settled("Left: 20 of 20")


def test_filters_hold_for_outputs_that_are_not_shown_yet(opened: Watched, drawn: Run) -> None:
    page, (left, right) = opened.page, (texts(drawn, 0), texts(drawn, 1))
    differ = [i for i in range(20) if left[i] != right[i]]
    again = [one for one in left if repeats(one, 3)]
    assert len(differ) > 6
    assert 0 < len(again) < 20
    page.select_option("#only", "different")
    opened.settled(f"Left: {len(differ)} of 20 outputs. Right: {len(differ)} of 20.")
    page.click("#more")
    page.wait_for_function("() => document.querySelectorAll('#pairs article.b').length > 6")
    assert opened.texts("a") == [left[i] for i in differ[:12]]
    assert opened.texts("b") == [right[i] for i in differ[:12]]
    page.select_option("#run", "3")
    page.select_option("#only", "repeats")
    opened.settled(f"Left: {len(again)} of 20")
    assert opened.texts("a") == again[:6]
    page.select_option("#only", "all")
    opened.settled("Left: 20 of 20")


def repeats(text: str, length: int) -> bool:
    words = text.split()
    runs = [tuple(words[i : i + length]) for i in range(len(words) - length + 1)]
    return len(set(runs)) < len(runs)


def test_ratings_by_key_last(opened: Watched, drawn: Run) -> None:
    page, cell = opened.page, drawn.cells()[0].id
    card = page.locator("#pairs article.a").nth(1)
    card.focus()
    for key, said in (("2", [2]), ("1", [2, 1]), ("1", [2, 1, None])):
        page.keyboard.press(key)
        journal = drawn.path / "ratings" / "journal.jsonl"
        page.wait_for_function(
            "words => document.querySelectorAll('#pairs .a .rated')[1].textContent === words",
            arg="taken back" if said[-1] is None else "kept",
        )
        page.wait_for_timeout(100)
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
        assert [(one["cell"], one["index"]) for one in lines] == [(cell, 1)] * len(said)
        assert [one["value"] for one in lines] == said
    card.get_by_role("button", name="0", exact=True).click()
    page.wait_for_function(
        "() => document.querySelectorAll('#pairs article.a .rated')[1].textContent === 'kept'"
    )
    page.reload()
    opened.settled("Left: 20 of 20")
    page.wait_for_function(
        "() => document.querySelectorAll('#pairs article.a [aria-pressed=true]').length === 1"
    )
    pressed = page.locator("#pairs article.a").nth(1).locator("[aria-pressed=true]")
    assert pressed.inner_text() == "0"


def test_an_address_and_the_player_reach_every_output(opened: Watched, drawn: Run) -> None:
    page, cell = opened.page, drawn.cells()[1]
    page.evaluate("hash => { location.hash = hash }", f"#output={cell.id}-17")
    opened.settled("Left: 1 of 20 outputs. Right: 1 of 20.")
    shown = page.locator("#pairs article.a .text").inner_text()
    assert shown == texts(drawn, 1)[17]
    page.locator("#pairs article.a").get_by_role("button", name="Unmask").click()
    page.wait_for_function(
        "() => document.querySelector('.unmask.a h3').textContent.startsWith('#17')"
    )
    tokens = page.locator(".unmask.a .token").all_text_contents()
    assert "".join(tokens) == texts(drawn, 1)[17]
    page.get_by_role("button", name="Show all").click()
    opened.settled("Left: 20 of 20")


def test_a_rating_that_does_not_arrive_is_told(browser: Any, drawn: Run) -> None:
    from served import served

    with served([drawn.path]) as address:
        page = browser.new_page()
        page.goto(address + "0/")
        page.wait_for_selector("#pairs article.a")
    page.locator("#pairs article.a").first.focus()
    page.keyboard.press("2")
    page.wait_for_function(
        "() => document.querySelector('#pairs .rated').textContent.startsWith('not kept')"
    )
    page.close()
