"""The cache study graded by a task: accuracy with and without the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strop import verbs
from strop.denoisers import load_model
from strop.errors import UserError
from strop.tasks import TASKS
from strop.tasks.running import Grader, entrant_of
from strop.verbs.cache import CacheCell, accuracies, right_answers


def test_outputs_are_graded_with_and_without_the_cache(llada: Path, tmp_path: Path) -> None:
    asked = {"sources": [str(llada)], "n": 2, "temperature": (0.0,), "axis": {"block_length": (8,)}}
    found = verbs.run("cache", out=tmp_path / "cache", task="sums", **asked)
    rows = {row["cache"]: row for row in found.table.rows}
    assert list(rows) == ["none", "prefix", "dual", "none, another seed"]
    assert all(row["accuracy"].value == 0 for row in rows.values())  # nobody trained it
    assert rows["none"]["gain"] is None
    assert rows["dual"]["gain"].value == 0
    assert found.asked["length"] == TASKS["sums"].length
    assert [c.name for c in found.table.columns][:3] == ["cache", "accuracy", "gain"]


def test_right_answers_are_told_from_wrong_ones(llada: Path) -> None:
    model: Any = load_model(llada, device="cpu")
    task = TASKS["sums"]
    grader = Grader(task, entrant_of(model, "x", None, None), None)
    items = task.all_items()
    ids = np.zeros((3, task.length), np.int64)  # zero is the end of a text
    for row, text in enumerate((items[0].reference, items[0].reference, items[2].reference)):
        tokens = model.codec.encode(text)
        ids[row, : len(tokens)] = tokens
    assert right_answers(grader, model, ids).tolist() == [1, 0, 1]


def test_the_difference_is_paired() -> None:
    told = accuracies(np.array([1.0, 1, 0, 0]), np.array([1.0, 0, 0, 0]))
    assert (told["accuracy"].value, told["gain"].value) == (0.5, 0.25)
    assert told["gain"].low == 0  # no problem got lost


def test_ids_of_cells_without_a_task_are_as_they_were() -> None:
    assert "task" in CacheCell.model_fields
    shape = {"vocab_size": 10, "mask_id": 9, "length": 8}
    cell = CacheCell(
        checkpoint={"family": "llada", "sha256": "0" * 64, "shape": shape},  # pyright: ignore[reportArgumentType]
        sampler={"name": "fast-dllm", "steps": 8},  # pyright: ignore[reportArgumentType]
        prompts="",
        length=8,
        outputs=1,
        seed=0,
    )
    assert "task" not in cell.model_dump()
    assert cell.model_copy(update={"task": "x"}).id != cell.id


@pytest.mark.parametrize(
    ("given", "told"),
    [({"task": "sumz"}, "no task called"), ({"task": "sums", "sources": []}, "brings its own")],
)
def test_refused(given: dict[str, Any], told: str, llada: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=told):
        verbs.run("cache", out=tmp_path / "cache", **{"sources": [str(llada)], **given})
