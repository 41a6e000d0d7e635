"""Conditional GEQ: the greedy answers of two models to a task, judged, beside what the check says.

A condition is a problem. The judge reads the question and the two answers, blinded and in random
order, and never a label: those go from the task's run to the score here. Programs are judged as the
check ran them, sanitised; other responses as they are graded, cut where the task says they end.

RUN_A and RUN_B are runs of `strop task run`; one run with two checkpoints will do. Checkpoints in
their place answer greedily first. Every judge that has a series in OUT/groupeval/TASK takes part;
where there is none yet, the offline judge makes the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.assets import EMBEDDED
from strop.errors import UserError
from strop.stats.interval import value_of
from strop.table import Column, Table
from strop.verbs import paper, parameters
from strop.verbs.answers import Answers, answers_of, paired, sides_of_runs
from strop.verbs.entrants import FOLDER, PAPER_TASKS, TASK_PARAMETERS, answer_tasks
from strop.verbs.paper import beside, item
from strop.verbs.points import judge_texts
from strop.verbs.result import Result
from strop.verbs.study import Sources, Study
from strop.verbs.verb import Ask, Parameter, quoted

if TYPE_CHECKING:
    from strop.groupeval.judgments import Judgments

NAME, JUDGED, PROFILE = "conditional", "groupeval", "task-v1"
RUBRIC = (
    "The rubric is strop's own wording of task-v1, not the paper's: cGEQ of the two are not one "
    "scale, and neither is the GEQ of texts without a task. Apparent success is one of the graded "
    "dimensions, so this checks a criterion and proves no preference."
)
INTERVALS = (
    "Intervals: 10,000 draws of whole conditions with replacement, given one verdict on each pair. "
    "AUROC and preference count ties half."
)
OFFLINE = (
    "The offline judge counts words, numbers and loops; it cannot check an answer and grades every "
    "response's success alike. AUROC near chance, or below, is what to expect of it."
)
SMALL = (
    "The small models answer strop's own sums in a few signs, and the judge counts: this shows the "
    "way from the task to the table, and nothing of the paper's judge or models."
)


# ---------------------------------------------------------------- who answers, who judges


def _pairs_of(ask: Ask) -> dict[str, tuple[Answers, Answers]]:
    """The two sides of every task."""
    sides = sides_of_runs(ask.sources, ask["filter"])
    if sides is not None:
        return {sides[0].task: paired(*sides)}
    tasks = ask["task"] or PAPER_TASKS
    found = answer_tasks(ask, tasks, dict.fromkeys(tasks, (0.0,)), seeds=1)
    pairs = {}
    for task, one in found.items():
        first, second = (answers_of(one.results, label, ask["filter"]) for label in one.labels)
        pairs[task] = paired(first, second)
    return pairs


def judged(pair: tuple[Answers, Answers], out: Path, *, seed: int) -> dict[str, Judgments]:
    """Plan the pair in `out`, judge it offline, and read every judge that has a series there."""
    texts = {one.name: one.texts for one in pair}
    return judge_texts(texts, out, seed=seed, profile=PROFILE, prompts=pair[0].questions)


def told_by(
    pair: tuple[Answers, Answers], judge: str, judgments: Judgments, *, seed: int
) -> dict[str, Any]:
    """Everything that is said of one judge and one task."""
    from strop.groupeval import conditional, label

    labels = {(one.name, index): passed for one in pair for index, passed in enumerate(one.passed)}
    names = (pair[0].name, pair[1].name)
    told = conditional(label(judgments, labels, names), seed=seed)
    return {"judge": judge, "task": pair[0].task, "conditions": len(pair[0].items), **told}


# ---------------------------------------------------------------- what is told

COLUMNS = (
    Column("judge"),
    Column("task"),
    Column("judged", "conditions", help="Problems whose two answers have a verdict."),
    Column("success", "success A / B", percent=True, digits=3, help="By the automatic check."),
    Column("cgeq", "cGEQ A / B", digits=3),
    Column("difference", "cGEQ, B minus A", digits=3, signed=True),
    Column("auroc", "AUROC", digits=3),
    Column("lead", "passed minus failed", digits=3, signed=True),
    Column("discordant", help="Conditions where exactly one answer passed."),
)
MODEL_COLUMNS = (
    Column("judge"),
    Column("task"),
    Column("model"),
    Column("success", percent=True, digits=3),
    Column("cgeq", "cGEQ", digits=3),
    Column("auroc", "AUROC", digits=3),
)
PAIR_COLUMNS = (
    Column("judge"),
    Column("task"),
    Column("both", "both pass"),
    Column("only_first", "only A"),
    Column("only_second", "only B"),
    Column("neither"),
    Column("right", "right one higher", help="Of the conditions where exactly one passed."),
    Column("tied"),
    Column("wrong", "wrong one higher"),
    Column("preferred", "right one preferred", percent=True, digits=3, help="Ties count half."),
)


def _row(told: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "judge": told["judge"],
        "task": told["task"],
        "judged": told["n_prompts"],
        "conditions": told["conditions"],
        "models": told["generators"],
        "success": told["success"],
        "cgeq": [value_of(one) for one in told["cgeq"]],
        "difference": told["cgeq_difference"],
        "auroc": told["auroc"],
        "lead": told["discordant"],
        "discordant": told["n_discordant"],
    }


def _by_model(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "judge": told["judge"],
            "task": told["task"],
            "model": model,
            "success": told["success"][side],
            "cgeq": told["cgeq"][side],
            "auroc": told["auroc_by_generator"][side],
        }
        for side, model in enumerate(told["generators"])
    ]


def _pairs(told: Mapping[str, Any]) -> dict[str, Any]:
    who = {name: told[name] for name in ("judge", "task")}
    return {**who, **told["n_pairs"], **told["n_preferred"], "preferred": told["preferred"]}


def _paper_rows() -> list[dict[str, Any]]:
    """The paper's table, in the same shape."""
    found = paper.table("conditional")
    return [
        {
            "judge": f"{found.settings['judge']} (paper)",
            "task": row["task"],
            "judged": row["conditions"],
            "conditions": row["conditions"],
            "success": [row["success_llada"] / 100, row["success_dream"] / 100],
            "cgeq": [row["geq_llada"], row["geq_dream"]],
            **{key: row[key] for key in ("difference", "auroc", "discordant")},
            "lead": row["pass_minus_fail"],
        }
        for row in map(_with_intervals, found.records())
    ]


def _with_intervals(row: Mapping[str, Any]) -> dict[str, Any]:
    row = paper.with_interval(row)
    for name in ("auroc", "pass_minus_fail"):
        row = paper.with_interval(row, name, f"{name}_")
    return row


# ---------------------------------------------------------------- the study


def _run(ask: Ask) -> Result:
    pairs, told, notes = _pairs_of(ask), [], []
    for task, pair in pairs.items():
        for judge, judgments in judged(pair, ask.out / JUDGED / task, seed=ask["seed"]).items():
            if len(judgments.cells) < 2:
                notes.append(f"{judge} has no verdict on {task} yet: strop groupeval judge")
                continue
            one = told_by(pair, judge, judgments, seed=ask["seed"])
            told.append(one)
            if one["n_prompts"] < one["conditions"]:
                notes.append(
                    f"{judge} has judged {one['n_prompts']} of {one['conditions']} conditions of "
                    f"{task}: its numbers are about those"
                )
        notes += [note for one in pair for note in one.notes]
    first, second = (one.name for one in next(iter(pairs.values())))
    table = Table(f"A: {first}; B: {second}", COLUMNS, [_row(one) for one in told])
    more = {
        "models": Table(
            "Each model by itself", MODEL_COLUMNS, [row for one in told for row in _by_model(one)]
        ),
        "pairs": Table(
            "Who passed, and whom the judge prefers", PAIR_COLUMNS, list(map(_pairs, told))
        ),
        "paper": Table(
            "The paper: A LLaDA-8B-Instruct, B Dream-v0-Base-7B", COLUMNS, _paper_rows()
        ),
    }
    notes += [INTERVALS, RUBRIC, OFFLINE, *((SMALL,) if ask.smoke else ())]
    facts = {"models": [first, second], "tasks": list(pairs), "judged": told}
    return Result(ask.said(), table, more, facts, tuple(dict.fromkeys(notes)))


def _plans(ask: Ask) -> list[Path]:
    return sorted(one for one in (ask.out / JUDGED).iterdir() if one.is_dir())


def _check(ask: Ask) -> None:
    """Runs are read before anything is written: what does not fit is told at once."""
    from strop.tasks import TASKS

    sides = sides_of_runs(ask.sources, ask["filter"])
    if sides is None:
        for task in ask["task"] or PAPER_TASKS:
            TASKS.find(task, where="`task`")
        return
    paired(*sides)
    for name in ("task", "limit"):
        if ask[name] is not None and not ask.smoke:
            raise UserError(
                f"`{name}` is for checkpoints; these are runs, which have it already.",
                where=f"`{name}`",
                got=ask[name],
                fix="leave it out",
            )


def _beside(result: Result, ask: Ask, roles: Mapping[str, str]) -> Table:
    """Counts of the check stand in one row; what a judge said stands in a row of that judge."""
    del ask, roles
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}

    def tell(side: str, task: str, judge: str, values: Mapping[str, Any]) -> None:
        for what, value in values.items():
            keys = {"task": task, "what": what, "judge": judge}
            row = rows.setdefault((task, what, judge), {**keys, "paper": None, "measured": None})
            row[side] = value

    printed, judged = paper.table(NAME), result.facts["judged"]
    for row in printed.records():
        tell("paper", row["task"], "none", _counted(row, "llada", "dream"))
    for one in judged:
        tell("measured", one["task"], "none", _counted(one["n_pairs"], "first", "second"))
    least = f"above {printed.claims['auroc_of_each_model_above']}"
    for row in _paper_rows():
        said = {what: value_of(value) for what, value in _quality(row).items()}
        tell("paper", row["task"], row["judge"], {**said, "AUROC, A": least, "AUROC, B": least})
    for row in result.table.rows:
        tell("measured", row["task"], row["judge"], _quality(row))
    for one in judged:
        for side, row in zip("AB", _by_model(one), strict=True):
            tell("measured", one["task"], one["judge"], {f"AUROC, {side}": row["auroc"]})
    keys = (Column("task"), Column("what"), Column("judge"))
    unit = "A: LLaDA, B: Dream, or what stands in their place"
    return beside(unit, keys, list(rows.values()))


def _counted(row: Mapping[str, Any], a: str, b: str) -> dict[str, int]:
    return {
        "right, A": row["both"] + row[f"only_{a}"],
        "right, B": row["both"] + row[f"only_{b}"],
        "right, both": row["both"],
        "right, only A": row[f"only_{a}"],
        "right, only B": row[f"only_{b}"],
        "right, neither": row["neither"],
    }


def _quality(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a judge says."""
    return {
        "cGEQ, A": row["cgeq"][0],
        "cGEQ, B": row["cgeq"][1],
        "cGEQ, B minus A": row["difference"],
        "AUROC": row["auroc"],
        "passed minus failed": row["lead"],
    }


STUDY = Study(
    name=NAME,
    title="Judged answers of two models to a task, beside the automatic check",
    about="Pair the greedy answers of two task runs by problem, have them judged blindly, and "
    "compare: conditional GEQ, AUROC against the labels, the pairs of which one is right.",
    sources=Sources(
        ("RUN_A", "RUN_B"),
        "Runs of `strop task run` (RUN, or RUN:LABEL for one of its checkpoints), or checkpoints.",
        (),
        (EMBEDDED + "sums", EMBEDDED + "sums-ar"),
    ),
    parameters=(
        Parameter(
            "task",
            "Which the checkpoints answer.",
            kind="words",
            smoke=("sums",),
            shown="gsm8k,humaneval",
        ),
        Parameter("filter", "How the answer is found.", shown="the task's first"),
        parameters.SEED,
        *TASK_PARAMETERS,
    ),
    run=_run,
    check=_check,
    runs=(FOLDER, JUDGED),
    next=lambda ask: f"strop groupeval judge {quoted(_plans(ask)[0])} --base-url URL --model NAME",
    examples=(
        "strop study conditional --smoke -o runs/judged",
        "strop study conditional RUN_A RUN_B -o runs/judged",
    ),
    items=(item(NAME, _beside),),
)
