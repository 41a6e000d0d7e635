"""Accuracy at tasks against temperature: diffusion models and causal ones under one protocol.

Every checkpoint answers every task greedily once, and with some seeds above temperature 0.

The paper names Fast-dLLM's protocol, a length and a block. What it does not say is chosen here and
told in the notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strop.assets import EMBEDDED
from strop.errors import UserError
from strop.table import Column, Table
from strop.verbs import entrants, paper
from strop.verbs.study import Sources, Study
from strop.verbs.verb import Ask, Parameter, Result, quoted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from strop.tasks import TaskSetting

NAME = "tasks"
TITLES = {"gsm8k": "GSM8K", "humaneval": "HumanEval", "sums": "Sums"}
TEMPERATURES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
SMALL_SWEEP = (0.0, 0.5, 1.0, 1.5, 2.0)
CHOSEN = (
    "The paper names Fast-dLLM's protocol, float32 draws, 256 tokens and blocks of 32. Chosen "
    "here: its {} mode ({}), five shots for GSM8K and its strict filter (both are in the table), "
    "the first 256 rows, LLaDA and the controls in their chat templates, Dream as plain text."
)
BARS = (
    "Bars are one standard error over seeds, the problems held fixed; intervals in brackets "
    "resample problems with all their seeds."
)
SMALL = (
    "The small models answer strop's own sums, with responses of 24 tokens: expect the shape of "
    "the curves, not the paper's numbers."
)
KEYS = ("task", "model", "temperature")
LOWEST, HIGHEST = "lowest of the four", "highest of the four"
"""What the paper says of its causal models."""
COLUMNS = (
    Column("task"),
    Column("model"),
    Column("filter"),
    Column("temperature", digits=None),
    Column("accuracy", percent=True, digits=3),
    Column("error", "SE over seeds", percent=True, digits=3),
    Column("right", digits=4, help="Problems, per seed."),
    Column("problems", "of"),
    Column("seeds"),
    Column("invalid", percent=True, digits=3, help="Responses without an answer."),
    Column("empty", percent=True, digits=3),
    Column("truncated", percent=True, digits=3, help="Responses that never end."),
    Column("tokens_per_call", "tokens per call", digits=3),
    Column("calls", digits=4),
    Column("seconds", digits=3),
)


def _run(ask: Ask) -> Result:
    other = ask["task_temperature"] or {}
    temperatures = {task: tuple(other.get(task, ask["temperature"])) for task in ask["task"]}
    answers = entrants.answer_tasks(ask, ask["task"], temperatures, ask["seeds"])
    rows = [
        {**row, "source": answer.labels[setting.label]}
        for task, answer in answers.items()
        for setting in answer.results.settings
        if setting.label in answer.labels and setting.temperature in temperatures[task]
        for row in _rows(task, setting, answer.results.filters)
    ]
    table = Table("Accuracy against temperature; 0 is greedy", COLUMNS, rows)
    first = {task: answer.results.filters[0] for task, answer in answers.items()}
    facts = {"answer": _answer(rows, first), "first_filter": first}
    notes = [BARS, *((SMALL,) if ask.smoke else ())]
    if ask.smoke or set(ask["task"]) & set(entrants.PAPER_TASKS):
        notes.insert(0, CHOSEN.format(ask["protocol"], entrants.MODES[ask["protocol"]]))
    return Result(ask.said(), table, facts=facts, notes=tuple(notes))


def _rows(task: str, setting: TaskSetting, filters: Sequence[str]) -> list[dict[str, Any]]:
    shared = {
        "problems": len(setting.index),
        "seeds": len(setting.seeds),
        "ungraded": setting.ungraded,
        "truncated": setting.truncated,
        "tokens_per_call": setting.tokens_per_call,
        "calls": setting.calls,
        "seconds": setting.seconds,
        "sampler": setting.sampler.model_dump(mode="json"),
    }
    rows = []
    for name in filters:
        accuracy, counts = setting.accuracy(name), setting.counts(name)
        right = float(setting.by_problem(name).sum())
        rows.append(
            {
                "task": task,
                "model": setting.label,
                "filter": name,
                "temperature": setting.temperature,
                "accuracy": accuracy,
                "error": setting.standard_error(name),
                "by_seed": setting.by_seed(name).tolist(),
                "right": round(right) if len(setting.seeds) == 1 else right,
                **{reason: counts[reason] / counts.total() for reason in ("invalid", "empty")},
                **shared,
            }
        )
    return rows


def _accuracy(row: Mapping[str, Any]) -> float:
    return row["accuracy"].value


def _answer(rows: Sequence[Mapping[str, Any]], first: Mapping[str, str]) -> list[str]:
    """For every model at every task, where it is best and how it ends."""
    sentences = []
    for task, model in dict.fromkeys((row["task"], row["model"]) for row in rows):
        own_rows = [
            r for r in rows if (r["task"], r["model"], r["filter"]) == (task, model, first[task])
        ]
        own_rows.sort(key=lambda row: row["temperature"])
        best, hottest = max(own_rows, key=_accuracy), own_rows[-1]
        sentences.append(
            f"{TITLES.get(task, task)}, {model}: best at temperature {best['temperature']:g} "
            f"({_accuracy(best):.1%}); {_accuracy(hottest):.1%} at {hottest['temperature']:g}"
        )
    return sentences


# ---------------------------------------------------------------- the figure


def _draw(result: Result) -> Figure:
    first = result.facts["first_filter"]
    return curves([row for row in result.table.rows if row["filter"] == first[row["task"]]])


def curves(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """A plot per task, a line per model; bars are one standard error over seeds."""
    from strop.figures import PALETTE, grouped, panels

    tasks = list(dict.fromkeys(row["task"] for row in rows))
    models = list(dict.fromkeys(row["model"] for row in rows))
    looks = {
        model: {"color": PALETTE[number % len(PALETTE)], "marker": "osD^v"[number % 5]}
        for number, model in enumerate(models)
    }
    figure, grid = panels(1, 2.7, len(tasks), len(tasks))
    lines = grouped(sorted(rows, key=lambda row: row["temperature"]), "task", "model")
    for number, (axes, task) in enumerate(zip(grid, tasks, strict=True)):
        for model in models:
            own_rows = lines.get((task, model), [])
            levels = [100 * _accuracy(r) for r in own_rows]
            bars = [100 * (r["error"] or 0) for r in own_rows]
            look: dict[str, Any] = {**looks[model], "ms": 3.5, "lw": 1.2, "capsize": 2}
            axes.errorbar([r["temperature"] for r in own_rows], levels, bars, label=model, **look)
        letter = f"({chr(ord('a') + number)}) " if len(tasks) > 1 else ""
        axes.set_title(f"{letter}{TITLES.get(task, task)}", loc="left")
        temperatures = sorted({row["temperature"] for row in rows if row["task"] == task})
        axes.set_xticks(temperatures, [f"{tau:g}" for tau in temperatures])
        axes.set(xlabel="temperature", ylim=(0, None))
        axes.grid(axis="y", lw=0.4, alpha=0.4)
    grid[0].set_ylabel("accuracy, %")
    handles = grid[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=min(2 * len(tasks), len(models)))
    return figure


# ---------------------------------------------------------------- beside the paper


def _beside(name: str) -> Any:
    """The paper's numbers and the curves; the small models' stand in rows of their own."""

    def table(result: Result, ask: Ask, roles: Mapping[str, str]) -> Table:
        printed = {
            key: f"{row['success']} ({row['right']} of {row['problems']})"
            for key, row in paper.table(name).by(*KEYS).items()
        }
        rows = []
        for row in _measured(result, {} if ask.smoke else roles):
            where = {key: row[key] for key in KEYS}
            numbers = {"filter": row["filter"], "paper": printed.get(tuple(where.values()))}
            percent = row["accuracy"].mapped(lambda share: 100 * share)
            rows.append({**where, **numbers, "measured": percent})
        reached = {tuple(row[key] for key in KEYS) for row in rows}
        lacking = [
            {**dict(zip(KEYS, key, strict=True)), "filter": None, "paper": text, "measured": None}
            for key, text in printed.items()
            if key not in reached
        ]
        keys = (Column("task"), Column("model"), Column("temperature", digits=None))
        return paper.beside("accuracy, %", (*keys, Column("filter")), [*lacking, *rows])

    return table


def _measured(result: Result, roles: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows under the paper's names, and of the four causal models the lowest and highest."""
    rows = [{**row, "model": roles.get(row["source"], row["model"])} for row in result.table.rows]
    greedy = [r for r in rows if (r["task"], r["temperature"]) == ("humaneval", 0)]
    if {row["model"] for row in greedy} == set(paper.declared()["large-models-control"]["sources"]):
        greedy.sort(key=_accuracy)
        rows += [{**greedy[0], "model": LOWEST}, {**greedy[-1], "model": HIGHEST}]
    return rows


def _check(ask: Ask) -> None:
    from strop.tasks import TASKS

    for task in (*ask["task"], *(ask["task_temperature"] or {})):
        TASKS.find(task, where="`task`")
    if not ask.sources:
        raise UserError(
            "There is no checkpoint to ask.", where="`checkpoint`", expected="one or more"
        )


STUDY = Study(
    name=NAME,
    title="Accuracy at tasks against temperature",
    about="Let every CHECKPOINT, diffusion or causal, answer every task greedily and with some "
    "seeds above temperature 0.",
    sources=Sources(
        ("CHECKPOINT...",),
        "As for `strop task run`.",
        tuple(entrants.DIFFUSION.values()),
        (EMBEDDED + "sums", EMBEDDED + "sums-ar"),
    ),
    parameters=(
        Parameter(
            "task", "Which; `strop task list`.", entrants.PAPER_TASKS, "words", smoke=("sums",)
        ),
        Parameter("temperature", "The sweep; 0 is greedy.", TEMPERATURES, "floats", SMALL_SWEEP),
        Parameter(
            "task_temperature",
            "Another sweep of one task, e.g. humaneval=0,0.5,1; may be repeated.",
            kind="axes",
        ),
        Parameter.count("seeds", "Runs at every temperature above 0.", 3),
        *entrants.TASK_PARAMETERS,
    ),
    run=_run,
    check=_check,
    draw=_draw,
    runs=(entrants.FOLDER,),
    next=lambda ask: (
        f"strop study conditional {quoted(ask.out / entrants.FOLDER / ask['task'][0])} "
        f"-o {quoted(ask.out)}-judged"
    ),
    examples=(
        "strop study tasks --smoke -o runs/tasks",
        "strop study tasks CHECKPOINT CHECKPOINT --task gsm8k --limit 32 -o runs/tasks",
    ),
    items=tuple(
        paper.item(name, _beside(name)) for name in ("large-models", "large-models-control")
    ),
)
