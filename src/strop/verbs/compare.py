"""Is A better than B, or only sharper? Tune both sides, then compare at equal sharpness.

1. Each side's settings are searched on the same number of outputs (`strop.tuning.search`).
2. Every setting that is shown is drawn anew: as published, tuned, and the tuned sampler at every
   temperature of the sweep, which traces its frontier.
3. `strop.comparing` says what follows, by stated rules; how often they err: docs/compare.md.

Runs of the checkpoints lie in RUN/runs, one per checkpoint: equal settings are one cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from strop.assets import CHECKPOINT
from strop.comparing.compare import MARGIN, Comparison, compare
from strop.comparing.diversity import Diversity, common_length, held_out_diversity
from strop.comparing.figure import draw
from strop.comparing.frontier import FEWEST, Level
from strop.comparing.outputs import SPACE, Named, SideOutputs, errors_at, is_causal, named
from strop.comparing.result import Budget, SideAtBudget, result
from strop.comparing.verdict import SMOKE as TOO_SMALL
from strop.comparing.verdict import SideVerdict
from strop.errors import UserError
from strop.spec.generator import SamplerSpec
from strop.tuning.search import BUDGET
from strop.tuning.space import parse
from strop.verbs import parameters
from strop.verbs.points import TEMPERATURES, load, scorers
from strop.verbs.study import Sources, Study
from strop.verbs.verb import Ask, Parameter, Result, report_command

if TYPE_CHECKING:
    from strop.measure.cells import Scorers
    from strop.measure.guard import Guard
    from strop.tuning.search import Tuned
    from strop.tuning.space import Space

RUNS = ("runs", "groupeval")
ADDED = 4
"""At most so many temperatures are added where straight lines between the given ones are off."""
LONGEST_NAME = 60
SIDES, SMOKE = (CHECKPOINT, CHECKPOINT), ("temperature=0.85",)
"""The sides of a smoke run, and the published setting of its first one."""


# ---------------------------------------------------------------- running it


def _check(ask: Ask) -> None:
    ask.engine.refuse_shard("A comparison")
    if len(ask.sources) != 2:
        raise UserError(
            "A comparison has two sides.",
            where="A, B",
            got=", ".join(ask.sources) or "none",
            expected="strop compare A B -o RUN",
        )
    _sides_of(ask)
    _check_names(ask["a_name"] or "A", ask["b_name"] or "B")
    for tau in ask["temperature"]:
        SamplerSpec(temperature=float(tau))
    if len(set(ask["temperature"])) < FEWEST:
        raise UserError(
            "A frontier needs three temperatures: left out, the middle one shows how far straight "
            "lines between the others are off.",
            where="`temperature`",
            got=", ".join(map(str, ask["temperature"])),
            fix="leave `temperature` out: seven are usual",
        )
    if ask["judge"] and ask["n"] % 8:
        raise UserError(
            "The judge reads groups of eight.", where="`n`", got=ask["n"], expected="n % 8 = 0"
        )


def _check_names(a: str, b: str) -> None:
    """Names must be printable in tables, figures and terminals, and different."""
    for flag, name in (("a_name", a), ("b_name", b)):
        if not name.isprintable() or name != name.strip() or len(name) > LONGEST_NAME:
            raise UserError(
                "A side's name cannot be printed in a table.",
                where=f"`{flag}`",
                got=ascii(name[:LONGEST_NAME]),
                expected=f"at most {LONGEST_NAME} letters, no control characters, no blank ends",
            )
    if a == b:
        raise UserError("Both sides have one name.", where="`b_name`", got=b)


def _sides_of(ask: Ask) -> tuple[Named, Named]:
    # A smoke run without sides compares one checkpoint with itself.
    alone = ask.smoke and ask.sources == SIDES
    usual = {"a": SMOKE if alone else (), "b": ()}
    sides = [
        named(source, ask[flag] or usual[flag], ask[f"{flag}_space"] or (), flag)
        for source, flag in zip(ask.sources, ("a", "b"), strict=True)
    ]
    return sides[0], sides[1]


def _run(ask: Ask) -> Result:
    from strop.comparing.outputs import equal_steps, look_number, same_length

    (ask.out / RUNS[0]).mkdir(exist_ok=True)
    named_sides = _sides_of(ask)
    models = {side.source: load(ask, side.source) for side in named_sides if side.tunable}
    ask = same_length(ask, named_sides, models)
    by = scorers(ask)
    sides = [SideOutputs(ask, side, models.get(side.source), by) for side in named_sides]
    for side in sides:
        for number in ask["steps"] if side.named.tunable else ():
            side.spec(number)  # refused before the other side is searched and drawn
            _space(side, number)
    budgets = tuple(ask["steps"])
    if all(not side.named.tunable or is_causal(side) for side in sides):
        budgets = budgets[:1]  # no side has a second budget
    level = Level(look_number(ask, sides, budgets), len(budgets))
    bases = {
        number: [
            _base(ask, side, many, by)
            for side, many in zip(sides, equal_steps(ask, sides, number), strict=True)
        ]
        for number in budgets
    }
    notes: list[str] = []
    sweep = sorted(set(ask["temperature"]))
    while True:
        measured = {
            number: [_measure(side, base, sweep) for side, base in zip(sides, pair, strict=True)]
            for number, pair in bases.items()
        }
        pools = [
            point.scored for pair in measured.values() for side in pair for point in side.points()
        ]
        tokens = common_length(pools)
        guard = _guard(ask, sides, tokens)
        comparisons = {
            number: _comparison(ask, pair, level, guard, tokens)
            for number, pair in measured.items()
        }
        added = [] if ask.smoke else _bent_temperatures(comparisons.values(), sweep)
        if not added or len(sweep) + len(added) > len(set(ask["temperature"])) + ADDED:
            break
        notes.append(
            f"added to the sweep: temperature {', '.join(f'{tau:g}' for tau in added)}, where "
            "straight lines between its neighbours are off by more than a third of the margin"
        )
        sweep = sorted([*sweep, *added])
    results = {
        number: _budget_result(ask, number, sides, pair, level, guard, tokens, comparisons[number])
        for number, pair in measured.items()
    }
    return result(ask, sides, guard, level, results, notes)


def _bent_temperatures(comparisons: Iterable[Comparison], sweep: Sequence[float]) -> list[float]:
    """Temperatures in the middle of where a frontier bends too much for straight lines."""
    pairs = {pair for comparison in comparisons for pair in comparison.thin}
    return sorted({round((sweep[low] + sweep[high]) / 2, 4) for low, high in pairs} - {*sweep})


def _guard(ask: Ask, sides: Sequence[SideOutputs], tokens: int) -> Guard:
    """One guard for both sides, at this number of the evaluator's tokens."""
    from strop.comparing.outputs import pool_cell
    from strop.measure.guard import Guard, evaluator_guard

    pools = [pool_cell(side.named.source) for side in sides if side.named.kind == "pool"]
    if any(pool.spec.generator.prompts is not None for pool in pools):
        return Guard(tokens, None, "the outputs answer prompts, and the texts we know answer none")
    held_out = ask["held_out"]
    return evaluator_guard(ask.evaluator, tokens, None if held_out is None else Path(held_out))


@dataclass(frozen=True)
class _Base:
    """The samplers of a side at a budget: as published, and as a search found it."""

    steps: int
    published: SamplerSpec | None
    """None for a pool that exists already."""
    search: Tuned | None = None


def _base(ask: Ask, side: SideOutputs, steps: int, by: Scorers) -> _Base:
    if not side.named.tunable:
        return _Base(steps, None)
    search = _search(ask, side, steps, by) if ask["budget"] else None
    return _Base(steps, side.spec(steps), search)


def _measure(side: SideOutputs, base: _Base, sweep: Sequence[float]) -> SideAtBudget:
    """Draw all points of a side at one budget anew."""
    if base.published is None:
        only = side.fixed()
        return SideAtBudget(base.steps, only, None, (only,))
    chosen = base.published if base.search is None else base.search.sampler
    frontier = [side.at(chosen.model_copy(update={"temperature": tau})) for tau in sweep]
    return SideAtBudget(
        base.steps,
        side.at(base.published),
        None if base.search is None else side.at(chosen),
        tuple(frontier),
        base.search,
        chosen,
    )


def _search(ask: Ask, side: SideOutputs, steps: int, by: Scorers) -> Tuned:
    """The best setting of the side's space, on as many outputs as the other side's search has."""
    from strop.measure.guard import guard_of
    from strop.tuning.search import Search, plain_generator, tuned

    assert side.model is not None
    held_out = ask["held_out"]
    guard = guard_of(
        plain_generator(side.model, ask["length"], None),
        held_out=None if held_out is None else Path(held_out),
        vocabulary=side.model,
    )
    usual = Search()
    first = min(usual.first, max(2, ask["budget"] // 8))
    most = max(first, min(usual.most, ask["budget"] // 4))
    search = Search(budget=ask["budget"], first=first, most=most)
    return tuned(
        side.model,
        _space(side, steps),
        by,
        out=side.run,
        search=search,
        guard=guard,
        seed=ask["seed"],
        length=ask["length"],
        progress=ask.progress,
    )


def _space(side: SideOutputs, steps: int) -> Space:
    """What may be tuned: the side's axes around its published sampler."""
    from strop.tuning.search import side_space

    assert side.model is not None
    axes = side.named.space
    free = {axis.name for axis in parse(axes)}
    fixed = {k: v for k, v in side.named.sampler.items() if k not in free}
    sampler = fixed.pop("name", None)
    with errors_at(side.named.where):
        return side_space(side.model.spec.family, axes, steps, sampler=sampler, **fixed)


def _comparison(
    ask: Ask,
    sides: Sequence[SideAtBudget],
    level: Level,
    guard: Guard,
    tokens: int,
    diverse: Sequence[Diversity] = (),
) -> Comparison:
    """By the rules."""
    less = held_out_diversity([side.published.diversity(tokens, guard) for side in sides], guard)
    diverse = [*diverse, *([] if less is None else [less])]
    comparison = compare(
        sides[0].side(tokens),
        sides[1].side(tokens),
        margin=ask["margin"],
        level=level,
        floor=guard.threshold,
        judged=diverse,
        seed=ask["seed"],
    )
    if ask.smoke:
        return replace(comparison, verdict=SideVerdict("cannot tell", TOO_SMALL))
    return comparison


def _budget_result(
    ask: Ask,
    number: int,
    sides: Sequence[SideOutputs],
    pair: Sequence[SideAtBudget],
    level: Level,
    guard: Guard,
    tokens: int,
    comparison: Comparison,
) -> Budget:
    """A budget's results; with a judge of both sides at one entropy, the rules apply once more."""
    if not ask["judge"] or comparison.equal is None:
        return Budget(pair, comparison, tokens)
    from strop.comparing.judge import judged

    entropy = (comparison.equal.low + comparison.equal.high) / 2
    readings = judged(ask, number, sides, pair, tokens, entropy)
    diverse = [reading.diversity for reading in readings if reading.diversity is not None]
    rows = tuple(row for reading in readings for row in reading.rows)
    return Budget(pair, _comparison(ask, pair, level, guard, tokens, diverse), tokens, rows)


STUDY = Study(
    name="compare",
    title="Is A better than B, or only sharper?",
    about="Tune both sides on equally many outputs and compare them as published, tuned, and at "
    "equal sharpness. A side is a checkpoint, a run's cell (RUN@CELL), texts, or a YAML file.",
    sources=Sources(
        ("A", "B"),
        "A checkpoint as for `strop sample`, RUN@CELL, texts, or a YAML file of a side.",
        (),
        SIDES,
    ),
    parameters=(
        Parameter(
            "a",
            "A's published setting, e.g. temperature=0.9; repeatable.",
            kind="many",
            shown=f"with --smoke alone {SMOKE[0]}",
        ),
        Parameter("b", "B's published setting, likewise.", kind="many"),
        Parameter(
            "a_space",
            "What may be tuned for A, e.g. eta=0.005:0.1:log; repeatable.",
            kind="many",
            shown=" and ".join(SPACE),
        ),
        Parameter("b_space", "Likewise for B.", kind="many", shown=" and ".join(SPACE)),
        parameters.steps(64, smoke=(8,)),
        Parameter(
            "equal",
            "What both sides have alike at a budget.",
            "steps",
            choices=("steps", "calls", "seconds"),
        ),
        parameters.outputs(256, smoke=32, words="Outputs per temperature and side.", least=8),
        Parameter(
            "temperature",
            "The sweep that traces the frontiers.",
            TEMPERATURES,
            "floats",
            smoke=(0.8, 0.9, 1.0, 1.1),
        ),
        Parameter(
            "budget",
            "Outputs of each side's search at each budget; 0 for no search.",
            BUDGET,
            "int",
            smoke=64,
        ),
        Parameter("a_name", "What A is called in tables, figures and the verdict.", shown="A"),
        Parameter("b_name", "What B is called.", shown="B"),
        Parameter("margin", "The smallest difference in perplexity that matters.", MARGIN, "share"),
        Parameter("vendi", "Embeddings for diversity.", "auto", choices=("auto", "on", "off")),
        Parameter("judge", "Who judges both at one entropy, by GEQ and GED.", choices=("offline",)),
        parameters.evaluator(),
        parameters.LENGTH,
        *parameters.SCORED,
        *parameters.SERVER,
    ),
    run=_run,
    draw=draw,
    check=_check,
    kind="comparison",
    origins=lambda ask: [side.source for side in _sides_of(ask)],
    later=lambda ask: (
        f"this is the first draw; each side draws at most {ask['budget']:,} outputs in its search "
        f"and {ask['n']:,} at every temperature of its frontier, at each budget of steps"
    ),
    most=lambda ask: (
        2 * len(ask["steps"]) * (ask["budget"] + ask["n"] * (1 + len(set(ask["temperature"]))))
    ),
    runs=RUNS,
    next=lambda ask: report_command(ask.out),
    examples=(
        "strop compare --smoke -o runs/compare",
        "strop compare embedded:tales embedded:tales-early --steps 16 -o runs/checkpoints",
        "strop compare embedded:tales embedded:tales --a name=remdm-cap --a eta=0.02 -o runs/remdm",
    ),
)
