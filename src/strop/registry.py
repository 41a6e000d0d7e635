"""One record for each thing that can be added: built in, from a script, or from another package.

A `Registry` is a mapping from names to records. The built-in ones come first; `strop.register` adds
a script's; a package's arrive through its entry points (`strop.samplers`, `strop.families`,
`strop.metrics`, `strop.studies`, `strop.judges`, `strop.tasks`), read only when a name is asked for
that is not built in, or when all are listed. A plug-in that cannot be loaded, or whose name is
taken, is left out and remembered: `strop doctor` tells why, and no other command suffers.

`loader` makes the names of a package load on first use, so that importing it costs nothing.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from strop.errors import UserError, missing_package, unknown_name

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@cache
def homes(package: str) -> dict[str, tuple[str, str]]:
    """Where the names of a package live that load on first use: module, and name there.

    They are what its file imports for type checkers, so that they are listed once.
    """
    return {
        imported.asname or imported.name: (node.module or "", imported.name)
        for block in ast.parse(inspect.getsource(sys.modules[package])).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for imported in node.names
    }


def loader(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names load on first use.

    Where a module needs an optional package that is not installed, the error names the remedy.
    """

    def load(name: str) -> Any:
        if name not in sys.modules[package].__all__:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, own_name = homes(package)[name]
        try:
            value = getattr(import_module(module), own_name)
        except ModuleNotFoundError as error:
            remedy = missing_package(error)
            if remedy is None:
                raise
            raise remedy from error
        setattr(sys.modules[package], name, value)
        return value

    return load


PREFIX = "strop."
"""How the groups of entry points begin."""

Reference = str | Callable[..., Any]
"""Something that need not be loaded yet: `package.module:name`, or the thing itself."""

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class Record(Protocol):
    """The fields that every record has."""

    @property
    def name(self) -> str:
        """The name that users write."""
        ...

    @property
    def version(self) -> str | None:
        """Of a plug-in: part of the identity of what it makes. None is built in."""
        ...


R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Plugin:
    """A record that another package brought."""

    kind: str
    """What it is, in words: a metric, a study."""
    name: str
    package: str
    """The distribution that brings it."""
    version: str
    """The record's own, which is not the package's."""


@dataclass(frozen=True)
class BrokenPlugin:
    """A plug-in that is installed but cannot be used."""

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
        self._packages: dict[str, str] = {}
        self._problems: list[BrokenPlugin] = []
        _REGISTRIES.append(self)

    @property
    def builtin(self) -> Mapping[str, R]:
        """The records of strop itself."""
        if self._own is None:
            self._own = {record.name: record for record in self._find_builtin()}
        return self._own

    def without_plugins(self) -> Mapping[str, R]:
        """Built-in and added records: everything that needs no other package."""
        return {**self.builtin, **self._added}

    def __getitem__(self, name: str) -> R:
        local_records = self.without_plugins()
        return local_records[name] if name in local_records else self._plugins()[name]

    def __contains__(self, name: object) -> bool:
        return name in self.without_plugins() or name in self._plugins()

    def __iter__(self) -> Iterator[str]:
        yield from {**self.without_plugins(), **self._plugins()}

    def __len__(self) -> int:
        return len(list(iter(self)))

    def find(self, name: str, where: str | None = None) -> R:
        """The record of a name that a user wrote, or an error that helps."""
        if name in self:
            return self[name]
        wrong = self.problem(name)
        if wrong is None:
            raise unknown_name(self.kind, name, self, where=where)
        raise UserError(
            f"The {self.kind} {name!r} of the package {wrong.package!r} cannot be used.",
            where=where,
            got=wrong.error,
            fix="repair or update that package; `strop doctor` lists all such problems",
        )

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

    def problems(self) -> list[BrokenPlugin]:
        """The plug-ins of this kind that were left out."""
        self._plugins()
        return list(self._problems)

    def problem(self, name: str) -> BrokenPlugin | None:
        """Why a plug-in was left out; None for a name that is not installed."""
        return next((problem for problem in self.problems() if problem.name == name), None)

    def plugins(self) -> Mapping[str, R]:
        """The records of other packages by name."""
        return dict(self._plugins())

    def leave_out(self, name: str, why: str) -> None:
        """Do without a plug-in that turned out to be unusable; a problem from then on."""
        if self._plugins().pop(name, None) is not None:
            self._problems.append(BrokenPlugin(self.group, name, self._packages.pop(name), why))

    def described(self) -> list[Plugin]:
        """A description of every plug-in of this kind."""
        return [
            Plugin(self.kind, name, self._packages[name], str(record.version))
            for name, record in self._plugins().items()
        ]

    def _plugins(self) -> dict[str, R]:
        if self._plugged is None:
            from importlib.metadata import entry_points  # slow to load: not when nobody asks

            self._plugged = {}  # first of all: a plug-in may look into the registry while it loads
            for point in sorted(entry_points(group=self.group), key=_package):
                self._plug(point, self._plugged)
        return self._plugged

    def _plug(self, point: EntryPoint, plugged: dict[str, R]) -> None:
        try:
            # What a module prints while it is imported is no part of a command's answer.
            with redirect_stdout(sys.stderr):
                record = point.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # Whatever a foreign module does when it is imported, other commands go on.
            wrong = one_line(error)
        else:
            wrong = self._unplugged(point, record, plugged)
            if wrong is None:
                plugged[record.name] = record
                self._packages[record.name] = _package(point)
        if wrong is not None:
            self._problems.append(BrokenPlugin(self.group, point.name, _package(point), wrong))

    def _unplugged(self, point: EntryPoint, record: Any, plugged: Mapping[str, R]) -> str | None:
        """Why the record of an entry point is left out; None where it is not."""
        wrong = self._unusable(record)
        if wrong is None and record.name != point.name:
            wrong = f"its entry point is called {point.name!r}, its record {record.name!r}"
        if wrong is None and record.name in {**self.without_plugins(), **plugged}:
            owner = self._packages.get(record.name, "strop")
            wrong = f"the name {record.name!r} is taken by {owner}; the one that was first stays"
        return wrong

    def _unusable(self, record: Any) -> str | None:
        """Why another package's record cannot be used, in one line; None where it can."""
        if not isinstance(record, self.record):
            return f"it is a {type(record).__name__}, not a {self.record.__name__} record"
        if not isinstance(record.name, str) or not _NAME.fullmatch(record.name):
            return f"the name {record.name!r} is not made of small letters, digits and hyphens"
        if not isinstance(record.version, str) or not record.version:
            return "it has no `version`, which tells its results from a changed one's"
        return None


_REGISTRIES: list[Registry[Any]] = []


def register(record: Record, *, replace: bool = False) -> None:
    """Add a sampler, family, metric, study, judge or task of your own for this process."""
    for registry in _REGISTRIES:
        if isinstance(record, registry.record):
            registry.add(record, replace=replace)
            return
    raise UserError(
        "This is not a record that can be registered.",
        got=type(record).__name__,
        expected="one of "
        + ", ".join(sorted(registry.record.__name__ for registry in _REGISTRIES)),
    )


def plugins() -> list[Plugin]:
    """The records of other packages, of the kinds loaded so far."""
    return [plugin for registry in _REGISTRIES for plugin in registry.described()]


def versions() -> list[list[str]]:
    """Kind, name and version of every record that strop does not bring itself."""
    triples = {
        (registry.kind, name, str(registry[name].version))
        for registry in _REGISTRIES
        for name in registry
        if registry[name].version is not None
    }
    return [list(triple) for triple in sorted(triples)]


def problems() -> list[BrokenPlugin]:
    """The plug-ins that cannot be used, of the kinds loaded so far."""
    return [problem for registry in _REGISTRIES for problem in registry.problems()]


def strays() -> list[BrokenPlugin]:
    """Entry points of unknown groups; meaningful once all kinds are loaded."""
    from importlib.metadata import entry_points

    groups = sorted(registry.group for registry in _REGISTRIES)
    wrong = "there is no such group; the groups are " + ", ".join(groups)
    points = entry_points()
    return [
        BrokenPlugin(point.group, point.name, _package(point), wrong)
        for group in sorted(points.groups)
        if group.startswith(PREFIX) and group not in groups
        for point in points.select(group=group)
    ]


def resolve(reference: Reference) -> Any:
    """The object that a reference names."""
    if not isinstance(reference, str):
        return reference
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def one_line(error: BaseException) -> str:
    """A short text of an error."""
    return f"{type(error).__name__}: {error}".partition("\n")[0][:300]


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown package"
