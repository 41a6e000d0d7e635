"""Standard against sharpened under several judges: one shape for the paper's numbers and for ours.

A panel is a list of contrasts, one per judge and budget. Judges are never pooled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from strop.assets import ROOT
from strop.errors import unknown_name
from strop.groupeval.bootstrap import REPLICATES
from strop.groupeval.compare import compare
from strop.groupeval.verdicts import Verdicts

__all__ = ["PAPER", "Contrast", "Panel", "measured", "paper_numbers", "paper_panel"]

PAPER = ROOT / "paper" / "panels"
PANELS = ("groupeval-mdlm", "groupeval-didi")


@dataclass(frozen=True)
class Contrast:
    """One judge at one budget; pairs are (standard, sharpened)."""

    judge: str
    steps: int
    geq: tuple[float, float]
    ged: tuple[float, float]
    difference: float
    """GEQ, sharpened minus standard, from unrounded scores."""
    interval: tuple[float, float]
    """Conditional 95% interval of the difference."""
    excludes_zero: bool


@dataclass(frozen=True)
class Panel:
    """All contrasts of one generator."""

    generator: str
    outputs_per_cell: int
    default_judge: str
    first_judges: tuple[str, ...]
    """Those whose correlations across cells the paper gives; all of them for measured panels."""
    rows: tuple[Contrast, ...]

    @property
    def judges(self) -> tuple[str, ...]:
        """In the order of the table."""
        return tuple(dict.fromkeys(row.judge for row in self.rows))

    def of(self, judge: str) -> tuple[Contrast, ...]:
        """One judge's contrasts, by budget."""
        return tuple(row for row in self.rows if row.judge == judge)


def paper_numbers(name: str) -> dict[str, Any]:
    """One of the paper's tables as data; `source` is its label in the paper."""
    path = PAPER / f"{name}.yaml"
    if not path.is_file():
        known = [file.stem for file in PAPER.glob("*.yaml")]
        raise unknown_name("table of the paper", name, known)
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def paper_panel(name: str) -> Panel:
    """`groupeval-mdlm` (ten cells of 128, five judges) or `groupeval-didi` (ten of 40, three)."""
    if name not in PANELS:
        raise unknown_name("panel of the paper", name, PANELS)
    table = paper_numbers(name)
    rows = tuple(
        Contrast(
            row["judge"],
            row["steps"],
            tuple(row["geq"]),
            tuple(row["ged"]),
            row["difference"],
            tuple(row["interval"]),
            row["excludes_zero"],
        )
        for row in table["rows"]
    )
    return Panel(
        table["generator"],
        table["outputs_per_cell"],
        table["default_judge"],
        tuple(table["first_judges"]),
        rows,
    )


def measured(
    generator: str,
    series: Mapping[str, Verdicts],
    cells: Mapping[int, tuple[str, str]],
    *,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Panel:
    """The same from judged series.

    `series` has the verdicts of each judge by name, `cells` for each number of steps the names of
    the standard and the sharpened cell.
    """
    rows = [
        _contrast(judge, steps, verdicts, pair, replicates, seed)
        for judge, verdicts in series.items()
        for steps, pair in cells.items()
    ]
    first = next(iter(series.values()))
    outputs = min(first.planned[name].outputs for pair in cells.values() for name in pair)
    judges = tuple(series)
    return Panel(generator, outputs, judges[0], judges, tuple(rows))


def _contrast(
    judge: str,
    steps: int,
    verdicts: Verdicts,
    pair: Sequence[str],
    replicates: int,
    seed: int,
) -> Contrast:
    standard, sharpened = (verdicts.only(name) for name in pair)
    (row,) = compare(standard, sharpened, replicates=replicates, seed=seed)["pairs"]
    low, high = row["geq_interval"]
    return Contrast(
        judge,
        steps,
        (row["geq_a"], row["geq_b"]),
        (row["ged_a"], row["ged_b"]),
        row["geq_difference"],
        (low, high),
        row["geq_interval_excludes_zero"],
    )
