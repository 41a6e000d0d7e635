"""The four-corner table, for the terminal and for the page, from the same entries."""

from __future__ import annotations

import math
from dataclasses import dataclass

from strop.report.data import DAGGER, STANDARD, Cell, Estimate, Model

__all__ = ["CornerTable", "Entry", "corner_table", "corner_text", "interval", "number"]

NOTHING = "–"


@dataclass(frozen=True)
class Entry:
    """One cell of the table, ready to print."""

    perplexity: str
    entropy: str
    interval: str
    below_guard: bool
    best: bool
    """Lowest perplexity of its row among those that pass the guard."""
    standard: bool

    @property
    def text(self) -> str:
        """In one line: perplexity with its mark, entropy in brackets, interval in parentheses."""
        mark = DAGGER if self.below_guard else ""
        star = "*" if self.best else ""
        found = self.perplexity if self.perplexity != NOTHING else ""
        parts = [f"{found}{mark}{star}", f"[{self.entropy}]" if self.entropy else "", self.interval]
        return " ".join(filter(None, parts)) or NOTHING


@dataclass(frozen=True)
class CornerTable:
    """Rows are budgets, columns are settings."""

    settings: list[str]
    steps: list[int]
    entries: list[list[Entry | None]]
    """None where the cell was not asked for."""


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


def interval(estimate: Estimate | None, digits: int = 3) -> str:
    """`(low–high)`, or nothing."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    join = " to " if estimate.low < 0 else "–"
    return f"({number(estimate.low, digits)}{join}{number(estimate.high, digits)})"


def corner_table(model: Model, evaluator: str | None) -> CornerTable:
    """Perplexity under one evaluator (None: entropy alone) of every budget and setting."""
    settings, steps = model.settings(), model.steps()
    grid = [[model.at(m, setting) for setting in settings] for m in steps]
    return CornerTable(
        settings=[setting.label for setting in settings],
        steps=steps,
        entries=[_row(row, evaluator) for row in grid],
    )


def _row(cells: list[Cell | None], evaluator: str | None) -> list[Entry | None]:
    def found(cell: Cell | None) -> Estimate | None:
        return None if cell is None or evaluator is None else cell.perplexity.get(evaluator)

    passing = [
        estimate.value
        for cell in cells
        if cell is not None and not cell.below_guard and (estimate := found(cell)) is not None
    ]
    # One entry alone is no winner.
    lowest = min(passing) if len(passing) > 1 else None
    return [None if cell is None else _entry(cell, found(cell), lowest) for cell in cells]


def _entry(cell: Cell, found: Estimate | None, lowest: float | None) -> Entry:
    return Entry(
        perplexity=number(None if found is None else found.value, 4),
        entropy="" if cell.entropy is None else f"{cell.entropy.value:.2f}",
        interval=interval(found),
        below_guard=cell.below_guard,
        best=found is not None and found.value == lowest and not cell.below_guard,
        standard=cell.setting == STANDARD,
    )


def corner_text(model: Model, evaluator: str | None) -> tuple[list[str], list[list[str]]]:
    """Header and rows for `strop.cli.output.table`."""
    table = corner_table(model, evaluator)
    rows = [
        [str(m), *(NOTHING if entry is None else entry.text for entry in row)]
        for m, row in zip(table.steps, table.entries, strict=True)
    ]
    return ["M", *table.settings], rows
