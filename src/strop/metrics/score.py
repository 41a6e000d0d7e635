"""Scoring what is on disk: every metric of every cell, continued where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.metrics.metric import leave_out_broken, metrics
from strop.progress import Progress, Silent
from strop.spec import MetricSpec
from strop.store import Cell
from strop.store.tables import PIECES, token_ids

__all__ = [
    "FLUSH_SECONDS",
    "Measure",
    "Outputs",
    "score_cell",
    "score_embeddings",
    "score_outputs",
    "score_records",
]

FLUSH_SECONDS = 2.0

Measure = Callable[[Sequence[str], NDArray[np.int64]], Mapping[str, NDArray]]
"""From some outputs' texts and ids [n, L] to columns; -1 behind an output that is shorter."""


@dataclass(frozen=True)
class Outputs:
    """Some outputs of a cell."""

    index: NDArray[np.int64]
    texts: Sequence[str]
    ids: NDArray[np.int64]
    """[n, L], -1 behind an output that is shorter."""
    pieces: Sequence[Sequence[str]] | None
    """Per output, the texts of the gaps that it fills; None where prompts have no gaps."""


def score_records(cell: Cell) -> None:
    """Every metric whose record says how it is measured; those of the text where there is one."""
    for record in metrics():
        if record.measure is None or record.of_pool:
            continue
        if record.needs_text and None in cell.table()["text"].to_pylist():
            continue
        with leave_out_broken(record):
            score_cell(cell, record.spec, record.measure, needs_text=record.needs_text)


def score_embeddings(
    cell: Cell, *, device: str = "auto", progress: Progress | None = None
) -> MetricSpec:
    """Sentence embeddings of the outputs, from which the Vendi score follows."""
    from strop.metrics.embeddings import embed, vendi_metric

    metric = vendi_metric()
    score_cell(
        cell,
        metric,
        lambda texts, _: {"embedding": embed(texts, device=device)},
        batch=32,
        progress=progress,
        what="embeddings",
    )
    return metric


def score_cell(
    cell: Cell,
    metric: MetricSpec,
    measure: Measure,
    *,
    batch: int | None = None,
    needs_text: bool = True,
    progress: Progress | None = None,
    what: str = "",
) -> None:
    """As `score_outputs`, for what needs texts and ids alone."""
    score_outputs(
        cell,
        metric,
        lambda some: measure(some.texts, some.ids),
        batch=batch,
        needs_text=needs_text,
        progress=progress,
        what=what,
    )


def score_outputs(
    cell: Cell,
    metric: MetricSpec,
    measure: Callable[[Outputs], Mapping[str, NDArray]],
    *,
    batch: int | None = None,
    needs_text: bool = True,
    progress: Progress | None = None,
    what: str = "",
) -> None:
    """Measure the outputs that the metric's file lacks, making them durable every few seconds.

    `batch` is how many outputs go to `measure` at a time: all, by default.
    """
    progress = Silent() if progress is None else progress
    table = cell.table()
    index = table["index"].to_numpy()
    if len(index) == 0:
        raise UserError(
            "The cell has no outputs to score.",
            where=cell.path,
            fix="run the command that made the run again; it draws what is missing",
        )
    known = cell.score(metric)
    missing = np.flatnonzero(~np.isin(index, [] if known is None else known.index))
    progress.start(cell.spec, len(index), len(index) - len(missing), what)
    if not len(missing):
        return
    ids, texts = token_ids(table, cell.spec), table["text"].to_pylist()
    pieces = table[PIECES].to_pylist() if PIECES in table.column_names else None
    if needs_text and any(text is None for text in texts):
        raise UserError(
            "The outputs have no text, only token ids.",
            where=cell.path,
            expected="a checkpoint with its tokenizer beside the weights (tokenizer.json)",
            fix="sample with the tokenizer in place; or score what needs no text: `evaluator` none",
        )
    waiting: list[dict[str, NDArray]] = []
    last = time.monotonic()

    def flush() -> None:
        nonlocal last
        names = waiting[0]
        cell.add_scores(metric, {k: np.concatenate([one[k] for one in waiting]) for k in names})
        waiting.clear()
        last = time.monotonic()

    size = batch or len(missing)
    try:
        for start in range(0, len(missing), size):
            rows = missing[start : start + size]
            own = None if pieces is None else [pieces[i] for i in rows]
            some = Outputs(index[rows], [texts[i] for i in rows], ids[rows], own)
            waiting.append({"index": index[rows], **measure(some)})
            progress.advance(len(rows), int((some.ids >= 0).sum()))
            if time.monotonic() - last > FLUSH_SECONDS:
                flush()
    finally:
        if waiting:  # also when interrupted: what is finished is kept
            flush()
