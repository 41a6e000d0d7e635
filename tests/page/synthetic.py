"""Reports made of invented numbers: the page only shows, so any numbers will do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from strop.measure.frame import Measured, PartialScore, Score
from strop.measure.guard import MARKS, Guard
from strop.measure.metric import CALLS, ENTROPY, PERPLEXITY, REPETITION, PoolRows
from strop.page.data import AuditPart, CellGroup, JudgedSeries, Provenance, Report, Shown, StudyPart
from strop.page.tables import COLUMNS
from strop.spec import (
    CellSpec,
    CheckpointSpec,
    EvaluatorSpec,
    GeneratorSpec,
    MetricSpec,
    OperatingPoint,
    SamplerSpec,
)
from strop.stats.interval import Interval
from strop.table import Column, Pivot, Table
from strop.verbs.audit import GAIN_COLUMNS
from strop.verbs.study import Result, Sources, Study

CORNERS = tuple(
    OperatingPoint.of(SamplerSpec(steps=1, temperature=tau, precision=precision))
    for tau, precision in (
        (1.0, "float64"),
        (1.0, "float32"),
        (0.9, "float64"),
        (0.9, "float32"),
        (0.85, "float32"),
    )
)
METRIC = MetricSpec(
    name="perplexity",
    evaluator=EvaluatorSpec(name="gpt2", sha256="a" * 64, tokenizer="b" * 64, context=1024),
    span="first-document",
)
GUARD = Guard(120, 5.3, "tenth percentile of held-out texts")


def interval(value: float, spread: float) -> Interval:
    return Interval(value, value - spread, value + spread, 0.95, 10_000)


@cache
def vocabulary() -> list[str]:
    """GPT-2's tokens as text, the frequent ones first."""
    ids = json.loads((files("strop") / "assets" / "gpt2" / "vocab.json").read_text("utf-8"))
    words = [word for word, _ in sorted(ids.items(), key=lambda entry: entry[1])]
    plain = [word.replace("Ġ", " ").replace("Ċ", "\n") for word in words]
    return [word for word in plain if word.isascii()][100:]


def texts(rng: np.random.Generator, n: int, tokens: int) -> list[str]:
    """Words drawn one by one by Zipf's law: no longer pattern for the compressor to find."""
    words = vocabulary()
    weights = 1 / np.arange(10, 10 + len(words))
    drawn = rng.choice(len(words), size=(n, tokens), p=weights / weights.sum())
    return ["".join(row) for row in np.array(words, object)[drawn].tolist()]


def score(record: Any, metric: MetricSpec, columns: dict[str, Any], values: Any) -> Score:
    n = len(next(iter(columns.values())))
    columns = {name: np.asarray(column) for name, column in columns.items()}
    return Score(metric, record, np.arange(n), columns, values)


def measured(
    steps: int,
    point: OperatingPoint,
    n: int,
    *,
    perplexity: float | None = None,
    entropy: Interval | None = None,
    guard: Guard = GUARD,
    seed: int = 0,
) -> Measured:
    """A cell with these numbers and no file behind it."""
    checkpoint = CheckpointSpec(family="mdlm", sha256="c" * 64, shape={"vocab_size": 50258})
    generator = GeneratorSpec(checkpoint=checkpoint, sampler=point.at(steps), length=guard.length)
    spec = CellSpec(generator=generator, seed=seed)
    rng, scores = np.random.default_rng(steps), []
    if perplexity is not None:
        tokens = np.full(n, 100)
        nll = tokens * np.log(perplexity * rng.normal(1, 0.1, n).clip(0.5))
        values = dict.fromkeys(("macro", "bits_per_byte", "kept"))
        values["pooled"] = interval(perplexity, 0.08 * perplexity)
        scores.append(score(PERPLEXITY, METRIC, {"nll": nll, "tokens": tokens}, values))
    if entropy is not None:
        column = {"entropy": entropy.value * rng.normal(1, 0.05, n)}
        scores.append(score(ENTROPY, ENTROPY.spec, column, {"entropy": entropy}))
    repeated = interval(0.1, 0.02)
    scores.append(
        score(
            REPETITION, REPETITION.spec, {"repetition": np.full(n, 0.1)}, {"repetition": repeated}
        )
    )
    path = Path("runs/synthetic/cells") / spec.id
    calls = float(min(steps, guard.length))
    rows = PoolRows.of(np.zeros((n, 0)), beside={"nfe": np.full(n, calls)})
    part = PartialScore.of(CALLS, CALLS.spec, *_calls(n, calls), rows)
    return with_scores(Measured(spec, path, n, guard, (part,)), scores)


def with_scores(cell: Measured, scores: Sequence[Score]) -> Measured:
    """A copy with these numbers, whatever resampling would say."""
    found = replace(cell)
    found.__dict__["scores"] = tuple(scores)
    return found


def _calls(n: int, calls: float) -> tuple[Any, dict[str, Any]]:
    return np.arange(n), {"calls": np.full(n, calls)}


def shown(cell: Measured, drawn: Sequence[str], label: str | None = None) -> Shown:
    calls = dict.fromkeys(range(len(drawn)), int(cell.calls or 0))
    return Shown(cell, label or str(cell.point), dict(enumerate(drawn)), calls)


def cell(rng: np.random.Generator, steps: int, point: OperatingPoint, n: int, tokens: int) -> Shown:
    """A generator whose numbers move as the paper's do."""
    sampler = point.sampler
    sharp = (1 - sampler.temperature) * 10
    rounded = np.log2(steps) / 40 if sampler.precision == "float32" else 0.0
    perplexity = float((60 + 4000 / steps) * 0.45**sharp * (1 - 3 * rounded))
    entropy = interval(float(5.95 - 0.35 * sharp - rounded - 0.03 * np.log2(steps)), 0.05)
    drawn = texts(rng, n, tokens)
    drawn[-1] = (drawn[-1][:60] + " and so on and so on. ") * 4
    return shown(measured(steps, point, n, perplexity=perplexity, entropy=entropy), drawn)


def gain(rule: str, steps: int, value: float, entropy: float, verdict: str) -> dict[str, Any]:
    doubt = "" if verdict == "above" else "fresh outputs break entropy>=5.3: no recommendation"
    return {
        "rule": rule,
        "steps": steps,
        "point": "(0.9, float32)",
        "evaluator": "gpt2",
        "gain": Interval(value, value - 0.3, value + 0.4),
        "shown": True,
        "entropy": Interval(entropy, entropy - 0.05, entropy + 0.05),
        "verdict": verdict,
        "mark": MARKS.get(verdict, ""),
        "recommended": verdict == "above",
        "mind": doubt,
    }


def audit_result() -> Result:
    """As `strop audit` leaves it in result.json."""
    picks = [
        {"steps": m, "point": "(0.9, float32)", "passes": True, "at_edge": []} for m in (4, 16)
    ]
    chosen = {"sha256": "d" * 64, "picks": picks, "candidates": 5, "cells": 20}
    gains = [
        gain("frozen", 4, 2.62, 5.5, "above"),
        gain("frozen", 16, 2.9, 5.2, "below"),
        gain("per-budget", 4, 2.62, 5.5, "above"),
        gain("per-budget", 16, 3.1, 5.31, "undecided"),
    ]
    return Result(
        asked={"checkpoints": ["embedded:tales"]},
        table=Table("Cells", (Column("steps"),), [{"steps": 4}]),
        more={
            "gains": Table("Gain over (1, float64)", GAIN_COLUMNS, gains),
        },
        facts={
            "answer": [
                "Use (0.9, float32) at M = 4: perplexity is 2.62 times lower [2.32, 3.02] on fresh "
                "outputs than with (1, float64).",
                "At M = 16 nothing is recommended: the fresh outputs do not stay above the guard.",
            ],
            "family": "mdlm",
            "checkpoint": "embedded:tales",
            "decision": {
                "goal": "best",
                "recommended": True,
                "sampler": CORNERS[3].at(4).model_dump(mode="json"),
            },
            "selections": {"frozen": chosen, "per-budget": chosen},
            "refusals": {
                "sharpest": "no setting passes the guard at more than half of the budgets"
            },
        },
    )


YAML = "samplers:\n- steps: 4\n  temperature: 0.9\n  precision: float32\n"


def study_result(steps: Sequence[int] = (4, 16)) -> Result:
    """A study's, with a table that spreads over samplers."""
    rows = [
        {"steps": m, "point": point, "seconds": Interval(m * f, m * f * 0.9, m * f * 1.1)}
        for m in steps
        for point, f in (("dense", 0.9), ("fast", 0.3))
    ]
    columns = (
        Column("steps", "M"),
        Column("point"),
        Column("seconds", unit="s", digits=3),
    )
    table = Table("Seconds per sequence", columns, rows, Pivot(("steps",), ("point",), "seconds"))
    return Result(
        asked={"checkpoints": ["embedded:tales"]},
        table=table,
        more={
            "calls": Table(
                "Calls", (Column("steps", "M"), Column("calls")), [{"steps": 4, "calls": 3.5}]
            )
        },
        notes=("Measured in batches of eight.",),
    )


def draw(result: Result) -> Figure:
    figure = Figure(figsize=(3.3, 2.4), layout="constrained")
    axes = figure.subplots()
    axes.plot(
        [r["steps"] for r in result.table.rows],
        [r["seconds"].value for r in result.table.rows],
        "o",
    )
    axes.set(xlabel="$M$", ylabel="seconds")
    return figure


def beside(result: Result, cells: Sequence[Measured]) -> tuple[Table, Figure | None]:
    rows = [{"steps": one.steps, "point": str(one.point)} for one in cells]
    return Table("Beside the cells", (Column("steps", "M"), Column("point")), rows), draw(result)


STUDY = Study(
    name="stopwatch",
    title="How long does it take?",
    about="",
    sources=Sources(("CHECKPOINT",), ""),
    parameters=(),
    run=lambda _: study_result(),
    draw=draw,
    beside_cells=beside,
    version="1",
)


def report(
    steps: tuple[int, ...] = (4, 16, 64, 1024),
    points: tuple[OperatingPoint, ...] = CORNERS,
    n: int = 12,
    tokens: int = 120,
) -> Report:
    """A report with every part."""
    rng = np.random.default_rng(5)
    cells = tuple(cell(rng, m, point, n, tokens) for m in steps for point in points)
    judged = [
        {"name": "M 4 · (1, float64)", "mark": "", "geq": Interval(3.1, 2.8, 3.4), "ged": 4.1}
        | {"invalid": 0.133, "modes": 4.73, "judged": "4 of 4"},
        {
            "name": "M 16 · (0.9, float32)",
            "mark": "†",
            "geq": Interval(5.6, 5.2, 6),
            "ged": 6.6,
        }
        | {"invalid": 0.066, "modes": 5.74, "judged": "3 of 4"},
    ]
    judges = ("offline-v1/ngrams, profile 12345678", "a-model, profile 12345678")
    facts = (("checkpoint", "embedded:tales"), ("weights sha256", "ab" * 32), ("torch", "2.13"))
    return Report(
        title="Audit of embedded:tales",
        groups=(CellGroup("embedded:tales", GUARD.length, 0, cells),),
        audits=(AuditPart(audit_result(), {"frozen": YAML, "per-budget": YAML}),),
        studies=(StudyPart("stopwatch", Path("runs/stopwatch"), study_result(), STUDY),),
        series=tuple(
            JudgedSeries(judge, "offline" in judge, Table(f"Judged by {judge}", COLUMNS, judged))
            for judge in judges
        ),
        provenance=(Provenance("runs/synthetic", facts),),
        commands={"score": "strop score runs/synthetic"},
    )
