"""What a verb answers: what is printed, what `--json` prints, what comes next, and the values.

From Python the same object says its sentence, its tables and its figure, and writes them as CSV,
LaTeX, Markdown, JSON, or a table of pyarrow or pandas.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.errors import StropError, UserError
from strop.stats.interval import Interval
from strop.table import Column, Table, plain, revived

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

    from strop.pool import Pool


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
    """The sentence that one came for."""

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
    """What is said beside the result."""
    next: str | None = None
    """The next useful command."""
    then: Callable[[], object] | None = None
    """What a terminal with a screen goes on to, such as the page in a browser."""
    error: StropError | None = None
    """What is wrong though there is a result: raised when that is printed."""
    incomplete: bool = False
    silent: bool = False
    """Whether another process says it."""
    verdict_first: bool = False
    """Whether the answer stands above the tables, not below them."""
    draw: Callable[[Result], Figure] | None = None
    """Makes its figure, where it has one."""
    value: Any = None
    """The things themselves, for whoever called from Python: pools, a run, judgments."""

    def __repr__(self) -> str:
        titles = [one.title for one in self.printed() if isinstance(one, Table | Facts)]
        texts = [one.strip() for one in self.printed() if isinstance(one, str)]
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
            return tuple(one for one in self.parts if isinstance(one, Table))
        return tuple(one for one in (self.table, *self.more.values()) if one.shown)

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
        answers += [one.text for one in self.parts if isinstance(one, Strong)]
        answers += self.notes
        answers += [one for one in self.parts if isinstance(one, str)]
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
        return _written(self._main.csv().decode(), path)

    def to_latex(self, path: str | PathLike[str] | None = None) -> str:
        """The main table as it is printed, for a paper."""
        return _written(self._main.latex(), path)

    def to_markdown(self, path: str | PathLike[str] | None = None) -> str:
        """The main table as it is printed."""
        return _written(self._main.markdown(), path)

    def to_json(self, path: str | PathLike[str] | None = None) -> str:
        """Everything, as `--json` prints it."""
        text = json.dumps(self.printed_document(), indent=2, allow_nan=False, default=jsonable)
        return _written(text + "\n", path)

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
        known = {"asked", "title", "columns", "rows", "pivot", "shown", "tables", "notes"}
        known |= {"missing", "format", "study", "command"}
        return cls(
            asked=dict(document["asked"]),
            table=Table.read(document),
            more={name: Table.read(one) for name, one in document["tables"].items()},
            facts={k: revived(v) for k, v in document.items() if k not in known},
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


def _written(text: str, path: str | PathLike[str] | None) -> str:
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
