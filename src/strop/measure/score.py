"""Scoring what is on disk: every metric of every cell, continued where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.engine import LOCAL, Engine
from strop.engine.worker import Job
from strop.engine.workers import run_units
from strop.measure.metric import leave_out_broken, metrics
from strop.measure.score_sink import Outputs, Scoring, score_sink
from strop.progress import Progress
from strop.spec import MetricSpec
from strop.store import Cell

__all__ = [
    "Measure",
    "Outputs",
    "ScoreWorker",
    "score_all",
    "score_cell",
    "score_embeddings",
    "score_outputs",
    "score_records",
]

Measure = Callable[[Sequence[str], NDArray[np.int64]], Mapping[str, NDArray]]
"""From some outputs' texts and ids [n, L] to columns; -1 behind an output that is shorter."""


def score_records(cell: Cell) -> None:
    """Every metric whose record says how it is measured; those of the text where there is one."""
    for record in metrics():
        if record.measure is None:
            continue
        if record.needs_text and any(some["text"].null_count for some in cell.rows(["text"])):
            continue
        with leave_out_broken(record):
            score_cell(cell, record.spec, record.measure, needs_text=record.needs_text)


class ScoreWorker:
    """Measures units here: a cell's number and some of its outputs to columns."""

    def __init__(self, measure: Callable[[int, Outputs], Mapping[str, NDArray]]) -> None:
        self.facts: dict[str, object] = {}
        self._measure = measure

    def work(self, cell: int, missing: Outputs) -> Iterator[tuple[dict[str, NDArray], int]]:
        """The columns of a unit, and how many tokens it has."""
        columns = {"index": missing.index, **self._measure(cell, missing)}
        yield columns, int((missing.ids >= 0).sum())


class EmbeddingJob:
    """What a worker needs to embed texts."""

    needs = None  # there is one model

    def check(self) -> None:
        """The package is installed."""
        from strop.measure.embeddings import embedding_spec

        embedding_spec()

    def load(self, device: str) -> str:
        """Nothing but where: the model loads with the first texts, and stays."""
        return device

    def open(self, loaded: str) -> ScoreWorker:
        """On a device."""
        from strop.measure.embeddings import embed

        return ScoreWorker(lambda _, some: {"embedding": embed(some.texts, device=loaded)})


def score_embeddings(
    cells: Cell | Sequence[Cell],
    *,
    device: str = "auto",
    progress: Progress | None = None,
    engine: Engine = LOCAL,
) -> MetricSpec:
    """Sentence embeddings of the outputs, from which the Vendi score follows."""
    from strop.measure.embeddings import vendi_metric

    metric, job = vendi_metric(), EmbeddingJob()
    work = [Scoring(one, metric, 32) for one in ([cells] if isinstance(cells, Cell) else cells)]
    score_all(
        work,
        lambda: job.open(job.load(device)),
        lambda: job,
        progress=progress,
        what="embeddings",
        engine=engine,
    )
    return metric


def score_cell(cell: Cell, metric: MetricSpec, measure: Measure, **how: Any) -> None:
    """As `score_outputs`, for what needs texts and ids alone."""
    score_outputs(cell, metric, lambda some: measure(some.texts, some.ids), **how)


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
    score_all(
        [Scoring(cell, metric, batch, needs_text)],
        lambda: ScoreWorker(lambda _, some: measure(some)),
        progress=progress,
        what=what,
    )


def score_all(
    work: Sequence[Scoring],
    here: Callable[[], ScoreWorker],
    job: Callable[[], Job] | None = None,
    *,
    progress: Progress | None = None,
    what: str = "",
    engine: Engine = LOCAL,
) -> None:
    """Score what cells lack: `here`, or, where there is a `job`, by the workers of an engine."""
    run_units(score_sink(work, progress, what, engine), here, job, engine)
