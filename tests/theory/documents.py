"""Random problem documents, built by hand rather than by the package."""

from __future__ import annotations

import numpy as np


def random_law(shape, rng, zeros=False):
    law = rng.gamma(0.8, size=shape)
    if zeros:
        law = np.where(rng.random(shape) < 0.4, 0.0, law)
        law.flat[rng.integers(law.size)] += 0.5
    return (law / law.sum()).tolist()


def random_grid(rounds, rng):
    cuts = np.sort(rng.uniform(0.05, 0.95, rounds - 1))
    return [0.0, *cuts.tolist(), 1.0]


def random_tables(shape, rng):
    L, out = len(shape), []
    for i in range(L):
        for mask in range(1 << L):
            if mask >> i & 1:
                continue
            used = [v if (mask | 1 << i) >> k & 1 else 1 for k, v in enumerate(shape)]
            table = rng.gamma(1.0, size=used) + 0.02
            table /= table.sum(axis=i, keepdims=True)
            A = [k for k in range(L) if mask >> k & 1]
            out.append({"i": i, "A": A[::-1], "table": table.tolist()})
    rng.shuffle(out)
    return out


def random_document(seed):
    rng = np.random.default_rng(seed)
    shapes = ((2, 2), (3, 2), (2, 2, 2), (2, 3, 2), (1, 3), (4,), (3, 1, 2), (2, 2, 2, 2))
    shape = shapes[seed % len(shapes)]
    rounds = 1 + seed % 3 if len(shape) < 4 else 1 + seed % 2
    kind = ("bayes", "tables", "per-round")[seed // 2 % 3]
    document = {"P": random_law(shape, rng, zeros=seed % 4 == 1), "grid": random_grid(rounds, rng)}
    if kind == "tables":
        document["denoiser"] = random_tables(shape, rng)
    elif kind == "per-round":
        document["denoiser"] = [random_tables(shape, rng) for _ in range(rounds)]
    if seed % 2:
        document["lam"] = rng.uniform(0.3, 3.0, rounds).tolist()
    elif seed % 5:
        document["lam"] = float(rng.uniform(0.3, 3.0))
    return document
