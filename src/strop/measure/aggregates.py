"""From per-output sums to a pool's numbers: perplexity three ways, and the share of bytes read.

No network is needed, so whoever only reads scores loads none.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from strop.stats.resample import POSITIVE, SHARE, Statistic

Columns = Mapping[str, NDArray]


def pooled(columns: Columns) -> Statistic:
    """exp(total nll / total tokens)."""
    return Statistic(np.stack(_sums(columns), 1), _exp_ratio, span=POSITIVE)


def macro(columns: Columns) -> Statistic:
    """exp of the mean over outputs of their mean nll; outputs without a scored token left out."""
    nll, tokens = _sums(columns)
    some = tokens > 0
    mean = np.where(some, nll / np.where(some, tokens, 1), 0.0)
    return Statistic(np.stack([mean, some.astype(float)], 1), _exp_ratio, span=POSITIVE)


def bits_per_byte(columns: Columns) -> Statistic:
    """Total bits / total bytes."""
    sums = np.stack([_sums(columns)[0] / np.log(2), columns["bytes"]], 1)
    return Statistic(sums, _ratio, span=POSITIVE)


def kept(columns: Columns) -> Statistic:
    """The share of the outputs' bytes that was read."""
    sums = np.stack([columns["kept_bytes"], columns["source_bytes"]], 1)
    return Statistic(sums, _ratio, span=SHARE)


def statistics(columns: Columns) -> dict[str, Statistic]:
    """All of them by name, each a function of sums over outputs."""
    return {one.__name__: one(columns) for one in (pooled, macro, bits_per_byte, kept)}


def _sums(columns: Columns) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nats and tokens of every output; for `public-code` with the filler that counts in a pool."""
    nll, tokens = columns["nll"].astype(float), columns["tokens"].astype(float)
    if "read" in columns:
        short = columns["read"] < columns["read"].max(initial=0)
        nll = nll + np.where(short, columns["filler_nll"], 0.0)
        tokens = tokens + np.where(short, columns["filler_tokens"], 0)
    return nll, tokens


def _ratio(totals: NDArray) -> NDArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return totals[..., 0] / totals[..., 1]


def _exp_ratio(totals: NDArray) -> NDArray:
    with np.errstate(over="ignore"):
        return np.exp(_ratio(totals))
