"""`subprocess` for Python processes that would load torch first: they are copies of one that has.

`Popen` and `run` take what those of `subprocess` take and give the same: the process has its own
memory, files, environment, signals and exit code, and is killed like any other. Only its first
seconds are missing. What is about them (what `import strop` loads, how a process starts, what
PYTHONIOENCODING does) starts real processes.

`everywhere` makes those of strop itself warm, too: the workers of an engine. The server forks them,
so they are not found below the process that asked for them, but by `started_by`.
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import strop.cli

SERVER = Path(__file__).with_name("fork_server.py")
LOADED = (
    "pandas",
    "pyarrow.parquet",
    "torch",
    "transformers.models.llama.modeling_llama",
    "transformers.models.gpt2.modeling_gpt2",
    "optuna",
    "openai",
    "lightning_fabric.strategies.model_parallel",
    "torch.distributed.run",
    "scipy.stats",
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "rich.progress",
    "rich.table",
    "strop.draw",
    "strop.figures",
    "strop.groupeval",
    "strop.measure",
    "strop.measure.guard",
    "strop.measure.entropy",
    "strop.page.command",
    "strop.tasks",
    "strop.training.loop",
    *(f"strop.cli.{one.stem}" for one in Path(strop.cli.__file__).parent.glob("[a-z]*.py")),
)
"""What commands spend their first seconds on."""
HERE = hasattr(os, "pidfd_open")
"""Elsewhere than on Linux processes are started as ever."""

seconds = 0.0
"""Processor seconds of all processes of the server that have ended, told by the last of ours."""
ADDRESS = "STROP_FORK_SERVER"
"""The variable that tells warm processes of the server they come from."""
LIMITS = (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)
_cold = subprocess.Popen


def _address() -> str:
    """Of the server, which is started when it is first needed."""
    if ADDRESS not in os.environ:
        place = tempfile.mkdtemp(prefix="strop-fork-")
        path = os.path.join(place, "s")
        line = [sys.executable, str(SERVER), path, *LOADED]
        # Copies of a process with more threads would lack them.
        env = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **os.environ}
        server = _cold(line, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=env)

        def end() -> None:
            del os.environ[ADDRESS]
            assert server.stdin is not None
            server.stdin.close()
            server.wait()
            shutil.rmtree(place, ignore_errors=True)

        atexit.register(end)
        while not os.path.exists(path):
            assert server.poll() is None, "the fork server did not start"
            time.sleep(0.02)
        os.environ[ADDRESS] = path
    return os.environ[ADDRESS]


def _asked(request: dict[str, Any]) -> socket.socket:
    """A connection to the server that has taken a request."""
    text = json.dumps(request).encode()
    line = socket.socket(socket.AF_UNIX)
    line.connect(_address())
    line.sendall(len(text).to_bytes(4, "big") + text)
    return line


def _told(line: socket.socket, flags: int = 0) -> Any:
    """What the server says next; None if it is nothing yet and nobody waits for it."""
    found = b""
    while not found.endswith(b"\n"):
        try:
            more = line.recv(1024, flags if not found else 0)
        except BlockingIOError:
            return None
        assert more, "the fork server has ended"
        found += more
    return json.loads(found)


def started_by(pid: int) -> list[int]:
    """The warm processes that run and that a process asked for."""
    if not HERE:
        return []
    with _asked({"whose": pid}) as line:
        return _told(line)


def _words(args: Any) -> list[str]:
    program, *words = map(os.fspath, args)
    assert program == sys.executable, f"only {sys.executable} is warm, not {program}"
    return words


class WarmPopen(subprocess.Popen[Any]):
    """A process that the server forked; it is asked for the status, since it is the parent."""

    _line: socket.socket

    def _execute_child(self, *given: Any) -> None:
        signature = inspect.signature(_cold._execute_child)  # type: ignore[attr-defined]
        asked = signature.bind(self, *given).arguments
        plain = ("preexec_fn", "shell", "executable", "startupinfo")
        assert not any(asked.get(name) for name in plain), "start a real process for this"
        ours = (asked["p2cread"], asked["c2pwrite"], asked["errwrite"])
        files = {n: n if one == -1 else one for n, one in enumerate(ours)}
        files |= {one: one for one in asked["pass_fds"]}
        env = os.environ if asked["env"] is None else asked["env"]
        env = {**{os.fspath(k): os.fspath(v) for k, v in env.items()}, ADDRESS: _address()}
        words = _words(asked["args"])
        if words[0] == "-u":
            words, env = words[1:], {**env, "PYTHONUNBUFFERED": "1"}
        request = {
            "words": words,
            "cwd": os.path.abspath(asked["cwd"] or os.getcwd()),
            "env": env,
            "limits": {one: resource.getrlimit(one) for one in LIMITS},
            "starter": os.getpid(),
            "session": bool(asked.get("start_new_session")),
            "files": list(files),
        }
        self._line = _asked(request)
        socket.send_fds(self._line, [b"x"], list(files.values()))
        self.pid = _told(self._line)
        self._child_created = True
        names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in names))  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        global seconds
        told = _told(self._line, socket.MSG_DONTWAIT if wait_flags & os.WNOHANG else 0)
        if told is None:
            return 0, 0
        self._line.close()
        seconds = told["seconds"]
        return self.pid, told["status"]

    def _internal_poll(self, _deadstate: int | None = None, **_: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid == self.pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


Popen = WarmPopen if HERE else _cold


def _either(args: Any, *more: Any, **options: Any) -> Any:
    """Warm if it is this interpreter that starts."""
    ours = isinstance(args, (list, tuple)) and args[0] == sys.executable
    return (Popen if ours else _cold)(args, *more, **options)


def from_now_on() -> None:
    """Have all Python processes that this one starts be warm."""
    subprocess.Popen = _either  # type: ignore[assignment,misc]


@contextlib.contextmanager
def everywhere() -> Iterator[None]:
    """The same for a while."""
    from_now_on()
    try:
        yield
    finally:
        subprocess.Popen = _cold  # type: ignore[misc]


def run(
    args: Any,
    *,
    input: Any = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run` of a warm process."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with Popen(args, **options) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done
