"""The sandbox: where a model's program may run, and what it may use up there.

Bubblewrap gives every process its own namespaces: no network, no files of this machine but Python
with its own modules, read-only, a private /tmp, no /proc, no environment. A filter of system calls
keeps it to one process; hard limits hold for memory, time, files and output.

The filter lists the system calls that a program is refused. Limits of the kernel count processes
per user and do not hold for root at all, so a fork bomb is stopped here: a program is one process
with one thread, and its memory limit is then the limit of everything it runs. Sockets, shared
memory and message queues, which no limit counts, and what looks into other processes or makes
namespaces are refused too.

A sandbox shows the interpreter, its shared libraries and its own modules. That is a list of what is
visible, not of what is hidden: packages, homes and strop's own files, which hold the tests and the
solutions of tasks, lie elsewhere or in directories that are covered. A Python whose modules cannot
be separated like this is refused.

A program and its tests run in two sandboxes and give one verdict. The checker alone holds the pipe
of the verdict. The program holds its end of two pipes to the checker and one that captures what it
prints. This process watches the clock and the amount of output, and ends both when either runs out.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import platform
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import IO, Any

from strop.errors import UserError
from strop.registry import one_line
from strop.tasks.task import OUTCOMES, Verdict

FLAGS = ("-P", "-s", "-S", "-B")
"""No packages, no user's directory, no site, no files written."""
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
PACKAGES = ("site-packages", "dist-packages")
STROP = Path(__file__).parents[1]
SECONDS = 60

# Asks the interpreter itself, since nobody else knows: where it looks for its own modules, and
# which libraries the loader has mapped, by the names it found them under, once all are imported.
ASK = """
import ctypes, importlib, json, os, sys
needless = ("_test", "_ctypes_test", "_tkinter", "xx")
for folder in sys.path:
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        module, dot, ending = name.partition(".")
        if ending.endswith("so") and not module.startswith(needless):
            try:
                importlib.import_module(module)
            except BaseException:
                pass  # a library is missing on this machine, too
found = []
visit = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
class Info(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]
def see(info, size, data):
    found.append(os.fsdecode(Info.from_address(info).name or b""))
    return 0
ctypes.CDLL(None).dl_iterate_phdr(visit(see), None)
print(json.dumps({"path": sys.path, "libraries": found}), file=sys.__stdout__)
"""


@dataclass(frozen=True)
class Interpreter:
    """What is shown of a Python."""

    program: str
    """The interpreter, without symbolic links."""
    modules: tuple[str, ...]
    """Where the standard library lies: directories, or an archive."""
    covered: tuple[str, ...]
    """Directories of packages in these, which are shown empty."""
    libraries: tuple[str, ...]
    """Shared libraries, by the paths that the loader found them under."""

    def binds(self) -> list[str]:
        """What makes bubblewrap show it, read-only."""
        visible = [*self.modules, self.program, *self.libraries]
        arguments = [
            word for path in visible for word in ("--ro-bind", path, os.path.normpath(path))
        ]
        for path in self.covered:
            arguments += ["--tmpfs", path, "--remount-ro", path]
        return arguments


@cache
def find_interpreter() -> Interpreter:
    """The Python that runs this, or why no sandbox can be made of it."""
    # In a virtual environment the base's: the environment itself is not shown.
    program = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    paths = _python_paths(program)
    modules = list(_outermost(path for path in paths["path"] if os.path.exists(path)))
    packages = [folder for root in modules for folder in _packages(root)]
    covered = [
        folder for folder in packages if not os.path.islink(folder)
    ]  # a link has nothing to cover
    libraries = [path for path in paths["libraries"] if path.startswith("/")]
    outside = [
        library
        for library in dict.fromkeys(libraries)
        if not _below(os.path.realpath(library), modules)
    ]
    interpreter = Interpreter(program, tuple(modules), tuple(covered), tuple(outside))
    _refuse_leaks(interpreter, packages)
    return interpreter


def _python_paths(program: str) -> dict[str, list[str]]:
    command = [program, *FLAGS, "-c", ASK]
    try:
        process = subprocess.run(
            command,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=True,
            cwd="/",
        )
        return json.loads(process.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        printed = getattr(error, "stderr", None) or b""
        last = printed.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise _no_sandbox(program, last[0][:300] if last else one_line(error)) from error


def _outermost(paths: Iterable[str]) -> Iterator[str]:
    """The paths that lie in none of the others."""
    everything = list(dict.fromkeys(os.path.normpath(path) for path in paths))
    for path in everything:
        others = [outer for outer in everything if outer != path]
        if not _below(os.path.realpath(path), others):
            yield path


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(Path(path).is_relative_to(os.path.realpath(folder)) for folder in folders)


def _packages(folder: str) -> Iterator[str]:
    """Directories of packages in a directory of modules."""
    for directory, names, _ in os.walk(folder):
        yield from (os.path.join(directory, name) for name in names if name in PACKAGES)
        names[:] = [name for name in names if name not in PACKAGES]


def _refuse_leaks(interpreter: Interpreter, packages: Iterable[str]) -> None:
    """No directory of modules may hold, or be, what a program must not see."""
    if not interpreter.modules:
        raise _no_sandbox(interpreter.program, "it has no directory of modules")
    unseen = [("strop", STROP), ("the home directory", Path.home())]
    unseen += [("a directory of packages", Path(folder)) for folder in packages]
    for name, path in unseen:
        hidden = os.path.realpath(path)
        if _below(hidden, interpreter.modules) and not _below(hidden, interpreter.covered):
            raise _no_sandbox(interpreter.program, f"{name} lies among its own modules: {hidden}")


def _no_sandbox(program: str, reason: str) -> UserError:
    return UserError(
        "There is no sandbox for this Python: its standard library is not apart from its packages.",
        where=program,
        got=reason,
        expected="a standard library in a directory of its own, apart from strop and the home",
        fix="install strop in a virtual environment: python -m venv ENV, "
        "or say `unsafe_run` where the programs are known to be harmless",
    )


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
        limits = {"memory": self.memory, "cpu": math.ceil(self.seconds) + 1, "file": self.file}
        return json.dumps({**limits, "open_files": self.open_files, "processes": self.processes})


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
        location = "/inside" if self.bubblewrap else str(INSIDE)
        program = (
            find_interpreter().program if self.bubblewrap else os.path.realpath(sys.executable)
        )
        command = [program, *FLAGS, "-c", START.format(module=module, place=location)]
        command += [self.limits.as_json(), *arguments]
        rules, writer = os.pipe()  # what bubblewrap reads the filter of system calls from
        os.write(writer, seccomp_filter() or b"")
        os.close(writer)
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
        # Where the loader finds libraries, without the list of this machine.
        folders = dict.fromkeys(os.path.dirname(library) for library in python.libraries)
        environment = {**ENVIRONMENT, "LD_LIBRARY_PATH": ":".join(folders)}
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


def find_box(*, unsafe_run: bool = False, limits: Limits | None = None) -> Box:
    """The sandbox of this machine, or the reason why there is none."""
    limits = limits or Limits()
    if unsafe_run:
        return Box(None, limits)
    bubblewrap = shutil.which("bwrap")
    if bubblewrap is None:
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
    return Box(bubblewrap, limits)


CHUNK = 1 << 16
VERDICT = 1 << 16
"""Bytes that a verdict may have."""
PRINTED = 4000
"""Characters of what a program printed that are kept."""
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
            with _processes(box, job) as (player, checker):
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
            expected="permission to create user namespaces, and a few seconds",
            fix="in a container, allow for user namespaces; see docs/sandbox.md",
        )


@contextmanager
def _processes(
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
    heard = {name: bytearray() for name in ("verdict", "checker", "program")}
    streams = {"verdict": checker.stdout, "checker": checker.stderr, "program": player.stderr}
    verdict = _judged(box, player, streams, heard)
    _rest(player.stderr, heard["program"])
    return replace(verdict, printed=_cut_text(bytes(heard["program"])))


def _judged(
    box: Box,
    player: subprocess.Popen[bytes],
    streams: Mapping[str, IO[bytes] | None],
    heard: dict[str, bytearray],
) -> Verdict:
    """The same without what the program printed; what is heard is added to."""
    until = time.monotonic() + box.limits.seconds
    most = {"verdict": VERDICT, "checker": box.limits.output, "program": box.limits.output}
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


def _rest(stream: IO[bytes] | None, heard: bytearray) -> None:
    """What lies in a pipe already."""
    if stream is None:
        return
    os.set_blocking(stream.fileno(), False)
    with contextlib.suppress(OSError):
        heard += os.read(stream.fileno(), CHUNK)  # a pipe holds no more


def _cut_text(printed: bytes) -> str:
    """The beginning and the end of what a program printed."""
    text = printed.decode("utf-8", "replace")
    if len(text) <= PRINTED:
        return text
    half = PRINTED // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"


def _files(box: Box, player: subprocess.Popen[bytes]) -> int:
    """How many there are in the program's /tmp, as its file system counts them."""
    if box.bubblewrap is None:
        return 0
    try:
        with open(f"/proc/{player.pid}/task/{player.pid}/children") as file:
            inside = file.read().split()[0]
        volume = os.statvfs(f"/proc/{inside}/root/tmp")
    except (OSError, IndexError):  # not started yet, or ended
        return 0
    # Until bubblewrap has made its own, this is the /tmp of this machine.
    its_own = volume.f_blocks == -(-box.limits.scratch // volume.f_frsize)
    return volume.f_files - volume.f_ffree if its_own else 0


def _verdict(heard: Mapping[str, bytearray]) -> Verdict:
    try:
        document: dict[str, Any] = json.loads(heard["verdict"])
        outcome, detail = document["outcome"], str(document["detail"])
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
