from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_judgments import group, random_verdicts

from strop.groupeval.bootstrap import (
    ged_replicates,
    geq_of,
    output_weights,
    partition_weights,
    replicate,
    score,
)
from strop.groupeval.judgments import Judgments
from strop.groupeval.scores import PlannedGroups, by_cell, ged
from strop.rng import derive_seed


def benchmark() -> Any:
    """The loop that the benchmark times is the one that the fast form must equal."""
    path = Path(__file__).parents[2] / "benchmarks" / "groupeval.py"
    spec = importlib.util.spec_from_file_location("benchmark_groupeval", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("left_out", [0, 1, 7])
def test_equals_the_plain_loop(left_out: int) -> None:
    """Same weights, same scores, with judgments missing."""
    verdicts = random_verdicts(5, partitions=3)
    verdicts.append(group("xxxx", partition=3))
    verdicts.append(group("Axxx", partition=3, number=1, first=4))
    cell = by_cell(verdicts[left_out:])["cell"]
    rng = np.random.default_rng(left_out)
    v = rng.dirichlet(np.ones(len(cell.partitions)), 20)
    e = rng.standard_exponential((20, len(cell.outputs)))
    plain = benchmark().plain_ged
    slow = np.array([plain(cell, v[b].tolist(), e[b].tolist()) for b in range(20)])
    np.testing.assert_allclose(ged_replicates(cell, v, e), slow, rtol=1e-10)


def test_equal_weights_give_the_scores_back() -> None:
    for verdicts in (random_verdicts(2), random_verdicts(2)[:-3]):
        cell = by_cell(verdicts)["cell"]
        v, e = np.full((1, 2), 0.5), np.ones((1, len(cell.outputs)))
        assert ged_replicates(cell, v, e)[0] == pytest.approx(ged(cell))


def test_weights_belong_to_the_seed_and_the_name_of_the_setting() -> None:
    """The stream of a cell is fixed: its first weights are those of its own generator."""
    [some] = output_weights("s", 6, 3, 1)
    rng = np.random.default_rng(derive_seed(1, "groupeval-outputs:s"))
    np.testing.assert_array_equal(some, rng.standard_exponential((3, 6)))
    rng = np.random.default_rng(derive_seed(1, "groupeval-partitions"))
    wanted = rng.dirichlet(np.ones(2), 3)
    shared = partition_weights([7, 4], 3, 1)
    np.testing.assert_array_equal(np.stack([shared[4], shared[7]], 1), wanted)


def test_an_interval_says_what_it_is_of() -> None:
    left = by_cell(random_verdicts(1, cell="one", outputs=24, partitions=1))["one"]
    right = by_cell(random_verdicts(2, cell="two", outputs=48, partitions=1))["two"]
    one, both = geq_of(right).interval(), (geq_of(right) - geq_of(left)).interval()
    assert (one.value, one.n) == (pytest.approx(right.geq()), 48)
    assert both.value == pytest.approx(right.geq() - left.geq())
    assert (both.n, both.how, both.level) == (24, "crossed model", 0.95)


def test_contexts_know_their_groups() -> None:
    """Of outputs that were judged in another order in the second partition, and not by all."""
    verdicts = [group("AAAA"), group("xxAA", first=4, number=1), group("AAAA", partition=1)]
    cell = by_cell([*verdicts, group("AxAx", partition=1, number=1, first=6)])["cell"]
    assert cell.outputs == tuple(range(10))
    assert cell.groups[:, 0][cell.judged[:, 0]].tolist() == [0] * 4 + [1] * 4
    assert cell.groups[:, 1][cell.judged[:, 1]].tolist() == [2] * 4 + [3] * 4
    assert cell.judged[:, 1].nonzero()[0].tolist() == [0, 1, 2, 3, 6, 7, 8, 9]


def test_partition_weights_are_shared_by_name() -> None:
    shared = partition_weights([1, 0, 1], 1000, seed=3)
    np.testing.assert_array_equal(shared[1], partition_weights([0, 1], 1000, seed=3)[1])
    np.testing.assert_allclose(shared[0] + shared[1], 1)


def test_scoring_tells_how_far_it_is() -> None:
    verdicts = [one for name in "ab" for one in random_verdicts(3, cell=name, outputs=240)]
    planned = {name: PlannedGroups(240, 120, 2) for name in "ab"}
    steps: list[int] = []
    score(Judgments("x", verdicts, [], planned, False, True), replicates=1000, told=steps.append)
    assert sum(steps) == 2000
    assert len(steps) > 4


def test_interval_covers_as_often_as_it_says() -> None:
    """200 pools of 48 outputs of a known law: 95% intervals cover the mean 180 to 198 times.

    A binomial(200, 0.95) is outside with probability 0.005. Intervals of half the width (negative
    control) cover about 67% and fail.
    """
    truth, covered, narrow = 0.85 * 10 * 0.5, 0, 0
    for seed in range(200):
        found = geq_of(by_cell(random_verdicts(seed, outputs=48, partitions=1))["cell"]).interval()
        covered += not found.excludes(truth)
        narrow += abs(truth - sum(found.ends) / 2) <= found.half / 2
    assert 180 <= covered <= 198
    assert narrow < 178


def test_ged_range_of_singletons_excludes_their_score() -> None:
    """Why the range of GED is no interval around it: all groups score 10, no replicate does."""
    cell = by_cell([group("ABCDEFGH"), group("ABCDEFGH", number=1, first=8)])["cell"]
    drawn = replicate(cell, partition_weights([0], 500, 0))
    assert ged(cell) == 10
    assert drawn.max() < 10
