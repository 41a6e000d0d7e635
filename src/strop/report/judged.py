"""What GroupEval found, judge by judge.

A GroupEval directory is scored anew from its journal, which costs no call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from strop.report.data import Series, Shown
from strop.table import Column, Table

__all__ = ["COLUMNS", "judged_series"]

COLUMNS = (
    Column("name", "generator", mark="mark"),
    Column("geq", "GEQ", digits=3, ends=("low", "high"), help="Quality, 0 to 10; 95% interval."),
    Column("ged", "GED", digits=3, help="Diversity, 0 to 10."),
    Column("invalid", digits=3, percent=True, help="Outputs that fail the validity gate."),
    Column("modes", digits=3, help="Effective number of different contents in a group."),
    Column("judged", help="Judgments accepted of those asked for; what is missing is no score."),
)


def judged_series(sources: Iterable[str], cells: Sequence[Shown]) -> Iterable[Series]:
    """Every series of some GroupEval directories and files of judgments.

    `cells` are the report's, recognised by the names that GroupEval may give them.
    """
    from strop.groupeval.bootstrap import score
    from strop.groupeval.judgments import load_judgments

    for source in sources:
        for name in _series_names(source):
            document = score(load_judgments(name))
            rows = [_row(one, found, cells) for one, found in document["cells"].items()]
            offline = (document.get("judge") or {}).get("kind") == "offline"
            judge = _label(document, name)
            yield Series(judge, offline, Table(f"Judged by {judge}", COLUMNS, rows))


def _series_names(source: str) -> list[str]:
    if not Path(source).is_dir():
        return [source]
    from strop.groupeval.series import list_series

    return [f"{source}@{series.id}" for series in list_series(source)]


def _label(document: dict[str, Any], name: str) -> str:
    judge = document.get("judge") or {}
    who = judge.get("name") or judge.get("model") or judge.get("kind") or Path(name).name
    profile = document.get("profile")
    return f"{who}, profile {str(profile)[:8]}" if profile else str(who)


def _row(name: str, found: dict[str, Any], cells: Sequence[Shown]) -> dict[str, Any]:
    cell = recognised(name, cells)
    low, high = found.get("geq_interval") or (None, None)
    return {
        "name": name if cell is None else cell.plain_name,
        "mark": "" if cell is None else cell.measured.mark,
        "geq": found["geq"],
        "low": low,
        "high": high,
        "ged": found["ged"],
        "invalid": found.get("invalid_rate"),
        "modes": found.get("effective_modes"),
        "judged": f"{found['n_groups']} of {found['n_groups_asked']}",
    }


def recognised(name: str, cells: Sequence[Shown]) -> Shown | None:
    """The cell that GroupEval calls so; a name that two cells could have is nobody's."""
    found = [cell for cell in cells if name == cell.measured.id or _fits(name, cell)]
    return found[0] if len(found) == 1 else None


def _fits(name: str, cell: Shown) -> bool:
    """Whether a name is that of the cell's run and some of its sampler's fields, in their order."""
    run = cell.measured.path.parents[1].resolve().name
    if name != run and not name.startswith(f"{run} "):
        return False
    rest = name[len(run) + 1 :]
    for key, value in cell.measured.spec.generator.sampler:
        word = f"{key}={value}"
        if rest == word or rest.startswith(f"{word} "):
            rest = rest[len(word) + 1 :]
    return not rest
