"""What one call may ask for is looked at before a model is loaded or a file is made."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from strop import bounds
from strop.bounds import MOST_AT_ONCE, MOST_OUTPUTS, bounded_batch, bounded_outputs
from strop.cli.main import run as strop
from strop.errors import UserError


def test_the_outputs_of_all_cells_are_added_up() -> None:
    bounded_outputs([MOST_OUTPUTS - 5, 5])
    with pytest.raises(UserError, match="`n` asks for too much"):
        bounded_outputs([MOST_OUTPUTS - 5, 6])


def test_a_batch_is_bounded_by_its_positions() -> None:
    bounded_batch(MOST_AT_ONCE // 1024, 1024)
    with pytest.raises(UserError, match="`batch_size` asks for too much"):
        bounded_batch(MOST_AT_ONCE // 1024 + 1, 1024)


@pytest.mark.parametrize(
    "flags",
    [
        ["-n", "4000000000"],
        ["--steps", "1000000000"],
        ["--length", "1000000000"],
        ["--batch-size", "1000000000"],
        ["--devices", "cpu:1000000"],
    ],
)
def test_a_mistyped_number_is_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    start = time.process_time()
    assert strop(["sample", "nowhere/no-checkpoint", *flags, "-o", str(tmp_path / "run")]) == 1
    err = capsys.readouterr().err
    assert flags[0] in err
    assert "no-checkpoint" not in err  # nothing was looked for
    assert not (tmp_path / "run").exists()
    assert time.process_time() - start < 20


def test_a_task_adds_up_its_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from strop.tasks.running import run_task

    with pytest.raises(UserError, match="too much"):
        run_task("sums", ["nowhere/no-checkpoint"], seeds=10**9, out=tmp_path / "run")


def test_cores_are_counted() -> None:
    assert bounds.cores() >= 1
