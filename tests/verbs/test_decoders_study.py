"""Accuracy against tokens per call: the dials, the lines of the table, the figure, going on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strop.errors import UserError
from strop.records import SAMPLERS
from strop.spec import SamplerSpec
from strop.verbs import decoders, run
from strop.verbs.decoders import CURVES, NATIVE, STEPS

FEW = ("most confident first", "threshold", "the same, dual cache")


@pytest.mark.parametrize("curve", [*CURVES, *NATIVE], ids=lambda one: one.title)
def test_every_place_of_every_dial_is_a_sampler(curve) -> None:
    for value in curve.values:
        steps, settings = curve.settings_at(value, 24)
        heat = SAMPLERS[curve.sampler].schedule or 0
        spec = SamplerSpec(
            name=curve.sampler,
            steps=steps,
            settings=settings,
            temperature=heat,
            precision="float64",
        )
        assert spec.steps == (round(24 * value) if curve.dial == STEPS else 24)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three decoders; of the two that go by a threshold, the ends of their dials."""
    kept = tuple(
        one if one.dial == STEPS else replace(one, values=(one.values[0], one.values[-1]))
        for one in CURVES
        if one.title in FEW
    )
    monkeypatch.setattr(decoders, "CURVES", kept)


def answered(out: Path, **more: Any) -> Any:
    return run("decoders", out=out, n=6, **more)


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_decoders_answer_and_stand_beside_the_control(tmp_path: Path) -> None:
    result = answered(tmp_path / "run")
    rows = list(result.table.rows)
    assert {row["decoder"] for row in rows[:-1]} == set(FEW)
    assert rows[-1]["decoder"].startswith("causal control")
    calls = {row["value"]: row["calls"] for row in rows[:-1] if row["dial"] == STEPS}
    assert calls == {m: m for m in (24, 12, 8, 6, 4, 2)}
    assert rows[0]["difference"] is None
    for row in rows[1:]:
        gap = row["accuracy"].value - rows[0]["accuracy"].value
        assert row["difference"].value == pytest.approx(gap)
    # The shipped model is right in nine of ten at one token per call; a guess in one of thirty.
    assert rows[0]["accuracy"].value >= 0.5
    assert (tmp_path / "run" / "decoders.png").stat().st_size > 1000
    told: list[str] = []
    again = answered(tmp_path / "run", note=told.append)
    assert [dict(row) for row in again.table.rows] == [dict(row) for row in rows]


@pytest.mark.usefixtures("few")
def test_a_causal_model_has_no_decoders_to_compare(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="one order"):
        answered(tmp_path / "run", sources=["embedded:sums-ar"])


def test_an_unknown_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="task"):
        answered(tmp_path / "run", task="sudoku")
