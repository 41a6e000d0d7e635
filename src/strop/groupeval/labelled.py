"""Judged quality against success that was checked elsewhere: does the judge see what works?

Two generators answer the same prompts; every response has a quality and a label, passed or not.

- AUROC: the chance that a response that passed has the higher quality, ties counting half.
- Discordant pairs: prompts where exactly one response passed, how much higher that one scores, and
  how often it is preferred (again ties count half).
- Intervals: bootstrap over prompts (10,000 draws with replacement), because the two responses to
  one prompt belong together. They hold given one verdict on each pair.

"Apparent success" is a dimension of the rubric, so this checks a criterion; it is no proof that
people would prefer the same responses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.groupeval.judgments import Judgments
from strop.rng import derive_seed
from strop.stats.resample import REPLICATES, Statistic, intervals, mean

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


def read_labels(path: str | Path) -> dict[tuple[str, int], bool]:
    """Success by cell and index, from lines `{"cell": ..., "index": ..., "success": true}`."""
    expected = '{"cell": "name", "index": 0, "success": true}'
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError("The labels cannot be read.", where=path, got=error) from None
    labels: dict[tuple[str, int], bool] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
            cell, index, success = (document[key] for key in ("cell", "index", "success"))
        except (ValueError, KeyError, TypeError, RecursionError):
            cell = index = success = None
        if type(cell) is not str or type(index) is not int or type(success) is not bool:
            raise UserError(
                "A label cannot be read.",
                where=f"{path}, line {number}",
                got=line[:120],
                expected=expected,
            )
        if labels.setdefault((cell, index), success) != success:
            raise UserError(
                "A response has two labels.", where=f"{path}, line {number}", got=line[:120]
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
    one, other = cells.values() if order is None else (cells[name] for name in order)
    prompts = [index for index in one.outputs if index in other.row]
    for name, index in ((cell.name, index) for cell in (one, other) for index in prompts):
        if (name, index) not in labels:
            raise UserError(
                "A judged response has no label.",
                where=judgments.source,
                got=f"cell {name!r}, index {index}",
                expected="a label for every response",
            )
    rows = [[cell.per_output[cell.row[i]] for cell in (one, other)] for i in prompts]
    passed = [[labels[cell.name, i] for cell in (one, other)] for i in prompts]
    return Labelled((one.name, other.name), np.array(rows, float), np.array(passed, bool))


def conditional(data: Labelled, *, replicates: int = REPLICATES, seed: int = 0) -> dict[str, Any]:
    """Success, conditional GEQ, their difference, AUROC and discordant pairs, with intervals.

    A value is None where the responses do not define it: no AUROC where all passed.
    """
    seed = derive_seed(seed, "groupeval-conditions")
    found = intervals(_statistics(data), replicates=replicates, seed=seed)
    return {
        "generators": list(data.names),
        "n_prompts": len(data.quality),
        "success": [float(rate) for rate in data.passed.mean(axis=0)],
        "cgeq": [found[f"cgeq_{side}"] for side in SIDES],
        "difference": "second minus first",
        "cgeq_difference": found["difference"],
        "auroc": found["auroc"],
        "auroc_by_generator": [found[f"auroc_{side}"] for side in SIDES],
        "discordant": found["discordant"],
        "preferred": found["preferred"],
        **_counts(data),
    }


def _counts(data: Labelled) -> dict[str, Any]:
    """Prompts by who passed; of those where one did, by how its quality compares."""
    first, second = data.passed.T
    right = np.sign(_lead(data))[first != second]
    return {
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
