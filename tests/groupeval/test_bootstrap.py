from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from made_judgments import group, random_verdicts

from strop.groupeval.bootstrap import (
    _xlogx,
    ged_replicates,
    geq_of,
    mind,
    output_weights,
    partition_weights,
    replicate,
    score,
)
from strop.groupeval.judgments import Judgments
from strop.groupeval.scores import (
    PlannedGroups,
    by_cell,
    diagnose,
    ged,
    ged_bounds,
    geq_bounds,
)
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


VERDICTS = [group("AABx"), group("ABCD", number=1, first=4), group("AAAA", partition=1)]


def scored(verdicts: list[Any], modes: bool = True, **more: Any) -> dict[str, Any]:
    planned = {"cell": PlannedGroups(8, 4, 2), "none": PlannedGroups(16, 4, 1)}
    why = [("cell", "time"), ("none", "time"), ("none", "text"), ("none", "time")]
    lost = [SimpleNamespace(cell=name, reason=reason) for name, reason in why]
    judgments = Judgments("x", verdicts, lost, planned, True, modes, profile="p")  # type: ignore[arg-type]
    return score(judgments, **more)


def test_the_document_of_scores_by_hand() -> None:
    found = scored(VERDICTS, replicates=40, seed=3)
    cells = found.pop("cells")
    assert found == {
        "source": "x",
        "profile": "p",
        "judge": None,
        "asked_from": "plan",
        "replicates": 40,
        "seed": 3,
    }
    cell, planned = by_cell(VERDICTS)["cell"], PlannedGroups(8, 4, 2)
    drawn = replicate(cell, partition_weights([0, 1], 40, 3), seed=3)
    quality = geq_of(cell)
    assert quality.variance is not None
    told = cells["cell"]
    middle = np.quantile(drawn, [0.025, 0.975]).tolist()
    assert told["ged_weight_sensitivity"] == pytest.approx(middle, rel=1e-12)
    wanted = {
        "geq": quality.interval(),
        "geq_interval_mind": None,
        "geq_variance": quality.parts,
        "ged": ged(cell),
        "n_outputs": 8,
        "n_outputs_above_0": cell.nonzero,
        "n_groups": 3,
        "n_outputs_asked": 8,
        "n_groups_asked": 4,
        "group_size": 4,
        "n_partitions": 2,
        "geq_bounds": geq_bounds(cell, planned),
        "ged_bounds": ged_bounds(ged(cell), 3, planned),
        "failures": {"time": 1},
        **diagnose(cell, modes=True),
    }
    assert {name: told[name] for name in wanted} == wanted
    assert set(told) == {*wanted, "ged_weight_sensitivity"}
    assert cells["none"] == {
        "geq": None,
        "ged": None,
        "n_outputs": 0,
        "n_groups": 0,
        "n_outputs_asked": 16,
        "n_groups_asked": 4,
        "geq_bounds": [0.0, 10.0],
        "ged_bounds": [0.0, 10.0],
        "failures": {"time": 2, "text": 1},
    }


def test_without_modes_there_is_no_diversity_and_nothing_is_drawn() -> None:
    steps: list[int] = []
    told = scored(VERDICTS, modes=False, told=steps.append)["cells"]
    for name in ("ged", "ged_weight_sensitivity", "ged_bounds"):
        assert told["cell"][name] is None
    assert told["none"]["ged_bounds"] is None
    assert steps == []


def test_few_outputs_above_zero_are_minded() -> None:
    for pattern, told in (("AAAAxxxx", "only 4 outputs above 0: too narrow"), ("AAAAAxxx", None)):
        few = by_cell([group(pattern)])["cell"]
        assert mind(few) == told
        assert mind(by_cell([group("A" * 8)])["cell"], few) == told
        assert scored([group(pattern)])["cells"]["cell"]["geq_interval_mind"] == told
    [alone] = [by_cell([group("AB")])["cell"]]
    variance = geq_of(alone).variance
    document = scored([group("AB")])["cells"]["cell"]
    assert (document["geq_variance"] is None) is (variance is None)


def test_where_all_are_of_one_mode_there_is_no_diversity_under_any_weights() -> None:
    cell = by_cell([group("AAAA"), group("BBxx", number=1, first=4)])["cell"]
    v, e = np.ones((2, 1)), np.array([[1.0] * 8, [0.5, 2, 1, 1, 3, 1, 1, 1]])
    assert ged_replicates(cell, v, e).tolist() == [0, 0]


def test_x_log_x_is_zero_at_zero() -> None:
    found = _xlogx(np.array([0.0, 1.0, 2.0]))
    assert found.tolist() == [0.0, 0.0, pytest.approx(2 * np.log(2))]
