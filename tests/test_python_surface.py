"""What Python users see first: help(), signatures, reprs, and outputs one by one."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import strop
from strop.draw import sample
from strop.pool import SHOWN, Output, Pool
from strop.table import Column, Table
from tiny_models import environment, write_checkpoint

BARE = """
import sys
for name in ("torch", "transformers", "tokenizers", "safetensors"):
    sys.modules[name] = None
import strop, pydoc
from strop.errors import UserError
text = pydoc.plain(pydoc.render_doc(strop))
assert "audit(" in text and "class Pool" in text, text[:300]
listed = dir(strop)
for name in strop.__all__:
    try:
        getattr(strop, name)
        assert name in listed, f"{name} can be had and is not listed"
    except UserError as error:
        assert name not in listed, f"{name} is listed and cannot be had"
        assert "strop[models]" in error.fix, error.fix
assert not hasattr(strop, "load_model")
assert not hasattr(strop, "draw")
try:
    from strop import load_model
except UserError as error:
    assert "strop[models]" in error.fix
else:
    raise SystemExit("load_model needs torch")
"""


def test_help_in_the_base_install() -> None:
    end = subprocess.run(
        [sys.executable, "-c", BARE], capture_output=True, text=True, env=environment()
    )
    assert end.returncode == 0, end.stderr


def test_dir_lists_every_public_name_where_all_is_installed() -> None:
    assert dir(strop) == sorted(strop.__all__)


@pytest.mark.parametrize("function", [strop.sample, sample, strop.audit, strop.train])
def test_signatures_hold_no_address(function: object) -> None:
    assert "object at 0x" not in str(inspect.signature(function))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture(scope="module")
def pool(checkpoint: Path) -> Pool:
    return sample(checkpoint, strop.SamplerSpec(steps=8, temperature=0.9), n=4)


def test_a_pool_is_a_sequence_of_outputs(pool: Pool) -> None:
    outputs = list(pool)
    assert [one.index for one in outputs] == [0, 1, 2, 3]
    for i, one in enumerate(outputs):
        assert isinstance(one, Output)
        assert np.array_equal(one.ids, pool.ids[i])
        assert (one.nfe, one.leftover_masks) == (pool.nfe[i], pool.leftover_masks[i])
        assert one.seconds == pool.seconds[i]
        assert pool.texts is not None
        assert one.text == pool.texts[i]
        assert np.array_equal(one.changed, pool.changed[i])
    assert pool[-1].index == 3
    assert [one.index for one in pool[1:3]] == [1, 2]
    with pytest.raises(IndexError):
        pool[4]


def test_outputs_of_different_lengths_end_where_they_end(checkpoint: Path) -> None:
    prompts = [{"ids": [1, 2, None, None], "id": "a"}, {"ids": [1, *[None] * 4], "id": "b"}]
    answers = sample(checkpoint, strop.SamplerSpec(steps=2), prompts=prompts)
    assert [(one.prompt, len(one.ids)) for one in answers] == [("a", 2), ("b", 4)]


def test_reprs_are_one_line(pool: Pool, checkpoint: Path, tmp_path: Path) -> None:
    calls = pool.nfe.mean()
    assert repr(pool) == f"Pool(4 outputs, M=8 tau=0.9 float64, {calls:.1f} calls each)"
    assert repr(sample(checkpoint, n=1)).startswith("Pool(1 output, ")
    model = strop.load_model(checkpoint, device="cpu")
    assert repr(model) == f"MDLM({checkpoint}, 12 tokens, length 8, float32 on cpu)"
    strop.sample(str(checkpoint), steps=(2, 4), n=1, out=str(tmp_path / "run"))
    run = strop.Run.open(tmp_path / "run")
    assert repr(run) == f"Run('{tmp_path / 'run'}', 2 cells)"
    cell = run.cells()[1]
    assert repr(cell) == f"Cell({cell.id}, M=4 tau=1 float64, seed 0)"
    (tmp_path / "run" / "strop.json").write_text("{")
    assert repr(run).endswith(", damaged)")


def test_the_exact_denoiser_has_one_too() -> None:
    exact = strop.TabularDenoiser(np.full((2, 2), 0.25))
    assert repr(exact) == "TabularDenoiser(tabular, 3 tokens, length 2, float64 on cpu)"


def test_notebooks_show_tables(pool: Pool, checkpoint: Path) -> None:
    shown = pool._repr_html_()
    assert shown.count("<tr>") == 1 + len(pool)
    assert repr(pool) in shown
    assert "[bold]" not in shown or "<bold>" not in shown
    many = sample(checkpoint, strop.SamplerSpec(steps=1), n=SHOWN + 1)._repr_html_()
    assert many.count("<tr>") == 1 + SHOWN
    table = Table("A & B", (Column("x"),), [{"x": "<b>"}])
    assert table._repr_html_() == (
        "<table><caption>A &amp; B</caption><thead><tr><th>x</th></tr></thead>"
        "<tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>"
    )
    assert strop.sample(str(checkpoint), steps=(1,), n=1)._repr_html_().count("<table>") == 1


def test_the_rooms_with_functions_need_no_import_of_their_own() -> None:
    lines = (
        "import sys, strop",
        "assert callable(strop.groupeval.run) and callable(strop.language.Language.load)",
        "assert strop.theory.__name__ == 'strop.theory'",
        "assert 'torch' not in sys.modules",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)
