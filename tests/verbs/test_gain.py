"""The gain of a choice on fresh outputs made by hand: whose outputs, which of them, which way."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from made_runs import PERPLEXITY, cell_spec, made_cell, output, with_perplexity
from strop.errors import UserError
from strop.measure.cells import Scorers, measure
from strop.measure.entropy import entropy
from strop.measure.metric import Number
from strop.spec import EvaluatorSpec, MetricSpec, OperatingPoint, SamplerSpec
from strop.stats.interval import Interval
from strop.stats.resample import Statistic, jackknife, mean
from strop.store import Cell
from strop.tuning.gain import Choice, Gain, Held, choose, family_level, gain, spec_file
from strop.tuning.race import Limit
from strop.verbs.study import Ask
from strop.verbs.tune import STUDY, _unseen

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


def gained(plain: Made, mine: Made, objective: str, *limits: Limit) -> Gain:
    sampler = mine.cell.spec.generator.sampler
    choice = Choice("M = 4", sampler.steps, OperatingPoint.of(sampler), limits=limits)
    names = dict.fromkeys([objective, "entropy", "calls"])
    standard, row = measure([plain.cell, mine.cell], list(names), BY, outputs=SPAN)
    return gain(choice, row, standard, Number.of(objective))


def test_limits_are_held_against_the_choices_own_outputs(made: tuple[Made, Made]) -> None:
    plain, mine = made
    own, other = (jackknife(mean(entropy(one.ids[PART])), 0.95) for one in (mine, plain))
    assert other.high < own.low, "the two are apart, so that a limit lies between them"
    between = (other.high + own.low) / 2
    limits = (Limit("entropy", ">=", between), Limit("entropy", "<=", between))
    found = gained(plain, mine, "perplexity", *limits)
    assert [one.value for one in found.limits] == [own, own]
    assert [one.holds for one in found.limits] == [True, False]
    assert [one.words for one in found.limits] == [str(one) for one in limits]
    back = gained(mine, plain, "perplexity", *limits)
    assert [one.holds for one in back.limits] == [False, True]
    assert [one.value for one in back.limits] == [other, other]


def test_a_gain_in_perplexity_is_the_standard_over_the_choice(made: tuple[Made, Made]) -> None:
    plain, mine = made
    found = gained(plain, mine, "perplexity")
    assert found.outputs == 6
    assert found.ratio
    assert found.objective.value == pytest.approx(mine.perplexity)
    assert found.standard.value == pytest.approx(plain.perplexity)
    assert found.gain.value == pytest.approx(plain.perplexity / mine.perplexity)
    assert found.gain.low < found.gain.value < found.gain.high
    back = gained(mine, plain, "perplexity").gain
    assert (back.value, back.low, back.high) == pytest.approx(
        (1 / found.gain.value, 1 / found.gain.high, 1 / found.gain.low)
    )


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("task", 0, 1),
        ("repetition", 0, 1),
        ("pool-repetition", 0, 1),
        ("perplexity.kept", 0, 1),
        ("geq", 0, 10),
        ("entropy", 0, math.inf),
        ("calls", 0, math.inf),
        ("seconds", 0, math.inf),
        ("perplexity", 0, math.inf),
        ("perplexity.macro", 0, math.inf),
        ("perplexity.bits_per_byte", 0, math.inf),
    ],
)
def test_what_cannot_be_negative_has_no_negative_end(name: str, least: float, most: float) -> None:
    """Three outputs of which one has everything: Student's t alone would go far below zero."""
    number, top = Number.of(name), 1.0 if math.isinf(most) else most
    many, ones = np.array([top, 0.0, 0.0]), np.ones(3)
    columns = dict.fromkeys((name, number.aggregate.column.name, "passed_last", "nll"), many)
    columns |= {"tokens": ones, "bytes": ones, "kept_bytes": many, "source_bytes": ones}
    found = number.aggregate.of(columns, None)  # type: ignore[arg-type]
    assert isinstance(found, Statistic)
    assert found.span == (least, most)
    # A perplexity of 1, exp(0), lies far above zero.
    low = jackknife(found, cut=False).ends[0]
    assert low < 0 or name.startswith("perplexity")
    assert jackknife(found).ends[0] == max(0.0, low)


def test_any_other_gain_is_the_choice_minus_the_standard(made: tuple[Made, Made]) -> None:
    plain, mine = made
    found = gained(plain, mine, "entropy")
    own, other = (entropy(one.ids[PART]) for one in (mine, plain))
    assert not found.ratio
    assert found.gain == jackknife(mean(own), 0.95, mean(other))
    assert found.gain.value == pytest.approx((own - other).mean())
    assert (found.objective, found.standard) == (
        jackknife(mean(own), 0.95),
        jackknife(mean(other), 0.95),
    )


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
    ("ratio", "less", "ends", "shown"),
    [
        (True, True, (1.01, 1.2), True),
        (True, True, (1.0, 1.2), False),
        (True, True, (0.8, 0.99), False),
        (False, False, (0.01, 0.2), True),
        (False, False, (0.0, 0.2), False),
        (False, False, (-0.2, -0.01), False),
        (False, True, (-0.2, -0.01), True),
        (False, True, (0.01, 0.2), False),
        (False, False, (-0.1, 0.1), False),
    ],
)
def test_a_gain_is_shown_if_the_whole_interval_is_better(ratio, less, ends, shown) -> None:
    choice = Choice("M = 4", 4, OperatingPoint.of(SamplerSpec()))
    level, found = Interval(1.0, 0.9, 1.1), Interval(sum(ends) / 2, *ends)
    held = (Held("entropy>=2", level, True),)
    gained = Gain(choice, level, level, found, ratio, held, 8, 4.0, less_is_better=less)
    assert gained.shown is shown
    assert gained.doubts() == ([] if shown else ["no gain is shown"])


def test_without_a_gain_or_without_a_guard_nothing_is_recommended() -> None:
    choice = Choice("M = 4", 4, OperatingPoint.of(SamplerSpec()), edges=("1 is the lowest tried",))
    level, good = Interval(1.0, 0.9, 1.1), Interval(1.5, 1.4, 1.6)
    held = (Held("entropy>=2", level, True),)

    def doubts(gain: Interval | None, limits: tuple[Held, ...], ratio: bool = True) -> list[str]:
        return Gain(choice, level, level, gain, ratio, limits, 8, 4.0).doubts()

    assert doubts(good, held) == []
    assert doubts(good, ()) == ["no entropy guard bounds the sharpness"]
    assert doubts(good, (), ratio=False) == [], "an accuracy needs no bound of sharpness"
    assert doubts(None, held) == ["it is the standard sampler"]
    assert doubts(Interval(1.5), held) == ["too few outputs for an interval of the gain"]
    found = Gain(choice, level, level, good, True, held, 8, 4.0)
    text = spec_file("What was chosen.", [choice], [found]).decode()
    assert "# Note at M = 4: 1 is the lowest tried." in text, "the file has what the table has"


def test_the_level_of_a_gain_is_that_which_is_asked_for(made: tuple[Made, Made]) -> None:
    from strop.measure.frame import perplexity_ratio

    standard, row = measure([one.cell for one in made], ["perplexity", "entropy", "calls"], BY)
    choice, goal = Choice("M = 4", row.steps, row.point), Number.of("perplexity")
    for resampled in (True, False):
        narrow, wide = (
            gain(choice, row, standard, goal, resampled=resampled, level=level).gain
            for level in (0.95, 0.99)
        )
        assert (narrow.level, wide.level) == (0.95, 0.99)  # type: ignore[union-attr]
        assert wide.low < narrow.low < narrow.high < wide.high  # type: ignore[union-attr]
    assert wide == jackknife(standard.statistic(goal), 0.99, row.statistic(goal), log=True).exp()
    assert perplexity_ratio(standard, row, level=0.99).level == 0.99
    most = gain(choice, row, standard, Number.of("entropy"), best=None)
    least = gain(choice, row, standard, Number.of("entropy"), best="min")
    assert (most.less_is_better, least.less_is_better) == (False, True)


def test_resampled_a_gain_is_that_of_the_table_of_cells(made: tuple[Made, Made]) -> None:
    """As the audit has it: bootstrap intervals, of one evaluator's perplexity."""
    from strop.measure.frame import perplexity_ratio

    standard, row = measure([one.cell for one in made], ["perplexity", "entropy", "calls"], BY)
    limit = Limit("entropy", ">=", row.entropy.value)  # type: ignore[union-attr]
    choice = Choice("M = 4", row.steps, row.point, limits=(limit,))
    goal = Number.of("perplexity")
    found = gain(choice, row, standard, goal, metric=PERPLEXITY, resampled=True)
    assert found.gain == perplexity_ratio(standard, row, PERPLEXITY)
    assert (found.objective, found.standard) == (row.perplexity(), standard.perplexity())
    assert found.limits == (Held(str(limit), row.entropy, None),)  # type: ignore[arg-type]
    assert gain(choice, row, row, goal, metric=PERPLEXITY, resampled=True).gain is None


@pytest.mark.parametrize(
    ("holds", "fresh", "doubts"),
    [
        (True, True, []),
        (True, False, ["fresh outputs break entropy>=2"]),
        (True, None, ["fresh outputs do not surely hold entropy>=2"]),
        (False, True, ["no setting held every limit for sure"]),
        (
            False,
            False,
            ["no setting held every limit for sure", "fresh outputs break entropy>=2"],
        ),
    ],
)
def test_a_recommendation_holds_every_limit(
    holds: bool, fresh: bool | None, doubts: list[str]
) -> None:
    limit, level = Limit("entropy", ">=", 2.0), Interval(2.0, 1.9, 2.1)
    choice = Choice("M = 4", 4, OperatingPoint.of(SamplerSpec()), holds, limits=(limit,))
    held = (Held(str(limit), level, fresh),)
    found = Gain(choice, level, level, Interval(1.5, 1.4, 1.6), True, held, 8, 4.0)
    assert found.doubts() == doubts
    assert found.recommended is (not doubts)
    assert found.row()["recommended"] is (not doubts)
    assert found.mind()[: len(doubts[:1])] == [f"{one}: no recommendation" for one in doubts[:1]]
    text = spec_file("What was chosen.", [choice], [found, found]).decode()
    assert text.count("# Not a recommendation at M = 4: ") == bool(doubts)
    assert "; ".join(doubts) in text


def test_a_file_of_samplers_has_every_choice_once() -> None:
    import yaml

    point = OperatingPoint.of(SamplerSpec(temperature=0.9))
    choices = [Choice(f"M = {m}", m, point) for m in (4, 16, 16)]
    found = yaml.safe_load(spec_file("What was chosen.", choices, []))["samplers"]
    assert found == [{"steps": 4, "temperature": 0.9}, {"steps": 16, "temperature": 0.9}]


@pytest.mark.parametrize("finish", [None, "greedy", "draw", "none"])
@pytest.mark.parametrize("grid", ["uniform", (0.5, 0.5)])
def test_a_file_of_samplers_reads_as_what_was_chosen(finish: Any, grid: Any) -> None:
    import yaml

    own = SamplerSpec(steps=2, grid=grid, **({} if finish is None else {"finish": finish}))
    text = spec_file("What was chosen.", [Choice("M = 2", 2, OperatingPoint.of(own))], [])
    [one] = yaml.safe_load(text)["samplers"]
    assert SamplerSpec(**one) == own
    assert next(iter(one)) == "steps"  # what tells the budgets apart comes first


def test_a_choice_takes_the_guard_of_its_frame_along(made: tuple[Made, Made]) -> None:
    from strop.measure.guard import Guard

    cells = [one.cell for one in made]
    for threshold, rule in ((0.5, "interval"), (0.5, "mean"), (None, "interval")):
        guard = Guard(LENGTH, threshold, "a test", rule=rule)
        frame = measure(cells, ["perplexity", "entropy"], BY, guard=guard)
        [chosen] = choose(frame, "per-budget").choices
        assert chosen.point == min(frame, key=lambda row: row.perplexity().value).point
        limits = () if threshold is None else (Limit("entropy", ">=", threshold, rule),)
        assert chosen.limits == limits
        [sharpest] = choose(frame, "sharpest").choices
        assert sharpest.point == min(frame, key=lambda row: row.entropy.value).point  # type: ignore[union-attr]
        assert chosen.passes


def test_a_row_of_the_table_of_gains(made: tuple[Made, Made]) -> None:
    plain, mine = made
    found = gained(plain, mine, "perplexity")
    row = found.row()
    sampler = found.choice.sampler
    assert row == {
        "steps": sampler.steps,
        "point": str(found.choice.point),
        "sampler": sampler.model_dump(mode="json"),
        "outputs": 6,
        "calls": found.calls,
        "seconds": found.seconds,
        "objective": found.objective,
        "standard": found.standard,
        "gain": found.gain,
        "shown": found.shown,
        "recommended": found.recommended,
        "mind": "; ".join(found.mind()),
    }
    assert found.evaluator is None
    assert found.seconds is None, "it was not measured"


@pytest.mark.parametrize(
    ("gained_by", "passes", "edges", "told"),
    [
        (Interval(1.5, 1.2, 1.8), True, (), []),
        (Interval(1.5, 0.9, 1.8), True, (), ["no gain is shown: no recommendation"]),
        (
            Interval(1.5),
            True,
            (),
            ["too few outputs for an interval of the gain: no recommendation"],
        ),
        (None, True, ("edge",), ["it is the standard sampler: no recommendation", "edge"]),
        (
            Interval(1.5, 1.2, 1.8),
            False,
            ("edge", "other"),
            ["not surely inside the limits when it was chosen", "edge", "other"],
        ),
    ],
)
def test_what_a_reader_must_know_of_a_gain(gained_by, passes, edges, told) -> None:
    point, level = OperatingPoint.of(SamplerSpec()), Interval(1.0, 0.9, 1.1)
    choice = Choice("M = 4", 4, point, True, passes, edges)
    held = (Held("entropy>=2", level, True),)
    assert Gain(choice, level, level, gained_by, True, held, 8, 4.0).mind() == told
    unmet = Choice("M = 4", 4, point, False, passes)
    doubt = "no setting held every limit for sure: no recommendation"
    assert Gain(unmet, level, level, gained_by, True, (), 8, 4.0).mind()[0] == doubt
    told = Gain(unmet, level, level, None, True, (), 8, 4.0).mind()
    others = ["no entropy guard bounds the sharpness", "it is the standard sampler"]
    assert told == [doubt, *others]
    assert "when it was chosen" not in str(Gain(unmet, level, level, None, True, (), 8, 4.0).mind())


def test_a_file_of_samplers_says_how_it_is_used(made: tuple[Made, Made]) -> None:
    standard, row = measure([one.cell for one in made], ["perplexity", "entropy", "calls"], BY)
    choice = Choice("M = 4", row.steps, row.point)
    found = gain(choice, row, standard, Number.of("perplexity"), metric=PERPLEXITY)
    found = replace(found, gain=Interval(1.5, 1.4, 1.6), limits=(Held("x", Interval(1.0), True),))
    assert found.evaluator is None  # this one names none
    lines = spec_file("What was chosen.", [choice], [found]).decode().splitlines()
    assert lines[:2] == [
        "# What was chosen.",
        "# Use: strop sample CHECKPOINT --spec THIS_FILE -o RUN",
    ]
    assert lines[2:4] == ["samplers:", f"- steps: {choice.steps}"]


@pytest.mark.parametrize("resampled", [False, True])
def test_of_several_evaluators_the_one_that_is_named_counts(tmp_path, resampled: bool) -> None:
    reader = EvaluatorSpec(name="another", sha256="6" * 64, tokenizer="7" * 64, context=64)
    second = MetricSpec(name="perplexity", evaluator=reader, settings={"made": "by hand"})
    pair = [Made(tmp_path / "run", 1.0, 1), Made(tmp_path / "run", 0.7, 2)]
    for k, one in enumerate(pair):
        found = {"nll": one.nll * (1.1 + k), "tokens": one.tokens}
        sizes = dict.fromkeys(("bytes", "kept_bytes", "source_bytes"), 4 * one.tokens)
        one.cell.add_scores(second, found | sizes)
    both = iter([PERPLEXITY, second])
    by = Scorers(own={"perplexity": lambda _: next(both)})
    cells = [one.cell for one in pair]
    standard, row = measure(cells, ["perplexity", "entropy", "calls"], by)
    choice = Choice("M = 4", row.steps, row.point)
    goal = Number.of("perplexity")
    for metric, scales in ((PERPLEXITY, (1.0, 1.0)), (second, (1.1, 2.1))):
        plain, mine = (
            math.exp(scale * one.nll.sum() / one.tokens.sum())
            for one, scale in zip(pair, scales, strict=True)
        )
        found = gain(choice, row, standard, goal, metric=metric, resampled=resampled)
        assert found.standard.value == pytest.approx(plain)
        assert found.objective.value == pytest.approx(mine)
        assert found.gain is not None
        assert found.gain.value == pytest.approx(plain / mine)
        assert found.evaluator == ("another" if metric is second else None)


def test_intervals_that_hold_together_share_what_may_be_missed() -> None:
    assert [family_level(rows) for rows in (0, 1, 2, 5)] == pytest.approx([0.95, 0.95, 0.975, 0.99])
