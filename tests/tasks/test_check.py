"""`strop task`: what is listed, what is refused, and what a failed check says."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import strop
from strop.cli.main import run
from strop.errors import CheckFailed, UserError
from strop.tasks import TASKS, Limits, Verdict, check_task, find_box
from strop.tasks.sandbox import probe, seccomp_filter, trial
from strop.tasks.task import Item
from tasks.processes import below, running

sandboxed = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is missing")


def _call(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = run(list(argv))
    told = capsys.readouterr()
    return code, told.out, told.err


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _call(capsys, "task", "list", "--json")
    found = {one["name"]: one for one in json.loads(out)["tasks"]}
    assert code == 0
    assert (found["gsm8k"]["items"], found["gsm8k"]["shots"]) == (256, 5)
    assert (found["humaneval"]["items"], found["humaneval"]["sandboxed"]) == (164, True)
    assert "gsm8k" in _call(capsys, "task", "list")[1]


def test_check_of_gsm8k(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _call(capsys, "task", "check", "gsm8k", "--limit", "9")
    assert (code, out) == (0, "reference 9 of 9 pass; wrong 0 of 27 pass\n")


def test_an_unknown_task(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = _call(capsys, "task", "check", "gsm")
    assert code == 1
    assert "did you mean 'gsm8k'?" in err


def test_without_bubblewrap_nothing_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out, err = _call(capsys, "task", "check", "humaneval", "--limit", "1", "--json")
    assert code == 1
    assert "bubblewrap" in json.loads(out)["error"]["what"]
    assert "apt-get install bubblewrap" in err
    assert "--unsafe-run" in err


def test_an_unsafe_run_warns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out, err = _call(
        capsys, "task", "check", "humaneval", "--limit", "1", "--unsafe-run", "--json"
    )
    assert code == 0
    assert json.loads(out)["sandbox"] == "none"
    assert "warning: programs run without a sandbox" in err


def _always(item: Item, answer: str, box: Any) -> Verdict:
    return Verdict("passed")


def _never(item: Item, answer: str, box: Any) -> Verdict:
    return Verdict("wrong", "never")


def test_a_check_that_says_yes_to_everything_is_found_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    strop.register(replace(TASKS["gsm8k"], name="lenient", check=_always, version="1"))
    try:
        code, _, err = _call(capsys, "task", "check", "lenient", "--limit", "2")
    finally:
        TASKS.forget("lenient")
    assert code == 3
    assert "reference 2 of 2 pass; wrong 2 of 6 pass" in err
    assert "gsm8k/0 (swapped, filter strict): passed" in err


def test_and_so_is_one_that_says_no() -> None:
    report = check_task(replace(TASKS["gsm8k"], name="harsh", check=_never), None, limit=2)
    assert report.line == "reference 0 of 2 pass; wrong 0 of 6 pass"
    with pytest.raises(CheckFailed, match="harsh"):
        report.raise_if_failed()


def test_the_fingerprint_tells_tasks_apart() -> None:
    task = TASKS["gsm8k"]
    other = replace(task, items=lambda: task.all_items()[:255])
    assert len({task.fingerprint, other.fingerprint, replace(task, version="2").fingerprint}) == 3


def test_the_filter_is_known_for_two_machines() -> None:
    assert seccomp_filter("riscv64") is None
    for machine in ("x86_64", "aarch64"):
        assert len(seccomp_filter(machine) or b"") % 8 == 0


@sandboxed
def test_a_sandbox_that_does_not_start_is_no_models_fault(tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'No permissions to create a new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(UserError, match="does not work on this machine") as told:
        probe(replace(find_box(), bubblewrap=str(broken)))
    assert "No permissions" in str(told.value)


@sandboxed
@pytest.mark.parametrize("text", ["#!/no/such/shell\n", "no program at all\n"])
def test_nor_is_a_bubblewrap_that_is_no_program(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text(text)
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out, err = _call(capsys, "task", "check", "humaneval", "--limit", "1", "--json")
    assert code == 1
    assert json.loads(out)["error"]["what"] == "The sandbox does not work on this machine."
    assert str(broken) in err
    assert "Traceback" not in err
    sandbox = json.loads(_call(capsys, "doctor", "--json")[1])["sandbox"]
    assert sandbox.startswith("The sandbox does not work on this machine.")


@sandboxed
def test_a_program_that_is_no_python() -> None:
    case = TASKS["humaneval"].all_items()[0].case
    box = find_box(limits=Limits(seconds=5))
    assert trial(box, "def (", case).outcome == "error"
    assert trial(box, "", case).outcome == "error"
    assert trial(box, "x" * (1 << 21), case).outcome == "invalid"


@sandboxed
def test_programs_end_with_the_process_that_started_them() -> None:
    script = (
        "from strop.tasks import find_box\nfrom strop.tasks.sandbox import trial\n"
        "case = {'prompt': '', 'entry_point': 'f', 'test': ''}\n"
        "trial(find_box(), 'while True: pass', case)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", script], env=environment)
    children: set[int] = set()
    for _ in range(200):
        children = below(parent.pid)
        if len(children) >= 4:
            break
        time.sleep(0.05)
    assert len(children) >= 4  # two sandboxes of two processes at least
    # A sandbox asks to end with its parent once it has begun; before that only its limits end it.
    time.sleep(0.5)
    children |= below(parent.pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    for _ in range(100):
        if not any(running(child) for child in children):
            return
        time.sleep(0.05)
    raise AssertionError([child for child in children if running(child)])
