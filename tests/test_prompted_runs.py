"""Prompts through the library, the run directory and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import strop
from strop import SamplerSpec, TabularDenoiser
from strop.assets import CHECKPOINT, EVALUATOR
from strop.cli.main import run as command
from strop.errors import UserError
from strop.prompts import Canvas, Canvases, PromptSet
from strop.store import Run

SPEC = SamplerSpec(steps=8)
ROWS = [{"prompt": "Once upon a time", "id": "once"}, {"prompt": "The dog"}]
GAPS = ["The king was[[3]]. In the end he[[5]]", "The dog[[4]] home."]


@pytest.fixture(scope="module")
def tales() -> Any:
    return strop.load_model(CHECKPOINT, device="cpu")


def test_a_cell_grows_by_per_prompt_and_rows_name_their_prompts(tales: Any, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = strop.draw.sample(tales, SPEC, prompts=ROWS, length=6, out=out)
    grown = strop.draw.sample(tales, SPEC, prompts=ROWS, length=6, per_prompt=3, out=out)
    assert first.prompts == ["once", "1"]
    assert grown.prompts == ["once", "1"] * 3
    assert grown.ids[:2].tolist() == first.ids.tolist()
    assert grown.lengths.tolist() == [6] * 6
    assert grown.ids.shape == (6, 6)
    memory = strop.draw.sample(tales, SPEC, prompts=ROWS, length=6, per_prompt=3, batch_size=1)
    assert memory.ids.tolist() == grown.ids.tolist()
    assert (memory.texts, memory.prompts) == (grown.texts, grown.prompts)
    assert memory.texts is not None
    assert memory.texts[0] == tales.codec.decode(memory.ids[0])
    assert not any("Once upon" in text for text in memory.texts), "the response alone"


def test_the_run_keeps_the_prompts_and_their_first_names(tales: Any, tmp_path: Path) -> None:
    out = tmp_path / "run"
    rows = [{**ROWS[0], "reference": "there was"}, ROWS[1]]
    strop.draw.sample(tales, SPEC, prompts=rows, length=6, out=out)
    again = [{"prompt": row["prompt"], "id": f"other {i}"} for i, row in enumerate(rows)]
    pool = strop.draw.sample(tales, SPEC, prompts=again, length=6, per_prompt=2, out=out)
    assert pool.prompts == ["once", "1", "once", "1"]
    [file] = (out / "prompts").iterdir()
    [cell] = Run.open(out).cells()
    kept = cell.prompts()
    assert kept is not None
    assert file.stem == kept.canvases.spec.sha256[:16]
    assert kept.canvases.prompts[0].reference == "there was"
    assert kept.pieces_of(2) == ["Once upon a time", 6]
    file.write_text(file.read_text().replace("[", "[[", 1))
    with pytest.raises(UserError, match="damaged"):
        cell.prompts()
    file.unlink()
    strop.draw.sample(tales, SPEC, prompts=rows, length=6, out=out)
    assert cell.prompts() is not None


def test_force_removes_kept_prompts(tales: Any, tmp_path: Path) -> None:
    from strop.draw import sample_cells

    out = tmp_path / "run"
    strop.draw.sample(tales, SPEC, prompts=ROWS, length=6, out=out)
    sample_cells(tales, [SPEC], n=1, length=4, out=out, force=True)
    assert not (out / "prompts").exists()


def test_gaps_of_different_sizes_are_one_pool(tales: Any, tmp_path: Path) -> None:
    pool = strop.draw.sample(tales, SPEC, prompts=GAPS, per_prompt=2, out=tmp_path / "run")
    assert pool.ids.shape == (4, 8)
    assert pool.lengths.tolist() == [8, 4, 8, 4]
    assert (pool.ids[1, 4:] == tales.mask_id).all()
    assert (pool.leftover_masks == 0).all()
    memory = strop.draw.sample(tales, SPEC, prompts=GAPS, per_prompt=2)
    assert memory.ids.tolist() == pool.ids.tolist()
    assert memory.lengths.tolist() == pool.lengths.tolist()
    [cell] = Run.open(tmp_path / "run").cells()
    row = cell.table().to_pylist()[0]
    assert "".join(row["pieces"]) == row["text"]
    assert len(row["pieces"]) == 2


def test_cells_without_prompts_keep_their_columns(tmp_path: Path) -> None:
    model = TabularDenoiser(np.full((3, 3), 1 / 9))
    strop.draw.sample(model, SPEC, n=3, out=tmp_path)
    [cell] = Run.open(tmp_path).cells()
    names = pq.read_schema(cell.path / "outputs.parquet").names
    assert names[-3:] == ["changed", "chance", "earlier"]
    assert not (tmp_path / "prompts").exists()
    assert cell.prompts() is None
    assert "prompts" not in (tmp_path / "strop.json").read_text()


def test_other_prompts_are_another_cell(tales: Any, tmp_path: Path) -> None:
    strop.draw.sample(tales, SPEC, prompts=ROWS, length=6, out=tmp_path)
    with pytest.raises(UserError, match="another spec"):
        strop.draw.sample(tales, SPEC, prompts=ROWS[:1], length=6, out=tmp_path)


@pytest.mark.parametrize("implementation", ["dense", "fast"])
def test_an_interrupted_run_is_continued(tales: Any, tmp_path: Path, implementation: Any) -> None:
    spec = SPEC.model_copy(update={"implementation": implementation})
    options: dict[str, Any] = {"prompts": GAPS, "per_prompt": 3, "batch_size": 4}
    whole = strop.draw.sample(tales, spec, **options)

    class Enough(Exception): ...

    def stop(output: int, *_: Any) -> None:
        if output >= 4:
            raise Enough

    with pytest.raises(Enough):
        strop.draw.sample(tales, spec, **options, out=tmp_path, on_step=stop)
    pool = strop.draw.sample(tales, spec, **options, out=tmp_path)
    assert pool.ids.tolist() == whole.ids.tolist()


def test_canvases_and_sets_are_taken_as_they_are(tales: Any) -> None:
    texts = [str(row["prompt"]) for row in ROWS]
    from_texts = strop.draw.sample(tales, SPEC, prompts=texts, length=5)
    from_set = strop.draw.sample(tales, SPEC, prompts=PromptSet.of(ROWS), length=5)
    assert from_set.ids.tolist() == from_texts.ids.tolist()
    assert from_set.spec == from_texts.spec
    canvases = Canvases((Canvas("a", (5, 6, None)),))
    assert strop.draw.sample(tales, SPEC, prompts=canvases).prompts == ["a"]
    with pytest.raises(UserError, match="canvases already"):
        strop.draw.sample(tales, SPEC, prompts=canvases, length=7)
    with pytest.raises(UserError, match="do not fit the model"):
        strop.draw.sample(tales, SPEC, prompts=Canvases((Canvas("a", (10**6, None)),)))


def test_a_causal_model_answers_prefixes_only(tmp_path: Path) -> None:
    model = strop.load_model(EVALUATOR, device="cpu")
    pool = strop.draw.sample(model, prompts=ROWS, length=5, out=tmp_path)
    assert pool.ids.shape == (2, 5)
    assert pool.nfe.tolist() == [5, 5]
    with pytest.raises(UserError, match="fills no gaps"):
        strop.draw.sample(model, prompts=GAPS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"per_prompt": 2}, "no prompts"),
        ({"chat": True}, "no prompts"),
        ({"prompts": ROWS, "length": 4, "per_prompt": 2, "n": 3}, "two numbers"),
        ({"prompts": ROWS, "length": 4, "per_prompt": 0}, "per_prompt"),
        ({"prompts": ROWS}, "nothing to generate"),
        ({"prompts": ROWS, "length": 4, "chat": True}, "no chat template"),
        ({"prompts": ROWS, "length": 10**4}, "do not fit"),
    ],
)
def test_what_is_refused(tales: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        strop.draw.sample(tales, SPEC, **options)


def strop_command(*argv: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = command(list(argv))
    found = capsys.readouterr()
    return code, found.out, found.err


def test_the_command_line_fills_and_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "p.jsonl", str(tmp_path / "run")
    file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in GAPS))
    flags = ["--prompts", str(file), "--steps", "4", "-o", out]
    code, _, _ = strop_command("sample", CHECKPOINT, *flags, capsys=capsys)
    assert code == 0
    code, shown, _ = strop_command("show", out, capsys=capsys)
    assert code == 0
    assert "The king was[[" in shown
    assert "]]. In the end he[[" in shown
    code, text, _ = strop_command("show", out, "--output", "1", "--json", capsys=capsys)
    [row] = json.loads(text)["outputs"]
    assert (row["prompt"], len(row["ids"]), row["tokens"]) == ("1", 4, 4)
    code, text, _ = strop_command("show", out, "--output", "1", "--unmask", capsys=capsys)
    assert code == 0
    code, _, words = strop_command("sample", *flags, "--per-prompt", "2", "-n", "3", capsys=capsys)
    assert code == 1
    assert "--per-prompt" in words
    code, _, words = strop_command("sample", "--chat", "-o", str(tmp_path / "x"), capsys=capsys)
    assert code == 1
    assert "--chat" in words
