"""Scoring what is on disk: every metric of every cell, continued where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from strop.engine import LOCAL, Engine
from strop.engine.hire import hired
from strop.engine.workers import Job, drive, walk
from strop.metrics.metric import leave_out_broken, metrics
from strop.metrics.score_sink import Outputs, ScoreDesk, Scoring
from strop.progress import Progress, Silent
from strop.spec import MetricSpec
from strop.store import Cell

__all__ = [
    "Measure",
    "Measuring",
    "Outputs",
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


class Measuring:
    """Measures units here: a cell's number and some of its outputs to columns."""

    def __init__(self, measure: Callable[[int, Outputs], Mapping[str, NDArray]]) -> None:
        self.facts: dict[str, object] = {}
        self._measure = measure

    def work(self, order: tuple[int, Outputs]) -> Iterator[tuple[dict[str, NDArray], int]]:
        """The columns of a unit, and how many tokens it has."""
        number, some = order
        columns = {"index": some.index, **self._measure(number, some)}
        yield columns, int((some.ids >= 0).sum())


class EmbeddingJob:
    """What a worker needs to embed texts."""

    needs = None  # there is one model

    def check(self) -> None:
        """The package is installed."""
        from strop.metrics.embeddings import embedding_spec

        embedding_spec()

    def load(self, device: str) -> str:
        """Nothing but where: the model loads with the first texts, and stays."""
        return device

    def open(self, loaded: str) -> Measuring:
        """On a device."""
        from strop.metrics.embeddings import embed

        return Measuring(lambda _, some: {"embedding": embed(some.texts, device=loaded)})


def score_embeddings(
    cells: Cell | Sequence[Cell],
    *,
    device: str = "auto",
    progress: Progress | None = None,
    engine: Engine = LOCAL,
) -> MetricSpec:
    """Sentence embeddings of the outputs, from which the Vendi score follows."""
    from strop.metrics.embeddings import vendi_metric

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
    hand = Measuring(lambda _, some: measure(some))
    score_all(
        [Scoring(cell, metric, batch, needs_text)], lambda: hand, progress=progress, what=what
    )


def score_all(
    work: Sequence[Scoring],
    here: Callable[[], Measuring],
    job: Callable[[], Job] | None = None,
    *,
    progress: Progress | None = None,
    what: str = "",
    engine: Engine = LOCAL,
) -> None:
    """Score what cells lack: `here`, or, where there is a `job`, by the workers of an engine."""
    progress = Silent() if progress is None else progress
    if job is not None and engine.parallel and any(one.missing() for one in work):
        asked = job()
        with hired(engine) as crew:
            desk = ScoreDesk(work, progress, what, engine, crew.size)
            with closing(desk):
                drive(crew, asked, desk)
    else:
        with closing(ScoreDesk(work, progress, what, engine)) as desk:
            walk(here(), desk)
