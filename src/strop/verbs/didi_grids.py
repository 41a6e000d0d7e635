"""DiDi-Instruct with and without its reward: every temperature and precision at every budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.table import Column
from strop.verbs import paper, parameters
from strop.verbs.families import CHECKPOINTS, MODELS, PROTOCOL, small_checkpoints
from strop.verbs.frontier import PRECISION, TEMPERATURE, sweep_lines, swept
from strop.verbs.paper import BUDGETS, PaperItem, RowByRow
from strop.verbs.points import POINT_COLUMNS, cell_table, guard_facts, guard_notes, load
from strop.verbs.result import Result
from strop.verbs.study import SMOKE_NOTE, Sources, Study
from strop.verbs.verb import Ask

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "didi-grids"
SOURCE = MODELS["DiDi-Instruct"].source
GRIDS = {"guided": "didi-guided", "ancestral": "didi-ancestral"}
"""The samplers, by the name that their run directories and the paper's tables have."""
KEYS = ("steps", "temperature", "precision")


def _run(ask: Ask) -> Result:
    source = ask.sources[0] if ask.sources else small_checkpoints(ask.out / CHECKPOINTS)["didi"]
    model = load(ask, source)
    rows, found, told = [], [], ()
    for name, sampler in GRIDS.items():
        scored, told = swept(ask, source, model, sampler, name)
        printed = paper.table(f"grid-didi-{name}").by(*KEYS)
        for one in scored:
            row = one.row()
            said = printed.get(tuple(row[key] for key in KEYS), {})
            more = {"paper": said.get("perplexity"), "paper_entropy": said.get("entropy")}
            rows.append({"sampler": name, **row, **more})
        found += scored
    table = cell_table(
        "Measured perplexity [entropy], and the paper's",
        rows,
        extra=(Column("sampler"), Column("paper"), Column("paper_entropy", "paper's entropy")),
    )
    facts = {**guard_facts(found[0]), "protocol": list(PROTOCOL)}
    small = (f"{SMOKE_NOTE} The discriminator has random weights.",) if ask.smoke else ()
    notes = (*told, *guard_notes(found), *PROTOCOL, *small)
    return Result(ask.said(checkpoint=source), table, facts=facts, notes=notes)


def _draw(result: Result) -> Figure:
    from strop.figures import legend_below, log_y, panels

    rows = list(result.table.rows)
    names = list(dict.fromkeys(row["sampler"] for row in rows))
    figure, axes = panels(len(names), 2.4 * len(names))
    for one, name in zip(axes, names, strict=True):
        mine = [row for row in rows if row["sampler"] == name]
        sweep_lines(one, mine, "perplexity", result.facts["guard"]["threshold"])
        one.set(ylabel="perplexity", title=f"{name}; open: below the entropy guard")
        log_y(one)
    axes[-1].set_xlabel("temperature")
    legend_below(figure, axes[0], fontsize=6)
    return figure


STUDY = Study(
    name=NAME,
    title="DiDi-Instruct with and without its reward",
    about="Sample DiDi-Instruct over the paper's two grids: guided by its reward, and not.",
    sources=Sources(
        ("CHECKPOINT",), "As for `strop sample`; by default the public one.", (SOURCE,), ()
    ),
    parameters=(
        parameters.steps(*BUDGETS, smoke=(2, 8)),
        TEMPERATURE,
        PRECISION,
        parameters.outputs(40, smoke=8),
        parameters.evaluator("gpt2-large", smoke=parameters.evaluator().default),
        parameters.AXES,
        parameters.LENGTH,
        *parameters.SCORED,
    ),
    run=_run,
    draw=_draw,
    runs=(CHECKPOINTS, *GRIDS),
    examples=("strop study didi-grids --smoke --steps 8 --temperature 0.9,1.0 -o runs/didi",),
    items=(
        PaperItem(
            NAME,
            ("grid-didi-guided", "grid-didi-ancestral"),
            "DiDi-Instruct with and without its reward: seven temperatures, two precisions",
            "DiDi-Instruct's files, gpt2-large, a GPU",
            RowByRow("perplexity", (Column("sampler"), *POINT_COLUMNS), outputs=40),
            {"DiDi-Instruct": SOURCE},
        ),
    ),
)
