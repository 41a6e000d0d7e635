"""From per-output sums to a pool's numbers: perplexity three ways, and the share of bytes read.

No network is needed, so whoever only reads scores loads none.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from strop.metrics.bootstrap import Statistic

__all__ = ["statistics"]


def statistics(columns: Mapping[str, NDArray]) -> dict[str, Statistic]:
    """The aggregates of a perplexity table, each a function of sums over outputs.

    `pooled` is exp(total nll / total tokens); `macro` is exp of the mean over outputs of their mean
    nll, outputs without a scored token left out; `bits_per_byte` is total bits / total bytes;
    `kept` is the share of the outputs' bytes that was read.
    """
    nll, tokens = columns["nll"].astype(float), columns["tokens"].astype(float)
    if "read" in columns:
        short = columns["read"] < columns["read"].max(initial=0)
        nll = nll + np.where(short, columns["filler_nll"], 0.0)
        tokens = tokens + np.where(short, columns["filler_tokens"], 0)
    some = tokens > 0
    mean = np.where(some, nll / np.where(some, tokens, 1), 0.0)
    return {
        "pooled": Statistic(np.stack([nll, tokens], 1), _exp_ratio),
        "macro": Statistic(np.stack([mean, some.astype(float)], 1), _exp_ratio),
        "bits_per_byte": Statistic(np.stack([nll / np.log(2), columns["bytes"]], 1), _ratio),
        "kept": Statistic(np.stack([columns["kept_bytes"], columns["source_bytes"]], 1), _ratio),
    }


def _ratio(totals: NDArray) -> NDArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return totals[..., 0] / totals[..., 1]


def _exp_ratio(totals: NDArray) -> NDArray:
    with np.errstate(over="ignore"):
        return np.exp(_ratio(totals))
