"""`pytest --cpu-times=FILE`: processor seconds of every test and fixture, one JSON line each.

They count the processes that a test started and waited for, and hold on a machine that does other
work too; seconds on the clock do not. `scripts/durations.py` makes the list of the slowest.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import warm_processes

LONGER = ("session", "package", "module", "class")
"""Scopes of fixtures that several tests share: their seconds belong to no test."""


def used() -> float:
    """Processor seconds of this process and of its children that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both) + warm_processes.seconds


class CpuTimes:
    """Writes a line when a test ends, when a fixture is made, and when the worker ends."""

    def __init__(self, file: Path, worker: str) -> None:
        self.file = file
        self.worker = worker
        self.shared = 0.0

    @contextmanager
    def line(self, **about: Any) -> Generator[None]:
        cpu, clock, shared = used(), time.monotonic(), self.shared
        yield
        spent = used() - cpu
        if about["what"] == "test":
            spent -= self.shared - shared
        elif about["scope"] in LONGER:
            self.shared = shared + spent  # what was made inside this fixture is part of it
        self.write(cpu=round(spent, 3), clock=round(time.monotonic() - clock, 3), **about)

    def write(self, **line: Any) -> None:
        with self.file.open("a", encoding="utf-8") as out:  # one write per line: workers share it
            out.write(json.dumps({"worker": self.worker, **line}) + "\n")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        with self.line(what="test", name=item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: Any, request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        place = request.node.nodeid.partition("::")[0] or "session"
        name = f"{place}::{fixturedef.argname}"
        with self.line(what="fixture", name=name, scope=fixturedef.scope):
            return (yield)

    def pytest_sessionfinish(self) -> None:
        self.write(what="worker", name=self.worker, cpu=round(used(), 3))


def record(config: pytest.Config) -> None:
    """Start the record if it is asked for; the workers of xdist keep it, not their host."""
    file = config.getoption("--cpu-times")
    worker = getattr(config, "workerinput", {}).get("workerid")
    if file and (worker or not config.getoption("numprocesses", None)):
        config.pluginmanager.register(CpuTimes(Path(file), worker or "alone"))
