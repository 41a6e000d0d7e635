"""Numbers about denoisers and pools; a metric of pools is one record (`Metric`).

The names load on first use: importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.registry import loader

if TYPE_CHECKING:
    from strop.measure.cells import score_texts
    from strop.measure.evaluator import Evaluator, load_evaluator
    from strop.measure.frame import Measured, Score, perplexity_ratio, read_cell, read_run
    from strop.measure.guard import Guard
    from strop.measure.metric import Aggregate, Metric, metrics
    from strop.measure.perplexity import score_perplexity
    from strop.measure.score import score_cell, score_embeddings, score_records
    from strop.spec.value import MetricSpec
    from strop.stats.interval import Interval
    from strop.stats.resample import Statistic, intervals, mean, ratio
    from strop.table import Column

__all__ = [
    "Aggregate",
    "Column",
    "Evaluator",
    "Guard",
    "Interval",
    "Measured",
    "Metric",
    "MetricSpec",
    "Score",
    "Statistic",
    "intervals",
    "load_evaluator",
    "mean",
    "metrics",
    "perplexity_ratio",
    "ratio",
    "read_cell",
    "read_run",
    "score_cell",
    "score_embeddings",
    "score_perplexity",
    "score_records",
    "score_texts",
]

__getattr__ = loader(__name__)
