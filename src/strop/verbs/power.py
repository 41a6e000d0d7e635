"""How many outputs, calls and minutes a question needs, from a pilot or from a run that is there.

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
        found = needed(self.power, self.error, self.freedom)
        many = None if found.outputs is None else SIDES * found.outputs
        return {
            "question": self.name,
            "size": self.size,
            "outputs": found.outputs,
            "calls": None if many is None or calls is None else many * calls,
            "minutes": None if many is None or seconds is None else many * seconds / 60,
            "pilots": f"{found.low:.0%} to {found.high:.0%}" if found.outputs else "",
            "low": found.low,
            "high": found.high,
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
    found = []
    for name, (one, freedom) in zip(("one setting", "equal entropy"), levels, strict=False):
        error = math.sqrt(SIDES) * one
        for gap in ask["gap"]:
            power = apart(math.log1p(gap), 1 - level.different)
            found.append(Question(f"perplexity gap at {name}", gap, power, error, freedom))
        sure = level.same if name == "one setting" else level.everywhere
        same = alike(math.log1p(ask["margin"]), 1 - sure)
        words = f"the same perplexity at {name}"
        found.append(Question(words, ask["margin"], same, error, freedom))
    if judged is not None:
        error, freedom = judged
        power = apart(ask["geq"], ALPHA)
        found.append(Question("GEQ difference", ask["geq"], power, error, freedom))
    share, answers = _share(ask, rows)
    if share is not None:
        size = ask["accuracy_gap"]
        other = share + size if share < 0.5 else share - size
        error = math.sqrt(share * (1 - share) + max(0.0, other * (1 - other)))
        found.append(Question("accuracy difference", size, apart(size, ALPHA), error, answers - 1))
    return found


def spreads(pilots: Sequence[dict[str, Any]]) -> list[tuple[float, float]]:
    """Of log-perplexity at one setting, and at equal entropy where settings differ in it.

    At equal entropy an output counts by its nats less what its entropy is worth: the slope of
    log-perplexity over the entropies of the settings.
    """
    freedom = float(sum(len(one["nll"]) - 1 for one in pilots))
    alone = [level_errors(one["nll"], one["tokens"]) for one in pilots]
    found = [(_pooled(alone), freedom)]
    level = np.array([one["nll"].sum() / one["tokens"].sum() for one in pilots])
    entropy = np.array([one["entropy"].mean() for one in pilots])
    if np.ptp(entropy) > 0:
        slope = float(np.polyfit(entropy, level, 1)[0])
        left = [
            one - slope * (pilot["entropy"] - pilot["entropy"].mean())
            for one, pilot in zip(alone, pilots, strict=True)
        ]
        found.append((_pooled(left), freedom))
    return found


def _pooled(values: Sequence[Any]) -> float:
    """The spread of single outputs over several pools."""
    free = sum(len(one) - 1 for one in values)
    return math.sqrt(sum((len(one) - 1) * spread(one) ** 2 for one in values) / free)


def _judged(name: str) -> tuple[float, float]:
    """From judgments: the error of a difference in GEQ for one output a side, and its freedom."""
    from strop.groupeval.bootstrap import geq_of
    from strop.groupeval.judgments import load_judgments

    found = [geq_of(cell) for cell in load_judgments(name).cells.values()]
    known = [(one.variance * one.n, one.freedom) for one in found if one.variance]
    if not known:
        raise UserError(
            "The judgments do not tell how far GEQ varies.",
            where=name,
            expected="a cell with at least two groups in a partition, not all alike",
        )
    each = sum(variance for variance, _ in known) / len(known)
    return math.sqrt(SIDES * each), sum(freedom for _, freedom in known)


def _share(ask: Ask, rows: Sequence[Measured]) -> tuple[float | None, int]:
    """The accuracy of the pilot, given or graded, and the answers behind it."""
    if ask["accuracy"] is not None:
        return ask["accuracy"], ask["n"]
    graded = next((one for row in rows if (one := row.of("task")) is not None), None)
    found = None if graded is None else graded.interval("accuracy")
    return (None, 0) if found is None else (found.value, max(2, found.n or 2))


# ---------------------------------------------------------------- running it


def _check(ask: Ask) -> None:
    ask.engine.refuse_shard("A pilot")
    for name in ("margin", "geq", "accuracy_gap", "accuracy", "gap"):
        given = ask[name] if name == "gap" else (ask[name],)
        most = {"geq": 10, "gap": math.inf}.get(name, 1)
        if any(one is not None and not 0 < one < most for one in given):
            raise UserError(
                f"`{name}` is no difference that could be found.",
                where=f"`{name}`",
                got=", ".join(map(str, given)),
                expected="a number above 0" + ("" if name == "gap" else f" and below {most}"),
            )
    for tau in ask["temperature"]:
        SamplerSpec(temperature=float(tau))


def _run(ask: Ask) -> Result:
    from strop.measure.cells import measure

    # Who scores, and what was judged, is looked at before the pilot is drawn.
    who, judged = scorers(ask), None if ask["judged"] is None else _judged(ask["judged"])
    cells = _stored(ask.sources[0]) or _pilot(ask)
    rows = measure(cells, ["perplexity", "entropy", "calls", "seconds"], who)
    graded = [row for cell in cells if (row := _graded(cell)) is not None]
    pilots = [scored_columns(row) for row in rows]
    found = questions(ask, spreads(pilots), graded, judged)
    outputs = sum(len(one["nll"]) for one in pilots)
    costs = [_mean([getattr(row, name) for row in rows]) for name in ("calls", "seconds")]
    title = f"{ask.sources[0]}: from {outputs} outputs, at look {ask['look']}"
    table = Table(title, COLUMNS, [one.row(*costs) for one in found])
    points = [
        {"question": one.name, "size": one.size, "outputs": n, "power": p, "low": low, "high": high}
        for one in found
        for n, (p, low, high) in zip(
            CURVE, curve(one.power, one.error, one.freedom, CURVE).tolist(), strict=True
        )
    ]
    lines = (Column("question"), Column("size", digits=3), Column("outputs", "outputs a side"))
    lines += (Column("power", percent=True, digits=3),)
    more = {"curve": Table("How often it is decided", lines, points, shown=False)}
    facts = {"goal": GOAL, "look": ask["look"], "pilot": outputs, "calls": costs[0]}
    facts["seconds"] = costs[1]
    return Result(ask.said(), table, more, facts, _notes(found, rows))


def _pilot(ask: Ask) -> list[Cell]:
    """The checkpoint's own sampler at every temperature, drawn into the directory."""
    model = load(ask, ask.sources[0])
    settings = {str(tau): {"temperature": tau} for tau in ask["temperature"]}
    named, _ = named_points(model.spec.family, ask["sampler"], settings)
    [steps] = budgets(model, (ask["steps"],))
    return draw(ask, model, [(steps, point) for point in named.values()], ask.out / RUN)


def _stored(source: str) -> list[Cell] | None:
    """The cells of RUN, or the one of RUN@CELL; None for a checkpoint."""
    from strop.store import Run, read_mark

    place, mark, cell = source.rpartition("@")
    for where in (source, place):
        known = read_mark(Path(where)) if where else None
        if known is not None and known.holds_cells:
            run = Run.open(where)
            cells = [run.cell(cell)] if mark and where == place else run.cells()
            if any(len(one.indices()) < 2 for one in cells) or not cells:
                raise UserError(
                    "The run has too few outputs for a pilot.", where=source, expected="at least 2"
                )
            return cells
    return None


def _graded(cell: Cell) -> Measured | None:
    """A cell with a task's verdicts, if it has some."""
    from strop.measure.frame import read_cell
    from strop.measure.metric import TASK

    if not any(one.metric.name == TASK.name for one in cell.scores().values()):
        return None
    return read_cell(cell, wanted={TASK.name: ()})


def _mean(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return sum(known) / len(known) if known else None


def _notes(found: Sequence[Question], rows: Sequence[Measured]) -> tuple[str, ...]:
    told = [
        f"outputs a side: at which {GOAL:.0%} of such comparisons are decided, on average over "
        "pilots of this size; a single pilot may be off: the last column is what nine of ten "
        "lead to",
        "calls and minutes: both sides at one setting each; `strop compare` draws as many outputs "
        "at every temperature",
    ]
    if len(rows) == 1:
        told.append("one setting says nothing of equal entropy: pilot at two temperatures")
    if any(one.name.startswith("accuracy") for one in found):
        told.append("accuracy: sides that answer the same problems need fewer, never more")
    if any(row.by_prompt for row in rows):
        told.append("the outputs answer prompts: the numbers hold for these prompts alone")
    return tuple(told)


def _draw(result: Result) -> Figure:
    """A line per question, with what the pilot leaves open."""
    from strop.figures import GREY, PALETTE, grouped, legend_below, panels

    lines = grouped(result.more["curve"].rows, "question", "size")
    figure, [axes] = panels(1, 2.0 + 0.16 * len(lines))
    for place, ((question, size), mine) in enumerate(lines.items()):
        again, shade = divmod(place, len(PALETTE))
        colour, dashes = PALETTE[shade], ("-", "--", ":")[again % 3]
        names = ("outputs", "power", "low", "high")
        n, power, low, high = ([row[name] for row in mine] for name in names)
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
