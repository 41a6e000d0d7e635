"""Numbers about denoisers and pools; a metric of pools is one record (`Metric`)."""

from __future__ import annotations

from strop.metrics.bootstrap import Interval, Statistic, intervals, mean, ratio
from strop.metrics.guard import Guard
from strop.metrics.measured import Measured, Score, measured, measured_cells, perplexity_ratio
from strop.metrics.metric import Aggregate, Metric, metrics, register

__all__ = [
    "Aggregate",
    "Guard",
    "Interval",
    "Measured",
    "Metric",
    "Score",
    "Statistic",
    "intervals",
    "mean",
    "measured",
    "measured_cells",
    "metrics",
    "perplexity_ratio",
    "ratio",
    "register",
]
