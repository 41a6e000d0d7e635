"""Adjacent pairs of tokens: how far their frequencies are from a known law.

Outputs are independent, the pairs inside one are not: whole outputs are counted, resampled and left
out together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def pair_counts(ids: NDArray[np.int64], values: int) -> Floats:
    """How often each adjacent pair occurs in each output: shape `(outputs, V * V)`."""
    codes = ids[:, :-1] * values + ids[:, 1:]
    offset = np.arange(len(ids))[:, None] * values**2
    flat = np.bincount((codes + offset).reshape(-1), minlength=len(ids) * values**2)
    return flat.reshape(len(ids), -1).astype(float)


def jackknife(counts: Floats, statistic: Callable[[Floats], Floats]) -> tuple[float, float]:
    """A statistic of pooled counts without its first-order bias, and its standard error.

    Outputs are independent, the pairs inside one are not: whole outputs are left out.
    """
    n = len(counts)
    total = counts.sum(axis=0)
    whole = float(statistic(total[None])[0])
    without = statistic(total - counts)
    corrected = n * whole - (n - 1) * float(without.mean())
    return corrected, float(np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum()))


def pair_kl(law: Floats, counts: Floats) -> Floats:
    """KL(law || counts) per row; half a count where a pair was never seen."""
    seen = np.maximum(counts, 0.5)
    return (law * (np.log(law) - np.log(seen / seen.sum(axis=1, keepdims=True)))).sum(axis=1)


def conditional_entropy(counts: Floats, values: int) -> Floats:
    """H(X_i+1 | X_i) per row of counts."""
    joint = (counts / counts.sum(axis=1, keepdims=True)).reshape(-1, values, values)
    first = joint.sum(axis=2, keepdims=True)
    ratio = np.where(joint > 0, joint / np.maximum(first, 1e-300), 1.0)
    return -(joint * np.log(ratio)).sum(axis=(1, 2))


def vertex(lams: Floats, values: Floats) -> float:
    """The least point of the parabola in log lambda through the best value and its neighbours."""
    k = int(values.argmin())
    if k in (0, len(lams) - 1):
        return float(lams[k])
    a, b, _ = np.polyfit(np.log(lams[k - 1 : k + 2]), values[k - 1 : k + 2], 2)
    return float(np.exp(-b / (2 * a)))


def crossing(lams: Floats, values: Floats, level: float) -> float | None:
    """Where a falling curve meets a level, by linear interpolation; None if it does not."""
    (above,) = np.nonzero((values[:-1] >= level) & (values[1:] < level))
    if not above.size:
        return None
    k = int(above[0])
    part = (values[k] - level) / (values[k] - values[k + 1])
    return float(lams[k] + part * (lams[k + 1] - lams[k]))
