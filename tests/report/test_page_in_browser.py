"""The page as a reader meets it: opened from disk in a headless Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from chromium import PHONE, Watched, chromium
from synthetic import report

from strop.report.data import CORNERS, Column, Output, Report
from strop.report.page import MOST_BYTES, render, write

pytestmark = pytest.mark.browser

HOSTILE = [
    "<script>document.title = 'owned'; alert(1)</script>",
    "</script><script>document.title = 'owned'</script><img src=x onerror=alert(1)>",
    "<!-- <script> --><svg onload=\"document.title='owned'\"><a href='javascript:alert(1)'>x</a>",
    "half \ud800 a pair \udfff and \ufffe",
    "right \u202eto left\u202c \u2066isolated\u2069 \x00\x07\x1b[31m",
    "a" * 200_000,
    "",
    "{{ 7 * 7 }} {% raw %} &amp; &lt;b&gt;",
]
"""What a model may print."""


def with_texts(base: Report, texts: list[str]) -> Report:
    """The report with these outputs in every cell."""
    model = base.models[0]
    cells = tuple(
        replace(
            cell,
            n=len(texts),
            outputs=tuple(Output(i, text, (float(i), 5.0, 0.0)) for i, text in enumerate(texts)),
        )
        for cell in model.cells
    )
    return replace(base, models=(replace(model, cells=cells),))


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with chromium() as context:
        yield context


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write(render(report()), path)
    return path


@pytest.fixture
def opened(browser: object, page_file: Path) -> Iterator[Watched]:
    watched = Watched(browser, page_file)  # type: ignore[arg-type]
    watched.settled("Left: 12 of 12")
    yield watched
    watched.page.close()


def test_opens_without_complaints_and_without_the_network(opened: Watched) -> None:
    page = opened.page
    assert page.title() == "Audit of embedded:tales – strop report"
    assert page.locator("table.corners tbody tr").count() == 4
    assert page.locator("figure svg").count() == 7
    assert page.locator("nav a").count() == page.locator("main section[id]").count() - 1
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    assert opened.wrong == []
    assert opened.asked == []


def test_the_watch_sees_what_it_looks_for(browser: object, tmp_path: Path) -> None:
    # Negative control: a page that does complain and does ask.
    bad = tmp_path / "bad.html"
    bad.write_text("<img src='missing.png'><script>alert(1); throw new Error('oh')</script>")
    watched = Watched(browser, bad)  # type: ignore[arg-type]
    watched.page.wait_for_timeout(200)
    assert any("oh" in line for line in watched.wrong)
    assert "a dialog opened" in watched.wrong
    assert any(url.endswith("missing.png") for url in watched.asked)
    watched.page.close()


def test_daggers_stand_at_every_cell_below_the_guard(opened: Watched) -> None:
    below = sum(cell.below_guard for cell in report().models[0].cells)
    assert below > 0
    assert opened.page.locator("table.corners td .dagger").count() == below
    options = opened.page.locator("#side-a option").all_inner_texts()
    assert sum("†" in option for option in options) == below


def test_side_by_side(opened: Watched) -> None:
    page, cells = opened.page, report().models[0].cells
    left = next(i for i, cell in enumerate(cells) if cell.setting == CORNERS[0])
    assert opened.texts("a")[0].split()[:5] == cells[left].outputs[0].text.split()[:5]
    page.select_option("#side-b", "7")
    page.wait_for_function(
        "words => document.querySelector('article.b .who').textContent.includes(words)",
        arg=cells[7].label,
    )
    assert opened.texts("b")[0].split()[:5] == cells[7].outputs[0].text.split()[:5]
    before = opened.texts("a"), opened.texts("b")
    page.click("#swap")
    page.wait_for_function(
        "words => document.querySelector('article.a .who').textContent.includes(words)",
        arg=cells[7].label,
    )
    assert (opened.texts("b"), opened.texts("a")) == before
    boxes = [page.locator(f"article.{side}").first.bounding_box() for side in "ab"]
    assert boxes[0]
    assert boxes[1]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] < boxes[1]["x"]


def test_a_number_of_the_table_leads_to_its_outputs(opened: Watched) -> None:
    link = opened.page.locator("table.corners td a").nth(9)
    wanted = link.get_attribute("data-cell")
    link.click()
    cell = next(cell for cell in report().models[0].cells if cell.id == wanted)
    opened.page.wait_for_function(
        "words => document.querySelector('article.b .who').textContent.includes(words)",
        arg=cell.label,
    )


def test_search(opened: Watched) -> None:
    cells = report().models[0].cells
    word = next(word for word in cells[0].outputs[3].text.split() if len(word) > 6)
    hits = [
        sum(word.lower() in one.text.lower() for one in cells[i].outputs) for i in (0, 3)
    ]  # M 4 standard and M 4 sharpened are what the page opens with
    opened.page.fill("#search", word.upper())
    opened.settled(f"Left: {hits[0]} of 12 outputs. Right: {hits[1]} of 12.")
    assert 0 < hits[0] < 12
    marks = opened.page.locator("article.a mark.hit").all_inner_texts()
    assert {mark.lower() for mark in marks} == {word.lower()}
    opened.page.fill("#search", "no output holds this")
    opened.settled("Left: 0 of 12 outputs. Right: 0 of 12.")
    assert opened.page.locator("article").count() == 0


def test_filter_and_order(opened: Watched) -> None:
    page, outputs = opened.page, report().models[0].cells[0].outputs
    values = sorted(one.values[0] for one in outputs if one.values[0] is not None)
    bound = (values[4] + values[5]) / 2
    page.fill("#filter-bound", f"{bound:.6f}")
    opened.settled("Left: 5 of 12")
    page.select_option("#filter-direction", "least")
    opened.settled("Left: 7 of 12")
    page.fill("#filter-bound", "")
    page.select_option("#order", "0 -1")
    opened.settled("Left: 12 of 12")
    page.click("#more")
    page.wait_for_function("document.querySelectorAll('article.a').length === 12")
    shown = [int(head.split()[0][1:]) for head in page.locator("article.a h3").all_inner_texts()]
    by_value = sorted(outputs, key=lambda one: -(one.values[0] or 0))
    assert shown == [one.index for one in by_value]


def test_repeats_are_marked_and_only_they(browser: object, tmp_path: Path) -> None:
    told = "one two three four five six. one two three four seven"
    path = tmp_path / "report.html"
    write(render(with_texts(report(steps=(4,)), [told, "eight two three four five nine"])), path)
    watched = Watched(browser, path)  # type: ignore[arg-type]
    watched.settled("Left: 2 of 2")
    marks = watched.page.locator("article.a mark.repeat")
    assert marks.all_inner_texts() == ["one two three four", "one two three four"]
    watched.page.select_option("#mark", "across")
    watched.page.wait_for_function("document.querySelectorAll('article.a mark.repeat').length == 2")
    assert marks.all_inner_texts() == ["two three four five", "two three four five"]
    watched.page.select_option("#mark", "none")
    watched.page.wait_for_function("document.querySelectorAll('mark.repeat').length == 0")
    watched.page.close()


def test_hostile_outputs_and_names_stay_text(browser: object, tmp_path: Path) -> None:
    base = report(steps=(4,))
    model = replace(base.models[0], name=HOSTILE[1] + HOSTILE[3] + HOSTILE[4])
    base = replace(
        base,
        title=HOSTILE[0] + "$\\frac{$",
        models=(model,),
        output_columns=(Column("x", HOSTILE[1], HOSTILE[2]), *base.output_columns[1:]),
        judged=tuple(replace(row, name=HOSTILE[1] + "$x$") for row in base.judged),
        posterior=tuple(
            replace(row, model=f"{HOSTILE[3]} {i}") for i, row in enumerate(base.posterior * 2)
        ),
        commands={"audit": HOSTILE[1]},
        recommendation=None,
    )
    path = tmp_path / "report.html"
    write(render(with_texts(base, HOSTILE)), path)
    watched = Watched(browser, path)  # type: ignore[arg-type]
    watched.settled(f"Left: {len(HOSTILE)} of {len(HOSTILE)}")
    page = watched.page
    page.click("#more")
    page.wait_for_function(f"document.querySelectorAll('article.a').length === {len(HOSTILE)}")
    assert "owned" not in page.title().replace("'owned'", "")
    assert (
        page.evaluate(
            "document.querySelectorAll('img, article script, article svg, article a').length"
        )
        == 0
    )
    texts = page.locator("article.a .text").evaluate_all("nodes => nodes.map(n => n.textContent)")
    assert texts[:3] == HOSTILE[:3]
    assert texts[3] == "half \ufffd a pair \ufffd and \ufffe"
    assert texts[4] == "right U+202Eto leftU+202C U+2066isolatedU+2069 U+0000U+0007U+001B[31m"
    assert len(texts[5]) == 200_000
    assert texts[6] == "empty"
    assert texts[7] == HOSTILE[7]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert watched.wrong == []
    assert watched.asked == []
    page.close()


def test_a_script_that_slipped_in_would_not_run(browser: object, tmp_path: Path) -> None:
    # The second wall: only the page's own script has leave to run.
    path = tmp_path / "report.html"
    html = render(report(steps=(4,))).html
    path.write_text(html.replace("</main>", "<script>document.title = 'owned'</script></main>"))
    watched = Watched(browser, path)  # type: ignore[arg-type]
    watched.settled("Left: 12 of 12")
    assert watched.page.title() != "owned"
    assert any("Content Security Policy" in line for line in watched.wrong)
    watched.page.close()


def test_without_decompression_the_page_says_so(
    browser: object, page_file: Path, tmp_path: Path
) -> None:
    older = browser.new_page()  # type: ignore[attr-defined]
    older.add_init_script("delete window.DecompressionStream")
    older.goto(page_file.as_uri())
    assert "DecompressionStream" in older.locator("#status").inner_text()
    assert older.locator("table.corners").is_visible()
    older.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone(browser: object, page_file: Path, scheme: str) -> None:
    watched = Watched(browser, page_file, PHONE)  # type: ignore[arg-type]
    watched.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    watched.settled("Left: 12 of 12")
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    for details in watched.page.locator("summary").all():
        details.click()
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    boxes = [watched.page.locator(f"article.{side}").first.bounding_box() for side in "ab"]
    assert boxes[0]
    assert boxes[1]
    assert boxes[0]["x"] == boxes[1]["x"]
    assert watched.wrong == []
    watched.page.close()


CONTRAST = """() => {
  const luminance = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
      .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor;
      if (colour !== 'rgba(0, 0, 0, 0)') return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !node.getClientRects().length) continue;
    const style = getComputedStyle(node);
    const ink = luminance(node.closest('svg') ? style.fill : style.color);
    const paper = luminance(behind(node));
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (ratio < 4.5)
      low.push(`${ratio} ${node.tagName} ${node.className} ${node.textContent.slice(0, 30)}`);
  }
  return low;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(opened: Watched, scheme: str) -> None:
    opened.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    assert opened.page.evaluate(CONTRAST) == []
    opened.page.add_style_tag(content=":root { --soft: var(--rule) !important }")  # the control
    assert opened.page.evaluate(CONTRAST) != []


def test_keyboard_and_labels(opened: Watched) -> None:
    page = opened.page
    bare = page.evaluate(
        "[...document.querySelectorAll('select, input')]"
        ".filter(e => !e.labels.length).map(e => e.id)"
    )
    assert bare == []
    assert page.evaluate(
        "[...document.querySelectorAll('svg')].every(e => e.getAttribute('aria-label'))"
    )
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.focus("#search")
    page.keyboard.type("no output holds this")
    opened.settled("Left: 0 of 12")
    page.focus("#swap")
    page.keyboard.press("Enter")
    opened.settled("Left: 0 of 12")


def test_stays_under_the_limit_at_full_size(browser: object, tmp_path: Path) -> None:
    full = report(settings=CORNERS[:4], n=128, tokens=1024)
    assert len(full.models[0].cells) == 16
    page = render(full)
    assert page.outputs == 128
    path = tmp_path / "report.html"
    write(page, path)
    assert path.stat().st_size < MOST_BYTES
    watched = Watched(browser, path)  # type: ignore[arg-type]
    watched.settled("Left: 128 of 128 outputs. Right: 128 of 128.")
    assert watched.wrong == []
    watched.page.close()
