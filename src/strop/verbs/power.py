"""How many outputs, calls and minutes a question needs, from a pilot or from an existing run.

A pilot of 32 outputs at two temperatures says how much single outputs vary, and what they cost.
From it follow the outputs of each side at which a rule of `strop compare`, or of a judge or a task,
decides four times out of five (`strop.stats.published`), at the look at which it will be taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strop.assets import CHECKPOINT
from strop.comparing.compare import MARGIN
from strop.comparing.frontier import Level
from strop.errors import UserError
from strop.spec.generator import SamplerSpec
from strop.stats.published import GOAL, Power, alike, apart, curve, level_errors, needed, spread
from strop.table import Column, Table
from strop.verbs import parameters
from strop.verbs.points import budgets, draw, load, named_points, scored_columns, scorers
from strop.verbs.study import Sources, Study
from strop.verbs.verb import Ask, Parameter, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from strop.measure.frame import Measured
    from strop.store import Cell

RUN = "run"
SIDES = 2
ALPHA = 0.05
"""Of questions that are asked once: GEQ and accuracy."""
CURVE = tuple(round(32 * 2 ** (k / 2)) for k in range(19))
"""Outputs a side for the curve, 32 to 16,384."""


@dataclass(frozen=True)
class Question:
    """One thing that may be asked of two generators."""

    name: str
    size: float
    power: Power
    error: float
    """Standard error of the difference of two sides, times the root of the outputs a side."""
    freedom: float

    def row(self, calls: float | None, seconds: float | None) -> dict[str, Any]:
        """What it needs; both sides together for calls and minutes."""
        need = needed(self.power, self.error, self.freedom)
        many = None if need.outputs is None else SIDES * need.outputs
        return {
            "question": self.name,
            "size": self.size,
            "outputs": need.outputs,
            "calls": None if many is None or calls is None else many * calls,
            "minutes": None if many is None or seconds is None else many * seconds / 60,
            "pilots": f"{need.low:.0%} to {need.high:.0%}" if need.outputs else "",
            "low": need.low,
            "high": need.high,
        }


COLUMNS = (
    Column("question"),
    Column("size", digits=2, help="The difference that is to be found, or the margin."),
    Column("outputs", "outputs a side", help="At which it is decided in 80%, on average."),
    Column("calls", "network calls", digits=3, help="Of both sides, at one setting each."),
    Column("minutes", digits=3, help="Likewise, as fast as the pilot was."),
    Column("pilots", "nine of ten pilots", help="How often the number decides, by pilot."),
)


def questions(
    ask: Ask,
    levels: Sequence[tuple[float, float]],
    rows: Sequence[Measured],
    judged: tuple[float, float] | None,
) -> list[Question]:
    """Of perplexity, and of whatever else was asked for.

    `levels` are the spread of log-perplexity at one setting and at equal entropy, each with its
    degrees of freedom; `judged` is the error of GEQ with its own.
    """
    level = Level(ask["look"])
    listed = []
    for name, (deviation, freedom) in zip(("one setting", "equal entropy"), levels, strict=False):
        error = math.sqrt(SIDES) * deviation
        for gap in ask["gap"]:
            power = apart(math.log1p(gap), 1 - level.different)
            listed.append(Question(f"perplexity gap at {name}", gap, power, error, freedom))
        sure = level.same if name == "one setting" else level.everywhere
        same = alike(math.log1p(ask["margin"]), 1 - sure)
        words = f"the same perplexity at {name}"
        listed.append(Question(words, ask["margin"], same, error, freedom))
    if judged is not None:
        error, freedom = judged
        power = apart(ask["geq"], ALPHA)
        listed.append(Question("GEQ difference", ask["geq"], power, error, freedom))
    share, answers = _accuracy(ask, rows)
    if share is not None:
        size = ask["accuracy_gap"]
        other = share + size if share < 0.5 else share - size
        error = math.sqrt(share * (1 - share) + max(0.0, other * (1 - other)))
        listed.append(Question("accuracy difference", size, apart(size, ALPHA), error, answers - 1))
    return listed


def spreads(pilots: Sequence[dict[str, Any]]) -> list[tuple[float, float]]:
    """Of log-perplexity at one setting, and at equal entropy where settings differ in it.

    At equal entropy an output counts by its nats less what its entropy is worth: the slope of
    log-perplexity over the entropies of the settings.
    """
    freedom = float(sum(len(pilot["nll"]) - 1 for pilot in pilots))
    alone = [level_errors(pilot["nll"], pilot["tokens"]) for pilot in pilots]
    pairs = [(_pooled(alone), freedom)]
    level = np.array([pilot["nll"].sum() / pilot["tokens"].sum() for pilot in pilots])
    entropy = np.array([pilot["entropy"].mean() for pilot in pilots])
    if np.ptp(entropy) > 0:
        slope = float(np.polyfit(entropy, level, 1)[0])
        left = [
            errors - slope * (pilot["entropy"] - pilot["entropy"].mean())
            for errors, pilot in zip(alone, pilots, strict=True)
        ]
        pairs.append((_pooled(left), freedom))
    return pairs


def _pooled(values: Sequence[Any]) -> float:
    """The spread of single outputs over several pools."""
    free = sum(len(errors) - 1 for errors in values)
    return math.sqrt(sum((len(errors) - 1) * spread(errors) ** 2 for errors in values) / free)


def _geq_error(name: str) -> tuple[float, float]:
    """From judgments: the error of a difference in GEQ for one output a side, and its freedom."""
    from strop.groupeval.bootstrap import geq_of
    from strop.groupeval.judgments import load_judgments

    estimates = [geq_of(cell) for cell in load_judgments(name).cells.values()]
    usable = [
        (estimate.variance * estimate.n, estimate.freedom)
        for estimate in estimates
        if estimate.variance
    ]
    if not usable:
        raise UserError(
            "The judgments do not show how much GEQ varies.",
            where=name,
            expected="a cell with at least two groups in a partition, not all alike",
        )
    each = sum(variance for variance, _ in usable) / len(usable)
    return math.sqrt(SIDES * each), sum(freedom for _, freedom in usable)


def _accuracy(ask: Ask, rows: Sequence[Measured]) -> tuple[float | None, int]:
    """The accuracy of the pilot, given or graded, and the answers behind it."""
    if ask["accuracy"] is not None:
        return ask["accuracy"], ask["n"]
    graded = next((task for row in rows if (task := row.of("task")) is not None), None)
    accuracy = None if graded is None else graded.interval("accuracy")
    return (None, 0) if accuracy is None else (accuracy.value, max(2, accuracy.n or 2))


# ---------------------------------------------------------------- running it


def _check(ask: Ask) -> None:
    ask.engine.refuse_shard("A pilot")
    for name in ("margin", "geq", "accuracy_gap", "accuracy", "gap"):
        values = ask[name] if name == "gap" else (ask[name],)
        most = {"geq": 10, "gap": math.inf}.get(name, 1)
        if any(value is not None and not 0 < value < most for value in values):
            raise UserError(
                f"`{name}` is not a difference that could be found.",
                where=f"`{name}`",
                got=", ".join(map(str, values)),
                expected="a number above 0" + ("" if name == "gap" else f" and below {most}"),
            )
    for tau in ask["temperature"]:
        SamplerSpec(temperature=float(tau))


def _run(ask: Ask) -> Result:
    from strop.measure.cells import measure

    # Evaluator and judgments are checked before the pilot is drawn.
    who, judged = scorers(ask), None if ask["judged"] is None else _geq_error(ask["judged"])
    cells = _stored_cells(ask.sources[0]) or _pilot(ask)
    rows = measure(cells, ["perplexity", "entropy", "calls", "seconds"], who)
    graded = [row for cell in cells if (row := _with_task(cell)) is not None]
    pilots = [scored_columns(row) for row in rows]
    listed = questions(ask, spreads(pilots), graded, judged)
    outputs = sum(len(pilot["nll"]) for pilot in pilots)
    costs = [_mean([getattr(row, name) for row in rows]) for name in ("calls", "seconds")]
    title = f"{ask.sources[0]}: from {outputs} outputs, at look {ask['look']}"
    table = Table(title, COLUMNS, [question.row(*costs) for question in listed])
    points = [
        {
            "question": question.name,
            "size": question.size,
            "outputs": n,
            "power": p,
            "low": low,
            "high": high,
        }
        for question in listed
        for n, (p, low, high) in zip(
            CURVE,
            curve(question.power, question.error, question.freedom, CURVE).tolist(),
            strict=True,
        )
    ]
    lines = (Column("question"), Column("size", digits=3), Column("outputs", "outputs a side"))
    lines += (Column("power", percent=True, digits=3),)
    more = {"curve": Table("How often it is decided", lines, points, shown=False)}
    facts = {"goal": GOAL, "look": ask["look"], "pilot": outputs, "calls": costs[0]}
    facts["seconds"] = costs[1]
    return Result(ask.said(), table, more, facts, _notes(listed, rows))


def _pilot(ask: Ask) -> list[Cell]:
    """The checkpoint's own sampler at every temperature, drawn into the directory."""
    model = load(ask, ask.sources[0])
    settings = {str(tau): {"temperature": tau} for tau in ask["temperature"]}
    named, _ = named_points(model.spec.family, ask["sampler"], settings)
    [steps] = budgets(model, (ask["steps"],))
    return draw(ask, model, [(steps, point) for point in named.values()], ask.out / RUN)


def _stored_cells(source: str) -> list[Cell] | None:
    """The cells of RUN, or the one of RUN@CELL; None for a checkpoint."""
    from strop.store import Run, read_mark

    directory, mark, cell = source.rpartition("@")
    for where in (source, directory):
        store_mark = read_mark(Path(where)) if where else None
        if store_mark is not None and store_mark.holds_cells:
            run = Run.open(where)
            cells = [run.cell(cell)] if mark and where == directory else run.cells()
            if any(len(pool.indices()) < 2 for pool in cells) or not cells:
                raise UserError(
                    "The run has too few outputs for a pilot.", where=source, expected="at least 2"
                )
            return cells
    return None


def _with_task(cell: Cell) -> Measured | None:
    """A cell with a task's verdicts, if it has some."""
    from strop.measure.frame import read_cell
    from strop.measure.metric import TASK

    if not any(score.metric.name == TASK.name for score in cell.scores().values()):
        return None
    return read_cell(cell, wanted={TASK.name: ()})


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [number for number in values if number is not None]
    return sum(numbers) / len(numbers) if numbers else None


def _notes(listed: Sequence[Question], rows: Sequence[Measured]) -> tuple[str, ...]:
    notes = [
        f"outputs a side: at which {GOAL:.0%} of such comparisons are decided, on average over "
        "pilots of this size; a single pilot may be off: the last column is what nine of ten "
        "lead to",
        "calls and minutes: both sides at one setting each; `strop compare` draws as many outputs "
        "at every temperature",
    ]
    if len(rows) == 1:
        notes.append("one setting says nothing about equal entropy: pilot at two temperatures")
    if any(question.name.startswith("accuracy") for question in listed):
        notes.append("accuracy: sides that answer the same problems need fewer, never more")
    if any(row.by_prompt for row in rows):
        notes.append("the outputs answer prompts: the numbers hold for these prompts alone")
    return tuple(notes)


def _draw(result: Result) -> Figure:
    """A line per question, with what the pilot leaves open."""
    from strop.figures import GREY, PALETTE, grouped, legend_below, panels

    lines = grouped(result.more["curve"].rows, "question", "size")
    figure, [axes] = panels(1, 2.0 + 0.16 * len(lines))
    for position, ((question, size), own_rows) in enumerate(lines.items()):
        again, shade = divmod(position, len(PALETTE))
        colour, dashes = PALETTE[shade], ("-", "--", ":")[again % 3]
        names = ("outputs", "power", "low", "high")
        n, power, low, high = ([row[name] for row in own_rows] for name in names)
        axes.plot(n, power, color=colour, ls=dashes, label=f"{question}, {size:g}")
        axes.fill_between(n, low, high, color=colour, alpha=0.08, lw=0)
    axes.axhline(result.facts["goal"], color=GREY, lw=0.6)
    axes.set(xscale="log", xlabel="outputs a side", ylabel="decided", ylim=(0, 1.02))
    legend_below(figure, axes, 1)
    return figure


STUDY = Study(
    name="power",
    title="How many outputs does a question need?",
    about="Draw a pilot of SOURCE, or read a run, and say how many outputs, calls and minutes tell "
    "a gap, show that two are the same, or find a difference in GEQ or accuracy.",
    sources=Sources(
        ("SOURCE",), "A checkpoint as for `strop sample`; RUN, RUN@CELL.", (CHECKPOINT,)
    ),
    parameters=(
        Parameter("gap", "Perplexity gaps to find, as shares.", (0.02, 0.05, 0.1), "floats"),
        Parameter("margin", "The margin of `the same`.", MARGIN, "share"),
        Parameter.count("look", "At which look of `strop compare` it will be.", 1),
        Parameter("judged", "Judged texts (RUN, RUN@SERIES, .jsonl) for a difference in GEQ."),
        Parameter.real("geq", "The difference in GEQ to find, in points.", 0.5),
        Parameter.real("accuracy", "The pilot's accuracy, where no task was graded."),
        Parameter.real("accuracy_gap", "The difference in accuracy to find.", 0.05),
        Parameter.count("steps", "Updates M of the pilot.", 64, smoke=4),
        parameters.outputs(32, smoke=8, words="Outputs of the pilot per temperature.", least=2),
        Parameter("temperature", "Of the pilot.", (0.9, 1.0), "floats"),
        parameters.evaluator(),
        parameters.SAMPLER,
        parameters.LENGTH,
        *parameters.SCORED,
    ),
    run=_run,
    draw=_draw,
    check=_check,
    kind="power",
    runs=(RUN,),
    examples=(
        "strop power --smoke -o runs/power",
        "strop power runs/first --gap 0.05 --look 2 -o runs/first-power",
        "strop power --judged runs/ge --geq 0.3 -o runs/geq-power",
    ),
)
