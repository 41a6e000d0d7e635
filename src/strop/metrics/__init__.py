"""Numbers about denoisers and pools; a metric of pools is one record (`Metric`).

The names load on first use: importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.lazy import loader

if TYPE_CHECKING:
    from strop.metrics.causal import Evaluator
    from strop.metrics.evaluator import load_evaluator
    from strop.metrics.guard import Guard
    from strop.metrics.measured import (
        Measured,
        Score,
        measured_cell,
        measured_cells,
        perplexity_ratio,
    )
    from strop.metrics.metric import Aggregate, Metric, metrics
    from strop.metrics.outside import score_texts
    from strop.metrics.perplexity import score_perplexity
    from strop.metrics.score import score_cell, score_embeddings, score_records
    from strop.spec import MetricSpec
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
    "measured_cell",
    "measured_cells",
    "metrics",
    "perplexity_ratio",
    "ratio",
    "score_cell",
    "score_embeddings",
    "score_perplexity",
    "score_records",
    "score_texts",
]

__getattr__ = loader(
    __name__,
    {
        "Aggregate": "strop.metrics.metric",
        "Column": "strop.table",
        "Evaluator": "strop.metrics.causal",
        "Guard": "strop.metrics.guard",
        "Interval": "strop.stats.interval",
        "Measured": "strop.metrics.measured",
        "Metric": "strop.metrics.metric",
        "MetricSpec": "strop.spec",
        "Score": "strop.metrics.measured",
        "Statistic": "strop.stats.resample",
        "intervals": "strop.stats.resample",
        "load_evaluator": "strop.metrics.evaluator",
        "mean": "strop.stats.resample",
        "measured_cell": "strop.metrics.measured",
        "measured_cells": "strop.metrics.measured",
        "metrics": "strop.metrics.metric",
        "perplexity_ratio": "strop.metrics.measured",
        "ratio": "strop.stats.resample",
        "score_cell": "strop.metrics.score",
        "score_embeddings": "strop.metrics.score",
        "score_perplexity": "strop.metrics.perplexity",
        "score_records": "strop.metrics.score",
        "score_texts": "strop.metrics.outside",
    },
)
