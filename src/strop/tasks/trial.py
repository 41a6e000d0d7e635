"""One program against its tests: two sandboxes, one verdict.

The checker alone holds the pipe of the verdict. The program holds its end of two pipes to the
checker and one that captures what it prints. This process watches the clock and the amount of
output, and ends both when either runs out.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

from strop.errors import UserError
from strop.tasks.sandbox import Box
from strop.tasks.task import OUTCOMES, Verdict

CHUNK = 1 << 16
VERDICT = 1 << 16
"""Bytes that a verdict may have."""
LOOK = 0.1
"""Seconds between two looks at how many files there are: the kernel has no limit for them that
bubblewrap could set, and a program makes some thousands in this time."""
SOURCE = 1 << 20
"""Bytes of a program; nothing that a model writes as an answer comes near."""


def trial(box: Box, program: str, case: Mapping[str, str]) -> Verdict:
    """Run a program against the tests of its problem: `prompt`, `entry_point`, `test`."""
    if len(program) > SOURCE:
        return Verdict("invalid", "the program is too long")
    try:
        with tempfile.TemporaryFile() as job:
            job.write(json.dumps({**case, "program": program}).encode())
            job.seek(0)
            with _started(box, job) as (player, checker):
                return _watched(box, player, checker)
    except OSError as error:  # no room, no processes, a bubblewrap that is no program
        return Verdict("lost", f"the sandbox cannot be started: {error}")


def probe(box: Box) -> None:
    """Make sure that programs can run here at all, so that no model is blamed for the machine."""
    case = {
        "prompt": "",
        "entry_point": "double",
        "test": "def check(candidate):\n    assert candidate(21) == 42",
    }
    verdict = trial(box, "def double(n):\n    return 2 * n", case)
    if not verdict.passed:
        raise UserError(
            "The sandbox does not work on this machine.",
            got=f"{verdict.outcome}: {verdict.detail}",
            expected="leave to make user namespaces, and some seconds of time",
            fix="in a container, allow for user namespaces; see docs/sandbox.md",
        )


@contextmanager
def _started(
    box: Box, job: IO[bytes]
) -> Iterator[tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    """Both processes, which are gone afterwards with all that they started."""
    asked, asks = os.pipe()
    answered, answers = os.pipe()
    running: list[subprocess.Popen[bytes]] = []
    try:
        try:
            running.append(box.start("program", stdin=asked, stdout=answers))
            pipes = (asks, answered)
            running.append(
                box.start(
                    "checker", [*map(str, pipes)], stdin=job, stdout=subprocess.PIPE, keep=pipes
                )
            )
        finally:
            for descriptor in (asked, asks, answered, answers):
                os.close(descriptor)
        yield running[0], running[1]
    finally:
        for process in running:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Bubblewrap takes its namespace with it; without it the group is all that can be reached."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _watched(
    box: Box, player: subprocess.Popen[bytes], checker: subprocess.Popen[bytes]
) -> Verdict:
    """Wait for the checker's verdict, for the end of the time, or for too much output."""
    until = time.monotonic() + box.limits.seconds
    most = {"verdict": VERDICT, "checker": box.limits.output, "program": box.limits.output}
    heard = {name: bytearray() for name in most}
    streams = {"verdict": checker.stdout, "checker": checker.stderr, "program": player.stderr}
    with selectors.DefaultSelector() as selector:
        for name, stream in streams.items():
            if stream is not None:
                selector.register(stream, selectors.EVENT_READ, name)
        going = set(most)
        while (left := until - time.monotonic()) > 0:
            if _files(box, player) > box.limits.files:
                return Verdict("memory", f"more than {box.limits.files:,} files were made")
            for key, _ in selector.select(min(left, LOOK)):
                piece = os.read(key.fd, CHUNK)
                heard[key.data] += piece
                if len(heard[key.data]) > most[key.data]:
                    return Verdict("output", f"more than {most[key.data]} bytes were printed")
                if not piece:
                    going.discard(key.data)
                    selector.unregister(key.fileobj)
            # A checker that went away without a verdict may have said why.
            if "verdict" not in going and (heard["verdict"] or "checker" not in going):
                return _verdict(heard)
    if "verdict" not in going:
        return _verdict(heard)
    return Verdict("time", f"no answer within {box.limits.seconds:g} seconds")


def _files(box: Box, player: subprocess.Popen[bytes]) -> int:
    """How many there are in the program's /tmp, as its file system counts them."""
    if box.bubblewrap is None:
        return 0
    try:
        with open(f"/proc/{player.pid}/task/{player.pid}/children") as file:
            inside = file.read().split()[0]
        found = os.statvfs(f"/proc/{inside}/root/tmp")
    except (OSError, IndexError):  # not started yet, or ended
        return 0
    # Until bubblewrap has made its own, this is the /tmp of this machine.
    its_own = found.f_blocks == -(-box.limits.scratch // found.f_frsize)
    return found.f_files - found.f_ffree if its_own else 0


def _verdict(heard: Mapping[str, bytearray]) -> Verdict:
    try:
        told: dict[str, Any] = json.loads(heard["verdict"])
        outcome, detail = told["outcome"], str(told["detail"])
    except (ValueError, TypeError, LookupError):
        outcome, detail = "lost", _last_line(heard["checker"]) or "the checker gave no verdict"
    if outcome not in OUTCOMES:
        outcome, detail = "lost", "the checker gave no verdict"
    if outcome == "ended":
        detail = f"{detail}: {_last_line(heard['program'])}".rstrip(": ")
    return Verdict(outcome, detail)


def _last_line(printed: bytearray) -> str:
    lines = bytes(printed[-1000:]).decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:300] if lines else ""
