"""A cell's scores as a few numbers with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.metrics.aggregates import statistics
from strop.metrics.bootstrap import REPLICATES, Interval, Statistic, intervals, mean
from strop.metrics.entropy import ENTROPY, Guard, guard
from strop.metrics.heldout import HeldOutTexts, own_guard
from strop.metrics.repetition import NGRAM, REPETITION, distinct, pool_repetition
from strop.metrics.vendi import vendi_score
from strop.spec import MetricSpec
from strop.store import Cell, ScoreTable

__all__ = ["DISTINCT", "CellSummary", "PerplexitySummary", "cell_guard", "summarise"]

DISTINCT = (1, 2, 3, 4)
GPT2_TOKENS = 50257
"""Held-out texts can be retokenised for a model of GPT-2's tokens, with or without a mask."""


@dataclass(frozen=True)
class PerplexitySummary:
    """One evaluator under one span policy."""

    metric: MetricSpec
    outputs: int
    unscored: int
    """Outputs without a single scored token: left out of `macro`, nothing in the sums."""
    tokens: int
    pooled: Interval | None
    macro: Interval | None
    bits_per_byte: Interval | None
    kept: Interval | None
    """The share of the outputs' bytes that the policy reads."""


@dataclass(frozen=True)
class CellSummary:
    """What `strop score` prints of a cell."""

    cell: Cell
    outputs: int
    guard: Guard
    entropy: Interval | None
    perplexities: list[PerplexitySummary]
    repetition: Interval | None
    pool_repetition: Interval | None
    """An interval over outputs given the pool: it does not know how a larger pool would look."""
    distinct: dict[int, float | None]
    """No interval: a resample repeats outputs and is less diverse by construction."""
    vendi: float | None
    """No interval, for the same reason."""

    @property
    def below_guard(self) -> bool:
        """Whether the cell gets the dagger."""
        return self.entropy is not None and self.guard.below(self.entropy.value)


def summarise(
    cell: Cell,
    *,
    held_out: HeldOutTexts | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> CellSummary:
    """Aggregates and bootstrap intervals of whatever was scored on a cell."""
    scores = cell.scores()
    ids = _ids(cell)
    found: dict[str, Interval | None] = {}
    groups: dict[str, dict[str, Statistic]] = {"pool": {"pool": mean(pool_repetition(ids))}}
    for name, metric in (("entropy", ENTROPY), ("repetition", REPETITION)):
        if metric.id in scores:
            groups[name] = {name: mean(scores[metric.id].columns[name])}
    if not len(ids):
        groups = {}
    for statistic in groups.values():
        found |= intervals(statistic, replicates=replicates, seed=seed)
    perplexities = [
        _perplexity(table, replicates, seed)
        for table in scores.values()
        if table.metric.name == "perplexity" and len(table)
    ]
    perplexities.sort(key=lambda one: one.metric.canonical())
    vectors = [t for t in scores.values() if t.metric.name == "vendi" and len(t) == len(ids)]
    return CellSummary(
        cell=cell,
        outputs=len(ids),
        guard=cell_guard(cell, held_out),
        entropy=found.get("entropy"),
        perplexities=perplexities,
        repetition=found.get("repetition"),
        pool_repetition=found.get("pool"),
        distinct={n: distinct(ids, n) for n in DISTINCT},
        vendi=vendi_score(vectors[0].columns["embedding"]) if vectors and len(ids) else None,
    )


def cell_guard(cell: Cell, held_out: HeldOutTexts | None) -> Guard:
    """The guard for a cell's length, in its generator's own tokens."""
    generator = cell.spec.generator
    found = own_guard(generator, held_out)
    size = int(generator.checkpoint.shape.get("vocab_size", 0))
    if found.threshold is None and held_out and size in (GPT2_TOKENS, GPT2_TOKENS + 1):
        return guard(generator.length, _as_gpt2(held_out, generator.length), source=held_out.source)
    return found


def as_document(summary: CellSummary) -> dict[str, Any]:
    """A summary for JSON."""

    def plain(value: Interval | None) -> dict[str, Any] | None:
        return None if value is None else value.as_dict()

    return {
        "cell": summary.cell.id,
        "sampler": summary.cell.spec.generator.sampler.model_dump(mode="json"),
        "seed": summary.cell.spec.seed,
        "length": summary.cell.spec.generator.length,
        "outputs": summary.outputs,
        "entropy": plain(summary.entropy),
        "guard": {"threshold": summary.guard.threshold, "source": summary.guard.source},
        "below_guard": summary.below_guard,
        "perplexity": [
            {
                "metric": one.metric.id,
                "spec": one.metric.model_dump(mode="json"),
                "outputs": one.outputs,
                "unscored": one.unscored,
                "tokens": one.tokens,
                "pooled": plain(one.pooled),
                "macro": plain(one.macro),
                "bits_per_byte": plain(one.bits_per_byte),
                "kept": plain(one.kept),
            }
            for one in summary.perplexities
        ],
        "ngram": NGRAM,
        "repetition": plain(summary.repetition),
        "pool_repetition": plain(summary.pool_repetition),
        "distinct": {str(n): value for n, value in summary.distinct.items()},
        "vendi": summary.vendi,
    }


def _perplexity(table: ScoreTable, replicates: int, seed: int) -> PerplexitySummary:
    found = intervals(statistics(table.columns), replicates=replicates, seed=seed)
    tokens = table.columns["tokens"]
    return PerplexitySummary(
        metric=table.metric,
        outputs=len(table),
        unscored=int((tokens == 0).sum()),
        tokens=int(tokens.sum()),
        pooled=found["pooled"],
        macro=found["macro"],
        bits_per_byte=found["bits_per_byte"],
        kept=found["kept"],
    )


def _ids(cell: Cell) -> NDArray[np.int64]:
    table = cell.table()
    flat = table["ids"].combine_chunks().flatten().to_numpy()
    return flat.reshape(table.num_rows, cell.spec.generator.length).astype(np.int64)


def _as_gpt2(held_out: HeldOutTexts, length: int) -> NDArray[np.int64]:
    """Held-out texts in GPT-2's tokens, those that are long enough, cut to the length."""
    from strop.denoisers.tokenizer import TextCodec

    rows = [one[:length] for one in TextCodec.gpt2().encode_all(held_out.texts)]
    kept = [one for one in rows if len(one) == length]
    return np.array(kept, np.int64).reshape(len(kept), length)
