"""The sandbox against programs that mean harm: none passes, none hangs, none slows the rest."""

from __future__ import annotations

import os
import shutil
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from strop.tasks import Limits, Verdict, find_box
from strop.tasks.sandbox import trial
from tasks.drills import DRILLS
from tasks.processes import below, running

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is missing")

CASE = {
    "prompt": "",
    "entry_point": "double",
    "test": "def check(candidate):\n    assert candidate(21) == 42",
}
HONEST = "def double(n):\n    return 2 * n"
SOME_FILES = """
import os, time
def double(n):
    for number in range(900):
        os.close(os.open(f"/tmp/{number}", os.O_CREAT | os.O_WRONLY))
    time.sleep(0.5)
    return 2 * n
"""
SECONDS = 3.0
FILLED = ("reads_files", "writes_files", "sockets")

EXPECTED = {
    "loop": {"time"},
    "loop_at_import": {"time"},
    "deaf": {"time"},
    "fork_bomb": {"error"},
    "memory_bomb": {"memory"},
    "empty_files": {"memory"},
    "prints_gigabytes": {"output"},
    "answers_at_length": {"output"},
    "endless_answer": {"error"},
    "large_file": {"error"},
    "prints_passed": {"wrong"},
    "exits": {"error"},
    "exits_at_once": {"ended"},
    "exits_later": {"ended"},
    "crashes": {"ended"},
    "kills": {"ended", "wrong"},
    "recursion": {"error"},
    "deep_recursion": {"ended", "error", "memory", "time"},
    "deep_answer": {"error"},
}
"""What is said of those that can end in few ways; of the others only that they fail."""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """All of them, four at a time, each with an honest program beside it."""
    folder = tmp_path_factory.mktemp("outside")
    secret = folder / "secret"
    secret.write_text("secret")
    os.environ["STROP_SECRET"] = "secret"
    box = find_box(limits=Limits(seconds=SECONDS, memory=256 << 20))
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(4) as pool:
        more = {"secret": str(secret), "here": __file__, "folder": str(folder)}
        texts = {
            name: text.format(**more, port=server.getsockname()[1]) if name in FILLED else text
            for name, text in DRILLS.items()
        }
        doing = {name: pool.submit(trial, box, text, CASE) for name, text in texts.items()}
        beside = [pool.submit(trial, find_box(), HONEST, CASE) for _ in range(8)]
        found = {name: one.result() for name, one in doing.items()}
        assert all(one.result().passed for one in beside)
    del os.environ["STROP_SECRET"]
    assert sorted(path.name for path in folder.iterdir()) == ["secret"]
    return found


@pytest.mark.parametrize("name", sorted(DRILLS))
def test_drill(verdicts: dict[str, Verdict], name: str) -> None:
    verdict = verdicts[name]
    assert not verdict.passed
    assert verdict.outcome != "lost", verdict
    assert verdict.outcome in EXPECTED.get(name, {"wrong", "error", "ended"}), verdict


def test_nine_hundred_files_are_no_crime() -> None:
    assert trial(find_box(), SOME_FILES, CASE).passed


def test_without_the_walls_the_drills_would_succeed(tmp_path: Path) -> None:
    """The drills that look for a way out are real ones: without a sandbox they find it."""
    box = find_box(unsafe_run=True, limits=Limits(seconds=SECONDS))
    secret = tmp_path / "secret"
    secret.write_text("secret")
    text = DRILLS["reads_files"].format(secret=str(secret), here=__file__)
    assert trial(box, text, CASE).passed
    assert trial(box, DRILLS["sockets"].format(port=1), CASE).passed
    # And those that forge have nothing to gain from it.
    for name in ("prints_passed", "exits_later", "equals_all", "patches", "loop"):
        assert not trial(box, DRILLS[name], CASE).passed, name


def test_an_endless_loop_costs_its_limit_and_no_more() -> None:
    since = time.monotonic()
    assert trial(find_box(limits=Limits(seconds=0.5)), DRILLS["deaf"], CASE).outcome == "time"
    assert time.monotonic() - since < 5


def test_nothing_is_left_running() -> None:
    """Not even what a sandbox's first process leaves behind when it is killed."""
    others = below(os.getpid())  # warm processes of other tests
    seen: set[int] = set()
    box = find_box(limits=Limits(seconds=1.5))
    with ThreadPoolExecutor(1) as pool:
        doing = pool.submit(trial, box, DRILLS["deaf"], CASE)
        while not doing.done():
            seen |= below(os.getpid()) - others
            time.sleep(0.05)
    assert doing.result().outcome == "time"
    assert len(seen) >= 4  # two sandboxes of two processes at least
    for _ in range(100):
        if not any(running(pid) for pid in seen):
            return
        time.sleep(0.05)
    raise AssertionError([pid for pid in seen if running(pid)])
