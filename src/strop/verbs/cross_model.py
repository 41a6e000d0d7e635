"""MDLM among its successors: every family by its own sampler, under one protocol.

Seven rows by the number of updates, and a causal model as the reference that has no such number.
Updates are not network calls, so rows are not matched in compute; each family ends by its own
convention, which the result names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strop.records import FAMILIES, SAMPLERS
from strop.stats.interval import value_of
from strop.table import Column, Pivot, Table
from strop.verbs import paper, parameters
from strop.verbs.families import (
    CHECKPOINTS,
    MODELS,
    PROTOCOL,
    named_sources,
    run_folder,
    smoke_sources,
)
from strop.verbs.paper import PaperItem, RowByRow
from strop.verbs.points import POINT_COLUMNS, guard_notes, load, measure_cells, named_points
from strop.verbs.study import SMOKE_NOTE, Ask, Result, Sources, Study, quoted

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
    "and the discriminator has random weights."
)


def _check(ask: Ask) -> None:
    named_sources(ask.sources)


def _run(ask: Ask) -> Result:
    own = ask.smoke and not ask.sources
    sources = smoke_sources(ask.out) if own else named_sources(ask.sources)
    rows, found = [], []
    for name, source in sources.items():
        model = load(ask, source)
        settings = {str(i): one for i, one in enumerate(MODELS[name].settings)}
        points, _ = named_points(model.spec.family, None, settings)
        budgets = (0,) if MODELS[name].reference else sorted(ask["steps"])
        cells = [(m, point) for point in points.values() for m in budgets]
        scored = measure_cells(ask, source, cells, ask.out / run_folder(name), model=model)
        found += scored
        rows += [_row(name, one) for one in scored]
    guards = dict.fromkeys((one.guard.threshold, one.guard.source) for one in found)
    told = [dict(zip(("threshold", "source"), one, strict=True)) for one in guards]
    facts = {"guards": told, "protocol": list(PROTOCOL)}
    beside = ("entropy", "paper", "paper_entropy")
    spread = Pivot(("model", "point", "finish"), ("steps",), "perplexity", beside)
    title = "Measured perplexity [entropy, paper's, paper's entropy]; M is updates, not calls"
    small = (SMOKE_NOTE, SMALL_NOTE) if ask.smoke else ()
    notes = (*guard_notes(found), *PROTOCOL, *small)
    said = {**ask.said(), "checkpoints": dict(sources)}
    return Result(said, Table(title, COLUMNS, rows, spread), facts=facts, notes=notes)


def _row(name: str, one: Measured) -> dict[str, Any]:
    generator = one.spec.generator
    sampler, row = generator.sampler, one.row()
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
        "network_calls": one.calls,
        "paper": printed.get("perplexity"),
        "paper_entropy": printed.get("entropy"),
    }


def _looks() -> dict[str, dict[str, Any]]:
    """A colour for each family, paler for its second checkpoint."""
    seen: dict[str, int] = {}
    looks = {}
    for name, one in MODELS.items():
        rank = seen[one.family] = seen.get(one.family, 0) + 1
        looks[name] = {"color": FAMILIES[one.family].colour, "alpha": 1 if rank == 1 else 0.5}
    return looks


def lines_on(
    rows: Sequence[Mapping[str, Any]], perplexity: Axes, entropy: Axes | None = None
) -> None:
    """Perplexity, and entropy if there is a place for it, against steps: a line per model."""
    from strop.figures import bars, grouped

    looks = _looks()
    for (name, _), mine in grouped(rows, "model", "point").items():
        sharp = mine[0]["temperature"] != 1
        look: dict[str, Any] = {**looks[name], "ls": "--" if sharp else "-", "lw": 1.1}
        label = name + (", sharpened" if sharp else "")
        if mine[0]["steps"] is None:
            for one, column in ((perplexity, "perplexity"), (entropy, "entropy")):
                level = value_of(mine[0][column])
                if one is not None and level is not None:
                    one.axhline(level, **{**look, "ls": ":", "label": label.partition(",")[0]})
            continue
        x = [p["steps"] for p in mine]
        look |= {"marker": "o", "ms": 3}
        bars(perplexity, x, [p["perplexity"] for p in mine], capsize=2, label=label, **look)
        if entropy is not None and all(p["entropy"] is not None for p in mine):
            entropy.plot(x, [p["entropy"] for p in mine], **look)


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
            axes[1].annotate("guard", where, xycoords=("axes fraction", "data"), fontsize=6.5)
    budgets = {r["steps"] for r in rows if r["steps"] is not None}
    for one in axes if budgets else ():
        steps_axis(one, budgets)
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
    runs=(CHECKPOINTS, *map(run_folder, MODELS)),
    next=lambda ask: (
        f"strop study exact-output --pools {quoted(ask.out)} -o {quoted(ask.out)}-exact"
        + (" --smoke" if ask.smoke else "")
    ),
    examples=("strop study cross-model --smoke -o runs/families",),
    items=(
        PaperItem(
            NAME,
            (NAME, "cross-model-entropy"),
            "MDLM, sharpened and not, among its successors, and GPT-2",
            "six public checkpoints, gpt2-large, a GPU",
            RowByRow("perplexity", (Column("model"), *POINT_COLUMNS, Column("finish")), outputs=40),
            {name: one.source for name, one in MODELS.items()},
            named=True,
        ),
    ),
)
