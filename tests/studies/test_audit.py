"""The audit and the sampled studies, on the embedded models, from flags to files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from strop.cli.main import run
from strop.errors import UserError
from strop.spec import SamplerSpec
from strop.store import Run
from strop.studies.collapse import CEILING, best_pair

Called = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Called:
    """A command with --json: its exit code, its document, and what it said on stderr."""

    def called(*words: object) -> tuple[int, Any, str]:
        code = run([*map(str, words), "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out), err

    return called


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("audit") / "run"
    assert run(["audit", "--steps", "2,8", "-n", "12,8", "-o", str(path), "--json"]) == 0
    return path


def test_the_table_is_what_direct_scoring_gives(audited: Path) -> None:
    result = json.loads((audited / "audit.json").read_text())
    cells = {cell["cell"]: cell for cell in result["cells"]}
    assert len(cells) == 10
    for cell in Run.open(audited).cells():
        [table] = [t for t in cell.scores().values() if t.metric.name == "perplexity"]
        total = table.columns["nll"].sum() / table.columns["tokens"].sum()
        shown = cells[cell.id]["perplexity"][0]
        assert shown["value"] == pytest.approx(np.exp(total), rel=1e-12)
        assert shown["low"] < shown["value"] < shown["high"]
        assert cells[cell.id]["outputs"] == {2: 12, 8: 8}[cells[cell.id]["steps"]]
    assert result["guard"]["threshold"] == pytest.approx(4.0, abs=0.5)
    assert len(result["ratios"]) == 8
    keys = ("steps", "temperature", "precision")
    at = {tuple(c[key] for key in keys): c["perplexity"][0] for c in cells.values()}
    for row in result["ratios"]:
        other = at[tuple(row[key] for key in keys)]
        expected = at[row["steps"], 1.0, "float64"]["value"] / other["value"]
        assert row["ratio"]["value"] == pytest.approx(expected, rel=1e-12)
        assert row["ratio"]["low"] < expected < row["ratio"]["high"]


def test_the_gain_comes_from_outputs_that_were_not_chosen_from(audited: Path) -> None:
    result = json.loads((audited / "audit.json").read_text())
    [fresh] = [p for p in (audited / "fresh").iterdir() if p.is_dir()]
    assert Run.open(fresh).asked["seed"] == Run.open(audited).asked["seed"] + 1
    cells = {
        (c.spec.generator.sampler.steps, c.spec.generator.sampler.temperature): c
        for c in Run.open(fresh).cells()
    }
    gain = next(g for g in result["gains"] if g["rule"] == "frozen" and g["steps"] == 8)
    level = {}
    for tau in (1.0, gain["temperature"]):
        [table] = [t for t in cells[8, tau].scores().values() if t.metric.name == "perplexity"]
        level[tau] = table.columns["nll"].sum() / table.columns["tokens"].sum()
    expected = np.exp(level[1.0] - level[gain["temperature"]])
    assert gain["ratio"]["value"] == pytest.approx(expected, rel=1e-12)


def test_the_choice_is_hashed_and_ready_to_use(audited: Path, call: Called, tmp_path: Path) -> None:
    selection = json.loads((audited / "selection.json").read_text())
    assert selection["selections"]["frozen"]["cells"] == 10
    for rule in ("frozen", "per-budget"):
        samplers = yaml.safe_load((audited / f"sampler-{rule}.yaml").read_text())["samplers"]
        assert [SamplerSpec(**one).steps for one in samplers] == [2, 8]
    file = audited / "sampler-frozen.yaml"
    code, document, _ = call("sample", "--spec", file, "-n", 2, "-o", tmp_path / "again")
    assert code == 0
    assert [c["sampler"]["steps"] for c in document["cells"]] == [2, 8]


def test_run_again_it_answers_from_what_is_there(audited: Path, call: Called) -> None:
    before = {p: p.stat().st_mtime_ns for p in audited.rglob("*.parquet")}
    code, document, _ = call("audit", "--steps", "2,8", "-n", "12,8", "-o", audited)
    assert code == 0
    assert {p: p.stat().st_mtime_ns for p in audited.rglob("*.parquet")} == before
    assert document["cells"] == json.loads((audited / "audit.json").read_text())["cells"]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["-n", "1,2,3"], "one per number of"),
        (["-n", "0"], "at least 1"),
        (["-n", "x"], "at least 1"),
        (["--steps", "0"], "out of range"),
        (["--evaluator", "embedded:nobody"], "embedded model"),
        (["--evaluator", "embedded:tales"], "causal language model"),
        (["--span", "whole"], "span policy"),
        (["--held-out", "nothing.jsonl", "--steps", "2", "-n", "2"], "held-out"),
    ],
)
def test_wrong_flags(call: Called, tmp_path: Path, flags: list[str], told: str) -> None:
    code, document, _ = call("audit", "--steps", "2,8", *flags, "-o", tmp_path / "run")
    assert code == 1
    assert told in " ".join(str(value) for value in document["error"].values()).lower()


def test_a_causal_model_cannot_be_audited(call: Called, tmp_path: Path) -> None:
    code, document, _ = call("audit", "embedded:tales-ar", "-o", tmp_path / "run")
    assert code == 1
    assert "no masked denoiser" in document["error"]["what"]


def test_the_best_pair() -> None:
    nll, tokens = np.array([1.0, 2.0, 3.0, 9.0]), np.array([1, 1, 1, 1])
    assert best_pair(nll, tokens, np.array([1.0, 1.0, 1.0, 1.0])) == (0, 1)
    assert best_pair(nll, tokens, np.array([0.0, 0.0, 0.0, 4.0])) == (0, 3)
    with pytest.raises(UserError, match="two outputs"):
        best_pair(nll[:1], tokens[:1], np.ones(1))


def test_collapse_fools_scores_of_single_outputs_only(call: Called, tmp_path: Path) -> None:
    code, result, _ = call("study", "collapse", "--steps", 8, "-n", 16, "-o", tmp_path / "c")
    assert code == 0
    honest, control = result["rows"]
    assert control["perplexity"] < honest["perplexity"]
    assert control["entropy"] >= honest["entropy"]
    [judge] = result["judges"]
    assert control[f"GED {judge}"] <= CEILING + 1e-9
    assert control[f"GED {judge}"] < honest[f"GED {judge}"]


def test_less_is_more_and_frontier(call: Called, tmp_path: Path) -> None:
    code, ratios, _ = call(
        "study", "less-is-more", "--steps", "2,8", "-n", 8, "-o", tmp_path / "less"
    )
    assert code == 0
    assert {row["sampler"] for row in ratios["rows"]} == {"standard", "sharpened", "stronger"}
    for row in ratios["rows"]:
        assert row["ratio"] == pytest.approx(row["more"] / row["less"], rel=1e-9)
        assert row["inverted"] == (row["low"] > 1)
    code, sweep, _ = call(
        "study", "frontier", "--steps", 8, "--temperature", "0.8,1.0", "--precision", "float64",
        "-n", 8, "-o", tmp_path / "frontier",
    )  # fmt: skip
    assert code == 0
    cool, plain = sweep["rows"]
    assert cool["perplexity"] < plain["perplexity"]
    assert cool["entropy"] < plain["entropy"]
    for name in ("less/less-is-more.svg", "frontier/frontier.png", "frontier/table.csv"):
        assert (tmp_path / name).stat().st_size > 0
    for name, cells in (("less", 12), ("frontier", 2)):  # the runs inside are found
        code, page, _ = call("report", tmp_path / name, "-o", tmp_path / f"{name}.html")
        assert (code, page["cells"]) == (0, cells)
    code, document, _ = call("study", "frontier", "-n", 8, "-o", tmp_path / "less")
    assert code == 1
    assert "another study" in document["error"]["what"]


def test_the_list_of_what_can_be_reproduced(call: Called) -> None:
    from strop.studies import paper
    from strop.studies.groupeval_panel import paper_numbers
    from strop.studies.reproduce import ITEMS

    code, document, _ = call("reproduce")
    assert code == 0
    assert document.keys() == ITEMS.keys()
    for item in ITEMS.values():
        for name in item.tables:
            assert paper_numbers(name) if name.startswith("groupeval") else paper.table(name)


@pytest.mark.parametrize("id", ["headline", "less-is-more-training", "posterior", "groupeval-mdlm"])
def test_a_small_reproduction(call: Called, tmp_path: Path, id: str) -> None:
    code, document, _ = call(
        "reproduce", id, "--smoke", "--steps", "4,16", "-n", 16, "-o", tmp_path / id
    )
    assert code == 0
    assert document["rows"]
    for row in document["rows"]:
        assert row["low"] <= row["measured"] <= row["high"]
    known = [row for row in document["rows"] if row["paper"] is not None]
    assert known or id == "posterior"  # the paper's budgets there are 2, 8, 32, ...


def test_reproducing_says_what_is_missing(call: Called, tmp_path: Path) -> None:
    code, document, _ = call("reproduce", "grid-small-late", "-o", tmp_path / "x")
    assert code == 1
    assert "--smoke" in document["error"]["fix"]
    code, document, _ = call("reproduce", "headlin", "-o", tmp_path / "x")
    assert code == 1
    assert "headline" in str(document)
