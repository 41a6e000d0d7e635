"""From cells to numbers: score what the cells lack, and read it. The one way of every verb.

    frame = measure(cells, ["perplexity", "entropy", "calls"], Scorers((lambda: evaluator,)))
    frame[0].value(Number.of("perplexity"))          # an interval
    frame[0].statistic(Number.of("perplexity"))      # what it is resampled from

Measuring never asks a judge that costs money: `geq` is what a judge of this process says, or what
was stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strop.engine import LOCAL, Engine
from strop.engine.plan import stop_if_planning
from strop.errors import UserError
from strop.measure import truth
from strop.measure.frame import Frame, read_cell
from strop.measure.metric import METRICS, PERPLEXITY, VENDI, Metric
from strop.measure.number import Number
from strop.measure.score import (
    Scoring,
    refuse_unscored,
    score_cell,
    score_embeddings,
    score_records,
)
from strop.spec import MetricSpec

if TYPE_CHECKING:
    from strop.engine.progress import Progress
    from strop.measure.causal import Evaluator
    from strop.measure.guard import Guard
    from strop.spec import SpanPolicy
    from strop.store import Cell, ScoreTable

Scorer = Callable[["Cell"], "MetricSpec"]
"""Scores what a cell lacks of one metric, and says which it is."""


@dataclass(frozen=True)
class Scorers:
    """Who scores what cells lack, and where."""

    evaluators: Sequence[Callable[[], Evaluator]] = ()
    """Each is loaded when it is needed first, and one at a time."""
    spans: Sequence[SpanPolicy] = ("first-document",)
    """Which tokens count for perplexity."""
    own: Mapping[str, Scorer] = field(default_factory=dict)
    """By metric, for those that need a judge or a task; they come before anything else."""
    engine: Engine = LOCAL
    """Where perplexities and embeddings are measured."""
    progress: Progress | None = None
    embeddings: bool = False
    """Whether texts are embedded, for the Vendi score, where nothing in particular is wanted."""
    device: str = "auto"
    """Of the embeddings."""
    reading: Mapping[str, Any] = field(default_factory=dict)
    """How evaluators read: `retokenise`, `clean_up`, `batch_size`."""


def measure(
    cells: Sequence[Cell],
    wanted: Sequence[str] | None = None,
    by: Scorers | None = None,
    *,
    guard: Guard | None = None,
    outputs: tuple[int, int] | None = None,
) -> Frame:
    """The numbers of cells, row by row.

    `wanted` are names as `Number.of` takes them, and nothing else is scored or read; by default
    every metric that the scorers can measure, and whatever is stored. `outputs` are the first that
    counts and the one behind the last; by default all of a cell.
    """
    stop_if_planning()
    by = Scorers() if by is None else by
    drawn = [cell for cell in cells if cell.indices()]
    if wanted is None:
        asked = _score_all(drawn, by)
        return Frame(tuple(read_cell(cell, guard) for cell in cells), asked)
    records = {one.record.name: one.record for one in map(Number.of, wanted)}
    asked = _score(drawn, records.values(), by)
    return Frame(tuple(read_cell(cell, guard, asked, outputs) for cell in cells), asked)


def _score_all(cells: Sequence[Cell], by: Scorers) -> dict[str, list[MetricSpec]]:
    """Every metric that can be measured; those of the text where there is one."""
    for cell in cells:
        score_records(cell)
        for name in truth.NAMES:
            truth.score_truth(cell, name)
    records = [METRICS[name] for name in by.own]
    records += [PERPLEXITY] if by.evaluators else []
    records += [VENDI] if by.embeddings else []
    return _score(cells, records, by)


def _score(
    cells: Sequence[Cell], records: Iterable[Metric], by: Scorers
) -> dict[str, list[MetricSpec]]:
    """Score what cells lack of some metrics; by record, which these are."""
    asked: dict[str, list[MetricSpec]] = {}
    for record in records:
        specs: list[MetricSpec] = []
        if record.name in by.own:
            specs = [by.own[record.name](cell) for cell in cells]
        elif record is PERPLEXITY:
            specs = _perplexities(cells, by)
        elif record is VENDI:
            specs = [
                score_embeddings(cells, device=by.device, progress=by.progress, engine=by.engine)
            ]
        elif record.name in truth.NAMES:
            found = [truth.score_truth(cell, record.name) for cell in cells]
            specs = [spec for spec in found if spec is not None]
        elif record.measure is not None:
            specs = [record.spec]
            for cell in cells:
                score_cell(cell, record.spec, record.measure, needs_text=record.needs_text)
        asked[record.name] = list(dict.fromkeys(specs))
    _refuse_unscored(cells, asked.get(PERPLEXITY.name, ()))
    return asked


def _perplexities(cells: Sequence[Cell], by: Scorers) -> list[MetricSpec]:
    from strop.measure.perplexity import score_perplexity

    if not by.evaluators:
        raise UserError("Perplexity needs an evaluator.", where="`evaluator`")
    found = []
    for load in by.evaluators:
        evaluator = load()
        found += [
            score_perplexity(
                some, evaluator, span, progress=by.progress, engine=by.engine, **by.reading
            )
            for span in by.spans
            for some in _alike(cells)
        ]
    return found


def token_table(cell: Cell, by: Scorers) -> ScoreTable:
    """The scored tokens of a cell's outputs one by one, by the first evaluator and span policy."""
    from strop.measure.perplexity import TOKENS, score_perplexity

    if TOKENS in by.own:
        metric = by.own[TOKENS](cell)
    else:
        metric = score_perplexity(
            cell,
            by.evaluators[0](),
            by.spans[0],
            progress=by.progress,
            engine=by.engine,
            name=TOKENS,
            **by.reading,
        )
    found = cell.score(metric)
    if found is None:
        raise UserError("The cell's scores were removed.", where=cell.path)
    return found


def _alike(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells whose outputs answer prompts have another metric than those that answer none."""
    groups: dict[bool, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.spec.generator.prompts is None, []).append(cell)
    return list(groups.values())


def _refuse_unscored(cells: Sequence[Cell], perplexities: Sequence[MetricSpec]) -> None:
    """Others may not have scored their part of the outputs yet."""
    for some in _alike(cells):
        prompted = some[0].spec.generator.prompts is not None
        for metric in perplexities:
            if ("context" in metric.settings) == prompted:
                refuse_unscored([Scoring(cell, metric) for cell in some])
