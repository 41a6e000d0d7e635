"""A typed table: what was measured, written once, for the terminal, the page, CSV and JSON alike.

Rows are records whose values may be Intervals. A `Column` says what one of their keys means and how
it is printed; keys without a column are kept in JSON and CSV and not shown.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from html import escape
from typing import TYPE_CHECKING, Any

from strop.spec.value import Cooling
from strop.stats.interval import Interval

if TYPE_CHECKING:
    import pyarrow as pa

NOTHING = "–"
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a text begins that a spreadsheet would run."""


def number(value: float | None, digits: int = 3) -> str:
    """A number with this many significant digits, without an exponent where one can read it."""
    if value is None:
        return NOTHING
    if not math.isfinite(value):
        return "∞" if value > 0 else "−∞" if value < 0 else "undefined"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size < -4 or size > 8:
        return f"{value:.{digits - 1}e}".replace("-", "−")
    places = max(digits - 1 - size, 0)
    return f"{value:,.{places}f}".replace("-", "−")


def duration(seconds: float) -> str:
    """A time in one unit, as people say it."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.{0 if seconds >= 10 * size else 1}f} {unit}"
    return f"{seconds:.0f} s"


@dataclass(frozen=True)
class Column:
    """What one key of the rows means."""

    name: str
    label: str = ""
    """Its heading; the name by default."""
    unit: str = ""
    digits: int | None = 4
    """Significant ones; None for a setting, which is written as it was set."""
    help: str = ""
    """One sentence of explanation."""
    mark: str | None = None
    """The key whose value, a sign such as a dagger, stands behind the number."""
    signed: bool = False
    """Whether positive numbers show their sign: it is a difference."""
    percent: bool = False
    bare: bool = False
    """Whether the value is printed without its interval, which is in CSV and JSON all the same."""

    @property
    def heading(self) -> str:
        """The label, and the unit where there is one."""
        label = self.label or self.name.replace("_", " ")
        return f"{label}, {self.unit}" if self.unit else label

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Column:
        """What a table's `document` wrote."""
        column = cls(**document)
        if not all(isinstance(text, str) for text in (column.name, column.label, column.unit)):
            raise TypeError(f"a column of {document!r:.100}")
        if column.digits is not None and not isinstance(column.digits, int):
            raise TypeError(f"a column with {column.digits!r:.100} digits")
        return column

    def text(self, value: Any) -> str:
        """One value as text; of an interval, its value."""
        if isinstance(value, Interval):
            value = value.value
        if value is None:
            return NOTHING
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, (str, Mapping)):
            return str(value)
        if isinstance(value, (list, tuple)):
            return " / ".join(self.text(part) for part in value)
        if isinstance(value, int):
            return f"{value:,}"
        if self.digits is None:
            return f"{value:g}".replace("-", "−")
        places = max(self.digits - 2, 0)
        digits = f"{100 * value:.{places}f}%" if self.percent else number(value, self.digits)
        return f"+{digits}" if self.signed and value > 0 else digits

    def entry(self, row: Mapping[str, Any]) -> Entry:
        """The entry of a row in this column."""
        value, ends = row.get(self.name), ""
        if isinstance(value, Interval) and value.bounded and not self.bare:
            ends = f"[{self.text(value.low)}, {self.text(value.high)}]"
        mark = str(row.get(self.mark) or "") if self.mark else ""
        return Entry(self.text(value), mark, "", ends)


@dataclass(frozen=True)
class Entry:
    """One place of a printed table."""

    value: str
    mark: str = ""
    beside: str = ""
    """Other columns of the same row, in brackets."""
    interval: str = ""
    row: Mapping[str, Any] | None = None
    """What it was made of, for who draws it with more than words."""

    @property
    def line(self) -> str:
        """The entry as text in one line."""
        return " ".join(filter(None, [f"{self.value}{self.mark}", self.beside, self.interval]))

    @property
    def block(self) -> str:
        """The entry as text with the interval below."""
        first = " ".join(filter(None, [f"{self.value}{self.mark}", self.beside]))
        return "\n".join(filter(None, [first, self.interval]))


@dataclass(frozen=True)
class Pivot:
    """A table with one of its columns spread over a grid."""

    down: tuple[str, ...]
    across: tuple[str, ...]
    show: str
    beside: tuple[str, ...] = ()
    """Columns that stand in brackets behind the shown one."""


@dataclass(frozen=True)
class Table:
    """Rows, and what their keys mean."""

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Mapping[str, Any]]
    pivot: Pivot | None = None
    """How to print it; without one it is printed row by row."""
    shown: bool = True
    """Whether it is printed; else it is there for CSV and JSON."""

    def column(self, name: str) -> Column:
        """One column by its name."""
        return next((c for c in self.columns if c.name == name), Column(name))

    def header(self) -> list[str]:
        """The headings, in the order of `entries`."""
        if self.pivot is None:
            return [column.heading for column in self.columns]
        heads = [self.column(name).heading for name in self.pivot.down]
        return heads + [self._head(self.pivot.across, key) for key in self._across()]

    def entries(self) -> list[list[Entry]]:
        """What is printed, line by line."""
        if self.pivot is None:
            return [[column.entry(row) for column in self.columns] for row in self.rows]
        down, across = self.pivot.down, self._across()
        grid: dict[Any, dict[Any, Mapping[str, Any]]] = {}
        for row in self.rows:
            key = tuple(row[name] for name in down)
            grid.setdefault(key, {})[tuple(row[name] for name in self.pivot.across)] = row
        return [
            [self.column(name).entry(next(iter(line.values()))) for name in down]
            + [self._spread(line.get(key)) for key in across]
            for line in grid.values()
        ]

    def text(self) -> tuple[list[str], list[list[str]]]:
        """Header and lines for a terminal."""
        block = self.pivot is not None
        lines = [[e.block if block else e.line for e in line] for line in self.entries()]
        return self.header(), lines

    def _across(self) -> list[tuple[Any, ...]]:
        assert self.pivot is not None
        return list(dict.fromkeys(tuple(row[n] for n in self.pivot.across) for row in self.rows))

    def _head(self, names: Iterable[str], values: Iterable[Any]) -> str:
        words = []
        for name, value in zip(names, values, strict=True):
            column = self.column(name)
            text = column.text(value)
            words.append(text if isinstance(value, str) else f"{column.label or name}={text}")
        return " ".join(words)

    def _spread(self, row: Mapping[str, Any] | None) -> Entry:
        assert self.pivot is not None
        if row is None:
            return Entry(NOTHING)
        entry = self.column(self.pivot.show).entry(row)
        notes = [self.column(name).text(row[name]) for name in self.pivot.beside if name in row]
        beside = f"[{', '.join(notes)}]" if notes else ""
        return Entry(entry.value, entry.mark, beside, entry.interval, row)

    def csv(self) -> bytes:
        """Every key of every row, of an interval `x` also `x_low` and `x_high`.

        A value that has names of its own, such as a sampler, has a column for each of them
        (`sampler_steps`). A text that a spreadsheet would run is quoted.
        """
        text = io.StringIO()
        writer = csv.DictWriter(text, self._heads(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat(row) for row in self.rows)
        return text.getvalue().encode()

    def _heads(self) -> list[str]:
        """The columns of a file: those of one key side by side."""
        columns_of: dict[str, dict[str, None]] = {}
        for row in self.rows:
            for key, value in row.items():
                columns_of.setdefault(key, {}).update(dict.fromkeys(flat({key: value})))
        return list(dict.fromkeys(name for names in columns_of.values() for name in names))

    def markdown(self) -> str:
        """The printed table in Markdown."""
        header, lines = self.text()
        rows = [header, ["---"] * len(header), *lines]
        return "\n".join(f"| {' | '.join(map(_markdown, row))} |" for row in rows) + "\n"

    def latex(self) -> str:
        """The printed table as a LaTeX tabular with booktabs."""
        header, lines = self.text()
        body = [" & ".join(map(_latex, row)) + r" \\" for row in (header, *lines)]
        begin = rf"\begin{{tabular}}{{{'l' * len(header)}}}"
        rules = [begin, r"\toprule", body[0], r"\midrule", *body[1:], r"\bottomrule"]
        return "\n".join([*rules, r"\end{tabular}"]) + "\n"

    def html(self) -> str:
        """The printed table as HTML, for a notebook."""
        header, lines = self.text()
        head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
        rows = ["".join(f"<td>{_lines(cell)}</td>" for cell in line) for line in lines]
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _repr_html_(self) -> str:
        """The same under its title, where it is shown by itself."""
        caption = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        return self.html().replace("<table>", f"<table>{caption}", 1)

    def arrow(self) -> pa.Table:
        """The columns of `csv`, with their types."""
        import pyarrow as pa

        rows = [flat(row, safe=False) for row in self.rows]
        columns = {}
        for name in self._heads():
            values = [row.get(name) for row in rows]
            try:
                columns[name] = pa.array(values)
            except (pa.ArrowInvalid, pa.ArrowTypeError):  # values of several kinds
                columns[name] = pa.array(
                    [None if value is None else str(value) for value in values]
                )
        return pa.table(columns)

    def document(self) -> dict[str, Any]:
        """The table as a JSON document."""
        return {
            "title": self.title,
            "columns": [_changed_fields(column) for column in self.columns],
            "rows": [plain(row) for row in self.rows],
            **({} if self.pivot is None else {"pivot": _changed_fields(self.pivot)}),
            **({} if self.shown else {"shown": False}),
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Table:
        """The table that `document` wrote."""
        pivot = document.get("pivot")
        return cls(
            str(document["title"]),
            tuple(Column.read(column) for column in document["columns"]),
            [revived(dict(row)) for row in document["rows"]],
            None if pivot is None else Pivot(**_tuples(pivot)),
            bool(document.get("shown", True)),
        )


def flat(row: Mapping[str, Any], *, safe: bool = True) -> dict[str, Any]:
    """A number, or a text, by every name: of an interval `x` also `x_low` and `x_high`."""
    flat_row: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Interval):
            flat_row |= {key: value.value, f"{key}_low": value.low, f"{key}_high": value.high}
        elif isinstance(value, Mapping):
            flat_row |= flat({f"{key}_{name}": part for name, part in value.items()}, safe=safe)
        else:
            flat_row[key] = inert(value) if safe else value
    return flat_row


LATEX = {character: "\\" + character for character in "&%$#_{}"}
LATEX |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
LATEX |= {"−": "$-$", "∞": r"$\infty$", "±": r"$\pm$", "→": r"$\to$", "–": "--", "\n": " "}


def _latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)


def _markdown(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", "<br>")


def _lines(text: str) -> str:
    return escape(text).replace("\n", "<br>")


def inert(value: Any) -> Any:
    """A cell that no spreadsheet runs."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _changed_fields(record: Any) -> dict[str, Any]:
    """A record's fields that are not the default."""
    return {f.name: v for f in fields(record) if (v := getattr(record, f.name)) != f.default}


def _tuples(document: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has lists where the records have tuples."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in document.items()}


NUMBERS = {"value", "low", "high"}
KEYS = {interval_field.name for interval_field in fields(Interval)}


def plain(content: Any) -> Any:
    """A value with every interval and schedule in it, however deep, as JSON."""
    if isinstance(content, Interval):
        return content.document()
    if isinstance(content, Cooling):
        return str(content)
    if isinstance(content, Mapping):
        return {key: plain(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [plain(value) for value in content]
    return content


def revived(content: Any) -> Any:
    """What `plain` was given: every object with the keys of an interval is one."""
    if isinstance(content, Mapping):
        if NUMBERS <= content.keys() <= KEYS:
            return Interval.read(content)
        return {key: revived(value) for key, value in content.items()}
    if isinstance(content, list):
        return [revived(value) for value in content]
    if isinstance(content, str) and content.startswith(("linear/", "late/")):
        return Cooling.of(content)
    return content
