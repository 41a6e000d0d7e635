"""The paper's numbers beside what was measured: a table of both, and the usual way to fill it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strop.table import Column, Table
from strop.verbs import paper

if TYPE_CHECKING:
    from strop.verbs.result import Result
    from strop.verbs.verb import Ask

LEVELS = {"paper": "perplexity", "paper_entropy": "entropy"}
"""Where the paper's tables of cells have what is shown."""
MEASURED_LEVELS = {
    "measured": "perplexity",
    "measured_entropy": "entropy",
    "mark": "mark",
}
"""Where a study's rows of cells have it."""
EXTRA = {
    "paper_entropy": "paper H",
    "measured_entropy": "measured H",
    "paper_peak": "paper GiB",
    "peak": "measured GiB",
    "ged": "GED",
}
"""What rows may have besides, and its heading."""


def beside(unit: str, keys: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table with `paper` and `measured`; rows may have more, which is kept."""
    columns = [*keys, Column("paper", digits=None)]
    columns.append(Column("measured", digits=4, mark="mark"))
    for name, label in EXTRA.items():
        if any(row.get(name) is not None for row in rows):
            columns.append(Column(name, label, digits=3))
    return Table(unit, tuple(columns), rows)


@dataclass(frozen=True)
class RowByRow:
    """Every row of a result, and what the paper printed under the same keys."""

    unit: str
    keys: tuple[Column, ...]
    """Columns that the result and the paper's table share."""
    table: str | None = None
    """The paper's; None where the result's rows have its numbers already."""
    where: Mapping[str, Any] = field(default_factory=dict)
    """Which rows of it, where the keys do not say."""
    paper: Mapping[str, str] = field(default_factory=lambda: LEVELS)
    """What is shown, and its column in the paper's table."""
    measured: Mapping[str, str] = field(default_factory=lambda: MEASURED_LEVELS)
    """What is shown, and its column in the result."""

    def __call__(self, result: Result, ask: Ask, roles: Mapping[str, str]) -> Table:
        """As `Item.beside` is called."""
        del ask, roles
        names = [column.name for column in self.keys]
        printed = None
        if self.table is not None:
            printed = paper.table(self.table).by(*names, **self.where)
        rows = []
        for row in result.table.rows:
            keys = {name: row[name] for name in names}
            if printed is None:
                said = {shown: row[shown] for shown in self.paper}
            else:
                found = printed.get(tuple(keys.values()), {})
                said = {shown: found.get(column) for shown, column in self.paper.items()}
            measured = {shown: row[column] for shown, column in self.measured.items()}
            rows.append({**keys, **said, **measured})
        return beside(self.unit, self.keys, rows)
