"""Answers to prompts: quality and diversity of each prompt's answers, then the mean over prompts.

Answers to one prompt share what the prompt makes easy or hard, and they are judged in one reply, so
they are not independent; prompts are. A prompt therefore has one value of each score, and limits
are Student's over prompts (of a share Wilson's, with what the prompts' own spread says the answers
are worth). Where prompts are too skewed, as where nearly all have one value, their spread does not
say how far the mean may move: limits are then those of any scores with these bounds
(`strop.stats.interval`). A comparison is paired: the same prompts, with as many answers on both
sides.

    quality of prompt p   = mean quality of its answers, 0 to 10
    diversity of prompt p = GED of its answers (`scores.py`), 0 to 10
    mode entropy          = entropy of the shares of modes among its valid answers, in nats

NoveltyBench (Zhang et al. 2025, arXiv 2504.05228) keeps one JSON object a prompt: `generations`
are its answers in order, `partition` numbers their classes by first appearance, and
`generation_scores` gives the first answer of every class its quality and every other 0.

    distinct_k = classes among k answers
    utility_k  = mean of the generation scores, weighted by patience ** place

Here classes are a judge's modes and the quality is the judge's, 0 to 10; there a classifier makes
classes and a reward model grades 1 to 10. So values of the two are not compared. An invalid answer
is in no mode: it has quality 0, and in the file a class of its own with all other invalid ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strop.disk import write
from strop.errors import UserError
from strop.groupeval.scores import (
    TOP,
    JudgedCell,
    PlannedGroups,
    counted,
    diagnose,
    entropy,
    factors,
    ged_bounds,
    group_ged,
    mode_counts,
    quality,
)
from strop.groupeval.verdict import GroupVerdict
from strop.stats.interval import Interval
from strop.stats.resample import (
    bounded_difference,
    bounded_mean,
    jackknife,
    mean,
    share_interval,
    skewed,
)

if TYPE_CHECKING:
    from strop.groupeval.series import Series


SKEWED = 0.25
"""Skewness of prompts over sqrt(n) from which Student's limits over them fail; see the docs."""
WIDE = "a wide interval, because few prompts tell how far it may move"


def prompt_quality(verdict: GroupVerdict) -> float:
    """The mean quality of the answers to one prompt."""
    return math.fsum(map(quality, verdict.outputs)) / len(verdict.outputs)


def valid_share(verdict: GroupVerdict) -> float:
    """The share of valid answers to one prompt."""
    return sum(output.valid for output in verdict.outputs) / len(verdict.outputs)


def mode_entropy(verdict: GroupVerdict) -> float:
    """Of the valid answers to one prompt, in nats; 0 without any."""
    return entropy(mode_counts(verdict.outputs))


def over_prompts(values: Sequence[float], span: tuple[float, float]) -> Interval:
    """The mean over prompts of a score with bounds."""
    array = np.array(values)
    interval = jackknife(mean(array, span=span))
    return _wider(interval, bounded_mean(array, span)) if too_skewed(values) else interval


def difference_over_prompts(differences: Sequence[float], most: float) -> Interval:
    """The mean of paired differences of scores that are at most so much apart."""
    array = np.array(differences)
    interval = jackknife(mean(array, span=(-most, most)))
    return (
        _wider(interval, bounded_difference(array, most)) if too_skewed(differences) else interval
    )


def share_over_prompts(shares: Sequence[float], answers: int) -> Interval:
    """The mean of shares of valid answers, each over so many."""
    array = np.array(shares)
    return bounded_mean(array, (0.0, 1.0)) if too_skewed(shares) else share_interval(array, answers)


def too_skewed(values: Sequence[float]) -> bool:
    """Whether Student's limits over prompts would not hold; never of one prompt, which has none."""
    return len(values) > 1 and skewed(np.array(values)) > SKEWED


def _wider(first: Interval, second: Interval) -> Interval:
    """The second of two intervals of one value, as far out as either reaches."""
    (low, high), (least, most) = first.ends, second.ends
    if not first.bounded:
        return second
    return replace(second, value=first.value, low=min(low, least), high=max(high, most))


def _mind(values: Sequence[float]) -> str | None:
    return WIDE if too_skewed(values) else None


def score_by_prompt(cell: JudgedCell, planned: PlannedGroups) -> dict[str, Any]:
    """A generator's scores over its prompts."""
    verdicts = cell.verdicts
    answers = [len(verdict.outputs) for verdict in verdicts]
    qualities = [prompt_quality(verdict) for verdict in verdicts]
    diversities = [group_ged(verdict) for verdict in verdicts]
    entropies = [mode_entropy(verdict) for verdict in verdicts]
    geq, ged = (over_prompts(values, (0.0, TOP)) for values in (qualities, diversities))
    shares = [valid_share(verdict) for verdict in verdicts]
    return {
        **counted(cell, planned),
        **diagnose(cell, modes=True),
        "geq": geq,
        "geq_interval_mind": _mind(qualities),
        "ged": ged.value,
        "ged_interval": ged,
        "ged_interval_mind": _mind(diversities),
        "valid_share": share_over_prompts(shares, round(sum(answers) / len(answers))),
        "mode_entropy": over_prompts(entropies, (0.0, math.log(max(answers)))),
        "distinct_k": over_prompts([distinct_k(v) for v in verdicts], (0.0, float(max(answers)))),
        "utility_k": over_prompts([utility_k(v) for v in verdicts], (0.0, TOP)),
        "n_prompts": len(verdicts),
        "answers_per_prompt": [min(answers), max(answers)],
        "geq_bounds": ged_bounds(geq.value, len(verdicts), planned),
        "ged_bounds": ged_bounds(ged.value, len(verdicts), planned),
    }


def compare_by_prompt(left: JudgedCell, right: JudgedCell) -> dict[str, Any]:
    """B minus A on the prompts that both have, with as many answers each."""
    pairs, apart = paired(left, right)
    values = {
        name: np.array([[value(verdict) for verdict in pair] for pair in pairs])
        for name, value in (
            ("geq", prompt_quality),
            ("ged", group_ged),
            ("valid_share", valid_share),
            ("mode_entropy", mode_entropy),
        )
    }
    differences = {name: (sides[:, 1] - sides[:, 0]).tolist() for name, sides in values.items()}
    most = {"valid_share": 1.0, "mode_entropy": math.log(max(len(a.outputs) for a, _ in pairs))}
    between = {
        name: difference_over_prompts(per_prompt, most.get(name, TOP))
        for name, per_prompt in differences.items()
    }
    sides = {
        f"{name}_{side}": value
        for side, verdicts in zip("ab", zip(*pairs, strict=True), strict=True)
        for name, value in factors(verdicts).items()
    }
    return {
        **sides,
        "geq_a": float(values["geq"][:, 0].mean()),
        "geq_b": float(values["geq"][:, 1].mean()),
        "geq_difference": between["geq"],
        "geq_interval_excludes_zero": between["geq"].excludes(0),
        "geq_interval_mind": _mind(differences["geq"]),
        "ged_a": float(values["ged"][:, 0].mean()),
        "ged_b": float(values["ged"][:, 1].mean()),
        "ged_difference": between["ged"].value,
        "ged_difference_interval": between["ged"],
        "ged_interval_mind": _mind(differences["ged"]),
        "valid_share_difference": between["valid_share"],
        "mode_entropy_difference": between["mode_entropy"],
        "n_prompts": len(pairs),
        "n_prompts_left_out": apart,
    }


def paired(
    left: JudgedCell, right: JudgedCell
) -> tuple[list[tuple[GroupVerdict, GroupVerdict]], int]:
    """The two verdicts on every prompt that can be compared, and how many prompts cannot."""
    sides = [{verdict.prompt: verdict for verdict in cell.verdicts} for cell in (left, right)]
    pairs = [
        (verdict, sides[1][prompt])
        for prompt, verdict in sides[0].items()
        if prompt in sides[1] and len(verdict.outputs) == len(sides[1][prompt].outputs)
    ]
    if not pairs:
        raise UserError(
            "The two have no prompt in common.",
            got=f"{len(sides[0])} prompts of {left.name}, {len(sides[1])} of {right.name}",
            expected="the same prompts, with as many answers each",
        )
    return pairs, len({*sides[0], *sides[1]}) - len(pairs)


# ---------------------------------------------------------------- as NoveltyBench counts

PATIENCE = 0.8
"""How likely a reader is to go on to the next answer."""
INVALID = "an invalid answer"


def distinct_k(verdict: GroupVerdict) -> int:
    """Modes among the valid answers."""
    return len(mode_counts(verdict.outputs))


def utility_k(verdict: GroupVerdict, patience: float = PATIENCE) -> float:
    """What a reader gains who stops after each answer with some chance: nothing from repeats."""
    _, scores = _classes(verdict)
    return float(np.average(scores, weights=patience ** np.arange(len(scores))))


def _classes(verdict: GroupVerdict) -> tuple[list[int], list[float]]:
    """The number of each answer's class, and the quality of each that is the first of its."""
    numbers: dict[str, int] = {}
    partition, scores = [], []
    for output in sorted(verdict.outputs, key=lambda o: o.index):
        name = output.mode if output.valid and output.mode is not None else INVALID
        new = name not in numbers
        partition.append(numbers.setdefault(name, len(numbers)))
        scores.append(quality(output) if new else 0.0)
    return partition, scores


def write_novelty(folder: Path, series: Series) -> list[Path]:
    """`generations.jsonl`, `partitions.jsonl` and `scores.jsonl` of every generator of a series."""
    if series.profile.kind != "answers":
        raise UserError(
            "NoveltyBench's files hold answers to prompts.",
            where="`novelty`",
            got=f"a plan under {series.profile.name}",
            expected="one under answers-v1",
        )
    files = []
    for cell in series.plan.cells:
        texts = series.texts(cell)
        verdicts = [verdict for verdict in series.verdicts() if verdict.cell == cell]
        rows = [_row(number, verdict, texts) for number, verdict in enumerate(verdicts)]
        keys = ("id", "prompt", "generations"), ("partition", "distinct")
        scored = ("generation_scores", "partition_scores", "utility")
        for name, have in (
            ("generations", keys[0]),
            ("partitions", (*keys[0], *keys[1])),
            ("scores", (*keys[0], *keys[1], *scored)),
        ):
            lines = [json.dumps({k: row[k] for k in have}, ensure_ascii=False) for row in rows]
            files.append(folder / _plain_name(cell) / f"{name}.jsonl")
            files[-1].parent.mkdir(parents=True, exist_ok=True)
            write(files[-1], "".join(line + "\n" for line in lines).encode())
    return files


def _row(number: int, verdict: GroupVerdict, texts: list[str]) -> dict[str, Any]:
    partition, scores = _classes(verdict)
    first = [partition.index(k) for k in range(max(partition) + 1)]
    ordered = sorted(output.index for output in verdict.outputs)
    return {
        "id": f"{verdict.cell}-{number}",
        "prompt": verdict.prompt,
        "generations": [texts[index] for index in ordered],
        "partition": partition,
        "distinct": distinct_k(verdict),
        "generation_scores": scores,
        "partition_scores": [scores[position] for position in first],
        "utility": utility_k(verdict),
    }


def _plain_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".") or "cell"
