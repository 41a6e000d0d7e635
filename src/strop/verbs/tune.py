"""The search for a sampler's settings: spend few outputs, report the gain on fresh ones.

1. At every budget candidates race for the best objective inside the limits (`strop.tuning`).
2. The choices and their hash are written.
3. The standard sampler and the choices are drawn anew, under another seed; the gain is reported
   from there, and every limit is held against the fresh outputs again.
4. The choices are written as YAML that `strop sample --spec` reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.errors import UserError
from strop.measure.metric import CALLS, GEQ, PERPLEXITY, SECONDS, Number
from strop.rng import derive_seed
from strop.spec.generator import OperatingPoint, SamplerSpec
from strop.store import Folder
from strop.tasks import TASKS
from strop.tuning.gain import Choice, family_level, gain, spec_file, write_selection
from strop.tuning.race import Limit, Rules, guard_limits
from strop.tuning.result import BudgetResult, as_result, selected
from strop.tuning.result import draw as draw_figure
from strop.tuning.scorers import check_judge, judge_scorer, task_side
from strop.tuning.search import (
    BUDGET,
    FOLDER,
    USUAL,
    Bench,
    Search,
    Tuned,
    limit,
    side_space,
    tuned,
    usual,
)
from strop.tuning.space import parse
from strop.verbs import parameters, points
from strop.verbs.entrants import fingerprints
from strop.verbs.study import Study
from strop.verbs.verb import ASIDE, Ask, Parameter, Result, quoted

if TYPE_CHECKING:
    from strop.denoisers import Model
    from strop.measure.cells import Scorers
    from strop.measure.guard import Guard
    from strop.prompts.canvas import Canvases

YAML = "sampler-tuned.yaml"
MORE_STEPS = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
"""Steps that are tried for a budget of network calls, as multiples of it: a step may need none."""


# ---------------------------------------------------------------- running it


def _check(ask: Ask) -> None:
    ask.engine.refuse_shard("A search")
    objective = Number.resampled(_objective(ask))
    for text in ask["constraint"] or ():
        limit(text)
    axes = parse(ask["space"] or USUAL)
    if ask["task"] is not None:
        TASKS.find(ask["task"], where="`task`")
        if ask["prompts"] is not None:
            raise UserError("A task brings its own prompts.", where="`prompts`", fix="leave it out")
    elif _asks_for(ask, "task"):
        raise UserError(
            "No task was named whose accuracy could be searched by.",
            where="`task`",
            expected=f"one of {', '.join(TASKS)}",
        )
    if ask["sampler"] is not None and any(axis.name == "name" for axis in axes):
        raise UserError(
            "The samplers are both named and an axis.",
            where="`sampler`",
            got=ask["sampler"],
            fix="leave out `sampler`, or the axis `name`",
        )
    if _asks_for(ask, GEQ.name):
        check_judge(ask["judge"])
    if _asks_for(ask, GEQ.name) and any(ask[k] % points.GROUP for k in ("n", "first", "fresh_n")):
        raise UserError(
            "The judge reads groups of eight.",
            where="`first`",
            got=f"first {ask['first']}, n {ask['n']}, fresh {ask['fresh_n']}",
            expected="multiples of 8",
        )
    if ask["steps"] and ask["calls"]:
        raise UserError(
            "A budget is one of steps or one of network calls.",
            where="`calls`",
            fix="leave out `steps`, or `calls`",
        )
    if ask["budget"] < 2 * ask["first"] or ask["n"] < ask["first"]:
        raise UserError(
            "There are fewer outputs than two candidates start with.",
            where="`budget`" if ask["budget"] < 2 * ask["first"] else "`n`",
            got=f"{ask['budget']} in all, {ask['n']} a candidate, {ask['first']} to start with",
            expected=f"a budget of at least {2 * ask['first']}, n of at least {ask['first']}",
            fix="raise it, or lower `first`",
        )
    if not 0 <= ask["tolerance"] < 1:
        raise UserError(
            "`tolerance` is a share.",
            where="`tolerance`",
            got=ask["tolerance"],
            expected="a number from 0 and below 1, such as 0.02",
        )
    if objective.record in (CALLS, SECONDS) and not ask["constraint"] and not ask["guard"]:
        raise UserError("The cheapest sampler is no goal.", where="`objective`", got=objective.name)
    if ask["steps"] and len(ask["steps"]) > 1 and any(axis.name == "steps" for axis in axes):
        raise UserError(
            "Steps are both an axis and several budgets.", where="`space`", fix="leave one out"
        )


def _run(ask: Ask) -> Result:
    from strop.disk import write
    from strop.draw import sample_cells

    model = points.load(ask, ask.sources[0])
    canvases, more, start = points.canvases_of_ask(ask, model), {}, 0
    if ask["task"] is not None:
        side = task_side(model, ask["task"], ask["length"], ask.progress)
        canvases, more["task"] = side.canvases, side.scorer
        start = _unseen(ask, side.problems)
    if ask["force"]:
        sample_cells(model, [], n=[], out=ask.folder or ask.out, canvases=canvases, force=True)
    guard = _guard(ask, model, canvases)
    if _asks_for(ask, GEQ.name):
        more[GEQ.name] = judge_scorer(ask.out / FOLDER / "judged", ask["judge"], ask["seed"])
    by = points.scorers(ask, own=more)
    chosen = _search(ask, model, canvases, guard, by)
    now = {words: selected(choice) for words, (_, choice) in chosen.items()}
    digest = write_selection(ask.out, now)
    fresh = canvases if ask["task"] is not None else points.unseen(canvases, ask["n"])
    outcomes = _fresh_results(ask, model, fresh, guard, by, chosen, digest, start)
    gains = [outcome.gain for outcome in outcomes]
    heading = "The samplers that `strop tune` chose, one per budget."
    write(ask.out / YAML, spec_file(heading, [entry.choice for entry in gains], gains))
    plain = str(_standard(ask, model.spec.family))
    result = as_result(ask, model, plain, guard, Number.of(_objective(ask)), outcomes)
    if ask["task"] is not None or canvases is None or fresh is None:
        return result
    notes = points.prompt_notes(ask["n"], canvases.spec, fresh.spec)
    return replace(result, notes=(*result.notes, *notes))


def _objective(ask: Ask) -> str:
    """What is optimised; with a task, its accuracy."""
    return ask["objective"] or ("task" if ask["task"] is not None else "perplexity")


def _later(ask: Ask) -> str:
    """For a dry run: the rounds behind the first, which depend on it."""
    return (
        f"this is the first round; a search draws at most {ask['budget']:,} outputs at each budget "
        f"of steps, and {ask['fresh_n']:,} fresh ones of the standard sampler and of the choice"
    )


def _asks_for(ask: Ask, name: str) -> bool:
    goals = [_objective(ask), *(limit(text)[1].name for text in ask["constraint"] or ())]
    return name in (goal.partition(".")[0] for goal in goals)


def _unseen(ask: Ask, problems: int) -> int:
    """The first problem that the search has not seen: a greedy response is the same every time."""
    if ask["n"] + ask["fresh_n"] > problems:
        raise UserError(
            "There are too few problems to keep some for the end.",
            where="`fresh_n`",
            got=f"{problems} problems",
            expected=f"{ask['n']} to search on and {ask['fresh_n']} others",
            fix="lower `n`, or `fresh_n`",
        )
    return ask["n"]


def _search(
    ask: Ask, model: Model, canvases: Canvases | None, guard: Guard, by: Scorers
) -> dict[str, tuple[SamplerSpec, Tuned]]:
    """By budget: the standard sampler there, and what was found."""
    family = model.spec.family
    plain = _standard(ask, family)
    axes = tuple(ask["space"] or usual(family, ask["sampler"]))
    chosen = {}
    for words, number, limits in _budgets(ask, model):
        searched_axes = [*axes]
        if ask["calls"] and not any(axis.name == "steps" for axis in parse(axes)):
            searched_axes.append(
                "steps=" + ",".join(str(math.floor(k * number)) for k in MORE_STEPS)
            )
        space = side_space(family, searched_axes, number, sampler=ask["sampler"])
        for note in space.skipped:
            ask.note(note)
        search = Search(
            _objective(ask),
            ask["best"],
            (*(ask["constraint"] or ()), *limits),
            ask["guard"],
            ask["budget"],
            ask["first"],
            ask["n"],
            ask["tolerance"],
        )
        result = tuned(
            model,
            space,
            by,
            out=ask.folder or ask.out,
            search=search,
            guard=guard,
            seed=ask["seed"],
            length=ask["length"],
            canvases=canvases,
            progress=ask.progress,
        )
        if len(searched_axes) > len(axes) and result.sampler.steps == number:
            # The lower end of our own axis is no edge: fewer steps would not use the budget.
            edges = tuple(edge for edge in result.edges if not edge.startswith("steps "))
            result = replace(result, edges=edges)
        chosen[words] = (plain.at(number), result)
    return chosen


def _standard(ask: Ask, family: str) -> OperatingPoint:
    return points.standard(family, {axis.name: axis.values for axis in parse(ask["space"] or ())})


def _steps(ask: Ask) -> tuple[int, ...]:
    return ask["steps"] or ((8,) if ask.smoke else (64,))


def _most(ask: Ask) -> int:
    """Outputs at most: of every search, and fresh ones."""
    return len(ask["calls"] or _steps(ask)) * (ask["budget"] + 2 * ask["fresh_n"])


def _budgets(ask: Ask, model: Model) -> list[tuple[str, int, tuple[str, ...]]]:
    """Every budget in words, its number of steps, and the limit that it sets."""
    if ask["calls"]:
        return [(f"{calls} calls", calls, (f"calls<={calls}",)) for calls in ask["calls"]]
    numbers = points.budgets(model, _steps(ask))
    return [(f"M = {number}" if number else "all tokens", number, ()) for number in numbers]


def _guard(ask: Ask, model: Model, canvases: Canvases | None) -> Guard:
    """Of the texts that were given, of the run, or the default."""
    from strop.measure.guard import guard_of
    from strop.store import Run
    from strop.tuning.search import plain_generator

    held_out = ask["held_out"]
    if held_out is not None:  # the run that keeps it must be there
        Bench(
            model,
            ask.folder or ask.out,
            points.scorers(ask),
            length=ask["length"],
            canvases=canvases,
        ).cells(())
    return guard_of(
        plain_generator(model, ask["length"], canvases),
        Run(ask.out),
        held_out=None if held_out is None else Path(held_out),
        vocabulary=model,
    )


# ---------------------------------------------------------------- fresh outputs


def _fresh_results(
    ask: Ask,
    model: Model,
    canvases: Canvases | None,
    guard: Guard,
    by: Scorers,
    chosen: Mapping[str, tuple[SamplerSpec, Tuned]],
    digest: str,
    start: int,
) -> list[BudgetResult]:
    """The standard sampler and every choice, drawn again under another seed.

    With a task the problems that were searched on, those below `start`, do not count.
    """
    from strop.measure.cells import measure
    from strop.measure.frame import cut_notes
    from strop.store.folder import FRESH

    span = (start, start + ask["fresh_n"])
    bench = Bench(
        model,
        Folder(ask.out / FRESH / digest[:16], "run", ask.verb.name),
        by,
        seed=derive_seed(ask["seed"], "fresh"),
        length=ask["length"],
        canvases=canvases,
        batch=ask["first"],
        progress=ask.progress,
    )
    every_spec = [spec for plain, best in chosen.values() for spec in (plain, best.sampler)]
    specs = list(dict.fromkeys(every_spec))
    cells = dict(zip(specs, bench.cells([(spec, span[1]) for spec in specs]), strict=True))
    goal, results = Number.of(_objective(ask)), []
    level = family_level(sum(plain != best.sampler for plain, best in chosen.values()))
    for budget, (plain, best) in chosen.items():
        choice = _choice(budget, best, guard_limits(guard, ask["fresh_n"]) if ask["guard"] else ())
        names = dict.fromkeys([goal.name, *(limit.name for limit in choice.limits), CALLS.name])
        pair = [cells[plain], cells[best.sampler]]
        standard_row, row = measure(pair, list(names), by, guard=guard, outputs=span)
        gained = gain(choice, row, standard_row, goal, level=level, best=ask["best"])
        results.append(BudgetResult(best, gained, tuple(cut_notes([row]))))
    return results


def _choice(budget: str, best: Tuned, guard: Sequence[Limit]) -> Choice:
    """What a search chose, and what its fresh outputs must hold: diversity for sure, too."""
    point = OperatingPoint.of(best.sampler)
    raced = [limit for limit in best.limits if not limit.least]
    limits = (*raced, *(limit for limit in guard if limit.least))
    return Choice(budget, best.sampler.steps, point, best.holds, best.holds, best.edges, limits)


# ---------------------------------------------------------------- writing it


def _command(ask: Ask) -> dict[str, Any]:
    """What was asked, as far as the answer depends on it, without loading anything."""
    values = {k: v for k, v in ask.values.items() if k not in ASIDE}
    places = [ask.sources[0], ask["evaluator"], ask["held_out"], ask["prompts"]]
    words = {"values": values, "sources": ask.sources, "smoke": ask.smoke}
    return fingerprints(words, places=places, task=ask["task"])


STUDY = Study(
    name="tune",
    title="Which setting of its samplers suits a checkpoint best?",
    about="Search the settings of CHECKPOINT's samplers with few outputs: candidates race on "
    "common outputs, the clearly worse stop early. The gain is reported on fresh outputs.",
    parameters=(
        Parameter(
            "space",
            "What may be tried: temperature=0.6:1.1, eta=0.005:0.1:log, name=ancestral,remdm-cap; "
            "may be repeated.",
            kind="many",
            shown=" and ".join(USUAL),
        ),
        Parameter.counts(
            "steps",
            "Budgets of updates M, each searched on its own.",
            most=2**20 + 1,
            shown="64; with --smoke 8",
        ),
        Parameter.counts("calls", "Budgets of network calls per output instead.", most=2**20),
        Parameter(
            "objective",
            "A metric, or one of its numbers; also geq, calls and seconds.",
            shown="perplexity; with --task its accuracy",
        ),
        Parameter("task", "A task whose problems the outputs answer, e.g. sums."),
        Parameter("judge", "Who judges where the objective is geq.", "offline"),
        Parameter("best", "Which way is better.", choices=("min", "max"), shown="the metric's own"),
        Parameter(
            "constraint",
            "What a setting must hold, e.g. repetition<=0.2; may be repeated.",
            kind="many",
        ),
        Parameter("guard", "Hold the entropy guard, where there is one.", True, "flag"),
        Parameter("budget", "Outputs per search.", BUDGET, "int", smoke=128, least=4, most=2**31),
        Parameter(
            "n",
            "The most outputs of one candidate.",
            Rules.most,
            "int",
            smoke=32,
            least=2,
            most=2**31,
        ),
        Parameter(
            "first",
            "Outputs that a candidate starts with.",
            Rules.first,
            "int",
            smoke=4,
            least=2,
            most=2**31,
        ),
        Parameter.real("tolerance", "A share that is not worth more outputs.", Rules.tolerance),
        Parameter(
            "fresh_n", "Fresh outputs of the choice.", 128, "int", smoke=32, least=2, most=2**31
        ),
        parameters.evaluator(),
        parameters.SAMPLER,
        parameters.LENGTH,
        *parameters.ANSWERING,
        *parameters.SCORED,
        *parameters.SERVER,
    ),
    run=_run,
    draw=draw_figure,
    check=_check,
    later=_later,
    most=_most,
    needs_evaluator=lambda ask: _asks_for(ask, PERPLEXITY.name),
    kind="search",
    stamp=_command,
    next=lambda ask: (
        f"strop sample {quoted(ask.sources[0])} --spec {quoted(ask.out / YAML)} "
        f"-n 128 -o {quoted(ask.out)}-outputs"
    ),
    examples=(
        "strop tune --smoke -o runs/tune",
        "strop tune --space temperature=0.6:1.1 --space top_p=0.8:1 --steps 16,64 -o runs/tuned",
        "strop tune --space name=ancestral,remdm-cap --space eta=0.005:0.1:log -o runs/revised",
    ),
)
