"""From run directories to what the page shows.

Entropy, repetition and distinct n-grams follow from the outputs' ids and are computed here;
perplexity and the Vendi score need a network and are read where `strop score` has put them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.metrics.aggregates import statistics
from strop.metrics.bootstrap import Interval, Statistic, intervals, mean
from strop.metrics.entropy import entropy
from strop.metrics.heldout import own_guard, read_texts
from strop.metrics.repetition import NGRAM, distinct, pool_repetition, repetition
from strop.metrics.vendi import vendi_score
from strop.pool import Pool
from strop.report.data import Cell, Column, Estimate, Guard, Model, Output, Provenance, Setting
from strop.report.origin import origin_of_metric, origin_of_run
from strop.spec import MetricSpec, SamplerSpec
from strop.store import Cell as StoredCell
from strop.store import Run, ScoreTable

__all__ = ["OUTPUT_COLUMNS", "POOL_COLUMNS", "Collected", "collect_runs"]

OUTPUT_COLUMNS = (
    Column("entropy", "entropy", "Unigram entropy of the output, in nats.", 3),
    Column("repeated", "repeated", f"Share of tokens in {NGRAM}-grams that the output repeats.", 2),
    Column("calls", "calls", "Network calls that the output took part in.", 4),
)
POOL_COLUMNS = (
    Column(
        "within", "repeated within", f"Share of tokens in {NGRAM}-grams that their output repeats."
    ),
    Column("across", "shared", f"Share of tokens in {NGRAM}-grams that another output has too."),
    Column("distinct-1", "distinct-1", "Different tokens over all tokens of the pool."),
    Column(
        f"distinct-{NGRAM}", f"distinct-{NGRAM}", f"Different {NGRAM}-grams over all of the pool."
    ),
    Column("vendi", "Vendi", "How many different outputs the pool is worth, by embeddings."),
)


@dataclass(frozen=True)
class Scored:
    """What later comparisons between cells need."""

    sha256: str
    """Of the checkpoint."""
    steps: int
    setting: Setting
    perplexity: Statistic


@dataclass(frozen=True)
class Collected:
    """Everything that the runs themselves say."""

    models: tuple[Model, ...]
    evaluators: tuple[str, ...]
    columns: tuple[Column, ...]
    """Of an output: its perplexity under each evaluator, then `OUTPUT_COLUMNS`."""
    scored: tuple[Scored, ...]
    """Under the first evaluator."""
    provenance: tuple[Provenance, ...]


@dataclass(frozen=True)
class _Found:
    """A cell with its outputs and scores, read once."""

    run: Run
    asked: dict[str, Any]
    cell: StoredCell
    pool: Pool
    scores: dict[str, ScoreTable]


def collect_runs(runs: Sequence[Run]) -> Collected:
    """Read every cell that holds outputs."""
    found = [one for run in runs for one in _read(run)]
    if runs and not found:
        raise UserError(
            "The run holds no outputs yet.",
            where=", ".join(str(run.path) for run in runs),
            fix="run the command that made it again; it draws what is missing",
        )
    metrics = {id_: table.metric for one in found for id_, table in one.scores.items()}
    names = evaluator_names(metrics.values())
    evaluators = tuple(dict.fromkeys(names.values()))
    groups: dict[tuple[str, str, int, int], list[_Found]] = {}
    for one in found:
        spec = one.cell.spec
        key = (_checkpoint(one), spec.generator.checkpoint.sha256, spec.generator.length, spec.seed)
        groups.setdefault(key, []).append(one)
    models = [
        _model(name, length, seed, members, names)
        for (name, _, length, seed), members in groups.items()
    ]
    first = evaluators[0] if evaluators else None
    return Collected(
        models=tuple(models),
        evaluators=evaluators,
        columns=(*(_perplexity_column(name, evaluators) for name in evaluators), *OUTPUT_COLUMNS),
        scored=tuple(_scored(found, names, first)),
        provenance=(*map(origin_of_metric, metrics.values()), *map(origin_of_run, runs)),
    )


def _read(run: Run) -> Iterable[_Found]:
    asked = run.asked
    for cell in run.cells():
        pool = cell.pool(_whole(cell))
        if len(pool):
            yield _Found(run, asked, cell, pool, cell.scores())


def _whole(cell: StoredCell) -> int:
    """How many outputs from the first on are there: a run under way may have gaps."""
    have = cell.indices()
    return next(i for i in range(len(have) + 1) if i not in have)


def _checkpoint(one: _Found) -> str:
    return str(one.asked.get("checkpoint") or one.cell.spec.generator.checkpoint.family)


def evaluator_names(metrics: Iterable[MetricSpec]) -> dict[str, str]:
    """A readable name for every perplexity, by metric id; equal names get the id's beginning."""
    mine = {m.id: m for m in metrics if m.name == "perplexity" and m.evaluator is not None}
    told = {id_: f"{m.evaluator.name}, {m.span}" for id_, m in mine.items() if m.evaluator}
    return {
        id_: name if list(told.values()).count(name) == 1 else f"{name}, {id_[:6]}"
        for id_, name in told.items()
    }


def _perplexity_column(name: str, all_names: Sequence[str]) -> Column:
    label = "perplexity" if len(all_names) == 1 else f"perplexity ({name})"
    return Column(name, label, f"Perplexity of the output under {name}.", 3)


def _model(
    name: str, length: int, seed: int, members: list[_Found], names: Mapping[str, str]
) -> Model:
    found = own_guard(members[0].cell.spec.generator, read_texts())
    threshold = None if found.threshold is None else Guard(found.threshold, found.source)
    cells = tuple(_cell(one, threshold, names) for one in members)
    notes = [] if threshold is not None else [f"No entropy guard: {found.source}."]
    short = [
        f"{cell.label}: {len(table)} of {len(one.pool)}"
        for one, cell in zip(members, cells, strict=True)
        for id_, table in one.scores.items()
        if id_ in names and len(table) < len(one.pool)
    ]
    if short:
        notes.append(
            f"Some outputs have no perplexity yet ({'; '.join(short[:3])}"
            f"{'; ...' if len(short) > 3 else ''}): strop score {members[0].run.path} continues."
        )
    return Model(name, length, seed, threshold, cells, tuple(notes))


def _cell(one: _Found, threshold: Guard | None, names: Mapping[str, str]) -> Cell:
    pool, sampler = one.pool, one.cell.spec.generator.sampler
    ids = pool.ids
    per_output, within, across = entropy(ids), repetition(ids), pool_repetition(ids)
    tables = {names[id_]: table for id_, table in one.scores.items() if id_ in names}
    perplexity = {
        name: found
        for name, table in tables.items()
        if (found := _interval(statistics(table.columns)["pooled"])) is not None
    }
    entropies = _interval(mean(per_output))
    columns = [
        *(_by_output(tables.get(name), len(pool)) for name in dict.fromkeys(names.values())),
        per_output,
        within,
        pool.nfe.astype(float),
    ]
    texts = pool.texts
    shown = texts if texts is not None else [" ".join(map(str, row)) for row in ids.tolist()]
    return Cell(
        id=one.cell.id,
        run=str(one.run.path),
        steps=sampler.steps,
        setting=setting_of(sampler),
        n=len(pool),
        perplexity=perplexity,
        entropy=entropies,
        below_guard=threshold is not None and float(per_output.mean()) < threshold.value,
        pool=_pool(ids, within, across, one.scores),
        calls=float(pool.nfe.mean()),
        seconds=float(pool.seconds.mean()),
        outputs=tuple(
            Output(i, text, tuple(_value(column[i]) for column in columns))
            for i, text in enumerate(shown)
        ),
        as_ids=texts is None,
    )


def setting_of(sampler: SamplerSpec) -> Setting:
    """The sampler without its steps; what is not the default stands in words."""
    more = [
        "" if sampler.name == "ancestral" else sampler.name,
        "" if sampler.top_p == 1 else f"top-p {sampler.top_p:g}",
        "" if sampler.grid == "uniform" else "own grid",
        "" if sampler.implementation == "fast" else sampler.implementation,
    ]
    return Setting(sampler.temperature, sampler.precision, " ".join(filter(None, more)))


def _interval(statistic: Statistic) -> Estimate | None:
    found: Interval | None = intervals({"it": statistic})["it"]
    return None if found is None else Estimate(found.value, found.low, found.high)


def _by_output(table: ScoreTable | None, n: int) -> NDArray[np.float64]:
    """Each output's own perplexity; nan where it has none."""
    values = np.full(n, np.nan)
    if table is not None:
        mine = table.index < n
        nll, tokens = table.columns["nll"][mine], table.columns["tokens"][mine]
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            values[table.index[mine]] = np.where(tokens > 0, np.exp(nll / tokens), np.nan)
    return values


def _value(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _pool(
    ids: NDArray[np.int64],
    within: NDArray[np.float64],
    across: NDArray[np.float64],
    scores: Mapping[str, ScoreTable],
) -> dict[str, Estimate]:
    found = {"within": _interval(mean(within)), "across": Estimate(float(across.mean()))}
    for n in (1, NGRAM):
        share = distinct(ids, n)
        found[f"distinct-{n}"] = None if share is None else Estimate(share)
    for table in scores.values():
        vectors = [c for c in table.columns.values() if c.ndim == 2]
        if table.metric.name == "vendi" and vectors and len(table):
            found["vendi"] = Estimate(vendi_score(vectors[0]))
    return {key: estimate for key, estimate in found.items() if estimate is not None}


def _scored(
    found: Sequence[_Found], names: Mapping[str, str], first: str | None
) -> Iterable[Scored]:
    for one in found:
        generator = one.cell.spec.generator
        for id_, table in one.scores.items():
            if names.get(id_) == first and first is not None and len(table):
                yield Scored(
                    generator.checkpoint.sha256,
                    generator.sampler.steps,
                    setting_of(generator.sampler),
                    statistics(table.columns)["pooled"],
                )
