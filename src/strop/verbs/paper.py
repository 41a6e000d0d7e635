"""The paper's tables and figures: what it printed, and which study measures it again.

One YAML file per table or figure in `assets/paper`. Rows are records: settings first, numbers
after them, in the columns that the file names. `assets/reproduced.yaml` says what a run of each
takes, and a study's record lists those `PaperItem`s that it reproduces. `beside` makes the table of
printed and measured numbers; `RowByRow` is the usual way to fill it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from strop.assets import ROOT
from strop.errors import UserError, unknown_name
from strop.stats.interval import Interval
from strop.stats.published import gap, standard_error
from strop.table import Column, Table

if TYPE_CHECKING:
    from strop.engine.plan import Progress
    from strop.table import Table
    from strop.verbs.study import Study
    from strop.verbs.verb import Ask, Result


LEVELS = {"paper": "perplexity", "paper_entropy": "entropy"}
"""Where the paper's tables of cells have what is shown."""
MEASURED_LEVELS = {"measured": "perplexity", "measured_entropy": "entropy", "mark": "mark"}
"""Where a study's rows of cells have it."""
EXTRA = {
    "paper_entropy": "paper H",
    "measured_entropy": "measured H",
    "paper_peak": "paper GiB",
    "peak": "measured GiB",
    "geq": "GEQ",
    "ged": "GED",
    "paper_best": "paper's best tau",
    "best": "best tau",
    "within": "within noise",
    "elsewhere": "elsewhere",
}
"""What rows may have besides, and its heading."""
NOISE = (
    "within noise: whether paper and measured differ by no more than the 95% noise of both; where "
    "the paper prints no interval, its numbers count as noisy as ours, by its number of outputs"
)


def beside(
    unit: str,
    keys: Sequence[Column],
    rows: Sequence[Mapping[str, Any]],
    *,
    outputs: int | None = None,
    log: bool = False,
) -> Table:
    """A table with `paper` and `measured`; rows may have more, which is kept.

    Where the paper says of how many outputs its number is, or prints an interval, every row says
    whether the two lie within the noise of both; with `log` they are ratios or perplexities.
    """
    rows = [{**row, "within": _within(row, outputs, log)} for row in rows]
    columns = (*keys, Column("paper", digits=None), Column("measured", digits=4, mark="mark"))
    filled = {name for row in rows for name, value in row.items() if value is not None}
    more = (Column(name, label, digits=3) for name, label in EXTRA.items() if name in filled)
    return Table(unit, (*columns, *more), rows)


def _within(row: Mapping[str, Any], outputs: int | None, log: bool) -> str | None:
    printed, measured = row.get("paper"), row.get("measured")
    if "within" in row:
        return row["within"]
    if printed is None or not isinstance(measured, Interval):
        return None
    error = None
    if isinstance(printed, Interval):
        error = standard_error(printed) if printed.bounded else None
        printed = printed.value
    difference = gap(measured, printed, outputs, error=error, log=log)
    return None if difference is None else "yes" if difference.within() else "no"


@dataclass(frozen=True)
class RowByRow:
    """Every row of a result, and what the paper printed under the same keys."""

    unit: str
    keys: tuple[str, ...] = ("steps", "temperature", "precision")
    """Columns that the result and the paper's table share."""
    tables: tuple[str, ...] = ()
    """The paper's; none where the result's rows have its numbers already."""
    where: Mapping[str, Any] = field(default_factory=dict)
    """Which rows of them, where the keys do not say; for tables that have such a column."""
    paper: Mapping[str, str] = field(default_factory=lambda: LEVELS)
    """What is shown, and its column in the paper's table."""
    measured: Mapping[str, str] = field(default_factory=lambda: MEASURED_LEVELS)
    """What is shown, and its column in the result."""
    outputs: int | None = None
    """Behind the paper's numbers, where its table does not say."""
    model: str | None = None
    """Which public checkpoint the rows are of, where they do not say: others measured some too."""

    def __call__(self, result: Result, *_: Any) -> Table:
        """As `PaperItem.beside` is called."""
        from strop.verbs.frontiers_public import elsewhere
        from strop.verbs.points import POINT_COLUMNS

        printed: dict[tuple[Any, ...], dict[str, Any]] = {}
        outputs = self.outputs
        for printed_table in map(table, self.tables):
            where = {
                name: value for name, value in self.where.items() if name in printed_table.columns
            }
            printed |= printed_table.by(*self.keys, **where)
            outputs = outputs or printed_table.settings.get("outputs")
        rows = []
        for row in result.table.rows:
            keys = {name: row[name] for name in self.keys}
            numbers = {label: row.get(label) for label in self.paper}
            if self.tables:
                paper_row = printed.get(tuple(keys.values()), {})
                numbers = {label: paper_row.get(column) for label, column in self.paper.items()}
            measured = {label: row[column] for label, column in self.measured.items()}
            others = elsewhere(row.get("model", self.model), row)
            rows.append({**keys, **numbers, **measured, "elsewhere": others})
        columns = {column.name: column for column in POINT_COLUMNS}
        key_columns = [columns.get(name, Column(name)) for name in self.keys]
        return beside(self.unit, key_columns, rows, outputs=outputs, log=True)


FOLDER = ROOT / "paper"
PUBLIC = "kuleshov-group/mdlm-owt"
"""The only MDLM of the paper that was released."""
BUDGETS = tuple(2**k for k in range(11))
"""Of the printed grids; the sweep of the public checkpoint has 2,048 too."""

Value = bool | int | float | str | None | tuple[float, ...]


class PaperTable(BaseModel):
    """One table or figure of the paper."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: str
    """Its name here, which is also the file's."""
    label: str
    """Its label in the paper's source."""
    kind: Literal["table", "figure", "text"]
    caption: str
    """What it shows, in our own words."""
    settings: dict[str, Any] = {}
    """What holds for all of its rows."""
    notes: str | None = None
    """What the paper leaves open, and what was computed from other tables."""
    see: tuple[str, ...] = ()
    """Tables that hold its numbers, or those it was computed from."""
    units: dict[str, str] = {}
    """Of the columns that have one."""
    claims: dict[str, Any] = {}
    """What the text says of it."""
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    @model_validator(mode="after")
    def _check(self) -> Self:
        wrong = [row for row in self.rows if len(row) != len(self.columns)]
        stray = sorted(set(self.units) - set(self.columns))
        if wrong or stray or len(set(self.columns)) < len(self.columns):
            raise UserError(
                "A table of printed numbers is damaged.",
                where=self.id,
                got=f"the row {wrong[0]}" if wrong else f"units of {stray} or a column twice",
                expected="one value per column: " + ", ".join(self.columns),
            )
        return self

    def records(self, **where: Value) -> list[dict[str, Any]]:
        """The rows as dictionaries, those only whose columns have the given values."""
        for name in where:
            if name not in self.columns:
                raise unknown_name("column", name, self.columns, where=self.id)
        all_rows = (dict(zip(self.columns, row, strict=True)) for row in self.rows)
        return [row for row in all_rows if all(row[name] == value for name, value in where.items())]

    def by(self, *keys: str, **where: Value) -> dict[tuple[Any, ...], dict[str, Any]]:
        """The rows by the values of some columns."""
        return {tuple(row[key] for key in keys): row for row in self.records(**where)}

    def value(self, column: str, **where: Value) -> Value:
        """The one value of a column under some settings."""
        if column not in self.columns:
            raise unknown_name("column", column, self.columns, where=self.id)
        rows = self.records(**where)
        if len(rows) != 1:
            raise UserError(
                "These settings do not name one row.",
                where=self.id,
                got=f"{len(rows)} rows for {where}",
                expected="values of " + ", ".join(self.columns),
            )
        return rows[0][column]


def with_interval(
    row: Mapping[str, Any], name: str = "difference", ends: str = ""
) -> dict[str, Any]:
    """A row whose number and its printed ends are one: `low` and `high`, after `ends`."""
    low, high = f"{ends}low", f"{ends}high"
    others = {key: value for key, value in row.items() if key not in (low, high)}
    return {**others, name: Interval(row[name], row[low], row[high], how="the paper")}


def ids() -> list[str]:
    """The names of all tables and figures."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


@cache
def table(id: str) -> PaperTable:
    """One table or figure by its name."""
    if id not in ids():
        raise unknown_name("table of the paper", id, ids())
    return read_table(FOLDER / f"{id}.yaml")


def _read_yaml(path: Path) -> Any:
    # The loader in C, where there is one: the grids are long.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(path.read_text(encoding="utf-8"), Loader=loader)


def read_table(path: Path) -> PaperTable:
    """A file of printed numbers; its id is the file's name."""
    try:
        content = PaperTable.model_validate(_read_yaml(path))
    except (OSError, UnicodeDecodeError, ValueError, yaml.YAMLError) as error:
        got = str(error).splitlines()[0]
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            at = ".".join(map(str, first["loc"][:3])) or "the file"
            got = f"{at}: {first['input']!r}"
        raise UserError(
            "This is not a table of printed numbers.",
            where=path,
            got=got,
            expected="a file such as those of strop/assets/published",
        ) from None
    if content.id != path.stem:
        raise UserError(
            "A table of printed numbers is damaged.",
            where=path,
            got=content.id,
            expected=f"the id {path.stem}",
        )
    return content


def tables() -> list[PaperTable]:
    """All of them."""
    return [table(name) for name in ids()]


# ---------------------------------------------------------------- beside what is measured


@dataclass(frozen=True)
class PaperItem:
    """One table or figure of the paper as a run of a study."""

    id: str
    tables: tuple[str, ...]
    """Its names in `assets/paper`."""
    what: str
    needs: str
    """What a full run takes."""
    beside: Callable[[Result, Ask, Mapping[str, str]], Table]
    """Paper and measured, row by row; the mapping has each checkpoint's name in the paper."""
    sources: Mapping[str, str | None] = field(default_factory=dict)
    """The paper's checkpoints by what it calls them; None where one was never released."""
    smoke: Mapping[str, str] = field(default_factory=dict)
    """The embedded ones in their place; empty where the study makes its own."""
    roles: tuple[str, ...] = ()
    """All names that a checkpoint may have, where they are more than those of `sources`."""
    named: bool = False
    """Whether the study itself takes NAME=SOURCE."""
    flags: str = ""
    """What a full run needs on the command line besides checkpoints."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Of a full run, where they differ from the study's defaults."""
    smoke_values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """All that a checkpoint may have."""
        return self.roles or tuple(self.sources)

    @property
    def command(self) -> str:
        """A full run of it."""
        missing = sum(source is None for source in self.sources.values())
        words = f"strop reproduce {self.id} -o runs/{self.id}" + " --checkpoint PATH" * missing
        return f"{words} {self.flags}".rstrip()


@cache
def declared() -> dict[str, dict[str, Any]]:
    """What `assets/reproduced.yaml` says of every item."""
    return _as_tuples(_read_yaml(ROOT / "reproduced.yaml"))


def _as_tuples(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _as_tuples(value) for key, value in content.items()}
    return tuple(content) if isinstance(content, list) else content


def item(id: str, beside: Any = None, **more: Any) -> PaperItem:
    """One of `assets/reproduced.yaml`, and how a run is put beside the paper: row by row by
    default."""
    fields = {"id": id, "tables": (id,), **declared()[id], **more}
    rows = fields.pop("rows", {})
    return PaperItem(**fields, beside=beside or RowByRow(**rows))


@dataclass(frozen=True)
class Reproduction:
    """What was run, and the paper's numbers beside it."""

    item: PaperItem
    result: Result
    table: Table
    notes: tuple[str, ...]


def items() -> dict[str, tuple[Study, PaperItem]]:
    """Everything that can be reproduced, by id."""
    from strop.verbs.study import STUDIES

    # The paper's tables are measured by studies of this package: no other is loaded for them.
    return {item.id: (study, item) for study in STUDIES.builtin.values() for item in study.items}


CASTS = {"auto": "float32 (auto)", "public": "the public code's casts (public; CPU: float32)"}


def reproduce(
    id: str,
    *,
    out: str | Path,
    smoke: bool = False,
    checkpoints: Sequence[str] = (),
    progress: Progress | None = None,
    note: Callable[[str], None] = lambda _: None,
    **given: Any,
) -> Reproduction:
    """Run one table or figure, whole or small; `given` are parameters of its study.

    A checkpoint may be named by what the paper calls it: `late=runs/mine`.
    """
    from strop.verbs.study import carry_out

    by_id = items()
    if id not in by_id:
        raise unknown_name("table or figure", id, by_id)
    record, item = by_id[id]
    for name, value in given.items():
        if value is not None and name not in {p.name for p in record.parameters}:
            raise UserError(
                f"{id} has no `{name}`.", where=f"`{name}`", got=value, fix="leave it out"
            )
    roles = _roles(item, checkpoints, smoke)
    values = {**item.values, **(item.smoke_values if smoke else {})}
    values |= {name: value for name, value in given.items() if value is not None}
    sources = [f"{role}={source}" if item.named else source for role, source in roles.items()]
    ask = record.ask(Path(out), sources, smoke=smoke, progress=progress, note=note, **values)
    if {"span", "evaluator"} & ask.values.keys():  # scored outputs pass the guard as in the paper
        ask = replace(ask, values={**ask.values, "guard_rule": "mean"})
    result = carry_out(ask)
    side_by_side = item.beside(result, ask, {source: role for role, source in roles.items()})
    notes = list(result.notes)
    dtype = ask.values.get("dtype")
    if dtype is not None:  # there are networks; the paper's own numbers come from a GPU
        notes.append(f"networks compute in {CASTS.get(dtype, dtype)}")
    notes += [f"the paper: {printed.notes}" for printed in map(table, item.tables) if printed.notes]
    columns = {column.name for column in side_by_side.columns}
    if "within" in columns:
        notes.append(NOISE)
    if "elsewhere" in columns:
        from strop.verbs.frontiers_public import SOURCE

        notes.append(f"elsewhere: {SOURCE}")
    return Reproduction(item, result, side_by_side, tuple(notes))


def _roles(item: PaperItem, checkpoints: Sequence[str], smoke: bool) -> dict[str, str]:
    """Every checkpoint by what the paper calls it.

    One without a name is the user's own: it stands for the paper's own ones, the last of them
    first, and for the public one only if it is that or there is no other.
    """
    if not checkpoints:
        usual = item.smoke if smoke else item.sources
        if not smoke and None in usual.values():
            raise _other_checkpoints(
                item, "none", "give them with `checkpoint`, one each, or use `smoke`"
            )
        return {role: source for role, source in usual.items() if source is not None}
    roles, by_role, plain = item.names, {}, []
    for checkpoint in checkpoints:
        role, _, source = checkpoint.partition("=")
        if role in roles and source:
            by_role[role] = source
        elif checkpoint.partition("@")[0] == PUBLIC and "public" in roles:
            by_role["public"] = checkpoint
        else:
            plain.append(checkpoint)
    if not roles:
        got, fix = ", ".join(checkpoints), "leave `checkpoint` out"
        raise UserError(f"{item.id} runs no checkpoint.", where="`checkpoint`", got=got, fix=fix)
    if item.named and plain:
        raise _other_checkpoints(
            item, ", ".join(plain), f"say whose place it takes: {roles[0]}={plain[0]}"
        )
    free = [role for role in roles if role not in by_role and (role != "public" or len(roles) == 1)]
    if len(plain) > len(free):
        raise _other_checkpoints(
            item, ", ".join(checkpoints), "at most one for each of " + ", ".join(roles)
        )
    by_role |= dict(zip(free[len(free) - len(plain) :], plain, strict=True))
    if len(by_role) < (1 if item.roles else len(item.sources)):
        raise _other_checkpoints(
            item, ", ".join(checkpoints), "give the others too, as NAME=SOURCE"
        )
    return {role: by_role[role] for role in roles if role in by_role}


def _other_checkpoints(item: PaperItem, got: str, fix: str) -> UserError:
    return UserError(
        f"{item.id} is run with other checkpoints.",
        where="`checkpoint`",
        got=got,
        expected=f"{', '.join(item.names)}; {item.needs}",
        fix=fix,
    )
