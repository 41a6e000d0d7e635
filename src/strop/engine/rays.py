"""One Ray actor per device, on this machine or on a cluster.

Actors draw and give back; the process that was called writes. So machines need not share a file
system, and a driver that was killed finds on disk what its actors had finished. An actor that dies,
alone or with its machine, is replaced wherever there is room, and its unit is done again.
"""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any

from strop.engine.devices import REPLACEMENTS, failure
from strop.engine.plan import Engine, gpus_of, join, machines
from strop.engine.workers import Event, Job, ModelSlot, Worker
from strop.errors import UserError
from strop.version import __version__


class Actor:
    """A worker, and what it has loaded."""

    def __init__(self, device: str, threads: int | None) -> None:
        self._slot, self._threads = ModelSlot(device), threads
        self._worker: Any = None

    def open(self, job: bytes) -> tuple[str, Any]:
        """Take a job up."""
        return self._event("ready", lambda: dict(self._opened(job).facts))

    def work(self, cell: int, missing: Any) -> tuple[str, Any]:
        """Do one unit."""
        return self._event("done", lambda: list(self._worker.work(cell, missing)))

    def _opened(self, job: bytes) -> Worker:
        if self._threads is not None:
            import torch

            torch.set_num_threads(self._threads)
        self._worker = None  # what it has loaded may have to go first
        self._worker = self._slot.open(pickle.loads(job))
        return self._worker

    def _event(self, kind: str, what: Callable[[], Any]) -> tuple[str, Any]:
        try:
            return kind, what()
        except Exception as error:
            return "failed", failure(error)


class Actors:
    """Workers that are actors."""

    def __init__(self, engine: Engine) -> None:
        join(engine.address)
        self._job, self._turn = b"", 0
        self._device, self.size, self._asks, self._threads = _layout(engine, machines())
        self._actors: dict[int, Any] = {}
        self._replaced = [0] * self.size
        self._pending: dict[Any, tuple[int, int]] = {}
        """Worker and turn by what it will give back."""
        self._checked: list[tuple[type[Job], Any]] = []

    def __enter__(self) -> Actors:
        return self

    def __exit__(self, *_: object) -> None:
        import ray

        for actor in self._actors.values():
            ray.kill(actor)

    def begin(self, job: Job) -> None:
        """Send a job to those who are there, and start the others."""
        blob, kind = pickle.dumps(job), (type(job), job.needs)
        if kind not in self._checked:
            _check(machines(), blob)
            self._checked.append(kind)
        self._job, self._turn = blob, self._turn + 1
        self._replaced = [0] * self.size
        for worker in range(self.size):
            if worker in self._actors:
                self._open(worker)
            else:
                self._start(worker)

    def give(self, worker: int, cell: int, missing: Any) -> None:
        """Send what is missing of a unit."""
        self._pending[self._actors[worker].work.remote(cell, missing)] = worker, self._turn

    def events(self, seconds: float) -> list[Event]:
        """What actors gave back; a unit comes whole."""
        import ray

        if not self._pending:
            time.sleep(seconds)
            return []
        ready, _ = ray.wait(list(self._pending), num_returns=1, timeout=seconds)
        return [event for ref in ready for event in self._hear(ref)]

    def _hear(self, ref: Any) -> Iterator[Event]:
        import ray
        from ray.exceptions import RayError

        worker, turn = self._pending.pop(ref)
        try:
            kind, value = ray.get(ref)
        except RayError as error:
            yield self._replace(worker, error)
            return
        if turn != self._turn:
            return  # it had loaded when the others had done that job without it
        if kind == "done":
            yield Event(worker, "found", value)
        yield Event(worker, kind, value)

    def _replace(self, worker: int, error: Exception) -> Event:
        why = f"an actor ended: {str(error).strip().splitlines()[0][:200]}"
        del self._actors[worker]
        if self._replaced[worker] == REPLACEMENTS:
            return Event(worker, "gone", why)
        self._replaced[worker] += 1
        self._start(worker)
        return Event(worker, "died", why)

    def _start(self, worker: int) -> None:
        import ray

        kind: Any = ray.remote(Actor).options(scheduling_strategy="SPREAD", **self._asks)
        self._actors[worker] = kind.remote(self._device, self._threads)
        self._open(worker)

    def _open(self, worker: int) -> None:
        # Units go to actors that have loaded: one for which no machine has room holds up nothing.
        self._pending[self._actors[worker].open.remote(self._job)] = worker, self._turn


def _layout(engine: Engine, nodes: list[Any]) -> tuple[str, int, dict[str, float], int | None]:
    """Device, number, needs and threads of the actors."""
    words = engine.places()
    gpus = gpus_of(nodes)
    all_devices = words == ["all"]
    wanted = gpus if all_devices else sum(word.startswith("cuda") for word in words)
    if wanted > gpus:
        raise UserError(
            "The cluster has fewer GPUs.",
            where="`devices`",
            got=f"{wanted} wanted, {gpus} there",
            fix="use `devices=all`, or `devices=cpu:2`",
        )
    if wanted:
        return "cuda", wanted, {"num_gpus": 1}, None
    count = len(nodes) if all_devices else len(words)
    least = min(node["Resources"].get("CPU", 0) for node in nodes)
    share = int(least // math.ceil(count / len(nodes)))
    return "cpu", count, {"num_cpus": share}, max(1, share)


def _check(nodes: list[Any], job: bytes) -> None:
    """Refuse to begin where a machine lacks what the work needs, and say which lacks what."""
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here_version = __version__

    def look(blob: bytes) -> str | None:  # travels as it is: strop may not be there
        import pickle

        try:
            from strop.version import __version__ as there_version
        except ImportError as error:
            return f"strop cannot be imported: {error}"
        if there_version != here_version:
            return f"strop {there_version}, and {here_version} where the command runs"
        try:
            pickle.loads(blob).check()
        except Exception as error:
            return str(error)
        return None

    checks = {
        ray.remote(look)
        .options(
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        )
        .remote(job): f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
        for node in nodes
    }
    faults = []
    for ref, name in checks.items():
        try:
            fault = ray.get(ref)
        except RayError as error:
            fault = str(error).strip().splitlines()[0]
        if fault:
            faults.append(f"{name}: {fault}")
    if faults:
        raise UserError(
            f"{len(faults)} of {len(nodes)} nodes cannot do this work.",
            where="`ray_address`",
            got="\n".join(faults),
            expected=f"strop {here_version} and the checkpoint's files on every node",
        )
