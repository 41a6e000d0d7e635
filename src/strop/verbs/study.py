"""What a study is: a value. Its record holds everything that is known about it, in one file.

The command line (flags, help, printing), `strop reproduce`, the report and the docs read the
records; a study's `run` gets an `Ask` and returns a `Result`, which is a typed table and whatever
else it found. A new file in this folder with a `STUDY` is a new study; a script adds one with
`strop.register`, another package with an entry point of the group `strop.verbs`.
"""

from __future__ import annotations

import json
import pkgutil
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from strop.engine import Engine
from strop.engine.workers import keep_workers
from strop.errors import UserError, unknown_name, whole_number
from strop.progress import Progress
from strop.registry import Registry
from strop.stats.interval import plain, revived
from strop.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from strop.measure.causal import Evaluator
    from strop.measure.frame import Measured
    from strop.store import StudyFolder
    from strop.verbs.paper import PaperItem

Kind = Literal[
    "int", "float", "text", "flag", "path", "ints", "floats", "words", "counts", "axes", "many"
]
SAME: Any = object()
"""The smoke default that is the default."""
ASIDE = ("force", "device", "engine", "devices", "ray_address", "shard")
"""Parameters that no number depends on."""
SMOKE_NOTE = (
    "Measured on the embedded models: other data, another vocabulary, short outputs, a small "
    "evaluator and a judge that counts. Compare the shape of the columns, not the numbers."
)


@dataclass(frozen=True)
class Parameter:
    """One thing that a study can be asked for: a flag, a YAML key, an argument of `run`."""

    name: str
    help: str
    default: Any = None
    kind: Kind = "text"
    smoke: Any = SAME
    """The default of a smoke run, where it is another."""
    least: int = 0
    most: int = 2**31
    choices: tuple[str, ...] = ()
    shown: str | None = None
    """What the help says of the default, where it follows from something else."""

    def checked(self, value: Any) -> Any:
        """The value in its one form, refused before any work if it cannot be one."""
        if value is None or self.kind == "flag":
            return value
        if self.kind == "int":
            return whole_number(self.name, value, self.least, self.most)
        if self.kind in ("ints", "counts"):
            found = [whole_number(self.name, one, self.least, self.most) for one in value]
            return self._some(found)
        if self.kind in ("floats", "words", "many"):
            for one in value:
                self._known(one)
            return self._some(list(value))
        if self.kind == "path" and not Path(value).exists():
            raise UserError("There is no such file.", where=f"`{self.name}`", got=value)
        self._known(value)
        if value == "":
            raise UserError(f"`{self.name}` is empty.", where=f"`{self.name}`", fix="leave it out")
        return value

    def _known(self, value: Any) -> None:
        if self.choices and value not in self.choices:
            words = self.name.replace("_", " ")
            raise unknown_name(words, str(value), self.choices, where=f"`{self.name}`")

    def _some(self, values: list[Any]) -> tuple[Any, ...]:
        if not values:
            raise UserError(
                f"`{self.name}` is empty.", where=f"`{self.name}`", expected="at least one value"
            )
        return tuple(dict.fromkeys(values)) if self.kind != "counts" else tuple(values)


@dataclass(frozen=True)
class Sources:
    """The checkpoints that a study takes, as the command line's arguments."""

    names: tuple[str, ...]
    """One per checkpoint; a last name that ends in `...` takes any number."""
    help: str
    default: tuple[str, ...] = ()
    smoke: tuple[str, ...] | None = None
    """None: the default; empty: the study makes its own."""

    @property
    def many(self) -> bool:
        """Whether any number may be given."""
        return bool(self.names) and self.names[-1].endswith("...")


@dataclass(frozen=True)
class Ask:
    """What a study was asked for, complete and checked."""

    study: Study
    out: Path
    sources: tuple[str, ...]
    values: Mapping[str, Any]
    smoke: bool = False
    progress: Progress | None = None
    note: Callable[[str], None] = lambda _: None
    folder: StudyFolder | None = None
    """Where results of cells are kept; held while the study runs."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @cached_property
    def evaluator(self) -> Evaluator:
        """The language model that scores, loaded once and only if something is to be scored."""
        from strop.measure.known import known_evaluator

        return known_evaluator(self["evaluator"], device=self.engine.at_home(self["device"]))

    @cached_property
    def engine(self) -> Engine:
        """Where its work runs."""
        return Engine.of(*(self.values.get(name) for name in ASIDE[2:]))

    def given(self) -> dict[str, Any]:
        """For the mark: what was asked, as far as it is known without loading anything."""
        values = {k: v for k, v in self.values.items() if k not in ASIDE and v is not None}
        asked = {"checkpoints": self.sources, **values, "smoke": self.smoke}
        return json.loads(json.dumps(asked, default=str))

    def said(self, **more: Any) -> dict[str, Any]:
        """For the result: what the numbers depend on."""
        shown = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in self.values.items()
            if name not in ASIDE and value is not None
        }
        if "evaluator" in shown and isinstance(shown["evaluator"], str):
            shown["evaluator"] = self.evaluator.spec.model_dump(mode="json")
        return {"checkpoints": list(self.sources), **shown, "smoke": self.smoke, **more}


@dataclass(frozen=True)
class Result:
    """What came out: typed tables, and other numbers under their names."""

    asked: Mapping[str, Any]
    table: Table
    more: Mapping[str, Table] = field(default_factory=dict)
    """Further tables, in the order in which they are printed."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What a reader of the numbers must know."""
    missing: str | None = None
    """What could not be measured; the same command tries it again."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """Those that are printed, the main one first."""
        return tuple(one for one in (self.table, *self.more.values()) if one.shown)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "asked": dict(self.asked),
            **plain(self.facts),
            **self.table.document(),
            "tables": {name: table.document() for name, table in self.more.items()},
            "notes": list(self.notes),
            "missing": self.missing,
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Result:
        """What `document` wrote."""
        known = {"asked", "title", "columns", "rows", "pivot", "shown", "tables", "notes"}
        known |= {"missing", "format", "study", "command"}
        return cls(
            asked=document["asked"],
            table=Table.read(document),
            more={name: Table.read(one) for name, one in document["tables"].items()},
            facts={k: revived(v) for k, v in document.items() if k not in known},
            notes=tuple(document["notes"]),
            missing=document["missing"],
        )


@dataclass(frozen=True)
class Study:
    """One study."""

    name: str
    title: str
    """What it asks, in one line."""
    about: str
    """What its help says."""
    sources: Sources
    parameters: tuple[Parameter, ...]
    run: Callable[[Ask], Result]
    draw: Callable[[Result], Figure] | None = None
    items: tuple[PaperItem, ...] = ()
    """The paper's tables and figures that it measures."""
    runs: tuple[str, ...] = ()
    """Run directories inside its own; empty where its cells are files."""
    kind: str = "study"
    """Of its directory; one of another kind is made by a verb of its own, `strop NAME`."""
    next: Callable[[Ask], str] = lambda ask: (
        f"strop report {quoted(ask.out)} -o {quoted(ask.out)}.html"
    )
    """The next useful command."""
    examples: tuple[str, ...] = ()
    check: Callable[[Ask], None] = lambda _: None
    """Refuses what does not go together, before anything is loaded or written."""
    beside_cells: Callable[[Result, Sequence[Measured]], tuple[Table, Figure | None]] | None = None
    """What it says beside the cells of a run, for the page that shows both."""
    stamp: Callable[[Ask], Mapping[str, Any]] | None = None
    """All that its answer depends on, if that can be told without loading anything: the same
    command is then answered from disk at once."""
    version: str | None = None
    """Of a study of your own: another one where it measures something else. None is built in."""

    def parameter(self, name: str) -> Parameter:
        """One by its name."""
        for one in self.parameters:
            if one.name == name:
                return one
        raise unknown_name("parameter", name, [p.name for p in self.parameters], where=self.name)

    @property
    def has_smoke(self) -> bool:
        """Whether it can be tried on the embedded models alone."""
        return self.sources.smoke is not None or any(p.smoke is not SAME for p in self.parameters)

    def ask(
        self,
        out: Path,
        sources: Sequence[str] = (),
        *,
        smoke: bool = False,
        progress: Progress | None = None,
        note: Callable[[str], None] = lambda _: None,
        **given: Any,
    ) -> Ask:
        """Everything that it needs, from what was given and the defaults; checked."""
        for name in given:
            self.parameter(name)
        values = {}
        for one in self.parameters:
            value = given.get(one.name)
            if value is None:
                value = one.smoke if smoke and one.smoke is not SAME else one.default
            values[one.name] = one.checked(value)
        found = self._sources(sources, smoke)
        ask = Ask(self, Path(out), found, values, smoke, progress, note)
        ask.engine.refuse_force(values.get("force"))
        self.check(ask)
        return ask

    def _sources(self, given: Sequence[str], smoke: bool) -> tuple[str, ...]:
        mine = self.sources
        usual = mine.smoke if smoke and mine.smoke is not None else mine.default
        if smoke and given and mine.many and mine.smoke == ():
            raise UserError(
                "A smoke run brings its own models.",
                where="`smoke`",
                got=", ".join(given),
                fix="leave out `smoke`, or the models",
            )
        # What is left out at the end is as usual: LESS of `less-is-more MORE`.
        found = tuple(given) if mine.many and given else (*given, *usual[len(given) :])
        wanted = len(mine.names)
        if not mine.many and len(found) > wanted:
            raise UserError(
                f"{self.name} takes {wanted} checkpoints.",
                got=", ".join(given),
                where="`checkpoint`",
            )
        return found


def quoted(path: Path) -> str:
    """A path as a shell reads it."""
    return shlex.quote(str(path))


def report_command(out: Path) -> str:
    """The command that shows a directory as a page."""
    return f"strop report {quoted(out)} -o {quoted(out)}.html"


def _builtin() -> Iterator[Study]:
    package = import_module("strop.verbs")
    for module in pkgutil.iter_modules(package.__path__):
        found = getattr(import_module(f"strop.verbs.{module.name}"), "STUDY", None)
        if isinstance(found, Study):
            yield found


STUDIES: Registry[Study] = Registry("study", Study, "strop.studies", _builtin)
"""By name: those of this folder, a script's, those of other packages."""


def studies() -> dict[str, Study]:
    """All studies by name."""
    return dict(sorted(STUDIES.items()))


def find(name: str) -> Study:
    """One by its name."""
    return STUDIES.find(name)


def run(
    which: str | Study,
    *,
    out: str | Path,
    sources: Sequence[str] = (),
    smoke: bool = False,
    progress: Progress | None = None,
    note: Callable[[str], None] = lambda _: None,
    **given: Any,
) -> Result:
    """Run a study into a directory; the same call continues it, or answers from what is there."""
    record = find(which) if isinstance(which, str) else which
    return carry_out(
        record.ask(Path(out), sources, smoke=smoke, progress=progress, note=note, **given)
    )


def carry_out(ask: Ask) -> Result:
    """Run what was asked, and write the result, its table and its figure."""
    with keep_workers():  # a study draws and scores many times
        return _carried_out(ask)


def _carried_out(ask: Ask) -> Result:
    record = ask.study
    from strop.store import StudyFolder

    force = bool(ask.values.get("force"))
    folder = StudyFolder(
        ask.out, record.kind, record.name, version=record.version, inside=record.runs
    )
    command = None if record.stamp is None else record.stamp(ask)
    with folder.writing(ask.given(), force=force, together=ask.engine.shard is not None):
        known = None if force or command is None else _answered(folder, command)
        if known is not None:
            return known
        result = record.run(replace(ask, folder=folder))
        if record.version is not None:  # which version of a plug-in was asked
            result = replace(result, asked={**result.asked, "version": record.version})
        if record.draw is not None:
            from strop.figures import write_figure

            draw = record.draw
            write_figure(lambda: draw(result), folder.figures())
        stamped = {} if command is None else {"command": command}
        folder.finish({**result.document(), **stamped}, result.table.csv())
    return result


def _answered(folder: StudyFolder, command: Mapping[str, Any]) -> Result | None:
    """What the same command found, if it came to an end."""
    from strop.store import study_result

    try:
        document = study_result(folder.path)
        if document is None or document["command"] != command:
            return None
        return Result.read(document)
    except (UserError, KeyError, TypeError):
        return None  # what it was made from is there, and the answer follows from it
