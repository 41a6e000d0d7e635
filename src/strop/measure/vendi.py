"""The Vendi score: how many different outputs a pool is worth.

With unit embeddings x_1 .. x_n and the kernel K_ij = x_i . x_j, it is exp of the Shannon entropy of
the eigenvalues of K / n: 1 if all outputs are the same, n if they are pairwise orthogonal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError


def vendi_score(embeddings: NDArray[np.floating]) -> float:
    """The score of a pool from its outputs' embeddings [n, d]; rows are scaled to length one."""
    x = np.asarray(embeddings, np.float64)
    if x.ndim != 2 or len(x) == 0:
        raise UserError("There are no embeddings to compare.", got=f"an array {x.shape}")
    length = np.linalg.norm(x, axis=1, keepdims=True)
    if not np.isfinite(x).all() or not (length > 0).all():
        raise UserError("An embedding is zero or not a number, so it has no direction.")
    # The eigenvalues of K / n are the squared singular values of x / sqrt(n).
    share = np.linalg.svd(x / length, compute_uv=False) ** 2 / len(x)
    share = share[share > 0]
    return float(np.exp(-(share * np.log(share)).sum()))
