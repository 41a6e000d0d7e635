"""Shards are processes that know nothing of each other; together they draw the local run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from drills import N, arguments, clean, drawn, indices, outcome, sampled, started

from strop.assets import ROOT
from strop.cli.main import run as run_command
from strop.store import Run


@pytest.mark.parametrize("count", [2, 3])
def test_shards_of_one_run_draw_what_one_process_draws(
    model: Path, local: Path, tmp_path: Path, count: int
) -> None:
    path = tmp_path / "run"
    processes = [started(model, path, "--shard", f"{i}/{count}") for i in range(count)]
    ends = [(one.communicate(timeout=300), one.returncode) for one in processes]
    assert [code for _, code in ends] == [0] * count, ends
    assert outcome(path) == outcome(local)
    assert drawn(path) == [N] * 2, "nothing was drawn twice"
    assert clean(path)


def test_shards_apart_are_merged(
    model: Path, local: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = [tmp_path / str(i) for i in range(2)]
    whole = tmp_path / "whole"
    line = ["merge", *map(str, parts), "-o", str(whole)]
    for i, part in enumerate(parts):
        assert sampled(model, part, "--shard", f"{i}/2") == 0
        assert f"shard {i}/2 is done" in capsys.readouterr().err
    assert run_command(["merge", str(parts[0]), "-o", str(whole)]) == 2
    assert "cells lack outputs" in capsys.readouterr().err
    assert run_command(line) == 0
    assert outcome(whole) == outcome(local)
    assert drawn(whole) == [N] * 2
    assert run_command(line) == 0, "merging again adds nothing"
    assert drawn(whole) == [N] * 2
    assert clean(whole)
    # The merged run goes on like any other, and has nothing left to draw.
    assert sampled(model, whole) == 0
    assert drawn(whole) == [N] * 2


def test_a_shard_says_what_others_have_not_drawn(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    assert sampled(model, path, "--shard", "1/2", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["shard"] == "1/2"
    # Ten units of three: shard 1 has those at 3 and 9 of the first cell, 0, 6 and 12 of the next.
    first, second = (cell.id[:8] for cell in Run.open(path).cells())
    assert told["missing"]["got"] == f"cell {first}: 0-2, 6-8, 12-13; cell {second}: 3-5, 9-11"
    assert indices(path) == [6, 8]


def test_what_does_not_belong_together_is_refused(
    model: Path, local: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    assert run_command([*arguments(model, other), "--steps", "4"]) == 0
    assert run_command(["merge", str(local), str(other), "-o", str(tmp_path / "out")]) == 1
    assert "do not belong together" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert run_command(["merge", str(local), "-o", str(local)]) == 1
    assert "into itself" in capsys.readouterr().err


def test_conflicting_outputs_are_refused(
    model: Path, local: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Outputs of another seed, put where those of this one belong."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    wrong = tmp_path / "wrong"
    shutil.copytree(local, wrong)
    cell = Run.open(wrong).cells()[0]
    table = cell.table()
    file = cell.path / "outputs.parquet"
    ids = table["ids"].combine_chunks()
    flipped = pa.FixedSizeListArray.from_arrays(pa.array(11 - ids.flatten().to_numpy()), 24)
    cast = flipped.cast(table.schema.field("ids").type)
    column = table.column_names.index("ids")
    pq.write_table(table.set_column(column, table.schema.field("ids"), cast), file)
    out = tmp_path / "out"
    assert run_command(["merge", str(local), str(wrong), "-o", str(out)]) == 1
    assert f"outputs 0-{N - 1}" in capsys.readouterr().err
    assert outcome(out) == outcome(local), "what was merged before stays"


def test_force_and_shards_do_not_go_together(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sampled(model, tmp_path / "run", "--shard", "0/2", "--force") == 1
    assert "--force" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_shard_that_waits_ends_with_everything(
    model: Path, local: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two at once share the units, and both see all outputs at their ends."""
    path = tmp_path / "run"
    processes = [started(model, path, "--shard", f"{i}/2", "--wait", "--json") for i in range(2)]
    ends = [(one.communicate(timeout=300), one.returncode) for one in processes]
    assert [code for _, code in ends] == [0] * 2, ends
    assert all("missing" not in out and len(json.loads(out)["cells"]) == 2 for (out, _), _ in ends)
    assert outcome(path) == outcome(local)
    assert drawn(path) == [N] * 2, "nothing was drawn twice"
    assert clean(path)
    assert sampled(model, tmp_path / "whole", "--wait") == 1
    assert "Only a shard waits" in capsys.readouterr().err


def test_an_audit_of_shards_needs_one_pass(model: Path, tmp_path: Path) -> None:
    """The second shard never starts: the first one does its part too."""
    line = ["audit", str(model), "--steps", "2", "-n", "8", "--evaluator", "embedded:tales-ar"]
    line += ["--axis", "temperature=1,0.9", "--axis", "precision=float64", "--shard", "0/2"]
    assert run_command([*line, "-o", str(tmp_path / "passes")]) == 2
    assert not (tmp_path / "passes" / "result.json").exists()
    assert run_command([*line, "--wait", "-o", str(tmp_path / "waits")]) == 0
    assert (tmp_path / "waits" / "result.json").exists()
    assert (tmp_path / "waits" / "fresh").is_dir()


def test_the_slurm_file_ships_and_the_page_prints_it() -> None:
    content = (ROOT / "shards.slurm").read_text()
    page = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
    assert f"```slurm\n{content}```\n" in page
    assert 'strop "$@" --shard auto --wait &' in content


def test_scores_are_sharded_and_merged(local: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(local, whole)
    line = ["--evaluator", "embedded:tales-ar", "--vendi", "off", "--batch-size", "4"]
    assert run_command(["score", str(whole), *line]) == 0
    parts = [tmp_path / str(i) for i in range(2)]
    for i, part in enumerate(parts):
        shutil.copytree(local, part)
        assert run_command(["score", str(part), *line, "--shard", f"{i}/2"]) == 0
    merged = tmp_path / "merged"
    assert run_command(["merge", *map(str, parts), "-o", str(merged)]) == 0
    for one, other in zip(Run.open(whole).cells(), Run.open(merged).cells(), strict=True):
        assert {k: len(v) for k, v in one.scores().items()} == {
            k: len(v) for k, v in other.scores().items()
        }
        for name, table in one.scores().items():
            for column, values in table.columns.items():
                assert values.tolist() == other.scores()[name].columns[column].tolist(), column
