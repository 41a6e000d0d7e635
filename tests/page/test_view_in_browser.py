"""`strop view` in a headless Chromium: what changes by itself while folders are written."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from chromium import LAPTOP, PHONE, Watched, chromium

from made_runs import cell_spec, output, with_perplexity
from served import served
from strop.disk import locked
from strop.measure.frame import read_run
from strop.store import Cell, Run
from strop.store.folder import OUTPUTS
from strop.store.tables import ROWS, output_table, write_stream

pytest.importorskip("starlette")

from strop.page.live import server
from strop.page.live.ratings import Ratings
from strop.page.live.server import MANY

pytestmark = pytest.mark.browser

EVIL = "<img src=x onerror=\"document.title='owned'\"> \u202eevil"


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with chromium() as context:
        yield context


@pytest.fixture
def begun(tmp_path: Path) -> Run:
    """A run that was asked for forty outputs of each of two cells and holds four of one."""
    specs = [cell_spec(4), cell_spec(4, temperature=0.5)]
    asked = {"checkpoint": "made", "n": 40, "seed": 0, "length": 4, "samplers": [
        one.generator.sampler.model_dump(mode="json") for one in specs
    ]}  # fmt: skip
    run = Run.prepare(tmp_path / f"run {EVIL.replace('/', '')[:20]}", asked, specs)
    add(run, 0, 4)
    return run


def add(run: Run, first: int, until: int, cell: int = 0) -> None:
    """Outputs of a cell, as a session writes them."""
    outputs = [output(i, [1, 2, 3, i % 11], text=f"{i} {EVIL}") for i in range(first, until)]
    run.cells()[cell].add(outputs)


def opened(browser: object, address: str, size: dict[str, int] = LAPTOP) -> Watched:
    """A page, and whether anything was asked of another host is looked at in the end."""
    return Watched(browser, address, size)  # type: ignore[arg-type]


def quiet(watched: Watched, address: str) -> None:
    """Nothing went wrong, and nothing was asked of anybody else."""
    assert watched.wrong == []
    assert all(url.startswith((address, "data:")) for url in watched.asked), watched.asked
    assert watched.page.title() != "owned"
    watched.page.close()


def told(watched: Watched, words: str, within: str = "#under-way") -> None:
    """Wait until a part of the page says this."""
    watched.page.wait_for_function(
        "([within, words]) => document.querySelector(within)?.textContent.includes(words)",
        arg=[within, words],
    )


def test_a_page_follows_a_run(browser: object, begun: Run) -> None:
    cell = begun.cells()[0]
    with served([begun.path]) as address:
        page = opened(browser, address)
        told(page, "stopped")
        told(page, "4 of 80 outputs")
        told(page, "strop sample made")
        with cell.drawing():
            add(begun, 4, 20)
            told(page, "under way")
            told(page, "20 of 80 outputs")
            told(page, "20 of 20", "#status")  # the browser of outputs, without a click
        told(page, "stopped")
        add(begun, 20, 40)
        add(begun, 0, 40, cell=1)
        for one in begun.cells():
            one.merge()
            with_perplexity(one, [float(i) for i in range(40)], [2] * 40)
        page.page.evaluate("document.querySelector('h1').textContent = 'of an earlier page'")
        # The table of the settings is another now, and nobody loaded the page again.
        told(page, "Perplexity", "#corners")
        page.page.wait_for_function("document.getElementById('under-way').hidden")
        assert page.page.locator("#corners tbody td a").count() == 2
        assert page.page.locator("h1").inner_text() == "made"
        assert page.page.locator("nav a").count() > 1
        quiet(page, address)


def test_a_large_page_shows_outputs_first_and_is_gone_through_by_keys(
    browser: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More outputs than numbers are waited for: their page needs no number, and gets them later."""
    n, spec, numbers = MANY + 200, cell_spec(4), threading.Event()
    run = Run.prepare(tmp_path / "large", {"checkpoint": "made", "n": n}, [spec])
    add(run, 0, n)
    cell = run.cells()[0]
    cell.merge()
    monkeypatch.setattr(server, "read_run", lambda run: numbers.wait(120) and read_run(run))
    try:
        with served([run.path]) as address:
            page = opened(browser, address)
            told(page, f"{n} of {n}", "#status")
            assert page.page.locator("#numbers-come").is_visible()
            assert page.page.locator("#corners").count() == 0
            page.page.evaluate("window.notLoadedAgain = true")
            press = page.page.keyboard.press
            for _ in range(14):  # both sides in turn, and beyond the six that are shown
                press("j")
            at = "() => document.activeElement.querySelector('h3')?.textContent || ''"
            page.page.wait_for_function(f"() => ({at})().startsWith('#6')")
            press("2")
            page.page.wait_for_function("() => document.activeElement.textContent.includes('kept')")
            assert Ratings(run.path).now() == [(cell.id, 6, 2)]
            numbers.set()
            told(page, "Entropy", "#corners")
            page.page.wait_for_function("() => !document.getElementById('numbers-come')")
            assert page.page.locator("nav a").count() > 1
            assert page.page.evaluate("window.notLoadedAgain")
            page.page.wait_for_selector("#filter-column option[value='1']", state="attached")
            press("]")
            assert page.page.evaluate("document.activeElement.tagName") == "SECTION"
            quiet(page, address)
    finally:
        numbers.set()


def many(cell: Cell, n: int) -> None:
    """As many short outputs, column by column: one by one they would take minutes."""
    import pyarrow as pa

    ids = np.random.default_rng(0).integers(0, 11, (n, 4), np.int32)
    number = np.arange(n)
    text = np.char.add("text ", number.astype(str)).astype(object)
    text[-20:] += " of the last"
    sample = output_table([output(0, [0, 1, 2, 3])], cell.spec)
    rows = sample.take(pa.array(np.zeros(n, np.int64)))
    given = {
        "index": pa.array(number),
        "ids": pa.FixedSizeListArray.from_arrays(pa.array(ids.ravel()), 4),
        "text": pa.array(text, pa.string()),
    }
    for name, values in given.items():
        rows = rows.set_column(rows.column_names.index(name), name, values)
    parts = (rows.slice(first, ROWS) for first in range(0, n, ROWS))
    write_stream(cell.path / OUTPUTS, sample.schema, parts)


@pytest.mark.slow
def test_a_million_outputs_come_first_and_are_paged_to_the_last(
    browser: object, tmp_path: Path
) -> None:
    n, spec = 1_000_000, cell_spec(4)
    run = Run.prepare(tmp_path / "million", {"checkpoint": "made", "n": n}, [spec])
    [cell] = run.cells()
    many(cell, n)
    with served([run.path]) as address:
        page = opened(browser, address)
        page.page.set_default_timeout(300_000)
        told(page, f"Left: {n} of {n} outputs", "#status")
        assert page.page.locator("#numbers-come").is_visible()
        assert page.page.locator("#corners").count() == 0
        assert page.texts("a") == [f"text {i}" for i in range(6)]
        ask = (
            "(wish) => strop.fetched('outputs', wish).then((said) => [said.rows.length, said.next])"
        )
        wish = {"cell": cell.id, "n": 64, "search": "", "order": ""}
        ends = [page.page.evaluate(ask, {**wish, "after": after}) for after in (n - 100, n - 36)]
        assert ends == [[64, n - 36], [36, None]]
        page.page.fill("#search", "the last")
        told(page, f"Left: 20 of {n} outputs", "#status")
        for shown in (12, 18, 20):
            page.page.click("#more")
            page.page.wait_for_function(
                "n => document.querySelectorAll('#pairs article.a').length === n", arg=shown
            )
        assert page.page.locator("#more").is_hidden()
        assert page.texts("a") == [f"text {i} of the last" for i in range(n - 20, n)]
        page.page.evaluate("hash => { location.hash = hash }", f"#output={cell.id}-{n - 1}")
        told(page, f"Left: 1 of {n} outputs", "#status")
        assert page.texts("a") == [f"text {n - 1} of the last"]
        told(page, "Entropy", "#corners")
        quiet(page, address)


def test_a_lost_server_is_told_and_found_again(browser: object, begun: Run) -> None:
    with served([begun.path]) as address:
        page = opened(browser, address)
        told(page, "4 of 80 outputs")
    page.page.wait_for_selector("#under-way .warning:visible")
    told(page, "The server does not answer")
    page.page.close()


def test_a_training_run_draws_its_curve(browser: object, tmp_path: Path) -> None:
    path = tmp_path / "trained"
    path.mkdir()
    mark = {"kind": "training", "format": 1, "strop": "0", "owner": "train"}
    mark |= {"asked": {"name": EVIL, "steps": 100}}  # type: ignore[dict-item]
    (path / "strop.json").write_text(json.dumps(mark))

    def measured(step: int, loss: float) -> None:
        held = {"value": loss + 0.1, "low": loss, "high": loss + 0.2, "n": 9, "how": "bootstrap"}
        entries = [
            {"kind": "train", "step": step, "loss": loss},
            {"kind": "held_out", "step": step, "nats_per_token": held, "perplexity": held},
        ]
        with open(path / "metrics.jsonl", "a") as file:
            file.writelines(json.dumps(one) + "\n" for one in entries)

    measured(10, 4.0)
    with served([path]) as address:
        page = opened(browser, address)
        told(page, "10 of 100 steps")
        with locked(path):
            measured(20, 3.0)
            told(page, "under way")
            told(page, "20 of 100 steps")
            told(page, "After 20 steps", "#answer")
            assert page.page.locator("header.top .show-keys").count() == 1
            assert page.page.locator("header.top h1").count() == 1
            values = page.page.locator("#answer .value")
            assert values.count() == 4  # held out, then training
            # Nothing is replaced under somebody's hands, and what is unfolded stays unfolded.
            page.page.locator("#answer .values summary").click()
            values.first.focus()
            told(page, "step 10", "#bubble")
            measured(30, 2.0)
            told(page, "There are newer numbers", "#answer")
            page.page.keyboard.press("ArrowRight")
            told(page, "held out: nats per token 3.100 [3.00, 3.20], step 20", "#bubble")
            values.nth(1).blur()
            told(page, "After 30 steps", "#answer")
            assert values.count() == 6
            assert page.page.locator("#answer .values[open]").count() == 1
            assert page.page.locator(".newer").count() == 0
        quiet(page, address)


@pytest.mark.parametrize("size", [LAPTOP, PHONE])
def test_several_folders_by_keyboard(
    browser: object, begun: Run, tmp_path: Path, size: dict[str, int]
) -> None:
    other = Run.prepare(tmp_path / "other", {"checkpoint": "b", "n": 2}, [cell_spec(4, seed=5)])
    other.cells()[0].add([output(i, [1, 2, 3, 4]) for i in range(2)])
    with served([begun.path, other.path]) as address:
        page = opened(browser, address, size)
        told(page, "4 of 80 outputs")
        told(page, "2 of 2 outputs")
        assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        boxes = page.page.locator("#under-way input")
        for i in range(2):
            boxes.nth(i).focus()
            page.page.keyboard.press("Space")
        link = page.page.get_by_role("link", name="Show these 2 side by side")
        link.focus()
        page.page.keyboard.press("Enter")
        page.page.wait_for_url("**/0+1/")
        page.page.wait_for_selector("#corners")
        assert page.page.locator("#corners .group").count() == 2
        assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        quiet(page, address)


def test_a_name_of_another_host_gets_nothing(browser: object, begun: Run) -> None:
    with served([begun.path]) as address:
        page = browser.new_page()  # type: ignore[attr-defined]
        port = address.split(":")[2].split("/")[0]
        answer = page.goto(f"http://127.0.0.1:{port}/other/0/")
        assert answer.status == 403
        answer = page.goto(f"http://evil.localhost:{port}/token/0/")  # Chromium leads it here
        assert answer.status == 403
        assert "127.0.0.1 alone" in page.content()
        page.close()
