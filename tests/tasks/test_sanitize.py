"""From a text to a program by hand: which lines are read and which definitions stay, in order."""

from __future__ import annotations

import hashlib

import pytest

from strop.tasks import TASKS, Item, Verdict
from strop.tasks import humaneval as module
from strop.tasks.humaneval import BODIES, check, program, sanitize, wrong
from strop.tasks.sandbox import Box

F = "def f(x):\n    return x"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (F, F),
        (f"{F}\n", F),
        (f"Well,\n{F}\nThat is it!", F),
        ("def f(x):\n\treturn x", F),  # a tab is four spaces
        ("def f(x):\n    pass", None),  # returns nothing
        ("def g(x):\n    return x", None),
        ("f = lambda x: x", "f = lambda x: x"),
        ("class f:\n    pass", "class f:\n    pass"),
        ("async def f():\n    return 1", None),
        ("f = g = abs", None),
        ("(f) = abs", "(f) = abs"),
        ("f, g = abs, all", None),
        (f"a.f = 1\n{F}", F),
        (f"print(f)\n{F}", F),
        (f"import b\nfrom a import c\n{F}", f"import b\nfrom a import c\n{F}"),
        (f"import b\n{F}\nimport b", f"import b\n{F}"),
        (f"import b\nfrom __future__ import c\n{F}", f"from __future__ import c\nimport b\n{F}"),
        (f"from . import b\n{F}", f"from . import b\n{F}"),
        # The later of two counts, at its own place.
        ("a = 1\nf = 2\na = f", "f = 2"),
        ("f = 1\na = 2\nf = a", "a = 2\nf = a"),
        # What is reached through others stays, and nothing else.
        ("a = 1\nb = a\nc = b\nd = 4\nf = c", "a = 1\nb = a\nc = b\nf = c"),
        ("a = f\nf = lambda: a", "a = f\nf = lambda: a"),
        ("x = 1; f = x ; y = 2", "x = 1\nf = x"),
        ("é = 'ü'; f = é, 'ö'  # ß", "é = 'ü'\nf = é, 'ö'"),
        ("@a\n@b\nclass f:\n    x = 1  # one\n# two", "@a\n@b\nclass f:\n    x = 1"),
        ("f = (1,\n  2)\n", "f = (1,\n  2)"),
        ("f = 1\r\ng = 2", "f = 1"),
        ("f = 1\rg = 2", "f = 1"),
        ("f = '\\d'", "f = '\\d'"),
        ("", None),
        ("f = 1\0", None),
    ],
)
def test_the_program_of_a_text(text: str, found: str | None) -> None:
    assert sanitize(text, "", "f") == found


def test_of_two_runs_of_lines_the_longer_one_is_read() -> None:
    short, long = "f = 1\na = 2", "f = 3\nb = 4\nc = 5"
    assert sanitize(f"{short}\nno python\n{long}", "", "f") == "f = 3"
    assert sanitize(f"{long}\nno python\n{short}", "", "f") == "f = 3"
    # Blank lines do not count, and of equals the first is read.
    assert sanitize(f"{short}\n\n\n\nno python\n{long}", "", "f") == "f = 3"
    assert sanitize("f = 1\nno python\nf = 2", "", "f") == "f = 1"


def test_a_hundred_lines_are_read() -> None:
    assert sanitize("\n" * 99 + "f = 1", "", "f") == "f = 1"
    assert sanitize("\n" * 100 + "f = 1", "", "f") is None


def test_what_the_prompt_has_stays_unless_it_is_defined_anew() -> None:
    prompt = "import a\ndef help(x):\n    return x\n\ndef f(x):\n    '''Words.'''\n"
    whole = f"{prompt}    return 1\n"
    helped = "import a\ndef help(x):\n    return x"
    assert sanitize(whole, prompt, "f") == f"{helped}\ndef f(x):\n    '''Words.'''\n    return 1"
    # Nothing of the text needs it, and it stays; what the text says of it counts.
    assert sanitize("f = 1", "import b\na = 0", "f") == "import b\na = 0\nf = 1"
    assert sanitize("import c\na = 2\nf = a", "import b\na = 0", "f") == (
        "import b\nimport c\na = 2\nf = a"
    )
    assert sanitize("f = 1", "no python", "f") == "f = 1"


ITEM = Item("HumanEval/7", "def f(x):\n", "    return x\n", case={"entry_point": "f"})


@pytest.mark.parametrize(
    ("response", "found"),
    [
        ("    return x\n", "def f(x):\n\n    return x"),
        ("    return x\n```\n    return 2", "def f(x):\n\n    return x"),
        ("```python\ndef f(x):\n    return x\n```\nf = 2", F),
        ("Words ```python\nf = 1``` ```python\nf = 2```", "f = 1"),
        ("```\nf = 1\n```", None),
        ("```py\nf = 1", None),
    ],
)
def test_the_program_of_a_response(response: str, found: str | None) -> None:
    assert program(ITEM, response) == found


def test_wrong_answers_take_turns() -> None:
    for number in (0, 4, 5, 163):
        item = Item(f"HumanEval/{number}", "", "")
        other = Item("HumanEval/1", "", "other")
        assert wrong(item, other) == {
            "swapped": "other",
            "emptied": "    return None\n",
            "forged": BODIES[number % 5],
        }


def test_the_task_is_the_one_that_kept_results_are_of() -> None:
    """Another print would leave kept verdicts unread; weaker forgeries would prove less."""
    task = TASKS["humaneval"]
    assert task.fingerprint == "86caf36994b80891"
    assert hashlib.sha256("\0".join(BODIES).encode()).hexdigest()[:16] == "f0a272a8fa488ba5"
    assert (task.name, task.source) == ("humaneval", "openai/human-eval, MIT")
    assert task.summary.startswith("164 Python functions")
    assert (task.sandboxed, [one.name for one in task.filters]) == (True, ["program"])
    first = task.all_items()[0]
    assert (first.id, sorted(first.case)) == ("HumanEval/0", ["entry_point", "prompt", "test"])
    assert first.case["prompt"] == first.question


def test_a_program_is_tried_in_the_box(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "trial", lambda *given: Verdict("wrong", repr(given)))
    box = Box(None)
    assert check(ITEM, "f = 1", box).detail == repr((box, "f = 1", {"entry_point": "f"}))


def test_what_is_too_deep_is_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (RecursionError, MemoryError):

        def raising(*given: object, error: type[Exception] = error) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(module, "_definitions", raising)
            assert sanitize(F, "", "f") is None
