"""The plan of a call: its cells in units, numbered, and which of them a shard takes.

`Engine` says where the work runs; it is checked as far as that goes without loading anything.

The file also holds what a long loop reports while it works (a progress bar, a log, or nothing), and
the Ray cluster that work may go to: the named one, else one of this machine's own.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from strop.errors import Incomplete, UserError, unknown_name
from strop.runtime import bounded_workers, source_path

if TYPE_CHECKING:
    from strop.spec.generator import CellSpec


# ---------------------------------------------------------------------------------------- cluster

STORE_BYTES = 128 * 2**20
"""Of a cluster that is started here: outputs are small, and memory is for models."""


def has_gpus(address: str | None) -> bool:
    """Whether actors that may be anywhere will be on GPUs; a cluster that is named is joined.

    One that is not there yet will be of this machine, and is not started for the question.
    """
    import ray

    if named(address) is None and not ray.is_initialized():
        import torch

        return torch.cuda.device_count() > 0
    join(address)
    return gpus_of(machines()) > 0


def gpus_of(nodes: list[Any]) -> int:
    """How many these machines have together."""
    return int(sum(node["Resources"].get("GPU", 0) for node in nodes))


def named(address: str | None) -> str | None:
    """The cluster that is meant: RAY_ADDRESS names one too, as inside a job that Ray started."""
    return address or os.environ.get("RAY_ADDRESS") or None


def join(address: str | None) -> None:
    """Be part of a cluster: the one that is named, or one of this machine's own."""
    import ray

    if ray.is_initialized():
        return
    address = named(address)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as later releases do
    with _own_signals():
        if address is not None:
            try:
                _knock(address)
                ray.init(address=address, **quiet)
            except OSError as error:
                raise UserError(
                    "There is no Ray cluster to join.",
                    where="`ray_address`",
                    got=f"{address}: {str(error).splitlines()[0][:200]}",
                    fix="start one on the head node, or leave `ray_address` and RAY_ADDRESS out",
                ) from error
            return
        # Ray's own is 15: beside any other work of the machine its actors would hardly move.
        os.environ.setdefault("RAY_worker_niceness", "0")
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = source_path()  # for the workers that it starts
        try:
            # "local": never a cluster of somebody else who works on this machine
            settings: dict[str, Any] = {"address": "local", "object_store_memory": STORE_BYTES}
            ray.init(**settings, include_dashboard=False, **quiet)
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before


def _knock(address: str) -> None:
    """Whether anybody listens at host:port; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and "/" not in host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray ends the process at SIGTERM; ours keeps what is finished first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def machines() -> list[Any]:
    """Machines that can work."""
    import ray

    return [
        node
        for node in ray.nodes()
        if node["Alive"] and any(node["Resources"].get(kind) for kind in ("CPU", "GPU"))
    ]


# ------------------------------------------------------------------------------------------- plan

KINDS = ("local", "devices", "ray")
WORKERS = "workers"
"""The device of a model that GPUs of other processes load: here it has no weights."""
_DEVICE = re.compile(r"cuda(:\d+)?|cpu")
_SOME_CPUS = re.compile(r"cpu:([1-9]\d{0,8})")


@dataclass(frozen=True)
class Engine:
    """Where units run. It changes nothing about the outputs, so it is no part of any identity."""

    kind: str = "local"
    """`local`: in this process; `devices`: a process per device; `ray`: an actor per device."""
    devices: str | None = None
    """`cuda:0,cuda:1`, `all`, or `cpu:2` for two processes that share the processor."""
    address: str | None = None
    """Of a Ray cluster to join, `auto` for the one of this machine; None starts one."""
    shard: Shard | None = None
    """Which part of the plan is this process's."""

    @classmethod
    def of(
        cls,
        engine: str | Engine | None = None,
        devices: str | None = None,
        ray_address: str | None = None,
        shard: str | None = None,
    ) -> Engine:
        """From what a user says."""
        if isinstance(engine, Engine):
            return engine
        kind = engine or ("local" if devices is None else "devices")
        if kind not in KINDS:
            raise unknown_name("engine", kind, KINDS, where="`engine`")
        if ray_address is not None and kind != "ray":
            raise _belongs("ray_address", "`engine=ray`")
        if devices is not None and kind == "local":
            raise _belongs("devices", "`engine=devices` or `engine=ray`")
        workers = 0
        for word in (devices or "all").split(","):
            if word != "all" and not (_DEVICE.fullmatch(word) or _SOME_CPUS.fullmatch(word)):
                raise UserError(
                    "This is not a device.",
                    where="`devices`",
                    got=word or "nothing",
                    expected="cuda:0,cuda:1, all, or cpu:2",
                )
            several = _SOME_CPUS.fullmatch(word)
            workers += int(several[1]) if several else 1
        bounded_workers(workers, on_this_machine=kind == "devices")
        part = None if shard is None else Shard.read(shard)
        return cls(kind, devices, ray_address, part)

    @property
    def parallel(self) -> bool:
        """Whether others than this process work: models are loaded there, not here."""
        return self.kind != "local"

    def at_home(self, device: str) -> str:
        """Where this process itself loads a model, which it asks for little more than its name.

        For workers on GPUs it is described without weights, so that it takes their dtype and no
        memory.
        """
        if not self.parallel:
            return device
        places = self.places()
        if self.kind == "ray" and places == ["all"]:
            return WORKERS if has_gpus(self.address) else "cpu"
        return "cpu" if "cpu" in places else WORKERS

    def places(self) -> list[str]:
        """A device per worker; one place `all` where they are to be counted."""
        devices: list[str] = []
        for word in (self.devices or "all").split(","):
            several = _SOME_CPUS.fullmatch(word)
            devices += ["cpu"] * int(several[1]) if several else [word]
        return ["all"] if "all" in devices else devices

    def own(self, plan: Sequence[Unit]) -> list[Unit]:
        """The units of a plan that this process may take."""
        return [unit for unit in plan if self.shard is None or self.shard.has(unit)]

    def refuse_shard(self, verb: str) -> None:
        """For a verb whose next step depends on the results of all units before."""
        if self.shard is not None:
            raise UserError(
                f"{verb} decides what to draw next from what it has seen: shards see a part.",
                where="`shard`",
                got=self.shard,
                fix="leave `shard` out, or use `engine=devices` or `engine=ray`",
            )

    def refuse_force(self, force: Any) -> None:
        """Shards that each start the run anew would remove each other's outputs."""
        if force and self.shard is not None:
            raise UserError(
                "A shard cannot start a run anew: the others write into it.",
                where="`force`",
                fix="leave `force` out, or choose another `out`",
            )


LOCAL = Engine()


def _belongs(name: str, to: str) -> UserError:
    return UserError(f"`{name}` belongs to {to}.", where=f"`{name}`", fix=f"say {to}")


@dataclass(frozen=True)
class Unit:
    """Some outputs of one cell that one worker draws or scores in one go."""

    number: int
    """In the whole plan."""
    cell: int
    """Which of the cells that were asked for."""
    indices: tuple[int, ...]
    """A range, except where outputs answer prompts of different lengths."""

    @property
    def first(self) -> int:
        """The output that names it: no other unit of the cell has it."""
        return self.indices[0]


def cut(cells: Iterable[Iterable[Sequence[int]]]) -> list[Unit]:
    """All units of all cells, from the batches of each."""
    batches = [(cell, tuple(batch)) for cell, of_cell in enumerate(cells) for batch in of_cell]
    return [Unit(number, cell, indices) for number, (cell, indices) in enumerate(batches)]


def spelled(indices: Iterable[int]) -> str:
    """Indices as people write them: 0-7, 16."""
    ranges: list[list[int]] = []
    for index in sorted(indices):
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


class Elsewhere(Incomplete):
    """This process has done its part; what is missing is for others."""


_PLANNED: ContextVar[list[Any] | None] = ContextVar("planned", default=None)
"""In a dry run, the draws that would have been made."""


@contextmanager
def planning() -> Iterator[list[Any]]:
    """Inside it draws are noted in the list that it yields, and neither drawn nor scored."""
    noted: list[Any] = []
    token = _PLANNED.set(noted)
    try:
        yield noted
    finally:
        _PLANNED.reset(token)


def stop_if_planning(draw: Any = None) -> None:
    """In a dry run, note a draw and stop, as where another shard would go on."""
    noted = _PLANNED.get()
    if noted is None:
        return
    if draw is not None:
        noted.append(draw)
    raise Elsewhere("Nothing is drawn or scored in a dry run.")


@contextmanager
def all_parts() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """For several calls: a shard does its part of each before it says what others have not done.

    `with all_parts() as part:` around them, `with part():` around each.
    """
    elsewhere: list[Elsewhere] = []

    @contextmanager
    def part() -> Iterator[None]:
        try:
            yield
        except Elsewhere as error:
            elsewhere.append(error)

    yield part
    if elsewhere:
        raise elsewhere[0]


def refuse_missing(run: Path, missing: Mapping[str, Iterable[int]], what: str = "outputs") -> None:
    """Name the outputs that are missing, by cell, if any are."""
    lacking = [f"cell {cell[:8]}: {spelled(absent)}" for cell, absent in missing.items() if absent]
    if lacking:
        raise Elsewhere(
            f"{len(lacking)} of {len(missing)} cells lack {what}.",
            where=run,
            got="; ".join(lacking[:8])
            + (f"; and {len(lacking) - 8} more" if len(lacking) > 8 else ""),
            fix="run the other shards, then the same command again; or, if they write into runs of "
            "their own, strop merge",
        )


@dataclass(frozen=True)
class Shard:
    """One of several processes that know of each other only how many they are."""

    index: int
    count: int

    def has(self, unit: Unit) -> bool:
        """Whether a unit is its own."""
        return unit.number % self.count == self.index

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @classmethod
    def read(cls, text: str, environment: Mapping[str, str] = os.environ) -> Shard:
        """`i/n`, with i from 0, or `auto`: as a Slurm array or a launcher says."""
        if text == "auto":
            return cls._of_environment(environment)
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if not match or int(match[1]) >= int(match[2]):
            raise UserError(
                "This is not a shard.",
                where="`shard`",
                got=text,
                expected="i/n with i from 0 to n - 1, such as 0/4, or auto",
            )
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def _of_environment(cls, environment: Mapping[str, str]) -> Shard:
        def number(name: str) -> int | None:
            text = environment.get(name, "")
            return int(text) if text.isdigit() else None

        task, count = number("SLURM_ARRAY_TASK_ID"), number("SLURM_ARRAY_TASK_COUNT")
        index = None if task is None else task - (number("SLURM_ARRAY_TASK_MIN") or 0)
        if index is None or count is None:
            index, count = number("RANK"), number("WORLD_SIZE")
        if index is None or count is None or not 0 <= index < count:
            raise UserError(
                "Nothing says which shard this is.",
                where="`shard`",
                got="auto",
                expected="SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT (of an array without "
                "gaps), or RANK and WORLD_SIZE",
                fix="say which: `shard=0/4`",
            )
        return cls(index, count)


class Progress(Protocol):
    """Told what happens."""

    def expect(self, cells: Sequence[tuple[CellSpec | None, int]], what: str = "") -> None:
        """These cells come, with so many outputs to make of each; each will `start`."""

    def start(self, cell: CellSpec | None, total: int, done: int, what: str = "") -> None:
        """Work on a cell, or on a file of texts, begins; `done` of its `total` are on disk."""

    def advance(self, outputs: int, tokens: int) -> None:
        """Some outputs were finished."""

    def waiting(self, cell: CellSpec) -> None:
        """Another process is at work on a cell, and this one waits for it."""


class Silent(Progress):
    """No progress."""
