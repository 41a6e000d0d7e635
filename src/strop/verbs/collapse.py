"""Proposition 1, live: a generator that repeats two outputs fools every per-output score.

The control takes the pair of outputs with the lowest perplexity among all pairs whose mean entropy
is at least that of the honest pool, and repeats it. So both per-output scores prefer it by
construction. A judge that reads eight outputs at once sees two texts four times each: GED is at
most 10/3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.stats.interval import value_of
from strop.table import Column, Table
from strop.verbs import parameters, points
from strop.verbs.study import Study
from strop.verbs.verb import Ask, Parameter, Result

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


def _run(ask: Ask) -> Result:
    from strop.groupeval.bootstrap import score
    from strop.store import Cell

    model = points.load(ask, ask.sources[0])
    setting = {"chosen": ask.some("temperature", "precision")}
    named, left_out = points.named_points(model.spec.family, ask["sampler"], setting)
    cells = [(ask["steps"], named["chosen"])]
    [honest] = points.measure_cells(ask, ask.sources[0], cells, ask.out / RUNS[0], model=model)
    nll, tokens, entropy = points.scored_columns(honest).values()
    pair = best_pair(nll, tokens, entropy)
    rows: list[dict[str, Any]] = [
        {
            "generator": name,
            "distinct outputs": len(index),
            "perplexity": float(np.exp(nll[index].sum() / tokens[index].sum())),
            "entropy": float(entropy[index].mean()),
        }
        for name, index in (("honest", np.arange(len(nll))), ("control", np.array(pair)))
    ]
    texts = points.texts_of(Cell.open(honest.path), ask["n"])
    pools = {"honest": texts, "control": [texts[i] for i in pair] * (ask["n"] // 2)}
    judged = points.judge_texts(pools, ask.out / RUNS[1], seed=ask["seed"])
    columns = [Column("generator"), Column("distinct outputs"), Column("perplexity")]
    columns.append(Column("entropy", unit="nats"))
    for judge, judgments in judged.items():
        scores = score(judgments)["cells"]
        for row in rows:
            cell = scores[row["generator"]]
            row[f"GEQ {judge}"], row[f"GED {judge}"] = value_of(cell["geq"]), cell["ged"]
        columns += [Column(f"GEQ {judge}", digits=3), Column(f"GED {judge}", digits=3)]
    note = (
        f"The control repeats outputs {pair[0]} and {pair[1]}. Perplexity and entropy prefer it by "
        f"construction; its GED is at most {CEILING:.2f}. GEQ and GED are by {', '.join(judged)}."
    )
    table = Table("A pool, and one that repeats two of its outputs", tuple(columns), rows)
    facts = {"pair": list(pair), "ceiling": CEILING, "judges": list(judged)}
    return Result(ask.said(checkpoint=ask.sources[0]), table, facts=facts, notes=(*left_out, note))


STUDY = Study(
    name="collapse",
    title="Two outputs that fool every per-output score",
    about="Put an honest pool beside one that repeats two of its outputs: perplexity, entropy, "
    "GED.",
    parameters=(
        Parameter.count("steps", "Updates M.", 64, smoke=8),
        Parameter.real("temperature", "tau.", 1.0),
        Parameter("precision", "Precision of the draw.", "float64", choices=("float64", "float32")),
        parameters.outputs(128, smoke=16, words="Outputs; a multiple of 8."),
        parameters.evaluator(),
        parameters.SAMPLER,
        parameters.LENGTH,
        *parameters.SCORED,
    ),
    run=_run,
    check=points.check_groups,
    runs=RUNS,
    next=points.judge_command,
    examples=("strop study collapse --steps 16 -n 64 -o runs/collapse",),
)
