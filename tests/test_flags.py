"""Messages name what the user typed: flags at the command line, fields in the library."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import make_calls
import strop
from strop.cli.main import build, run
from strop.cli.output import Flags, _all_fields
from strop.errors import StropError, UserError, whole_number

FLAG = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
COMMAND = re.compile(r"^(strop|pip|hf|git|python) |&& pip ")
SOURCE = Path(strop.__file__).parent
ELSEWHERE = ("cli",)
"""Who may speak of flags."""


def told(error: StropError, *argv: str) -> StropError:
    return Flags(build(), argv).error(error)


def library_error(**fields: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        strop.SamplerSpec(**fields)
    return caught.value


def test_a_field_is_named_as_the_flag_that_was_typed() -> None:
    error = library_error(steps=0)
    assert (error.what, error.where) == ("SamplerSpec.steps is out of range.", "SamplerSpec.steps")
    shown = told(error, "sample", "x", "--steps", "0", "-o", "y")
    assert (shown.what, shown.where) == ("--steps is out of range.", "--steps")
    assert type(shown) is UserError
    assert error.where == "SamplerSpec.steps"  # the library's own stays as it was


@pytest.mark.parametrize(
    ("argv", "flag"), [(["sample", "-n", "0"], "-n"), (["sample", "--n", "0"], "--n")]
)
def test_a_flag_with_two_spellings_is_shown_as_typed(argv: list[str], flag: str) -> None:
    with pytest.raises(UserError) as caught:
        whole_number("n", 0, 1, 2**32)
    assert told(caught.value, *argv).where == flag


def test_an_unknown_sampler_and_its_own_settings() -> None:
    assert told(library_error(name="ancestal"), "sample").where == "--sampler"
    error = library_error(name="remdm-cap", eta=7)
    assert told(error, "sample").where == "--settings eta"


def test_a_field_without_a_flag_keeps_its_name() -> None:
    shown = told(library_error(precision="float16"), "study", "less-is-more")
    assert shown.where == "precision"


def test_no_advice_needs_a_flag_that_the_verb_lacks() -> None:
    error = UserError("No.", fix="choose another `out`, or start this one anew with `force`")
    assert told(error, "sample").fix == "choose another -o, or start this one anew with --force"
    assert told(error, "train").fix == "choose another -o"
    assert told(error, "show").fix is None
    assert told(UserError("No.", fix="use `weights=raw`"), "sample").fix == "use --weights raw"
    # Words in backquotes that are no argument of any verb are not touched.
    kept = UserError("No.", fix="give rows with `ids`, or see `strop doctor`")
    assert told(kept, "show").fix == kept.fix


def test_a_file_called_like_a_flag_is_no_flag() -> None:
    assert told(UserError("No.", where=Path("out")), "sample").where == "out"
    assert told(UserError("No.", got="`out`"), "sample").got == "`out`"


def test_a_training_configuration_is_named_by_its_keys() -> None:
    spec = {"name": "x", "batch": 0}
    error = UserError("TrainSpec.batch is out of range.", where="TrainSpec.batch", got=spec)
    assert told(error, "train", "c.yaml", "-o", "r").where == "batch"
    assert told(error, "train", "c.yaml", "--set", "batch=0").where == "--set batch"
    deep = UserError("No.", where="DataSpec.length")
    assert told(deep, "train", "c.yaml").where == "data.length"
    assert told(UserError("No end.", where="TrainSpec"), "train").where == "CONFIG"


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_the_command_line_prints_flags(
    as_json: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sample", "embedded:tales", "--top-p", "3", "-o", "nowhere", *as_json]) == 1
    out, err = capsys.readouterr()
    assert "--top-p is out of range" in err
    assert "SamplerSpec" not in out + err
    assert ("--top-p is out of range" in out) == bool(as_json)


RAISED = {"UserError", "Incomplete", "CheckFailed", "unknown_name", "warn"}


def texts(tree: ast.AST) -> Iterator[ast.Constant]:
    """Every piece of text in a message: given to an error, or kept in `fix` until it is."""
    for node in ast.walk(tree):
        called = isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in RAISED
        kept = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("fix", "what, fix")
        if called or kept:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    yield inner


def test_the_library_knows_no_flags() -> None:
    """`strop.cli.output` can translate fields; a flag in the library may be one no verb has."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        if name.startswith(ELSEWHERE):
            continue
        for text in texts(ast.parse(path.read_text())):
            long = [flag for flag in FLAG.findall(text.value) if flag.startswith("--")]
            short = "-o/--out" in text.value or text.value in ("-n", "-o")
            if (long or short) and not COMMAND.search(text.value):
                found.append(f"{name}:{text.lineno}: {text.value}")
    assert found == []


def test_every_parameter_of_every_function_is_a_field() -> None:
    """Advice that needs a flag which the verb lacks is told by this list."""
    named = {
        one.name for verb in make_calls.verbs().values() for one in verb.takes if not one.argument
    }
    assert _all_fields() == named
