"""strop reproduce: the paper's tables and figures, beside what is measured here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strop.errors import UserError
from strop.spec.value import MOST_STEPS, OUTPUT_LIMIT, SEED_LIMIT
from strop.verbs import paper
from strop.verbs.parameters import ENGINE
from strop.verbs.study import SMOKE, SMOKE_NOTE
from strop.verbs.verb import Ask, Parameter, Result, Verb, grid, report_command

GIVEN = ("held_out", "seed", "device", "dtype", "limit", "steps")
SEVERAL = ("counts", "many", "words")


def _run(ask: Ask) -> Result:
    id, out = ask["id"], ask["out"]
    if id is None:
        return _list()
    if out is None:
        raise UserError("A study needs a directory.", where="`out`", fix=f"give `out=runs/{id}`")
    reproduction = paper.reproduce(
        id,
        out=out,
        smoke=ask["smoke"],
        checkpoints=ask["checkpoint"] or [],
        progress=ask.progress,
        note=ask.note,
        **ask.some(*GIVEN, *(parameter.name for parameter in ENGINE if ask[parameter.name])),
        **_lists(ask),
    )
    small = (SMOKE_NOTE,) if ask["smoke"] and reproduction.item.sources else ()
    notes = dict.fromkeys((*reproduction.notes, *small))
    missing, table = reproduction.result.missing, reproduction.table
    document = {"id": id, "smoke": ask["smoke"], "unit": table.title, **table.document()}
    return Result(
        parts=(table.title, table, *(f"- {text}" for text in notes)),
        json={**document, "result": reproduction.result.document()},
        remarks=() if missing is None else (f"strop: {missing}; run the same command again",),
        next=report_command(Path(out)) if missing is None else None,
        incomplete=missing is not None,
        value=reproduction,
    )


def _lists(ask: Ask) -> dict[str, Any]:
    """Numbers of outputs and evaluators: some studies take several."""
    values = ask.some("n", "evaluator")
    items = paper.items()
    for parameter in items[ask["id"]][0].parameters if ask["id"] in items else ():
        if parameter.kind in SEVERAL and values.get(parameter.name) is not None:
            values[parameter.name] = [values[parameter.name]]
    return values


def _list() -> Result:
    items = [item for _, item in paper.items().values()]
    names = ("what", "needs", "tables", "command")
    return Result(
        parts=(
            grid(
                ["id", "what", "a full run needs", "command"],
                [[item.id, item.what, item.needs, item.command] for item in items],
            ),
        ),
        json={item.id: {name: getattr(item, name) for name in names} for item in items},
        next="strop reproduce headline --smoke -o runs/headline",
        value=items,
    )


VERB = Verb(
    name="reproduce",
    help="List the paper's tables and figures, or run one and print paper and measured side by "
    "side.",
    parameters=(
        Parameter("id", "Which; without it, the list.", argument="ID"),
        Parameter("out", "The directory; continued if it exists.", flags=("-o", "--out")),
        SMOKE,
        Parameter(
            "checkpoint",
            "Instead of the paper's; repeat for a second one. late=PATH, early=PATH or public=ID "
            "says which of the paper's it stands for.",
            kind="many",
        ),
        Parameter("evaluator", "Instead of the paper's."),
        Parameter.counts("steps", "Instead of the paper's budgets.", most=MOST_STEPS + 1),
        Parameter.count("n", "Instead of the paper's.", most=OUTPUT_LIMIT),
        Parameter.count(
            "limit", "Problems of a task, from the first; the paper's are all.", most=OUTPUT_LIMIT
        ),
        Parameter(
            "held_out", "JSON lines of texts: of the posterior loss, or the guard.", kind="place"
        ),
        Parameter("seed", "Root seed; 0 by default.", kind="int", most=SEED_LIMIT),
        Parameter("device", "auto, cpu, cuda or cuda:i."),
        Parameter("dtype", "Of the generator's network: float32, bfloat16, float16, public."),
        *ENGINE,
    ),
    run=_run,
    examples=("strop reproduce", "strop reproduce headline --smoke -o runs/headline"),
)
