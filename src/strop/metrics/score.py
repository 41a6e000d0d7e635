"""Scoring what is on disk: every metric of every cell, continued where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.metrics.metric import leave_out_broken, metrics
from strop.progress import Progress, Silent
from strop.spec import MetricSpec
from strop.store import Cell
from strop.store.tables import PIECES, ROWS, TOKENS, token_ids

if TYPE_CHECKING:
    import pyarrow as pa

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
FLUSH_SHARE = 20
"""How much longer than a flush the work between two of them takes, at least."""

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
        if record.needs_text and any(some["text"].null_count for some in cell.rows(["text"])):
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

    `batch` is how many outputs go to `measure` at a time.
    """
    progress = Silent() if progress is None else progress
    index = np.array(sorted(cell.indices()), np.int64)
    if len(index) == 0:
        raise UserError(
            "The cell has no outputs to score.",
            where=cell.path,
            fix="run the command that made the run again; it draws what is missing",
        )
    known = cell.score(metric)
    missing = index if known is None else np.setdiff1d(index, known.index)
    progress.start(cell.spec, len(index), len(index) - len(missing), what)
    if not len(missing):
        return
    waiting: list[dict[str, NDArray]] = []
    last, pause = time.monotonic(), FLUSH_SECONDS

    def flush() -> None:
        nonlocal last, pause
        began = time.monotonic()
        names = waiting[0]
        cell.add_scores(metric, {k: np.concatenate([one[k] for one in waiting]) for k in names})
        waiting.clear()
        last = time.monotonic()
        # The file is written whole: where that takes long, seldom, or time would grow as n squared.
        pause = max(FLUSH_SECONDS, FLUSH_SHARE * (last - began))

    try:
        for some in _batches(cell, missing, batch or ROWS):
            if needs_text and None in some.texts:
                raise UserError(
                    "The outputs have no text, only token ids.",
                    where=cell.path,
                    expected="a checkpoint with its tokenizer beside the weights (tokenizer.json)",
                    fix="sample with the tokenizer in place; or score what needs no text: "
                    "`evaluator` none",
                )
            waiting.append({"index": some.index, **measure(some)})
            progress.advance(len(some.index), int((some.ids >= 0).sum()))
            if time.monotonic() - last > pause:
                flush()
    finally:
        if waiting:  # also when interrupted: what is finished is kept
            flush()


def _batches(cell: Cell, wanted: NDArray[np.int64], size: int) -> Iterator[Outputs]:
    """Some outputs of a cell, `size` at a time; few more than that are in memory."""
    import pyarrow as pa

    columns = [name for name in ("ids", "text", TOKENS, PIECES) if name in cell.columns()]
    waiting: list[pa.Table] = []
    for table in cell.rows(columns, rows=max(size, ROWS)):
        mine = np.isin(table["index"].to_numpy(), wanted)
        waiting.append(table.filter(pa.array(mine)))
        whole = pa.concat_tables(waiting)
        full = len(whole) // size * size
        for start in range(0, full, size):
            yield _outputs(cell, whole.slice(start, size))
        waiting = [whole.slice(full)]
    if waiting and len(waiting[0]):
        yield _outputs(cell, waiting[0])


def _outputs(cell: Cell, table: pa.Table) -> Outputs:
    pieces = table[PIECES].to_pylist() if PIECES in table.column_names else None
    index, texts = table["index"].to_numpy(), table["text"].to_pylist()
    return Outputs(index, texts, token_ids(table, cell.spec), pieces)
