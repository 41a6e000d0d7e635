"""Judged quality against what is known from elsewhere: success that was checked, a person's grades.

Two generators answer the same prompts; every response has a quality and a label, passed or not.

- AUROC: the chance that a response that passed has the higher quality, ties counting half.
- Discordant pairs: prompts where exactly one response passed, how much higher that one scores, and
  how often it is preferred (again ties count half).
- Intervals: bootstrap over prompts (10,000 draws with replacement), because the two responses to
  one prompt belong together. They hold given one verdict on each pair.

"Apparent success" is a dimension of the rubric, so this checks a criterion; it is no proof that
people would prefer the same responses.

A few human grades make a judge's GEQ honest by prediction-powered inference. A person graded some
outputs that the plan drew at random, the judge graded all. With y for people's quality of a graded
output, f for the judge's of any, and a weight w,

    GEQ = w mean(f over all) + mean(y - w f over the graded)

is right on average whatever the judge is worth; w only says how narrow it gets, and is estimated as
cov(y, f) / var(f) over the graded (the power-tuned form of Angelopoulos, Duchi and Zrnic 2023). At
weight one a judge of noise would make the interval wider than people alone; the estimated weight
then goes to 0.

The interval resamples graded and other outputs separately, with one count per output for both
terms and the weight estimated anew; its limits are Student's with as many degrees of freedom as
there are graded outputs, less one. It corrects towards these graders, and GEQ only: a share of
modes in a group has no such mean. Of answers to prompts the unit is the prompt.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from strop.disk import write
from strop.errors import UserError
from strop.groupeval.by_prompt import prompt_quality
from strop.groupeval.judgments import Judgments
from strop.groupeval.plan import Plan
from strop.groupeval.profile import EXACT, formed, read_lines
from strop.groupeval.scores import JudgedCell, by_cell
from strop.groupeval.series import Series
from strop.groupeval.verdict import GroupVerdict
from strop.rng import derive_seed
from strop.stats.interval import LEVEL, Interval
from strop.stats.resample import REPLICATES, Statistic, intervals, mean
from strop.store import FORMAT
from strop.store.folder import as_json, read_json

Floats = NDArray[np.float64]
SIDES = (0, 1)


@dataclass(frozen=True)
class Labelled:
    """Prompts that both generators answered, with quality and success of each response."""

    names: tuple[str, str]
    quality: Floats
    """`[prompts, 2]`"""
    passed: NDArray[np.bool_]
    """`[prompts, 2]`"""


class _Label(BaseModel):
    model_config = EXACT
    cell: str
    index: int
    success: bool


def read_labels(path: str | Path) -> dict[tuple[str, int], bool]:
    """Success by cell and index, from lines `{"cell": ..., "index": ..., "success": true}`."""
    expected = '{"cell": "name", "index": 0, "success": true}'
    labels: dict[tuple[str, int], bool] = {}
    for row, where in read_lines(path, expected):
        label = formed(_Label, row, where, "A label cannot be read", expected)
        if labels.setdefault((label.cell, label.index), label.success) != label.success:
            raise UserError(
                "A response has two labels.",
                where=where,
                got=json.dumps(row, ensure_ascii=False)[:120],
            )
    if not labels:
        raise UserError("The file holds no label.", where=path, expected=expected)
    return labels


def label(
    judgments: Judgments,
    labels: Mapping[tuple[str, int], bool],
    order: tuple[str, str] | None = None,
) -> Labelled:
    """Put labels to the judged responses; every judged prompt needs both.

    `order` says which generator is the first; by default, the one that was judged first.
    """
    cells = judgments.cells
    if len(cells) != 2 or judgments.by_prompt:
        raise UserError(
            "Conditional scores need the responses of two generators.",
            where=judgments.source,
            got=f"{len(cells)} cells" + (", several answers a prompt" * judgments.by_prompt),
            expected="two cells whose indices are the prompts, as under task-v1",
        )
    first, second = cells.values() if order is None else (cells[name] for name in order)
    prompts = [index for index in first.outputs if index in second.row]
    for name, index in ((cell.name, index) for cell in (first, second) for index in prompts):
        if (name, index) not in labels:
            raise UserError(
                "A judged response has no label.",
                where=judgments.source,
                got=f"cell {name!r}, index {index}",
                expected="a label for every response",
            )
    rows = [[cell.per_output[cell.row[i]] for cell in (first, second)] for i in prompts]
    passed = [[labels[cell.name, i] for cell in (first, second)] for i in prompts]
    return Labelled((first.name, second.name), np.array(rows, float), np.array(passed, bool))


def conditional(data: Labelled, *, replicates: int = REPLICATES, seed: int = 0) -> dict[str, Any]:
    """Success, conditional GEQ, their difference, AUROC and discordant pairs, with intervals.

    A value is None where the responses do not define it: no AUROC where all passed.
    """
    seed = derive_seed(seed, "groupeval-conditions")
    values = intervals(_statistics(data), replicates=replicates, seed=seed)
    first, second = data.passed.T
    right = np.sign(_lead(data))[first != second]
    return {
        "generators": list(data.names),
        "n_prompts": len(data.quality),
        "success": [float(rate) for rate in data.passed.mean(axis=0)],
        "cgeq": [values[f"cgeq_{side}"] for side in SIDES],
        "difference": "second minus first",
        "cgeq_difference": values["difference"],
        "auroc": values["auroc"],
        "auroc_by_generator": [values[f"auroc_{side}"] for side in SIDES],
        "discordant": values["discordant"],
        "preferred": values["preferred"],
        # Prompts by who passed; of those where one did, by how its quality compares.
        "n_discordant": len(right),
        "n_pairs": {
            "both": int((first & second).sum()),
            "only_first": int((first & ~second).sum()),
            "only_second": int((second & ~first).sum()),
            "neither": int((~first & ~second).sum()),
        },
        "n_preferred": {
            "right": int((right > 0).sum()),
            "tied": int((right == 0).sum()),
            "wrong": int((right < 0).sum()),
        },
    }


def _lead(data: Labelled) -> Floats:
    """By how much the response that passed is better; 0 where both passed or neither."""
    side = data.passed[:, 1].astype(float) - data.passed[:, 0]
    return (data.quality[:, 1] - data.quality[:, 0]) * side


def _statistics(data: Labelled) -> dict[str, Statistic]:
    """All of them as functions of sums over prompts."""
    differ = (data.passed[:, 0] != data.passed[:, 1]).astype(float)
    lead = _lead(data)
    right = differ * (np.sign(lead) + 1) / 2
    return {
        **{f"cgeq_{side}": mean(data.quality[:, side]) for side in SIDES},
        "difference": mean(data.quality[:, 1] - data.quality[:, 0]),
        "auroc": _auroc(data, SIDES),
        **{f"auroc_{side}": _auroc(data, [side]) for side in SIDES},
        "discordant": Statistic(np.stack([lead, differ], 1), _share),
        "preferred": Statistic(np.stack([right, differ], 1), _share),
    }


def _share(sums: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return sums[..., 0] / sums[..., 1]


def _auroc(data: Labelled, sides: Sequence[int]) -> Statistic:
    """Quality takes few values: count passes and failures at each, then compare the counts."""
    levels, at = np.unique(data.quality, return_inverse=True)
    passes = np.zeros((len(data.quality), len(levels)))
    failures = np.zeros_like(passes)
    rows = np.arange(len(passes))
    for side in sides:
        passed = data.passed[:, side]
        level = at.reshape(data.quality.shape)[:, side]
        np.add.at(passes, (rows, level), passed)
        np.add.at(failures, (rows, level), ~passed)

    def ranked(sums: Floats) -> Floats:
        won, lost = np.split(sums, 2, axis=-1)
        below = np.cumsum(lost, axis=-1) - lost / 2  # ties count half
        with np.errstate(invalid="ignore"):
            return (won * below).sum(axis=-1) / (won.sum(axis=-1) * lost.sum(axis=-1))

    return Statistic(np.concatenate([passes, failures], 1), ranked)


# ---------------------------------------------------------------- corrected by a person

FILE = "label-first.json"
LEAST = 30
"""Graded outputs from which a correction is made."""
RESAMPLES = 2000
HOW = "prediction-powered"


def mark_first(run: str | os.PathLike[str], plan: Plan, groups: int) -> int:
    """Write down which groups a person grades; the plan's order is random. How many texts."""
    if not 0 < groups <= len(plan.sheets):
        raise UserError(
            "The plan has fewer groups than that.",
            where="`label_first`",
            got=groups,
            expected=f"1 to {len(plan.sheets)}",
        )
    chosen = [sheet for sheet in plan.sheets if sheet.kind == "plan"][:groups]
    ids = [sheet.id for sheet in chosen]
    document = {"format": FORMAT, "plan_sha256": plan.hash, "sheets": ids}
    write(Path(run) / FILE, as_json(document))
    return sum(len(sheet.labels) for sheet in chosen)


def marked(run: str | os.PathLike[str], plan: Plan) -> list[str] | None:
    """The ids of the groups that were drawn to be graded; None where none were."""
    path = Path(run) / FILE
    if not path.exists():
        return None
    document = read_json(path, "sheets", list)
    if document.get("plan_sha256") != plan.hash:
        raise UserError("The groups to grade were drawn for another plan.", where=path)
    return [str(sheet) for sheet in document["sheets"]]


def corrected(
    graded: Floats, same: Floats, ungraded: Floats, *, replicates: int = RESAMPLES, seed: int = 0
) -> dict[str, Any]:
    """GEQ from people's `graded`, the judge's `same` on these, and its `rest` on all others."""
    from scipy.stats import t as student

    n, m = len(graded), len(ungraded)
    rng = np.random.default_rng(derive_seed(seed, "groupeval-corrected"))
    a = rng.multinomial(n, np.full(n, 1 / n), size=replicates).astype(float)
    b = rng.multinomial(m, np.full(m, 1 / m), size=replicates) if m else np.ones((replicates, 0))
    value, weight = _estimate(np.ones((1, n)), np.ones((1, m)), graded, same, ungraded)
    drawn, _ = _estimate(a, b.astype(float), graded, same, ungraded)
    wide = float(student.ppf((1 + LEVEL) / 2, n - 1))
    alone = float(graded.std(ddof=1)) / n**0.5
    spread = float(drawn.std(ddof=1))
    people = float(graded.mean())

    def interval(middle: float, error: float, how: str) -> Interval:
        return Interval(middle, middle - wide * error, middle + wide * error, LEVEL, n, how)

    return {
        "geq": interval(float(value[0]), spread, HOW),
        "people_alone": interval(people, alone, "Student"),
        "judge_alone": float(np.concatenate([same, ungraded]).mean()),
        "weight": float(weight[0]),
        "width_over_people_alone": spread / alone if alone > 0 else None,
        "n_graded": n,
        "n_others": m,
    }


def _estimate(
    a: Floats, b: Floats, graded: Floats, same: Floats, ungraded: Floats
) -> tuple[Floats, Floats]:
    """GEQ and the weight for counts of the graded `a` and of the others `b`, a row each."""
    n, total = a.sum(1), a.sum(1) + b.sum(1)
    y, f = a @ graded / n, a @ same / n
    overall = (a @ same + b @ ungraded) / total
    together = a @ (graded * same) / n - y * f
    spread = a @ same**2 / n - f**2
    weight = np.divide(together, spread, out=np.zeros_like(spread), where=spread > 1e-12)
    return weight * overall + y - weight * f, weight


def correct_series(judge: Series, person: Series, *, seed: int = 0) -> dict[str, Any]:
    """The corrected GEQ of every generator of a run, or why it cannot be had."""
    ids = marked(judge.run, judge.plan)
    if ids is None:
        raise UserError(
            "The graded outputs were not drawn at random, so nothing can be corrected.",
            where=judge.run,
            expected=f"{FILE}, which a plan with `label_first` writes",
            fix="plan again with `label_first`, and grade those groups",
        )
    graded_sheets = {
        sheet.id: [judgment for judgment in states if isinstance(judgment, GroupVerdict)]
        for sheet, states in person.states()
    }
    missing = [sheet for sheet in ids if not graded_sheets.get(sheet)]
    if missing:
        raise UserError(
            "The person has not graded all groups that were drawn.",
            where=f"{person.run}@{person.id}",
            got=f"{len(ids) - len(missing)} of {len(ids)}",
            expected="all of them: those that happen to be finished are not a random sample",
            fix=f"strop groupeval export-human {judge.run}",
        )
    verdicts = [verdict for sheet in ids for verdict in graded_sheets[sheet]]
    everything, humans = by_cell(judge.verdicts()), by_cell(verdicts)
    prompted = judge.profile.kind == "answers"
    corrections: dict[str, Any] = {}
    for name, cell in everything.items():
        outputs = (
            sum(len(verdict.outputs) for verdict in humans[name].verdicts) if name in humans else 0
        )
        if outputs < LEAST:
            corrections[name] = {
                "geq": None,
                "n_graded": outputs,
                "why": f"{LEAST} grades are needed",
            }
            continue
        judged, graded = (_units(side, prompted) for side in (cell, humans[name]))
        common = [key for key in graded if key in judged]
        ungraded = [value for key, value in judged.items() if key not in graded]
        arrays = [[graded[k] for k in common], [judged[k] for k in common], ungraded]
        corrections[name] = corrected(*(np.array(values, float) for values in arrays), seed=seed)
    return {"person": person.name, "judge": judge.name, "cells": corrections}


def _units(cell: JudgedCell, prompted: bool) -> dict[Any, float]:
    if prompted:
        return {verdict.prompt: prompt_quality(verdict) for verdict in cell.verdicts}
    return dict(zip(cell.outputs, cell.per_output.tolist(), strict=True))


def corrected_words(correction: dict[str, Any]) -> Sequence[str]:
    """What the correction did, a sentence each."""
    sentences = []
    for name, cell in correction["cells"].items():
        if cell["geq"] is None:
            sentences.append(f"{name}: not corrected, {cell['n_graded']} grades; {cell['why']}.")
            continue
        ratio = cell["width_over_people_alone"]
        change = "as wide as" if ratio is None else f"{ratio:.2f} times as wide as"
        sentences.append(
            f"{name}: GEQ {cell['geq']:.2f} by {correction['judge']}, "
            f"corrected by {cell['n_graded']} grades of {correction['person']} "
            f"(weight {cell['weight']:.2f}); {change} people alone, {cell['people_alone']:.2f}."
        )
    return [*sentences, "This corrects towards these graders, and GEQ only: GED is the judge's."]
