"""Merging runs that were made by hand: what is taken in, and every way in which two may differ."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from made_runs import PERPLEXITY, cell_spec, made_cell, output
from strop.engine.merge import _refuse_other_scores, _whose, merge_runs, refuse_gaps
from strop.engine.plan import Elsewhere
from strop.errors import UserError
from strop.pool import Output
from strop.spec import PromptSpec
from strop.store import Run
from strop.store.tables import same_outputs

LENGTH, N = 5, 6
IDS = np.arange(N * LENGTH).reshape(N, LENGTH) % 11


def given(index: int, **changes: Any) -> Output:
    return output(index, changes.pop("ids", IDS[index]), **changes)


def runs(path: Path, first: list[Output], second: list[Output]) -> list[Path]:
    spec = cell_spec(LENGTH)
    for name, outputs in (("one", first), ("two", second)):
        made_cell(path / name, spec, outputs)
    return [path / "one", path / "two"]


def merged(path: Path, first: list[Output], second: list[Output]) -> list[dict[str, Any]]:
    [cell] = merge_runs(runs(path, first, second), path / "out").cells()
    return cell.table().to_pylist()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([0, 1, 2], [3, 4, 5]),
        ([5, 0, 3], [1, 4, 2]),
        ([0, 1, 2, 3], [2, 3, 4, 5]),
        ([], [0, 1, 2, 3, 4, 5]),
        ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]),
    ],
)
def test_all_outputs_of_both_each_once_whatever_their_order(tmp_path, first, second) -> None:
    rows = merged(tmp_path, [given(i) for i in first], [given(i) for i in second])
    assert [row["index"] for row in rows] == list(range(N))
    for i, row in enumerate(rows):
        told = (row["ids"], row["text"], row["nfe"], row["seconds"], row["changed"])
        assert told == (IDS[i].tolist(), f"text {i}", 10 + i, 0.5 + i, [0, 1, 2, 3, 4])
    refuse_gaps(Run.open(tmp_path / "out"))


@pytest.mark.parametrize("position", range(LENGTH))
@pytest.mark.parametrize("index", [0, 2, 4])
def test_a_single_token_that_differs_is_a_conflict(tmp_path, position, index) -> None:
    """The runs overlap in 0, 2 and 4 alone, and at other places of their tables."""
    ids = IDS[index].copy()
    ids[position] = (ids[position] + 1) % 11
    first = [given(i) for i in (0, 1, 2, 4)]
    second = [given(i, ids=ids) if i == index else given(i) for i in (0, 2, 3, 4, 5)]
    with pytest.raises(UserError, match="different outputs with the same index") as caught:
        merge_runs(runs(tmp_path, first, second), tmp_path / "out")
    assert caught.value.got == f"outputs {index}"


@pytest.mark.parametrize("changes", [{"text": "another"}, {"text": ""}, {"nfe": 12}, {"nfe": 10}])
def test_another_text_or_number_of_calls_is_a_conflict(tmp_path, changes) -> None:
    places = runs(tmp_path, [given(0), given(1)], [given(0), given(1, **changes)])
    with pytest.raises(UserError, match="different outputs with the same index") as caught:
        merge_runs(places, tmp_path / "out")
    assert caught.value.got == "outputs 1"


@pytest.mark.parametrize(
    ("name", "value", "same"),
    [
        ("text", "another", False),
        ("nfe", 12, False),
        ("leftover_masks", 1, False),
        ("prompt", "another", False),
        ("tokens", 4, False),
        ("seconds", 99.0, True),
    ],
)
def test_every_column_but_the_seconds_counts(tmp_path, name, value, same) -> None:
    cell = made_cell(tmp_path / "run", cell_spec(LENGTH), [given(0), given(1)])
    ours = cell.table()
    for other, values in (("prompt", ["a", "b"]), ("tokens", [5, 5])):
        ours = ours.append_column(other, pa.array(values))
    changed = pa.array([ours[name][0].as_py(), value], ours.schema.field(name).type)
    theirs = ours.set_column(ours.column_names.index(name), name, changed)
    assert same_outputs(ours, theirs, cell.spec).tolist() == [True, same]


@pytest.mark.parametrize("changes", [{"seconds": 99.0}, {"text": None}])
def test_seconds_and_what_one_of_them_does_not_know_are_no_conflict(tmp_path, changes) -> None:
    rows = merged(tmp_path, [given(0), given(1)], [given(1, **changes), given(2)])
    assert [row["index"] for row in rows] == [0, 1, 2]
    assert (rows[1]["text"], rows[1]["seconds"]) == ("text 1", 1.5)


def test_responses_of_different_lengths_are_different(tmp_path) -> None:
    """Behind its end an output is filled up with a token, which must not hide its end."""
    from strop.pool import filler
    from strop.prompts import Canvas, Canvases

    canvases = Canvases(tuple(Canvas(f"p{i}", (i, *[None] * LENGTH)) for i in range(2)))
    spec = cell_spec(LENGTH)
    generator = spec.generator.model_copy(update={"prompts": canvases.spec})
    spec = spec.model_copy(update={"generator": generator})
    assert isinstance(generator.prompts, PromptSpec)
    fill = filler(spec)
    for name, length in (("one", LENGTH), ("two", LENGTH - 1)):
        ids = [1] * (LENGTH - 1) + [fill] * (length - LENGTH + 1)
        run = Run.prepare(tmp_path / name, {"checkpoint": "made", "n": 1}, [spec])
        run.keep_prompts(canvases, [None] * 2)
        cell = run.cell(spec.id)
        cell.add([output(0, ids, prompt="p0")])
        cell.merge()
    with pytest.raises(UserError, match="different outputs with the same index"):
        merge_runs([tmp_path / "one", tmp_path / "two"], tmp_path / "out")


def test_the_largest_number_that_one_of_them_wants_is_wanted(tmp_path) -> None:
    places = runs(tmp_path, [given(i) for i in range(3)], [given(5)])
    run = merge_runs(places, tmp_path / "out")
    [cell] = run.cells()
    assert run.wanted() == {cell.id: 6}
    with pytest.raises(Elsewhere) as caught:
        refuse_gaps(run)
    assert caught.value.got == f"cell {cell.id[:8]}: 3-4"


def scored(path: Path, first: dict[str, Any], second: dict[str, Any]) -> list[Path]:
    """Runs of the outputs 0, 1 and 1, 2, with scores of these outputs."""
    places = runs(path, [given(0), given(1)], [given(1), given(2)])
    for place, index, columns in zip(places, ([0, 1], [1, 2]), (first, second), strict=True):
        [cell] = Run.open(place).cells()
        arrays = {name: np.array(values) for name, values in columns.items()}
        cell.add_scores(PERPLEXITY, {"index": np.array(index), **arrays})
    return places


def test_scores_of_both_are_taken_and_what_is_there_stays(tmp_path) -> None:
    places = scored(tmp_path, {"nll": [0.0, 1.0]}, {"nll": [1.0 + 2**-8, 102.0]})
    [cell] = merge_runs(places, tmp_path / "out").cells()
    kept = cell.score(PERPLEXITY)
    assert kept is not None
    assert kept.index.tolist() == [0, 1, 2]
    assert kept.columns["nll"].tolist() == [0, 1, 102]


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        ({"nll": [0.0, 100.0]}, {"nll": [102.0, 3.0]}, "nll"),
        ({"nll": [0.0, -100.0]}, {"nll": [100.0, 3.0]}, "nll"),
        ({"tokens": [7, 900]}, {"tokens": [901, 9]}, "tokens"),
        ({"v": [[1.0, 0.0], [0.0, 1.0]]}, {"v": [[0.0, 0.9], [0.0, 1.0]]}, "v"),
        ({"nll": [0.0, 1.0]}, {"other": [1.0, 3.0]}, "nll, other"),
    ],
)
def test_other_scores_of_one_output_are_a_conflict(tmp_path, first, second, names) -> None:
    with pytest.raises(UserError, match=r"different scores of one output \(perplexity\)") as caught:
        merge_runs(scored(tmp_path, first, second), tmp_path / "out")
    assert caught.value.got == f"{names} of outputs 1"


@pytest.mark.parametrize(
    ("changes", "refused"),
    [({"ids": IDS[2]}, True), ({"text": "b"}, True), ({"nfe": 1}, True), ({"seconds": 9.0}, False)],
)
def test_two_rows_of_one_run_under_one_number_must_be_equal(tmp_path, changes, refused) -> None:
    places = runs(tmp_path, [given(0), given(1)], [given(2)])
    [cell] = Run.open(places[0]).cells()
    cell.add([given(1, **changes)])
    if refused:
        with pytest.raises(UserError, match="damaged") as caught:
            merge_runs(places, tmp_path / "out")
        assert "different outputs with the same index: 1" in str(caught.value.got)
    else:
        [cell] = merge_runs(places, tmp_path / "out").cells()
        assert cell.table()["seconds"].to_pylist() == [0.5, 1.5, 2.5]


@pytest.mark.parametrize(("token", "refused"), [(11, False), (12, True), (-1, True)])
def test_a_token_beyond_the_vocabulary_is_damage(tmp_path, token, refused) -> None:
    """The mask, 11, may be left over; there is no token 12."""
    outputs = [given(0)], [given(1, ids=[1, 2, token, 4, 5])]
    if refused:
        with pytest.raises(UserError, match="damaged") as caught:
            merged(tmp_path, *outputs)
        assert "the vocabulary has 12" in str(caught.value.got)
    else:
        assert merged(tmp_path, *outputs)[1]["ids"] == [1, 2, 11, 4, 5]


def test_the_first_guard_is_kept_and_sessions_come_once(tmp_path) -> None:
    places = runs(tmp_path, [given(0)], [given(1)])
    for place, threshold in zip(places, (None, 2.5), strict=True):
        run = Run.open(place)
        if threshold is not None:
            run.keep_guard({"length": LENGTH, "threshold": threshold, "source": "mine"})
        [cell] = run.cells()
        cell.record({"session": place.name, "outputs": 1})
    for _ in range(2):
        run = merge_runs(places, tmp_path / "out")
    [cell] = run.cells()
    assert sorted(one["session"] for one in cell.sessions()) == ["one", "two"]
    kept = run.guard()
    assert kept is not None
    assert kept["threshold"] == 2.5


def test_a_single_run_can_be_merged_and_not_into_itself(tmp_path) -> None:
    [one, _] = runs(tmp_path, [given(0), given(1)], [])
    [cell] = merge_runs([one], tmp_path / "out").cells()
    assert cell.table()["index"].to_pylist() == [0, 1]
    with pytest.raises(UserError, match="merged into itself"):
        merge_runs([one], tmp_path / "other" / ".." / "one")


def test_runs_of_other_cells_are_refused(tmp_path) -> None:
    made_cell(tmp_path / "one", cell_spec(LENGTH), [given(0)])
    made_cell(tmp_path / "two", cell_spec(LENGTH, seed=1), [given(0)])
    with pytest.raises(UserError, match="they have other cells") as caught:
        merge_runs([tmp_path / "one", tmp_path / "two"], tmp_path / "out")
    assert caught.value.where == str(tmp_path / "two")
    assert caught.value.expected == f"the cells of {tmp_path / 'one'}"


def test_every_cell_is_asked_for_as_often_as_the_run_that_wants_most_of_it(tmp_path) -> None:
    specs = [cell_spec(LENGTH, seed=seed) for seed in (0, 1)]
    for name, counts in (("one", [3, 2]), ("two", [2, 4])):
        Run.prepare(
            tmp_path / name, {"checkpoint": "made", "n": max(counts), "outputs": counts}, specs
        )
    run = merge_runs([tmp_path / "one", tmp_path / "two"], tmp_path / "out")
    assert run.wanted() == {specs[0].id: 3, specs[1].id: 4}
    assert run.asked == {"checkpoint": "made", "n": 4, "outputs": [3, 4]}


def test_what_shards_of_one_owner_drew_stays_its_own() -> None:
    def marked(*marks: tuple[str, str] | None) -> Any:
        told = [
            None if one is None else SimpleNamespace(kind=one[0], owner=one[1]) for one in marks
        ]
        return _whose([SimpleNamespace(mark=one) for one in told])  # type: ignore[misc]

    audit, other = ("audit", "audit"), ("audit", "mine")
    assert marked(audit) == marked(audit, audit, None) == audit
    assert marked(audit, other) == marked(None) == marked() == ("run", "merge")


def test_prompts_are_kept(tmp_path) -> None:
    from strop.prompts import Canvas, Canvases

    canvases = Canvases((Canvas("p0", (1, *[None] * LENGTH)),))
    spec = cell_spec(LENGTH)
    generator = spec.generator.model_copy(update={"prompts": canvases.spec})
    spec = spec.model_copy(update={"generator": generator})
    run = Run.prepare(tmp_path / "one", {"checkpoint": "made", "n": 1}, [spec])
    run.keep_prompts(canvases, [["a", LENGTH]])
    run.cell(spec.id).add([output(0, [1] * LENGTH, prompt="p0")])
    [cell] = merge_runs([tmp_path / "one"], tmp_path / "out").cells()
    kept = cell.prompts()
    assert kept is not None
    assert (kept.canvases, list(kept.pieces)) == (canvases, [["a", LENGTH]])


SLACK = 2.0**-7


@pytest.mark.parametrize(
    ("mine", "other", "apart"),
    [
        (100.0, 100 + 101 * SLACK, False),
        (100.0, 100 + 101.001 * SLACK, True),
        (100 + 101 * SLACK, 100.0, False),
        (-3.0, -3 - 4 * SLACK, False),
        (-3.0, -3 - 4.001 * SLACK, True),
        (0.0, SLACK, False),
        (0.0, 1.001 * SLACK, True),
        (7, 7, False),
        (7, 8, True),
    ],
)
def test_how_far_two_scores_of_one_output_may_lie_apart(mine, other, apart) -> None:
    """The second of two common outputs, at another place of each table."""
    one = SimpleNamespace(index=np.array([0, 1, 2]), columns={"x": np.array([5, 6, mine])})
    two = SimpleNamespace(index=np.array([2, 1]), columns={"x": np.array([other, 6])})
    one.metric = SimpleNamespace(name="made")
    cell: Any = SimpleNamespace(path="here")
    if not apart:
        _refuse_other_scores(cell, one, two)  # type: ignore[arg-type]
        return
    with pytest.raises(UserError, match=r"different scores of one output \(made\)") as caught:
        _refuse_other_scores(cell, one, two)  # type: ignore[arg-type]
    assert caught.value.got == "x of outputs 2"


def test_vectors_are_compared_output_by_output() -> None:
    one = SimpleNamespace(index=np.arange(3), columns={"v": np.zeros((3, 2)), "w": np.zeros(3)})
    two = SimpleNamespace(index=np.arange(3), columns={"v": np.zeros((3, 2)), "w": np.ones(3)})
    two.columns["v"][1, 1] = 1.0
    two.columns["w"][:2] = 0.0
    one.metric = SimpleNamespace(name="made")
    with pytest.raises(UserError) as caught:
        _refuse_other_scores(SimpleNamespace(path="here"), one, two)  # type: ignore[arg-type]
    assert caught.value.got == "v, w of outputs 1-2"
