"""`strop power`: what a pilot says, and what is made of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from called import Called

from strop.comparing.frontier import Level
from strop.groupeval.bootstrap import geq_of
from strop.groupeval.judgments import portable_text
from strop.groupeval.scores import by_cell
from strop.groupeval.verdict import Grade, GroupVerdict
from strop.stats.published import alike, apart, needed
from strop.store import Run
from strop.verbs.power import CURVE, spreads


def _pilot(level: float, entropy: float, n: int, slope: float) -> dict[str, Any]:
    """Outputs of 50 tokens whose nats follow their entropy by a slope, and noise of 0.2."""
    rng = np.random.default_rng(round(100 * entropy))
    own = rng.normal(entropy, 0.1, n)
    nats = level + slope * (own - entropy) + rng.normal(0, 0.2, n)
    return {"nll": 50 * nats, "tokens": np.full(n, 50.0), "entropy": own}


def test_the_spread_is_that_of_nats_and_at_equal_entropy_of_what_entropy_leaves() -> None:
    """Slope 4 between settings and between outputs: entropy explains .4 of .447."""
    pilots = [_pilot(3.0, 4.0, 4000, 4.0), _pilot(3.8, 4.2, 4000, 4.0)]
    (alone, freedom), (equal, same_freedom) = spreads(pilots)
    assert alone == pytest.approx(math.hypot(0.4, 0.2), rel=0.05)
    assert equal == pytest.approx(0.2, rel=0.1)
    assert freedom == same_freedom == 7998
    # Outputs whose nats go the other way make it harder, and one setting has no slope.
    against = [_pilot(3.0, 4.0, 4000, -4.0), _pilot(3.8, 4.2, 4000, -4.0)]
    assert spreads(against)[1][0] == pytest.approx(math.hypot(0.8, 0.2), rel=0.05)
    assert len(spreads(pilots[:1])) == 1


def _verdicts(groups: int) -> list[GroupVerdict]:
    """Groups of eight in two partitions, graded by chance."""
    rng = np.random.default_rng(3)

    def grade(index: int) -> Grade:
        return Grade(int(index), True, tuple(rng.integers(0, 3, 4).tolist()), "a")

    return [
        GroupVerdict("cell", partition, number, tuple(map(grade, members)), "high")
        for partition in (0, 1)
        for number, members in enumerate(rng.permutation(8 * groups).reshape(-1, 8))
    ]


def test_a_pilot_and_a_stored_run_say_what_a_question_needs(tmp_path: Path, call: Called) -> None:
    small = ["--length", "16", "--steps", "2", "-n", "8", "--gap", "0.1"]
    code, first, _ = call("power", *small, "-o", tmp_path / "a")
    assert code == 0
    cells = Run.open(tmp_path / "a" / "run").cells()
    assert sorted(cell.spec.generator.sampler.temperature for cell in cells) == [0.9, 1.0]
    pilots = []
    for cell in cells:
        tables = {table.metric.name: table.columns for table in cell.scores().values()}
        pilots.append({**tables["perplexity"], "entropy": tables["entropy"]["entropy"]})
    levels = spreads(pilots)
    rows = first["rows"]
    assert [row["question"] for row in rows] == [
        "perplexity gap at one setting",
        "the same perplexity at one setting",
        "perplexity gap at equal entropy",
        "the same perplexity at equal entropy",
    ]
    found = [row["outputs"] for row in rows]
    # At one setting an interval of 96% must lie inside, at equal entropy of 94%.
    for number, ((error, freedom), inside) in enumerate(zip(levels, (0.04, 0.06), strict=True)):
        rules = [apart(math.log(1.1), 0.02), alike(math.log(1.03), inside)]
        wanted = [needed(rule, math.sqrt(2) * error, freedom).outputs for rule in rules]
        assert found[2 * number : 2 * number + 2] == wanted
    assert rows[0]["calls"] == pytest.approx(2 * found[0] * first["calls"])
    assert rows[0]["minutes"] == pytest.approx(2 * found[0] * first["seconds"] / 60)
    assert rows[0]["pilots"].endswith("%")
    curve = first["tables"]["curve"]["rows"]
    assert [row["outputs"] for row in curve[: len(CURVE)]] == list(CURVE)
    assert (tmp_path / "a" / "power.svg").exists()

    judged = tmp_path / "judged.jsonl"
    judged.write_text(portable_text(_verdicts(4)))
    more = ["--look", "2", "--gap", "0.1", "--accuracy", "0.9", "--judged", judged]
    code, second, _ = call("power", tmp_path / "a" / "run", *more, "-o", tmp_path / "b")
    assert code == 0
    assert not (tmp_path / "b" / "run").exists()
    rule = apart(math.log(1.1), 1 - Level(2).different)
    by_name = {row["question"]: row["outputs"] for row in second["rows"]}
    error = math.sqrt(2) * levels[0][0]
    assert by_name["perplexity gap at one setting"] == needed(rule, error, levels[0][1]).outputs
    share = math.sqrt(0.9 * 0.1 + 0.85 * 0.15)
    assert by_name["accuracy difference"] == needed(apart(0.05, 0.05), share, 31).outputs
    judged_error = geq_of(by_cell(_verdicts(4))["cell"])
    assert judged_error.variance is not None
    error = math.sqrt(2 * 32 * judged_error.variance)
    wanted = needed(apart(0.5, 0.05), error, judged_error.freedom).outputs
    assert by_name["GEQ difference"] == wanted


@pytest.mark.parametrize("words", [["--gap", "0"], ["--margin", "1.5"], ["--accuracy", "1"]])
def test_differences_that_are_none_are_refused(
    words: list[str], tmp_path: Path, call: Called
) -> None:
    code, told, _ = call("power", *words, "-o", tmp_path / "x")
    assert code != 0
    wrong = "is a share" if "--margin" in words else "not a difference that could be found"
    assert wrong in told["error"]["what"]


@pytest.mark.parametrize("words", [["--evaluator", "./nosuch"], ["--judged", "./nosuch"]])
def test_scorers_and_judgments_are_looked_at_before_a_pilot_is_drawn(
    words: list[str], tmp_path: Path, call: Called
) -> None:
    code, _, err = call("power", "--smoke", *words, "-o", tmp_path / "run")
    assert code == 1
    assert "nosuch" in err
    assert not list(tmp_path.rglob("*.parquet"))
