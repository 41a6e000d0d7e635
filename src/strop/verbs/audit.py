"""The audit: how much of a checkpoint's few-step gap is its sampler?

1. Draw and score every cell of the table: budgets by operating points, one seed.
2. Choose by the rules of `select`; write the choices and their hash.
3. Draw the standard sampler and the choices anew, under another seed, and report the gain on these
   fresh outputs, which the search did not see. The guard checks them again, and a second evaluator
   may score them too.
4. Write the chosen samplers as YAML that `strop sample --spec` reads.

The standard is the family's own sampler and finish at temperature 1, in float64, with all tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.errors import UserError, unknown_name
from strop.measure.guard import MARKS
from strop.measure.metric import PERPLEXITY, Number
from strop.records.record import FAMILIES, SAMPLERS, reads_as
from strop.rng import derive_seed
from strop.spec.generator import OperatingPoint
from strop.spec.value import MetricSpec
from strop.table import Column, Pivot, Table
from strop.tuning.gain import (
    GOALS,
    RULES,
    WITHIN,
    Decision,
    Gain,
    Selection,
    choose,
    decide,
    family_level,
    gain,
    hashed,
    spec_file,
    write_selection,
)
from strop.verbs import parameters, points
from strop.verbs.paper import BUDGETS, RowByRow, item
from strop.verbs.study import Study
from strop.verbs.verb import Ask, Parameter, Result, quoted

if TYPE_CHECKING:
    from strop.denoisers import Model
    from strop.measure.evaluator import Evaluator
    from strop.measure.frame import Frame, Measured

STEPS = (4, 16, 64, 256, 1024)
SWEEP = (*BUDGETS, 2048)
"""The twelve budgets over which the paper says it chose; its printed grids end at 1,024."""
RATES = (1.0, 0.9, 0.85)
"""The temperatures of the four corners, and a sharper one."""

DECIDING = ("per-budget", "frozen", "sharpest")
"""The rules in the order in which they are asked which sampler to use."""

SIDES = {True: "above", False: "below", None: "undecided"}
"""Of the guard, by whether fresh outputs hold it."""


GAIN_COLUMNS = (
    Column("rule", help="How the sampler was chosen."),
    Column("steps", "M", help="Configured updates."),
    Column("point", "setting", help="Temperature, precision of the draw, what else differs."),
    Column(
        "gain",
        "gain on fresh outputs",
        digits=3,
        mark="mark",
        help="Perplexity of the standard sampler over that of the choice; the intervals of all "
        "rows hold together with 95%.",
    ),
    Column("calls", digits=3, help="Network calls per output."),
    Column("seconds", digits=2, help="Per output, on this machine with these batches."),
    Column("entropy", digits=3, bare=True, help="Mean entropy of the fresh outputs."),
    Column("diversity", digits=3, bare=True, help="Theirs, as a share of held-out texts'."),
    Column("verdict", "guard", help="A gain is a recommendation only above the guard."),
    Column("evaluator", help="The language model that read the fresh outputs."),
    Column(
        "mind",
        "note",
        help="What speaks against it, and where a wider grid might choose otherwise.",
    ),
)


@dataclass(frozen=True)
class Audit:
    """The table, the choices and their gains."""

    source: str
    family: str
    standard: OperatingPoint
    """The setting that all others are compared with."""
    cells: Sequence[Measured]
    metrics: Sequence[MetricSpec]
    """The perplexities, in the order of the evaluators."""
    selections: Mapping[str, Selection]
    """By rule; a rule that cannot choose is absent and has a line in `refusals`."""
    refusals: Mapping[str, str]
    gains: Mapping[str, Sequence[Gain]]
    """By rule."""
    fresh: Sequence[Measured]
    left_out: tuple[str, ...] = ()
    """What was left out of the axes."""

    def cell(self, steps: int, point: OperatingPoint) -> Measured:
        """One entry of the table."""
        return next(cell for cell in self.cells if (cell.steps, cell.point) == (steps, point))

    def ratios(self) -> list[dict[str, Any]]:
        """Perplexity of the standard sampler over that of every other, budget by budget."""
        from strop.measure.frame import perplexity_ratio

        rows = []
        for cell in self.cells:
            if cell.point == self.standard:
                continue
            ratio = perplexity_ratio(self.cell(cell.steps, self.standard), cell)
            row = {k: cell.row()[k] for k in ("steps", "temperature", "precision", "point", "mark")}
            rows.append({**row, "ratio": ratio})
        return rows

    @property
    def deciding(self) -> str | None:
        """The rule that the decision is made from; None where no rule could choose."""
        return next((rule for rule in DECIDING if rule in self.selections), None)

    def decision(self, goal: str, within: float) -> Decision:
        """Which sampler to use, with how many steps, in one sentence."""
        if self.deciding is None:
            return Decision(goal, f"Nothing is recommended: {next(iter(self.refusals.values()))}.")
        first = self.metrics[0].evaluator
        gains = [g for g in self.gains[self.deciding] if first is None or g.evaluator == first.name]
        fresh = {(row.steps, row.point): row for row in self.fresh}
        searched = {(row.steps, row.point): row.perplexity().value for row in self.cells}
        metric = self.metrics[0]
        return decide(goal, within, gains, fresh, searched, self.standard, metric)

    def result(self, ask: Ask, evaluators: Sequence[str]) -> Result:
        """As typed tables and facts."""
        rows, ratios = [cell.row(self.metrics[0]) for cell in self.cells], self.ratios()
        title = (
            f"{self.source}: perplexity under {evaluators[0]} ({ask['span']}, token-pooled) with "
            "95% interval, [entropy in nats]"
        )
        table = points.cell_table(title, rows)
        table = Table(
            title,
            (*table.columns, Column("point", "setting")),
            rows,
            Pivot(("steps", "outputs"), ("point",), "perplexity", ("entropy",)),
        )
        ratio = Column("ratio", digits=3, mark="mark")
        over = Table(
            f"Perplexity under {self.standard} over that under another sampler",
            (Column("steps", "M"), Column("point", "setting"), ratio),
            ratios,
            Pivot(("steps",), ("point",), "ratio"),
        )
        more = {"ratios": over} if ratios else {}
        more |= self._gain_tables()
        decision = self.decision(ask["goal"], ask["within"])
        guard = self.cells[0].guard
        facts = {
            "checkpoint": self.source,
            "family": self.family,
            "standard": str(self.standard),
            "public_precision": public_precision(self.family),
            "answer": [decision.sentence],
            "decision": decision.document(),
            "evaluators": list(evaluators),
            "span": ask["span"],
            "guard": {
                "threshold": guard.threshold,
                "source": guard.source,
                "rule": guard.rule,
            },
            "cells": [self._document(cell) for cell in self.cells],
            "selections": {
                rule: hashed(selection.document()) for rule, selection in self.selections.items()
            },
            "refusals": dict(self.refusals),
        }
        notes = (
            f"standard: {self.standard}{_public_draws(self.family)}",
            *self.left_out,
            *points.guard_notes([*self.cells, *self.fresh]),
            *points.prompt_notes(
                max(cell.outputs for cell in self.cells),
                self.cells[0].spec.generator.prompts,
                next((cell.spec.generator.prompts for cell in self.fresh), None),
            ),
            *(f"the rule `{rule}` cannot choose: {why}" for rule, why in self.refusals.items()),
        )
        return Result(ask.said(), table, more, facts, notes)

    def _gain_tables(self) -> dict[str, Table]:
        """The choices of the rule that decides; those of the others are kept, and not printed."""
        rows = {
            rule: [self._gain(rule, choice_gain) for choice_gain in gains]
            for rule, gains in self.gains.items()
        }
        deciding_rows = rows.pop(self.deciding or "", [])
        others = [row for rule_rows in rows.values() for row in rule_rows]
        title = f"Gain over {self.standard} by the rule {self.deciding}; intervals hold together"
        tables = {
            "gains": Table(title, GAIN_COLUMNS, deciding_rows),
            "other_rules": Table("Choices of the other rules", GAIN_COLUMNS, others, shown=False),
        }
        return {name: table for name, table in tables.items() if table.rows}

    def _gain(self, rule: str, choice_gain: Gain) -> dict[str, Any]:
        """One line of the table of gains."""
        choice = choice_gain.choice
        row = next(
            cell for cell in self.fresh if (cell.steps, cell.point) == (choice.steps, choice.point)
        )
        sides = [limit.holds for limit in choice_gain.limits]
        least = False if False in sides else None if None in sides else True
        verdict = SIDES[least] if sides else "no guard"
        return {
            "rule": rule,
            "evaluator": choice_gain.evaluator,
            **choice_gain.row(),
            "entropy": row.entropy,
            "diversity": row.diversity,
            "verdict": verdict,
            "mark": MARKS.get(verdict, ""),
        }

    def _document(self, cell: Measured) -> dict[str, Any]:
        document, row = cell.document(), cell.row(self.metrics[0])
        return {
            **{k: document[k] for k in ("cell", "outputs", "entropy", "guard", "below_guard")},
            **{k: row[k] for k in ("steps", "temperature", "precision", "point")},
            "perplexity": [cell.perplexity(metric) for metric in self.metrics],
        }


def public_precision(family: str) -> str | None:
    """The precision in which the family's public code draws."""
    return FAMILIES[family if family in FAMILIES else reads_as(family)].precision


def _public_draws(family: str) -> str:
    precision = public_precision(family)
    return "" if precision is None else f"; the public code of {family} draws in {precision}"


# ---------------------------------------------------------------- running it


def _check(ask: Ask) -> None:
    _counts(ask)
    named = ask["sampler"]
    if named is not None and named not in SAMPLERS:
        raise unknown_name("sampler", named, SAMPLERS, where="`sampler`")


def _run(ask: Ask) -> Result:
    from strop.measure.known import known_evaluator, known_model
    from strop.measure.perplexity import perplexity_metric

    counts = _counts(ask)
    home = ask.engine.at_home(ask["device"])
    model = known_model(ask.sources[0], device=home, dtype=ask["dtype"])
    others = ask["second_evaluator"]
    evaluators = [ask.evaluator]
    evaluators += [known_evaluator(others, device=home)] if others else []
    chosen, left_out = _points(ask, model.spec.family)
    plain = chosen[0]
    numbers = points.budgets(model, tuple(counts))
    cells = [(m, point) for m in numbers for point in chosen]
    n = [counts[m][0] if m in counts else max(c for c, _ in counts.values()) for m, _ in cells]
    drawn = points.draw(ask, model, cells, ask.folder or ask.out, n=n)
    table = points.score(ask, model, drawn, evaluators[:1])
    selections, refusals = _choose(table)
    digest = write_selection(
        ask.out, {rule: hashed(selection.document()) for rule, selection in selections.items()}
    )
    fresh: Sequence[Measured] = ()
    if ask["fresh"] and selections:
        fresh = _fresh(ask, model, evaluators, selections, counts, digest, plain)
    prompted = ask["prompts"] is not None
    metrics = [
        perplexity_metric(evaluator, ask["span"], prompted=prompted) for evaluator in evaluators
    ]
    looked_at = {(c.steps, c.point) for selection in selections.values() for c in selection.choices}
    level = family_level(len(metrics) * sum(point != plain for _, point in looked_at))
    gains = {
        rule: _gains(plain, selection, fresh, metrics, level)
        for rule, selection in selections.items()
    }
    audit = Audit(
        model.source,
        model.spec.family,
        plain,
        table,
        metrics[:1],
        selections,
        refusals,
        gains,
        fresh,
        left_out,
    )
    _write(ask.out, audit)
    return audit.result(ask, [evaluator.spec.name for evaluator in evaluators])


def _counts(ask: Ask) -> dict[int, tuple[int, int]]:
    """Outputs and fresh outputs by budget."""
    steps = ask["steps"] or (SWEEP if ask["grid"] else STEPS)
    each = []
    for name in ("n", "fresh_n"):
        counts = ask[name] if ask[name] is not None else ask["n"]
        if len(counts) not in (1, len(steps)):
            raise UserError(
                f"`{name}` does not have one entry for each budget.",
                where=f"`{name}`",
                got=", ".join(map(str, counts)),
                expected=f"a whole number of at least 1, or {len(steps)} of them, one per number "
                "of steps",
            )
        each.append(tuple(counts) * len(steps) if len(counts) == 1 else tuple(counts))
    return dict(zip(steps, zip(*each, strict=True), strict=True))


def _later(ask: Ask) -> str:
    """For a dry run: how many fresh outputs follow; their settings depend on the table."""
    if not ask["fresh"]:
        return "no fresh outputs are drawn afterwards"
    most = (1 + len(RULES)) * sum(fresh for _, fresh in _counts(ask).values())
    return f"then the standard sampler and the choices are drawn anew: at most {most:,} outputs"


def _points(ask: Ask, family: str) -> Any:
    """Combinations of the axes, the standard first; and what was left out, in words."""
    usual = {"temperature": sorted(points.TEMPERATURES, reverse=True) if ask["grid"] else RATES}
    combinations, left_out = points.points(family, ask["sampler"], ask["axis"] or {}, usual)
    return list(dict.fromkeys((points.standard(family, ask["axis"]), *combinations))), left_out


def _choose(table: Frame) -> tuple[dict[str, Selection], dict[str, str]]:
    """What every rule chooses, and why some cannot."""
    selections: dict[str, Selection] = {}
    refusals: dict[str, str] = {}
    for rule in RULES:
        try:
            selections[rule] = choose(table, rule)
        except UserError as error:
            refusals[rule] = " ".join(filter(None, [error.what, error.where, error.got]))
    return selections, refusals


def _fresh(
    ask: Ask,
    model: Model,
    evaluators: Sequence[Evaluator],
    selections: Mapping[str, Selection],
    counts: Mapping[int, tuple[int, int]],
    digest: str,
    plain: OperatingPoint,
) -> Sequence[Measured]:
    """The standard sampler and every choice, drawn again under another seed."""
    from strop.store.folder import FRESH

    causal = SAMPLERS[plain.sampler.name].causal
    chosen = {
        (choice.steps, choice.point)
        for selection in selections.values()
        for choice in selection.choices
    }
    chosen |= {(m, plain) for m, _ in chosen}
    again = sorted(chosen, key=lambda cell: (cell[0], cell[1].order))
    n = [counts[m][1] if m in counts else max(c for _, c in counts.values()) for m, _ in again]
    out = ask.out / FRESH / digest[:16]
    cells = [(0 if causal else m, point) for m, point in again]
    seed, searched = derive_seed(ask["seed"], "fresh"), max(c for c, _ in counts.values())
    drawn = points.draw(ask, model, cells, out, n=n, seed=seed, searched=searched)
    return points.score(ask, model, drawn, evaluators)


def _gains(
    plain: OperatingPoint,
    selection: Selection,
    fresh: Sequence[Measured],
    metrics: Sequence[MetricSpec],
    level: float,
) -> list[Gain]:
    """By budget and evaluator."""
    rows = {(row.steps, row.point): row for row in fresh}
    goal = Number.of(PERPLEXITY.name)
    return [
        gain(
            choice,
            rows[choice.steps, choice.point],
            rows[choice.steps, plain],
            goal,
            metric=metric,
            resampled=True,
            level=level,
        )
        for choice in (selection.choices if rows else ())
        for metric in metrics
    ]


# ---------------------------------------------------------------- writing it


def _write(out: Path, audit: Audit) -> None:
    """A file of samplers per rule that chose."""
    from strop.disk import write

    for rule in RULES:
        (out / f"sampler-{rule}.yaml").unlink(missing_ok=True)  # of an earlier choice
    for rule, selection in audit.selections.items():
        heading = f"The samplers that the rule `{rule}` chose, one per budget, "
        heading += f"from {selection.cells} cells."
        text = spec_file(heading, selection.choices, audit.gains[rule])
        write(out / f"sampler-{rule}.yaml", text)


# ---------------------------------------------------------------- the paper's tables


def _beside(*tables: str) -> Any:
    """The paper's cells of the checkpoint that this one represents, where it prints them."""

    def table(result: Result, ask: Ask, roles: Mapping[str, str]) -> Table:
        role = roles.get(ask.sources[0], "public")
        model = "MDLM-Small" if role == "public" else None
        unit, where = f"perplexity; paper: {role}", {"checkpoint": role}
        comparison = RowByRow(unit, tables=tables, where=where, model=model)
        return comparison(result, ask, roles)

    return table


STUDY = Study(
    name="audit",
    title="How much of a checkpoint's few-step gap is its sampler?",
    about="Sample CHECKPOINT over temperatures, precisions and whatever other axes, score, choose "
    "by stated rules, and report the gain on fresh outputs.",
    parameters=(
        Parameter.counts(
            "steps",
            "Updates M, e.g. 16,64; a causal model has one budget.",
            smoke=(4, 16),
            most=2**20 + 1,
            shown="4,16,64,256,1024; with --grid 1,2,4,...,2048",
        ),
        Parameter(
            "n",
            "Outputs per cell: one number, or one per budget.",
            (128,),
            "counts",
            smoke=(16,),
            least=1,
            most=2**32,
        ),
        Parameter.flag("grid", "Seven temperatures .80 to 1.10 instead of three."),
        parameters.evaluator(),
        parameters.GUARD_RULE,
        Parameter("second_evaluator", "Another one, for the gain on fresh outputs."),
        Parameter("fresh", "Report the gain on outputs that were not chosen from.", True, "flag"),
        Parameter(
            "fresh_n",
            "Fresh outputs per cell.",
            kind="counts",
            least=1,
            most=2**32,
            shown="as many as -n",
        ),
        Parameter(
            "goal",
            "What to recommend: the fewest steps that are near enough, or the least perplexity.",
            "fewest-steps",
            choices=GOALS,
        ),
        Parameter(
            "within",
            "How much more perplexing than the standard sampler with the most steps fewer steps "
            "may be: 0.05 or 5%.",
            WITHIN,
            "share",
        ),
        *parameters.POINTED,
        *parameters.ANSWERING,
        *parameters.SCORED,
        *parameters.SERVER,
    ),
    run=_run,
    check=_check,
    kind="audit",
    later=_later,
    next=lambda ask: f"strop report {quoted(ask.out)} -o {quoted(ask.out)}/report.html",
    examples=(
        "strop audit --steps 4,16 -n 32 -o runs/audit",
        "strop audit runs/duo --axis temperature=1,0.9 --axis top_p=1,0.9 -o runs/duo-audit",
        "strop audit --prompts prompts.jsonl --length 64 --steps 16 -n 64 -o runs/answers-audit",
    ),
    items=(
        *(item(name, _beside(name)) for name in ("headline", "headline-full")),
        item("sweep", _beside("headline", "headline-full")),
        *(
            item(name, _beside(name))
            for name in ("grid-small-late", "grid-small-early", "grid-tiny-late")
        ),
    ),
)
