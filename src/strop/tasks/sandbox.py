"""The sandbox: where a model's program may run, and what it may use up there.

Bubblewrap gives every process its own namespaces: no network, no files of this machine but Python
with its own modules, read-only, a private /tmp, no /proc, no environment. A filter of system calls
keeps it to one process; hard limits hold for memory, time, files and output.

Which system calls a program in the sandbox is refused, as a filter for bubblewrap.

Limits of the kernel count processes per user and do not hold for root at all, so a fork bomb is
stopped here: a program is one process with one thread, and its memory limit is then the limit of
everything it runs. Sockets, shared memory and message queues, which no limit counts, and what looks
into other processes or makes namespaces are refused too.
"""

from __future__ import annotations

import errno
import json
import math
import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from strop.errors import UserError
from strop.tasks.interpreter import ENVIRONMENT, FLAGS, find_interpreter

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
CALL, ARCHITECTURE = 0, 4
"""Where the kernel tells the number of the call, and whose numbers they are."""
X32 = 0x40000000
"""A second set of numbers for the same calls on x86-64."""

CLONE3 = 435
REFUSED = {
    # fork vfork clone, unshare setns mount, ptrace process_vm_readv process_vm_writev,
    # shmget msgget semget mq_open, socket socketpair, add_key request_key keyctl,
    # bpf perf_event_open userfaultfd io_uring_setup
    "x86_64": (
        *(57, 58, 56, 272, 308, 165, 101, 310, 311, 29, 68, 64, 240),
        *(41, 53, 248, 249, 250, 321, 298, 323, 425),
    ),
    "aarch64": (
        *(220, 97, 268, 40, 117, 270, 271, 194, 186, 190, 180),
        *(198, 199, 217, 218, 219, 280, 241, 282, 425),
    ),
}
NUMBERS_OF = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def seccomp_filter(machine: str | None = None) -> bytes | None:
    """The filter as the kernel reads it; None for a machine whose calls we do not know."""
    machine = machine or platform.machine()
    if machine not in REFUSED:
        return None
    lines = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, NUMBERS_OF[machine]), (RETURN, 0, 0, KILL)]
    lines += [(LOAD, 0, 0, CALL), (AT_LEAST, 0, 1, X32), (RETURN, 0, 0, KILL)]
    # "Not there" rather than "not allowed": the C library then tries the older call.
    lines += _refuse(CLONE3, errno.ENOSYS)
    for number in REFUSED[machine]:
        lines += _refuse(number, errno.EPERM)
    lines.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _refuse(number: int, error: int) -> list[tuple[int, int, int, int]]:
    return [(EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | error)]


INSIDE = Path(__file__).parent / "inside"
NOBODY = "65534"

# Nothing of strop is in the sandbox but `inside`; empty packages stand for those above it.
START = """
import sys, types
for name, path in (("strop", []), ("strop.tasks", []), ("strop.tasks.inside", [{place!r}])):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = path
from strop.tasks.inside.{module} import main
main()
"""


@dataclass(frozen=True)
class Limits:
    """What one program may use up."""

    seconds: float = 10.0
    """From its start to the verdict, whatever it does meanwhile."""
    memory: int = 1 << 30
    """Bytes of address space."""
    file: int = 1 << 20
    """Bytes of one file it writes."""
    scratch: int = 1 << 24
    """Bytes of its private /tmp."""
    output: int = 1 << 20
    """Bytes it may print before it is stopped."""
    files: int = 1000
    """Files and directories in that /tmp: an empty one takes memory, too."""
    open_files: int = 64
    processes: int = 64
    """Only where the filter is not in force; with it there is one."""

    def as_json(self) -> str:
        """For the process that sets them."""
        told = {"memory": self.memory, "cpu": math.ceil(self.seconds) + 1, "file": self.file}
        return json.dumps({**told, "open_files": self.open_files, "processes": self.processes})


@dataclass(frozen=True)
class Box:
    """A way to start processes: in bubblewrap, or, where asked for, without protection."""

    bubblewrap: str | None
    """The program; None runs what a model wrote as the user who runs strop."""
    limits: Limits = Limits()

    @property
    def level(self) -> str:
        """What stood between the programs and this machine; belongs to the results."""
        return "bubblewrap" if self.bubblewrap else "none"

    def start(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        stdin: IO[bytes] | int,
        stdout: int,
        keep: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        """Start one of the modules inside; only the named descriptors go with it."""
        place = "/inside" if self.bubblewrap else str(INSIDE)
        program = (
            find_interpreter().program if self.bubblewrap else os.path.realpath(sys.executable)
        )
        command = [program, *FLAGS, "-c", START.format(module=module, place=place)]
        command += [self.limits.as_json(), *arguments]
        rules = _filter_descriptor()
        try:
            return subprocess.Popen(
                [*self._walls(rules), *command],
                stdin=stdin,
                stdout=stdout,
                stderr=subprocess.PIPE,
                env=ENVIRONMENT,
                cwd=tempfile.gettempdir(),
                pass_fds=(*keep, rules) if self.bubblewrap else keep,
                start_new_session=True,
            )
        finally:
            os.close(rules)

    def _walls(self, rules: int) -> list[str]:
        """The command line of bubblewrap, up to what it is to run; nothing where there is none."""
        if self.bubblewrap is None:
            return []
        python = find_interpreter()
        environment = {**ENVIRONMENT, "LD_LIBRARY_PATH": python.library_path}
        walls = [
            self.bubblewrap,
            "--unshare-all",
            "--unshare-user",
            "--die-with-parent",
            "--new-session",
        ]
        walls += ["--uid", NOBODY, "--gid", NOBODY, "--cap-drop", "ALL", "--hostname", "sandbox"]
        walls += ["--clearenv", *(w for k, v in environment.items() for w in ("--setenv", k, v))]
        walls += ["--dev", "/dev", "--size", str(self.limits.scratch), "--tmpfs", "/tmp"]
        walls += [*python.binds(), "--ro-bind", str(INSIDE), "/inside"]
        # /dev has a directory for shared memory, which no limit of ours would count. There is no
        # /proc: where root starts the sandbox, the kernel's settings in it could be written.
        walls += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]
        return [*walls, "--seccomp", str(rules), "--"]


def _filter_descriptor() -> int:
    """The filter of system calls as something that bubblewrap can read."""
    reader, writer = os.pipe()
    os.write(writer, seccomp_filter() or b"")
    os.close(writer)
    return reader


def find_box(*, unsafe_run: bool = False, limits: Limits | None = None) -> Box:
    """The sandbox of this machine, or the reason why there is none."""
    limits = limits or Limits()
    if unsafe_run:
        return Box(None, limits)
    found = shutil.which("bwrap")
    if found is None:
        raise UserError(
            "There is no sandbox to run programs in: bubblewrap is not installed.",
            expected="the program `bwrap`, on Linux",
            fix="apt-get install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora), "
            "or say `unsafe_run` where the programs are known to be harmless",
        )
    if seccomp_filter() is None:
        raise UserError(
            "The sandbox does not know the system calls of this machine.",
            got=os.uname().machine,
            expected="x86_64 or aarch64",
        )
    find_interpreter()
    return Box(found, limits)
