"""The same outputs under two evaluators and a judge: do likelihood and judged quality agree?

Two generators, two settings, some budgets. Every cell is scored by every evaluator under two span
policies, and its outputs go to GroupEval in one interleaved, blinded plan. Comparisons match the
generators by budget and setting; budgets below `PRIMARY` are the floor case and are left out of
signs and correlations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strop.engine.plan import all_parts
from strop.errors import UserError
from strop.spec.generator import OperatingPoint
from strop.spec.value import SpanPolicy
from strop.stats.resample import Statistic, ratio
from strop.table import Column, Table
from strop.verbs import paper, parameters, points
from strop.verbs.families import CHECKPOINTS, MODELS, named_sources, run_folder, smoke_sources
from strop.verbs.groupeval_study import PRIMARY, RUBRIC, contrast
from strop.verbs.study import SMOKE_NOTE, Sources, Study
from strop.verbs.verb import Ask, Parameter, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from strop.groupeval.judgments import Judgments
    from strop.stats.interval import Interval
    from strop.store import Cell

NAME = "exact-output"
NAMES = ("MDLM-Small", "DiDi-Instruct")
NAMED = tuple(f"{name}={MODELS[name].source}" for name in NAMES)
EVALUATORS = ("gpt2-large", "Qwen/Qwen3-8B-Base")
POLICIES: tuple[SpanPolicy, ...] = ("full-stream", "first-document")
"""The first is the primary one."""
AGGREGATES = ("pooled", "macro", "bits_per_byte")
"""Token-pooled, mean over outputs, per byte; the first is the primary one."""
RULE = ("evaluator", "policy", "aggregate")
MACRO = (
    "macro is exp of the mean over outputs of their mean loss per token; the paper does not define "
    "its macro average"
)
PAPER_COLUMNS = {"gpt2-large": "gpt2_large_ratio", "Qwen/Qwen3-8B-Base": "qwen_ratio"}
JUDGED = "groupeval"


@dataclass(frozen=True, order=True)
class CellKey:
    """One cell of the study."""

    steps: int
    setting: str
    generator: str

    def __str__(self) -> str:
        return f"{self.generator} {self.setting} {self.steps}"


if TYPE_CHECKING:
    Pools = dict[CellKey, Cell]
    Scores = dict[tuple[CellKey, str, SpanPolicy], dict[str, Statistic]]
    """By cell, evaluator and policy: the aggregates and the share of bytes kept."""
    Quality = dict[str, dict[str, float]]
    """GEQ by judge and cell."""


# ---------------------------------------------------------------- the pools


def _pools(ask: Ask) -> Pools:
    """Those that were saved, or drawn now: each generator by its family's own sampler."""
    if ask["pools"] is not None:
        return saved_pools(Path(ask["pools"]), ask["steps"])
    if ask.smoke and not ask.sources:
        small = smoke_sources(ask.out)
        sources = {name: small[name] for name in NAMES}
    else:
        sources = named_sources(ask.sources or NAMED)
    names = [(m, setting) for setting in points.SETTINGS for m in sorted(ask["steps"])]
    pools: Pools = {}
    with all_parts() as part:
        for generator, source in sources.items():
            model = points.load(ask, source)
            named, _ = points.named_points(model.spec.family, None, points.SETTINGS)
            where = ask.out / run_folder(generator)
            with part():
                cells = points.draw(
                    ask, model, [(m, named[setting]) for m, setting in names], where
                )
                for (m, setting), cell in zip(names, cells, strict=True):
                    pools[CellKey(m, setting, generator)] = cell
    return pools


def saved_pools(study: Path, counts: Sequence[int]) -> Pools:
    """The cells that `strop study cross-model` has drawn, found by their samplers."""
    from strop.store import Run

    pools: Pools = {}
    for generator in NAMES:
        where = study / run_folder(generator)
        cells = [(cell, cell.spec.generator) for cell in Run.open(where).cells()]
        drawn = {(of.sampler.steps, OperatingPoint.of(of.sampler)): cell for cell, of in cells}
        family = next((of.checkpoint.family for _, of in cells), "")
        named, _ = points.named_points(family, None, points.SETTINGS)
        for m, (name, point) in product(sorted(set(counts)), named.items()):
            if (m, point) not in drawn:
                raise UserError(
                    "The saved pools lack a cell of the comparison.",
                    where=where,
                    got=f"nothing at {m} steps under {point}",
                    expected="both settings at every budget of both generators",
                    fix="choose `steps` that were saved, or leave `pools` out to draw them",
                )
            pools[CellKey(m, name, generator)] = drawn[m, point]
    return pools


# ---------------------------------------------------------------- the numbers


def _check(ask: Ask) -> None:
    if ask["pools"] is not None and ask.sources:
        raise UserError(
            "Saved pools have their own models.",
            where="`pools`",
            got=", ".join(ask.sources),
            fix="leave out `pools`, or the models",
        )
    if ask["pools"] is None:
        points.check_groups(ask)
        if len(named := named_sources(ask.sources or NAMED)) != len(NAMES):
            got, expected = ", ".join(named), "two, as NAME=SOURCE"
            raise UserError("The comparison needs two generators.", got=got, expected=expected)


def _run(ask: Ask) -> Result:
    pools, evaluators = _pools(ask), list(ask["evaluator"])
    names = list(dict.fromkeys(key.generator for key in pools))
    scored = _score_pools(ask, pools, evaluators)
    texts = {str(key): points.texts_of(pools[key]) for key in sorted(pools)}
    series = points.judge_texts(
        texts, ask.out / JUDGED, seed=ask["seed"], partition=ask["partition"]
    )
    judged = {
        name: judgments for name, judgments in series.items() if len(judgments.cells) == len(pools)
    }
    quality = {
        judge: {name: cell.geq() for name, cell in judgments.cells.items()}
        for judge, judgments in judged.items()
    }
    primary = sorted(key for key in pools if key.steps >= PRIMARY) or sorted(pools)
    levels = Levels(primary, names, evaluators, scored)
    unfinished = [name for name in series if name not in judged]
    facts = {
        "cells": [_cell(key, scored, quality) for key in sorted(pools)],
        "comparisons": _comparisons(ask, pools, names, scored, judged),
        "judges": list(judged),
        "unfinished": unfinished,
        "agreement": levels.agreement(),
        "kept": levels.share_read(),
        "signs": levels.signs(),
        "quality": levels.quality(quality),
        "claims": paper.table("groupeval-exact").claims,
    }
    outputs = {str(key): len(texts[str(key)]) for key in pools}
    settings = ask.said(names=names, evaluators=evaluators, outputs=outputs)
    words = "Left out, because cells are not judged yet: " + ", ".join(unfinished)
    notes = (RUBRIC, parameters.grouping(ask["partition"]), MACRO)
    notes = (*((words,) if unfinished else ()), *notes, *((SMOKE_NOTE,) if ask.smoke else ()))
    return Result(settings, _table(facts, names, evaluators), _more(facts, names), facts, notes)


def _score_pools(ask: Ask, pools: Pools, evaluators: Sequence[str]) -> Scores:
    """Evaluator by evaluator, so that only one is in memory."""
    from strop.measure.across import statistics
    from strop.measure.cells import Scorers, measure
    from strop.measure.evaluator import load_evaluator
    from strop.measure.metric import PERPLEXITY

    home = ask.engine.at_home(ask["device"])
    by = Scorers(
        [partial(load_evaluator, name, device=home) for name in evaluators],
        POLICIES,
        engine=ask.engine,
        progress=ask.progress,
    )
    frame = measure(list(pools.values()), None, by)
    scored: Scores = {}
    # In the order in which they are scored: evaluator by evaluator, policy by policy.
    rules = product(evaluators, POLICIES)
    for (name, policy), metric in zip(rules, frame.asked[PERPLEXITY.name], strict=True):
        for key, row in zip(pools, frame, strict=True):
            part = row.part(PERPLEXITY, metric)
            assert part is not None  # nothing is missing
            scored[key, name, policy] = statistics(part.columns)
    return scored


def _comparisons(
    ask: Ask, pools: Pools, names: Sequence[str], scored: Scores, judged: Mapping[str, Judgments]
) -> list[dict[str, Any]]:
    """The ratio table: likelihood and judged quality of the first generator against the second."""
    # The paper's numbers are of its own two generators.
    papers_own = tuple(names) == NAMES
    printed = paper.table("groupeval-exact").by("steps", "sampler") if papers_own else {}
    rows = []
    for m, setting in sorted({(key.steps, key.setting) for key in pools}):
        pair = [CellKey(m, setting, name) for name in names]
        printed_row = printed.get((m, setting), {})
        ratios = {}
        for name in ask["evaluator"]:
            above, below = (scored[key, name, POLICIES[0]][AGGREGATES[0]] for key in pair)
            measured = ratio(above, below, seed=ask["seed"])
            if measured is None:
                raise UserError("No token of a cell could be scored.", where=str(pair[0]))
            ratios[name] = {
                "ratio": measured,
                "paper": printed_row.get(PAPER_COLUMNS.get(name, "")),
            }
        rows.append(
            {
                "steps": m,
                "setting": setting,
                "ratios": ratios,
                "judged": {
                    judge: _quality_contrast(judgments, pair) for judge, judgments in judged.items()
                },
                "paper": printed_row or None,
            }
        )
    return rows


def _quality_contrast(judgments: Judgments, pair: Sequence[CellKey]) -> dict[str, Any]:
    """GEQ of the first minus that of the second."""
    row = contrast(judgments, str(pair[1]), str(pair[0]))
    return {
        "geq": [row["geq_sharpened"], row["geq_standard"]],
        "ged": [row["ged_sharpened"], row["ged_standard"]],
        **{key: row[key] for key in ("difference", "excludes_zero")},
    }


def _cell(key: CellKey, scored: Scores, quality: Quality) -> dict[str, Any]:
    scores: dict[str, dict[str, dict[str, float]]] = {}
    for (cell, name, policy), statistics in scored.items():
        if cell == key:
            numbers = {
                aggregate: statistics[aggregate].value for aggregate in (*AGGREGATES, "kept")
            }
            scores.setdefault(name, {})[policy] = numbers
    return {
        "generator": key.generator,
        "setting": key.setting,
        "steps": key.steps,
        "scores": scores,
        "geq": {judge: geqs[str(key)] for judge, geqs in quality.items()},
    }


@dataclass(frozen=True)
class Levels:
    """The cells behind signs and correlations, and their scores."""

    keys: Sequence[CellKey]
    names: Sequence[str]
    evaluators: Sequence[str]
    scored: Scores

    def of(self, keys: Sequence[CellKey], *rule: Any) -> NDArray[np.float64]:
        """The numbers of some cells by one rule: evaluator, spans, aggregate."""
        name, policy, aggregate = rule
        return np.array([self.scored[key, name, policy][aggregate].value for key in keys])

    def agreement(self) -> list[dict[str, Any]]:
        """Rank correlation of two evaluators across cells, for every policy and aggregate."""
        from strop.groupeval.trust import spearman

        return [
            {
                "evaluators": pair,
                **dict(zip(RULE[1:], rule, strict=True)),
                "cells": len(self.keys),
                "spearman": spearman(*(self.of(self.keys, name, *rule).tolist() for name in pair)),
            }
            for pair in map(list, combinations(self.evaluators, 2))
            for rule in product(POLICIES, AGGREGATES)
        ]

    def share_read(self) -> dict[str, float | None]:
        """The share of the source bytes that each policy reads, all cells together."""
        shares: dict[str, float | None] = {}
        for policy in POLICIES:
            cells = [self.scored[p, self.evaluators[0], policy]["kept"] for p in self.keys]
            sums = zip(*(cell.columns.sum(0) for cell in cells), strict=True)
            read, source = (float(sum(column)) for column in sums)
            shares[policy] = read / source if source else None  # outputs without a single byte
        return shares

    def signs(self) -> list[dict[str, Any]]:
        """In how many comparisons each generator has the lower perplexity, rule by rule."""
        matched = sorted({(key.steps, key.setting) for key in self.keys})
        first, second = ([CellKey(*pair, name) for pair in matched] for name in self.names)
        rows = []
        for rule in product(self.evaluators, POLICIES, AGGREGATES):
            gaps = self.of(first, *rule) - self.of(second, *rule)
            lower = (int((gaps < 0).sum()), int((gaps > 0).sum()))
            row = dict(zip((*RULE, *self.names), (*rule, *lower), strict=True))
            rows.append({**row, "comparisons": len(gaps)})
        return rows

    def quality(self, quality: Quality) -> list[dict[str, Any]]:
        """Rank correlation of GEQ with log perplexity, within each generator and across both."""
        from strop.groupeval.trust import spearman

        claims = paper.table("groupeval-exact").claims["geq_log_perplexity_spearman"]
        rows = []
        for judge, name, scope in product(quality, self.evaluators, (*self.names, "both")):
            cells = [p for p in self.keys if scope in (p.generator, "both")]
            geq = [quality[judge][str(key)] for key in cells]
            logs = [math.log(value) for value in self.of(cells, name, POLICIES[0], AGGREGATES[0])]
            row = {"judge": judge, "evaluator": name, "generators": scope, "cells": len(cells)}
            claim = claims.get(scope, {}).get(name)
            rows.append({**row, "spearman": spearman(geq, logs), "paper": claim})
        return rows


# ---------------------------------------------------------------- tables and figure


def _table(facts: Mapping[str, Any], names: Sequence[str], evaluators: Sequence[str]) -> Table:
    columns = [Column("steps", "M"), Column("setting")]
    columns += [Column(f"ratio {evaluator}", evaluator, digits=3) for evaluator in evaluators]
    for judge in facts["judges"]:
        columns.append(Column(f"GEQ difference {judge}", f"GEQ {judge}", digits=3, signed=True))
        columns += [
            Column(f"GED {i + 1} {judge}", f"GED {n}", digits=3) for i, n in enumerate(names)
        ]
    title = (
        f"{names[0]} against {names[1]}: ratio of perplexities (full stream, tokens pooled; above "
        f"1 favours {names[1]}), and GEQ {names[0]} minus {names[1]} (above 0 favours {names[0]})"
    )
    return Table(title, tuple(columns), [_line(row) for row in facts["comparisons"]])


def _line(row: Mapping[str, Any]) -> dict[str, Any]:
    line: dict[str, Any] = {"steps": row["steps"], "setting": row["setting"]}
    for name, entry in row["ratios"].items():
        line |= {f"ratio {name}": entry["ratio"], f"paper {name}": entry["paper"]}
    for judge, quality in row["judged"].items():
        line |= {f"GEQ difference {judge}": quality["difference"]}
        line |= {f"GED {i + 1} {judge}": value for i, value in enumerate(quality["ged"])}
    return line


def _more(facts: Mapping[str, Any], names: Sequence[str]) -> dict[str, Table]:
    tables = {}
    printed = [row["paper"] for row in facts["comparisons"] if row["paper"]]
    if printed:
        tables["paper"] = Table(
            "The paper's, judge GPT-OSS by the paper's rubric",
            (
                Column("steps", "M"),
                Column("sampler", "setting"),
                Column("gpt2_large_ratio", "gpt2-large", digits=3),
                Column("qwen_ratio", "Qwen3-8B-Base", digits=3),
                Column("difference", "GEQ", digits=3, signed=True),
                Column("ged_mdlm", "GED MDLM", digits=3),
                Column("ged_didi", "GED DiDi-Instruct", digits=3),
            ),
            list(map(paper.with_interval, printed)),
        )
    ranks = {(row["policy"], row["aggregate"]): row["spearman"] for row in facts["agreement"]}
    claim = facts["claims"]["evaluators_spearman"]
    shares = "; ".join(
        f"{name} reads {Column('', percent=True).text(share)} of the bytes"
        for name, share in facts["kept"].items()
    )
    tables["rules"] = Table(
        "Comparisons with the lower perplexity, by rule; budgets of at least 16; rank correlation "
        f"of the evaluators (the paper's, full stream and pooled: {claim}); {shares} (the paper's "
        f"first documents: {facts['claims']['first_document_bytes']:.2%})",
        (
            Column("evaluator"),
            Column("policy", "spans"),
            Column("aggregate"),
            *(Column(name) for name in names),
            Column("comparisons", "of"),
            Column("correlation", digits=3),
        ),
        [
            {**row, "correlation": ranks.get((row["policy"], row["aggregate"]))}
            for row in facts["signs"]
        ],
    )
    tables["quality"] = Table(
        "Rank correlation of GEQ with log perplexity (negative: they agree)",
        (
            Column("judge"),
            Column("evaluator"),
            Column("generators"),
            Column("cells"),
            Column("spearman", "correlation", digits=2),
            Column("paper", "paper's (its judge, its rubric)", digits=2),
        ),
        facts["quality"],
    )
    return tables


def _draw(result: Result) -> Figure:
    """The ratio of perplexities and the difference of judged quality, comparison by comparison."""
    from strop.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, log_ticks, panels, plain_ticks

    rows, judges = result.facts["comparisons"], result.facts["judges"]
    figure, (left, right) = panels(1, 0.9 + 0.32 * len(rows), 2, 2, sharey=True)
    lines = list(range(len(rows)))
    first, second = result.asked["names"]
    evaluators = result.asked["evaluators"]
    ratios = {name: [row["ratios"][name]["ratio"] for row in rows] for name in evaluators}
    _bars(left, ratios, (BLUE, GREEN))
    left.axvline(1, color=GREY, lw=0.8)
    left.set(xlabel=f"perplexity, {first} over {second}", xscale="log")
    plain_ticks(left.xaxis, log_ticks(*left.get_xlim()))
    left.set_yticks(lines, [f"{row['steps']:,} {row['setting']}" for row in rows])
    left.invert_yaxis()
    judged = {judge: [row["judged"][judge]["difference"] for row in rows] for judge in judges}
    _bars(right, judged, (ORANGE, PURPLE, GREY))
    right.axvline(0, color=GREY, lw=0.8)
    right.set(xlabel=f"GEQ, {first} minus {second}")
    for panel in (left, right):
        panel.legend(fontsize=6, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=1)
    return figure


def _bars(axes: Axes, groups: Mapping[str, Sequence[Interval]], colours: Sequence[str]) -> None:
    """Values with their intervals, one below the other; groups a little apart."""
    from strop.figures import errors

    for number, (name, intervals) in enumerate(groups.items()):
        shift = 0.18 * (number - (len(groups) - 1) / 2)
        look: dict[str, Any] = {"fmt": "o", "ms": 3, "capsize": 2, "lw": 1.0, "label": name}
        look["color"] = colours[number % len(colours)]
        x = [interval.value for interval in intervals]
        y = [line + shift for line in range(len(intervals))]
        axes.errorbar(x, y, xerr=errors(intervals), **look)


def _levels(name: str, pair: Mapping[str, Any]) -> dict[str, str]:
    """The levels behind a difference, MDLM's first."""
    return {name: " and ".join(f"{level:.2f}" for level in pair[name])}


def _beside(result: Result, *_: Any) -> Table:
    """Ratios beside the paper's; judged quality in rows of its own, the paper's judge apart."""
    rows = []
    for row in result.facts["comparisons"]:
        values: list[tuple[str, Any, Any, dict[str, str]]] = [
            (name, entry["paper"], entry["ratio"], {}) for name, entry in row["ratios"].items()
        ]
        if printed := row["paper"]:
            pair = {n: (printed[f"{n}_mdlm"], printed[f"{n}_didi"]) for n in ("geq", "ged")}
            gap = paper.with_interval(printed)["difference"]
            values.append(("GEQ GPT-OSS (paper)", gap, None, _levels("geq", pair)))
            values.append(
                ("GED GPT-OSS (paper)", printed["ged_difference"], None, _levels("ged", pair))
            )
        for judge, quality in row["judged"].items():
            gap = quality["ged"][0] - quality["ged"][1]
            difference = quality["difference"]
            values.append((f"GEQ {judge} (here)", None, difference, _levels("geq", quality)))
            values.append((f"GED {judge} (here)", None, gap, _levels("ged", quality)))
        for by, published, measured, levels in values:
            numbers = {"by": by, "paper": published, "measured": measured, **levels}
            rows.append({"steps": row["steps"], "setting": row["setting"], **numbers})
    unit = "perplexity, MDLM over DiDi-Instruct; GEQ and GED, MDLM minus DiDi-Instruct"
    keys = (Column("steps", "M"), Column("setting"), Column("by"))
    outputs = paper.table("groupeval-exact").settings["outputs_per_cell"]
    return paper.beside(unit, keys, rows, outputs=outputs, log=True)


STUDY = Study(
    name=NAME,
    title="Likelihood and judged quality on the same outputs",
    about="Score the same outputs by two evaluators and a judge, under two span policies.",
    sources=Sources(
        ("MODEL...",), "Two, as NAME=SOURCE; by default MDLM-Small and DiDi-Instruct.", smoke=()
    ),
    parameters=(
        Parameter.file("pools", "A directory of `strop study cross-model`: its outputs."),
        parameters.steps(4, 16, 64, 256, 1024, smoke=(4, 16)),
        parameters.outputs(40, smoke=16, words="Outputs per cell, where drawn; a multiple of 8."),
        Parameter(
            "evaluator",
            "Who scores; repeat for a second.",
            EVALUATORS,
            "many",
            smoke=("embedded:tales-ar", "smollm2-135m"),
        ),
        parameters.PARTITION,
        parameters.SEED,
        parameters.DEVICE,
        parameters.FORCE,
        parameters.DRY_RUN,
        *parameters.ENGINE,
    ),
    run=_run,
    check=_check,
    draw=_draw,
    runs=(CHECKPOINTS, JUDGED, *map(run_folder, MODELS)),
    next=points.judge_command,
    examples=("strop study exact-output --smoke -o runs/exact",),
    items=(paper.item(NAME, _beside, sources={name: MODELS[name].source for name in NAMES}),),
)
