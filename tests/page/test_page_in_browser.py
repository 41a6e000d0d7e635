"""The page as a reader meets it: opened from disk in a headless Chromium."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chromium import LAPTOP, PHONE, Watched, chromium
from matplotlib.figure import Figure
from synthetic import CORNERS, GUARD, STUDY, interval, measured, report, shown

from strop.measure.guard import MARKS
from strop.page import render, write
from strop.page.data import CellGroup, Report, StudyPart
from strop.page.page import MOST_BYTES, Page, _first_pair
from strop.page.tables import output_columns
from strop.table import Column, Table, number
from strop.verbs.study import Result

pytestmark = pytest.mark.browser
PAIR = _first_pair(report())
"""What the page opens with."""

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


def written(page: Page, path: Path) -> Path:
    """The page alone: its figures are in it, and the browser asks for no file beside it."""
    path.write_text(page.html, encoding="utf-8")
    return path


def with_texts(base: Report, texts: list[str]) -> Report:
    """The report with these outputs in every cell."""
    cells = tuple(
        shown(
            measured(4, one.measured.point, len(texts), perplexity=9.0, entropy=interval(5.5, 0.1)),
            texts,
            one.label,
        )
        for one in base.cells
    )
    return replace(base, groups=(replace(base.groups[0], cells=cells),))


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with chromium() as context:
        yield context


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(render(report()), tmp_path_factory.mktemp("page") / "report.html")


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
    assert page.locator("figure svg").count() == 8
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


def test_marks_stand_at_every_cell_that_is_not_above_the_guard(opened: Watched) -> None:
    cells = report().cells
    options = opened.page.locator("#side-a option").all_inner_texts()
    told = opened.page.locator("table.corners td .mark").all_inner_texts()
    for verdict, mark in MARKS.items():
        here = sum(cell.measured.verdict == verdict for cell in cells)
        assert here > 0
        assert told.count(mark) == here
        assert sum(mark in option for option in options) == here


@pytest.mark.parametrize("size", [LAPTOP, PHONE])
def test_the_answer_is_what_one_sees_first(
    browser: object, page_file: Path, size: dict[str, int]
) -> None:
    watched = Watched(browser, page_file, size)  # type: ignore[arg-type]
    sentence = watched.page.locator("#answer .decides").bounding_box()
    figure = watched.page.locator("#answer figure").bounding_box()
    assert sentence
    assert figure
    assert sentence["y"] + sentence["height"] < size["height"] / 2
    assert figure["y"] + 100 < size["height"]  # and its figure begins there too
    watched.page.close()


def test_the_recommended_sampler_is_copied(opened: Watched) -> None:
    page = opened.page
    assert page.locator("#answer pre").nth(0).is_visible()
    page.focus("#form-1-1")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "Command"
    shown = page.locator("#text-1-2 code").inner_text()
    assert shown.startswith("strop sample embedded:tales --steps 4 --temperature 0.9")
    assert page.locator("#text-1-1").is_hidden()
    page.click("#text-1-2 .copy")
    page.wait_for_function(
        "() => document.querySelector('#text-1-2 .copy').textContent === 'Copied'"
    )
    page.focus("#search")
    page.keyboard.press("Control+v")
    assert page.input_value("#search") == shown


def test_the_navigation_stays_and_says_where_one_is(opened: Watched) -> None:
    page = opened.page
    page.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    page.evaluate("document.getElementById('outputs').scrollIntoView()")
    page.wait_for_function(
        "() => document.querySelector('nav a[aria-current]')?.hash === '#outputs'", timeout=3000
    )
    box = page.locator("nav").bounding_box()
    assert box
    assert box["y"] == 0


WIDE = {"width": 1600, "height": 900}


def test_a_wide_page_is_used(browser: object, page_file: Path) -> None:
    watched = Watched(browser, page_file, WIDE)  # type: ignore[arg-type]
    for where in ("#answer", "#corners table", "#corners .figures", "#outputs .pairs"):
        box = watched.page.locator(where).first.bounding_box()
        assert box
        # The right margin is that of the page: nothing ends in its middle.
        assert box["x"] + box["width"] > 0.95 * WIDE["width"]
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= WIDE["width"]
    watched.page.close()


def test_side_by_side(opened: Watched) -> None:
    page, cells = opened.page, report().cells
    left, right = (cells[i] for i in PAIR)
    # The standard and the recommended sampler, at the middle budget.
    assert left.measured.point == CORNERS[0]
    assert right.measured.point == CORNERS[3]
    assert left.measured.steps == right.measured.steps == 64
    assert opened.texts("a")[0].split()[:5] == left.texts[0].split()[:5]
    assert opened.texts("b")[0].split()[:5] == right.texts[0].split()[:5]
    page.select_option("#side-b", "7")
    page.wait_for_function(
        "words => document.querySelector('article.b .who').textContent.includes(words)",
        arg=cells[7].name,
    )
    assert opened.texts("b")[0].split()[:5] == cells[7].texts[0].split()[:5]
    before = opened.texts("a"), opened.texts("b")
    page.click("#swap")
    page.wait_for_function(
        "words => document.querySelector('article.a .who').textContent.includes(words)",
        arg=cells[7].name,
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
    cell = next(cell for cell in report().cells if cell.measured.id == wanted)
    opened.page.wait_for_function(
        "words => document.querySelector('article.b .who').textContent.includes(words)",
        arg=cell.name,
    )


def test_values_under_the_pointer_and_by_keyboard(opened: Watched) -> None:
    page = opened.page
    figure = page.locator('figure[data-name="perplexity-1"]')
    figure.scroll_into_view_if_needed()
    mark = figure.locator(".value").nth(7)
    words = mark.get_attribute("aria-label")
    box = mark.bounding_box()
    assert words
    assert box
    page.mouse.move(box["x"] + 9, box["y"] + 9)  # near is enough
    page.wait_for_function("() => !document.getElementById('bubble').hidden")
    told = page.locator("#bubble").inner_text()
    by_id = {cell.measured.id: cell for cell in report().cells}
    found = page.locator(".value.found").get_attribute("data-cell")
    assert found
    level = by_id[found].measured.perplexity()
    assert f"perplexity {number(level.value, 4)} [{number(level.low)}, " in told
    page.mouse.click(box["x"] + 5, box["y"] + 5)
    page.wait_for_function(
        "words => document.querySelector('article.b .who').textContent.includes(words)",
        arg=by_id[found].name,
    )
    page.evaluate("() => document.activeElement.blur()")
    figure.locator('.value[tabindex="0"]').focus()
    page.keyboard.press("ArrowRight")
    second = figure.locator(".value").nth(1)
    assert page.evaluate("() => document.activeElement.getAttribute('aria-label')") == (
        second.get_attribute("aria-label")
    )
    assert page.locator("#bubble").inner_text().startswith(second.get_attribute("aria-label"))
    page.keyboard.press("Enter")
    page.wait_for_function(
        "words => document.querySelector('article.b .who').textContent.includes(words)",
        arg=by_id[str(second.get_attribute("data-cell"))].name,
    )


def test_the_frontier_reads_every_side_at_equal_entropy(opened: Watched) -> None:
    figure = opened.page.locator('figure[data-name="frontier-1"]')
    lines: dict[str, list[tuple[float, float]]] = {}
    for cell in report().cells:
        entropy = cell.measured.entropy
        assert entropy
        point = entropy.value, cell.measured.perplexity().value
        lines.setdefault(cell.label, []).append(point)
    # It opens where the most lines can be read.
    ends = [sorted(x for x, _ in points) for points in lines.values()]
    middles = np.convolve(sorted({x for xs in ends for x in (xs[0], xs[-1])}), [0.5, 0.5], "valid")
    most = max(sum(xs[0] <= x <= xs[-1] for xs in ends) for x in middles)
    opened_at = figure.locator(".read dd").all_inner_texts()
    assert sum(one != "not there" for one in opened_at) == most > 0
    for entropy in (5.2, 5.4, 5.8):
        figure.locator(".equal input").evaluate(
            "(at, to) => { at.step = 'any'; at.value = to; at.dispatchEvent(new Event('input')) }",
            entropy,
        )
        rows = figure.locator(".read dl div").all()
        told = {
            row.locator("dt").inner_text(): row.locator("dd").inner_text().replace(",", "")
            for row in rows
        }
        assert set(told) == set(lines)
        for name, points in lines.items():
            xs, ys = zip(*sorted(points), strict=True)
            if not xs[0] <= entropy <= xs[-1]:
                assert told[name] == "not there"
            else:
                expected = np.exp(np.interp(entropy, xs, np.log(ys)))
                assert float(told[name]) == pytest.approx(expected, rel=1e-3)


def test_a_plot_is_a_table_and_a_file(opened: Watched) -> None:
    figure = opened.page.locator('figure[data-name="entropy-1"]')
    figure.locator(".values summary").click()
    assert figure.locator(".values tbody tr").count() == len(report().cells)
    with opened.page.expect_download() as download:
        figure.locator(".values button").click()
    assert download.value.suggested_filename == "entropy-1.csv"
    lines = download.value.path().read_text("utf-8").splitlines()
    assert len(lines) == 1 + len(report().cells)
    assert lines[0].endswith('steps M,"entropy, nats"')


def test_search(opened: Watched) -> None:
    cells = report().cells
    word = next(word for word in cells[PAIR[0]].texts[3].split() if len(word) > 6)
    hits = [sum(word.lower() in one.lower() for one in cells[i].texts.values()) for i in PAIR]
    opened.page.fill("#search", word.upper())
    opened.settled(f"Left: {hits[0]} of 12 outputs. Right: {hits[1]} of 12.")
    assert 0 < hits[0] < 12
    marks = opened.page.locator("article.a mark.hit").all_inner_texts()
    assert {mark.lower() for mark in marks} == {word.lower()}
    opened.page.fill("#search", "no output holds this")
    opened.settled("Left: 0 of 12 outputs. Right: 0 of 12.")
    assert opened.page.locator("article").count() == 0


def test_a_number_stands_beside_the_standard_of_its_budget(opened: Watched) -> None:
    cells = report().cells
    opened.page.evaluate("id => strop.showOutputs(id)", cells[8].measured.id)
    opened.page.wait_for_function(
        "words => document.querySelector('article.b .who').textContent.includes(words)",
        arg=cells[8].name,
    )
    assert cells[8].measured.steps == 16
    assert opened.page.locator("article.a .who").first.inner_text().strip() == cells[5].name


def test_only_some_are_shown(browser: object, tmp_path: Path) -> None:
    told = ["one two three four one two three four", "all different words", "the same"]
    base = report(steps=(4,), points=CORNERS[:2])
    cells = [
        shown(
            measured(4, one.measured.point, 3, perplexity=9.0, entropy=interval(5.5, 0.1)),
            [*told[:2], f"the same {i}" if i else "the same"],
            one.label,
        )
        for i, one in enumerate(base.cells)
    ]
    group = replace(base.groups[0], cells=tuple(cells), held_out="People <b>wrote</b> this.")
    path = written(render(replace(base, groups=(group,), audits=())), tmp_path / "report.html")
    watched = Watched(browser, path)  # type: ignore[arg-type]
    watched.settled("Left: 3 of 3")
    page = watched.page
    assert page.locator("#held-out .text").inner_text() == "People <b>wrote</b> this."
    page.select_option("#only", "repeats")
    watched.settled("Left: 1 of 3")
    assert watched.texts("a") == [told[0]]
    page.select_option("#only", "different")
    watched.settled("Left: 1 of 3 outputs. Right: 1 of 3")
    assert (watched.texts("a"), watched.texts("b")) == (["the same"], ["the same 1"])
    page.select_option("#only", "guard")
    low = [
        int(
            (
                output_columns(base)[1].values(one, np.array(list(one.texts))) <= GUARD.threshold
            ).sum()
        )
        for one in cells
    ]
    watched.settled(f"Left: {low[0]} of 3 outputs. Right: {low[1]} of 3")
    page.close()


def test_an_output_has_an_address(opened: Watched) -> None:
    page, cells = opened.page, report().cells
    link = page.locator("article.b h3 a").nth(2)
    assert link.get_attribute("href") == f"#output={cells[PAIR[1]].measured.id}-2"
    link.click()
    opened.settled("Left: 1 of 12 outputs. Right: 1 of 12.")
    assert opened.texts("a")[0].split()[:5] == cells[PAIR[1]].texts[2].split()[:5]
    page.reload()
    opened.settled("Left: 1 of 12 outputs. Right: 1 of 12.")
    page.get_by_role("button", name="Show all").click()
    opened.settled("Left: 12 of 12")


def test_filter_and_order(opened: Watched) -> None:
    page, full = opened.page, report()
    told = output_columns(full)[0].values(full.cells[PAIR[0]], np.arange(12))
    values = sorted(told.tolist())
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
    shown_now = [
        int(head.split()[0][1:]) for head in page.locator("article.a h3").all_inner_texts()
    ]
    assert shown_now == sorted(range(12), key=lambda index: -told[index])


def test_repeats_are_marked_and_only_they(browser: object, tmp_path: Path) -> None:
    told = "one two three four five six. one two three four seven"
    repeating = with_texts(report(steps=(4,)), [told, "eight two three four five nine"])
    path = written(render(repeating), tmp_path / "report.html")
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


def drawn_with(name: str) -> Callable[[Result], Figure]:
    """A study's figure that has this in a label."""

    def draw(_: Result) -> Figure:
        figure = Figure(figsize=(3.3, 2.4))
        figure.subplots().set(xlabel=name, ylabel="$M$")
        return figure

    return draw


def test_hostile_outputs_and_names_stay_text(browser: object, tmp_path: Path) -> None:
    base = with_texts(report(steps=(4,)), HOSTILE)
    name = HOSTILE[1] + HOSTILE[3] + HOSTILE[4]
    cells = tuple(replace(cell, label=f"{cell.label} {name}") for cell in base.cells)
    study = base.studies[0].result
    table = Table(HOSTILE[1], (Column("x", HOSTILE[0], help=HOSTILE[2]),), [{"x": HOSTILE[1]}])
    odd = replace(STUDY, title=HOSTILE[2] + "$x", draw=drawn_with(name + "$\\frac{$"))
    known = StudyPart(HOSTILE[0], tmp_path, replace(study, notes=(HOSTILE[1],)), None)
    odd_rows = [{**row, "name": HOSTILE[1] + "$x$"} for row in base.series[0].table.rows]
    audit = base.audits[0]
    said = {**audit.result.facts, "answer": HOSTILE[:5], "refusals": {HOSTILE[1]: HOSTILE[0]}}
    base = replace(
        base,
        title=HOSTILE[0] + "$\\frac{$",
        groups=(CellGroup(name, 120, 0, cells),),
        series=tuple(
            replace(one, name=name, table=replace(one.table, title=name, rows=odd_rows))
            for one in base.series
        ),
        studies=(
            replace(base.studies[0], result=replace(study, more={"odd": table}), record=odd),
            known,
        ),
        audits=(replace(audit, result=replace(audit.result, facts=said), yaml={"x": HOSTILE[1]}),),
        commands={"audit": HOSTILE[1]},
    )
    path = tmp_path / "report.html"
    write(render(base), path)
    watched = Watched(browser, path)  # type: ignore[arg-type]
    watched.settled(f"Left: {len(HOSTILE)} of {len(HOSTILE)}")
    page = watched.page
    page.click("#more")
    page.wait_for_function(f"document.querySelectorAll('article.a').length === {len(HOSTILE)}")
    assert "owned" not in page.title().replace("'owned'", "")
    assert (
        page.evaluate(
            "document.querySelectorAll('img, article script, article svg, article .text a').length"
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


def test_a_script_that_slipped_in_would_not_run(
    browser: object, page_file: Path, tmp_path: Path
) -> None:
    # The second wall: only the page's own script has leave to run.
    path = tmp_path / "report.html"
    html = page_file.read_text(encoding="utf-8")
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


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_stays_under_the_limit_at_full_size(
    browser: object, page_file: Path, tmp_path: Path
) -> None:
    full = report(points=CORNERS[:4], n=128, tokens=1024)
    assert len(full.cells) == 16
    page = render(full)
    assert page.outputs == 128
    path = written(page, tmp_path / "report.html")
    pictures = page_file.stat().st_size  # a page with the same ones, and more besides
    assert path.stat().st_size + pictures < MOST_BYTES
    watched = Watched(browser, path)  # type: ignore[arg-type]
    watched.settled("Left: 128 of 128 outputs. Right: 128 of 128.")
    assert watched.wrong == []
    watched.page.close()


def test_on_paper_nothing_is_cut(opened: Watched) -> None:
    """Paper neither scrolls nor unfolds: tables fit, and texts are whole."""
    page = opened.page
    cut = """() => [...document.querySelectorAll('.text')].filter((one) =>
      one.scrollHeight > one.clientHeight + 4 ||
      getComputedStyle(one).maskImage !== 'none').length"""
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    assert page.evaluate(cut) > 0, "nothing is long: the case shows nothing"
    page.emulate_media(media="print")
    assert page.evaluate(cut) == 0
    page.set_viewport_size({"width": 720, "height": 1000})  # A4 between its margins
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.emulate_media(media="screen")
    page.set_viewport_size(LAPTOP)  # type: ignore[arg-type]


def test_the_reading_has_the_colours_of_its_lines(opened: Watched) -> None:
    page, found = opened.page, {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        found[scheme] = page.evaluate(
            "[...document.querySelectorAll('.dot')].map((one) => getComputedStyle(one).fill)"
        )
    assert found["light"]
    assert all(a != b for a, b in zip(found["light"], found["dark"], strict=True))
