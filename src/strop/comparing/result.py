"""What a comparison found, as tables and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from strop.comparing.compare import Comparison, sentence
from strop.comparing.diversity import COPIES, unseen_copies
from strop.comparing.frontier import Level
from strop.comparing.outputs import NEAR, Point, SideOutputs, is_causal
from strop.comparing.side import Side
from strop.comparing.verdict import overall
from strop.groupeval.scores import FACTOR_COLUMNS
from strop.stats.resample import jackknife, mean
from strop.table import Column, Table
from strop.verbs.verb import Ask, Result

if TYPE_CHECKING:
    from strop.measure.guard import Guard
    from strop.spec.generator import SamplerSpec
    from strop.tuning.search import Tuned

LETTERS = ("A", "B")
"""Names of the sides by default."""


@dataclass(frozen=True)
class SideAtBudget:
    """One side at one budget."""

    steps: int
    published: Point
    tuned: Point | None
    frontier: tuple[Point, ...]
    search: Tuned | None = None
    base: SamplerSpec | None = None
    """The sampler whose temperature traces the frontier; None for an existing pool."""

    @property
    def updates(self) -> int | None:
        """None of a pool, and of a causal model, which makes one per token."""
        return None if self.base is None else self.base.steps or None

    def side(self, tokens: int) -> Side:
        """In the form that the rules need."""
        return Side(
            [point.sample(tokens) for point in self.frontier],
            self.published.sample(tokens),
            None if self.tuned is None else self.tuned.sample(tokens),
        )

    def points(self) -> list[Point]:
        """Every setting once, the frontier in order of temperature."""
        settings = [self.published, *([] if self.tuned is None else [self.tuned]), *self.frontier]
        return list(dict.fromkeys(settings))

    def part(self, point: Point) -> str:
        """What a setting is shown as."""
        parts = {"published": point is self.published, "tuned": point is self.tuned}
        parts["frontier"] = point in self.frontier
        return ", ".join(name for name, applies in parts.items() if applies)


@dataclass(frozen=True)
class Budget:
    """Both sides at one budget, and what follows."""

    sides: Sequence[SideAtBudget]
    comparison: Comparison
    tokens: int
    """Scored tokens of every output on which all is read."""
    judged: tuple[dict[str, Any], ...] = ()


M = Column("steps", "M")
LAYER_COLUMNS = (
    M,
    Column("layer"),
    Column("a", "perplexity of A"),
    Column("b", "of B"),
    Column("ratio", "A over B"),
    Column("entropy_a", "entropy of A", digits=3),
    Column("entropy_b", "of B", digits=3),
    Column("sharper", "A minus B, nats", digits=3, signed=True),
)
FRONTIER_COLUMNS = (
    Column("side"),
    M,
    Column("setting"),
    Column("part", "shown as"),
    Column("outputs", "n"),
    Column("left_out", "too short", digits=2, percent=True),
    Column("kept", "bytes read", digits=3, percent=True),
    Column("perplexity"),
    Column("entropy", digits=3),
    Column("diversity", "diversity", digits=2),
    Column("guard", "guard"),
    Column("vendi", "Vendi", digits=3),
    Column("calls", "network calls", digits=3),
    Column("seconds", "seconds", digits=2),
)
DIVERSITY_COLUMNS = (
    M,
    Column("measure"),
    Column("a", "A", digits=3),
    Column("b", "B", digits=3),
    Column("state_a", "A is"),
    Column("state_b", "B is"),
)
SPENT_COLUMNS = (
    M,
    Column("side"),
    Column("published", "as published"),
    Column("tuned"),
    Column("updates"),
    Column("searched", "outputs searched"),
    Column("settings", "settings tried"),
    Column("shown", "outputs shown"),
    Column("calls", "network calls per output", digits=3),
    Column("seconds", "seconds per output", digits=2),
)
JUDGED_COLUMNS = (
    M,
    Column("judge"),
    Column("side"),
    Column("setting"),
    Column("entropy", digits=3),
    Column("geq", "GEQ", digits=3),
    Column("ged", "GED", digits=3),
    *FACTOR_COLUMNS,
)


def result(
    ask: Ask,
    sides: Sequence[SideOutputs],
    guard: Guard,
    level: Level,
    budgets: Mapping[int, Budget],
    first_notes: Sequence[str],
) -> Result:
    """Typed tables, one honest sentence per budget, and what a reader must know."""
    verdicts = {number: budget.comparison.verdict for number, budget in budgets.items()}
    over_all = overall(verdicts)
    names = [_name(side) for side in sides]
    called = tuple(
        ask[f"{side}_name"] or letter for side, letter in zip("ab", LETTERS, strict=True)
    )
    facts = {
        "answer": _answer(budgets, called),
        "verdict": asdict(over_all),
        "verdicts": {str(number): asdict(verdict) for number, verdict in verdicts.items()},
        "sides": names,
        "called": list(called),
        "margin": ask["margin"],
        "level": {
            **asdict(level),
            "same": level.same,
            "everywhere": level.everywhere,
            "different": level.different,
        },
        "equal": {
            str(number): None
            if budget.comparison.equal is None
            else dict(vars(budget.comparison.equal))
            for number, budget in budgets.items()
        },
        "guard": {"threshold": guard.threshold, "ends": guard.ends, "source": guard.source},
    }
    measured = {number: budget.sides for number, budget in budgets.items()}
    [tokens] = {budget.tokens for budget in budgets.values()}
    facts["tokens"] = tokens
    notes = [
        *(f"{short}: {name}" for short, name in zip(called, names, strict=True)),
        *first_notes,
        *_read_on(ask, budgets, called),
        *_differences(ask, sides, measured, called),
        *_search_notes(measured, guard, tokens, called),
        *_copy_notes(budgets),
        *_same_cells(measured),
        f"look {level.look} at these two sides, {level.budgets} budget(s): intervals that must lie "
        f"inside the margin are of {100 * level.everywhere:.4g}% at equal sharpness and of "
        f"{100 * level.same:.4g}% as published, those that must exclude equality of "
        f"{100 * level.different:.4g}%",
        f"entropy guard {guard.bound} ({guard.source}): at equal sharpness nothing is "
        "compared below it"
        if guard.threshold is not None
        else str(guard),
    ]
    table, more = _layers(budgets, called), _more(budgets, called, guard)
    return Result(ask.said(), table, more, facts, tuple(notes), verdict_first=True)


def _answer(budgets: Mapping[int, Budget], called: Sequence[str]) -> list[str]:
    if len(budgets) == 1:
        [only] = budgets.values()
        return [sentence(only.comparison, called)]
    over_all = overall({number: budget.comparison.verdict for number, budget in budgets.items()})
    words = f"Over all budgets: {over_all.kind} ({over_all.why})."
    return [
        words,
        *(
            f"M = {number}: {sentence(budget.comparison, called)}"
            for number, budget in budgets.items()
        ),
    ]


def _with_names(columns: Sequence[Column], called: Sequence[str]) -> tuple[Column, ...]:
    """Columns about A and B, with the names of the sides."""
    names: dict[str, str] = dict(zip(LETTERS, called, strict=True))

    def named(label: str) -> str:
        return " ".join(names.get(word, word) for word in label.replace(",", " ,").split(" "))

    return tuple(
        replace(column, label=named(column.label).replace(" ,", ",")) if column.label else column
        for column in columns
    )


def _layers(budgets: Mapping[int, Budget], called: Sequence[str]) -> Table:
    rows = [
        row for number, budget in budgets.items() for row in _layer_rows(number, budget.comparison)
    ]
    a, b = called
    title = (
        f"Perplexity of {a} over that of {b}; at equal sharpness the entropies are the ends of the "
        "range that both frontiers have, and lowest and highest are of the band over all of it"
    )
    return Table(title, _with_names(LAYER_COLUMNS, called), rows)


def _more(budgets: Mapping[int, Budget], called: Sequence[str], guard: Guard) -> dict[str, Table]:
    frontier = [
        {
            **point.row(letter, side.updates, budget.tokens),
            **_diversity_and_guard(point, budget.tokens, guard),
            "budget": number,
            "part": side.part(point),
        }
        for number, budget in budgets.items()
        for letter, side in zip(called, budget.sides, strict=True)
        for point in side.points()
    ]
    diverse = [
        {"steps": number, **asdict(state)}
        for number, budget in budgets.items()
        for state in budget.comparison.diversity
    ]
    names: dict[str, str] = dict(zip(LETTERS, called, strict=True))
    judged = [
        {**row, "side": names[row["side"]]} for budget in budgets.values() for row in budget.judged
    ]
    spent = [
        row for number, budget in budgets.items() for row in _cost_rows(number, budget, called)
    ]
    tables = {
        "frontier": Table("Every setting, on fresh outputs", FRONTIER_COLUMNS, frontier),
        "diversity": Table(
            "Diversity at equal sharpness: how alike two outputs are; of GED, more is better",
            _with_names(DIVERSITY_COLUMNS, called),
            diverse,
        ),
        "judged": Table("Judged at one entropy", JUDGED_COLUMNS, judged),
        "spent": Table("What was spent", SPENT_COLUMNS, spent),
    }
    return {name: table for name, table in tables.items() if table.rows}


def _differences(
    ask: Ask,
    sides: Sequence[SideOutputs],
    measured: Mapping[int, Sequence[Any]],
    called: Sequence[str],
) -> list[str]:
    """What differs between the sides, in words."""
    notes = []
    a, b = called
    for number, pair in measured.items():
        steps = [side.steps for side in pair]
        if steps[0] != steps[1]:
            notes.append(f"M = {number}: not equal: {steps[0]} updates of {a}, {steps[1]} of {b}")
        for layer in ("published", "tuned"):
            points = [getattr(side, layer) for side in pair]
            if None in points:
                continue
            for what, near in NEAR.items():
                notes += _cost_difference(
                    f"M = {number}, {layer}", what, dict(zip(called, points, strict=True)), near
                )
    pools = [letter for letter, side in zip(called, sides, strict=True) if not side.named.tunable]
    if len(pools) == 1:
        notes.append(f"not equal: {pools[0]} is an existing pool, so only the other side is tuned")
    elif pools:
        notes.append("both sides are existing pools: neither is tuned")
    samples = {side.frontier[0].scored.n for pair in measured.values() for side in pair}
    if len(samples) > 1:
        notes.append(f"not equal: outputs per setting, {' and '.join(map(str, sorted(samples)))}")
    if ask["equal"] == "steps" and any(is_causal(side) for side in sides):
        notes.append("not equal: a causal model makes one update per token, whatever M is")
    return notes


def _cost_difference(where: str, what: str, points: Mapping[str, Any], near: float) -> list[str]:
    costs = [getattr(point, what) for point in points.values()]
    if None in costs:
        return [f"{where}: the cost of outputs in {what} is not known for both sides"]
    if abs(costs[0] - costs[1]) <= near * max(costs):
        return []
    words = "network calls" if what == "calls" else "seconds"
    each = ", ".join(f"{name} {cost:.3g}" for name, cost in zip(points, costs, strict=True))
    return [f"{where}: not equal: {words} per output, {each}"]


def _diversity_and_guard(point: Point, tokens: int, guard: Guard) -> dict[str, Any]:
    """Diversity against held-out texts, and on which side of the guard a setting lies."""
    sample, diverse = point.sample(tokens), point.diversity(tokens, guard)
    spread = jackknife(mean(sample.entropy[sample.counted]))
    return {"diversity": diverse, "guard": guard.both(spread, diverse)}


def _layer_rows(number: int, comparison: Comparison) -> list[dict[str, Any]]:
    rows = []
    for name, layer in (("as published", comparison.published), ("tuned", comparison.tuned)):
        if layer is not None:
            rows.append(
                {
                    "steps": number,
                    "layer": name,
                    "a": layer.perplexity[0],
                    "b": layer.perplexity[1],
                    "ratio": layer.gap.exp(),
                    "entropy_a": layer.entropy[0],
                    "entropy_b": layer.entropy[1],
                    "sharper": layer.sharper,
                }
            )
    equal = comparison.equal
    if equal is None:
        return rows
    gaps = [("at equal sharpness", equal.mean)]
    if len(equal.band) > 1:
        ordered = sorted(equal.band, key=lambda gap: gap.value)
        gaps += [("... where it is lowest", ordered[0]), ("... where it is highest", ordered[-1])]
    ends = {"entropy_a": equal.low, "entropy_b": equal.high}
    return rows + [
        {"steps": number, "layer": name, "ratio": gap.exp(), **ends} for name, gap in gaps
    ]


# ---------------------------------------------------------------- what a reader must know


def _name(side: SideOutputs) -> str:
    if not side.named.tunable:
        return f"{side.named.source} (an existing pool: it cannot be tuned)"
    fields = ", ".join(f"{k}={v}" for k, v in side.named.sampler.items())
    return f"{side.named.source} with " + (fields or "its family's own sampler")


def _copy_notes(budgets: Mapping[int, Budget]) -> list[str]:
    """What can be said of copies where there are none."""
    states = [state for budget in budgets.values() for state in budget.comparison.diversity]
    if not any(state.measure == COPIES and 0 in (state.a, state.b) for state in states):
        return []
    n = min(
        point.sample(budget.tokens).n
        for budget in budgets.values()
        for side in budget.sides
        for point in side.points()
    )
    return [
        f"no two outputs of a side are copies: {n} outputs at one temperature show that "
        f"one text is at most {unseen_copies(n):.1%} of what it writes (95%)"
    ]


def _read_on(ask: Ask, budgets: Mapping[int, Budget], called: Sequence[str]) -> list[str]:
    """Which tokens count, how many outputs have too few of them, and what the span leaves out."""
    notes = []
    for number, budget in budgets.items():
        points = [side.points() for side in budget.sides]
        shares_read = [np.mean([point.kept for point in side_points]) for side_points in points]
        words = [
            f"{letter} {gone:.1%} left out, {share:.1%} of its bytes read"
            for letter, gone, share in zip(
                called, budget.comparison.left_out, shares_read, strict=True
            )
        ]
        notes.append(f"M = {number}: " + "; ".join(words))
    [tokens] = {budget.tokens for budget in budgets.values()}
    first = (
        f"perplexity, entropy and copies are read on the first {tokens} tokens that the span "
        f"{ask['span']} scores, in the tokens of {ask.evaluator.spec.name}; outputs with fewer are "
        "left out"
    )
    return [first, *notes]


def _search_notes(
    measured: Mapping[int, Sequence[SideAtBudget]], guard: Guard, tokens: int, called: Sequence[str]
) -> list[str]:
    notes = []
    for number, pair in measured.items():
        for letter, side in zip(called, pair, strict=True):
            if side.search is None or side.tuned is None:
                continue
            words = (
                f"{letter} tuned at M = {number}: {side.tuned.setting}, searched with "
                f"{side.search.spent} outputs of {len(side.search.tried)} settings"
            )
            words += "" if side.search.holds else "; no setting surely held the guard"
            words += _guard_warning(side.tuned, tokens, guard)
            notes.append("; ".join([words, *side.search.edges, *side.search.notes]))
    if notes:
        notes.append(
            "the interval of the tuned layer is that of the two settings that were chosen: it "
            "leaves out the search, and is no claim about methods; the verdict does not rest on it"
        )
    return notes


def _guard_warning(point: Point, tokens: int, guard: Guard) -> str:
    """A warning where fresh outputs of the tuned setting do not hold the guard."""
    side = _diversity_and_guard(point, tokens, guard)["guard"]
    if side in ("above", None):
        return ""
    return f"; its fresh outputs {'break' if side == 'below' else 'do not surely hold'} the guard"


def _same_cells(measured: Mapping[int, Sequence[SideAtBudget]]) -> list[str]:
    """Frontiers of one generator are equal by construction."""
    return [
        f"M = {number}: both frontiers are those of one generator, the same outputs: at equal "
        "sharpness the sides are equal by construction"
        for number, pair in measured.items()
        if pair[0].base is not None
        and [point.scored.nats.tobytes() for point in pair[0].frontier]
        == [point.scored.nats.tobytes() for point in pair[1].frontier]
    ]


def _cost_rows(number: int, budget: Budget, called: Sequence[str]) -> list[dict[str, Any]]:
    """Per side: the outputs of the search and those that are shown; costs as published."""
    judged = {row["side"]: row["drawn"] for row in budget.judged}
    return [
        {
            "steps": number,
            "side": name,
            "published": side.published.setting,
            "tuned": None if side.tuned is None else side.tuned.setting,
            "updates": side.updates,
            "searched": 0 if side.search is None else side.search.spent,
            "settings": 0 if side.search is None else len(side.search.tried),
            "shown": sum(point.scored.n for point in side.points()) + judged.get(letter, 0),
            "calls": side.published.calls,
            "seconds": side.published.seconds,
        }
        for letter, name, side in zip(LETTERS, called, budget.sides, strict=True)
    ]
