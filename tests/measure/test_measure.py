"""measure: what is wanted is scored and read, of the outputs that count, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from made_runs import cell_spec, made_cell, output
from strop.errors import UserError
from strop.measure.cells import Scorers, measure
from strop.measure.metric import CALLS, ENTROPY, GEQ, PERPLEXITY, SECONDS, VENDI, Number
from strop.spec import MetricSpec
from strop.store import Cell

IDS = ([1, 1, 1, 1], [1, 1, 2, 2], [1, 2, 3, 4], [1, 1, 1, 2])
ENTROPIES = (0.0, np.log(2), np.log(4), np.log(4) - 0.75 * np.log(3))
CALLED = (3, 3, 4, 6)
TOOK = (0.5, 0.25, 1.0, 2.0)


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    rows = enumerate(zip(IDS, CALLED, TOOK, strict=True))
    outputs = [output(i, ids, nfe=nfe, seconds=seconds) for i, (ids, nfe, seconds) in rows]
    return made_cell(tmp_path / "run", cell_spec(4), outputs)


def value(row: Any, name: str) -> float:
    return row.statistic(Number.of(name)).value


def test_only_what_is_wanted_is_scored_and_read(cell: Cell) -> None:
    [row] = frame = measure([cell], ["entropy", "calls"])
    assert [one.record for one in row.parts] == [ENTROPY, CALLS]
    assert [one.metric for one in cell.scores().values()] == [ENTROPY.spec]
    assert frame.asked == {"entropy": [ENTROPY.spec], "calls": []}


@pytest.mark.parametrize(("start", "stop"), [(0, 4), (0, 1), (1, 3), (2, 4)])
def test_numbers_are_those_of_the_outputs_that_count(cell: Cell, start: int, stop: int) -> None:
    [row] = measure([cell], ["entropy", "calls", "seconds"], outputs=(start, stop))
    assert row.outputs == stop - start
    assert value(row, "entropy") == pytest.approx(np.mean(ENTROPIES[start:stop]))
    assert value(row, "calls") == pytest.approx(np.mean(CALLED[start:stop]))
    assert value(row, "seconds") == pytest.approx(np.mean(TOOK[start:stop]))
    assert row.calls == pytest.approx(np.mean(CALLED[start:stop]))
    assert row.seconds == pytest.approx(np.mean(TOOK[start:stop]))
    part = row.part(ENTROPY)
    assert part is not None
    assert part.index.tolist() == list(range(start, stop))


def test_stored_scores_are_taken_by_the_number_of_the_output(cell: Cell) -> None:
    """Not by place in the file: a cell is scored in any order, and grows."""
    measure([cell], ["entropy"])
    cell.add([output(4, [5, 5, 5, 6])])
    cell.merge()
    [late] = measure([cell], ["entropy"], outputs=(3, 5))
    assert value(late, "entropy") == pytest.approx(ENTROPIES[3])
    part = late.part(ENTROPY)
    assert part is not None
    assert part.index.tolist() == [3, 4]


def test_counted_calls_are_exact_and_seconds_are_not(cell: Cell) -> None:
    [row] = measure([cell], ["calls", "seconds"], outputs=(0, 2))
    assert row.statistic(Number.of("calls")).exact
    assert not row.statistic(Number.of("seconds")).exact


def test_a_scorer_of_ones_own_comes_first_and_its_metric_alone_is_read(cell: Cell) -> None:
    mine = MetricSpec(name="geq", settings={"judge": "mine"})
    other = MetricSpec(name="geq", settings={"judge": "other"})
    cell.add_scores(other, {"index": np.arange(4), "geq": np.full(4, 9.0)})

    def judge(some: Cell) -> MetricSpec:
        some.add_scores(mine, {"index": np.arange(4), "geq": np.array([1.0, 2.0, 3.0, 6.0])})
        return mine

    [row] = measure([cell], ["geq"], Scorers(own={"geq": judge}))
    assert [one.metric for one in row.parts] == [mine]
    assert value(row, "geq") == pytest.approx(3.0)


def test_what_nobody_can_score_is_refused_with_its_count(cell: Cell) -> None:
    with pytest.raises(UserError, match="Perplexity needs an evaluator"):
        measure([cell], ["perplexity"])
    [nothing] = measure([cell], ["geq"])
    with pytest.raises(UserError) as error:
        nothing.statistic(Number.of("geq"))
    assert error.value.got == "0 of 4 outputs"
    cell.add_scores(GEQ.spec, {"index": np.arange(3), "geq": np.ones(3)})
    [some] = measure([cell], ["geq"])
    with pytest.raises(UserError) as error:
        some.statistic(Number.of("geq"))
    assert error.value.got == "3 of 4 outputs"
    [enough] = measure([cell], ["geq"], outputs=(0, 3))
    assert value(enough, "geq") == 1.0


def test_values_have_intervals_on_common_resamples(cell: Cell) -> None:
    twin = MetricSpec(name="geq")
    cell.add_scores(twin, {"index": np.arange(4), "geq": np.array(ENTROPIES)})
    [row] = measure([cell], ["entropy", "geq"])
    entropy, geq = row.value(Number.of("entropy")), row.value(Number.of("geq"))
    assert entropy is not None
    assert geq is not None
    assert (entropy.low, entropy.high) == pytest.approx((geq.low, geq.high))
    assert entropy.low < np.mean(ENTROPIES) < entropy.high


def test_numbers_by_name() -> None:
    assert Number.of("perplexity.macro").aggregate is PERPLEXITY.aggregates[1]
    assert Number.of("perplexity").aggregate is PERPLEXITY.aggregates[0]
    assert Number.of("seconds").record is SECONDS
    assert [Number.of(name).best for name in ("perplexity", "calls", "seconds", "repetition")] == [
        "min"
    ] * 4
    assert [Number.of(name).best for name in ("entropy", "task", "geq", "perplexity.kept")] == [
        "max"
    ] * 4
    assert [Number.of(n).log for n in ("perplexity", "perplexity.kept", "entropy")] == [
        True,
        False,
        False,
    ]
    assert Number.of("vendi").record is VENDI
    for name in ("vendi", "distinct", "distinct.4"):
        with pytest.raises(UserError, match="no interval"):
            Number.resampled(name)
    with pytest.raises(UserError, match="macr"):
        Number.of("perplexity.macr")
    with pytest.raises(UserError, match="entropi"):
        Number.of("entropi")
