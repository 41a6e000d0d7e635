"""The report's own tables, for the terminal and for the page, and what stands around them.

What GroupEval found, judge by judge: the scores that `strop groupeval score` kept.

A file of judgments has no place for scores, so it is scored here.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.groupeval.scores import COPIED, DIAGNOSTICS, FACTOR_COLUMNS, current_scores, differences
from strop.measure.frame import SMALL, Measured, cut_notes
from strop.measure.metric import metrics
from strop.page.data import (
    CellGroup,
    JudgedSeries,
    Report,
    Shown,
    encodable,
    listed,
    rater,
    replaced,
    value_of,
)
from strop.spec.value import MetricSpec
from strop.table import Column, Pivot, Table

if TYPE_CHECKING:
    from strop.groupeval import Judgments


FIGURES = 5
"""Significant digits of the numbers of an output: more than the page shows."""
COLUMNS = (
    Column("name", "generator", mark="mark"),
    Column("geq", "GEQ", digits=3, help="Quality, 0 to 10; 95% interval."),
    Column("ged", "GED", digits=3, help="Diversity, 0 to 10."),
    *FACTOR_COLUMNS,
    COPIED,
    *DIAGNOSTICS,
    Column("judged", help="Judgments accepted of those asked for; what is missing is no score."),
)
ANSWERS = (
    *COLUMNS[:2],
    Column("ged_interval", "GED", digits=3, help="Diversity of a prompt's answers, 0 to 10."),
    *COLUMNS[3:],
)
"""Of answers to prompts; intervals are over prompts."""


def judged_series(sources: Iterable[str], cells: Sequence[Shown]) -> Iterable[JudgedSeries]:
    """Every series of some GroupEval directories and files of judgments.

    `cells` are the report's, recognised by the names that GroupEval may give them.
    """
    from strop.groupeval import list_series, load_judgments, score
    from strop.groupeval.bootstrap import against_first

    for source in sources:
        if not Path(source).is_dir():
            judgments = load_judgments(source)
            numbers = score(judgments) | {"differences": against_first(judgments)}
            yield _series(source, judgments, numbers, cells)
            continue
        for series in list_series(source):
            name = f"{source}@{series.id}"
            judgments = load_judgments(name)
            yield _series(name, judgments, current_scores(series, judgments), cells)


def _series(
    name: str,
    judgments: Judgments,
    numbers: dict[str, Any] | None,
    cells: Sequence[Shown],
) -> JudgedSeries:
    """A judge's table; without numbers, its title says how to get them."""
    judge = _label(judgments, name)
    offline = judgments.judge is not None and judgments.judge.kind == "offline"
    title = f"Judged by {judge}"
    if numbers is None:
        title += f": not scored since; strop groupeval score {shlex.quote(name)} adds it"
    results = numbers or {"cells": {}}
    rows = [_row(cell_name, scores, cells) for cell_name, scores in results["cells"].items()]
    columns = ANSWERS if judgments.by_prompt else COLUMNS
    filled = {name for row in rows for name, value in row.items() if value is not None}
    columns = tuple(column for column in columns if column.name in filled) if rows else columns
    from strop.groupeval.validation import card_of, card_words

    who = judgments.judge
    judged = who is not None and who.kind != "human" and judgments.modes
    card_document = results.get("card") or card_of(who)
    card = card_words(card_document, who.title, judgments.profile) if who and judged else ""
    compared = _with_page_names(differences(results), results["cells"], cells)
    return JudgedSeries(judge, offline, Table(title, columns, rows), compared, card)


def _label(judgments: Judgments, name: str) -> str:
    file = Path(name)
    who = f"the {rater(name)}" if file.parent.name == "ratings" else file.name
    who = who if judgments.judge is None else judgments.judge.title
    return f"{who}, profile {judgments.profile[:8]}" if judgments.profile else who


SIDES = (
    Column("pair", "B minus A"),
    Column("judge"),
    Column("geq_a", "GEQ of A", digits=3),
    Column("geq_b", "GEQ of B", digits=3),
    Column("geq_difference", "B minus A, GEQ", digits=3, signed=True, help="95% interval."),
    Column("outputs", help="Of A and B together, graded by both judges."),
)


def beside_each_other(
    sources: Iterable[str], rated: Sequence[Judgments], cells: Sequence[Shown]
) -> Iterable[Table]:
    """Every two judges of a directory, and every judge and person, on what both judged."""
    from strop.groupeval import list_series, load_judgments

    for source in sources:
        series = list_series(source) if Path(source).is_dir() else []
        judges = [load_judgments(f"{source}@{judged.id}") for judged in series]
        for pair in (*combinations(judges, 2), *product(judges, rated)):
            with suppress(UserError):  # there is nothing that both judged
                yield _with_page_names(two_judges(*pair), pair[0].cells, cells)


def two_judges(first: Judgments, other: Judgments) -> Table:
    """How far two judges agree, and what each says of every generator against the first."""
    from strop.groupeval.bootstrap import against_first
    from strop.groupeval.trust import agree, common

    agreement = agree([first, other])
    names = [_label(judge, judge.source) for judge in (first, other)]
    rows = [
        row
        | {
            "pair": f"{row['cell_b']} minus {row['cell_a']}",
            "judge": name,
            "outputs": row["n_outputs_a"] + row["n_outputs_b"],
        }
        for name, judge in zip(names, common([first, other]), strict=True)
        for row in against_first(judge)
    ]
    alpha = agreement["alpha"]["quality"]
    alike = "all grades are the same" if alpha is None else f"agreement {alpha:.2f}"
    title = (
        f"{names[0]} beside {names[1]}: {agreement['n_outputs']} outputs graded by both, {alike}"
    )
    rows.sort(key=lambda row: row["pair"])
    return Table(f"{title} (Krippendorff's alpha of quality)", SIDES, rows)


def _row(name: str, scores: dict[str, Any], cells: Sequence[Shown]) -> dict[str, Any]:
    cell = recognised(name, cells)
    return {
        "name": name if cell is None else cell.plain_name,
        "mark": "" if cell is None else cell.measured.mark,
        "geq": scores["geq"],
        "ged": scores["ged"],
        **{column.name: scores.get(column.name) for column in ANSWERS[2:-1]},
        "judged": f"{scores['n_groups']} of {scores['n_groups_asked']}",
    }


def _with_page_names(table: Table, names: Iterable[str], cells: Sequence[Shown]) -> Table:
    """With the page's names of generators in all words, where it shows them."""
    called = {name: cell.plain_name for name in names if (cell := recognised(name, cells))}
    rows = [
        {
            key: replaced(value, called) if isinstance(value, str) else value
            for key, value in row.items()
        }
        for row in table.rows
    ]
    return replace(table, rows=rows)


def recognised(name: str, cells: Sequence[Shown]) -> Shown | None:
    """The cell that GroupEval calls so; a name that two cells could have names neither."""
    matches = [cell for cell in cells if name == cell.measured.id or _fits(name, cell)]
    return matches[0] if len(matches) == 1 else None


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


BEST = "*"
"""What marks in the terminal what is bold on the page."""
STEPS = Column("steps", "M", help="Configured updates.")
POINT = Column("point", "sampler", help="Temperature, precision of the draw, what else differs.")


# ---------------------------------------------------------------------------- corners


def corner_tables(report: Report, group: CellGroup) -> list[Table]:
    """One per perplexity that some cell of the group has; without any, one of entropies."""
    have = [score.metric for cell in group.cells for score in cell.measured.perplexities]
    perplexities = {spec: name for spec, name in report.perplexities.items() if spec in have}
    if not perplexities:
        return [corner_table(group, None, "Entropy in nats")]
    return [
        corner_table(group, spec, f"Perplexity under {name}") for spec, name in perplexities.items()
    ]


def corner_table(group: CellGroup, wanted: MetricSpec | None, title: str) -> Table:
    """Budgets by operating points: a perplexity (None: the entropy) of every cell."""
    rows = []
    for steps in group.steps:
        line = {c.label: c for c in group.cells if c.measured.steps == steps}
        lowest = _lowest([cell.measured for cell in line.values()], wanted)
        # Every column in every line: a table's columns come in the order of its rows.
        rows += [
            _corner(group, steps, label, line.get(label), wanted, lowest) for label in group.labels
        ]
    value = Column("value", "perplexity" if wanted else "entropy", mark="sign")
    beside = ("entropy",) if wanted else ()
    columns = (STEPS, POINT, value, Column("entropy", digits=3))
    return Table(title, columns, rows, Pivot(("steps",), ("point",), "value", beside))


def _corner(
    group: CellGroup,
    steps: int,
    label: str,
    cell: Shown | None,
    wanted: MetricSpec | None,
    lowest: Measured | None,
) -> dict[str, Any]:
    row: dict[str, Any] = {"steps": steps, "point": label, "value": None, "cell": None}
    if cell is None:
        return row
    measured = cell.measured
    level, entropy = value_of(measured, wanted), measured.entropy
    best = measured is lowest
    return row | {
        "value": level,
        **({} if entropy is None else {"entropy": entropy.value}),
        "mark": measured.mark,
        "best": best,
        "sign": measured.mark + (BEST if best else ""),
        "standard": measured.point == group.standard,
        "few": measured.outputs if measured.outputs < SMALL else None,
        "cell": measured.id,
    }


def _lowest(cells: Iterable[Measured], wanted: MetricSpec | None) -> Measured | None:
    """Lowest perplexity among those not below or near the guard; one alone is no winner."""
    passing = [
        (level.value, i, cell)
        for i, cell in enumerate(cells)
        if wanted is not None and not cell.mark and (level := value_of(cell, wanted)) is not None
    ]
    return min(passing)[2] if len(passing) > 1 else None


def facts(group: CellGroup) -> list[str]:
    """What holds for all of a group's numbers, in sentences."""
    counts = sorted({cell.measured.outputs for cell in group.cells})
    outputs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    sentences = [f"Length {group.length:,}, seed {group.seed}, {outputs} outputs per cell."]
    few = [cell.plain_name for cell in group.cells if cell.measured.outputs < SMALL]
    if few:
        who = "All pools have" if len(few) == len(group.cells) else f"Pools ({listed(few)}) have"
        sentences.append(
            f"{who} fewer than {SMALL} outputs: intervals by resampling are too short there, at 8 "
            "outputs about 91% instead of 95%."
        )
    for guard in group.guards:
        if guard.threshold is None:
            sentences.append(f"No entropy guard: {guard.source}.")
        else:
            sentences.append(f"Guard: entropy of at least {guard.threshold:.2f} ({guard.source}).")
    sentences += [f"{note}." for note in cut_notes([cell.measured for cell in group.cells])]
    return [*sentences, *group.notes]


# ---------------------------------------------------------------------------- every metric


@dataclass(frozen=True)
class OutputColumn:
    """What is told of a single output, and the metric that says it; None for network calls."""

    column: Column
    metric: MetricSpec | None

    def values(self, cell: Shown, wanted: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of the outputs with these numbers; nan where one has none."""
        if self.metric is None:
            return np.array([cell.calls.get(number, np.nan) for number in wanted.tolist()])
        score = next((s for s in cell.measured.scores if s.metric == self.metric), None)
        if score is None or not len(score.index):
            return np.full(len(wanted), np.nan)
        positions = np.minimum(np.searchsorted(score.index, wanted), len(score.index) - 1)
        numbers = score.record.values(score.columns)[positions]
        return np.where((score.index[positions] == wanted) & np.isfinite(numbers), numbers, np.nan)


def output_columns(report: Report) -> list[OutputColumn]:
    """Of every metric that says something of single outputs."""
    columns = [
        OutputColumn(_named(record.output, name), spec)
        for record in metrics()
        if record.output is not None
        for spec, name in _of(report, record.name).items()
    ]
    calls = Column("calls", digits=4, help="Network calls that the output took part in.")
    return [*columns, *([OutputColumn(calls, None)] if report.cells else [])]


def pool_table(report: Report, group: CellGroup) -> Table:
    """Every number of every pool, as the records of the metrics have them."""
    columns, rows = [STEPS, POINT, Column("outputs")], [_pool_row(cell) for cell in group.ordered]
    for record in metrics():
        for spec, name in _of(report, record.name).items():
            for aggregate in (aggregate for aggregate in record.aggregates if aggregate.shown):
                key = f"{spec.id} {aggregate.column.name}"
                for cell, row in zip(group.ordered, rows, strict=True):
                    score = next((s for s in cell.measured.scores if s.metric == spec), None)
                    value = None if score is None else score.values[aggregate.column.name]
                    if value is not None:
                        row[key] = value
                if any(key in row for row in rows):
                    columns.append(_named(aggregate.column, name, key))
    columns.append(Column("calls", "network calls", digits=4, help="Per output."))
    seconds = "Per output, as the run's machine and batches had it."
    columns.append(Column("seconds", digits=3, help=seconds))
    return Table("Every number of the pools; intervals are 95%", tuple(columns), rows)


def _pool_row(cell: Shown) -> dict[str, Any]:
    measured = cell.measured
    return {
        "steps": measured.steps,
        "point": f"{cell.label} {measured.mark}".rstrip(),
        "outputs": measured.outputs,
        "calls": measured.calls,
        "seconds": measured.seconds,
    }


def _of(report: Report, record: str) -> dict[MetricSpec, str]:
    """The metrics of one record; named where there are several."""
    specs = {spec: name for spec, name in report.metrics.items() if spec.name == record}
    return specs if len(specs) > 1 else dict.fromkeys(specs, "")


def _named(column: Column, name: str, key: str | None = None) -> Column:
    label = column.label or column.name.replace("_", " ")
    label = f"{label} ({name})" if name else label
    return replace(column, name=key or column.name, label=label)


def rows_of(cell: Shown, columns: Sequence[OutputColumn]) -> list[list[Any]]:
    """What the browser of outputs knows of each: [[index, text, [values]], ...]."""
    numbers = np.array(list(cell.texts), np.int64)
    values = [column.values(cell, numbers).tolist() for column in columns]
    return [
        [
            index,
            encodable(text),
            [_few_figures(column_values[position]) for column_values in values],
        ]
        for position, (index, text) in enumerate(cell.texts.items())
    ]


def _few_figures(value: float) -> float | None:
    return None if math.isnan(value) else float(f"{value:.{FIGURES}g}")
