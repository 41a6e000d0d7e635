"""The gain of a choice on fresh outputs made by hand: whose outputs, which of them, which way."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from made_runs import PERPLEXITY, cell_spec, made_cell, output, with_perplexity
from strop.errors import UserError
from strop.measure.cells import Scorers, measure
from strop.measure.entropy import entropy
from strop.measure.number import Number
from strop.stats.interval import Interval
from strop.stats.jackknife import jackknife
from strop.stats.resample import mean
from strop.store import Cell
from strop.tuning.race import Limit
from strop.tuning.search import Tuned
from strop.verbs.study import Ask
from strop.verbs.tune import STUDY, _gain, _unseen

LENGTH, N = 8, 12
SPAN = (4, 10)
"""What counts: the problems below were searched on, and others may have drawn more."""
PART = slice(*SPAN)


def read(cell: Cell) -> Any:
    return PERPLEXITY


BY = Scorers(own={"perplexity": read})


class Made:
    """A cell, and what lies in it."""

    def __init__(self, path: Path, temperature: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.ids = rng.integers(0, 2 if seed == 1 else 11, (N, LENGTH))
        self.calls = rng.integers(10 * seed, 10 * seed + 6, N)
        self.nll, self.tokens = rng.uniform(5, 30, N), rng.integers(5, 9, N)
        rows = [output(i, self.ids[i], nfe=int(self.calls[i])) for i in range(N)]
        self.cell = made_cell(path, cell_spec(LENGTH, temperature), rows)
        with_perplexity(self.cell, self.nll, self.tokens)  # type: ignore[arg-type]

    @property
    def perplexity(self) -> float:
        return math.exp(self.nll[PART].sum() / self.tokens[PART].sum())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Made, Made]:
    """The standard sampler's outputs and the choice's."""
    path = tmp_path_factory.mktemp("gain") / "run"
    return Made(path, 1.0, 1), Made(path, 0.7, 2)


def gained(plain: Made, mine: Made, objective: str, *limits: Limit) -> Any:
    ask = Ask(STUDY, Path("nowhere"), ("",), {"objective": objective, "task": None})
    chosen = Tuned(mine.cell.spec.generator.sampler, True, 0, (), limits, (), ())
    return _gain(ask, BY, "M = 4", chosen, (plain.cell, mine.cell), SPAN)


def test_limits_are_held_against_the_choices_own_outputs(made: tuple[Made, Made]) -> None:
    plain, mine = made
    own, other = (jackknife(mean(entropy(one.ids[PART])), 0.95) for one in (mine, plain))
    assert other.high < own.low, "the two are apart, so that a limit lies between them"
    between = (other.high + own.low) / 2
    limits = (Limit("entropy", ">=", between), Limit("entropy", "<=", between))
    found = gained(plain, mine, "perplexity", *limits)
    assert [one[1] for one in found.limits] == [own, own]
    assert [one[2] for one in found.limits] == [True, False]
    assert [one[0] for one in found.limits] == [str(one) for one in limits]
    back = gained(mine, plain, "perplexity", *limits)
    assert [one[2] for one in back.limits] == [False, True]
    assert [one[1] for one in back.limits] == [other, other]


def test_a_gain_in_perplexity_is_the_standard_over_the_choice(made: tuple[Made, Made]) -> None:
    plain, mine = made
    found = gained(plain, mine, "perplexity")
    assert found.outputs == 6
    assert found.ratio
    assert found.fresh.value == pytest.approx(mine.perplexity)
    assert found.plain.value == pytest.approx(plain.perplexity)
    assert found.gain.value == pytest.approx(plain.perplexity / mine.perplexity)
    assert found.gain.low < found.gain.value < found.gain.high
    back = gained(mine, plain, "perplexity").gain
    assert (back.value, back.low, back.high) == pytest.approx(
        (1 / found.gain.value, 1 / found.gain.high, 1 / found.gain.low)
    )


def test_any_other_gain_is_the_choice_minus_the_standard(made: tuple[Made, Made]) -> None:
    plain, mine = made
    found = gained(plain, mine, "entropy")
    own, other = (entropy(one.ids[PART]) for one in (mine, plain))
    assert not found.ratio
    assert found.gain == jackknife(mean(own), 0.95, mean(other))
    assert found.gain.value == pytest.approx((own - other).mean())
    assert (found.fresh, found.plain) == (jackknife(mean(own), 0.95), jackknife(mean(other), 0.95))


def test_calls_are_the_choices_and_the_standard_sampler_gains_nothing(
    made: tuple[Made, Made],
) -> None:
    plain, mine = made
    assert gained(plain, mine, "perplexity").calls == pytest.approx(mine.calls[PART].mean())
    assert gained(plain, plain, "perplexity").gain is None


def test_a_statistic_is_of_the_outputs_from_start_up_to_n(made: tuple[Made, Made]) -> None:
    _, mine = made
    for start, n in ((0, 12), (0, 5), (3, 7), (11, 12)):
        part = slice(start, n)
        cell, tokens = mine.cell, mine.tokens[part].sum()
        for name, expected in (
            ("perplexity", math.exp(mine.nll[part].sum() / tokens)),
            ("entropy", entropy(mine.ids[part]).mean()),
            ("calls", mine.calls[part].mean()),
            ("seconds", (0.5 + np.arange(start, n)).mean()),
        ):
            [row] = measure([cell], [name], BY, outputs=(start, n))
            found = row.statistic(Number.of(name))
            assert len(found.columns) == n - start
            assert found.value == pytest.approx(expected), name
    with pytest.raises(UserError, match="fewer outputs than are to be measured") as caught:
        measure([mine.cell], ["perplexity"], BY, outputs=(0, 13))
    assert caught.value.got == "12 of 13 outputs"


@pytest.mark.parametrize(("problems", "enough"), [(9, False), (10, True), (11, True)])
def test_the_fresh_problems_are_none_that_were_searched_on(problems: int, enough: bool) -> None:
    ask = Ask(STUDY, Path("nowhere"), ("",), {"n": 4, "fresh_n": 6})
    if enough:
        assert _unseen(ask, problems) == 4
    else:
        with pytest.raises(UserError, match="too few problems"):
            _unseen(ask, problems)


@pytest.mark.parametrize(
    ("ratio", "gain", "shown"),
    [
        (True, (1.01, 1.2), True),
        (True, (1.0, 1.2), False),
        (True, (0.8, 0.99), True),
        (True, (0.8, 1.0), False),
        (False, (0.01, 0.2), True),
        (False, (0.0, 0.2), False),
        (False, (-0.2, -0.01), True),
        (False, (-0.1, 0.1), False),
    ],
)
def test_a_gain_is_shown_if_its_interval_excludes_none(ratio, gain, shown) -> None:
    from strop.tuning.result import Gain

    chosen = Tuned(cell_spec(LENGTH).generator.sampler, True, 0, (), (), (), ())
    one = Interval(1.0, 0.9, 1.1)
    found = Gain("M = 4", chosen, 8, one, one, Interval(sum(gain) / 2, *gain), (), ratio, 4.0)
    assert found.shown is shown
    assert ("the interval includes no gain" in found.mind()) is not shown
