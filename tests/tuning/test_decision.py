"""What an audit says is to be used: by gains, fresh outputs and perplexities of the search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
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
from strop.tuning.choice import Choice
from strop.tuning.gain import (
    Decision,
    Gain,
    Held,
    RatedSetting,
    _less_diverse,
    decide,
    family_level,
    in_words,
)

LENGTH, N, TOKENS = 8, 40, 10
PLAIN, MINE = (OperatingPoint.of(SamplerSpec(temperature=t)) for t in (1.0, 0.7))
BY = Scorers(own={"perplexity": lambda _: PERPLEXITY})
Fresh = dict[tuple[int, OperatingPoint], Measured]
Drawn = Callable[[dict[tuple[int, OperatingPoint], float]], Fresh]


@pytest.fixture
def drawn(tmp_path: Path) -> Drawn:
    """Rows of settings with these perplexities, known to about 1%; ten calls for a step."""

    def fresh(perplexity: dict[tuple[int, OperatingPoint], float]) -> Fresh:
        cells = []
        for k, ((steps, point), value) in enumerate(perplexity.items()):
            rng = np.random.default_rng(k)
            ids = rng.integers(0, 11, (N, LENGTH))
            spec = cell_spec(LENGTH, point.sampler.temperature, steps=steps)
            rows = [output(i, ids[i], nfe=10 * steps) for i in range(N)]
            cells.append(made_cell(tmp_path / "run", spec, rows))
            noise = 0.03 * rng.standard_normal(N)
            with_perplexity(cells[-1], TOKENS * (np.log(value) + noise), np.full(N, TOKENS))  # type: ignore[arg-type]
        guard = Guard(LENGTH, 0.1, "a test")
        names = ["perplexity", "entropy", "calls"]
        return {(r.steps, r.point): r for r in measure(cells, names, BY, guard=guard)}

    return fresh


def gains(*settings: tuple[int, OperatingPoint], good: bool = True) -> list[Gain]:
    one, found = Interval(1.0, 0.9, 1.1), Interval(1.5, 1.4 if good else 0.9, 1.6)
    held = (Held("entropy>=0.1", one, True),)
    return [
        Gain(Choice(f"M = {m}", m, point), one, one, found, True, held, N, 10.0 * m)
        for m, point in settings
    ]


def test_the_fewest_steps_that_are_surely_within_are_used(drawn: Drawn) -> None:
    fresh = drawn({(4, MINE): 30.0, (8, MINE): 20.0, (16, MINE): 16.0, (16, PLAIN): 20.0})
    three = gains((16, MINE), (8, MINE), (4, MINE))
    found = decide("fewest-steps", 0.05, three, fresh, {}, PLAIN, PERPLEXITY)
    row, reference = fresh[8, MINE], fresh[16, PLAIN]
    against = perplexity_ratio(row, reference, PERPLEXITY, level=family_level(3))
    assert found.chosen is not None
    assert (found.chosen.row, found.chosen.against, found.reference) == (row, against, reference)
    assert found.sentence == (
        "Use temperature 0.7 in float64 with 8 steps: 80 calls instead of 160, perplexity "
        f"{against:.3g} times that of the standard sampler with 16 steps."
    )
    assert found.document() == {
        "goal": "fewest-steps",
        "recommended": True,
        "sampler": row.spec.generator.sampler.model_dump(mode="json"),
        "against_reference": against,
        "calls": 80,
        "reference_calls": 160,
        "seconds": row.seconds,
        "reference_seconds": reference.seconds,
    }
    near = decide("fewest-steps", 0.05, three[2:], fresh, {}, PLAIN, PERPLEXITY)
    against = perplexity_ratio(fresh[4, MINE], reference, PERPLEXITY, level=family_level(1))
    assert near == Decision(
        "fewest-steps",
        "Nothing is recommended: no setting is surely within 5% of the standard sampler with 16 "
        "steps. The nearest is temperature 0.7 in float64 with 4 steps: 40 calls instead of 160, "
        f"perplexity {against:.3g} times that of the standard sampler with 16 steps.",
    )
    assert near.document() == {"goal": "fewest-steps", "recommended": False}
    wide = decide("fewest-steps", 0.6, three[2:], fresh, {}, PLAIN, PERPLEXITY)
    assert wide.chosen is not None
    assert wide.chosen.row.steps == 4


def test_the_nearest_of_several_is_told(drawn: Drawn) -> None:
    fresh = drawn({(4, MINE): 40.0, (8, MINE): 30.0, (16, PLAIN): 20.0})
    found = decide("fewest-steps", 0.05, gains((4, MINE), (8, MINE)), fresh, {}, PLAIN)
    assert "The nearest is temperature 0.7 in float64 with 8 steps: 80 calls" in found.sentence


def test_the_standard_sampler_with_fewer_steps_is_used_where_no_choice_is(drawn: Drawn) -> None:
    fresh = drawn({(8, PLAIN): 20.0, (8, MINE): 20.0, (16, PLAIN): 20.0})
    poor = gains((8, MINE), good=False)
    plain = decide("fewest-steps", 0.05, poor, fresh, {}, PLAIN)
    assert plain.chosen is not None
    assert plain.chosen.row.point == PLAIN
    assert plain.sentence.startswith("Use temperature 1 in float64 with 8 steps: 80 calls instead")
    both = decide("fewest-steps", 0.05, gains((8, MINE)), fresh, {}, PLAIN)
    assert both.chosen is not None
    assert both.chosen.row.point == MINE  # at equal steps
    best = decide("best", 0.05, poor, fresh, {}, PLAIN)
    assert best == Decision("best", "Nothing is recommended: no gain is shown.")
    # Nor is it where its entropy is not surely above the guard.
    low = {at: row for at, row in fresh.items() if at != (8, PLAIN)}
    assert decide("fewest-steps", 0.05, poor, low, {}, PLAIN).chosen is None


def test_the_best_is_that_of_the_search_however_far_it_is(drawn: Drawn) -> None:
    fresh = drawn({(4, MINE): 30.0, (16, MINE): 16.0, (16, PLAIN): 20.0})
    two = gains((16, MINE), (4, MINE))
    searched = {(4, MINE): 11.0, (16, MINE): 10.0, (16, PLAIN): 1.0}
    found = decide("best", 0.05, two, fresh, searched, PLAIN, PERPLEXITY)
    assert found.chosen is not None
    assert found.chosen.row == fresh[16, MINE]
    searched[4, MINE] = 9.0
    found = decide("best", 0.05, two, fresh, searched, PLAIN, PERPLEXITY)
    against = perplexity_ratio(fresh[4, MINE], fresh[16, PLAIN], PERPLEXITY, level=family_level(1))
    assert found.chosen is not None
    assert (found.chosen.row, found.chosen.against) == (fresh[4, MINE], against)
    assert found.goal == "best"


def test_the_reference_is_once_itself(drawn: Drawn) -> None:
    fresh = drawn({(4, PLAIN): 40.0, (16, PLAIN): 20.0})
    found = decide("fewest-steps", 0.05, gains((16, PLAIN)), fresh, {}, PLAIN)
    assert found.chosen is not None
    # Two settings are held against it: this one, and the one with fewer steps.
    assert found.chosen.against == Interval(1.0, 1.0, 1.0, family_level(2), N)
    assert "160 calls an output, perplexity 1 [1, 1] times" in found.sentence


def test_why_nothing_is_recommended(drawn: Drawn) -> None:
    fresh = drawn({(4, MINE): 40.0, (16, PLAIN): 20.0})
    none = decide("best", 0.05, [], fresh, {}, PLAIN)
    words = "Nothing is recommended: no choice was measured on fresh outputs."
    assert none == Decision("best", words)
    poor, other = gains((4, MINE), good=False), gains((16, MINE), good=False)
    same = decide("best", 0.05, [*poor, *other], fresh, {}, PLAIN)
    assert same.sentence == "Nothing is recommended: no gain is shown."
    [unlike] = [Gain(one.choice, one.objective, one.standard, None, True, one.limits, N, None)
                for one in other]  # fmt: skip
    two = decide("best", 0.05, [*poor, unlike], fresh, {}, PLAIN)
    assert two.sentence == (
        "Nothing is recommended: at M = 4 no gain is shown; at M = 16 it is the standard sampler."
    )


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"temperature": 0.9}, "temperature 0.9 in float64"),
        ({"top_p": 0.9, "precision": "float32"}, "temperature 1 in float32, top_p 0.9"),
        ({"name": "remdm-cap", "settings": {"eta": 0.02}}, "remdm-cap at temperature 1 in float64"),
        ({"name": "autoregressive"}, "temperature 1 in float64"),
    ],
)
def test_settings_as_one_would_say_them(spec: dict[str, Any], words: str) -> None:
    assert in_words(OperatingPoint.of(SamplerSpec(**spec))).startswith(words)
    assert "(" not in in_words(OperatingPoint.of(SamplerSpec(**spec)))
    assert ")" not in in_words(OperatingPoint.of(SamplerSpec(**spec)))


def test_a_sampler_whose_steps_are_its_tokens_is_told_without_them() -> None:
    for name, words in (("autoregressive", ""), ("ancestral", " with 1,024 steps")):
        row: Any = SimpleNamespace(point=OperatingPoint.of(SamplerSpec(name=name)), steps=1024)
        assert RatedSetting(row, Interval(1.0)).words == f"temperature 1 in float64{words}"


@pytest.mark.parametrize(
    ("n", "high", "told"), [(63, 0.8, True), (64, 0.8, False), (63, 0.92, False)]
)
def test_few_outputs_that_are_surely_less_diverse_are_minded(
    n: int | None, high: float, told: bool
) -> None:
    row: Any = SimpleNamespace(diversity=Interval(0.7, 0.6, high, 0.95, n))
    assert _less_diverse(row) == (
        f" Mind that these {n} outputs have 0.70 [0.60, {high:.2f}] of the diversity of "
        "held-out texts, where 0.92 is the guard: it decides from 64 outputs on."
        if told
        else ""
    )
    nothing: Any = SimpleNamespace(diversity=None)
    assert _less_diverse(nothing) == ""
