"""The paper's tables and figures as data: what it printed, to hold against what is measured.

One YAML file per table or figure in `assets/paper`. Rows are records: settings first, numbers
after them, in the columns that the file names.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, model_validator

from strop.errors import UserError, unknown_name

__all__ = ["FOLDER", "PaperTable", "ids", "table", "tables"]

FOLDER = Path(__file__).parents[1] / "assets" / "paper"

Value = bool | int | float | str | None


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
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    @model_validator(mode="after")
    def _check(self) -> Self:
        wrong = [row for row in self.rows if len(row) != len(self.columns)]
        stray = sorted(set(self.units) - set(self.columns))
        if wrong or stray or len(set(self.columns)) < len(self.columns):
            raise UserError(
                "A table of the paper is damaged.",
                where=self.id,
                got=f"the row {wrong[0]}" if wrong else f"units of {stray} or a column twice",
                expected="one value per column: " + ", ".join(self.columns),
            )
        return self

    def records(self, **where: Value) -> list[dict[str, Value]]:
        """The rows as dictionaries, those only whose columns have the given values."""
        for name in where:
            if name not in self.columns:
                raise unknown_name("column", name, self.columns, where=self.id)
        every = (dict(zip(self.columns, row, strict=True)) for row in self.rows)
        return [row for row in every if all(row[name] == value for name, value in where.items())]

    def value(self, column: str, **where: Value) -> Value:
        """The one value of a column under some settings."""
        if column not in self.columns:
            raise unknown_name("column", column, self.columns, where=self.id)
        found = self.records(**where)
        if len(found) != 1:
            raise UserError(
                "These settings do not name one row.",
                where=self.id,
                got=f"{len(found)} rows for {where}",
                expected="values of " + ", ".join(self.columns),
            )
        return found[0][column]


def ids() -> list[str]:
    """The names of all tables and figures."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


@cache
def table(id: str) -> PaperTable:
    """One table or figure by its name."""
    path = FOLDER / f"{id}.yaml"
    if id not in ids():
        raise unknown_name("table of the paper", id, ids())
    # The loader in C, where there is one: the grids are long.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = PaperTable(**yaml.load(path.read_text(), Loader=loader))
    if found.id != id:
        raise UserError(
            "A table of the paper is damaged.", where=path, got=found.id, expected=f"the id {id}"
        )
    return found


def tables() -> list[PaperTable]:
    """All of them."""
    return [table(name) for name in ids()]
