"""Scoring what is on disk: every metric of every cell, continued where it stopped.

Scores go to a file per metric and cell, from outputs that are read a few at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strop.disk import CLAIM, claimed
from strop.engine.plan import LOCAL, Engine, Progress, Unit, cut, refuse_missing
from strop.engine.sink import CellRows, KnownScores, Sink, forget_claims
from strop.engine.workers import Job, run_units
from strop.errors import UserError
from strop.measure.metric import joined, leave_out_broken, metrics
from strop.spec.value import MetricSpec
from strop.store import Cell, Run
from strop.store.tables import PIECES, ROWS, TOKENS, token_ids

if TYPE_CHECKING:
    import pyarrow as pa


# ------------------------------------------------------------------------------------------ score

FLUSH_SHARE = 20.0
"""How much longer than a flush the work between two of them takes, at least: a file is written
whole, so that time would else grow as n squared."""


@dataclass(frozen=True)
class Outputs:
    """Some outputs of a cell."""

    index: NDArray[np.int64]
    texts: Sequence[str]
    ids: NDArray[np.int64]
    """[n, L], -1 behind an output that is shorter."""
    pieces: Sequence[Sequence[str]] | None
    """Per output, the texts of the gaps that it fills; None where prompts have no gaps."""

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class Scoring:
    """One metric of one cell."""

    cell: Cell
    metric: MetricSpec
    batch: int | None = None
    """Outputs that are measured at a time: many, by default."""
    needs_text: bool = True

    def missing(self) -> set[int]:
        """Outputs that have no score yet."""
        stored = self.cell.score(self.metric)
        return self.cell.indices() - set([] if stored is None else stored.index.tolist())


class ScoreRows(CellRows):
    """Scores of a cell, which is read from its first output to its last, a few in memory at a time.

    A row is some outputs' columns and how many tokens these have. Another process may score the
    same outputs in other batches: the score that is there first stays.
    """

    def __init__(self, scoring: Scoring) -> None:
        self.spec, self._one = scoring.cell.spec, scoring
        self._known = KnownScores(scoring.cell, scoring.metric)
        self._index = self._missing = np.zeros(0, np.int64)
        self._claims = f"score-{scoring.metric.id}"

    @contextmanager
    def hold(self) -> Iterator[bool]:
        """Begin to read; what is drawn from now on is for the next time."""
        self._read()
        yield True
        self._tables, self._some = iter(()), None

    def claim(self, unit: Unit) -> AbstractContextManager[bool]:
        """By the metric and the unit's first output."""
        return claimed(self._one.cell.path / f"{CLAIM}{self._claims}-{unit.first:08d}")

    def look(self) -> None:
        """Read the scores again if they have changed."""
        if not len(self._index):
            self._index = np.array(sorted(self._one.cell.indices()), np.int64)
        if not len(self._index):
            raise UserError(
                "The cell has no outputs to score.",
                where=self._one.cell.path,
                fix="run the command that made the run again; it draws what is missing",
            )
        self._missing = np.setdiff1d(self._index, self._known.look())

    def missing(self, unit: Unit) -> list[int]:
        """Of those that are drawn, the ones without a score."""
        low, high = np.searchsorted(self._missing, [unit.first, unit.indices[-1] + 1])
        return self._missing[low:high].tolist()

    def counted(self, units: Collection[Unit]) -> tuple[int, int]:
        """Of those that are drawn."""
        ends = [(unit.first, unit.indices[-1] + 1) for unit in units]
        total = int(np.diff(np.searchsorted(self._index, ends)).sum())
        return total, total - sum(len(self.missing(unit)) for unit in units)

    def given(self, missing: Sequence[int]) -> Outputs:
        """The outputs themselves: a worker reads no run."""
        import pyarrow as pa

        table = self._reaching(missing[0], missing[-1])
        table = table.filter(pa.array(np.isin(table["index"].to_numpy(), missing)))
        texts = table["text"].to_pylist()
        if self._one.needs_text and None in texts:
            raise UserError(
                "The outputs have no text, only token ids.",
                where=self._one.cell.path,
                expected="a checkpoint with its tokenizer beside the weights (tokenizer.json)",
                fix="sample with the tokenizer in place; or score what needs no text: "
                "`evaluator` none",
            )
        pieces = table[PIECES].to_pylist() if PIECES in table.column_names else None
        ids = token_ids(table, self._one.cell.spec)
        return Outputs(table["index"].to_numpy(), texts, ids, pieces)

    def size(self, rows: Sequence[tuple[Mapping[str, NDArray], int]]) -> tuple[int, int]:
        """As the rows say."""
        return sum(len(row["index"]) for row, _ in rows), sum(tokens for _, tokens in rows)

    def write(self, rows: Sequence[tuple[Mapping[str, NDArray], int]]) -> None:
        """Into the metric's file, which is written whole."""
        self._one.cell.add_scores(self._one.metric, joined([row for row, _ in rows]))

    def done(self, left: int) -> None:
        """What killed processes left goes when all outputs have a score."""
        if not left:
            self.look()
            if not len(self._missing):
                forget_claims(self._one.cell.path, self._claims)

    def _read(self) -> None:
        cell = self._one.cell
        columns = [name for name in ("ids", "text", TOKENS, PIECES) if name in cell.columns()]
        self._tables = cell.rows(columns, rows=max(self._one.batch or 0, ROWS))
        self._some: pa.Table | None = None
        self._from = 0

    def _reaching(self, first: int, last: int) -> pa.Table:
        """Rows that have these outputs; what lies before them is forgotten."""
        import pyarrow as pa

        if first < self._from:  # a unit whose worker died, or that another process had
            self._read()
        self._from = first
        tables = [] if self._some is None else [self._some]
        while not tables or int(tables[-1]["index"][-1].as_py()) < last:
            table = next(self._tables, None)
            if table is None:
                break
            tables.append(table)
        table = pa.concat_tables(tables)
        self._some = table.slice(int(np.searchsorted(table["index"].to_numpy(), first)))
        return self._some


def score_sink(
    work: Sequence[Scoring], progress: Progress | None, what: str, engine: Engine
) -> Sink:
    """For the scores that cells lack."""
    rows = [ScoreRows(scoring) for scoring in work]
    return Sink(engine.own(cut(_blocks(work))), rows, progress, what, share=FLUSH_SHARE)


def _blocks(work: Sequence[Scoring]) -> Iterator[list[range]]:
    """Every cell's outputs in blocks by index, also those that are not drawn yet: so all shards
    number them alike."""
    counts: dict[Any, dict[str, int]] = {}
    for scoring in work:
        run = scoring.cell.path.parents[1]
        if run not in counts:
            counts[run] = Run(run).wanted()
        n = max(counts[run].get(scoring.cell.id, 0), 1 + max(scoring.cell.indices(), default=0))
        size = scoring.batch or ROWS
        yield [range(k, min(k + size, n)) for k in range(0, n, size)]


def refuse_unscored(work: Sequence[Scoring]) -> None:
    """After a shard: say what others have not scored yet."""
    if work:
        missing = {scoring.cell.id: scoring.missing() for scoring in work}
        refuse_missing(work[0].cell.path.parents[1], missing, "scores")


Measure = Callable[[Sequence[str], NDArray[np.int64]], Mapping[str, NDArray]]
"""From some outputs' texts and ids [n, L] to columns; -1 behind an output that is shorter."""


def score_records(cell: Cell) -> None:
    """Every metric whose record says how it is measured; those of the text where there is one."""
    for record in metrics():
        if record.measure is None:
            continue
        if record.needs_text and any(rows["text"].null_count for rows in cell.rows(["text"])):
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

        return ScoreWorker(lambda _, outputs: {"embedding": embed(outputs.texts, device=loaded)})


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
    work = [Scoring(cell, metric, 32) for cell in ([cells] if isinstance(cells, Cell) else cells)]
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
    score_outputs(cell, metric, lambda outputs: measure(outputs.texts, outputs.ids), **how)


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
        lambda: ScoreWorker(lambda _, outputs: measure(outputs)),
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
