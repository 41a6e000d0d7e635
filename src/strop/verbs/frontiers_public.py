"""Two studies that sample nothing: published frontiers, and exact repair.

`frontiers-public` compares two public checkpoints at equal entropy. "Generative Frontiers"
(P. Pynadath, J. Shi, R. Zhang; arXiv 2604.02718) publishes perplexity and entropy of MDLM and DUO
by temperature and steps, and its numbers ship with strop. At one temperature the two have different
entropies, so the temperature decides which looks better; at equal entropy it does not.

`exact-repair` computes, by `strop.theory`, the best temperature for a perfect model of two bits and
for 280 random targets: it is not 1.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strop.assets import ROOT
from strop.errors import UserError
from strop.table import Column, Table
from strop.verbs import paper, parameters
from strop.verbs.study import Sources, Study
from strop.verbs.verb import Ask, Parameter, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Floats = NDArray[np.float64]

NAME = "frontiers-public"
FILE = ROOT / "public" / "generative-frontiers.csv"
CURVE_POINTS = 25
"""Entropies at which the figure reads the ratio off."""
CHECKPOINTS = {"MDLM-Small": "mdlm", "DUO": "duo"}
"""Whose cells they are, by the names of the comparison across families."""
SOURCE = (
    "Generative Frontiers (arXiv 2604.02718), public checkpoints of MDLM and DUO, "
    "ancestral sampling, OpenWebText, 1,024 tokens. The source names neither the evaluator nor the "
    "number of outputs, so there are no intervals; nor the precision, taken as float64."
)
NOTES = (
    f"Source: {SOURCE}",
    "This DUO is not distilled. The paper's claim is about distilled DUO and DiDi-Instruct, with "
    "MDLM sharpened and the others not, from 64 steps on: a neighbouring question.",
)
COLUMNS = (
    Column("steps"),
    Column("entropy", label="entropy (nats)"),
    Column("mdlm", label="perplexity of MDLM"),
    Column("duo", label="of DUO"),
    Column("ratio", label="MDLM / DUO"),
    Column("mdlm_temperature", label="temperature of MDLM"),
    Column("duo_temperature", label="of DUO"),
)


@cache
def grid() -> dict[tuple[str, int], Floats]:
    """Rows of entropy, perplexity and temperature by family and steps, by increasing entropy."""
    cells = defaultdict(list)
    with FILE.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            values = [float(row[name]) for name in ("entropy", "perplexity", "temperature")]
            cells[row["family"], int(row["steps"])].append(values)
    return {key: np.array(sorted(rows)) for key, rows in cells.items()}


def elsewhere(
    model: str | None, row: Mapping[str, Any], number: str = "perplexity"
) -> float | None:
    """The published number of a public checkpoint in a row's cell, if there is one."""
    if model not in CHECKPOINTS or row.get("precision") != "float64":
        return None
    cells = grid().get((CHECKPOINTS[model], row["steps"]))
    column = {"entropy": 0, "perplexity": 1}[number]
    matching = [] if cells is None else cells[cells[:, 2] == row["temperature"], column].tolist()
    return matching[0] if matching else None


def read_off(cells: Floats, entropy: float) -> tuple[float, float]:
    """Perplexity and temperature at an entropy, log-linear between two cells."""
    level, entropies = np.log(cells[:, 1]), cells[:, 0]
    perplexity = np.exp(np.interp(entropy, entropies, level))
    return float(perplexity), float(np.interp(entropy, entropies, cells[:, 2]))


def _common(steps: int) -> tuple[float, float]:
    """The entropies that both frontiers reach."""
    frontiers = [grid()[family, steps][:, 0] for family in ("mdlm", "duo")]
    least, most = max(levels[0] for levels in frontiers), min(levels[-1] for levels in frontiers)
    return float(least), float(most)


def _row(steps: int, entropy: float) -> dict[str, Any]:
    (mdlm, mdlm_temperature), (duo, duo_temperature) = (
        read_off(grid()[family, steps], entropy) for family in ("mdlm", "duo")
    )
    return {
        "steps": steps,
        "entropy": entropy,
        "mdlm": mdlm,
        "duo": duo,
        "ratio": mdlm / duo,
        "mdlm_temperature": mdlm_temperature,
        "duo_temperature": duo_temperature,
    }


def _run(ask: Ask) -> Result:
    shared = sorted(m for family, m in grid() if family == "mdlm" and ("duo", m) in grid())
    budgets = ask["steps"] or shared
    if lacking := [m for m in budgets if m not in shared]:
        raise UserError(
            "The published numbers have no such budget for both checkpoints.",
            where="`steps`",
            got=", ".join(map(str, lacking)),
            expected=", ".join(map(str, shared)),
        )
    ranges = {m: _common(m) for m in budgets}
    rows = [
        _row(m, entropy)
        for entropy in ask["entropy"]
        for m in budgets
        if ranges[m][0] <= entropy <= ranges[m][1]
    ]
    if not rows:
        raise UserError(
            "The two frontiers do not both reach these entropies.",
            where="`entropy`",
            got=", ".join(f"{entropy:g}" for entropy in ask["entropy"]),
            expected=", ".join(f"{low:.2f} to {high:.2f}" for low, high in ranges.values()),
        )
    curves = {
        str(m): [
            [entropy, _row(m, entropy)["ratio"]]
            for entropy in np.linspace(*ranges[m], CURVE_POINTS).tolist()
        ]
        for m in budgets
    }
    table = Table("Perplexity of public checkpoints at equal entropy", COLUMNS, rows)
    left_out = len(ask["entropy"]) * len(budgets) - len(rows)
    words = f"Left out, because a frontier does not reach that far: {left_out}."
    notes = (*NOTES, words) if left_out else NOTES
    middle = [row for row in rows if row["entropy"] == rows[len(rows) // 2]["entropy"]]
    ratios = ", ".join(f"{row['ratio']:.2f} at {row['steps']}" for row in middle)
    answer = (
        f"At an entropy of {middle[0]['entropy']:g} nats the perplexity of MDLM over that of DUO "
        f"is {ratios} steps."
    )
    return Result(ask.said(), table, facts={"ratios": curves, "answer": (answer,)}, notes=notes)


def _draw(result: Result) -> Figure:
    from strop.figures import GREY, PALETTE, legend_below, log_y, panels

    cells = grid()
    figure, axes = panels(2, 4.2)
    axes[1].sharex(axes[0])
    lines: dict[str, Any] = {"mdlm": "-", "duo": (0, (4, 1.6))}
    for colour, (steps, curve) in zip(PALETTE * 2, result.facts["ratios"].items(), strict=False):
        for family, line in lines.items():
            frontier = cells[family, int(steps)]
            axes[0].plot(frontier[:, 0], frontier[:, 1], color=colour, ls=line, lw=1.0)
        entropies, ratios = zip(*curve, strict=True)
        axes[1].plot(entropies, ratios, color=colour, lw=1.0, label=f"{steps} steps")
    axes[0].set(ylabel="perplexity")
    for family, line in lines.items():
        axes[0].plot([], [], color="black", ls=line, lw=1.0, label=family.upper())
    axes[0].legend(loc="upper left")
    axes[1].axhline(1.0, color=GREY, lw=0.8)
    axes[1].set(ylabel="perplexity, MDLM over DUO", xlabel="entropy (nats)")
    for panel in axes:
        log_y(panel)
    legend_below(figure, axes[1], 3)
    return figure


STUDY = Study(
    name=NAME,
    title="Published frontiers of MDLM and DUO at equal entropy",
    about="Read both frontiers of Generative Frontiers (arXiv 2604.02718) off at equal entropy.",
    sources=Sources(()),
    parameters=(
        Parameter("steps", "Budgets, among the published ones.", kind="ints", shown="all"),
        Parameter("entropy", "Entropies in nats.", (5.0, 5.35, 5.5), "numbers"),
        parameters.FORCE,
    ),
    run=_run,
    draw=_draw,
    examples=("strop study frontiers-public -o runs/public",),
)


REPAIR = "exact-repair"
REPAIR_NOTE = (
    "The paper gives the shapes, their counts and the Dirichlet concentrations of its 280 targets, "
    "not which concentration goes with which, nor the law of its grids: other seeds differ."
)


def _repair(ask: Ask) -> Result:
    from strop.theory.schedules import run_study
    from strop.theory.temperature import pair

    summary = run_study(ask["seed"]).summary()
    agreement = float(paper.table(REPAIR).value("value", what="agreement s"))  # type: ignore[arg-type]
    best, removed = summary["lambda_star"], summary["kl_reduction"]
    numbers: dict[str, Any] = {
        "agreement s": agreement,
        "best inverse temperature of the pair": pair(agreement, 0.5).lambda_star,
        "random targets": summary["targets"],
        "random targets best above 1": summary["lambda_star_above_1"],
        "median best inverse temperature": best["median"],
        "its 5th percentile": best["p5"],
        "its 95th percentile": best["p95"],
        "median relative reduction of the output error": removed["median"],
        "its 95th percentile over targets": removed["p95"],
    }
    rows = [{"what": what, "value": value} for what, value in numbers.items()]
    table = Table("Exact numbers, nothing sampled", (Column("what"), Column("value")), rows)
    return Result(ask.said(), table, facts={"summary": summary}, notes=(REPAIR_NOTE,))


EXACT_REPAIR = Study(
    name=REPAIR,
    title="A perfect model whose best temperature is not 1",
    about="Compute the paper's two-bit case and its 280 random targets; figures: strop theory "
    "figure -o DIR.",
    sources=Sources(()),
    parameters=(parameters.SEED, parameters.FORCE),
    run=_repair,
    next=lambda _: "strop theory figure -o figures",
    examples=("strop study exact-repair -o runs/repair",),
    items=(paper.item(REPAIR),),
)
