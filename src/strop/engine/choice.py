"""Which engine runs the work: a value, checked as far as that goes without loading anything."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from strop.bounds import bounded_workers
from strop.engine.plan import Shard, Unit
from strop.errors import UserError, unknown_name

KINDS = ("local", "devices", "ray")
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
                    "This is no device.",
                    where="`devices`",
                    got=word or "nothing",
                    expected="cuda:0,cuda:1, all, or cpu:2",
                )
            some = _SOME_CPUS.fullmatch(word)
            workers += int(some[1]) if some else 1
        bounded_workers(workers, here=kind == "devices")
        found = None if shard is None else Shard.read(shard)
        return cls(kind, devices, ray_address, found)

    @property
    def parallel(self) -> bool:
        """Whether others than this process work: models are loaded there, not here."""
        return self.kind != "local"

    def at_home(self, device: str) -> str:
        """Where this process itself loads a model, which it asks for little more than its name."""
        return "cpu" if self.parallel else device

    def places(self) -> list[str]:
        """A device per worker; one place `all` where they are to be counted."""
        found: list[str] = []
        for word in (self.devices or "all").split(","):
            some = _SOME_CPUS.fullmatch(word)
            found += ["cpu"] * int(some[1]) if some else [word]
        return ["all"] if "all" in found else found

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
