"""The same outputs under two evaluators and a judge: do likelihood and judged quality agree?

Two generators, two settings, some budgets. Every cell is scored by every evaluator under two span
policies, and its outputs go to GroupEval in one interleaved, blinded plan. Comparisons match the
generators by budget and setting; budgets below `PRIMARY` are the floor case and are left out of
signs and correlations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from strop.denoisers import load_model
from strop.errors import UserError
from strop.facts import default_sampler
from strop.generate import sample_cells
from strop.groupeval.agree import spearman
from strop.groupeval.compare import compare
from strop.groupeval.series import list_series
from strop.groupeval.verdicts import Verdicts, load
from strop.metrics.aggregates import statistics
from strop.metrics.bootstrap import Statistic, ratio
from strop.metrics.evaluator import load_evaluator
from strop.metrics.perplexity import score_perplexity
from strop.metrics.score import score_ids
from strop.progress import Progress
from strop.spec import SpanPolicy
from strop.store import Cell, Run
from strop.studies.cells import sampler
from strop.studies.contenders import (
    CHECKPOINTS,
    MODELS,
    SHARPENED,
    named_sources,
    run_folder,
)
from strop.studies.cross_model import smoke_sources
from strop.studies.folder import Folder
from strop.studies.groupeval_panel import paper_numbers
from strop.studies.groupeval_study import PRIMARY
from strop.studies.judged import judge_texts
from strop.studies.selection import STANDARD, Setting

__all__ = [
    "EVALUATORS",
    "NAMES",
    "SMOKE_EVALUATORS",
    "STEPS",
    "STUDY",
    "Pools",
    "drawn_pools",
    "run_exact_output",
    "saved_pools",
    "two_sources",
]

STUDY = "exact-output"
NAMES = ("MDLM-Small", "DiDi-Instruct")
STEPS = (4, 16, 64, 256, 1024)
SETTINGS = {"standard": STANDARD, "sharpened": SHARPENED}
EVALUATORS = ("gpt2-large", "Qwen/Qwen3-8B-Base")
SMOKE_EVALUATORS = ("embedded:tales-ar", "smollm2-135m")
POLICIES: tuple[SpanPolicy, ...] = ("full-stream", "first-document")
"""The first is the primary one."""
AGGREGATES = ("pooled", "macro", "bits_per_byte")
"""Token-pooled, mean over outputs, per byte; the first is the primary one."""
PAPER_COLUMNS = {"gpt2-large": "gpt2_large_ratio", "Qwen/Qwen3-8B-Base": "qwen_ratio"}
JUDGED = "groupeval"


@dataclass(frozen=True, order=True)
class Place:
    """One cell of the study."""

    steps: int
    setting: str
    generator: str

    def __str__(self) -> str:
        return f"{self.generator} {self.setting} {self.steps}"


Pools = dict[Place, Cell]


def two_sources(words: Sequence[str], *, smoke: bool, out: Path) -> dict[str, str]:
    """The two generators: as named, as embedded, or as released."""
    if smoke:
        found = smoke_sources(out)
        return {name: found[name] for name in NAMES}
    if not words:
        return {name: MODELS[name].source for name in NAMES}
    return named_sources(words)


def drawn_pools(
    sources: Mapping[str, str],
    *,
    out: Path,
    steps: Sequence[int],
    n: int,
    seed: int = 0,
    device: str = "auto",
    force: bool = False,
    progress: Progress | None = None,
) -> Pools:
    """Draw both generators' cells into `out`, each by its family's own sampler."""
    points = [(m, name) for name in SETTINGS for m in sorted(set(steps))]
    pools: Pools = {}
    for generator, source in sources.items():
        model = load_model(source, device=device)
        name = default_sampler(model.spec.family)
        where = out / run_folder(generator)
        specs = [sampler(m, SETTINGS[setting], name) for m, setting in points]
        sample_cells(model, specs, n=n, seed=seed, out=where, force=force, progress=progress)
        for (m, setting), cell in zip(points, Run.open(where).cells(), strict=True):
            pools[Place(m, setting, generator)] = cell
    return pools


def saved_pools(study: Path, steps: Sequence[int], names: Sequence[str] = NAMES) -> Pools:
    """The cells that `strop study cross-model` has drawn, found by their samplers."""
    pools: Pools = {}
    for generator in names:
        where = study / run_folder(generator)
        found = {}
        for cell in Run.open(where).cells():
            spec = cell.spec.generator.sampler
            found[spec.steps, Setting(spec.temperature, spec.precision)] = cell
        for m in sorted(set(steps)):
            for name, setting in SETTINGS.items():
                if (m, setting) not in found:
                    raise UserError(
                        "The saved pools lack a cell of the comparison.",
                        where=where,
                        got=f"nothing at {m} steps under {setting}",
                        expected="both settings at every budget of both generators",
                        fix="choose --steps that are there, or leave --pools out to draw them",
                    )
                pools[Place(m, name, generator)] = found[m, setting]
    return pools


def run_exact_output(
    find: Callable[[], Pools],
    *,
    out: Path,
    evaluators: Sequence[str] = EVALUATORS,
    seed: int = 0,
    device: str = "auto",
    force: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Score and judge the pools that `find` draws or reads, and hold the two against each other."""
    runs = (CHECKPOINTS, JUDGED, *map(run_folder, MODELS))
    with Folder.open(out, STUDY, runs=runs, force=force) as folder:
        pools = find()
        names = list(dict.fromkeys(place.generator for place in pools))
        if len(names) != 2 or not evaluators:
            raise UserError(
                "The comparison is of two generators under at least one evaluator.",
                got=f"{len(names)} generators, {len(evaluators)} evaluators",
            )
        scored = _scored(pools, evaluators, device, progress)
        series = _judged(pools, out / JUDGED, seed)
        judged = {name: one for name, one in series.items() if len(one.cells) == len(pools)}
        quality = {
            judge: {name: cell.geq() for name, cell in one.cells.items()}
            for judge, one in judged.items()
        }
        comparisons = _comparisons(pools, names, scored, judged, seed)
        primary = {place for place in pools if place.steps >= PRIMARY} or set(pools)
        result = {
            "asked": {
                "names": names,
                "evaluators": list(evaluators),
                "outputs": {str(place): len(cell.table()) for place, cell in pools.items()},
                "seed": seed,
            },
            "cells": [_cell(place, scored, quality) for place in sorted(pools)],
            "comparisons": comparisons,
            "judges": list(judged),
            "unfinished": [name for name in series if name not in judged],
            "agreement": _agreement(primary, evaluators, scored),
            "kept": _kept(primary, evaluators[0], scored),
            "signs": _signs(primary, names, evaluators, scored),
            "quality": _quality(primary, names, evaluators, scored, quality),
        }
        folder.finish(result, [_line(row) for row in comparisons])
        from strop.studies.family_figures import save_exact_output

        save_exact_output(result, folder.figures())
    return result


Key = tuple[Place, str, SpanPolicy]
Scores = dict[Key, dict[str, Statistic]]
"""By cell, evaluator and policy: the aggregates and the share of bytes kept."""
Quality = dict[str, dict[str, float]]
"""GEQ by judge and cell."""


def _scored(
    pools: Pools, evaluators: Sequence[str], device: str, progress: Progress | None
) -> Scores:
    """Evaluator by evaluator, so that only one is in memory."""
    scored: Scores = {}
    for name in evaluators:
        evaluator = load_evaluator(name, device=device)
        for place, cell in pools.items():
            score_ids(cell)
            for policy in POLICIES:
                metric = score_perplexity(cell, evaluator, policy, progress=progress)
                table = cell.score(metric)
                assert table is not None  # it was written a moment ago
                scored[place, name, policy] = statistics(table.columns)
    return scored


def _judged(pools: Pools, out: Path, seed: int) -> dict[str, Verdicts]:
    """All pools in one plan; every judge that has a series there takes part."""
    texts = {}
    for place in sorted(pools):
        cell = pools[place]
        found = cell.pool().texts
        if found is None:
            raise UserError("The outputs have no texts to judge.", where=cell.path)
        texts[str(place)] = found
    judge_texts(texts, out, seed=seed)
    return {one.name: load(f"{out}@{one.id}") for one in list_series(out)}


def _comparisons(
    pools: Pools,
    names: Sequence[str],
    scored: Scores,
    judged: Mapping[str, Verdicts],
    seed: int,
) -> list[dict[str, Any]]:
    """The ratio table: likelihood and judged quality of the first generator against the second."""
    printed = {(row["steps"], row["sampler"]): row for row in _paper_rows()}
    evaluators = list(dict.fromkeys(name for _, name, _ in scored))
    rows = []
    for m, setting in sorted({(place.steps, place.setting) for place in pools}):
        pair = [Place(m, setting, name) for name in names]
        said = printed.get((m, setting), {})
        ratios = {}
        for name in evaluators:
            above, below = (scored[place, name, POLICIES[0]][AGGREGATES[0]] for place in pair)
            found = ratio(above, below, seed=seed)
            if found is None:
                raise UserError("No token of a cell could be scored.", where=str(pair[0]))
            ratios[name] = {**found.as_dict(), "paper": said.get(PAPER_COLUMNS.get(name, ""))}
        rows.append(
            {
                "steps": m,
                "setting": setting,
                "ratios": ratios,
                "judged": {
                    judge: _contrast(verdicts, pair, seed) for judge, verdicts in judged.items()
                },
                "paper": said or None,
            }
        )
    return rows


def _paper_rows() -> list[dict[str, Any]]:
    return paper_numbers("groupeval-exact")["rows"]


def _contrast(verdicts: Verdicts, pair: Sequence[Place], seed: int) -> dict[str, Any]:
    """GEQ of the first minus that of the second, blocked by partition."""
    first, second = (verdicts.only(str(place)) for place in pair)
    [row] = compare(second, first, seed=seed)["pairs"]
    low, high = row["geq_interval"]
    return {
        "geq": [row["geq_b"], row["geq_a"]],
        "ged": [row["ged_b"], row["ged_a"]],
        "difference": row["geq_difference"],
        "low": low,
        "high": high,
        "excludes_zero": row["geq_interval_excludes_zero"],
    }


def _cell(place: Place, scored: Scores, quality: Quality) -> dict[str, Any]:
    return {
        "generator": place.generator,
        "setting": place.setting,
        "steps": place.steps,
        "scores": {
            name: {
                policy: {aggregate: one[aggregate].value for aggregate in (*AGGREGATES, "kept")}
                for (cell, other, policy), one in scored.items()
                if (cell, other) == (place, name)
            }
            for name in dict.fromkeys(name for _, name, _ in scored)
        },
        "geq": {judge: found[str(place)] for judge, found in quality.items()},
    }


def _agreement(
    primary: set[Place], evaluators: Sequence[str], scored: Scores
) -> list[dict[str, Any]]:
    """Rank correlation of two evaluators across cells, for every policy and aggregate."""
    cells = sorted(primary)
    return [
        {
            "evaluators": [one, other],
            "policy": policy,
            "aggregate": aggregate,
            "cells": len(cells),
            "spearman": spearman(
                *(
                    [scored[place, name, policy][aggregate].value for place in cells]
                    for name in (one, other)
                )
            ),
        }
        for one, other in combinations(evaluators, 2)
        for policy in POLICIES
        for aggregate in AGGREGATES
    ]


def _kept(primary: set[Place], evaluator: str, scored: Scores) -> dict[str, float]:
    """The share of the source bytes that each policy reads, all cells together."""
    shares = {}
    for policy in POLICIES:
        sums = [scored[place, evaluator, policy]["kept"].columns.sum(0) for place in primary]
        kept, source = (float(sum(column)) for column in zip(*sums, strict=True))
        shares[policy] = kept / source if source else math.nan
    return shares


def _signs(
    primary: set[Place], names: Sequence[str], evaluators: Sequence[str], scored: Scores
) -> list[dict[str, Any]]:
    """In how many comparisons each generator has the lower perplexity, rule by rule."""
    matched = sorted({(place.steps, place.setting) for place in primary})
    rows = []
    for name in evaluators:
        for policy in POLICIES:
            for aggregate in AGGREGATES:
                gaps = []
                for m, setting in matched:
                    first, second = (
                        scored[Place(m, setting, one), name, policy][aggregate].value
                        for one in names
                    )
                    gaps.append(first - second)
                rows.append(
                    {
                        "evaluator": name,
                        "policy": policy,
                        "aggregate": aggregate,
                        "comparisons": len(gaps),
                        names[0]: sum(gap < 0 for gap in gaps),
                        names[1]: sum(gap > 0 for gap in gaps),
                    }
                )
    return rows


def _quality(
    primary: set[Place],
    names: Sequence[str],
    evaluators: Sequence[str],
    scored: Scores,
    quality: Quality,
) -> list[dict[str, Any]]:
    """Rank correlation of GEQ with log perplexity, within each generator and across both."""
    rows = []
    for judge, found in quality.items():
        for name in evaluators:
            for scope in (*names, "both"):
                cells = sorted(p for p in primary if scope in (p.generator, "both"))
                level = [
                    math.log(scored[place, name, POLICIES[0]][AGGREGATES[0]].value)
                    for place in cells
                ]
                rows.append(
                    {
                        "judge": judge,
                        "evaluator": name,
                        "generators": scope,
                        "cells": len(cells),
                        "spearman": spearman([found[str(place)] for place in cells], level),
                    }
                )
    return rows


def _line(row: dict[str, Any]) -> dict[str, Any]:
    """A comparison as one line of the CSV."""
    line: dict[str, Any] = {"steps": row["steps"], "setting": row["setting"]}
    for name, one in row["ratios"].items():
        line |= {f"ratio {name}": one["value"], f"low {name}": one["low"]}
        line |= {f"high {name}": one["high"], f"paper {name}": one["paper"]}
    for judge, one in row["judged"].items():
        line |= {f"GEQ difference {judge}": one["difference"]}
        line |= {f"low {judge}": one["low"], f"high {judge}": one["high"]}
        line |= {f"GED {i + 1} {judge}": value for i, value in enumerate(one["ged"])}
    return line
