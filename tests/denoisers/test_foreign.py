"""Code of a checkpoint never runs: one function loads what transformers loads, and asks nobody."""

from __future__ import annotations

import ast
import io
import json
import shutil
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import packing
import strop
from strop.assets import MODELS
from strop.checkpoints import foreign
from strop.checkpoints.foreign import empty_foreign, load_foreign, quiet
from strop.cli.main import run
from strop.errors import UserError
from strop.measure import evaluator
from strop.measure.evaluator import load_evaluator

SOURCE = Path(strop.__file__).parent
METHODS = ("from_pretrained", "from_config", "pipeline")
"""Of transformers: each of them may import what a checkpoint brings."""

EVIL = """
from pathlib import Path
Path({trace!r}).write_text("ran")
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
class EvilConfig(LlamaConfig):
    model_type = "evil"
class EvilModel(LlamaForCausalLM):
    config_class = EvilConfig
class EvilTokenizer(PreTrainedTokenizerFast):
    pass
"""


def _calls(text: str) -> list[int]:
    """Lines that reach for a way to load a checkpoint, by whatever name."""
    lines = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            mixed = owner.startswith("Auto") and node.attr.startswith("from_")
            lines += [node.lineno] * (mixed or node.attr in METHODS)
        elif isinstance(node, ast.Constant):  # getattr(found, "from_pretrained")
            lines += [node.lineno] * (node.value in METHODS)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("transformers"):
            lines += [node.lineno for one in node.names if one.name in METHODS]
    return lines


def test_nothing_loads_but_the_one_function() -> None:
    found = {
        str(one.relative_to(SOURCE)): len(_calls(one.read_text()))
        for one in sorted(SOURCE.rglob("*.py"))
    }
    assert {name: count for name, count in found.items() if count} == {"checkpoints/foreign.py": 2}


@pytest.mark.parametrize(
    "text",
    [
        "from transformers import AutoModel\nAutoModel.from_pretrained('x')",
        "import transformers as t\nload = t.LlamaForCausalLM.from_pretrained",
        "getattr(found, 'from_pretrained')('x')",
        "AutoModel.from_config(c)",
        "AutoImage.from_other(c)",
        "from transformers import pipeline",
        "transformers.pipeline('x')",
    ],
)
def test_the_search_sees_every_way_to_write_it(text: str) -> None:
    assert _calls(text)
    assert not _calls("'''Uses `from_pretrained`.'''\nSpec.from_dict({})")


@pytest.fixture
def willing(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Somebody at the terminal who says yes to every question."""
    answers = io.StringIO("y\n" * 100)
    monkeypatch.setattr(sys, "stdin", answers)
    return answers


def _evil(folder: Path, *, known: bool = False, tokenizer: bool = False) -> Path:
    """A checkpoint that brings code; a file `trace` beside it appears where any of it ran."""
    place = folder / "evil"
    shutil.copytree(MODELS / "tales-ar", place)
    (place / "evil.py").write_text(EVIL.format(trace=str(folder / "trace")))
    name = "tokenizer_config.json" if tokenizer else "config.json"
    config = json.loads((place / name).read_text())
    if tokenizer:
        config["auto_map"] = {"AutoTokenizer": [None, "evil.EvilTokenizer"]}
        config["tokenizer_class"] = "PreTrainedTokenizerFast" if known else "EvilTokenizer"
    else:
        models = ("AutoModel", "AutoModelForCausalLM")
        config["auto_map"] = {
            "AutoConfig": "evil.EvilConfig",
            **dict.fromkeys(models, "evil.EvilModel"),
        }
        config["model_type"] = "llama" if known else "evil"
    (place / name).write_text(json.dumps(config))
    return place


def _embed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "_folder", lambda: place)
    evaluator._load_embedder.__wrapped__("cpu")


WAYS: dict[str, Callable[[Path, pytest.MonkeyPatch], Any]] = {
    "evaluator": lambda place, _: load_evaluator(place),
    "model": lambda place, _: strop.load_model(place),
    "embeddings": _embed,
    "packing": lambda place, _: packing._module(place),
}


@pytest.mark.parametrize("way", sorted(WAYS))
def test_code_of_a_checkpoint_never_runs(
    way: str,
    willing: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    place = _evil(tmp_path)
    with pytest.raises(UserError) as told:
        WAYS[way](place, monkeypatch)
    assert not (tmp_path / "trace").exists()
    assert told.value.what.startswith("This checkpoint needs code of its own")
    assert told.value.where == str(place)
    assert "config.json: auto_map names evil.EvilConfig" in (told.value.got or "")
    assert "choose another checkpoint" in (told.value.fix or "")
    assert (sys.stdin, willing.tell()) == (willing, 0)  # nobody was asked
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("tokenizer", [False, True])
def test_what_transformers_knows_is_read_by_its_own_classes(
    tokenizer: bool, willing: io.StringIO, tmp_path: Path
) -> None:
    found = load_evaluator(_evil(tmp_path, known=True, tokenizer=tokenizer))
    assert type(found.network).__module__ == "transformers.models.llama.modeling_llama"
    assert not (tmp_path / "trace").exists()
    assert willing.tell() == 0


def test_nor_does_code_of_a_tokenizer(willing: io.StringIO, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="code of its own") as told:
        load_evaluator(_evil(tmp_path, tokenizer=True))
    assert "tokenizer_config.json: auto_map names" in (told.value.got or "")
    assert not (tmp_path / "trace").exists()
    assert willing.tell() == 0


def test_the_command_refuses_with_one_document(
    willing: io.StringIO, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = str(tmp_path / "run")
    shape = ["--steps", "2", "--length", "8", "-n", "2"]
    assert run(["sample", "embedded:tales-tiny", *shape, "-o", out, "--json"]) == 0
    capsys.readouterr()
    place = _evil(tmp_path)
    assert run(["score", out, "--evaluator", str(place), "--json"]) == 1
    told = capsys.readouterr()
    assert "code of its own" in json.loads(told.out)["error"]["what"]
    assert "Do you wish to run" not in told.out + told.err
    assert not (tmp_path / "trace").exists()


def test_other_failures_keep_their_own_words(tmp_path: Path) -> None:
    """A checkpoint that could bring code and is damaged elsewhere is told as damaged."""
    place = _evil(tmp_path, known=True)
    (place / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="The evaluator cannot be loaded"):
        load_evaluator(place)


def test_what_a_caller_says_does_not_open_the_door(willing: io.StringIO, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="code of its own"):
        load_foreign("AutoConfig", _evil(tmp_path), trust_remote_code=True)
    assert not (tmp_path / "trace").exists()


def test_the_library_is_told_to_run_nothing_and_to_fetch_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Told:
        @staticmethod
        def from_pretrained(place: str, **options: Any) -> tuple[str, dict[str, Any]]:
            return place, options

        @staticmethod
        def from_config(_: object, **options: Any) -> dict[str, Any]:
            return options

    monkeypatch.setattr("transformers.AutoModel", Told)  # that which is imported now
    open_door = {"trust_remote_code": True, "local_files_only": False}
    closed = {"trust_remote_code": False, "local_files_only": True}
    told = load_foreign("AutoModel", tmp_path, dtype="auto", **open_door)
    assert told == (str(tmp_path), {"dtype": "auto", **closed})
    assert empty_foreign("AutoModel", None) == {"trust_remote_code": False}


@pytest.mark.parametrize("broken", ["without_questions", "FIXED"])
def test_each_of_the_two_locks_holds_alone(
    broken: str, willing: io.StringIO, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The library is told no, and where it asks all the same it hears nothing."""
    gone = {"without_questions": nullcontext, "FIXED": {"local_files_only": True}}
    monkeypatch.setattr(foreign, broken, gone[broken])
    with pytest.raises(UserError, match="code of its own"):
        load_foreign("AutoConfig", _evil(tmp_path))
    assert not (tmp_path / "trace").exists()
    assert willing.tell() == 0


def test_what_a_library_prints_or_asks_stays_off_the_answer(
    willing: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    with quiet():
        print("loading ...")
        with pytest.raises(EOFError):
            input("Really? ")
    told = capsys.readouterr()
    assert told.out == ""
    assert "loading ..." in told.err
    assert (sys.stdin, willing.tell()) == (willing, 0)
