"""Is A better than B, or only sharper? Tune both sides, then compare at equal sharpness.

1. Each side's settings are searched on the same number of outputs (`strop.studies.tuned`).
2. Every setting that is shown is drawn anew: as published, tuned, and the tuned sampler at every
   temperature of the sweep, which traces its frontier.
3. `strop.comparing` says what follows, by stated rules; how often they err: docs/compare.md.

Runs of the checkpoints lie in RUN/runs, one per checkpoint: equal settings are one cell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.assets import CHECKPOINT
from strop.comparing import Comparison, Level, Side, compare, overall
from strop.comparing.compare import MARGIN
from strop.comparing.diversity import Diversity
from strop.comparing.frontier import PARTS
from strop.comparing.words import sentence
from strop.errors import UserError
from strop.spec import SamplerSpec
from strop.studies import parameters
from strop.studies.compare_figure import draw
from strop.studies.compare_sides import SPACE, Named, Outputs, Point, is_causal, named
from strop.studies.measure import TEMPERATURES
from strop.studies.study import Ask, Parameter, Result, Sources, Study, report_command
from strop.studies.tuned import BUDGET
from strop.table import Column, Table

if TYPE_CHECKING:
    from strop.metrics.bootstrap import Interval
    from strop.metrics.guard import Guard
    from strop.studies.goals import Reader
    from strop.studies.tuned import Tuned

__all__ = ["STUDY"]

RUNS = ("runs", "groupeval")
LETTERS = ("A", "B")


@dataclass(frozen=True)
class Measured:
    """One side at one budget."""

    steps: int
    published: Point
    tuned: Point | None
    frontier: tuple[Point, ...]
    search: Tuned | None = None
    base: SamplerSpec | None = None
    """The sampler whose temperature traces the frontier; None of a pool that is there."""

    def side(self) -> Side:
        """As the rules want it."""
        return Side(
            [one.sample for one in self.frontier],
            self.published.sample,
            None if self.tuned is None else self.tuned.sample,
        )

    def points(self) -> list[Point]:
        """Every setting once, the frontier in order of temperature."""
        found = [self.published, *([] if self.tuned is None else [self.tuned]), *self.frontier]
        return list(dict.fromkeys(found))


# ---------------------------------------------------------------- running it


def _check(ask: Ask) -> None:
    if len(ask.sources) != 2:
        raise UserError(
            "A comparison has two sides.",
            where="`a`, `b`",
            got=", ".join(ask.sources) or "none",
            expected="strop compare A B -o RUN",
        )
    _named(ask)
    if not 0 < ask["margin"] < 1:
        raise UserError("The margin is a share.", where="`margin`", got=ask["margin"])
    if len(ask["temperature"]) < 2:
        raise UserError(
            "A frontier needs two temperatures.",
            where="`temperature`",
            got=", ".join(map(str, ask["temperature"])),
        )
    if ask["judge"] and ask["n"] % 8:
        raise UserError(
            "The judge reads groups of eight.", where="`n`", got=ask["n"], expected="n % 8 = 0"
        )


def _named(ask: Ask) -> tuple[Named, Named]:
    both = [
        named(source, ask[flag] or (), ask[f"{flag}_space"] or (), flag)
        for source, flag in zip(ask.sources, ("a", "b"), strict=True)
    ]
    return both[0], both[1]


def _run(ask: Ask) -> Result:
    from strop.studies.compare_equal import equal_steps, same_length
    from strop.studies.compare_looks import look_number
    from strop.studies.goals import Reader

    if ask["force"]:
        import shutil

        for name in RUNS:
            shutil.rmtree(ask.out / name, ignore_errors=True)
    (ask.out / RUNS[0]).mkdir(exist_ok=True)
    ask = same_length(ask, _named(ask))
    reader = Reader(lambda: ask.evaluator, ask["span"], ask.progress)
    sides, told = _sides(ask, reader)
    guard = _guard(ask, sides)
    budgets = tuple(ask["steps"])
    if all(not one.named.tunable or is_causal(one) for one in sides):
        budgets = budgets[:1]  # nobody has another one
    level = Level(look_number(ask, sides, budgets), len(budgets))
    found, measured = {}, {}
    for number in budgets:
        steps = equal_steps(ask, sides, number)
        measured[number] = [
            _measure(ask, side, many, guard, reader)
            for side, many in zip(sides, steps, strict=True)
        ]
        found[number] = _compared(ask, number, sides, measured[number], level, guard)
    return _result(ask, sides, guard, level, measured, found, told)


def _sides(ask: Ask, reader: Reader) -> tuple[list[Outputs], list[str]]:
    """Both sides with their checkpoints, and in whose tokens entropy is counted."""
    from strop.studies.compare_sides import pool_cell
    from strop.studies.measure import load

    both, models = _named(ask), {}
    for one in both:
        if one.tunable and one.source not in models:
            models[one.source] = load(ask, one.source)
    marks = []
    for one in both:
        if one.kind == "checkpoint":
            codec = models[one.source].codec
            weights = models[one.source].spec.sha256
            marks.append({weights, *([] if codec is None else [codec.fingerprint])})
        else:
            pool = one.kind == "pool"
            marks.append(
                {pool_cell(one.source).spec.generator.checkpoint.sha256} if pool else set()
            )
    shared = bool(marks[0] & marks[1])
    told = [
        "entropy is counted in the generators' own tokens, which are the same"
        if shared
        else f"entropy is counted in the tokens of {ask.evaluator.spec.name} on both sides: they "
        "have no vocabulary in common"
    ]
    made = [Outputs(ask, one, models.get(one.source), reader, not shared) for one in both]
    return made, told


def _guard(ask: Ask, sides: Sequence[Outputs]) -> Guard:
    """One for both sides: of their vocabulary and length, where these are the same."""
    from strop.metrics.guard import Guard, default_guard, held_out_guard
    from strop.studies.tuned import plain_generator

    models = [one.model for one in sides if one.model is not None]
    if not models or any(one.evaluator_tokens for one in sides):
        return Guard(0, None, "it belongs to a vocabulary and a length that both sides share")
    generator = plain_generator(models[0], ask["length"], None)
    given = ask["held_out"]
    if given is None:
        return default_guard(generator)
    return held_out_guard(Path(given), generator.length, models[0])


def _measure(ask: Ask, side: Outputs, steps: int, guard: Guard, reader: Reader) -> Measured:
    """Search, then draw everything anew."""
    if not side.named.tunable:
        only = side.fixed()
        return Measured(steps, only, None, (only,))
    published = side.spec(steps)
    search = _search(ask, side, steps, guard, reader) if ask["budget"] else None
    base = published if search is None else search.sampler
    frontier = [
        side.at(base.model_copy(update={"temperature": tau})) for tau in sorted(ask["temperature"])
    ]
    return Measured(
        steps,
        side.at(published),
        None if search is None else side.at(base),
        tuple(frontier),
        search,
        base,
    )


def _search(ask: Ask, side: Outputs, steps: int, guard: Guard, reader: Reader) -> Tuned:
    """The best setting of the side's space, on as many outputs as the other side's search has."""
    from strop.studies.tuned import Search, side_space, tuned
    from strop.tuning.space import parse

    assert side.model is not None
    axes = side.named.space
    free = {one.name for one in parse(axes)}
    fixed = {k: v for k, v in side.named.sampler.items() if k not in free}
    sampler = fixed.pop("name", None)
    space = side_space(side.model.spec.family, axes, steps, sampler=sampler, **fixed)
    first = min(8, max(2, ask["budget"] // 8))
    search = Search(budget=ask["budget"], first=first, most=max(first, ask["budget"] // 4))
    return tuned(
        side.model,
        None,
        space,
        out=side.run,
        budget=ask["budget"],
        search=search,
        guard=guard,
        seed=ask["seed"],
        length=ask["length"],
        reader=reader,
        progress=ask.progress,
    )


def _compared(
    ask: Ask,
    number: int,
    sides: Sequence[Outputs],
    measured: Sequence[Measured],
    level: Level,
    guard: Guard,
) -> Comparison:
    """By the rules; with a judge, who reads both sides at one entropy, once more."""

    def by_rules(judged: Sequence[Diversity]) -> Comparison:
        return compare(
            measured[0].side(),
            measured[1].side(),
            margin=ask["margin"],
            level=level,
            floor=guard.threshold,
            judged=judged,
            seed=ask["seed"],
        )

    found = by_rules(())
    if not ask["judge"] or found.equal is None:
        return found
    from strop.studies.compare_judge import judged

    middle = (found.equal.low + found.equal.high) / 2
    return by_rules(judged(ask, number, sides, measured, middle))


# ---------------------------------------------------------------- what came out


LAYER_COLUMNS = (
    Column("steps", "M"),
    Column("layer"),
    Column("a", "perplexity of A"),
    Column("b", "of B"),
    Column("ratio", "A over B", digits=4, ends=("low", "high")),
    Column("entropy_a", "entropy of A", digits=3),
    Column("entropy_b", "of B", digits=3),
    Column("sharper", "A minus B, nats", digits=3, ends=("less", "more"), signed=True),
)


def _layers(number: int, found: Comparison) -> list[dict[str, Any]]:
    rows = []
    for name, layer in (("as published", found.published), ("tuned", found.tuned)):
        if layer is not None:
            rows.append(
                {
                    "steps": number,
                    "layer": name,
                    "a": layer.perplexity[0],
                    "b": layer.perplexity[1],
                    **_ratio(layer.gap),
                    "entropy_a": layer.entropy[0],
                    "entropy_b": layer.entropy[1],
                    "sharper": layer.sharper.value,
                    "less": layer.sharper.low,
                    "more": layer.sharper.high,
                }
            )
    equal = found.equal
    if equal is None:
        return rows
    named_parts = [("at equal sharpness", equal.mean)]
    if len(equal.parts) > 1:
        named_parts += [
            (f"... {name} half", part) for name, part in zip(PARTS, equal.parts, strict=True)
        ]
    for name, gap in named_parts:
        ends = {"entropy_a": equal.low, "entropy_b": equal.high}
        rows.append({"steps": number, "layer": name, **_ratio(gap), **ends})
    return rows


def _ratio(gap: Interval) -> dict[str, float]:
    value, low, high = (math.exp(min(end, 700.0)) for end in (gap.value, gap.low, gap.high))
    return {"ratio": value, "low": low, "high": high}


FRONTIER_COLUMNS = (
    Column("side"),
    Column("steps", "M"),
    Column("setting"),
    Column("outputs", "n"),
    Column("perplexity"),
    Column("entropy", digits=3),
    Column("vendi", "Vendi", digits=3),
    Column("calls", "network calls", digits=3),
    Column("seconds", "seconds", digits=2),
)
DIVERSITY_COLUMNS = (
    Column("steps", "M"),
    Column("measure"),
    Column("a", "A", digits=3),
    Column("b", "B", digits=3),
    Column("state_a", "A is"),
    Column("state_b", "B is"),
)


def _result(
    ask: Ask,
    sides: Sequence[Outputs],
    guard: Guard,
    level: Level,
    measured: Mapping[int, Sequence[Measured]],
    found: Mapping[int, Comparison],
    told: Sequence[str],
) -> Result:
    from strop.studies.compare_equal import unequal

    frontier = [
        {**point.row(letter, one.steps), "budget": number, "part": _part(one, point)}
        for number, both in measured.items()
        for letter, one in zip(LETTERS, both, strict=True)
        for point in one.points()
    ]
    diverse = [
        {"steps": number, **asdict(state)}
        for number, one in found.items()
        for state in one.diversity
    ]
    layers = [row for number, one in found.items() for row in _layers(number, one)]
    verdict = overall({number: one.verdict for number, one in found.items()})
    several = len(found) > 1
    answer = [
        (f"M = {number}: " if several else "") + sentence(one) for number, one in found.items()
    ]
    if several:
        answer.insert(0, f"Over all budgets: {verdict.kind}. {verdict.why}.".replace("..", "."))
    names = [_name(one) for one in sides]
    confidence = f"{level.same:.4g} and {level.different:.4g}"
    notes = [
        *(f"{letter}: {name}" for letter, name in zip(LETTERS, names, strict=True)),
        *told,
        *unequal(ask, sides, measured),
        f"look {level.look} at these outputs, {level.budgets} budgets: intervals that must lie "
        f"inside the margin and those that must exclude equality have confidence {confidence}",
        *_search_notes(measured),
        str(guard),
    ]
    table = Table(
        "A against B: perplexity of A over that of B; at equal sharpness the two entropies are the "
        "ends of the common range",
        LAYER_COLUMNS,
        layers,
    )
    more = {
        "frontier": Table("Every setting, on fresh outputs", FRONTIER_COLUMNS, frontier),
    }
    if diverse:
        more["diversity"] = Table(
            "Diversity at equal sharpness: how alike two outputs are (GED: its own scale)",
            DIVERSITY_COLUMNS,
            diverse,
        )
    facts = {
        "answer": answer,
        "verdict": asdict(verdict),
        "verdicts": {str(number): asdict(one.verdict) for number, one in found.items()},
        "sides": names,
        "margin": ask["margin"],
        "level": {"look": level.look, "budgets": level.budgets, "same": level.same}
        | {"different": level.different},
        "equal": {
            str(number): None if one.equal is None else asdict(one.equal)
            for number, one in found.items()
        },
        "guard": {"threshold": guard.threshold, "source": guard.source},
        "spent": {str(number): _spent(both) for number, both in measured.items()},
    }
    said = ask.said(checkpoints=list(ask.sources))
    return Result(said, table, more, facts, tuple(notes))


def _part(one: Measured, point: Point) -> str:
    """What a setting is for, in a word or two."""
    parts = ["frontier"] if point in one.frontier else []
    parts += ["published"] if point is one.published else []
    return ", ".join([*parts, *(["tuned"] if point is one.tuned else [])])


def _name(side: Outputs) -> str:
    if not side.named.tunable:
        return f"{side.named.source} (a pool that is there: it cannot be tuned)"
    fields = ", ".join(f"{k}={v}" for k, v in side.named.sampler.items())
    return f"{side.named.source} with " + (fields or "its family's own sampler")


def _search_notes(measured: Mapping[int, Sequence[Measured]]) -> list[str]:
    notes = []
    for number, both in measured.items():
        for letter, one in zip(LETTERS, both, strict=True):
            if one.search is None:
                continue
            assert one.tuned is not None
            words = (
                f"{letter} tuned at M = {number}: {one.tuned.setting}, searched with "
                f"{one.search.spent} outputs of {len(one.search.tried)} settings"
            )
            words += "" if one.search.holds else "; no setting surely held the guard"
            notes.append("; ".join([words, *one.search.edges]))
    return notes


def _spent(both: Sequence[Measured]) -> list[dict[str, Any]]:
    """Per side: the outputs of the search and those that are shown."""
    return [
        {
            "side": letter,
            "searched": 0 if one.search is None else one.search.spent,
            "shown": sum(point.sample.n for point in one.points()),
            "published": one.published.setting,
            "tuned": None if one.tuned is None else one.tuned.setting,
            "steps": one.steps,
        }
        for letter, one in zip(LETTERS, both, strict=True)
    ]


STUDY = Study(
    name="compare",
    title="Is A better than B, or only sharper?",
    about="Tune both sides on equally many outputs and compare them as published, tuned, and at "
    "equal sharpness. A side is a checkpoint, a run's cell (RUN@CELL), texts, or a YAML file.",
    sources=Sources(
        ("A", "B"),
        "A checkpoint as for `strop sample`, RUN@CELL, texts, or a YAML file of a side.",
        (),
        (CHECKPOINT, CHECKPOINT),
    ),
    parameters=(
        Parameter(
            "a",
            "A's published setting, e.g. temperature=0.9; repeatable.",
            kind="many",
            smoke=("temperature=0.85",),
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
        Parameter("margin", "The smallest difference in perplexity that matters.", MARGIN, "float"),
        Parameter("vendi", "Embeddings for diversity.", "auto", choices=("auto", "on", "off")),
        Parameter("judge", "Judge both at one entropy: GEQ and GED, offline.", False, "flag"),
        parameters.evaluator(),
        parameters.LENGTH,
        *parameters.SCORED,
    ),
    run=_run,
    draw=draw,
    check=_check,
    runs=RUNS,
    verb=True,
    next=lambda ask: report_command(ask.out),
    examples=(
        "strop compare --smoke -o runs/compare",
        "strop compare embedded:tales embedded:tales-early --steps 16 -o runs/checkpoints",
        "strop compare embedded:tales embedded:tales --a name=remdm-cap --a eta=0.02 -o runs/remdm",
    ),
)
