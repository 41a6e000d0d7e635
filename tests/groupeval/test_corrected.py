"""A judge corrected by a few human grades: the formula by hand, coverage, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pools import planned
from scipy.stats import norm

from strop.cli.main import run as command
from strop.errors import UserError
from strop.groupeval import JudgeSpec, judge_run
from strop.groupeval.labelled import FILE, correct_series, corrected, mark_first, marked
from strop.groupeval.series import Series, open_plan

TRUTH = float(norm.expect(lambda x: min(max(x, 0), 10), loc=6, scale=2))
"""The mean of normal(6, 2) cut to 0 .. 10."""


def test_the_formula_by_hand() -> None:
    graded, same, rest = np.array([2.0, 4, 9]), np.array([1.0, 2, 6]), np.array([3.0, 8])
    found = corrected(graded, same, rest, replicates=50)
    weight = ((2 - 5) * (1 - 3) + (4 - 5) * (2 - 3) + (9 - 5) * (6 - 3)) / (4 + 1 + 9)
    assert found["weight"] == pytest.approx(weight)
    assert found["geq"].value == pytest.approx(weight * 4 + 5 - weight * 3)
    assert found["people_alone"].value == 5
    assert found["people_alone"].high == pytest.approx(5 + 4.30265273 * np.sqrt(13 / 3))
    assert found["judge_alone"] == 4
    assert (found["n_graded"], found["n_others"]) == (3, 2)


def test_a_judge_that_agrees_makes_it_narrow_and_one_that_says_one_thing_changes_nothing() -> None:
    rng = np.random.default_rng(1)
    truth = rng.normal(6, 2, 400)
    good = corrected(truth[:50], truth[:50] - 3, truth[50:] - 3, replicates=500)
    assert good["geq"].value == pytest.approx(truth.mean(), abs=1e-9)  # and not 3 lower
    assert good["width_over_people_alone"] == pytest.approx((50 / 400) ** 0.5, rel=0.15)
    dumb = corrected(truth[:50], np.full(50, 5.0), np.full(350, 5.0), replicates=500)
    assert (dumb["weight"], dumb["geq"].value) == (0, pytest.approx(truth[:50].mean()))
    assert dumb["width_over_people_alone"] == pytest.approx(1, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("share", "bias"), [(0.9, 2.0), (0.0, 0.0), (0.5, -3.0)])
def test_the_interval_holds_whatever_the_judge_is(share: float, bias: float) -> None:
    """800 pools of 40 graded of 240. If the interval held in 91%, this would fail in 95% of cases;
    if it holds in 95% it fails in 1 of 1,000 (standard errors .010 and .008)."""
    rng = np.random.default_rng(7)
    held, widths = 0, []
    for _ in range(800):
        truth = np.clip(rng.normal(6, 2, 240), 0, 10)
        judge = share * truth + (1 - share) * np.clip(rng.normal(6, 2, 240), 0, 10) + bias
        found = corrected(truth[:40], judge[:40], judge[40:], replicates=200)
        held += found["geq"].low <= TRUTH <= found["geq"].high
        widths.append(found["width_over_people_alone"])
    assert held / 800 >= 0.926
    # Noise costs next to nothing; a judge that sees something gains.
    assert np.mean(widths) < (1.06 if share == 0 else 0.95)


def copied(series: Series, run: Path, name: str, sheets: list[str]) -> Series:
    """A person who says of some sheets what the judge said."""
    person = Series.create(run, JudgeSpec(kind="human", name=name))
    replies = {entry["sheet"]: entry["reply"] for entry in series.journal.entries()}
    for sheet in sheets:
        person.append({"sheet": sheet, "outcome": "verdict", "reply": replies[sheet]})
    return Series.open(run, name)


def test_from_a_plan_to_a_corrected_score(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = planned(tmp_path / "run", {"a": 64})
    judge = judge_run(run, features="ngrams")
    plan, _ = open_plan(run)
    first = [sheet.id for sheet in plan.sheets[:6]]
    anna = copied(judge, Path(run), "anna", first)
    with pytest.raises(UserError, match="at random"):
        correct_series(judge, anna)
    assert mark_first(run, plan, 6) == 48
    assert marked(run, plan) == first
    found = correct_series(judge, anna)["cells"]["a"]
    distinct = {i for sheet in plan.sheets[:6] for i in sheet.indices}
    assert (found["n_graded"], found["n_others"]) == (len(distinct), 64 - len(distinct))
    assert command(["groupeval", "score", str(run), "--with", "anna", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["corrected"]["cells"]["a"]["n_graded"] == len(distinct)
    assert document["card"] is None or document["card"]["judge"] == judge.name
    assert command(["groupeval", "score", str(run), "--with", "anna"]) == 0
    out = capsys.readouterr().out
    assert "corrects towards these graders, and GEQ only" in " ".join(out.split())
    half = copied(judge, Path(run), "half", first[:5])
    with pytest.raises(UserError, match="not graded all"):
        correct_series(judge, half)
    mark_first(run, plan, 3)
    few = correct_series(judge, anna)["cells"]["a"]
    assert (few["geq"], few["n_graded"]) == (None, 24)
    with pytest.raises(UserError, match="fewer groups"):
        mark_first(run, plan, 99)
    (Path(run) / FILE).write_text('{"format": 1, "plan_sha256": "x", "sheets": []}')
    with pytest.raises(UserError, match="another plan"):
        marked(run, plan)
