"""A perfect model of two bits, and of 280 random targets: temperature 1 is not the best one.

Nothing is sampled: the numbers are exact, computed by the theory room.
"""

from __future__ import annotations

from typing import Any

from strop.table import Column, Table
from strop.verbs import paper, parameters
from strop.verbs.paper import PaperItem, RowByRow
from strop.verbs.result import Result
from strop.verbs.study import Sources, Study
from strop.verbs.verb import Ask

NAME = "exact-repair"
NOTE = (
    "The paper gives the shapes, their counts and the Dirichlet concentrations of its 280 targets, "
    "not which concentration goes with which, nor the law of its grids: other seeds differ."
)


def _run(ask: Ask) -> Result:
    from strop.theory.schedules import run_study
    from strop.theory.temperature import pair

    found = run_study(ask["seed"]).summary()
    agreement = float(paper.table(NAME).value("value", what="agreement s"))  # type: ignore[arg-type]
    best, removed = found["lambda_star"], found["kl_reduction"]
    numbers: dict[str, Any] = {
        "agreement s": agreement,
        "best inverse temperature of the pair": pair(agreement, 0.5).lambda_star,
        "random targets": found["targets"],
        "random targets best above 1": found["lambda_star_above_1"],
        "median best inverse temperature": best["median"],
        "its 5th percentile": best["p5"],
        "its 95th percentile": best["p95"],
        "median relative reduction of the output error": removed["median"],
        "its 95th percentile over targets": removed["p95"],
    }
    rows = [{"what": what, "value": value} for what, value in numbers.items()]
    table = Table("Exact numbers, nothing sampled", (Column("what"), Column("value")), rows)
    return Result(ask.said(), table, facts={"summary": found}, notes=(NOTE,))


STUDY = Study(
    name=NAME,
    title="A perfect model whose best temperature is not 1",
    about="Compute the paper's two-bit case and its 280 random targets; figures: strop theory "
    "figure -o DIR.",
    sources=Sources((), ""),
    parameters=(parameters.SEED, parameters.FORCE),
    run=_run,
    next=lambda _: "strop theory figure -o figures",
    examples=("strop study exact-repair -o runs/repair",),
    items=(
        PaperItem(
            NAME,
            (NAME,),
            "a perfect model of two bits, and of 280 random targets",
            "nothing; figures: strop theory figure -o DIR",
            RowByRow(
                "exact numbers, nothing sampled",
                (Column("what"),),
                (NAME,),
                paper={"paper": "value"},
                measured={"measured": "value"},
            ),
        ),
    ),
)
