from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_runs import INVALID, grades, judged, planned, pools

from strop.groupeval.trust import position_effect, reliability


def test_a_steady_judge(tmp_path: Path) -> None:
    run = planned(tmp_path / "run", pools(), controls=2)

    def steady(text: str, _: int) -> dict[str, object]:
        if not text:
            return INVALID
        in_order = "tale of a ship" in text or "note on tea" in text
        return grades(2, 2 if in_order else 0, min(2, len(text) // 60), 2)

    series = judged(run, steady)
    judged(run, steady, repeat=1)
    told = reliability(series)
    assert (told["n_groups"], told["n_groups_asked"]) == (8, 8)
    (again,) = told["repeats"]
    assert (again["n_groups"], again["grades_equal"]) == (8, 1)
    assert again["quality_mean_abs_change"] == 0
    assert again["modes"]["adjusted_rand"] is None  # one mode only: nothing to agree on
    controls = told["controls"]
    assert controls["n_groups"] == told["n_controls_asked"] == 4
    for name in ("duplicate_same_mode", "duplicate_same_grades", "empty_invalid"):
        assert controls[name] == 1
    assert controls["shuffled_not_more_coherent"] == 1
    assert controls["shuffled_quality_change"] < 0
    assert told["positions"]["p_value"] > 0.01
    assert told["lengths"]["long-writer"]["spearman"] > 0.8  # substance follows the length
    assert told["lengths"]["short-writer"]["n_outputs"] == 16


def test_a_careless_judge(tmp_path: Path) -> None:
    """Grades by position, takes empty texts for good ones, calls every text a mode of its own."""
    run = planned(tmp_path / "run", pools(), controls=2)

    def careless(_: str, position: int) -> dict[str, object]:
        return grades(2 * (position > 3), 1, 1, 1, mode="ABCDEFGH"[position])

    series = judged(run, careless, skip=1)
    judged(run, lambda text, i: careless(text, 7 - i), repeat=1)
    told = reliability(series)
    assert told["controls"]["empty_invalid"] == 0
    assert told["controls"]["duplicate_same_mode"] == 0
    assert told["positions"]["p_value"] < 0.01
    assert told["positions"]["slope_per_position"] > 0
    assert told["repeats"][0]["grades_equal"] == 0
    assert told["repeats"][0]["quality_mean_abs_change"] == pytest.approx(2.5)
    assert told["n_groups"] + told["controls"]["n_groups"] == 11  # one sheet was skipped


def test_position_test_is_calibrated() -> None:
    """30 judges without a position effect: the p-value is below 0.1 in 3 of them, about.

    A binomial(30, 0.1) exceeds 9 with probability 0.0005; a planted effect of half a point per
    position (positive control) is found every time.
    """
    rng = np.random.default_rng(0)
    low = sum(position_effect(rng.normal(5, 2, (12, 4)))["p_value"] < 0.1 for _ in range(30))
    assert low <= 9
    effect = rng.normal(5, 2, (40, 8)) + 0.5 * np.arange(8)
    told = position_effect(effect)
    assert told is not None
    assert told["p_value"] < 0.01
    assert told["slope_per_position"] == pytest.approx(0.5, abs=0.15)
    assert position_effect(np.zeros((0, 8))) is None
