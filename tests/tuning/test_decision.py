"""Which sampler to use: from perplexities, calls and guards that are made by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from made_runs import PERPLEXITY, cell_spec, made_cell, output, with_perplexity
from strop.measure.cells import Scorers, measure
from strop.measure.frame import Measured, perplexity_ratio
from strop.measure.guard import Guard
from strop.spec import OperatingPoint, SamplerSpec
from strop.stats.interval import Interval
from strop.tuning.gain import Choice, Gain, Held, RatedSetting, decide, family_level, in_words
from strop.tuning.race import Limit

PLAIN, SHARP = (OperatingPoint.of(SamplerSpec(temperature=t)) for t in (1.0, 0.9))
LEVELS = {(4, 1.0): 400, (16, 1.0): 150, (64, 1.0): 100, (4, 0.9): 200, (16, 0.9): 98}
LEVELS |= {(64, 0.9): 60}
"""Perplexities: at 16 steps the sharper setting is as good as the standard sampler at 64."""
LIMIT = Limit("entropy", ">=", 1.0)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Measured]:
    """Cells with those perplexities, within half a percent, and as many calls as steps."""
    path, rng, cells = tmp_path_factory.mktemp("decided") / "run", np.random.default_rng(0), []
    for (steps, temperature), level in LEVELS.items():
        rows = [output(i, range(8), nfe=steps) for i in range(24)]
        cell = made_cell(path, cell_spec(8, temperature, steps=steps), rows)
        with_perplexity(cell, 8 * (math.log(level) + rng.normal(0, 0.02, 24)), [8] * 24)
        cells.append(cell)
    by = Scorers(own={"perplexity": lambda _: PERPLEXITY})
    guard = Guard(8, 1.0, "made")
    found = measure(cells, ["perplexity", "entropy", "calls", "seconds"], by)
    return {(row.steps, row.point): replace(row, given=guard) for row in found}


def gains(fresh: dict[Any, Measured], *bad: int, point: OperatingPoint = SHARP) -> list[Gain]:
    """A gain at every budget; at the `bad` ones the guard is undecided."""
    found = []
    for steps in (4, 16, 64):
        choice = Choice(f"M = {steps}", steps, point, limits=(LIMIT,))
        held = (Held(str(LIMIT), Interval(2.0), None if steps in bad else True),)
        gain = None if point == PLAIN else Interval(1.5, 1.4, 1.6)
        level = fresh[steps, point].perplexity()
        found.append(Gain(choice, level, level, gain, True, held, 24, float(steps)))
    return found


def decided(fresh: dict[Any, Measured], some: list[Gain], goal="fewest-steps", within=0.05):
    searched = {at: row.perplexity().value for at, row in fresh.items()}
    return decide(goal, within, some, fresh, searched, PLAIN)


def test_the_fewest_steps_that_are_surely_near_enough(fresh: dict[Any, Measured]) -> None:
    found = decided(fresh, gains(fresh))
    assert found.chosen is not None
    assert (found.chosen.row.steps, found.chosen.row.point) == (16, SHARP)
    # Five settings are looked at: three choices, and the standard sampler at 4 and at 16 steps.
    right = perplexity_ratio(fresh[16, SHARP], fresh[64, PLAIN], level=family_level(5))
    assert found.chosen.against == right
    assert right.below(1.05)
    assert found.sentence == (
        f"Use temperature 0.9 in float64 with 16 steps: 16 calls instead of 64, perplexity "
        f"{right:.3g} times that of the standard sampler with 64 steps."
    )
    assert found.document() == {
        "goal": "fewest-steps",
        "recommended": True,
        "sampler": SHARP.at(16).model_dump(mode="json"),
        "against_reference": right,
        "calls": 16.0,
        "reference_calls": 64.0,
        "seconds": fresh[16, SHARP].seconds,
        "reference_seconds": fresh[64, PLAIN].seconds,
    }


def test_few_outputs_that_are_surely_less_diverse_are_told(
    fresh: dict[Any, Measured], monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(share: float, n: int) -> str:
        found = Interval(share, share - 0.1, share + 0.1, n=n)
        with monkeypatch.context() as patch:
            patch.setattr(Measured, "diversity", found)
            return decided(fresh, gains(fresh)).sentence.partition("steps.")[2]

    assert told(0.5, 63) == (
        " Note that these 63 outputs have 0.50 [0.40, 0.60] of the diversity of held-out texts, "
        "where 0.92 is the guard: it decides from 64 outputs on."
    )
    assert told(0.5, 64) == told(0.95, 63) == ""


def test_a_wider_bound_takes_fewer_steps_and_a_narrow_one_more(fresh: dict[Any, Measured]) -> None:
    def steps(within: float) -> int:
        return decided(fresh, gains(fresh), within=within).chosen.row.steps

    assert (steps(1.2), steps(0.9), steps(0.05)) == (4, 16, 16)
    edge = perplexity_ratio(fresh[16, SHARP], fresh[64, PLAIN], level=family_level(5)).high
    assert edge is not None
    assert steps(edge - 1 + 1e-9) == 16
    assert steps(edge - 1 - 1e-9) == 64, "the upper limit decides, not the value"


def test_what_is_not_recommended_is_passed_over(fresh: dict[Any, Measured]) -> None:
    found = decided(fresh, gains(fresh, 16))
    assert found.chosen is not None
    assert found.chosen.row.steps == 64
    assert "64 calls an output, perplexity 0.59" in found.sentence


def test_the_standard_sampler_with_fewer_steps_may_do(fresh: dict[Any, Measured]) -> None:
    found = decided(fresh, gains(fresh, 4, 16, 64), within=0.6)
    assert found.chosen is not None
    assert (found.chosen.row.steps, found.chosen.row.point) == (16, PLAIN)
    below = {at: replace(row, given=Guard(8, 9.0, "made")) for at, row in fresh.items()}
    assert decided(below, gains(fresh, 4, 16, 64), within=0.6).chosen is None


def test_best_is_chosen_in_the_table_and_reported_on_fresh_outputs(
    fresh: dict[Any, Measured],
) -> None:
    found = decided(fresh, gains(fresh), "best")
    assert found.chosen is not None
    assert found.chosen.row.steps == 64
    assert found.chosen.against == perplexity_ratio(fresh[64, SHARP], fresh[64, PLAIN])
    # The table decides which: there 16 steps are the best, whatever fresh outputs say.
    searched = {at: 1.0 if at == (16, SHARP) else 2.0 for at in fresh}
    other = decide("best", 0.05, gains(fresh), fresh, searched, PLAIN)
    assert other.chosen is not None
    assert other.chosen.row.steps == 16


def test_nothing_is_recommended_and_the_sentence_says_why(fresh: dict[Any, Measured]) -> None:
    doubt = f"fresh outputs do not surely hold {LIMIT}"
    found = decided(fresh, gains(fresh, 4, 16, 64), "best")
    assert (found.chosen, found.sentence) == (None, f"Nothing is recommended: {doubt}.")
    mixed = gains(fresh, 4)
    mixed[1:] = [replace(one, gain=Interval(1.0, 0.9, 1.1)) for one in mixed[1:]]
    assert decided(fresh, mixed, "best").sentence == (
        f"Nothing is recommended: at M = 4 {doubt}; at M = 16 no gain is shown; at M = 64 no gain "
        "is shown."
    )
    far = decided(fresh, gains(fresh, 16, 64), within=0.05)
    assert far.chosen is None
    assert far.sentence.startswith(
        "Nothing is recommended: no setting is surely within 5% of the standard sampler with 64 "
        "steps. The nearest is temperature 1 in float64 with 16 steps: 16 calls instead of 64, "
        "perplexity 1.5"
    )
    assert "no choice was measured" in decided(fresh, []).sentence
    assert not far.document()["recommended"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (SamplerSpec(temperature=0.85), "temperature 0.85 in float64"),
        (SamplerSpec(precision="float32", top_p=0.9), "temperature 1 in float32, top_p 0.9"),
        (
            SamplerSpec(name="analytic", implementation="dense"),
            "analytic at temperature 1 in float64, dense",
        ),
    ],
)
def test_a_setting_in_words(spec: SamplerSpec, words: str) -> None:
    assert in_words(OperatingPoint.of(spec)) == words


def test_at_equal_steps_a_choice_comes_before_the_standard_sampler(fresh: dict[Any, Measured]):
    found = decided(fresh, gains(fresh, 4, 64), within=0.6)  # both are near enough at 16
    assert found.chosen is not None
    assert (found.chosen.row.steps, found.chosen.row.point) == (16, SHARP)


def test_the_reference_is_once_itself(fresh: dict[Any, Measured]) -> None:
    own = [replace(one, gain=Interval(1.5, 1.4, 1.6)) for one in gains(fresh, point=PLAIN)]
    found = decided(fresh, own[2:])
    assert found.chosen is not None
    # It, and the standard sampler at 4 and at 16 steps.
    assert found.chosen.against == Interval(1.0, 1.0, 1.0, family_level(3), 24)


def test_a_sampler_whose_steps_are_its_tokens_is_told_without_them() -> None:
    for name, words in (("autoregressive", ""), ("ancestral", " with 1,024 steps")):
        row: Any = SimpleNamespace(point=OperatingPoint.of(SamplerSpec(name=name)), steps=1024)
        assert RatedSetting(row, Interval(1.0)).words == f"temperature 1 in float64{words}"


def test_intervals_of_a_family_hold_together() -> None:
    assert family_level(1) == pytest.approx(0.95)
    assert family_level(5) == pytest.approx(0.99)
    assert family_level(0) == pytest.approx(0.95)
