"""A Python process that has loaded torch and strop, and turns copies of itself into other commands.

Started by `warm_processes`, never by hand. It has one thread and runs nothing of strop itself.
Every connection asks for one process: where it runs, its environment, its words, its open files.
The answers are its process id and, when it has ended, its status, with the processor seconds of
all that have ended. A connection may also ask which processes somebody has started.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import io
import json
import os
import resource
import runpy
import selectors
import signal
import socket
import sys
import threading
import types
from pathlib import Path
from typing import Any


class Server:
    """Accepts requests until the process that started it ends."""

    def __init__(self, path: str) -> None:
        self.asked = socket.socket(socket.AF_UNIX)
        self.asked.bind(f"{path}.new")
        self.asked.listen(64)
        os.rename(f"{path}.new", path)  # whoever sees it can connect
        self.watch = selectors.DefaultSelector()
        self.watch.register(self.asked, selectors.EVENT_READ)
        self.watch.register(0, selectors.EVENT_READ)  # ends when the tests do
        self.running: dict[int, tuple[int, socket.socket]] = {}
        self.starter: dict[int, int] = {}
        self.seconds = 0.0

    def serve(self) -> dict[str, Any]:
        """Fork for every request; returns in the new process, with the request."""
        while True:
            for key, _ in self.watch.select():
                if key.fd == 0:
                    os._exit(0)
                elif key.fd == self.asked.fileno():
                    request = self.fork()
                    if request is not None:
                        return request
                else:
                    self.ended(key.fd)

    def fork(self) -> dict[str, Any] | None:
        line, _ = self.asked.accept()
        size = int.from_bytes(_exactly(line, 4), "big")
        request = json.loads(_exactly(line, size))
        if "whose" in request:
            running = [pid for pid, _ in self.running.values()]
            mine = [pid for pid in running if self.starter[pid] == request["whose"]]
            line.sendall(json.dumps(mine).encode() + b"\n")
            line.close()
            return None
        files = _files(line, len(request["files"]))
        pid = os.fork()
        if pid:
            for one in files:
                os.close(one)
            handle = os.pidfd_open(pid)
            self.running[handle] = (pid, line)
            self.starter[pid] = request["starter"]
            self.watch.register(handle, selectors.EVENT_READ)
            line.sendall(json.dumps(pid).encode() + b"\n")
            return None
        line.close()
        self.forget()
        _place(files, request["files"])
        return request

    def forget(self) -> None:
        """In the new process: nothing of the server stays open."""
        self.watch.close()
        self.asked.close()
        for handle, (_, line) in self.running.items():
            os.close(handle)
            line.close()

    def ended(self, handle: int) -> None:
        pid, line = self.running.pop(handle)
        self.watch.unregister(handle)
        os.close(handle)
        _, status, usage = os.wait4(pid, 0)
        self.seconds += usage.ru_utime + usage.ru_stime
        with contextlib.suppress(OSError):  # whoever asked is not interested any more
            told = {"status": status, "seconds": self.seconds}
            line.sendall(json.dumps(told).encode() + b"\n")
        line.close()


def _exactly(line: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = line.recv(size - len(found))
        assert more, "a request without an end"
        found += more
    return found


def _files(line: socket.socket, count: int) -> list[int]:
    """Open files of whoever asks, which come with one byte."""
    found = array.array("i")
    _, more, _, _ = line.recvmsg(1, socket.CMSG_LEN(count * found.itemsize))
    for level, kind, content in more:
        assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        found.frombytes(content[: len(content) - len(content) % found.itemsize])
    assert len(found) == count
    return list(found)


def _place(files: list[int], numbers: list[int]) -> None:
    """Give open files the numbers that the process expects."""
    clear = max([*numbers, *files]) + 1
    moved = [os.dup2(one, clear + i) for i, one in enumerate(files)]
    for one in files:
        os.close(one)
    for one, number in zip(moved, numbers, strict=True):
        os.dup2(one, number, inheritable=True)
        os.close(one)


def _become(request: dict[str, Any], own: list[str]) -> None:
    """The state that an interpreter has when it was just started with these words."""
    for name, (soft, hard) in request["limits"].items():
        resource.setrlimit(int(name), (soft, hard))
    if request["session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    named = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = [*named, *own]
    now = bool(os.environ.get("PYTHONUNBUFFERED"))
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        before = getattr(sys, name)
        stream = io.TextIOWrapper(
            open(number, f"{mode}b", 0 if now and mode == "w" else -1, closefd=False),  # noqa: SIM115
            encoding=before.encoding,
            errors=before.errors,
            line_buffering=name == "stderr" or os.isatty(number),
            write_through=now,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if "numpy" in sys.modules:  # the only generator that copies would share and cold ones do not
        sys.modules["numpy"].random.seed()


def _run(words: list[str]) -> None:
    """What `python WORDS` does."""
    safe = words[0] == "-P"
    kind, *rest = words[safe:]
    first = os.getcwd() if kind == "-m" else "" if kind == "-c" else os.path.dirname(kind)
    sys.path[:0] = [] if safe else [first]
    if kind == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = [kind, *rest]
        runpy.run_path(kind, run_name="__main__")


def _end(words: list[str]) -> None:
    """Run, and end as the interpreter does, except that memory is not taken apart piece by piece.

    That would take longer than most of these processes run.
    """
    code = 0
    try:
        _run(words)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if code and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError as error:
        print(f"Exception ignored in: {sys.stdout}\n{error}", file=sys.stderr)
        code = 120
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 255)


def _load(names: list[str]) -> None:
    import importlib

    for name in names:
        with contextlib.suppress(ModuleNotFoundError):  # an extra that is not installed
            importlib.import_module(name)
    with contextlib.suppress(ImportError):  # a thousand patterns, compiled with the first model
        mapping = importlib.import_module("transformers.conversion_mapping")
        mapping.get_checkpoint_conversion_mapping("llama")
    tasks = Path("/proc/self/task").iterdir()
    others = [one for one in tasks if one.name != str(os.getpid())]
    threads = {one.joinpath("comm").read_text().strip() for one in others}
    # pyarrow's allocator has a thread that it stops before a fork and starts again behind it.
    assert threads <= {"jemalloc_bg_thd"}, f"a copy would lack the threads {threads}"


if __name__ == "__main__":
    named = list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    outside = [one for one in sys.path[1:] if one not in named]  # [0] is this file's folder
    gc.disable()
    _load(sys.argv[2:])
    gc.enable()
    gc.collect()
    gc.freeze()  # collections of copies leave what is loaded alone, and its pages shared
    asked = Server(sys.argv[1]).serve()
    _become(asked, outside)
    _end(asked["words"])
