"""What GroupEval found, judge by judge: the scores that `strop groupeval score` kept.

A file of judgments has no place for scores, so it is scored here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.page.data import JudgedSeries, Shown
from strop.table import Column, Table

if TYPE_CHECKING:
    from strop.groupeval import Judgments

COLUMNS = (
    Column("name", "generator", mark="mark"),
    Column("geq", "GEQ", digits=3, help="Quality, 0 to 10; 95% interval."),
    Column("ged", "GED", digits=3, help="Diversity, 0 to 10."),
    Column("invalid", digits=3, percent=True, help="Outputs that fail the validity gate."),
    Column("modes", digits=3, help="Effective number of different contents in a group."),
    Column("judged", help="Judgments accepted of those asked for; what is missing is no score."),
)


def judged_series(sources: Iterable[str], cells: Sequence[Shown]) -> Iterable[JudgedSeries]:
    """Every series of some GroupEval directories and files of judgments.

    `cells` are the report's, recognised by the names that GroupEval may give them.
    """
    from strop.groupeval import list_series, load_judgments, score

    for source in sources:
        if not Path(source).is_dir():
            judgments = load_judgments(source)
            yield _series(source, judgments, score(judgments)["cells"], cells)
            continue
        for series in list_series(source):
            name = f"{source}@{series.id}"
            judgments, kept = load_judgments(name), series.read_result()
            numbers = {} if kept is None else kept["cells"]
            judged = sum(one["n_groups"] for one in numbers.values())
            is_current = kept is not None and judged == len(judgments.verdicts)
            yield _series(name, judgments, numbers if is_current else None, cells)


def _series(
    name: str,
    judgments: Judgments,
    numbers: Mapping[str, Any] | None,
    cells: Sequence[Shown],
) -> JudgedSeries:
    """A judge's table; without numbers, its title says how to get them."""
    judge = _label(judgments, name)
    offline = judgments.judge is not None and judgments.judge.kind == "offline"
    title = f"Judged by {judge}"
    if numbers is None:
        title += f": not scored since; strop groupeval score {shlex.quote(name)} adds it"
    rows = [_row(one, found, cells) for one, found in (numbers or {}).items()]
    return JudgedSeries(judge, offline, Table(title, COLUMNS, rows))


def _label(judgments: Judgments, name: str) -> str:
    who = Path(name).name if judgments.judge is None else judgments.judge.title
    return f"{who}, profile {judgments.profile[:8]}" if judgments.profile else who


def _row(name: str, found: dict[str, Any], cells: Sequence[Shown]) -> dict[str, Any]:
    cell = recognised(name, cells)
    return {
        "name": name if cell is None else cell.plain_name,
        "mark": "" if cell is None else cell.measured.mark,
        "geq": found["geq"],
        "ged": found["ged"],
        "invalid": found.get("invalid_rate"),
        "modes": found.get("effective_modes"),
        "judged": f"{found['n_groups']} of {found['n_groups_asked']}",
    }


def recognised(name: str, cells: Sequence[Shown]) -> Shown | None:
    """The cell that GroupEval calls so; a name that two cells could have names neither."""
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
