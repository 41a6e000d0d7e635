"""HumanEval: from a response to a program, and from there to a verdict."""

from __future__ import annotations

import ast
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.errors import UserError
from strop.tasks import TASKS, check_task, find_box, grade
from strop.tasks.humaneval import _pieces, check, program, sanitize

TASK = TASKS["humaneval"]
ITEMS = {item.id: item for item in TASK.all_items()}
FIRST = ITEMS["HumanEval/0"]
sandboxed = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is missing")


def _program(response: str, number: int = 0) -> str:
    found = program(ITEMS[f"HumanEval/{number}"], response)
    assert found is not None
    return found


@pytest.mark.parametrize("fenced", [False, True])
def test_every_reference_becomes_a_program_that_has_the_function(fenced: bool) -> None:
    for item in ITEMS.values():
        whole = f"Sure:\n```python\n{item.question}{item.reference}\n```\nIt works."
        found = program(item, whole if fenced else item.reference)
        assert found is not None
        names = {node.name for node in ast.parse(found).body if isinstance(node, ast.FunctionDef)}
        assert item.case["entry_point"] in names, item.id


@pytest.mark.parametrize(
    ("number", "helper"),
    [(10, "is_palindrome"), (32, "poly"), (38, "encode_cyclic"), (50, "encode_shift")],
)
def test_what_the_prompt_defines_stays(number: int, helper: str) -> None:
    item = ITEMS[f"HumanEval/{number}"]
    alone = f"```python\ndef {item.case['entry_point']}(*args):\n    return args\n```"
    assert f"def {helper}(" in _program(alone, number)


def test_only_what_the_function_needs_is_kept() -> None:
    found = _program(
        "```python\nimport math\nLIMIT = 3\nUNUSED = 4\nprint('hello')\n"
        "def helper(x):\n    return x < LIMIT\n"
        "def other(x):\n    return x\n"
        "def has_close_elements(numbers, threshold):\n    return helper(threshold)\n```"
    )
    assert "import math" in found
    assert "LIMIT = 3" in found
    assert "def helper" in found
    assert all(word not in found for word in ("UNUSED", "hello", "other"))


def test_the_later_of_two_definitions_counts() -> None:
    twice = "".join(
        f"def has_close_elements(numbers, threshold):\n    return {n}\n" for n in (1, 2)
    )
    assert "return 2" in _program(f"```python\n{twice}```")
    assert "return 1" not in _program(f"```python\n{twice}```")


def test_text_around_the_code_is_left_out() -> None:
    body = FIRST.reference
    assert _program(body + "\nThis function compares all pairs, doesn't it?\n") == _program(body)
    talk = f"Here is the function, and it's short:\n\n{FIRST.question}{body}    # done\n"
    assert ast.dump(ast.parse(_program(talk))) == ast.dump(ast.parse(_program(body)))
    assert "done" not in _program(talk)


@pytest.mark.parametrize(
    "response", ["", "I do not know.", "    pass\n", "```\nfenced without a language\n```", "\0"]
)
def test_a_response_without_a_program(response: str) -> None:
    assert program(FIRST, response) is None


@given(st.text(), st.booleans())
def test_the_sanitiser_never_raises(text: str, after_prompt: bool) -> None:
    found = sanitize(FIRST.question + text if after_prompt else text, FIRST.question, "f")
    assert found is None or isinstance(found, str)


@pytest.mark.parametrize(
    "text", ["(" * 50_000, "-" * 50_000 + "1", "x = " + "[" * 90, "f(" * 3000, "\ud800", "1" * 9000]
)
def test_nor_on_what_parsers_dislike(text: str) -> None:
    body = f"def f():\n    return {text}"
    for whole in (text, body):
        assert sanitize(whole, "", "f") is None or whole is body


UNWRITABLE = {
    "no-break space": "    return f\"{'\u00a0'.join('ab')}\"\n",
    "zero-width space": "    return f\"{'\u200b'.join('ab')}\"\n",
    "delete": "    return f\"{'\u007f'.join('ab')}\"\n",
    "long number": "    return 0x" + "f" * 3600 + "\n",
}
"""Programs that Python reads and that cannot be written anew from their trees."""


@pytest.mark.parametrize("name", sorted(UNWRITABLE))
def test_programs_that_cannot_be_written_anew_are_programs(name: str) -> None:
    found = _program(UNWRITABLE[name])
    assert UNWRITABLE[name].strip() in found
    compile(found, "program.py", "exec")


def test_a_program_is_made_of_its_own_text() -> None:
    found = _program(
        "```python\nimport math; import re\n"
        "GRÖSSE = 'ä'; LIMIT = 0x10 ; UNUSED = 2  # three\n"
        "@staticmethod\n@(\n    len\n)\n"
        "def has_close_elements(\n    numbers, threshold\n):  # why\n"
        "    return '''a\n  b''', GRÖSSE, LIMIT\n"
        "print(1)\n```"
    )
    assert found == (
        "from typing import List\nimport math\nimport re\n"
        "GRÖSSE = 'ä'\nLIMIT = 0x10\n@staticmethod\n@(\n    len\n)\n"
        "def has_close_elements(\n    numbers, threshold\n):  # why\n"
        "    return '''a\n  b''', GRÖSSE, LIMIT"
    )


PIECES = (
    *("import re", "from re import *", "x = 'é'; y = x", "a = (1,\n  2)", "\f", "\r", "\n", "#"),
    *(
        "class C:\n  z = '''\n'''",
        "@C\ndef f(n):\n    return n  # ü",
        "def f(): return x; return 2",
    ),
    *("async def g():\n  return 1", ";", "\\\n", "\u2028", "\x0b", "\t", "def h():\n\treturn f"),
)


@given(st.lists(st.sampled_from(PIECES), max_size=8), st.sampled_from(["", "\n", ";", "\r\n"]))
def test_the_text_of_each_statement_read_again_is_that_statement(
    pieces: list[str], between: str
) -> None:
    for piece in _pieces(between.join(pieces)) or ():
        (again,) = ast.parse(piece.text).body
        assert ast.dump(again) == ast.dump(piece.node)


def test_programs_do_not_run_without_a_sandbox() -> None:
    with pytest.raises(UserError, match="sandbox"):
        check(FIRST, "def has_close_elements(): return 1", None)
    with pytest.raises(UserError, match="sandbox"):
        grade(TASK, FIRST, FIRST.reference, None)


@sandboxed
def test_a_few_problems_from_end_to_end() -> None:
    report = check_task(TASK, find_box(), limit=6)
    assert report.line == "reference 6 of 6 pass; wrong 0 of 18 pass"
    assert report.sandbox == "bubblewrap"


@sandboxed
@pytest.mark.parametrize("number", [32, 33, 38, 50, 53, 70, 120, 129, 151])
def test_problems_whose_tests_are_unlike_the_others(number: int) -> None:
    """Helpers of the prompt, the function by its name, drawn cases, arguments that are changed."""
    item = ITEMS[f"HumanEval/{number}"]
    assert grade(TASK, item, item.reference, find_box()).passed("program")


@sandboxed
def test_a_helper_that_is_made_to_agree_does_not_help() -> None:
    """The tests' own `poly` is the prompt's, whatever the program makes of it."""
    forged = (
        "```python\ndef poly(xs, x):\n    return 0\n\ndef find_zero(xs):\n    return 12345.6\n```"
    )
    verdict = grade(TASK, ITEMS["HumanEval/32"], forged, find_box()).verdicts["program"]
    assert verdict.outcome == "wrong"


@sandboxed
def test_a_program_that_cannot_be_written_anew_is_graded() -> None:
    first = "    threshold = f\"{'\u00a0'.join('ab')}\" and threshold\n"
    graded = grade(TASK, FIRST, first + FIRST.reference, find_box())
    assert graded.verdicts["program"].outcome == "passed"


@sandboxed
def test_an_iterator_passes_where_the_tests_allow_for_it() -> None:
    lazy = ITEMS["HumanEval/37"].reference.replace("return ans", "return iter(ans)")
    assert "iter(ans)" in lazy
    assert grade(TASK, ITEMS["HumanEval/37"], lazy, find_box()).passed("program")


@sandboxed
@pytest.mark.slow
def test_all_references_pass_and_nothing_else() -> None:
    report = check_task(TASK, find_box())
    assert report.line == "reference 164 of 164 pass; wrong 0 of 492 pass", report.surprises
