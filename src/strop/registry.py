"""One record for each thing that can be added: built in, from a script, or from another package.

A `Registry` is a mapping from names to records. The built-in ones come first; `strop.register` adds
a script's; a package's arrive through its entry points (`strop.samplers`, `strop.families`,
`strop.metrics`, `strop.studies`, `strop.judges`), which are read only when a name is asked for that
is not built in, or when all are listed. A plug-in that cannot be loaded, or whose name is taken, is
left out and remembered: `strop doctor` tells why, and no other command suffers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, Protocol, TypeVar

from strop.errors import UserError, unknown_name

__all__ = ["Problem", "Record", "Reference", "Registry", "problems", "register", "resolve"]

Reference = str | Callable[..., Any]
"""Something that need not be loaded yet: `package.module:name`, or the thing itself."""

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class Record(Protocol):
    """What every record has."""

    @property
    def name(self) -> str:
        """What users write."""
        ...

    @property
    def version(self) -> str | None:
        """Of a plug-in: part of the identity of what it makes. None is built in."""
        ...


R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Problem:
    """A plug-in that is not there though somebody installed it."""

    group: str
    """The entry points' group, such as `strop.samplers`."""
    name: str
    package: str
    """The distribution that brings it."""
    error: str
    """What went wrong, in one line."""


class Registry(Mapping[str, R], Generic[R]):
    """The records of one kind by name. Listing one shows those that can be used."""

    def __init__(
        self, kind: str, record: type[R], group: str, builtin: Callable[[], Iterable[R]]
    ) -> None:
        self.kind, self.record, self.group = kind, record, group
        self._find_builtin = builtin
        self._own: dict[str, R] | None = None
        self._added: dict[str, R] = {}
        self._plugged: dict[str, R] | None = None
        self._problems: list[Problem] = []
        _REGISTRIES.append(self)

    @property
    def builtin(self) -> Mapping[str, R]:
        """What the package itself brings."""
        if self._own is None:
            self._own = {one.name: one for one in self._find_builtin()}
        return self._own

    def __getitem__(self, name: str) -> R:
        for known in (self.builtin, self._added):
            if name in known:
                return known[name]
        return self._plugins()[name]

    def __contains__(self, name: object) -> bool:
        return name in self.builtin or name in self._added or name in self._plugins()

    def __iter__(self) -> Iterator[str]:
        yield from {**self.builtin, **self._added, **self._plugins()}

    def __len__(self) -> int:
        return len(list(iter(self)))

    def find(self, name: str, where: str | None = None) -> R:
        """The record of a name that a user wrote, or an error that helps."""
        if name in self:
            return self[name]
        for one in self._problems:
            if one.name == name:
                raise UserError(
                    f"The {self.kind} {name!r} of the package {one.package!r} cannot be used.",
                    where=where,
                    got=one.error,
                    fix="repair or update that package; `strop doctor` lists all such problems",
                )
        raise unknown_name(self.kind, name, self, where=where)

    def add(self, record: R, *, replace: bool = False) -> None:
        """Add a record for this process; `replace` allows for one that was added before."""
        wrong = self._unusable(record)
        if wrong is not None:
            raise UserError(f"The {self.kind} cannot be registered.", got=wrong)
        if record.name in self and not (replace and record.name in self._added):
            raise UserError(
                f"There is a {self.kind} {record.name!r} already.",
                where=f"the name of a {self.kind}",
                fix="choose another name; with replace=True a script may change its own record",
            )
        self._added[record.name] = record

    def forget(self, name: str) -> None:
        """Take back what `add` did."""
        self._added.pop(name, None)

    def problems(self) -> list[Problem]:
        """The plug-ins of this kind that were left out."""
        self._plugins()
        return list(self._problems)

    def plugins(self) -> Mapping[str, R]:
        """What other packages brought, by name."""
        return dict(self._plugins())

    def _plugins(self) -> dict[str, R]:
        if self._plugged is None:
            self._plugged = {}  # first of all: a plug-in may look into the registry while it loads
            for point in sorted(entry_points(group=self.group), key=_package):
                self._plug(point, self._plugged)
        return self._plugged

    def _plug(self, point: EntryPoint, plugged: dict[str, R]) -> None:
        try:
            record = point.load()
        except BaseException as error:
            # Whatever a foreign module does when it is imported, other commands go on.
            if isinstance(error, KeyboardInterrupt):
                raise
            wrong = f"{type(error).__name__}: {error}".partition("\n")[0][:300]
        else:
            wrong = self._unusable(record)
            if wrong is None and record.name != point.name:
                wrong = f"its entry point is called {point.name!r}, its record {record.name!r}"
            if wrong is None and record.name in {**self.builtin, **self._added, **plugged}:
                wrong = f"the name {record.name!r} is taken; the one that was there first stays"
            if wrong is None:
                plugged[record.name] = record
        if wrong is not None:
            self._problems.append(Problem(self.group, point.name, _package(point), wrong))

    def _unusable(self, record: Any) -> str | None:
        """Why a record of somebody else's cannot be taken, in one line; None where it can."""
        if not isinstance(record, self.record):
            return f"it is a {type(record).__name__}, not a {self.record.__name__} record"
        if not isinstance(record.name, str) or not _NAME.fullmatch(record.name):
            return f"the name {record.name!r} is not made of small letters, digits and hyphens"
        if not isinstance(record.version, str) or not record.version:
            return "it has no `version`, which tells its results from a changed one's"
        return None


_REGISTRIES: list[Registry[Any]] = []


def register(record: Record, *, replace: bool = False) -> None:
    """Add a sampler, family, metric, study or judge of your own for this process."""
    for registry in _REGISTRIES:
        if isinstance(record, registry.record):
            registry.add(record, replace=replace)
            return
    raise UserError(
        "This is no record that can be registered.",
        got=type(record).__name__,
        expected="one of "
        + ", ".join(sorted(registry.record.__name__ for registry in _REGISTRIES)),
    )


def problems() -> list[Problem]:
    """Everything that `strop doctor` has to tell about plug-ins of the kinds loaded so far."""
    return [problem for registry in _REGISTRIES for problem in registry.problems()]


def resolve(reference: Reference) -> Any:
    """The thing itself."""
    if not isinstance(reference, str):
        return reference
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown package"
