"""From cells to numbers: score what the cells lack, and read it. The one way of every verb.

    frame = measure(cells, ["perplexity", "entropy", "calls"], Scorers((lambda: evaluator,)))
    frame[0].value(Number.of("perplexity"))          # an interval
    frame[0].statistic(Number.of("perplexity"))      # what it is resampled from

Measuring never asks a judge that costs money: `geq` is what a judge of this process says, or what
was stored.

Outputs of a known language are also compared with its law: violations, excess surprise, modes. The
language is found by the hash in the checkpoint's spec: it ships, or the run kept its grammar.

Texts that belong to no run are scored in the evaluator's own tokens. There is no generator to ask
for token ids, so entropy and repetition count the evaluator's tokens, and pools can be compared
only under the same evaluator. There is no guard: it belongs to a generator's vocabulary and length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strop.engine.plan import LOCAL, Engine, Progress, Silent, stop_if_planning
from strop.errors import UserError
from strop.measure.frame import Frame, Score, read_cell, score_of
from strop.measure.metric import (
    METRICS,
    MODES,
    PERPLEXITY,
    VENDI,
    VIOLATIONS,
    Columns,
    Ids,
    Metric,
    Number,
    PoolRows,
    joined,
    leave_out_broken,
    metrics,
)
from strop.measure.perplexity import (
    TOKENS,
    perplexity_columns,
    perplexity_metric,
    score_perplexity,
    token_columns,
)
from strop.measure.score import (
    Scoring,
    refuse_unscored,
    score_cell,
    score_embeddings,
    score_records,
)
from strop.measure.spans import Passage, check_policy
from strop.spec.value import MetricSpec, SpanPolicy
from strop.store import Run

if TYPE_CHECKING:
    from strop.language import Language
    from strop.measure.evaluator import Evaluator
    from strop.measure.guard import Guard
    from strop.store import Cell, ScoreTable

TRUTHS = (VIOLATIONS.name, MODES.name)
NO_LENGTH = "The policy public-code cuts to a generator's length, and these texts have none."
BATCH = 16
"""Texts that are scored at a time."""
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
    names: Sequence[str] | None = None,
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
    if names is None:
        asked = _score_all(drawn, by)
        return Frame(tuple(read_cell(cell, guard) for cell in cells), asked)
    records = {number.record.name: number.record for number in map(Number.of, names)}
    asked = _score(drawn, records.values(), by)
    return Frame(tuple(read_cell(cell, guard, asked, outputs) for cell in cells), asked)


def _score_all(cells: Sequence[Cell], by: Scorers) -> dict[str, list[MetricSpec]]:
    """Every metric that can be measured; those of the text where there is one."""
    for cell in cells:
        score_records(cell)
        for name in TRUTHS:
            score_truth(cell, name)
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
        elif record.name in TRUTHS:
            measured = [score_truth(cell, record.name) for cell in cells]
            specs = [spec for spec in measured if spec is not None]
        elif record.measure is not None:
            specs = [record.spec]
            for cell in cells:
                score_cell(cell, record.spec, record.measure, needs_text=record.needs_text)
        asked[record.name] = list(dict.fromkeys(specs))
    _refuse_unscored(cells, asked.get(PERPLEXITY.name, ()))
    return asked


def _perplexities(cells: Sequence[Cell], by: Scorers) -> list[MetricSpec]:
    if not by.evaluators:
        raise UserError("Perplexity needs an evaluator.", where="`evaluator`")
    metrics = []
    for load in by.evaluators:
        evaluator = load()
        metrics += [
            _score_perplexity(alike, evaluator, span, by)
            for span in by.spans
            for alike in _by_metric(cells)
        ]
    return metrics


def _score_perplexity(
    cells: Sequence[Cell],
    evaluator: Evaluator,
    span: SpanPolicy,
    by: Scorers,
    name: str = PERPLEXITY.name,
) -> MetricSpec:
    where = {"progress": by.progress, "engine": by.engine}
    return score_perplexity(cells, evaluator, span, name=name, **where, **by.reading)


def token_table(cell: Cell, by: Scorers) -> ScoreTable:
    """The scored tokens of a cell's outputs one by one, by the first evaluator and span policy."""
    if TOKENS in by.own:
        metric = by.own[TOKENS](cell)
    else:
        metric = _score_perplexity([cell], by.evaluators[0](), by.spans[0], by, name=TOKENS)
    table = cell.score(metric)
    if table is None:
        raise UserError("The cell's scores were removed.", where=cell.path)
    return table


def _by_metric(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells whose outputs answer prompts have another metric than those that answer none."""
    groups: dict[bool, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.spec.generator.prompts is None, []).append(cell)
    return list(groups.values())


def _refuse_unscored(cells: Sequence[Cell], perplexities: Sequence[MetricSpec]) -> None:
    """Others may not have scored their part of the outputs yet."""
    for alike in _by_metric(cells):
        prompted = alike[0].spec.generator.prompts is not None
        for metric in perplexities:
            if ("context" in metric.settings) == prompted:
                refuse_unscored([Scoring(cell, metric) for cell in alike])


def score_truth(cell: Cell, name: str) -> MetricSpec | None:
    """Score what a cell lacks of one of the two metrics; None where its law is not known."""
    from strop.language.reading import known_language

    checkpoint = cell.spec.generator.checkpoint
    if checkpoint.family != VIOLATIONS.family:
        return None
    known = known_language(checkpoint.sha256, Run(cell.path.parents[1]).grammar)
    if known is None:
        return None
    language, measure = known, _wrong if name == VIOLATIONS.name else _modes
    spec = MetricSpec(name=name, settings={"language": checkpoint.sha256})
    score_cell(cell, spec, lambda _, ids: measure(ids, language), needs_text=False)
    return spec


@lru_cache(maxsize=4)
def _entropy(language: Language) -> float:
    from strop.language.reading import DRAWS

    return language.entropy(DRAWS).value


def _wrong(ids: Ids, language: Language) -> Columns:
    rows = np.where(ids < 0, language.mask_id, ids)
    excess = -language.log_p(rows) - _entropy(language)
    return {"violations": language.violations(rows), "excess": excess}


def _modes(ids: Ids, language: Language) -> Columns:
    rows = np.where(ids < 0, language.mask_id, ids)
    law = language.posterior([]).reshape(-1)
    modes = language.posterior(rows).reshape(len(rows), -1).argmax(1)
    valid = (language.violations(rows) == 0).astype(np.int64)
    return {"mode": modes, "probability": law[modes], "valid": valid}


def check_policies(policies: Sequence[SpanPolicy]) -> None:
    """Refuse a policy that only outputs of a generator have."""
    for policy in policies:
        check_policy(policy, NO_LENGTH)


def score_texts(
    texts: Sequence[str],
    evaluator: Evaluator,
    policies: Sequence[SpanPolicy],
    *,
    clean_up: bool | None = None,
    progress: Progress | None = None,
    name: str = "texts",
) -> list[Score]:
    """Perplexity by every policy, and every metric whose record needs ids or text alone."""
    check_policies(policies)
    outputs, index = _passages(texts, evaluator), np.arange(len(texts))
    nothing = PoolRows.of(np.zeros((len(texts), 0), np.int64))
    scores = []
    for policy in policies:
        metric = perplexity_metric(evaluator, policy, clean_up=clean_up)
        measured = partial(perplexity_columns, evaluator, metric, length=0)
        columns = _in_batches(outputs, metric, measured, progress, name)
        scores.append(score_of(PERPLEXITY, metric, index, columns, nothing))
    for record in metrics():
        if record.measure is None:
            continue
        spec = record.spec.model_copy(update={"evaluator": evaluator.spec})
        with leave_out_broken(record):
            columns = joined(
                [record.measure([passage.text], passage.ids[None]) for passage in outputs]
            )
            scores.append(score_of(record, spec, index, columns, nothing))
    return scores


def text_tokens(
    texts: Sequence[str],
    evaluator: Evaluator,
    policy: SpanPolicy,
    *,
    progress: Progress | None = None,
    name: str = "texts",
) -> dict[str, NDArray]:
    """Every text's scored tokens one by one; see `token_columns`."""
    check_policies([policy])
    metric = perplexity_metric(evaluator, policy, name=TOKENS)
    outputs = _passages(texts, evaluator)
    # An end marker's text may be read as several tokens, and as one where it ends a document.
    width = 1 + max((len(passage.ids) for passage in outputs), default=0)
    measured = partial(token_columns, evaluator, metric, width=width, length=0)
    return _in_batches(outputs, metric, measured, progress, name)


def _passages(texts: Sequence[str], evaluator: Evaluator) -> list[Passage]:
    ids = [np.array(row, np.int64) for row in evaluator.encode(list(texts))]
    return [Passage(text, row) for text, row in zip(texts, ids, strict=True)]


def _in_batches(
    outputs: Sequence[Passage],
    metric: MetricSpec,
    measured: Callable[[Sequence[Passage]], Columns],
    progress: Progress | None,
    name: str,
) -> dict[str, NDArray]:
    progress = Silent() if progress is None else progress
    assert metric.evaluator is not None
    progress.start(None, len(outputs), 0, f"{name} {metric.evaluator.name} {metric.span}")
    parts = []
    for start in range(0, len(outputs), BATCH):
        batch = outputs[start : start + BATCH]
        parts.append(measured(batch))
        progress.advance(len(batch), sum(len(passage.ids) for passage in batch))
    return joined(parts)
