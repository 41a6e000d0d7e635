"""MDLM among its successors, and the paper's first figure.

`cross-model` samples every family by its own sampler under one protocol: seven rows by the number
of updates, and a causal model as the reference without such a number. Updates are not network
calls, so rows are not matched in compute. Each family ends by its own convention, which the result
names.

`overview` draws the figure's three panels, each a study in a directory inside this one's: (a) the
sharpened baseline among its successors; (b) judged quality and diversity of the same pools against
their token entropy; (c) the loss that sharpening worsens against the samples that it improves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from strop.assets import CHECKPOINT
from strop.records.record import FAMILIES, SAMPLERS
from strop.spec.generator import OperatingPoint, SamplerSpec
from strop.spec.value import MOST_STEPS
from strop.stats.interval import Interval, value_of
from strop.table import Column, Pivot, Table
from strop.verbs import families, groupeval_study, paper, parameters, posterior, study
from strop.verbs.points import guard_notes, load, measure_cells, named_points
from strop.verbs.study import SMOKE_NOTE, Sources, Study
from strop.verbs.verb import Ask, Parameter, Result, quoted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from strop.measure.frame import Measured


NAME = "cross-model"
COLUMNS = (
    Column("model"),
    Column("point", "setting"),
    Column("finish", help="What happens to the last mass."),
    Column("steps", "M"),
    Column("perplexity", mark="mark"),
    Column("entropy", digits=3),
    Column("network_calls", "calls"),
    Column("paper"),
    Column("paper_entropy", "paper's entropy", digits=3),
)
SMALL_NOTE = (
    "The families are the embedded model in their layouts; DUO was never trained for its noise, "
    "both of its rows are one checkpoint, and the discriminator has random weights."
)


def _check(ask: Ask) -> None:
    families.named_sources(ask.sources)


def _run(ask: Ask) -> Result:
    smoke = ask.smoke and not ask.sources
    sources = families.smoke_sources(ask.out) if smoke else families.named_sources(ask.sources)
    rows, measured = [], []
    for name, source in sources.items():
        model = load(ask, source)
        settings = {str(i): setting for i, setting in enumerate(families.MODELS[name].settings)}
        points, _ = named_points(model.spec.family, None, settings)
        budgets = (0,) if families.MODELS[name].reference else sorted(ask["steps"])
        cells = [(m, point) for point in points.values() for m in budgets]
        scored = measure_cells(ask, source, cells, ask.out / families.run_folder(name), model=model)
        measured += scored
        rows += [_row(name, cell) for cell in scored]
    guards = dict.fromkeys((cell.guard.threshold, cell.guard.source) for cell in measured)
    guard_rows = [dict(zip(("threshold", "source"), guard, strict=True)) for guard in guards]
    facts = {"guards": guard_rows, "protocol": list(families.PROTOCOL)}
    beside = ("entropy", "paper", "paper_entropy")
    spread = Pivot(("model", "point", "finish"), ("steps",), "perplexity", beside)
    title = "Measured perplexity [entropy, paper's, paper's entropy]; M is updates, not calls"
    small = (SMOKE_NOTE, SMALL_NOTE) if ask.smoke else ()
    notes = (*guard_notes(measured), *families.PROTOCOL, *small)
    values = {**ask.said(), "checkpoints": dict(sources)}
    return Result(values, Table(title, COLUMNS, rows, spread), facts=facts, notes=notes)


def _row(name: str, cell: Measured) -> dict[str, Any]:
    generator = cell.spec.generator
    sampler, row = generator.sampler, cell.row()
    where: dict[str, Any] = {"steps": None, "temperature": None, "precision": None}
    if not SAMPLERS[sampler.name].causal:
        where = {key: row[key] for key in where}
    [printed] = paper.table(NAME).records(model=name, **where) or [{}]
    return {
        "model": name,
        **row,
        "steps": where["steps"],
        "sampler": sampler.name,
        "finish": sampler.finish,
        "length": generator.length,
        "network_calls": cell.calls,
        "paper": printed.get("perplexity"),
        "paper_entropy": printed.get("entropy"),
    }


def lines_on(
    rows: Sequence[Mapping[str, Any]], perplexity: Axes, entropy: Axes | None = None
) -> None:
    """Perplexity, and entropy if it has axes, against steps: a line per model."""
    from strop.figures import bars, grouped

    first = {contender.family: name for name, contender in reversed(families.MODELS.items())}
    for (name, _), points in grouped(rows, "model", "point").items():
        sharp = points[0]["temperature"] != 1
        family = families.MODELS[name].family
        look: dict[str, Any] = {"color": FAMILIES[family].colour, "ls": "--" if sharp else "-"}
        look |= {"lw": 1.1, "alpha": 1 if first[family] == name else 0.5}  # pale: its second one
        label = name + (", sharpened" if sharp else "")
        if points[0]["steps"] is None:
            for panel, column in ((perplexity, "perplexity"), (entropy, "entropy")):
                level = value_of(points[0][column])
                if panel is not None and level is not None:
                    panel.axhline(level, **{**look, "ls": ":", "label": label.partition(",")[0]})
            continue
        x = [p["steps"] for p in points]
        look |= {"marker": "o", "ms": 3}
        bars(perplexity, x, [p["perplexity"] for p in points], capsize=2, label=label, **look)
        if entropy is not None and all(p["entropy"] is not None for p in points):
            entropy.plot(x, [p["entropy"] for p in points], **look)


def _draw(result: Result) -> Figure:
    from strop.figures import GREY, legend_below, log_y, panels, steps_axis

    rows = list(result.table.rows)
    figure, axes = panels(2, 4.6)
    lines_on(rows, *axes)
    axes[0].set(ylabel="perplexity")
    log_y(axes[0])
    axes[1].set(ylabel="entropy (nats)", xlabel="configured updates M")
    for guard in result.facts["guards"]:
        if guard["threshold"] is not None:
            axes[1].axhline(guard["threshold"], color=GREY, ls=(0, (1, 1)), lw=0.8)
            where = (0.01, guard["threshold"])
            look: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "fontsize": 6.5}
            axes[1].annotate("guard", where, va="bottom", **look)
    budgets = {r["steps"] for r in rows if r["steps"] is not None}
    for panel in axes if budgets else ():
        steps_axis(panel, budgets)
    legend_below(figure, axes[0], fontsize=6, handlelength=3)
    return figure


STUDY = Study(
    name=NAME,
    title="MDLM among its successors",
    about="Sample every family by its own rules and score all with one evaluator.",
    sources=Sources(
        ("MODEL...",), "NAME=SOURCE, e.g. DUO=runs/duo; by default all public ones.", smoke=()
    ),
    parameters=(
        parameters.steps(4, 16, 64, 128, 256, 1024, smoke=(4, 16)),
        parameters.outputs(40, smoke=16),
        parameters.evaluator("gpt2-large", smoke=parameters.evaluator().default),
        *parameters.SCORED,
    ),
    run=_run,
    check=_check,
    draw=_draw,
    runs=(families.CHECKPOINTS, *map(families.run_folder, families.MODELS)),
    next=lambda ask: (
        f"strop study exact-output --pools {quoted(ask.out)} -o {quoted(ask.out)}-exact"
        + (" --smoke" if ask.smoke else "")
    ),
    examples=("strop study cross-model --smoke -o runs/families",),
    items=(paper.item(NAME, sources=families.named_sources(()), roles=tuple(families.MODELS)),),
)


PANELS = ("cross-model", "groupeval", "posterior")
CELLS = "cells"
SHARED = ("steps", "seed", "device", "dtype", "engine", "devices", "ray_address")
LOSS, RATIO = "posterior loss at .9 minus at 1", "perplexity at 1 over perplexity at .9"


def _asks(ask: Ask) -> dict[str, Ask]:
    """The panels' studies in this one's directory, all checked before any of them draws.

    Their cells pass the guard by this one's rule. The loss comes first: it reads the user's file.
    """
    baseline = {"MDLM-Small": CHECKPOINT if ask.smoke else families.MODELS["MDLM-Small"].source}
    source = (baseline | (families.named_sources(ask.sources) if ask.sources else {}))["MDLM-Small"]
    shared: dict[str, Any] = {k: v for k, v in ask.some(*SHARED).items() if v is not None}
    shared |= {"smoke": ask.smoke, "progress": ask.progress, "note": ask.note}
    shared |= ask.given("n")
    judged: dict[str, Any] = {"partition": parameters.PAPERS_GROUPS}
    if not ask.smoke:
        judged |= {"evaluator": "gpt2", "steps": (16, 64, 256, 1024)}
    scored = ask.given("evaluator")
    studies = {
        "posterior": ([source], {**shared, "held_out": ask["held_out"]}),
        "cross-model": (ask.sources, shared | scored),
        "groupeval": ([source], judged | shared | scored),
    }
    rule = {key: ask.values[key] for key in ("guard_rule",) if key in ask.values}
    asks = {
        name: study.find(name).ask(ask.out / name, sources, **settings)
        for name, (sources, settings) in studies.items()
    }
    return {name: replace(panel, values={**panel.values, **rule}) for name, panel in asks.items()}


def _check_panels(ask: Ask) -> None:
    _asks(ask)


def _overview(ask: Ask) -> Result:
    from strop.measure.known import check_evaluator_name

    asks = _asks(ask)
    check_evaluator_name(ask["evaluator"])
    loss, among, judged = (study.carry_out(panel) for panel in asks.values())
    [source] = asks["posterior"].sources
    cells = [
        (m, OperatingPoint.of(SamplerSpec(temperature=tau)))
        for m in loss.asked["steps"]
        for tau in (1.0, loss.asked["sharpened"])
    ]
    table, _ = posterior.beside_cells(loss, measure_cells(ask, source, cells, ask.out / CELLS))
    notes = tuple(
        dict.fromkeys((*among.notes, *judged.notes, *((SMOKE_NOTE,) if ask.smoke else ())))
    )
    more = {"among": among.table, "judged": judged.table}
    return Result(ask.said(checkpoint=source), table, more, notes=notes)


def _three_findings(result: Result) -> Figure:
    from strop.figures import legend_below, log_y, panels, steps_axis

    among = result.more["among"].rows
    figure, axes = panels(1, 3.2, 3, 2.4)
    lines_on(among, axes[0])
    axes[0].set(ylabel="perplexity", xlabel="configured updates M", title="(a) among successors")
    log_y(axes[0])
    steps_axis(axes[0], {row["steps"] for row in among if row["steps"] is not None})
    _judged_on(axes[1], result.more["judged"].rows)
    posterior.scatter_on(axes[2], result.table.rows)
    axes[2].set_title("(c) worse loss, better samples")
    legend_below(figure, axes[0], 4, fontsize=6, handlelength=3)
    return figure


def _judged_on(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """From standard (open) to sharpened (filled): scores upwards, token entropy across.

    Of one judge, since judges have different scales: a language model if there is one.
    """
    from strop.figures import BLUE, GREEN

    judges = sorted({row.get("judge", "") for row in rows}, key=lambda judge: "offline" in judge)
    rows = [row for row in rows if row.get("judge", "") == judges[0]]
    for name, label, colour in (("geq", "GEQ", BLUE), ("ged", "GED", GREEN)):
        for row in rows:
            pair = [
                (value_of(row[f"entropy_{s}"]), row[f"{name}_{s}"])
                for s in groupeval_study.SETTINGS
            ]
            if any(None in position for position in pair):
                continue
            (x0, y0), (x1, y1) = cast(list[tuple[float, float]], pair)
            axes.annotate("", (x1, y1), (x0, y0), arrowprops={"arrowstyle": "->", "color": colour})
            axes.plot([x0], [y0], "o", ms=4, mec=colour, mfc="white")
            axes.plot([x1], [y1], "o", ms=4, color=colour)
            look: dict[str, Any] = {"textcoords": "offset points", "fontsize": 6, "ha": "center"}
            axes.annotate(f"{row['steps']:,}", (x1, y1), (0, 5), color=colour, **look)
        axes.plot([], [], "o", color=colour, label=label)
    axes.invert_xaxis()
    axes.set(xlabel="token entropy H (nats), falling →", ylabel="score, 0 to 10")
    axes.set_title("(b) standard (open) to sharpened")
    axes.legend(fontsize=6)


def _ranges(result: Result, *_: Any) -> Table:
    """The ranges that the paper prints, and those over the cells here."""
    printed = paper.table("overview").by("what")
    rows = []
    for what, column in ((LOSS, "masked"), (RATIO, "ratio")):
        intervals: list[Interval] = [row[column] for row in result.table.rows]
        for end, pick in (("low", min), ("high", max)):
            measured = pick(intervals, key=lambda interval: interval.value)
            published = printed[what,][end]
            rows.append({"what": what, "end": end, "paper": published, "measured": measured})
    return paper.beside("ranges over the cells of panel c", (Column("what"), Column("end")), rows)


OVERVIEW = Study(
    name="overview",
    title="Three findings in one figure",
    about="Draw the paper's first figure from studies of the baseline and its successors.",
    sources=Sources(("MODEL...",), "As for `strop study cross-model`.", smoke=()),
    parameters=(
        Parameter.counts("steps", "Instead of each panel's own.", None, most=MOST_STEPS + 1),
        parameters.outputs(128, smoke=16, words="Outputs per cell; 128 is panel c's alone."),
        parameters.evaluator("gpt2", smoke=parameters.evaluator().default),
        Parameter.file("held_out", "JSON lines of texts for the loss."),
        *parameters.DRAWN,
        *parameters.ENGINE,
    ),
    run=_overview,
    check=_check_panels,
    draw=_three_findings,
    runs=(*PANELS, CELLS),
    examples=("strop study overview --smoke -o runs/overview",),
    items=(
        paper.item(
            "overview",
            _ranges,
            sources=families.named_sources(()),
            roles=tuple(families.MODELS),
        ),
    ),
)
