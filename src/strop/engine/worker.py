"""What a worker is: it takes a job up, with a model loaded, and does one unit after the other."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

SEND_SECONDS = 1.0
"""How long a worker may keep what it has finished to itself."""


class Worker(Protocol):
    """Somebody who has a model loaded."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Provenance: device, host, packages."""
        ...

    def work(self, cell: int, missing: Any) -> Iterator[Any]:
        """Do what is missing of a unit of a cell; its rows, as they are finished."""
        ...


class Job(Protocol):
    """What a worker needs to begin. It can be pickled."""

    @property
    def needs(self) -> Any:
        """Says which model it is: jobs of one kind with equal needs share what is loaded."""
        ...

    def check(self) -> None:
        """Say with a `UserError` what of it this machine lacks, before anything is loaded."""
        ...

    def load(self, device: str) -> Any:
        """The model, which takes long."""
        ...

    def open(self, loaded: Any) -> Worker:
        """Ready for units, with what was loaded for this job or one that needs the same."""
        ...


class ModelSlot:
    """Where one worker works: its device, and what is loaded there from job to job."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._loaded: dict[type[Job], tuple[Any, Any]] = {}

    def open(self, job: Job) -> Worker:
        """Take a job up."""
        if self._device.startswith("cuda:"):
            import torch

            torch.cuda.set_device(self._device)  # for libraries that ask which one is current
        kind, needs = type(job), job.needs
        if kind not in self._loaded or self._loaded[kind][0] != needs:
            # One model of a kind at a time, as a process alone has: there may be no room for two.
            self._loaded.pop(kind, None)
            gc.collect()
            self._loaded[kind] = needs, job.load(self._device)
        return job.open(self._loaded[kind][1])


@dataclass(frozen=True)
class Event:
    """What a worker has to say."""

    worker: int
    kind: Literal["ready", "found", "done", "died", "gone", "failed"]
    """ready: it has loaded (value: its facts); found: some rows of its unit; done with its unit;
    died: another takes its place; gone: none does; failed: its work raised (value: the exception).
    """
    value: Any = None


class Workers(AbstractContextManager["Workers"], Protocol):
    """Told apart by number; a worker that died comes back under its number.

    They do one job after the other, and end with this.
    """

    @property
    def size(self) -> int:
        """How many."""
        ...

    def begin(self, job: Job) -> None:
        """Let everybody take a job up; nobody is at work on another. Who has is `ready`."""
        ...

    def give(self, worker: int, cell: int, missing: Any) -> None:
        """Let a worker that is ready do what is missing of a unit of a cell."""
        ...

    def events(self, seconds: float) -> list[Event]:
        """What happened; waits up to `seconds` for something."""
        ...


def in_parts(rows: Iterator[Any]) -> Iterator[list[Any]]:
    """What is finished within a while of each other, together."""
    waiting: list[Any] = []
    last = time.monotonic()
    for one in rows:
        waiting.append(one)
        if time.monotonic() - last > SEND_SECONDS:
            yield waiting
            waiting, last = [], time.monotonic()
    if waiting:
        yield waiting
