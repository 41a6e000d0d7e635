"""`--dry-run`: what would be drawn is counted, nothing is drawn, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from called import Called

import strop
from strop.draw import Planned, sample, sample_cells
from strop.engine.plan import WORKERS, Elsewhere, planning
from strop.engine.workers import Blocks, PlannedBlocks
from strop.errors import UserError
from strop.spec import CellSpec
from strop.store import Folder
from strop.table import duration
from strop.verbs import dry_run
from strop.verbs.study import find, run, studies
from tiny_models import write_checkpoint

TINY = "embedded:tales-tiny"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_checkpoint(tmp_path_factory.mktemp("own") / "model"))


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial of a tenth of a second."""
    monkeypatch.setattr(dry_run, "SECONDS", 0.1)


@pytest.mark.parametrize("steps", [2, 16])
def test_calls_are_those_that_outputs_need(own: str, steps: int) -> None:
    """Over 400 outputs of 8 tokens; their spread is below one call, so 0.2 is four errors."""
    pool = sample(own, strop.SamplerSpec(steps=steps), n=400)
    assert dry_run.calls(pool.spec) == pytest.approx(pool.nfe.mean(), abs=0.2)
    dense = pool.spec.generator.sampler.model_copy(update={"implementation": "dense"})
    generator = pool.spec.generator.model_copy(update={"sampler": dense})
    assert dry_run.calls(CellSpec(generator=generator, seed=0)) == steps


def test_sample_says_what_it_would_draw(own: str, tmp_path: Path, call: Called) -> None:
    out = tmp_path / "run"
    words = ("--steps", "1,8", "--temperature", "1,0.9", "-n", 3, "--dry-run")
    code, found, _ = call("sample", own, *words, "-o", out)
    assert code == 0
    assert not out.exists()
    assert (found["cells"], found["outputs"]) == (4, 12)
    each = {1: 1.0, 8: 8 * (1 - (7 / 8) ** 8)}
    assert found["calls"] == pytest.approx(6 * each[1] + 6 * each[8])
    rows = {row["steps"]: row for row in found["rows"]}
    assert {m: (row["cells"], row["outputs"]) for m, row in rows.items()} == {1: (2, 6), 8: (2, 6)}
    assert rows[8]["calls_each"] == pytest.approx(each[8])
    # One pace for one checkpoint: time goes with calls.
    assert rows[8]["seconds"] / rows[1]["seconds"] == pytest.approx(each[8])
    assert found["seconds"] == pytest.approx(sum(row["seconds"] for row in found["rows"]))
    assert 0 < found["seconds"] < 60
    assert "4 cells, 12 outputs, about 38 network calls" in found["answer"][0]


def test_a_place_where_nothing_could_be_drawn_is_told(own: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a file"):
        strop.sample(own, steps=1, n=1, dry_run=True, out=tmp_path / "file")
    other = tmp_path / "study"
    other.mkdir()
    Folder(other, "study", "markov").write({})
    with pytest.raises(UserError, match="study"):
        strop.sample(own, steps=1, n=1, dry_run=True, out=other)
    with pytest.raises(UserError, match="study"):
        strop.audit(TINY, steps=(1,), dry_run=True, out=other)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(UserError, match="mine"):
        strop.sample(own, steps=1, n=1, dry_run=True, out=tmp_path / "mine")


def test_an_audit_counts_its_grid_and_tells_of_the_rest(tmp_path: Path, call: Called) -> None:
    sizes = ("--steps", "2,4", "-n", "8,4", "--fresh-n", 2, "--length", 8, "--dry-run")
    code, found, _ = call("audit", TINY, *sizes, "-o", tmp_path / "run")
    assert code == 0
    assert not (tmp_path / "run").exists()
    # Three temperatures in two precisions, at 8 and at 4 outputs.
    assert (found["cells"], found["outputs"]) == (12, 6 * 8 + 6 * 4)
    assert any("at most 16 outputs" in note for note in found["notes"])


def test_a_search_counts_its_first_round(own: str, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    found = strop.tune(
        own, out=tmp_path / "run", steps=(2,), first=2, n=4, budget=12, guard=False,
        evaluator="embedded:tales-ar", dry_run=True,
    )  # fmt: skip
    assert not (tmp_path / "run").exists()
    assert 0 < found.facts["outputs"] <= 12
    assert any("at most 12 outputs" in note for note in found.notes)
    assert found.facts["most"] == 12 + 2 * 128
    each = found.facts["seconds"] / found.facts["outputs"]
    assert f"at most 268 outputs, about {duration(268 * each)}" in (found.sentence or "")


def test_who_reads_outputs_that_are_there_is_told_so(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 1)):
        strop.sample(TINY, steps=(1,), n=8, length=8, seed=seed, out=str(tmp_path / name))
    with pytest.raises(UserError, match="Nothing would be drawn"):
        strop.compare(tmp_path / "a", tmp_path / "b", out=tmp_path / "c", dry_run=True)
    assert not (tmp_path / "c").exists()


def test_every_study_that_draws_cells_takes_it() -> None:
    taking = {name for name, one in studies().items() if "dry_run" in one.values({})}
    assert taking == {
        *("audit", "cache", "collapse", "compare", "cost", "cross-model", "decoders"),
        *("didi-grids", "exact-output", "frontier", "groupeval", "less-is-more", "posterior"),
        *("power", "tasks", "tune", "tuned-against-tuned", "conditional"),
        *("certify", "implementations", "sharpened"),
    }


def test_cost_counts_both_implementations(own: str, tmp_path: Path) -> None:
    out = tmp_path / "cost"
    sizes = {"steps": (2, 4), "batch_size": 3, "batches": 2, "warmup": 1}
    found = run("cost", out=out, sources=(own,), dry_run=True, **sizes)
    assert not out.exists()
    # Two settings; 1 + 2 batches of 3 outputs.
    rows = {(row["implementation"], row["steps"]): row for row in found.table.rows}
    assert {key: (row["cells"], row["outputs"]) for key, row in rows.items()} == {
        (form, m): (2, 18) for form in ("dense", "fast") for m in (2, 4)
    }
    assert rows["dense", 4]["calls"] == 18 * 4
    assert rows["fast", 4]["calls"] == pytest.approx(18 * 4 * (1 - (3 / 4) ** 8))
    assert "implementation" in [one.name for one in found.table.columns]
    assert "8 cells, 72 outputs" in (found.sentence or "")


def test_what_is_measured_in_blocks_is_tried_and_not_kept(tmp_path: Path) -> None:
    out, sizes = tmp_path / "posterior", {"steps": (2, 8), "n": 3, "levels": 2, "length": 8}
    found = run("posterior", out=out, sources=(TINY,), profile_n=2, dry_run=True, **sizes)
    assert not out.exists()
    told = [(row["checkpoint"], row["what"], row["cells"]) for row in found.table.rows]
    words = ("M = 2: 3 sequences", "M = 8: 3 sequences", "2 levels: 2 sequences")
    assert told == [(TINY, one, 1) for one in words]
    assert found.facts["seconds"] == pytest.approx(sum(r["seconds"] for r in found.table.rows))
    assert 0 < found.facts["seconds"] < 60
    assert "3 cells in 3 blocks" in (found.sentence or "")


def test_the_time_of_blocks_is_that_of_all_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row takes half a second; two fit into three seconds after one, four do not."""
    clock, tried = [0.0], []

    class Slow:
        def __init__(self) -> None:
            self.facts = {"checkpoint": "x", "device": "cpu"}

        def work(self, cell: int, missing: list[int]) -> Iterator[None]:
            tried.append((cell, list(missing)))
            clock[0] += 0.5 * len(missing)
            yield None

    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    cell = Blocks(["id"], "some", [range(8), range(8, 11)], lambda parts: parts)
    assert dry_run.block_pace(Slow(), 4, cell, 3.0) == 0.5
    assert tried == [(4, [0]), (4, [0, 1])]
    tried.clear()
    assert dry_run.block_pace(Slow(), 4, cell, 99.0) == 0.5
    assert [len(rows) for _, rows in tried] == [1, 2, 4, 8]
    monkeypatch.setattr(dry_run, "SECONDS", 3.0)
    ask = find("posterior").ask(Path("x"), (TINY,))
    found = dry_run._in_blocks(ask, [PlannedBlocks([cell], Slow)])
    assert (found.facts["seconds"], found.facts["blocks"]) == (5.5, 2)


def test_draws_are_noted_and_not_made(own: str) -> None:
    model = strop.load_model(own, device="cpu")
    spec = strop.SamplerSpec(steps=2)
    with planning() as planned, pytest.raises(Elsewhere):
        sample_cells(model, [spec], n=3)
    [draw] = planned
    assert isinstance(draw, Planned)
    assert [one.n for one in draw.cells] == [3]
    assert len(sample_cells(model, [spec], n=1)[0]) == 1, "outside of it they are made"


def test_where_workers_load_the_weights_the_trial_loads_them_too(
    own: str, tmp_path: Path, call: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For several GPUs only a model's description is loaded at home: it cannot draw."""
    described = strop.load_model(own, device=WORKERS)
    assert described.device.type == "meta"
    monkeypatch.setattr("strop.denoisers.load_model", lambda *_, **__: described)
    code, found, _ = call("sample", own, "--steps", 4, "-n", 3, "--dry-run", "-o", tmp_path / "run")
    assert code == 0
    assert found["outputs"] == 3
    assert "on cpu" in found["answer"][0]
    assert found["seconds"] > 0
