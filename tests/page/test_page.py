"""The page and the table without a browser: what is said, what is left out, what it weighs."""

from __future__ import annotations

import base64
import functools
import json
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from synthetic import (
    CORNERS,
    GUARD,
    METRIC,
    STUDY,
    audit_result,
    interval,
    measured,
    report,
    shown,
    study_result,
    with_scores,
)

from strop.errors import UserError
from strop.measure.guard import MARKS, CutOutputs
from strop.page import render, write
from strop.page.data import AuditPart, CellGroup, Report, Shown, StudyPart, place, replaced
from strop.page.figures import MOST_LINES, drawings
from strop.page.hero import Recommended, hero
from strop.page.page import LIVE, SCRIPTS, STYLES, Page
from strop.page.svg import VARIABLES, as_file, inline
from strop.page.tables import (
    COLUMNS,
    _row,
    corner_table,
    facts,
    output_columns,
    pool_table,
    recognised,
)
from strop.spec import OperatingPoint, SamplerSpec
from strop.table import Column, Table, number
from strop.verbs.study import Result

STANDARD = CORNERS[0]


@pytest.mark.parametrize(
    ("value", "digits", "told"),
    [
        (None, 3, "–"),
        (0.0, 3, "0"),
        (1234.5, 3, "1,234"),
        (22.46, 3, "22.5"),
        (0.04567, 2, "0.046"),
        (-0.5, 2, "−0.50"),
        (float("inf"), 3, "∞"),
        (1.5e12, 3, "1.50e+12"),
    ],
)
def test_numbers(value: float | None, digits: int, told: str) -> None:
    assert number(value, digits) == told


def one_group(*cells: Shown, name: str = "model") -> Report:
    return Report(title="test", groups=(CellGroup(name, GUARD.length, 0, cells),))


@functools.cache
def page() -> Page:
    """Drawn once: most of these tests look at its words."""
    return render(report())


@functools.cache
def short_page() -> Page:
    return render(report(steps=(4,)))


def plain(html: str) -> str:
    """The page's text, scripts aside."""
    body = re.sub(r"<(script|style)\b.*?</\1>", "", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", body))


def test_the_best_of_a_row_is_above_the_guard() -> None:
    group = report().groups[0]
    table = corner_table(group, METRIC, "a title")
    assert table.header() == ["M", *map(str, CORNERS)]
    verdicts = set()
    for steps, line in zip(group.steps, table.entries(), strict=True):
        cells = [c.measured for c in group.ordered if c.measured.steps == steps]
        passing = [cell for cell in cells if cell.verdict == "above"]
        lowest = min(passing, key=lambda cell: cell.perplexity().value)
        rows = [entry.row for entry in line[1:]]
        assert [row and row["best"] for row in rows] == [cell is lowest for cell in cells]
        assert [row and row["mark"] for row in rows] == [cell.mark for cell in cells]
        assert [row and row["standard"] for row in rows] == [c.point == STANDARD for c in cells]
        verdicts |= {cell.verdict for cell in cells}
    assert verdicts == {"above", "below", "undecided"}  # else the rule was not tested


def test_cells_without_a_guard_can_be_best() -> None:
    bare = replace(GUARD, threshold=None)
    cells = [
        shown(measured(4, point, 40, perplexity=level, entropy=interval(1, 0.1), guard=bare), ["a"])
        for point, level in zip(CORNERS, (30.0, 20.0), strict=False)
    ]
    rows = corner_table(one_group(*cells).groups[0], METRIC, "").rows
    assert [row["best"] for row in rows] == [False, True]
    assert "No entropy guard" in " ".join(facts(one_group(*cells).groups[0]))


def test_the_page_says_where_entropy_is_that_of_first_documents() -> None:
    whole = measured(4, CORNERS[0], 40, perplexity=30.0, entropy=interval(5, 0.1))
    cut = replace(whole, cut=CutOutputs(held=7))
    told = " ".join(facts(one_group(shown(whole, ["a"]), shown(cut, ["b"])).groups[0]))
    assert "7 of 80 outputs are read up to the end of their first document" in told
    assert "first document" not in " ".join(facts(one_group(shown(whole, ["a"])).groups[0]))


def test_the_table_as_text() -> None:
    cell = measured(4, STANDARD, 40, perplexity=41.234, entropy=interval(5.014, 0.01))
    group = one_group(shown(cell, ["a"])).groups[0]
    header, rows = corner_table(group, METRIC, "").text()
    assert header == ["M", "(1, float64)"]
    assert rows == [["4", "41.23† [5.01]\n[37.94, 44.53]"]]
    assert corner_table(group, None, "").text()[1] == [["4", "5.014†\n[5.004, 5.024]"]]


@pytest.mark.usefixtures("undrawn")
def test_generators_that_differ_in_a_setting_or_finish_are_two_columns() -> None:
    points = [
        OperatingPoint.of(SamplerSpec(name="remdm-cap", steps=4, **more))
        for more in ({"eta": 0.01}, {"eta": 0.02}, {"eta": 0.02, "finish": "draw"})
    ]
    cells = [
        shown(measured(4, point, 2, perplexity=30.0 + i, entropy=interval(5.5, 0.1)), [f"text {i}"])
        for i, point in enumerate(points)
    ]
    page = render(one_group(*cells))
    for point, level in zip(points, ("30.00", "31.00", "32.00"), strict=True):
        assert f'<th scope="col">{point}</th>' in page.html
        assert level in page.html
    assert len(packs(page.html)) == 3


@pytest.mark.usefixtures("undrawn")
def test_columns_come_in_one_order_whatever_was_measured_first() -> None:
    sharp = shown(measured(4, CORNERS[3], 2, entropy=interval(5.5, 0.1)), ["a"])
    both = [shown(measured(16, point, 2, entropy=interval(5.5, 0.1)), ["a"]) for point in CORNERS]
    group = one_group(sharp, *both).groups[0]
    table = corner_table(group, None, "")
    assert table.header() == ["M", *map(str, CORNERS)]
    assert [entry.value for entry in table.entries()[0][1:]] == ["–", "–", "–", "5.500", "–"]
    assert render(one_group(sharp, *both)).html.count('<span class="nothing">–</span>') == 4


@pytest.mark.usefixtures("undrawn")
def test_small_pools_are_marked_in_words() -> None:
    cells = [
        shown(measured(4, point, n, perplexity=30, entropy=interval(5.5, 0.1)), ["a"] * n)
        for point, n in zip(CORNERS, (31, 32), strict=False)
    ]
    text = plain(render(one_group(*cells)).html)
    assert "Pools (M 4 · (1, float64)) have fewer than 32 outputs" in text
    assert text.count("31 outputs") == 1
    assert "32 outputs " not in text.partition("Outputs")[0].replace("fewer than 32 outputs", "")


def test_marks_are_explained() -> None:
    text = plain(page().html)
    assert f"{MARKS['below']} lies below the entropy guard" in text
    assert f"{MARKS['undecided']} is undecided" in text


@pytest.mark.usefixtures("undrawn")
def test_absent_parts_say_which_command_adds_them() -> None:
    full = report(steps=(4, 16))
    cells = [
        shown(
            measured(c.measured.steps, c.measured.point, 2, entropy=interval(5.5, 0.1)), ["a"] * 2
        )
        for c in full.cells
    ]
    parts = ("score", "audit", "study", "groupeval")
    bare = replace(one_group(*cells), commands={part: f"strop add-{part}" for part in parts})
    html = render(bare).html
    for part in parts:
        assert f"<code>strop add-{part}</code> adds it" in html
    assert "Entropy in nats" in html
    assert "Entropy against steps" in html
    assert "The frontier" not in html
    assert "adds it" not in render(replace(full, commands={"score": "strop score X"})).html


def test_no_cells_at_all() -> None:
    html = render(Report(title="empty")).html
    assert "0 generators" not in html
    assert 'id="answer"' not in html


def parts_of(html: str) -> list[str]:
    """The sections of a page; if there are several, its navigation names them."""
    sections = re.findall(r'<section id="([\w-]+)" class="part"', html)
    named = html.partition("<nav")[2].partition("</nav")[0]
    assert re.findall(r'<a href="#([\w-]+)">', named) == (sections if len(sections) > 1 else [])
    return sections


@pytest.mark.usefixtures("undrawn")
def test_what_was_given_comes_first_and_empty_parts_are_not_there() -> None:
    whole = report()
    studies = [f"study-{i}" for i in range(1, len(whole.studies) + 1)]
    rest = ["groupeval", "outputs", "why", "provenance"]
    assert parts_of(render(whole).html) == ["corners", *studies, *rest]
    unasked = render(replace(whole, audits=())).html
    assert parts_of(unasked) == [*studies, "corners", *rest]
    judged = Report(title="judged", series=whole.series, commands={"audit": "strop audit X"})
    html = render(judged).html
    assert parts_of(html) == ["groupeval"]
    assert "0 generators" not in html
    assert html.count("<script") == 1  # of the page, with nothing to unpack
    assert html.index("What is not in this report") > html.index("</section>")
    assert "<code>strop audit X</code> adds it" in html


# ---------------------------------------------------------------------------- the audit


def test_the_page_starts_with_the_answer() -> None:
    text = plain(page().html)
    before, _, after = text.partition("Use (0.9, float32) at M = 4")
    for later in ("20 generators", "Every setting", "A judge reads groups"):
        assert later in after
        assert later not in before


def test_every_rule_is_shown_and_only_what_is_above_the_guard_is_recommended() -> None:
    html = page().html
    table = html[html.index("Gain over (1, float64)") : html.index("</table>")]
    lines = [plain(line) for line in table.split("<tr>")[2:]]
    assert [line.split()[0] for line in lines] == ["frozen", "frozen", "per-budget", "per-budget"]
    above, below, again, undecided = lines
    assert "2.90†" in below
    assert "3.10‡" in undecided
    for line, verdict in ((below, "below"), (undecided, "undecided")):
        assert verdict in line
        assert line.strip().endswith("no recommendation")
    for line in (above, again):
        assert line.split()[-2:] == ["above", "gpt2"]
        assert "†" not in line
    assert "The rule sharpest chose nothing" in html


def test_the_samplers_stand_folded_below_the_gains() -> None:
    html = page().html
    for rule in ("frozen", "per-budget"):
        at = html.index(f"The samplers of the rule {rule}, as YAML")
        assert html.rindex("<details", 0, at) > html.index("Gain over (1, float64)")
    assert html.count('<details class="fold"><summary>The samplers') == 2


def recommended_of(result: Result) -> list[Recommended]:
    report_ = Report(title="audit", audits=(AuditPart(result, {}),))
    return list(hero(report_, []).recommended)


def test_the_recommended_sampler_can_be_copied_in_three_forms() -> None:
    (found,) = recommended_of(audit_result())
    assert yaml.safe_load(found.forms["YAML"]) == {
        "samplers": [{"steps": 4, "temperature": 0.9, "precision": "float32"}]
    }
    assert found.forms["Command"] == (
        "strop sample embedded:tales --steps 4 --temperature 0.9 --precision float32 -n 16 "
        "-o runs/recommended"
    )
    given: dict[str, Any] = {}
    called = found.forms["Python"].replace("import strop", "").replace("strop.sample", "call")
    exec(
        called.replace("strop.SamplerSpec", "SamplerSpec"),
        {"SamplerSpec": SamplerSpec, "call": lambda at, **rest: given.update(at=at, **rest)},
    )
    assert given == {"at": "embedded:tales", "spec": CORNERS[3].at(4), "n": 16}
    assert "strop sample embedded:tales --steps 4" in plain(page().html)


def test_a_sampler_with_settings_of_its_own_is_copied_with_its_file() -> None:
    for spec in (
        SamplerSpec(name="remdm-cap", steps=8, eta=0.02),
        SamplerSpec(steps=2, grid=(0.5, 0.5), finish="greedy"),
    ):
        found = Recommended.of(spec.model_dump(mode="json"), "a model", "mdlm")
        assert "strop sample 'a model' --spec sampler.yaml" in found.forms["Command"]
        [one] = yaml.safe_load(found.forms["YAML"])["samplers"]
        assert SamplerSpec(**one) == spec
    other = SamplerSpec(name="duo-ancestral", steps=8).model_dump(mode="json")
    assert "--sampler duo-ancestral" in Recommended.of(other, "x", "mdlm").forms["Command"]
    assert "--sampler" not in Recommended.of(other, "x", "duo").forms["Command"]


def test_what_the_result_does_not_recommend_is_not_recommended() -> None:
    result = audit_result()
    refused = {**result.facts["decision"], "recommended": False}
    assert recommended_of(replace(result, facts={**result.facts, "decision": refused})) == []
    older = {key: one for key, one in result.facts.items() if key != "decision"}
    assert recommended_of(replace(result, facts=older)) == []
    sampler = CORNERS[3].at(4).model_dump(mode="json")
    rows = [{"sampler": sampler, "recommended": said} for said in (False, True)]
    searched = replace(result, facts=older, table=Table("", (), rows))
    assert len(recommended_of(searched)) == 1


def test_a_comparison_opens_with_its_verdict_and_its_figure() -> None:
    part = replace(
        report().studies[0], result=replace(study_result(), facts={"answer": ["A wins."]})
    )
    html = render(Report(title="compared", studies=(part,))).html
    first = html[html.index('id="answer"') : html.index('id="study-1"')]
    assert "A wins." in first
    assert "<figure" in first
    assert html.count("A wins.") == 1
    assert html.count("<figure") == 1
    assert "generators" not in plain(html)


def test_judgments_alone_open_with_what_the_judge_found() -> None:
    told = Report(title="judged", series=report().series)
    html = render(told).html
    first = plain(html[html.index('id="answer"') : html.index('id="groupeval"')])
    assert "M 4 · (1, float64) has GEQ 3.10 [2.80, 3.40] and GED 4.10; M 16" in first
    assert "no evidence about quality" in first
    assert "quality with its 95% interval, diversity without one." in first
    drawing = drawings(told)[0]
    assert drawing.figure.axes[0].get_xlim() == drawing.figure.axes[0].get_ylim() == (-0.3, 10.3)
    scored = replace(told.series[1], table=replace(told.series[1].table, rows=[]))
    assert "no evidence" not in render(replace(told, series=(scored,))).html


@pytest.mark.usefixtures("undrawn")
def test_a_served_page_holds_neither_outputs_nor_script() -> None:
    html = render(report(steps=(4,)), live={"view": "0", "folders": []}).html
    assert "pack-0" not in html
    assert "Content-Security-Policy" not in html
    for name in (*STYLES, *SCRIPTS, LIVE):
        assert f'"{name}"' in html
    assert json.loads(html.partition('id="live">')[2].partition("<")[0]) == {
        "view": "0",
        "folders": [],
    }
    assert html.index('id="under-way" hidden') < html.index('id="answer"')


@pytest.mark.usefixtures("undrawn")
def test_an_audit_document_survives_its_file() -> None:
    read = Result.read(json.loads(json.dumps(audit_result().document())))
    again = replace(report(), audits=(AuditPart(read, {}),))
    assert "Use (0.9, float32) at M = 4" in render(again).html


# ---------------------------------------------------------------------------- studies, judges


def test_a_study_is_shown_by_its_record() -> None:
    page = short_page()
    text = plain(page.html)
    for words in ("How long does it take?", "Seconds per sequence", "Calls", "Beside the cells"):
        assert words in text
    assert "Measured in batches of eight." in text
    assert "not installed" not in text
    assert {"stopwatch-1", "stopwatch-1-cells"} <= {one.name for one in page.drawings}


def test_a_study_that_is_not_installed_is_shown_by_its_tables() -> None:
    part = StudyPart("stopwatch", Path("x"), study_result(), None)
    page = render(Report(title="alone", studies=(part,)))
    assert "The study stopwatch is not installed here" in page.html
    assert "Seconds per sequence" in page.html
    assert page.drawings == []


def test_a_result_that_its_figure_cannot_read_is_one_error() -> None:
    odd = replace(study_result(), table=Table("odd", (Column("x"),), [{"x": 1}]))
    with pytest.raises(UserError, match="what its figure needs"):
        render(Report(title="odd", studies=(StudyPart("stopwatch", Path("x"), odd, STUDY),)))


@pytest.mark.usefixtures("undrawn")
def test_judges_have_tables_of_their_own_and_the_counting_one_is_called_so() -> None:
    html = render(report()).html
    judged = html[html.index('id="groupeval"') : html.index('id="outputs"')]
    assert judged.count("<table>") == 2
    warned = [m.start() for m in re.finditer("only counts repetitions and lengths", judged)]
    assert len(warned) == 1
    assert warned[0] < judged.index("Judged by offline-v1") < judged.index("Judged by a-model")
    assert "no evidence about quality" in judged
    series = tuple(one for one in report().series if not one.offline)
    assert "only counts" not in render(replace(report(), series=series)).html


def test_judged_cells_are_recognised() -> None:
    cells = report(steps=(4, 16), points=CORNERS[2:4]).cells
    assert recognised(cells[2].measured.id, cells) is cells[2]
    assert recognised("synthetic steps=16 precision=float64", cells) is cells[2]
    assert recognised("synthetic steps=16 temperature=0.9 precision=float32", cells) is cells[3]
    assert recognised("synthetic steps=16", cells) is None  # two cells could be meant
    assert recognised("synthetic temperature=0.9 steps=16", cells) is None
    assert recognised("elsewhere steps=16 precision=float64", cells) is None
    assert recognised("synthetic", cells[:1]) is cells[0]


# ---------------------------------------------------------------------------- metrics


def test_every_metric_has_its_columns() -> None:
    full = report(steps=(4,))
    assert [one.column.heading for one in output_columns(full)] == [
        "perplexity",
        "entropy",
        "repeated",
        "calls",
    ]
    table = pool_table(full, full.groups[0])
    assert table.header()[3:6] == ["perplexity", "entropy", "repeated 4-grams"]
    assert table.header()[-2:] == ["network calls", "seconds"]


@pytest.mark.usefixtures("undrawn")
def test_perplexities_go_by_evaluator_and_span() -> None:
    one = measured(4, STANDARD, 4, perplexity=30.0, entropy=interval(5.5, 0.1))
    other = replace(one.scores[0], metric=METRIC.model_copy(update={"span": "full-stream"}))
    two = with_scores(one, (one.scores[0], other, *one.scores[1:]))
    found = one_group(shown(two, ["a"] * 4))
    assert list(found.perplexities.values()) == ["gpt2, first-document", "gpt2, full-stream"]
    names = [one.column.heading for one in output_columns(found)]
    assert names[:2] == [
        "perplexity (gpt2, first-document)",
        "perplexity (gpt2, full-stream)",
    ]
    html = render(found).html
    assert html.count("<caption>Perplexity under gpt2, ") == 2


# ---------------------------------------------------------------------------- paths and names


def test_absolute_paths_are_not_passed_on() -> None:
    private = "/home/somebody/secret/models/tiny"
    assert place(private) == "models/tiny"
    assert place("runs/first") == "runs/first"
    assert place("/tiny") == "tiny"
    assert place("embedded:tales") == "embedded:tales"
    assert replaced(f"see {private}/x", {private: "models/tiny"}) == "see models/tiny/x"
    rows = [{"checkpoint": private, "loss": 1.0}]
    table = Table("Losses", (Column("checkpoint"), Column("loss")), rows)
    study = replace(STUDY, draw=lambda _: STUDY.draw(study_result()), beside_cells=None)  # type: ignore[misc]
    result = replace(study_result(), table=table, notes=(f"of {private}",))
    full = replace(
        report(steps=(4,)),
        studies=(StudyPart("stopwatch", Path(private), result, study),),
        commands={"audit": f"strop audit {private}"},
        audits=(),
        private={private: "models/tiny"},
    )
    html = render(full).html
    assert "somebody" not in html
    assert "strop audit models/tiny" in html


def packs(html: str) -> list[list[list[object]]]:
    found = re.findall(r'id="pack-\d+">([^<]*)<', html)
    return [json.loads(zlib.decompress(base64.b64decode(one))) for one in found]


def test_what_is_packed_is_what_was_given() -> None:
    full = report(steps=(4,))
    held, columns = packs(short_page().html), output_columns(full)
    assert len(held) == len(full.cells)
    for rows, cell in zip(held, full.cells, strict=True):
        assert [row[1] for row in rows] == list(cell.texts.values())
        assert [row[0] for row in rows] == list(cell.texts)
        for row in rows:
            given = [column.values(cell, np.array([row[0]]))[0] for column in columns]
            assert row[2] == pytest.approx(given, rel=1e-4)


@pytest.mark.usefixtures("undrawn")
def test_outputs_that_were_not_scored_have_no_number() -> None:
    cell = measured(4, STANDARD, 2, perplexity=30.0)
    score = cell.scores[0]
    half = replace(score, index=np.array([7]), columns={k: v[:1] for k, v in score.columns.items()})
    one = Shown(with_scores(cell, (half,)), "x", {2: "a", 7: "b"}, {2: 3, 7: 4})
    ((first, second),) = packs(render(one_group(one)).html)
    assert first == [2, "a", [None, 3.0]]
    assert second[:2] == [7, "b"]
    assert second[2][0] > 0  # type: ignore[index]


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_page_that_would_be_too_large_holds_fewer_outputs() -> None:
    full = report(steps=(4,), n=24, tokens=400)
    whole = render(full)
    assert whole.outputs == 24
    least = len(render(full, outputs=0).html.encode())
    limit = (least + len(whole.html.encode())) // 2
    cut = render(full, most_bytes=limit)
    assert 6 <= cut.outputs < 24
    assert len(cut.html.encode()) <= limit
    assert all(len(rows) == cut.outputs for rows in packs(cut.html))
    assert '"n": 24' in cut.html  # so that the page can say how many there are
    assert render(full, outputs=30, most_bytes=limit).outputs == 24  # asked for: no limit


def test_figures_follow_the_page_and_stand_alone() -> None:
    drawn = drawings(report())
    assert [d.name for d in drawn] == [
        "perplexity-1",
        "entropy-1",
        "frontier-1",
        "groupeval-1",
        "groupeval-2",
        "two-bits",
    ]
    for drawing in drawn:
        svg, _ = inline(drawing.figure, drawing.name, 'a "name" <b>')
        assert 'aria-label="a &#34;name&#34; &lt;b&gt;"' in svg
        assert "var(--ink)" in svg
        # Every colour is the page's to choose; black and white would vanish in one of its schemes.
        assert not re.findall(r"#[0-9a-f]{6}\b", svg)
        own = set(re.findall(r'id="([^"]*)"', svg))
        assert all(one.startswith(drawing.name + "-") for one in own)
        assert set(re.findall(r'(?:href="|url\()#([^")]*)', svg)) <= own
        alone = as_file(drawing.figure, "svg").decode()
        assert "var(" not in alone
        assert any(colour in alone for colour in VARIABLES)
        assert as_file(drawing.figure, "png").startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_figures_of_a_whole_grid_show_the_standard_and_the_sharpest() -> None:
    points = tuple(
        OperatingPoint.of(SamplerSpec(steps=1, temperature=tau, precision=precision))
        for tau in (0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1)
        for precision in ("float64", "float32")
    )
    steps = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    page = render(report(steps=steps, points=points, n=2))
    assert all(page.html.count(f'<th scope="col">{point}</th>') == 1 for point in points)
    for drawing in page.drawings[:3]:
        legend = [text.get_text() for text in drawing.figure.legends[0].get_texts()]
        assert len(legend) == MOST_LINES
        assert str(STANDARD) in legend
        assert {"(0.8, float64)", "(0.8, float32)", "(0.85, float32)"} <= set(legend)
        assert f"{MOST_LINES} of {len(points)} samplers" in drawing.caption


def long_names() -> Report:
    points = tuple(
        OperatingPoint.of(SamplerSpec(name="remdm-cap", steps=1, temperature=tau, eta=eta))
        for tau in (1.0, 0.9)
        for eta in (0.01, 0.02, 0.04)
    )
    return report(steps=(3, 4, 5, 6, 8, 1024), points=points, n=2)


@pytest.mark.parametrize("make", [report, long_names])
def test_no_label_of_a_figure_is_cut_or_meets_another(make: object) -> None:
    for drawing in drawings(make()):  # type: ignore[operator]
        figure = drawing.figure
        figure.draw_without_rendering()
        texts = [*(t for one in figure.legends for t in one.get_texts())]
        for axes in figure.axes:
            texts += [axes.xaxis.label, axes.yaxis.label, *axes.texts]
            for axis in (axes.xaxis, axes.yaxis):
                low, high = sorted(axis.get_view_interval())
                ticks = [t for t in axis.get_major_ticks() if low <= t.get_loc() <= high]
                texts += [tick.label1 for tick in ticks]
        boxes = [t.get_window_extent() for t in texts if t.get_text() and t.get_visible()]
        width, height = figure.bbox.width + 1, figure.bbox.height + 1
        for i, box in enumerate(boxes):
            assert -1 <= box.x0 <= box.x1 <= width, drawing.name
            assert -1 <= box.y0 <= box.y1 <= height, drawing.name
            for other in boxes[:i]:
                assert not box.shrunk(0.9, 0.9).overlaps(other), (drawing.name, box, other)


def test_a_causal_model_has_no_figure_against_steps() -> None:
    names = [one.name for one in drawings(report(steps=(64,), points=CORNERS[:2]))]
    assert names[0] == "frontier-1"


def test_written_page_and_figures(tmp_path: Path) -> None:
    page = short_page()
    files = write(page, tmp_path / "new" / "audit.html")
    assert files[0].read_text(encoding="utf-8") == page.html
    names = sorted(str(file.relative_to(tmp_path / "new")) for file in files[1:])
    assert names == sorted(
        f"figures/audit/{d.name}.{kind}"
        for d in page.drawings
        for kind in ("svg", "png", "pdf", "csv")
    )
    before = {file: file.read_bytes() for file in files}
    write(render(report(steps=(4,))), tmp_path / "new" / "audit.html")
    assert {file: file.read_bytes() for file in files} == before  # same numbers, same bytes


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    page = short_page()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="leads through one"):
        write(page, tmp_path / "file" / "report.html")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_judged_table_has_what_the_protocol_demands_beside_ged() -> None:
    beside = {"valid_share": 0.9, "effective_modes": 4.73, "dominant_share": 0.4}
    beside |= {"singleton_rate": 0.094, "ceiling_rate": 0.063}
    found = {"geq": 3.1, "ged": 6.0, "n_groups": 3, "n_groups_asked": 4, **beside}
    row = _row("a", found, ())
    assert {name: row[name] for name in beside} == beside
    shown = {one.name: one for one in COLUMNS}
    assert set(beside) <= set(shown)
    assert shown["singleton_rate"].text(row["singleton_rate"]) == "9.4%"
    assert shown["ceiling_rate"].text(row["ceiling_rate"]) == "6.3%"
