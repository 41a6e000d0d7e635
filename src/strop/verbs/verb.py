"""A verb is a value: its record says what it takes, how it runs, and how its help reads.

The command line makes a command from it, Python a function, and both use the same names: a
parameter is a flag, a YAML key and an argument. `run` gets an `Ask`, in which everything is
complete and checked, and returns a `Result`.

A `Result` is the answer: what is printed, what `--json` prints, the next command, and the values.
From Python it has the sentence, the tables and the figure, and writes them as CSV, LaTeX, Markdown,
JSON, or a table of pyarrow or pandas.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from strop.engine.plan import Engine, Progress
from strop.errors import StropError, UserError, missing_package, unknown_name, whole_number
from strop.served.serving import served_as
from strop.spec.value import Cooling
from strop.stats.interval import Interval
from strop.table import Column, Table, plain, revived

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

    from strop.measure.evaluator import Evaluator
    from strop.pool import Pool
    from strop.store import StudyFolder
    from strop.training.loop import TrainingProgress as TrainingProgress


# ----------------------------------------------------------------------------------------- result


@dataclass(frozen=True)
class Facts:
    """Values under their names, printed one below the other."""

    title: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Frames:
    """A text that changes: in a terminal one after the other in its place, elsewhere some lines."""

    frames: Sequence[tuple[str, str]]
    """When, and what it is then."""


@dataclass(frozen=True)
class Strong:
    """The sentence that answers the question."""

    text: str


Part = str | Strong | Table | Facts | Frames
NO_TABLE = Table("", (), ())
COLUMNS = (Column("k", label="name"), Column("v", label="value"))


@dataclass(frozen=True)
class Result:
    """What came out: typed tables, and other numbers under their names."""

    asked: Mapping[str, Any] = field(default_factory=dict)
    table: Table = NO_TABLE
    more: Mapping[str, Table] = field(default_factory=dict)
    """Further tables, in the order in which they are printed."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What a reader of the numbers must know."""
    missing: str | None = None
    """What could not be measured; the same command tries it again."""
    parts: tuple[Part, ...] = ()
    """What is printed, where it is not the tables and the notes."""
    json: Mapping[str, Any] | None = None
    """What `--json` prints, where it is not the document of tables, facts and notes."""
    remarks: tuple[str, ...] = ()
    """Remarks beside the result."""
    next: str | None = None
    """The next useful command."""
    then: Callable[[], object] | None = None
    """What a terminal with a screen goes on to, such as the page in a browser."""
    error: StropError | None = None
    """What is wrong though there is a result: raised when that is printed."""
    incomplete: bool = False
    silent: bool = False
    """Whether another process prints it."""
    verdict_first: bool = False
    """Whether the answer stands above the tables, not below them."""
    draw: Callable[[Result], Figure] | None = None
    """Makes its figure, where it has one."""
    value: Any = None
    """The objects themselves, for a caller from Python: pools, a run, judgments."""

    def __repr__(self) -> str:
        titles = [part.title for part in self.printed() if isinstance(part, Table | Facts)]
        texts = [part.strip() for part in self.printed() if isinstance(part, str)]
        words = self.sentence or next(filter(None, [*titles, *texts]), repr(self.value))
        return f"Result({words.splitlines()[0][:300]})"

    @property
    def pools(self) -> list[Pool]:
        """Of `strop.sample`: the outputs, one pool per setting."""
        return self.value

    @property
    def tables(self) -> tuple[Table, ...]:
        """Those that are printed, the main one first."""
        if self.parts:
            return tuple(part for part in self.parts if isinstance(part, Table))
        return tuple(table for table in (self.table, *self.more.values()) if table.shown)

    def printed(self) -> tuple[Part, ...]:
        """What is printed, in order."""
        if self.parts or self.table is NO_TABLE:
            return self.parts
        parts: list[Part] = []
        for number, table in enumerate(self.tables):
            parts += [("\n" if number else "") + table.title, table]
        answer = [Strong(words) for words in self.facts.get("answer", ())]
        notes = ["", *self.notes] if self.notes else []
        if self.verdict_first:
            return (*answer, "", *parts, *notes)
        return (*parts, *notes, *([""] if answer else []), *answer)

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

    def printed_document(self) -> Mapping[str, Any]:
        """What `--json` prints of it."""
        return self.document() if self.json is None else self.json

    @property
    def sentence(self) -> str | None:
        """The answer in a sentence, where there is one."""
        answers = [*self.facts.get("answer", ())]
        answers += [part.text for part in self.parts if isinstance(part, Strong)]
        answers += self.notes
        answers += [part for part in self.parts if isinstance(part, str)]
        return answers[0].strip() if answers else None

    @property
    def frame(self) -> pa.Table:
        """The main table as columns."""
        return self.to_arrow()

    def figure(self) -> Figure:
        """Its figure."""
        if self.draw is None:
            raise UserError("There is no figure of this result.")
        return self.draw(self)

    def to_csv(self, path: str | PathLike[str] | None = None) -> str:
        """Every value of the main table, written to `path` if one is given."""
        return _write_if_asked(self._main.csv().decode(), path)

    def to_latex(self, path: str | PathLike[str] | None = None) -> str:
        """The main table as it is printed, for a paper."""
        return _write_if_asked(self._main.latex(), path)

    def to_markdown(self, path: str | PathLike[str] | None = None) -> str:
        """The main table as it is printed."""
        return _write_if_asked(self._main.markdown(), path)

    def to_json(self, path: str | PathLike[str] | None = None) -> str:
        """Everything, as `--json` prints it."""
        text = json.dumps(self.printed_document(), indent=2, allow_nan=False, default=jsonable)
        return _write_if_asked(text + "\n", path)

    def to_arrow(self) -> pa.Table:
        """The main table, for pyarrow; of an interval `x` also `x_low` and `x_high`."""
        return self._main.arrow()

    def to_pandas(self) -> Any:
        """The main table, for pandas."""
        try:
            import pandas as pd
        except ModuleNotFoundError:
            raise UserError(
                "The package 'pandas' is not installed.",
                fix="pip install pandas, or use to_arrow()",
            ) from None
        return pd.DataFrame(self.to_arrow().to_pydict())

    def _repr_html_(self) -> str:
        """For a notebook: everything that is printed."""
        return "".join(_html(part) for part in self.printed())

    @property
    def _main(self) -> Table:
        return next(iter(self.tables), NO_TABLE)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Result:
        """What `document` wrote."""
        own_keys = {"asked", "title", "columns", "rows", "pivot", "shown", "tables", "notes"}
        own_keys |= {"missing", "format", "study", "command"}
        return cls(
            asked=dict(document["asked"]),
            table=Table.read(document),
            more={name: Table.read(table) for name, table in document["tables"].items()},
            facts={k: revived(v) for k, v in document.items() if k not in own_keys},
            notes=tuple(map(str, document["notes"])),
            missing=document["missing"],
        )


def result_of(document: Mapping[str, Any], file: Path) -> Result:
    """The result that a file holds, or which file is damaged."""
    from strop.store.folder import damaged

    try:
        return Result.read(document)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise damaged(file, f"it is not what strop writes: {error!r}") from None


def grid(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A table of texts, printed as they are."""
    columns = tuple(Column(name, label=name) for name in header)
    return Table("", columns, [dict(zip(header, row, strict=True)) for row in rows])


def jsonable(value: Any) -> Any:
    """Intervals, numpy scalars and arrays, paths and the like as what JSON knows."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return value.document() if isinstance(value, Interval) else str(value)


def _write_if_asked(text: str, path: str | PathLike[str] | None) -> str:
    if path is not None:
        from strop.disk import write

        write(Path(path), text.encode())
    return text


def _html(part: Part) -> str:
    if isinstance(part, Table):
        return part.html()
    if isinstance(part, Facts):
        return Table("", COLUMNS, [{"k": k, "v": str(v)} for k, v in part.values.items()]).html()
    if isinstance(part, Strong):
        return f"<p><strong>{escape(part.text)}</strong></p>"
    words = part.frames[-1][1] if isinstance(part, Frames) else part
    return f"<p>{escape(words.strip())}</p>" if words.strip() else ""


# ------------------------------------------------------------------------------------------- verb

Kind = Literal[
    "int",
    "float",
    "share",
    "text",
    "flag",
    "path",
    "place",
    "batch",
    "ints",
    "floats",
    "numbers",
    "words",
    "counts",
    "masses",
    "many",
    "axes",
    "pairs",
    "options",
    "changes",
    "wheres",
]
"""`path` is an existing file, `place` any path; `batch` a number or `auto`. Lists: numbers or
words with commas, each once; `counts` and `masses` keep equal ones; `many` may be repeated; of
`floats` one may be a schedule of temperatures, of `numbers` none.
Mappings: `axes` (name=a,b), `pairs` (name=value), `options` (name=JSON), `changes` (name=YAML);
`wheres` are several `pairs`."""
LISTS = ("ints", "floats", "numbers", "words", "counts", "many")
SAME: Any = object()
"""The smoke default that is the default."""
RUNS_AT = ("engine", "devices", "ray_address", "shard")
"""What sets where work runs."""
SERVING = ("concurrency", "timeout", "max_calls", "max_cost", "prices", "key_env")
"""What sets how a served model is asked."""
ASIDE = ("dry_run", "force", "device", "wait", *RUNS_AT, *SERVING)
"""Parameters that no number depends on."""
PANELS = {
    "Sampler": "steps temperature precision sampler top_p grid finish spec settings implementation "
    "noise axis calls space",
    "What is drawn": "n seed seeds length prompts per_prompt chat shots bos fresh fresh_n limit",
    "Scoring": "evaluator second_evaluator span held_out clean_up own_ids vendi objective "
    "constraint guard judge",
    "Where it runs": "dry_run batch_size device dtype revision weights family load engine devices "
    "ray_address shard wait",
    "A served model": " ".join(SERVING),
}
"""The panels of a verb's help, and the parameters in each; all others stand under Options."""
PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names.split()}


@dataclass(frozen=True)
class Parameter:
    """One thing that a verb can be asked for: a flag, a YAML key, an argument."""

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
    flags: tuple[str, ...] = ()
    """How it is spelled on the command line; by default as its name."""
    argument: str = ""
    """For a value without a flag: what the help calls it. `RUN...` takes any number."""
    required: bool = False
    typed: bool = False
    """Whether it must be given on the command line; a call from Python may leave it out."""

    @classmethod
    def flag(cls, name: str, help: str, **more: Any) -> Self:
        """Yes or no; no by default."""
        return cls(name, help, False, "flag", **more)

    @classmethod
    def count(cls, name: str, help: str, default: Any = None, **more: Any) -> Self:
        """A whole number of at least one."""
        return cls(name, help, default, "int", least=1, **more)

    @classmethod
    def counts(cls, name: str, help: str, default: Any = None, **more: Any) -> Self:
        """Whole numbers of at least one."""
        return cls(name, help, default, "ints", least=1, **more)

    @classmethod
    def real(cls, name: str, help: str, default: Any = None, **more: Any) -> Self:
        """A number."""
        return cls(name, help, default, "float", **more)

    @classmethod
    def file(cls, name: str, help: str, **more: Any) -> Self:
        """An existing file."""
        return cls(name, help, kind="path", **more)

    @property
    def panel(self) -> str | None:
        """Under which heading the help shows it."""
        return None if self.argument else PANEL_OF.get(self.name)

    def checked(self, value: Any) -> Any:
        """The value in its one form, refused before any work if it cannot be one."""
        if value is None:
            if self.required:
                raise UserError(f"`{self.name}` is missing.", where=f"`{self.name}`")
            return None
        if isinstance(value, (str, Path)) and "\0" in str(value):
            raise UserError(f"`{self.name}` holds a NUL character.", where=f"`{self.name}`")
        if self.kind == "int" or (self.kind == "batch" and value != "auto"):
            return whole_number(self.name, value, self.least, self.most)
        if self.kind in LISTS:
            return self._each(value)
        if self.kind == "share":
            return self._share(value)
        if self.kind == "path" and not Path(value).exists():
            raise UserError("There is no such file.", where=f"`{self.name}`", got=value)
        if self.kind == "place":
            return Path(value)
        if self.kind in ("text", "float"):
            value = str(value) if isinstance(value, Path) else value
            self._check_choice(value)
            if value == "" and self.name != "out":  # an empty `out` has a message of its own
                raise UserError(
                    f"`{self.name}` is empty.", where=f"`{self.name}`", fix="leave it out"
                )
        return value

    def _share(self, value: Any) -> float:
        """`0.05` or `5%`."""
        words = str(value).strip()
        try:
            number = float(words.removesuffix("%")) / (100 if words.endswith("%") else 1)
        except ValueError:
            number = -1.0
        if not 0 < number < 1:
            raise UserError(
                f"`{self.name}` is a share.",
                where=f"`{self.name}`",
                got=value,
                expected="a number between 0 and 1, such as 0.05, or 5%",
            )
        return number

    def _each(self, value: Any) -> tuple[Any, ...]:
        values = list(value) if isinstance(value, (list, tuple, range)) else [value]
        if self.kind in ("ints", "counts"):
            values = [whole_number(self.name, item, self.least, self.most) for item in values]
        elif self.kind == "numbers":
            for item in values:
                self._check_plain(item)
        else:
            for item in values:
                self._check_choice(item)
        if not values:
            raise UserError(
                f"`{self.name}` is empty.", where=f"`{self.name}`", expected="at least one value"
            )
        as_given = self.kind == "counts" or self.argument
        return tuple(values) if as_given else tuple(dict.fromkeys(values))

    def _check_plain(self, value: Any) -> None:
        plain = isinstance(value, (int, float)) and not isinstance(value, (bool, Cooling))
        if not plain or not math.isfinite(value):
            raise UserError(
                f"`{self.name}` is a number here.",
                where=f"`{self.name}`",
                got=repr(value)[:80],
                expected="plain numbers: no schedule, as this is computed at one value at a time",
            )

    def _check_choice(self, value: Any) -> None:
        if self.choices and value not in self.choices:
            words = self.name.replace("_", " ")
            raise unknown_name(words, str(value), self.choices, where=f"`{self.name}`")


class Bars(Protocol):
    """Progress of work that is not drawn or scored cell by cell."""

    def training(self) -> AbstractContextManager[TrainingProgress | None]:
        """Of a training run."""
        ...

    def questions(self, name: str, total: int, /) -> AbstractContextManager[Callable[[str], None]]:
        """Of a judge: told the outcome of each question."""
        ...

    def share(self, name: str, total: int, /) -> AbstractContextManager[Callable[[int], None]]:
        """Of a long computation: told how much more is done."""
        ...


class NoBars:
    """Says nothing."""

    def training(self) -> AbstractContextManager[None]:
        """Nothing."""
        return nullcontext()

    def questions(self, *_: object) -> AbstractContextManager[Callable[[object], None]]:
        """Nothing."""
        return nullcontext(lambda _: None)

    share = questions


@dataclass(frozen=True)
class Ask:
    """What a verb was asked for, complete and checked."""

    verb: Verb
    out: Path
    sources: tuple[str, ...]
    values: Mapping[str, Any]
    smoke: bool = False
    progress: Progress | None = None
    note: Callable[[str], None] = lambda _: None
    folder: StudyFolder | None = None
    """Where results of cells are kept; held while a study runs."""
    bars: Bars = field(default_factory=NoBars)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def some(self, *names: str) -> dict[str, Any]:
        """Values by their names, to pass on as arguments."""
        return {name: self.values[name] for name in names}

    def given(self, *names: str) -> dict[str, Any]:
        """Those that are not the default."""
        usual = {
            parameter.name: parameter.checked(parameter.default)
            for parameter in self.verb.parameters
        }
        return {name: v for name, v in self.some(*names).items() if v != usual[name]}

    @cached_property
    def evaluator(self) -> Evaluator:
        """The language model that scores, loaded once and only if something is to be scored."""
        from strop.measure.score import known_evaluator

        return known_evaluator(self["evaluator"], device=self.engine.at_home(self["device"]))

    @cached_property
    def engine(self) -> Engine:
        """Where its work runs."""
        return Engine.of(*(self.values.get(name) for name in RUNS_AT))

    def check_engine(self) -> None:
        """Refuse what does not go together, before anything is loaded."""
        self.engine.refuse_force(self.values.get("force"))
        if self.engine.parallel and "device_map" in (self.values.get("load") or {}):
            raise UserError(
                "Every worker would spread the model over all devices.",
                where="`load`: device_map",
                fix="leave `devices` and `engine` out, or `device_map`",
            )
        if self.values.get("wait") and self.engine.shard is None:
            raise UserError(
                "Only a shard waits for others.",
                where="`wait`",
                fix="give `shard` too, or leave `wait` out",
            )

    def after_its_shard(self) -> Ask:
        """The same without a shard: it does what others have not begun, and waits for the rest."""
        self.note("this shard's part is done; doing what no other has begun, waiting for the rest")
        return replace(self, values={**self.values, "shard": None})

    def words(self, *names: str) -> list[str]:
        """What is not the default, as words of a command line."""
        words = []
        for name, value in self.given(*names).items():
            flag = "-n" if name == "n" else f"--{name.replace('_', '-')}"
            words += [flag] if value is True else [flag, spelled(value)]
        return words

    def mark(self) -> dict[str, Any]:
        """For the mark: what was asked, as far as it is known without loading anything."""
        values = {k: v for k, v in self.values.items() if k not in ASIDE and v is not None}
        request = {"checkpoints": self.sources, **values, "smoke": self.smoke}
        return json.loads(json.dumps(plain(request), default=str))

    def said(self, **more: Any) -> dict[str, Any]:
        """For the result: what the numbers depend on."""
        used = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in self.values.items()
            if name not in ASIDE and value is not None
        }
        if "evaluator" in used and isinstance(used["evaluator"], str):
            used["evaluator"] = self.evaluator.spec.model_dump(mode="json")
        return {"checkpoints": list(self.sources), **used, "smoke": self.smoke, **more}


@dataclass(frozen=True)
class Verb:
    """One verb."""

    name: str
    help: str
    """What its help says; the first line says what it does."""
    parameters: tuple[Parameter, ...]
    run: Callable[[Ask], Result]
    examples: tuple[str, ...] = ()
    json: bool = True
    """Whether it takes `--json`."""
    later: Callable[[Ask], str] | None = None
    """What a dry run says of draws that depend on the results of those that it counts."""
    most: Callable[[Ask], int] | None = None
    """How many outputs it draws at most in all, where a dry run sees only the first of them."""
    own_dry_run: bool = False
    """Whether `run` answers `--dry-run` itself, because it counts something else than outputs."""

    @property
    def takes(self) -> tuple[Parameter, ...]:
        """Everything that its command line takes, in the order of its help."""
        return self.parameters

    def parameter(self, name: str) -> Parameter:
        """One by its name."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise unknown_name("parameter", name, [p.name for p in self.parameters], where=self.name)

    def values(self, given: Mapping[str, Any], *, smoke: bool = False) -> dict[str, Any]:
        """A value for every parameter, from what was given and the defaults; checked."""
        for name in given:
            self.parameter(name)
        values = {}
        for parameter in self.parameters:
            value = given.get(parameter.name)
            if value is None:
                value = (
                    parameter.smoke if smoke and parameter.smoke is not SAME else parameter.default
                )
            values[parameter.name] = parameter.checked(value)
        return values

    def asked(self, given: Mapping[str, Any], **speaking: Any) -> Ask:
        """From a command line or a call from Python; `speaking` goes to the Ask."""
        values = self.values(given)
        ask = Ask(self, Path(values.get("out") or ""), (), values, **speaking)
        if "engine" in values:
            ask.check_engine()
        return ask

    def answer(self, ask: Ask) -> Result:
        """Do what was asked."""
        if ask.values.get("dry_run") and not self.own_dry_run:
            from strop.verbs.dry_run import dry_run

            return dry_run(ask)
        from strop.engine.workers import keep_workers

        out = ask.values.get("out")
        served = SERVING[0] in ask.values
        asking = served_as(ask.values, Path(out) if out else None) if served else nullcontext()
        with keep_workers() if "engine" in ask.values else nullcontext(), asking:
            if ask.values.get("wait"):
                self.run(ask)
                ask = ask.after_its_shard()
            return self.run(ask)

    def __call__(self, *arguments: Any, **given: Any) -> Result:
        """Do it, from Python: `arguments` are those without a flag, in their order."""
        try:
            result = self.answer(self.asked(self.placed(arguments, given)))
        except ModuleNotFoundError as error:
            remedy = missing_package(error)
            if remedy is None:
                raise
            raise remedy from error
        if result.error is not None:
            raise result.error
        return result

    def placed(self, arguments: Sequence[Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments under their names."""
        names = [parameter for parameter in self.takes if parameter.argument]
        by_name = dict(given)
        unnamed = list(arguments)
        for parameter in names:
            if unnamed:
                by_name[parameter.name] = unnamed if parameter.kind == "many" else unnamed.pop(0)
                unnamed = [] if parameter.kind == "many" else unnamed
        if unnamed:
            raise UserError(
                f"{self.name} takes {len(names)} arguments without a name.",
                got=", ".join(map(str, arguments)),
                expected=", ".join(parameter.argument for parameter in names) or "named ones",
            )
        return by_name


@dataclass(frozen=True)
class VerbGroup:
    """Verbs that share a first word."""

    name: str
    help: str
    verbs: tuple[Verb, ...]
    examples: tuple[str, ...] = ()
    own: Verb | None = None
    """What the first word does alone; without it, it prints the help."""


def spelled(value: Any) -> str:
    """A value as it is typed: lists with commas."""
    return ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def visible(text: str) -> str:
    """Text in one line: what cannot be printed as an escape, quotes as they are."""
    return "".join(c if c.isprintable() and c != "\\" else repr(c)[1:-1] for c in text)


def quoted(path: str | Path) -> str:
    """A path as a shell reads it."""
    return shlex.quote(str(path))


def report_command(out: Path) -> str:
    """The command that shows a directory as a page."""
    return f"strop report {quoted(out)} -o {quoted(out)}.html"
