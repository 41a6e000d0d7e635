"""Proposition 1, live: a generator that repeats two outputs fools every per-output score.

The control takes the pair of outputs with the lowest perplexity among all pairs whose mean entropy
is at least that of the honest pool, and repeats it. So both per-output scores applaud, by
construction. A judge that reads eight outputs at once sees two texts four times each: GED is at
most 10/3.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.metrics.entropy import ENTROPY
from strop.studies.cells import Scored
from strop.studies.folder import Folder
from strop.studies.judged import judge_texts
from strop.studies.sampled import Sampling
from strop.studies.selection import STANDARD, Setting

__all__ = ["CEILING", "STUDY", "best_pair", "run_collapse"]

STUDY = "collapse"
CEILING = 10 / 3
"""The highest GED of two texts in a group of eight."""
RUNS = ("run", "groupeval")


def best_pair(
    nll: NDArray[np.float64], tokens: NDArray[np.int64], entropy: NDArray[np.float64]
) -> tuple[int, int]:
    """The two outputs of lowest pooled perplexity whose mean entropy reaches the pool's mean."""
    first, second = np.triu_indices(len(nll), 1)
    total = tokens[first] + tokens[second]
    allowed = (entropy[first] + entropy[second] >= 2 * entropy.mean()) & (total > 0)
    if not allowed.any():
        raise UserError("No two outputs were scored.", expected="a pool of at least two outputs")
    level = np.where(allowed, (nll[first] + nll[second]) / np.maximum(total, 1), np.inf)
    best = int(level.argmin())
    return int(first[best]), int(second[best])


def run_collapse(
    checkpoint: str,
    sampling: Sampling,
    *,
    out: Path,
    steps: int = 64,
    setting: Setting = STANDARD,
) -> dict[str, Any]:
    """Sample an honest pool, build its control, and score both three ways."""
    with Folder.open(out, STUDY, runs=RUNS, force=sampling.force) as folder:
        [honest] = sampling.run(checkpoint, [(steps, setting)], out / RUNS[0])
        pair, rows = _scores(honest)
        texts = honest.summary.cell.pool(sampling.n).texts
        if texts is None:
            raise UserError("The outputs have no texts to judge.", where=out / RUNS[0])
        control = [texts[i] for i in pair] * (sampling.n // 2)
        judged = judge_texts(
            {"honest": texts, "control": control}, out / RUNS[1], seed=sampling.seed
        )
        for judge, result in judged.items():
            for row in rows:
                cell = result["cells"][row["generator"]]
                row[f"GEQ {judge}"], row[f"GED {judge}"] = cell["geq"], cell["ged"]
        result = {
            "asked": {"checkpoint": checkpoint, "steps": steps, **sampling.asked()},
            "pair": list(pair),
            "ceiling": CEILING,
            "judges": list(judged),
            "rows": rows,
        }
        folder.finish(result, rows)
    return result


def _scores(honest: Scored) -> tuple[tuple[int, int], list[dict[str, Any]]]:
    """The pair, and perplexity and entropy of pool and control."""
    cell = honest.summary.cell
    table, entropies = cell.score(honest.metrics[0]), cell.score(ENTROPY)
    if table is None or entropies is None:
        raise UserError("The cell's scores were removed.", where=cell.path)
    nll, tokens = table.columns["nll"], table.columns["tokens"]
    entropy = entropies.columns["entropy"]
    pair = best_pair(nll, tokens, entropy)
    rows = []
    for name, index in (("honest", np.arange(len(nll))), ("control", np.array(pair))):
        rows.append(
            {
                "generator": name,
                "distinct outputs": len(index),
                "perplexity": float(np.exp(nll[index].sum() / tokens[index].sum())),
                "entropy": float(entropy[index].mean()),
            }
        )
    return pair, rows
