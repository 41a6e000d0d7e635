"""A study is a value: one record that command line, result, report and docs read."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from called import Called
from matplotlib.figure import Figure
from matplotlib.text import Annotation

import strop
from strop import measure, verbs
from strop.cli.main import run
from strop.errors import UserError
from strop.measure.metric import METRICS
from strop.page import gather
from strop.stats.interval import Interval
from strop.table import Column, Table
from strop.verbs import paper
from strop.verbs.collapse import CEILING, best_pair
from strop.verbs.cross_model import _asks as overview_asks
from strop.verbs.cross_model import _judged_on
from strop.verbs.frontier import below_guard
from strop.verbs.study import STUDIES

DOCS = Path(__file__).parents[2] / "docs"


# ---------------------------------------------------------------- one record each


@pytest.fixture
def toy() -> Iterator[verbs.Study]:
    """A study that counts letters, as a user would add it."""

    def measure(ask: verbs.Ask) -> verbs.Result:
        rows = [
            {"word": word, "letters": len(word) * ask["factor"]} for word in (*ask.sources, "strop")
        ]
        columns = (Column("word"), Column("letters", "number of letters", unit="letters"))
        return verbs.Result(ask.said(), Table("Letters", columns, rows), notes=("counted",))

    def draw(result: verbs.Result) -> Any:
        from strop.figures import panels

        figure, [axes] = panels(1, 2.0)
        axes.plot([row["letters"] for row in result.table.rows])
        return figure

    record = verbs.Study(
        name="letters",
        title="How long are words?",
        about="Count letters.",
        sources=verbs.Sources(("WORD...",), "Some words."),
        parameters=(verbs.Parameter("factor", "Times what.", 1, "int", least=1),),
        run=measure,
        draw=draw,
        version="1",
    )
    strop.register(record)
    yield record
    STUDIES.forget("letters")


@pytest.fixture
def vowels() -> Iterator[measure.Metric]:
    """A metric of the text, as a user would add it."""
    record = measure.Metric(
        "vowels",
        (
            measure.Aggregate(
                Column("vowels", "share of vowels", digits=3, help="Of the characters."),
                lambda columns, _: measure.mean(columns["vowels"]),
            ),
        ),
        measure=lambda texts, _: {"vowels": np.array([_vowels(text) for text in texts])},
        output=Column("vowels", digits=2),
        needs_text=True,
        version="1",
    )
    strop.register(record)
    yield record
    METRICS.forget("vowels")


def _vowels(text: str) -> float:
    return sum(c in "aeiou" for c in text) / max(len(text), 1)


def test_a_study_costs_one_record(
    toy: verbs.Study, call: Called, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "letters"
    code, document, err = call("study", "letters", "cat", "mouse", "--factor", 2, "-o", out)
    assert code == 0
    assert document["rows"][1] == {"word": "mouse", "letters": 10}
    assert f"next: strop report {out}" in err
    with open(out / "table.csv") as file:
        assert [row["letters"] for row in csv.DictReader(file)] == ["6", "10", "10"]
    assert (out / "letters.svg").stat().st_size > 500
    assert run(["study", "letters", "cat", "-o", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "number of letters, letters" in printed
    assert "counted" in printed
    assert run(["study", "--help"]) == 0
    assert "How long are words?" in capsys.readouterr().out
    code, document, _ = call("study", "letters", "--factor", 0, "-o", tmp_path / "x")
    assert code == 1
    assert "--factor" in json.dumps(document)
    stored = json.loads((out / "result.json").read_text())
    again = verbs.Result.read({k: v for k, v in stored.items() if k not in ("format", "study")})
    assert again.table == Table("Letters", toy.run(toy.ask(out)).table.columns, stored["rows"])
    # The report shows it unasked.
    page = tmp_path / "page.html"
    code, _, _ = call("report", out, "-o", page)
    html = page.read_text()
    assert code == 0
    assert "How long are words?" in html
    assert "number of letters" in html
    assert html.count("<svg") >= 1


def test_a_metric_costs_one_record(
    vowels: measure.Metric, checkpoint: Path, call: Called, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert call("sample", checkpoint, "--steps", 2, "-n", 4, "-o", out)[0] == 0
    code, document, _ = call("score", out, "--evaluator", "none")
    assert code == 0
    [cell] = document["cells"]
    from strop.store import Run

    texts = Run.open(out).cells()[0].pool().texts
    assert texts is not None
    assert cell["vowels"]["value"] == pytest.approx(np.mean([_vowels(text) for text in texts]))
    assert cell["vowels"]["low"] <= cell["vowels"]["value"] <= cell["vowels"]["high"]
    page = tmp_path / "page.html"
    assert call("report", out, "-o", page)[0] == 0
    assert "share of vowels" in page.read_text()


def test_two_records_cannot_share_a_name(toy: verbs.Study, vowels: measure.Metric) -> None:
    for record in (toy, vowels):
        with pytest.raises(UserError, match="already"):
            strop.register(replace(record, version="2"))


def test_numbers_of_another_version_are_not_taken_for_this_one_s(
    vowels: measure.Metric, checkpoint: Path, call: Called, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert call("sample", checkpoint, "--steps", 2, "-n", 4, "-o", out)[0] == 0
    before = call("score", out, "--evaluator", "none")[1]["cells"][0]["vowels"]["value"]
    twice = replace(vowels, measure=lambda texts, _: {"vowels": np.full(len(texts), 7.0)})
    strop.register(twice, replace=True)  # changed without a new version: what is on disk counts
    assert call("score", out, "--evaluator", "none")[1]["cells"][0]["vowels"]["value"] == before
    strop.register(replace(twice, version="2"), replace=True)
    assert call("score", out, "--evaluator", "none")[1]["cells"][0]["vowels"]["value"] == 7.0
    strop.register(vowels, replace=True)  # and back: both are kept
    assert call("score", out, "--evaluator", "none")[1]["cells"][0]["vowels"]["value"] == before


def test_cells_of_another_version_of_a_study_are_not_used(tmp_path: Path) -> None:
    import pyarrow as pa

    from strop.store import StudyFolder

    one = pa.table({"x": [1]})
    found = {}
    for version in (None, "1", "2"):
        folder = StudyFolder(tmp_path, "study", "letters", version=version)
        with folder.writing({}):
            assert folder.cell("a") is None
            folder.keep("a", 0, one)
            assert folder.part("a", 0) == one
            folder.complete("a", one)
            assert folder.part("a", 0) is None
            found[version] = folder.cell("a")
    assert found == {None: one, "1": one, "2": one}
    names = {file.stem for file in (tmp_path / "cells").iterdir()}
    assert len(names) == 3
    assert "a" in names  # of a built-in study, where it always was


def test_every_study_stands_in_the_docs_and_has_examples_that_parse() -> None:
    import shlex

    from strop.cli.main import build

    page, tree = (DOCS / "studies.md").read_text(), build()
    for name, record in verbs.studies().items():
        assert f"`strop study {name}`" in page or record.kind != "study", name
        assert record.examples, name
        for example in record.examples:
            words = shlex.split(example)[1:]
            command = tree
            while hasattr(command, "commands"):
                command = command.commands[words.pop(0)]
            command.make_context("x", list(words))


def test_the_registry_loads_no_torch() -> None:
    code = "import sys; from strop.verbs import studies; studies()\n"
    code += "print([m for m in ('torch', 'scipy', 'matplotlib', 'pyarrow') if m in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert found.stdout.strip() == "[]"


# ---------------------------------------------------------------- tables


def test_a_table_is_the_same_everywhere() -> None:
    rows = [
        {"m": 4, "name": "=1+1", "x": Interval(41.234, 38.1, 44.9), "mark": "†", "h": 4.2},
        {"m": 4, "name": "b", "x": None, "mark": "", "h": None},
    ]
    columns = (
        Column("m", "M"),
        Column("name"),
        Column("x", digits=4, mark="mark"),
    )
    table = Table("T", columns, rows)
    assert table.text() == (
        ["M", "name", "x"],
        [["4", "=1+1", "41.23† [38.10, 44.90]"], ["4", "b", "–"]],
    )
    assert Table.read(json.loads(json.dumps(table.document()))) == table
    assert b"'=1+1" in table.csv()  # a spreadsheet must not run it
    from strop.table import Pivot

    spread = Table("T", columns, rows, Pivot(("m",), ("name",), "x", ("h",)))
    assert spread.header() == ["M", "=1+1", "b"]
    assert spread.text()[1] == [["4", "41.23† [4.200]\n[38.10, 44.90]", "– [–]"]]
    assert Table.read(spread.document()) == spread


# ---------------------------------------------------------------- the studies themselves


def test_the_best_pair() -> None:
    nll, tokens = np.array([1.0, 2.0, 3.0, 9.0]), np.array([1, 1, 1, 1])
    assert best_pair(nll, tokens, np.array([1.0, 1.0, 1.0, 1.0])) == (0, 1)
    assert best_pair(nll, tokens, np.array([0.0, 0.0, 0.0, 4.0])) == (0, 3)
    with pytest.raises(UserError, match="two outputs"):
        best_pair(nll[:1], tokens[:1], np.ones(1))


def test_collapse_fools_scores_of_single_outputs_only(call: Called, tmp_path: Path) -> None:
    code, result, _ = call(
        "study", "collapse", "embedded:tales-tiny", "--steps", 4, "-n", 16, "-o", tmp_path / "c"
    )
    assert code == 0
    honest, control = result["rows"]
    assert control["perplexity"] < honest["perplexity"]
    assert control["entropy"] >= honest["entropy"]
    [judge] = result["judges"]
    assert control[f"GED {judge}"] <= CEILING + 1e-9
    assert control[f"GED {judge}"] < honest[f"GED {judge}"]


def test_collapse_says_at_once_that_it_needs_groups(call: Called, tmp_path: Path) -> None:
    code, document, _ = call("study", "collapse", "-n", 3, "-o", tmp_path / "c")
    assert (code, document["error"]["expected"]) == (1, "a multiple of 8")
    assert not (tmp_path / "c" / "run").exists()


@pytest.mark.slow
def test_less_is_more_and_frontier(call: Called, tmp_path: Path) -> None:
    words = ("--steps", "2,4", "-n", 4, "--length", 16)
    pair = ("embedded:tales-tiny", "embedded:tales-early", *words, "--n-less", 6)
    code, ratios, _ = call("study", "less-is-more", *pair, "-o", tmp_path / "less")
    assert code == 0
    assert {row["sampler"] for row in ratios["rows"]} == {"standard", "sharpened", "stronger"}
    for row in ratios["rows"]:
        assert row["ratio"]["value"] == pytest.approx(row["more"] / row["less"], rel=1e-9)
        assert row["inverted"] == (row["ratio"]["low"] > 1)
    from strop.store import Run

    assert {Run.open(tmp_path / "less" / name).asked["n"] for name in ("more", "less")} == {4, 6}
    sweep = ("--temperature", "0.8,1.0", "--precision", "float64")
    tiny = ("embedded:tales-tiny", *words, *sweep)
    code, found, _ = call("study", "frontier", *tiny, "-o", tmp_path / "frontier")
    assert code == 0
    cool, plain = found["rows"][:2]
    assert cool["perplexity"]["value"] < plain["perplexity"]["value"]
    assert cool["entropy"] < plain["entropy"]
    for name in ("less/less-is-more.svg", "frontier/frontier.png", "frontier/table.csv"):
        assert (tmp_path / name).stat().st_size > 0
    code, page, _ = call("report", tmp_path / "less", "-o", tmp_path / "less.html")
    assert (code, page["cells"]) == (0, 12)  # the runs inside are found
    assert len(gather([tmp_path / "frontier"]).cells) == 4
    code, document, _ = call("study", "frontier", "-n", 8, "-o", tmp_path / "less")
    assert code == 1
    assert "another study" in document["error"]["what"]


@pytest.mark.parametrize("name", ["frontier", "less-is-more"])
def test_other_families_and_axes(
    families: dict[str, str], call: Called, tmp_path: Path, name: str
) -> None:
    sources = [families["duo"]] * (2 if name == "less-is-more" else 1)
    words = ("--steps", 2, "-n", 2, "--length", 8, "--axis", "top_p=1,0.9")
    words += ("--evaluator", "embedded:tales-ar")
    code, result, _ = call("study", name, *sources, *words, "-o", tmp_path / "out")
    assert code == 0, result
    points = {row["point"] for row in result["rows"]}
    assert any("top_p 0.9" in point for point in points)
    assert all("float64" in point for point in points)  # DUO draws fast in float64 only
    assert any("float32 left out" in note for note in result["notes"])


# ---------------------------------------------------------------- the paper's tables


def test_the_list_of_what_can_be_reproduced(
    call: Called, capsys: pytest.CaptureFixture[str]
) -> None:
    code, document, _ = call("reproduce")
    assert code == 0
    assert document.keys() == paper.items().keys()
    for _, item in paper.items().values():
        for name in item.tables:
            assert paper.table(name)
    assert run(["reproduce"]) == 0
    out = capsys.readouterr().out
    assert "large-models-control" in out
    assert "MDLM-Tiny" in out


@pytest.mark.parametrize(
    ("id", "steps"),
    [pytest.param("headline", 16, marks=pytest.mark.slow), ("less-is-more-training", 4)],
)
def test_a_small_reproduction(call: Called, tmp_path: Path, id: str, steps: int) -> None:
    words = ("reproduce", id, "--smoke", "--steps", steps, "-n", 2, "-o", tmp_path / id)
    code, document, _ = call(*words)
    assert code == 0
    assert any(row["paper"] is not None for row in document["rows"])
    for row in document["rows"]:
        found = row["measured"]
        assert found["low"] <= found["value"] <= found["high"]
        where = {name: row[name] for name in ("sampler", "steps") if name in row}
        if id == "less-is-more-training":
            said = paper.table("less-is-more").value("ratio", comparison="training", **where)
            assert row["paper"] == said
    for row in document["result"]["rows"]:
        if "more" in row:
            assert row["ratio"]["value"] == pytest.approx(row["more"] / row["less"])
    # Whatever study it is, cells pass as in the paper.
    assert any("by their mean" in note for note in document["result"]["notes"])


@pytest.mark.slow
def test_the_overview_is_one_command(call: Called, tmp_path: Path) -> None:
    words = ("reproduce", "overview", "--smoke", "--steps", 4, "-n", 8, "-o", tmp_path / "o")
    code, document, _ = call(*words)
    assert code == 0
    assert (tmp_path / "o" / "overview.png").stat().st_size > 10_000
    printed = paper.table("overview").by("what")
    for row in document["rows"]:
        assert row["paper"] == printed[row["what"],][row["end"]]
    by = {(row["what"], row["end"]): row["measured"]["value"] for row in document["rows"]}
    assert {end for _, end in by} == {"low", "high"}
    assert all(by[what, "low"] <= by[what, "high"] for what, _ in by)
    notes = " ".join(document["result"]["notes"])
    assert "best of 2,000 draws, as in the paper" in notes
    assert "by their mean" in notes
    among = json.loads((tmp_path / "o" / "cross-model" / "result.json").read_text())
    assert any("by their mean" in note for note in among["notes"])
    for panel, asked in (("cross-model", {"steps": [4], "n": 8}), ("posterior", {"n": 8})):
        told = json.loads((tmp_path / "o" / panel / "result.json").read_text())["asked"]
        assert {name: told[name] for name in asked} == asked


def test_the_overviews_arrows_go_from_standard_to_sharpened() -> None:
    """Open where they begin, filled where they end, each score at its own pool's entropy."""
    row = {"judge": "a", "steps": 16, "entropy_standard": 5.8, "entropy_sharpened": 5.3}
    row |= {"geq_standard": 3.9, "geq_sharpened": 4.4, "ged_standard": 6.0, "ged_sharpened": 7.6}
    axes = Figure().add_subplot()
    _judged_on(axes, [row])
    arrows = {
        (tuple(one.xyann), tuple(one.xy))
        for one in axes.texts
        if isinstance(one, Annotation) and one.arrowprops
    }
    assert arrows == {((5.8, 3.9), (5.3, 4.4)), ((5.8, 6.0), (5.3, 7.6))}
    marks = [(line.get_xdata(), line.get_mfc()) for line in axes.lines if len(line.get_xdata())]
    open_ = [x[0] for x, colour in marks if colour == "white"]
    assert open_ == [5.8, 5.8]
    assert [x[0] for x, colour in marks if colour != "white"] == [5.3, 5.3]
    assert axes.xaxis_inverted()


def test_the_panels_of_the_overview_are_refused_before_any_is_drawn(tmp_path: Path) -> None:
    record = verbs.study.find("overview")
    asks = overview_asks(record.ask(tmp_path, ["MDLM-Small=a", "DUO=b"], n=64, evaluator="e"))
    told = {
        name: (one.sources, one["n"], one.values.get("evaluator")) for name, one in asks.items()
    }
    assert told == {
        "posterior": (("a",), 64, None),
        "cross-model": (("MDLM-Small=a", "DUO=b"), 64, "e"),
        "groupeval": (("a",), 64, "e"),
    }
    usual = overview_asks(record.ask(tmp_path, ["DUO=b"]))
    assert [one["n"] for one in usual.values()] == [512, 40, 128]
    evaluators = [usual[name]["evaluator"] for name in ("cross-model", "groupeval")]
    assert evaluators == ["gpt2-large", "gpt2"]
    assert usual["posterior"].sources == (paper.PUBLIC,)
    with pytest.raises(UserError, match="groups of eight"):
        record.ask(tmp_path, smoke=True, n=3)
    with pytest.raises(UserError, match="needs a name and a source"):
        record.ask(tmp_path, ["odd"])
    with pytest.raises(UserError, match="no such evaluator"):
        verbs.run("overview", out=tmp_path / "x", smoke=True, evaluator="no/such/one")


@pytest.mark.slow
def test_posterior_reproduces_both_estimators_and_the_difference(
    call: Called, tmp_path: Path
) -> None:
    words = ("reproduce", "posterior", "--smoke", "--steps", "2,8", "-n", 2)
    code, document, _ = call(*words, "-o", tmp_path / "p")
    assert code == 0
    rows = document["rows"]
    by = {(r["what"], r["checkpoint"], r["steps"], r["estimator"]): r for r in rows}
    late = by["0.9 minus 1", "embedded:tales", 2, "all hidden"]
    printed = paper.table("posterior").value("difference", checkpoint="late", steps=2)
    assert late["paper"]["value"] == printed
    assert ("0.9 minus 1", "embedded:tales-early", 8, "one target") in by
    difference = by[
        "late minus early", "embedded:tales minus embedded:tales-early", 8, "all hidden"
    ]
    assert difference["paper"]["value"] == -0.546
    profile = [r for r in rows if r["estimator"] == "profile's mean"]
    assert [row["paper"]["value"] for row in profile] == [-0.674]


def test_the_five_public_cells_can_run_and_a_checkpoint_of_ones_own_is_late() -> None:
    _, item = paper.items()["posterior"]
    assert paper._roles(item, [], smoke=False) == {"public": paper.PUBLIC}
    assert paper._roles(item, ["runs/mine"], smoke=False) == {"late": "runs/mine"}
    assert paper._roles(item, [paper.PUBLIC], smoke=False) == {"public": paper.PUBLIC}
    both = paper._roles(item, ["runs/a", "runs/b"], smoke=False)
    assert both == {"early": "runs/a", "late": "runs/b"}
    named = paper._roles(item, ["early=runs/a"], smoke=False)
    assert named == {"early": "runs/a"}
    _, full = paper.items()["headline-full"]
    assert paper._roles(full, ["runs/mine"], smoke=False) == {"late": "runs/mine"}
    _, head = paper.items()["headline"]
    assert paper._roles(head, ["runs/mine"], smoke=False) == {"public": "runs/mine"}
    with pytest.raises(UserError):
        paper._roles(head, ["runs/a", "runs/b"], smoke=False)


def test_across_families_a_checkpoint_says_whose_place_it_takes() -> None:
    """Any of the six will do; of the two whose outputs are compared both are needed."""
    every = paper.items()
    for id in ("cross-model", "overview"):
        _, item = every[id]
        assert paper._roles(item, ["DUO=runs/duo"], smoke=False) == {"DUO": "runs/duo"}
        with pytest.raises(UserError, match="whose place it takes: MDLM-Small=runs/mine"):
            paper._roles(item, ["runs/mine"], smoke=False)
    with pytest.raises(UserError, match="give the others too"):
        paper._roles(every["exact-output"][1], ["DiDi-Instruct=runs/didi"], smoke=False)
    with pytest.raises(UserError, match="runs no checkpoint"):
        paper._roles(every["exact-repair"][1], ["runs/mine"], smoke=False)


def test_size_uses_twice_the_outputs_for_tiny() -> None:
    _, item = paper.items()["less-is-more-size"]
    assert (item.values["n"], item.values["n_less"]) == (128, (256,))


def test_reproducing_says_what_is_missing(call: Called, tmp_path: Path) -> None:
    code, document, _ = call("reproduce", "grid-small-late", "-o", tmp_path / "x")
    assert code == 1
    assert "--smoke" in document["error"]["fix"]
    code, document, _ = call("reproduce", "headlin", "-o", tmp_path / "x")
    assert code == 1
    assert "headline" in str(document)
    code, document, _ = call(
        "reproduce", "exact-repair", "--held-out", __file__, "-o", tmp_path / "x"
    )
    assert code == 1
    assert "--held-out" in document["error"]["what"]


def test_a_posterior_figure_with_default_names_has_room(tmp_path: Path) -> None:
    """The legend is inside the figure, and no panel is a strip."""
    from strop.verbs.posterior import STUDY

    result = verbs.run("posterior", out=tmp_path / "p", steps=(2, 8), n=2, levels=2, profile_n=2)
    assert STUDY.draw is not None
    figure = STUDY.draw(result)
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure).draw()
    whole = figure.bbox
    legend = figure.legends[0].get_window_extent()
    assert legend.x0 >= whole.x0 - 1
    assert legend.x1 <= whole.x1 + 1
    for axes in figure.axes:
        box = axes.get_window_extent()
        assert box.width > 0.5 * whole.width
        assert box.height > 0.15 * whole.height


def test_no_library_message_names_a_flag() -> None:
    """Messages name fields; the command line turns them into its own flags."""
    files = sorted(Path(verbs.__file__).parents[1].rglob("*.py"))
    assert len(files) > 100
    for file in files:
        for line in file.read_text().splitlines() if file.parent.name != "cli" else ():
            found = re.search(r'(?:where|fix|expected|got)=f?"[^"]*--[a-z]', line)
            known = "strop " in line or "pip install" in line
            assert found is None or known, f"{file.name}: {line.strip()}"


def test_a_ratio_of_the_tiny_figure_is_standard_over_sharpened(
    call: Called, tmp_path: Path
) -> None:
    words = ("reproduce", "tiny", "--smoke", "--steps", "2,4", "-n", 2, "-o", tmp_path / "tiny")
    code, document, _ = call(*words)
    assert code == 0
    rows = {(row["sampler"], row["steps"]): row for row in document["result"]["rows"]}
    for steps in (2, 4):
        standard, sharpened = rows["standard", steps], rows["sharpened", steps]
        levels = [row["perplexity"]["value"] for row in (standard, sharpened)]
        assert sharpened["ratio"]["value"] == pytest.approx(levels[0] / levels[1])
        assert standard["ratio"] is None
    printed = paper.table("grid-tiny-late")
    for row in document["rows"]:
        where = {name: row[name] for name in ("steps", "temperature", "precision")}
        assert row["paper"] == printed.value("perplexity", **where)
        assert row["paper_entropy"] == printed.value("entropy", **where)


def test_cells_below_the_guard_are_open() -> None:
    rows = [{"entropy": level} for level in (4.9, 5.0, Interval(5.1, 4.8, 5.4), None)]
    assert below_guard(rows, 5.0) == [True, False, False, False]
    assert below_guard(rows, None) == [False] * 4
