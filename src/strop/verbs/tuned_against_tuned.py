"""How much of each method's gain survives when the baseline is tuned, too?

Every method is tuned on the same number of outputs, the plain sampler among them. On fresh outputs
two ratios are reported: perplexity of the plain sampler over that of the method, both as published
(the sampler's defaults at temperature 1); and both tuned, at equal entropy. The temperature at
which a search stops beside the guard is chance, and a hundredth of a nat is worth 5% of perplexity:
one sampler tuned twice would "differ" from itself in most pairs. So the temperature that a search
chose is not compared: the tuned setting is drawn at every temperature, and the two frontiers are
held against each other by the rules of `strop compare`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from strop.comparing.frontier import FEWEST
from strop.comparing.verdict import SMOKE as TOO_SMALL
from strop.errors import UserError
from strop.measure.metric import Number
from strop.rng import derive_seed
from strop.spec.generator import OperatingPoint, SamplerSpec
from strop.stats.interval import Interval
from strop.stats.resample import jackknife
from strop.store import Folder
from strop.table import Column, Table
from strop.tuning.race import Rules
from strop.tuning.search import Bench, Search, Tuned, plain_generator, side_space, tuned
from strop.verbs import parameters
from strop.verbs.points import TEMPERATURES, load, scorers
from strop.verbs.study import Study
from strop.verbs.verb import Ask, Parameter, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from strop.comparing.compare import Comparison
    from strop.denoisers import Model
    from strop.measure.cells import Scorers
    from strop.measure.guard import Guard

LEVEL = 0.95
PLAIN = "ancestral"
SEARCH, FRESH = "search", "fresh"
HEAT = "temperature=0.6:1.1"


@dataclass(frozen=True)
class Method:
    """One sampler with its own settings, and the axes that it is tuned along."""

    name: str
    sampler: str
    axes: tuple[str, ...]
    fixed: dict[str, Any] = field(default_factory=dict)
    published: dict[str, Any] = field(default_factory=dict)
    """What its publication sets, where that is no default."""


def _order(score: str) -> Method:
    """A decoder that takes the surest positions first, on one canvas."""
    fixed = {"score": score, "block_length": 0}
    return Method(f"{score} order", "blockwise", (HEAT, "top_p=0.8:1"), fixed)


METHODS = (
    Method(PLAIN, "ancestral", (HEAT, "precision=float64,float32")),
    Method("top-p", "ancestral", (HEAT, "top_p=0.7:1"), published={"top_p": 0.9}),
    Method("remdm-cap", "remdm-cap", (HEAT, "top_p=0.8:1", "eta=0.002:0.1:log")),
    Method("remdm-rescale", "remdm-rescale", (HEAT, "top_p=0.8:1", "eta=0.002:0.2:log")),
    Method("remdm-conf", "remdm-conf", (HEAT, "top_p=0.8:1")),
    Method("remdm-loop", "remdm-loop", (HEAT, "top_p=0.8:1", "eta=0.005:0.1:log")),
    _order("confidence"),
    _order("margin"),
    _order("entropy"),
)


@dataclass(frozen=True)
class _Side:
    """A method as published and tuned."""

    method: Method
    published: SamplerSpec
    chosen: Tuned


def _run(ask: Ask) -> Result:
    model = load(ask, ask.sources[0])
    by = scorers(ask)
    from strop.measure.guard import guard_of

    guard = guard_of(plain_generator(model, ask["length"], None))
    methods = [method for method in METHODS if method.name in ask["methods"]]
    rows = []
    for steps in ask["steps"]:
        sides = []
        for method in methods:
            ask.note(f"M = {steps}: {method.name}")
            space = side_space(
                model.spec.family, method.axes, steps, sampler=method.sampler, **method.fixed
            )
            best = tuned(
                model,
                space,
                by,
                out=Folder(ask.out / SEARCH, "run", ask.verb.name),
                search=Search(budget=ask["budget"], first=ask["first"], most=ask["n"]),
                guard=guard,
                seed=ask["seed"],
                length=ask["length"],
                progress=ask.progress,
            )
            sides.append(_Side(method, space.spec(method.sampler, method.published), best))
        rows += _compare_methods(ask, model, by, sides, steps, guard)
    return _result(ask, rows, guard)


def _bench(ask: Ask, model: Model, by: Scorers, seed: int) -> Bench:
    folder = Folder(ask.out / FRESH, "run", ask.verb.name)
    return Bench(model, folder, by, seed=seed, length=ask["length"], progress=ask.progress)


def _compare_methods(
    ask: Ask, model: Model, by: Scorers, sides: list[_Side], steps: int, guard: Guard
) -> list[dict[str, Any]]:
    """A row per method, all from fresh outputs under other seeds."""
    from strop.measure.cells import measure

    fresh = derive_seed(ask["seed"], "fresh")
    n, perplexity, entropy = ask["fresh_n"], Number.of("perplexity"), Number.of("entropy")
    specs = list(dict.fromkeys(s for side in sides for s in (side.published, side.chosen.sampler)))
    cells = _bench(ask, model, by, fresh).cells([(spec, n) for spec in specs])
    frame = measure(cells, [perplexity.name, entropy.name], by, guard=guard, outputs=(0, n))
    rows_of = dict(zip(specs, frame, strict=True))
    level = {spec: row.statistic(perplexity) for spec, row in rows_of.items()}
    spread = {spec: jackknife(row.statistic(entropy), LEVEL) for spec, row in rows_of.items()}
    base = next(side for side in sides if side.method.name == PLAIN)
    equal = _at_equal_entropy(ask, model, by, [side.chosen.sampler for side in sides], fresh)
    rows = []
    for side in sides:
        row: dict[str, Any] = {"steps": steps, "method": side.method.name}
        for name, setting in (("published", side.published), ("tuned", side.chosen.sampler)):
            holds = guard.threshold is None or spread[setting].ends[0] >= guard.threshold
            row |= {
                f"{name}_point": str(OperatingPoint.of(setting)),
                f"{name}_sampler": setting.model_dump(mode="json"),
                f"{name}": level[setting].value,
                f"{name}_entropy": spread[setting].value,
                f"{name}_holds": holds,
                f"{name}_mark": "" if holds else "‡",
            }
        plain = base.published
        ratio = jackknife(level[plain], LEVEL, level[side.published], log=True)
        row["published_gain"] = None if side.published == plain else _times(ratio)
        comparison = None if side is base else equal(side.chosen.sampler, base.chosen.sampler)
        row |= _equal_columns(comparison)
        row |= {"spent": side.chosen.spent, "settings": len(side.chosen.tried)}
        row["edges"] = "; ".join(side.chosen.edges)
        row["survives"] = TOO_SMALL if comparison and ask.smoke else _survives(row)
        rows.append(row)
    return rows


def _at_equal_entropy(
    ask: Ask, model: Model, by: Scorers, specs: Sequence[SamplerSpec], seed: int
) -> Callable[[SamplerSpec, SamplerSpec], Comparison]:
    """Compares two tuned settings by their frontiers, all on the same number of scored tokens."""
    from strop.comparing.compare import compare
    from strop.comparing.diversity import Scored, common_length
    from strop.comparing.outputs import seed_of
    from strop.comparing.side import Side
    from strop.measure.cells import token_table
    from strop.measure.guard import evaluator_guard

    n = ask["fresh_n"]
    pools: dict[SamplerSpec, list[Scored]] = {}
    settings = list(dict.fromkeys(_without_heat(setting) for setting in specs))
    for tau in sorted(ask["temperature"]):
        heated = [setting.model_copy(update={"temperature": tau}) for setting in settings]
        cells = _bench(ask, model, by, seed_of(seed, tau)).cells(
            [(setting, n) for setting in heated]
        )
        for setting, cell in zip(settings, cells, strict=True):
            columns = {name: values[:n] for name, values in token_table(cell, by).columns.items()}
            pools.setdefault(setting, []).append(Scored.of(columns))
    tokens = common_length([pool for scored in pools.values() for pool in scored])
    guard = evaluator_guard(ask.evaluator, tokens)
    sides = {
        setting: Side([pool.first(tokens) for pool in scored]) for setting, scored in pools.items()
    }

    def compared(method: SamplerSpec, plain: SamplerSpec) -> Comparison:
        pair = [sides[_without_heat(setting)] for setting in (method, plain)]
        return compare(*pair, floor=guard.threshold, seed=ask["seed"])

    return compared


def _without_heat(spec: SamplerSpec) -> SamplerSpec:
    return spec.model_copy(update={"temperature": 1.0})


def _equal_columns(comparison: Comparison | None) -> dict[str, Any]:
    """How many times less perplexity than the plain sampler, and what follows."""
    if comparison is None:
        return {"equal_gain": None, "verdict": None}
    gap = None if comparison.equal is None else comparison.equal.mean
    if gap is not None:  # that of the plain sampler over the method's
        ends = (None if end is None else -end for end in (gap.high, gap.low))
        gap = replace(gap, value=-gap.value, **dict(zip(("low", "high"), ends, strict=True)))
    return {"equal_gain": None if gap is None else _times(gap), "verdict": comparison.verdict.kind}


def _times(ratio: Interval) -> Interval | None:
    """A ratio from its logarithm; None where that is none."""
    return ratio.exp() if math.isfinite(ratio.value) else None


SURVIVES = {
    "better": "a gain",
    "worse": "none: it is worse",
    "the same": "none: it is the same",
    "only sharper": "none: it is the same",
    "only smoother": "none: it is the same",
    "mixed": "mixed: at some entropies, or with less diversity",
    "cannot tell": "cannot be told",
}


def _survives(row: dict[str, Any]) -> str | None:
    """In words: what is left of a gain where both are tuned, by the verdict at equal entropy."""
    kind, before = row["verdict"], row["published_gain"]
    if kind is None:
        return None
    if kind == "better" and (before is None or before.value <= 1):
        return "a gain that it had not as published"
    return SURVIVES[kind]


def _result(ask: Ask, rows: list[dict[str, Any]], guard: Guard) -> Result:
    columns = (
        Column("steps", "M"),
        Column("method"),
        Column("published", mark="published_mark", help="Perplexity as published."),
        Column("published_entropy", "entropy", digits=3),
        Column("published_gain", "over ancestral", digits=3),
        Column("tuned_point", "tuned"),
        Column("tuned", "perplexity", mark="tuned_mark"),
        Column("tuned_entropy", "entropy, tuned", digits=3),
        Column("equal_gain", "over tuned ancestral, at equal entropy", digits=3),
        Column("survives", "what is left of the gain"),
    )
    table = Table(
        f"{ask.sources[0]}: perplexity on {ask['fresh_n']} fresh outputs, and how many times less "
        "it is than that of the plain sampler",
        columns,
        rows,
    )
    notes = (
        f"every method searched with at most {ask['budget']} outputs at each budget",
        "as published: the sampler's defaults at temperature 1; top-p 0.9",
        "at equal entropy: the frontiers of the two tuned settings over all temperatures, by the "
        "rules and the 98% intervals of strop compare; where a search stopped is not compared",
        f"‡ not surely above the entropy guard {guard.bound}"
        if guard.threshold
        else f"no entropy guard: {guard.source}",
    )
    facts = {"guard": {"threshold": guard.threshold, "source": guard.source}}
    return Result(ask.said(), table, facts=facts, notes=notes)


def _draw(result: Result) -> Figure:
    from strop.figures import BLUE, GREY, ORANGE, errors, legend_below, panels

    rows = list(result.table.rows)
    names = list(dict.fromkeys(row["method"] for row in rows))
    figure, [axes] = panels(1, 0.32 * len(rows) + 1.3)
    axes.axvline(1, color=GREY, lw=0.8)
    for position, row in enumerate(reversed(rows)):
        for shift, name, colour in ((0.15, "published", GREY), (-0.15, "equal", BLUE)):
            gain = row[f"{name}_gain"]
            if gain is None or not gain.bounded:
                continue
            ends = errors([gain])
            look = colour if row.get(f"{name}_holds", True) else ORANGE
            axes.errorbar(
                [gain.value], [position + shift], xerr=ends, fmt="o", ms=3, color=look, lw=1
            )
    labels = [f"{row['method']}, M={row['steps']}" for row in reversed(rows)]
    axes.set_yticks(
        range(len(rows)), labels if len(names) < len(rows) else [t.split(",")[0] for t in labels]
    )
    axes.set_xscale("log")
    axes.set_xlabel("times less perplexity\nthan ancestral")
    for colour, what in (
        (GREY, "as published"),
        (BLUE, "both tuned, at equal entropy"),
        (ORANGE, "not above the guard"),
    ):
        axes.plot([], [], "o", ms=3, color=colour, label=what)
    legend_below(figure, axes, 1)
    return figure


def _check(ask: Ask) -> None:
    ask.engine.refuse_shard("A search")
    if len(set(ask["temperature"])) < FEWEST:
        raise UserError(
            "A frontier needs three temperatures.",
            where="`temperature`",
            got=", ".join(map(str, ask["temperature"])),
        )
    if PLAIN not in ask["methods"]:
        raise UserError(
            "Everything is compared with the plain sampler.",
            where="`methods`",
            got=", ".join(ask["methods"]),
            expected=f"{PLAIN} among them",
        )


STUDY = Study(
    name="tuned-against-tuned",
    title="How much of each method's gain survives when the baseline is tuned, too?",
    about="Tune the plain sampler and every method of CHECKPOINT on the same number of outputs, "
    "and compare them on fresh ones, as published, and tuned at equal entropy.",
    parameters=(
        parameters.steps(16, smoke=(4,)),
        Parameter(
            "methods",
            "Which.",
            tuple(method.name for method in METHODS),
            "words",
            smoke=(PLAIN, "top-p", "remdm-cap", "margin order"),
            choices=tuple(method.name for method in METHODS),
        ),
        Parameter("budget", "Outputs per method.", 256, "int", smoke=32, least=4, most=2**31),
        Parameter(
            "n", "The most outputs of one setting.", Rules.most, "int", smoke=8, least=2, most=2**31
        ),
        Parameter(
            "first", "Outputs that a setting starts with.", Rules.first, "int", smoke=4, least=2
        ),
        Parameter(
            "fresh_n", "Fresh outputs of a setting.", 128, "int", smoke=8, least=2, most=2**31
        ),
        Parameter(
            "temperature",
            "The sweep that traces the frontiers of what was tuned.",
            TEMPERATURES,
            "floats",
            smoke=(0.8, 0.9, 1.0),
        ),
        parameters.evaluator(),
        Parameter.count("length", "Tokens per output.", smoke=32, shown="its own"),
        parameters.SPAN,
        *parameters.MEASURED,
    ),
    run=_run,
    draw=_draw,
    runs=(SEARCH, FRESH),
    check=_check,
    later=lambda _: "this is the first round of the first search",
    most=lambda ask: (
        len(ask["steps"])
        * len(ask["methods"])
        * (ask["budget"] + ask["fresh_n"] * (2 + len(set(ask["temperature"]))))
    ),
    examples=("strop study tuned-against-tuned --smoke -o runs/tuned-against-tuned",),
)
