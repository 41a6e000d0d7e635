"""Generative perplexity: how surprised a causal language model is by an output.

Per output the sum of negative log-probabilities (nats), the tokens it is over, and bytes; from
these the aggregates. A reading longer than the context is read in windows that overlap by half
(`sliding`): each token is scored once, with at least half a context before it. Batches change the
speed and nothing else; no output is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strop.engine.plan import LOCAL, Engine, Progress
from strop.errors import UserError, unknown_name
from strop.measure.score import Outputs, ScoreWorker, Scoring, score_all
from strop.measure.spans import (
    POLICIES,
    Passage,
    Reading,
    Span,
    Stretch,
    answer_spans,
    check_policy,
    spans,
)
from strop.spec.value import EvaluatorSpec, MetricSpec, SpanPolicy
from strop.store import Cell
from strop.store.tables import KeptPrompts

if TYPE_CHECKING:
    from strop.measure.evaluator import Evaluator, EvaluatorRecipe

BATCH_TOKENS = {"cpu": 1024, "cuda": 8192}
"""Tokens that go through the network at a time, by device: enough to keep it busy, and no more,
because the network's own activations grow with them."""

TOKENS = "scored-tokens"
"""The metric whose numbers are tokens one by one."""
WIDTH = 2
"""Scored tokens of an output that are kept one by one, at most: so many times its length."""

OUTPUT_TOKENS = 8192
"""Tokens of outputs that are scored between two looks at the clock: eight outputs of 1,024."""


def perplexity_metric(
    evaluator: Evaluator,
    span: SpanPolicy,
    *,
    retokenise: bool = True,
    clean_up: bool | None = None,
    prompted: bool = False,
    name: str = "perplexity",
) -> MetricSpec:
    """The metric's name in full; `clean_up` is on for `public-code` alone unless you say so.

    `prompted`: of outputs that answer prompts, which are context (`strop.measure.spans`). `name`:
    sums over an output, or its tokens one by one (`TOKENS`).
    """
    clean = (span == "public-code" and retokenise) if clean_up is None else clean_up
    if span not in POLICIES:
        raise unknown_name("span policy", span, POLICIES, where="`span`")
    return MetricSpec(
        name=name,
        evaluator=evaluator.spec,
        span=span,
        settings={
            "retokenise": retokenise,
            "clean_up": clean,
            "long": POLICIES[span],
            **({"context": "prompt"} if prompted else {}),
        },
    )


def perplexity_columns(
    evaluator: Evaluator, metric: MetricSpec, outputs: Sequence[Passage], length: int
) -> dict[str, NDArray]:
    """Per output: nll, tokens, bytes, kept_bytes, source_bytes; for `public-code` three more.

    Those are the evaluator's tokens `read`, and the `filler_nll` and `filler_tokens` that count
    where a longer output is in the pool.
    """
    spans = _spans_of(evaluator, metric, outputs, length)
    assert metric.span is not None
    columns = _columns(spans, metric.span)
    for i, reading, log_probs in _read(evaluator, spans):
        body = slice(0, -1) if reading.filler else slice(None)
        columns["nll"][i] -= log_probs[body].sum()
        columns["tokens"][i] += int(reading.scored[body].sum())
        if reading.filler:
            columns["filler_nll"][i] -= log_probs[-1]
            columns["filler_tokens"][i] += 1
    return columns


def token_columns(
    evaluator: Evaluator, metric: MetricSpec, outputs: Sequence[Passage], width: int, length: int
) -> dict[str, NDArray]:
    """Per output: its first scored tokens one by one, `ids` and `nats` [n, width], and bytes.

    Behind an output that is shorter: -1 and zero. The public code's filler is no token of it.
    """
    spans = _spans_of(evaluator, metric, outputs, length)
    columns: dict[str, NDArray] = {
        "ids": np.full((len(spans), width), -1, np.int64),
        "nats": np.zeros((len(spans), width)),
        "kept_bytes": np.array([span.kept_bytes for span in spans], np.int64),
        "source_bytes": np.array([span.source_bytes for span in spans], np.int64),
    }
    filled = np.zeros(len(spans), np.int64)
    for i, reading, log_probs in _read(evaluator, spans):
        scored = reading.scored.copy()
        scored[len(scored) - reading.filler :] = False
        room_in_row = slice(filled[i], filled[i] + int(scored.sum()))
        room = max(0, min(room_in_row.stop, width) - room_in_row.start)
        columns["ids"][i, room_in_row] = reading.ids[scored][:room]
        columns["nats"][i, room_in_row] = -log_probs[scored][:room]
        filled[i] = room_in_row.stop
    return columns


def _spans_of(
    evaluator: Evaluator, metric: MetricSpec, outputs: Sequence[Passage], length: int
) -> list[Span]:
    if metric.evaluator != evaluator.spec or metric.span is None:
        raise UserError(
            "The metric is not one of this evaluator.", got=metric.name, where=evaluator.source
        )
    how = {
        "retokenise": bool(metric.settings["retokenise"]),
        "clean": bool(metric.settings["clean_up"]),
    }
    if "context" in metric.settings:
        return answer_spans(outputs, metric.span, evaluator, **how)
    return spans(outputs, metric.span, evaluator, length=length, **how)


def _read(
    evaluator: Evaluator, spans: Sequence[Span]
) -> Iterator[tuple[int, Reading, NDArray[np.float64]]]:
    """Every reading with its output's number and its tokens' log-probabilities."""
    readings = [(i, reading) for i, span in enumerate(spans) for reading in span.readings]
    scored = score_readings(evaluator, [reading for _, reading in readings])
    for (i, reading), log_probs in zip(readings, scored, strict=True):
        yield i, reading, log_probs


def _columns(spans: Sequence[Span], policy: SpanPolicy) -> dict[str, NDArray]:
    n = len(spans)
    columns: dict[str, NDArray] = {
        "nll": np.zeros(n),
        "tokens": np.zeros(n, np.int64),
        "bytes": np.array([span.bytes for span in spans], np.int64),
        "kept_bytes": np.array([span.kept_bytes for span in spans], np.int64),
        "source_bytes": np.array([span.source_bytes for span in spans], np.int64),
    }
    if policy == "public-code":
        sizes = [sum(len(r.ids) - r.filler for r in span.readings) for span in spans]
        columns |= {
            "read": np.array(sizes, np.int64),
            "filler_nll": np.zeros(n),
            "filler_tokens": np.zeros(n, np.int64),
        }
    return columns


@dataclass(frozen=True)
class _Window:
    """A part of a reading that fits the context."""

    reading: int
    start: int
    ids: NDArray[np.int64]
    scored: NDArray[np.bool_]


def score_readings(evaluator: Evaluator, readings: Sequence[Reading]) -> list[NDArray[np.float64]]:
    """Log-probabilities of every token of every reading, zero where it is not scored."""
    out = [np.zeros(len(reading.ids)) for reading in readings]
    windows = [
        window
        for number, reading in enumerate(readings)
        for window in _windows(number, reading, evaluator.context)
    ]
    for batch in _batches(windows, BATCH_TOKENS[evaluator.device.type]):
        log_probs = evaluator.log_probs([w.ids for w in batch], [w.scored for w in batch])
        for window, values in zip(batch, log_probs, strict=True):
            out[window.reading][window.start : window.start + len(values)] += values
    return out


def _windows(number: int, reading: Reading, context: int) -> Iterator[_Window]:
    size = len(reading.ids)
    start, done = 0, 0
    while done < size:
        stop = min(start + context, size)
        fresh = reading.scored[start:stop].copy()
        fresh[: done - start] = False  # what the window before has scored
        if fresh.any():
            yield _Window(number, start, reading.ids[start:stop], fresh)
        done, start = stop, start + max(1, context // 2)


def _batches(windows: list[_Window], tokens: int) -> Iterator[list[_Window]]:
    """Windows of like length together, longest first, a bounded number of tokens at a time."""
    batch: list[_Window] = []
    for window in sorted(windows, key=lambda w: -len(w.ids)):
        if batch and (len(batch) + 1) * len(batch[0].ids) > tokens:
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch


def _passages(outputs: Outputs, prompts: KeptPrompts | None) -> Iterator[Passage]:
    """Outputs with what they answer."""
    for i, index in enumerate(outputs.index.tolist()):
        text, ids = outputs.texts[i], outputs.ids[i][outputs.ids[i] >= 0]
        if prompts is None:
            yield Passage(text, ids)
            continue
        pieces = iter([text] if outputs.pieces is None else outputs.pieces[i])
        stretches, remaining, parts = prompts.canvases.prompt_of(index).stretches, ids, []
        for piece, part in zip(prompts.pieces_of(index) or (), stretches, strict=True):
            if isinstance(piece, int):
                parts.append(Stretch(next(pieces), remaining[:piece], scored=True))
                remaining = remaining[piece:]
            else:
                parts.append(Stretch(piece, np.array(part, np.int64), scored=False))
        yield Passage(text, ids, tuple(parts))


@dataclass(frozen=True)
class PerplexityJob:
    """What a worker needs to score cells: the evaluator's name, their metrics, what they answer."""

    metrics: tuple[MetricSpec, ...]
    """Of one evaluator, by cell."""
    prompts: tuple[KeptPrompts | None, ...]
    lengths: tuple[int, ...]
    recipe: EvaluatorRecipe | None = None
    """For other processes: whoever scores here has the evaluator."""

    @property
    def needs(self) -> tuple[EvaluatorRecipe, EvaluatorSpec]:
        """The evaluator, whatever it scores."""
        spec = self.metrics[0].evaluator
        assert spec is not None
        assert self.recipe is not None
        return self.recipe, spec

    def check(self) -> None:
        """The evaluator can be read here, and is the same."""
        from strop.measure.evaluator import check_evaluator

        check_evaluator(*self.needs)

    def load(self, device: str) -> Evaluator:
        """The evaluator, on a device."""
        from strop.measure.evaluator import load_evaluator

        how, _ = self.needs
        return load_evaluator(how.name, revision=how.revision, device=device, dtype=how.dtype)

    def open(self, loaded: Evaluator) -> ScoreWorker:
        """With the evaluator, which may load when it is first asked."""

        def measure(number: int, outputs: Outputs) -> dict[str, NDArray]:
            passages = list(_passages(outputs, self.prompts[number]))
            metric, length = self.metrics[number], self.lengths[number]
            if metric.name == TOKENS:
                return token_columns(loaded, metric, passages, WIDTH * length, length)
            return perplexity_columns(loaded, metric, passages, length)

        return ScoreWorker(measure)


def score_perplexity(
    cells: Cell | Sequence[Cell],
    evaluator: Evaluator,
    span: SpanPolicy,
    *,
    retokenise: bool = True,
    clean_up: bool | None = None,
    batch_size: int | None = None,
    progress: Progress | None = None,
    engine: Engine = LOCAL,
    name: str = "perplexity",
) -> MetricSpec:
    """Score cells on disk; what is there already is not scored again. Returns the metric.

    All cells answer prompts, or none does. `name` as for `perplexity_metric`.
    """
    cells = [cells] if isinstance(cells, Cell) else cells
    prompts = tuple(cell.prompts() for cell in cells)
    if any(kept is not None for kept in prompts):
        check_policy(span)
    settings: dict[str, Any] = {"retokenise": retokenise, "clean_up": clean_up, "name": name}
    metrics = tuple(
        perplexity_metric(evaluator, span, prompted=kept is not None, **settings)
        for kept in prompts
    )
    lengths = tuple(cell.spec.generator.length for cell in cells)
    job = PerplexityJob(metrics, prompts, lengths)
    score_all(
        [
            Scoring(cell, metric, batch_size or max(1, OUTPUT_TOKENS // length))
            for cell, metric, length in zip(cells, metrics, lengths, strict=True)
        ],
        lambda: job.open(evaluator),
        lambda: replace(job, recipe=evaluator.recipe),
        progress=progress,
        what=f"{evaluator.spec.name} {span}",
        engine=engine,
    )
    return metrics[0]
