"""What a program prints while it is judged: heard, cut and kept as data."""

from __future__ import annotations

import shutil

import pytest

from strop.tasks import find_box
from strop.tasks.sandbox import PRINTED, _cut_text, trial
from strop.tasks.task import Verdict

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is missing")

CASE = {
    "prompt": "",
    "entry_point": "f",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    print('the tests speak')",
}


def judged(body: str) -> Verdict:
    box = find_box()
    return trial(box, f"import sys\ndef f(n):\n{body}", CASE)


def test_both_streams_are_heard_also_without_an_end_of_line() -> None:
    body = "    print('<b>out</b>')\n    sys.stderr.write('err')\n    print('x', end='')\n"
    found = judged(f"{body}    return 2 * n")
    assert found.passed
    assert found.printed == "<b>out</b>\nerrx"


def test_nothing_printed_is_nothing() -> None:
    assert judged("    return 2 * n").printed == ""


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("    print('so far')\n    return n", "wrong"),
        ("    print('so far')\n    raise ValueError('no')", "error"),
        ("    print('so far')\n    import os\n    os._exit(3)", "ended"),
    ],
)
def test_it_is_heard_whatever_the_verdict(body: str, outcome: str) -> None:
    found = judged(body)
    assert (found.outcome, found.printed) == (outcome, "so far\n")


def test_a_program_that_never_ends_has_said_its_lines() -> None:
    from dataclasses import replace

    box = find_box()
    box = replace(box, limits=replace(box.limits, seconds=2.0))
    found = trial(box, "def f(n):\n    print('begun')\n    while True: pass", CASE)
    assert (found.outcome, found.printed) == ("time", "begun\n")


def test_a_stdout_that_a_program_has_broken_changes_no_verdict() -> None:
    bad = "    class Bad:\n        def flush(self): raise SystemExit\n"
    bad += "        def write(self, text): pass\n"
    assert judged(f"{bad}    sys.stdout = Bad()\n    return 2 * n").passed


def test_much_is_cut_in_the_middle() -> None:
    assert _cut_text(b"x" * PRINTED) == "x" * PRINTED
    told = _cut_text(b"a" * PRINTED + b"z" * PRINTED + b"\xff")
    assert told.startswith("a" * (PRINTED // 2) + "\n… ")
    assert told.endswith("z\ufffd")
    assert f"{PRINTED + 1:,} characters left out" in told
    assert judged("    print('y' * 2_000_000)\n    return 2 * n").outcome == "output"
