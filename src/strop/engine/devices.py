"""One process per device of this machine.

A worker is a fresh interpreter that knows nothing but its end of a socket: no script is imported
again, and one that is killed takes nothing with it. It ends when its socket does, so none outlives
the command.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback
from multiprocessing.connection import Connection, wait
from typing import Any

from strop.engine.workers import Event, Job, ModelSlot, in_parts
from strop.errors import StropError, UserError, missing_package, out_of_memory
from strop.runtime import source_path

REPLACEMENTS = 3
"""How often a worker that died is started again; what kills it each time will do so again."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


class Processes:
    """Workers that are processes."""

    def __init__(self, places: list[str]) -> None:
        self.size = len(places)
        self._places = places
        self._job, self._turn = b"", 0
        self._replaced = [0] * len(places)
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._ends: dict[int, Connection] = {}
        self._threads = _threads(places)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._ends.values():
            end.close()  # an idle worker reads that it is over; a busy one is not waited for
        for process in self._running.values():
            process.kill()
            process.wait()

    def begin(self, job: Job) -> None:
        """Send a job to those who run, and start the others."""
        self._job, self._turn = pickle.dumps(job), self._turn + 1
        self._replaced = [0] * self.size
        for worker in range(self.size):
            if worker in self._running:
                self._send(worker, (self._turn, self._job))
            else:
                self._start(worker)

    def give(self, worker: int, cell: int, missing: Any) -> None:
        """Send what is missing of a unit."""
        self._send(worker, (None, (cell, missing)))

    def _send(self, worker: int, what: Any) -> None:
        try:
            self._ends[worker].send(what)
        except OSError:
            return  # it has died: `events` hears of it

    def events(self, seconds: float) -> list[Event]:
        """What workers sent."""
        by_end = {end: worker for worker, end in self._ends.items()}
        heard = [self._hear(by_end[end], end) for end in wait(list(by_end), seconds)]  # type: ignore[index]
        return [event for event in heard if event is not None]

    def _hear(self, worker: int, end: Connection) -> Event | None:
        try:
            turn, *message = end.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            return self._replace(worker)
        # A worker may say that it has loaded when the others have done the job without it.
        return Event(worker, *message) if turn == self._turn else None

    def _replace(self, worker: int) -> Event:
        self._ends.pop(worker).close()
        code = self._running.pop(worker).wait()
        end = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        why = f"a worker on {self._places[worker]} ended with {end}"
        if self._replaced[worker] == REPLACEMENTS:
            return Event(worker, "gone", why)
        self._replaced[worker] += 1
        self._start(worker)
        return Event(worker, "died", why)

    def _start(self, worker: int) -> None:
        own_end, worker_end = socket.socketpair()
        with worker_end:
            environment = {**os.environ, "PYTHONPATH": source_path()}
            environment |= dict.fromkeys(THREADS, str(self._threads[self._places[worker]]))
            # -P: what lies in the working directory must not pass for a module.
            command = [sys.executable, "-P", "-m", "strop.engine.devices", str(worker_end.fileno())]
            self._running[worker] = subprocess.Popen(
                command, pass_fds=[worker_end.fileno()], stdin=subprocess.DEVNULL, env=environment
            )
        self._ends[worker] = Connection(own_end.detach())
        self._send(worker, self._places[worker])
        self._send(worker, (self._turn, self._job))


def counted(places: list[str]) -> list[str]:
    """All devices of this machine by name, where all are wanted."""
    if places != ["all"]:
        return places
    import torch

    count = torch.cuda.device_count()
    if not count:
        raise UserError(
            "There is no CUDA device here.",
            where="`devices`",
            fix="say how many processes share the processor: `devices=cpu:2`",
        )
    return [f"cuda:{i}" for i in range(count)]


def _threads(places: list[str]) -> dict[str, int]:
    """Threads of each process, by its place: those on the processor have it to themselves.

    A process of a GPU has its share of all: its loop needs one, and loading uses several.
    """
    import torch

    threads, cpus = torch.get_num_threads(), places.count("cpu")
    return {
        device: max(1, threads // (cpus if device == "cpu" else len(places))) for device in places
    }


def failure(error: BaseException) -> BaseException:
    """An error as it travels: the user's as it is, a bug with its traceback."""
    if isinstance(error, StropError):
        return error
    if isinstance(error, ModuleNotFoundError) and (missing := missing_package(error)) is not None:
        return missing
    if out_of_memory(error):
        return MemoryError(str(error))
    return RuntimeError("".join(traceback.format_exception(error)))


def serve(end: Connection) -> None:
    """Be a worker until nobody sends jobs or units any more."""
    turn, worker = 0, None
    try:
        slot = ModelSlot(end.recv())
        while True:
            began, what = end.recv()
            if began is not None:
                turn, worker = began, None  # what it has loaded may have to go first
                worker = slot.open(pickle.loads(what))
                end.send((turn, "ready", dict(worker.facts)))
                continue
            assert worker is not None
            for rows in in_parts(worker.work(*what)):
                end.send((turn, "found", rows))
            end.send((turn, "done"))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # whoever gave the units has gone
    except Exception as error:
        end.send((turn, "failed", failure(error)))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the command decides
    serve(Connection(int(sys.argv[1])))
