"""A study is a value: its record holds everything about it, in one file.

The command line (flags, help, printing), `strop reproduce`, the report and the docs read the
records; a study's `run` gets an `Ask` and returns a `Result`, which is a typed table and whatever
else it found. A new file in this folder with a `STUDY` is a new study; a script adds one with
`strop.register`, another package with an entry point of the group `strop.verbs`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.assets import CHECKPOINT, EVALUATOR
from strop.engine.plan import Elsewhere, Progress
from strop.errors import UserError
from strop.registry import Registry
from strop.served.address import notes_of
from strop.served.serving import served_as
from strop.table import Table
from strop.verbs.verb import SAME, Ask, Parameter, Result, Verb, quoted, report_command, result_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from strop.measure.frame import Measured
    from strop.store import StudyFolder
    from strop.verbs.paper import PaperItem

OUT = Parameter(
    "out",
    "The directory; continued if it exists.",
    kind="place",
    flags=("-o", "--out"),
    required=True,
)
SMOKE = Parameter.flag("smoke", "On the embedded models, within minutes.")
SMOKE_NOTE = (
    "Measured on the embedded models: other data, another vocabulary, short outputs, a small "
    "evaluator and a judge that counts. Compare the shape of the columns, not the numbers."
)


@dataclass(frozen=True)
class Sources:
    """The checkpoints that a study takes, as the command line's arguments."""

    names: tuple[str, ...] = ("CHECKPOINT",)
    """One per checkpoint; a last name that ends in `...` takes any number."""
    help: str = "As for `strop sample`."
    default: tuple[str, ...] = ()
    smoke: tuple[str, ...] | None = None
    """None: the default; empty: the study makes its own."""

    @property
    def many(self) -> bool:
        """Whether any number may be given."""
        return bool(self.names) and self.names[-1].endswith("...")

    def parameters(self) -> tuple[Parameter, ...]:
        """As arguments of a command."""
        if self.many:
            listed = ", ".join(self.default) or None
            name = self.names[0]
            return (Parameter("sources", self.help, kind="many", shown=listed, argument=name),)
        usual = (*self.default, *[None] * len(self.names))
        return tuple(
            Parameter(f"source_{i}", self.help, shown=usual[i], argument=name)
            for i, name in enumerate(self.names)
        )


@dataclass(frozen=True, kw_only=True)
class Study(Verb):
    """One study: a verb with a directory, checkpoints, a table and perhaps the paper's numbers."""

    help: str = field(init=False, repr=False, compare=False, default="")
    title: str
    """What it asks, in one line."""
    about: str
    """What its help says."""
    sources: Sources = Sources(default=(CHECKPOINT,))
    draw: Callable[[Result], Figure] | None = None
    items: tuple[PaperItem, ...] = ()
    """The paper's tables and figures that it measures."""
    runs: tuple[str, ...] = ()
    """Run directories inside its own; empty where its cells are files."""
    kind: str = "study"
    """Of its directory; one of another kind is made by a verb of its own, `strop NAME`."""
    next: Callable[[Ask], str] = lambda ask: report_command(ask.out)
    """The next useful command."""
    check: Callable[[Ask], None] = lambda _: None
    """Refuses what does not go together, before anything is loaded or written."""
    needs_evaluator: Callable[[Ask], bool] = lambda _: True
    """Whether what was asked cannot be answered without an evaluator, if it takes one."""
    origins: Callable[[Ask], Sequence[str]] = lambda ask: ask.sources
    """The checkpoints, runs and texts behind its sources: a source may be a file that names one."""
    beside_cells: Callable[[Result, Sequence[Measured]], tuple[Table, Figure | None]] | None = None
    """What it shows beside the cells of a run, for the page that has both."""
    stamp: Callable[[Ask], Mapping[str, Any]] | None = None
    """All that its answer depends on, if that can be told without loading anything: the same
    command is then answered from disk at once."""
    version: str | None = None
    """Of a study of your own: another one where it measures something else. None is built in."""

    def __post_init__(self) -> None:
        words = f"{self.title}\n\n{self.about} The same command continues, or answers from disk."
        object.__setattr__(self, "help", words)

    @property
    def has_smoke(self) -> bool:
        """Whether it can be tried on the embedded models alone."""
        return self.sources.smoke is not None or any(p.smoke is not SAME for p in self.parameters)

    @property
    def takes(self) -> tuple[Parameter, ...]:
        """The directory and the checkpoints, then its own parameters."""
        smoke = (SMOKE,) if self.has_smoke else ()
        return (OUT, *self.sources.parameters(), *self.parameters, *smoke)

    def asked(self, given: Mapping[str, Any], **speaking: Any) -> Ask:
        """From a command line or a call from Python."""
        unread = dict(given)
        sources: list[str] = []
        for parameter in self.sources.parameters():
            named = unread.pop(parameter.name, None) or ()
            sources += map(str, [named] if isinstance(named, (str, Path)) else named)
        out = OUT.checked(unread.pop("out", None))
        smoke = unread.pop("smoke", False)
        return self.ask(out, sources, smoke=smoke, **speaking, **unread)

    def ask(
        self, out: Path, sources: Sequence[str] = (), *, smoke: bool = False, **given: Any
    ) -> Ask:
        """Everything that it needs, from what was given and the defaults; checked.

        `progress`, `note` and `bars` go to the Ask, everything else is a parameter.
        """
        speaking = {k: given.pop(k) for k in ("progress", "note", "bars") if k in given}
        values = self.values(given, smoke=smoke)
        ask = Ask(self, Path(out), self._sources(sources, smoke), values, smoke, **speaking)
        ask.check_engine()
        self.check(ask)
        unnamed = given.get("evaluator") is None and values.get("evaluator") == EVALUATOR
        if unnamed and self.needs_evaluator(ask):
            from strop.measure.score import refuse_usual_evaluator

            refuse_usual_evaluator(self.origins(ask))
        return ask

    def answer(self, ask: Ask) -> Result:
        """Run it into its directory, or answer from there, with the files and the next command."""
        result = carry_out(ask)
        if ask.values.get("dry_run"):
            return result
        names = ["result.json", "table.csv"]
        names += [f"{self.name}.{kind}" for kind in ("svg", "png")] if self.draw else []
        written = f"written: {', '.join(names)} in {quoted(ask.out)}"
        if result.missing is None:
            return replace(result, remarks=(written,), next=self.next(ask), draw=self.draw)
        again = f"strop: {result.missing}; run the same command again"
        return replace(result, remarks=(written, again), incomplete=True, draw=self.draw)

    def _sources(self, given: Sequence[str], smoke: bool) -> tuple[str, ...]:
        declared = self.sources
        usual = declared.smoke if smoke and declared.smoke is not None else declared.default
        if smoke and given and declared.many and declared.smoke == ():
            raise UserError(
                "A smoke run brings its own models.",
                where="`smoke`",
                got=", ".join(given),
                fix="leave out `smoke`, or the models",
            )
        # What is left out at the end is as usual: LESS of `less-is-more MORE`.
        sources = tuple(given) if declared.many and given else (*given, *usual[len(given) :])
        wanted = len(declared.names)
        if not declared.many and len(sources) > wanted:
            raise UserError(
                f"{self.name} takes {wanted} checkpoints.",
                got=", ".join(given),
                where="`checkpoint`",
            )
        return sources


def _builtin() -> Iterator[Study]:
    package, by_name = import_module("strop.verbs"), {}
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.endswith("_figures"):
            continue  # no study is in there, and what draws is loaded when something is drawn
        members = vars(import_module(f"strop.verbs.{module.name}")).values()
        by_name |= {study.name: study for study in members if isinstance(study, Study)}
    yield from by_name.values()


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
    """Run a study into a directory; the same call continues it, or answers from disk."""
    record = find(which) if isinstance(which, str) else which
    return carry_out(
        record.ask(Path(out), sources, smoke=smoke, progress=progress, note=note, **given)
    )


def carry_out(ask: Ask) -> Result:
    """Run what was asked, and write the result, its table and its figure."""
    if ask.values.get("dry_run"):
        from strop.verbs.dry_run import dry_run

        return dry_run(ask)
    from strop.engine.workers import keep_workers

    # a study draws and scores many times
    with keep_workers(), served_as(ask.values, ask.out):
        try:
            return _run_in_folder(ask)
        except Elsewhere:
            if not ask.values.get("wait"):
                raise
            return _run_in_folder(ask.after_its_shard())


def _run_in_folder(ask: Ask) -> Result:
    record = ask.verb
    assert isinstance(record, Study)
    from strop.store import StudyFolder

    force = bool(ask.values.get("force"))
    folder = StudyFolder(
        ask.out, record.kind, record.name, version=record.version, inside=record.runs
    )
    command = None if record.stamp is None else record.stamp(ask)
    together = ask.engine.shard is not None or bool(ask.values.get("wait"))
    with folder.writing(ask.mark(), force=force, together=together):
        answer = None if force or command is None else _answer_on_disk(folder, command)
        if answer is not None:
            return answer
        result = record.run(replace(ask, folder=folder))
        probed = [note for note in notes_of(record.origins(ask)) if note not in result.notes]
        result = replace(result, notes=(*result.notes, *probed))
        if record.version is not None:  # which version of a plug-in was asked
            result = replace(result, asked={**result.asked, "version": record.version})
        if record.draw is not None:
            from strop.figures import write_figure

            draw = record.draw
            write_figure(lambda: draw(result), folder.figures())
        stamped = {} if command is None else {"command": command}
        folder.finish({**result.document(), **stamped}, result.table.csv())
    return result


def _answer_on_disk(folder: StudyFolder, command: Mapping[str, Any]) -> Result | None:
    """What the same command found, if it came to an end."""
    from strop.store import study_result
    from strop.store.folder import RESULT

    try:
        document = study_result(folder.path)
        if document is None or document["command"] != command:
            return None
        return result_of(document, folder.path / RESULT)
    except (UserError, KeyError):
        return None  # its sources are there, and the answer follows from them
