from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from called import Called

sys.path.append(str(Path(__file__).parents[1] / "groupeval"))

from made_judgments import random_verdicts

from strop.errors import UserError
from strop.figures import write_figure
from strop.groupeval.judgments import Judgments
from strop.groupeval.offline import _pieces, _remembering
from strop.groupeval.scores import PlannedGroups, diagnose, ged
from strop.groupeval.verdict import GroupVerdict
from strop.stats.interval import Interval
from strop.table import Table
from strop.verbs import groupeval_study as study
from strop.verbs import paper
from strop.verbs.groupeval_study import (
    BESIDE_GED,
    SETTINGS,
    STUDY,
    contrast,
    judge_correlations,
    paper_contrasts,
    quality_diversity,
    sign_counts,
    step_savings,
    summary,
)
from strop.verbs.verb import Result


def test_mdlm_panel_says_what_the_paper_says() -> None:
    panel, printed = paper_contrasts("groupeval-mdlm"), paper.table("groupeval-mdlm")
    claims = printed.claims
    assert len({row["judge"] for row in panel}) == 5
    assert (len(panel), printed.settings["outputs_per_cell"]) == (25, 128)
    counts = sign_counts(panel)
    assert [counts["geq_higher"], counts["pairs"]] == claims["geq_higher"]
    assert [counts["ged_higher"], counts["pairs"]] == claims["ged_higher"]
    assert [counts["intervals_above_zero"], 20] == claims["intervals_excluding_zero"]
    saved = step_savings(panel)
    assert (saved["geq_higher"], saved["of"]) == (5, 5)
    assert saved["judges"]["GPT-OSS"]["geq"] == [5.15, 5.99]  # standard at 1,024, sharpened at 256
    pairs = judge_correlations(panel, judges=printed.settings["first_judges"])["pairs"]
    for score in ("geq", "ged"):
        found = [pair[score] for pair in pairs]
        assert [round(min(found), 2), round(max(found), 2)] == claims[f"{score}_correlations"]


def test_didi_panel_has_no_judge_robust_gain() -> None:
    panel = paper_contrasts("groupeval-didi")
    assert (len({row["judge"] for row in panel}), len(panel)) == (3, 15)
    counts = sign_counts(panel)
    assert counts["intervals_above_zero"] == 0
    assert counts["intervals_below_zero"] == 2
    assert counts["by_judge"]["Luna"]["geq_higher"] == 0


def test_numbers_agree_within_their_rounding() -> None:
    """Difference and interval belong to the pair they stand beside: a slip in the data shows."""
    for name in ("groupeval-mdlm", "groupeval-didi"):
        for row in paper_contrasts(name):
            gap = row["geq_sharpened"] - row["geq_standard"]
            found = row["difference"]
            assert found.value == pytest.approx(gap, abs=0.0151)
            assert found.low <= found.value <= found.high
            clear = found.excludes(0)
            # Gemma at 16 steps: [0.00, 0.55] in print, above zero before rounding.
            assert row["excludes_zero"] == clear or (row["judge"], row["steps"]) == ("Gemma", 16)
    for row in paper.table("groupeval-exact").records():
        gap = row["geq_mdlm"] - row["geq_didi"]
        assert row["difference"] == pytest.approx(gap, abs=0.0151)
        gap = row["ged_mdlm"] - row["ged_didi"]
        assert row["ged_difference"] == pytest.approx(gap, abs=0.0151)
    for row in paper.table("conditional").records():
        gap = row["geq_dream"] - row["geq_llada"]
        assert row["difference"] == pytest.approx(gap, abs=0.0151)


def test_cross_generator() -> None:
    """Likelihood prefers DiDi-Instruct on the same outputs, the judge MDLM."""
    printed = paper.table("groupeval-exact")
    rows, claims = printed.records(), printed.claims
    assert all(row["gpt2_large_ratio"] > 1 and row["qwen_ratio"] > 1 for row in rows)
    for score in ("geq", "ged"):
        higher = sum(row[f"{score}_mdlm"] > row[f"{score}_didi"] for row in rows)
        assert [higher, len(rows)] == claims[f"{score}_higher"]
    assert sum(row["geq_mdlm"] == row["geq_didi"] for row in rows) == claims["geq_tied"]
    assert sum(row["low"] > 0 for row in rows) == 2


def ours(seed: int) -> Judgments:
    verdicts: list[GroupVerdict] = []
    planned = {}
    for steps in (16, 256, 1024):
        for sampler, best in (("standard", 0.2), ("sharpened", 0.8)):
            name = f"{sampler} {steps}"
            verdicts += random_verdicts(seed + steps, cell=name, best=best)
            planned[name] = PlannedGroups(24, 12, 2)
    return Judgments("x", verdicts, [], planned, True, True)


def measured_rows() -> list[dict[str, Any]]:
    return [
        {
            "judge": judge,
            "steps": steps,
            **contrast(series, f"standard {steps}", f"sharpened {steps}"),
        }
        for judge, series in (("a", ours(1)), ("b", ours(2)))
        for steps in (16, 256, 1024)
    ]


def test_measured_series_make_the_same_panel() -> None:
    told = summary(measured_rows())
    assert told["sign_counts"]["pairs"] == told["sign_counts"]["geq_higher"] == 6
    assert told["sign_counts"]["intervals_above_zero"] == 6
    assert told["step_savings"]["geq_higher"] == 2
    assert told["judge_correlations"]["pairs"][0]["geq"] > 0.5


def test_a_tie_is_neither_higher_nor_lower() -> None:
    row = {"judge": "a", "steps": 16, "geq_standard": 5.0, "geq_sharpened": 5.0}
    row |= {"ged_standard": 4.0, "ged_sharpened": 3.0}
    row |= {"difference": Interval(0.0), "excludes_zero": False}
    told = sign_counts([row, {**row, "steps": 4, "geq_sharpened": 9.0}])  # 4 is the floor case
    assert (told["pairs"], told["geq_higher"], told["geq_lower"]) == (1, 0, 0)
    assert (told["ged_higher"], told["ged_lower"]) == (0, 1)
    assert told["by_judge"] == {"a": {"geq_higher": 0, "ged_higher": 0, "pairs": 1}}


def test_each_side_of_a_contrast_is_that_of_its_cell() -> None:
    series = ours(3)
    row = contrast(series, "standard 16", "sharpened 256")
    cells = dict(
        zip(SETTINGS, map(series.cells.get, ("standard 16", "sharpened 256")), strict=True)
    )
    for setting, cell in cells.items():
        told = diagnose(cell, modes=True)
        assert (row[f"geq_{setting}"], row[f"ged_{setting}"]) == (cell.geq(), ged(cell))
        for name in BESIDE_GED:
            assert row[f"{name}_{setting}"] == told[name]
    assert row["ged_standard"] != row["ged_sharpened"]
    gap = cells["sharpened"].geq() - cells["standard"].geq()
    assert row["difference"].value == pytest.approx(gap)
    [standard, sharpened] = study._diagnostics([{"judge": "a", "steps": 16, **row}]).rows
    for name in ("ged", *BESIDE_GED):
        assert standard[name] == row[f"{name}_standard"]
        assert sharpened[name] == row[f"{name}_sharpened"]


def test_perplexity_and_entropy_are_those_of_the_budget_and_the_sampler() -> None:
    """Cells come budget by budget, the standard one first."""
    scored: Any = [
        SimpleNamespace(perplexity=lambda level=level: level, entropy=level / 100)
        for level in (400.0, 100.0, 150.0, 40.0)
    ]
    levels = study._levels((16, 64), scored)
    assert levels[16]["perplexity_standard"] == 400
    assert levels[16]["perplexity_sharpened"] == 100
    assert levels[64]["perplexity_standard"] == 150
    assert levels[64]["entropy_sharpened"] == 0.4


def test_table_2a_has_every_printed_number_in_its_place() -> None:
    """Rows as the study makes them, with the paper's own numbers as what was measured."""
    printed = paper.table("groupeval-main").records()
    shares = {f"{name}_{s}": None for name in BESIDE_GED for s in SETTINGS}
    rows = []
    for said in printed:
        own = dict(said)
        for setting in SETTINGS:
            level = said[f"perplexity_{setting}"]
            own[f"perplexity_{setting}"] = Interval(level, level / 1.1, 1.1 * level, n=128)
        rows.append({"judge": "a", **shares, **own})
    shown = study._beside_main(Result(table=Table("x", (), rows)), None, {}).rows  # type: ignore[arg-type]
    others = {(r["number"], r["sampler"], r["steps"]): r.get("elsewhere") for r in shown}
    assert {key: one for key, one in others.items() if one is not None} == {
        ("perplexity", "standard", 16): 328.377,
        ("perplexity", "standard", 64): 137.141,
        ("H", "standard", 16): 5.7948,
        ("H", "standard", 64): 5.6948,
    }
    by = {(row["number"], row["sampler"], row["steps"]): row for row in shown}
    labels = {"perplexity": "perplexity", "entropy": "H", "geq": "GEQ", "ged": "GED"}
    for said in printed:
        for name, label in labels.items():
            for setting in SETTINGS:
                row = by[label, setting, said["steps"]]
                assert row["paper"] == said[f"{name}_{setting}"]
                assert row["within"] == ("yes" if name == "perplexity" else None)
    beside = {(label, setting): row["paper"] for (label, setting, m), row in by.items() if m == 16}
    assert beside["invalid share", "standard"] == 0.133
    assert beside["invalid share", "sharpened"] == 0.066
    assert beside["effective modes", "standard"] == 4.73
    assert beside["effective modes", "sharpened"] == 5.74
    assert ("effective modes", "standard", 64) not in by  # the paper prints none
    judged = rows[0] | {"geq_standard": Interval(9.0, 8.9, 9.1, n=128)}
    told = study._beside_main(Result(table=Table("x", (), [judged])), None, {}).rows  # type: ignore[arg-type]
    assert all(row["within"] is None for row in told if row["number"] == "GEQ")


def test_levels_of_a_judge_are_told_from_standard_to_sharpened() -> None:
    row = {"judge": "a", "steps": 16, "geq_standard": 3.85, "geq_sharpened": 4.36}
    row |= {"ged_standard": 6.0, "ged_sharpened": 7.57}
    told = study._with_levels(row, "a (paper)")
    assert (told["geq"], told["ged"]) == ("3.85 to 4.36", "6.00 to 7.57")


def test_figures(tmp_path: Path) -> None:
    path = tmp_path / "figure.svg"
    content = ""
    for rows in (*map(paper_contrasts, ("groupeval-mdlm", "groupeval-didi")), measured_rows()):
        write_figure(lambda rows=rows: quality_diversity(rows), [path])
        content = path.read_text()
        assert all(f"<!-- {row['judge']}" in content for row in rows)
    write_figure(lambda: quality_diversity(measured_rows()), [path])
    assert path.read_text() == content


def test_a_text_that_is_in_several_groups_is_embedded_once() -> None:
    asked = []

    def embed(texts: Sequence[str]) -> Any:
        asked.append(list(texts))
        return np.array([[len(text), 1.0] for text in texts])

    texts = ["a boat", "the hills " * 200]
    expected = _pieces(texts, embed)
    asked.clear()
    remembering = _remembering(embed)
    assert np.array_equal(_pieces(texts, remembering), expected)
    assert np.array_equal(_pieces(texts[::-1], remembering), expected[::-1])
    assert len(asked) == 2
    assert [len(pieces) > 1 for pieces in asked] == [False, True]


def test_unknown_tables() -> None:
    with pytest.raises(UserError, match="groupeval-mdml"):
        paper_contrasts("groupeval-mdml")


@pytest.mark.slow
def test_judges_that_are_not_alike_never_share_a_row(call: Called, tmp_path: Path) -> None:
    words = ("reproduce", "groupeval-mdlm", "--smoke", "--steps", "16", "-n", 8)
    code, document, _ = call(*words, "-o", tmp_path / "judged")
    assert code == 0
    rows = document["rows"]
    assert all((row["paper"] is None) != (row["measured"] is None) for row in rows)
    assert {row["judge"].rpartition(" ")[2] for row in rows} == {"(paper)", "(here)"}
    assert any("own wording" in note for note in document["result"]["notes"])
    assert STUDY.name == "groupeval"
