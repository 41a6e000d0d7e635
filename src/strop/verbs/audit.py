"""The audit: how much of a checkpoint's few-step gap is its sampler?

1. Draw and score every cell of the table: budgets by operating points, one seed.
2. Choose by the rules of `select`; write the choices and their hash.
3. Draw the standard sampler and the choices anew, under another seed, and report the gain there:
   fresh outputs know nothing of the search. Their entropy is held against the guard again. A second
   evaluator may score them too.
4. Write the chosen samplers as YAML that `strop sample --spec` reads.

The standard is the family's own sampler and finish at temperature 1, in float64, with all tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.assets import CHECKPOINT, EMBEDDED
from strop.errors import UserError, unknown_name
from strop.records import FAMILIES, SAMPLERS, reads_as
from strop.rng import derive_seed
from strop.spec import MetricSpec, OperatingPoint
from strop.table import Column, Pivot, Table
from strop.verbs import paper, parameters
from strop.verbs.paper import BUDGETS, OWN, PUBLIC, Item
from strop.verbs.paper_table import RowByRow
from strop.verbs.points import (
    POINT_COLUMNS,
    TEMPERATURES,
    budgets,
    cell_table,
    draw,
    guard_notes,
    points,
    prompt_notes,
    score,
    standard,
)
from strop.verbs.select import RULES, Candidate, Pick, Selection, select
from strop.verbs.study import Ask, Parameter, Result, Sources, Study, quoted

if TYPE_CHECKING:
    from strop.denoisers import Model
    from strop.measure.causal import Evaluator
    from strop.measure.frame import Measured
    from strop.stats.interval import Interval

STEPS = (4, 16, 64, 256, 1024)
RATES = (1.0, 0.9, 0.85)
"""The temperatures of the four corners, and one that is sharper still."""

DOUBTS = {"below": "below the entropy guard", "undecided": "not clearly above the entropy guard"}
"""Why a choice is no recommendation."""


@dataclass(frozen=True)
class Gain:
    """What a choice is worth on outputs that it was not chosen on."""

    rule: str
    pick: Pick
    evaluator: str
    fresh: Measured
    """The chosen sampler's fresh outputs."""
    ratio: Interval | None
    """Perplexity of the standard sampler over that of the choice; None if they are the same."""

    @property
    def shown(self) -> bool:
        """Whether the interval excludes a ratio of one."""
        return self.ratio is not None and self.ratio.excludes(1)

    @property
    def recommended(self) -> bool:
        """Whether its fresh outputs are above the guard too, or there is none to be above."""
        return self.fresh.verdict in ("above", None)

    def row(self) -> dict[str, Any]:
        """One line of the table of gains."""
        ratio, entropy, point = self.ratio, self.fresh.entropy, self.pick.point
        guard = self.fresh.guard.document(entropy)
        notes = list(self.pick.at_edge)
        notes += [] if self.pick.passes else ["not above the guard in the table"]
        if not self.recommended:
            notes.insert(0, f"fresh outputs {DOUBTS[guard['verdict']]}: no recommendation")
        notes += ["the interval includes 1"] if ratio is not None and not self.shown else []
        notes += ["it is the standard sampler"] if ratio is None else []
        return {
            "rule": self.rule,
            "steps": self.pick.steps,
            "point": str(point),
            "sampler": point.fields(),
            "temperature": point.sampler.temperature,
            "precision": point.sampler.precision,
            "evaluator": self.evaluator,
            "outputs": self.fresh.outputs,
            "gain": ratio,
            "shown": self.shown,
            "entropy": entropy,
            "guard": guard,
            "verdict": guard["verdict"],
            "mark": self.fresh.mark,
            "recommended": self.recommended,
            "mind": "; ".join(notes),
        }


GAIN_COLUMNS = (
    Column("rule"),
    Column("steps", "M"),
    Column("point", "setting"),
    Column("gain", "gain on fresh outputs", digits=3, mark="mark"),
    Column("entropy", digits=3, bare=True),
    Column("verdict", "guard"),
    Column("evaluator"),
    Column("mind"),
)


@dataclass(frozen=True)
class Audit:
    """The table, the choices, and what they are worth."""

    source: str
    family: str
    cells: Sequence[Measured]
    metrics: Sequence[MetricSpec]
    """The perplexities, in the order of the evaluators."""
    selections: Mapping[str, Selection]
    """By rule; a rule that cannot choose is absent and has a line in `refusals`."""
    refusals: Mapping[str, str]
    gains: Sequence[Gain]
    told: tuple[str, ...] = ()
    """What was left out of the axes."""

    @cached_property
    def standard(self) -> OperatingPoint:
        """What everything is compared with."""
        return standard(self.family)

    def cell(self, steps: int, point: OperatingPoint) -> Measured:
        """One entry of the table."""
        return next(one for one in self.cells if (one.steps, one.point) == (steps, point))

    def ratios(self) -> list[dict[str, Any]]:
        """Perplexity of the standard sampler over that of every other, budget by budget."""
        from strop.measure.frame import perplexity_ratio

        rows = []
        for one in self.cells:
            if one.point == self.standard:
                continue
            found = perplexity_ratio(self.cell(one.steps, self.standard), one)
            row = {k: one.row()[k] for k in ("steps", "temperature", "precision", "point", "mark")}
            rows.append({**row, "ratio": found})
        return rows

    def answer(self) -> list[str]:
        """What a reader wants to know first, in sentences."""
        if not self.selections:
            return [f"The rule {rule} cannot choose: {why}" for rule, why in self.refusals.items()]
        told = []
        for rule, chosen in self.selections.items():
            mine = [gain for gain in self.gains if gain.rule == rule]
            names = " / ".join(dict.fromkeys(str(pick.point) for pick in chosen.picks))
            words = f"The rule {rule} chose {names} from {chosen.candidates} settings"
            if not mine:
                told.append(f"{words}; its gain was not measured on fresh outputs.")
                continue
            good = [g.ratio.value for g in mine if g.recommended and g.shown and g.ratio]
            doubtful = [str(g.pick.steps) for g in mine if not g.recommended]
            if good:
                words += (
                    f": {min(good):.2f} to {max(good):.2f} times less perplexing on fresh outputs"
                )
            if doubtful:
                words += f"; not above the entropy guard at M = {', '.join(doubtful)}: no "
                words += "recommendation there"
            told.append(words + ".")
        guard = self.cells[0].guard
        if guard.threshold is None:
            told.append(f"Without a usable guard ({guard.source}) sharpness had no bound.")
        return told

    def result(self, ask: Ask, evaluators: Sequence[str]) -> Result:
        """As typed tables and facts."""
        rows, ratios = [one.row(self.metrics[0]) for one in self.cells], self.ratios()
        title = (
            f"{self.source}: perplexity under {evaluators[0]} ({ask['span']}, token-pooled) with "
            "95% interval, [entropy in nats]"
        )
        table = cell_table(title, rows)
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
        gains = [gain.row() for gain in self.gains]
        more = {"ratios": over} if ratios else {}
        if gains:
            more["gains"] = Table(f"Gain over {self.standard}", GAIN_COLUMNS, gains)
        guard = self.cells[0].guard
        facts = {
            "checkpoint": self.source,
            "family": self.family,
            "standard": str(self.standard),
            "public_precision": public_precision(self.family),
            "answer": self.answer(),
            "evaluators": list(evaluators),
            "span": ask["span"],
            "guard": {"threshold": guard.threshold, "source": guard.source},
            "cells": [self._document(one) for one in self.cells],
            "ratios": ratios,
            "selections": {
                rule: {"sha256": one.sha256, **one.document()}
                for rule, one in self.selections.items()
            },
            "refusals": dict(self.refusals),
            "gains": gains,
        }
        notes = (
            f"standard: {self.standard}; the public code of {self.family} draws in "
            f"{public_precision(self.family) or 'a precision that is not known'}",
            *self.told,
            *guard_notes([*self.cells, *(gain.fresh for gain in self.gains)]),
            *prompt_notes(
                max(one.outputs for one in self.cells),
                self.cells[0].spec.generator.prompts,
                next((gain.fresh.spec.generator.prompts for gain in self.gains), None),
            ),
            *(f"the rule `{rule}` cannot choose: {why}" for rule, why in self.refusals.items()),
        )
        return Result(ask.said(), table, more, facts, notes)

    def _document(self, one: Measured) -> dict[str, Any]:
        found, row = one.document(), one.row(self.metrics[0])
        return {
            **{k: found[k] for k in ("cell", "outputs", "entropy", "guard", "below_guard")},
            **{k: row[k] for k in ("steps", "temperature", "precision", "point")},
            "perplexity": [one.perplexity(metric) for metric in self.metrics],
        }


def public_precision(family: str) -> str | None:
    """The precision in which the family's public code draws."""
    return FAMILIES[family if family in FAMILIES else reads_as(family)].precision


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
    chosen = _points(ask, model.spec.family)
    numbers = budgets(model, tuple(counts))
    cells = [(m, point) for m in numbers for point in chosen.points]
    n = [counts[m][0] if m in counts else max(c for c, _ in counts.values()) for m, _ in cells]
    drawn = draw(ask, model, cells, ask.folder or ask.out, n=n)
    table = score(ask, model, drawn, evaluators[:1])
    selections, refusals = _choose(table)
    digest = write_selection(
        ask.out,
        {rule: {"sha256": one.sha256, **one.document()} for rule, one in selections.items()},
    )
    fresh: Sequence[Measured] = ()
    if ask["fresh"] and selections:
        fresh = _fresh(ask, model, evaluators, selections, counts, digest)
    prompted = ask["prompts"] is not None
    metrics = [perplexity_metric(one, ask["span"], prompted=prompted) for one in evaluators]
    gains = _gains(model.spec.family, selections, fresh, evaluators, metrics)
    audit = Audit(
        model.source,
        model.spec.family,
        table,
        metrics[:1],
        selections,
        refusals,
        gains,
        chosen.left_out,
    )
    _write(ask.out, audit)
    return audit.result(ask, [one.spec.name for one in evaluators])


def _counts(ask: Ask) -> dict[int, tuple[int, int]]:
    """Outputs and fresh outputs by budget."""
    steps = ask["steps"] or (BUDGETS if ask["grid"] else STEPS)
    each = []
    for name in ("n", "fresh_n"):
        found = ask[name] if ask[name] is not None else ask["n"]
        if len(found) not in (1, len(steps)):
            raise UserError(
                f"`{name}` has another number of entries than there are budgets.",
                where=f"`{name}`",
                got=", ".join(map(str, found)),
                expected=f"a whole number of at least 1, or {len(steps)} of them, one per number "
                "of steps",
            )
        each.append(tuple(found) * len(steps) if len(found) == 1 else tuple(found))
    return dict(zip(steps, zip(*each, strict=True), strict=True))


def _points(ask: Ask, family: str) -> Any:
    """The axes' combinations, the standard first; what is left out is said."""
    usual = {"temperature": sorted(TEMPERATURES, reverse=True) if ask["grid"] else RATES}
    found = points(family, ask["sampler"], ask["axis"] or {}, usual)
    ordered = dict.fromkeys((standard(family), *found.points))
    return type(found)(tuple(ordered), found.left_out)


def _choose(table: Sequence[Measured]) -> tuple[dict[str, Selection], dict[str, str]]:
    candidates = [
        Candidate(
            one.steps,
            one.point,
            one.perplexity().value,
            one.entropy.value if one.entropy is not None else 0.0,
            one.verdict in ("above", None),
        )
        for one in table
    ]
    selections: dict[str, Selection] = {}
    refusals: dict[str, str] = {}
    for rule in RULES:
        try:
            selections[rule] = select(rule, candidates)
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
) -> Sequence[Measured]:
    """The standard sampler and every choice, drawn again under a seed of its own."""
    from strop.store.layout import FRESH

    causal = SAMPLERS[standard(model.spec.family).sampler.name].causal
    wanted = {(pick.steps, pick.point) for one in selections.values() for pick in one.picks}
    wanted |= {(m, standard(model.spec.family)) for m, _ in wanted}
    again = sorted(wanted, key=lambda cell: (cell[0], cell[1].order))
    n = [counts[m][1] if m in counts else max(c for _, c in counts.values()) for m, _ in again]
    out = ask.out / FRESH / digest[:16]
    cells = [(0 if causal else m, point) for m, point in again]
    seed, searched = derive_seed(ask["seed"], "fresh"), max(c for c, _ in counts.values())
    drawn = draw(ask, model, cells, out, n=n, seed=seed, searched=searched)
    return score(ask, model, drawn, evaluators)


def _gains(
    family: str,
    selections: Mapping[str, Selection],
    fresh: Sequence[Measured],
    evaluators: Sequence[Evaluator],
    metrics: Sequence[MetricSpec],
) -> list[Gain]:
    from strop.measure.frame import perplexity_ratio

    cells = {(one.steps, one.point): one for one in fresh}
    gains = []
    for rule, one in selections.items():
        for pick in one.picks if cells else ():
            plain, mine = cells[pick.steps, standard(family)], cells[pick.steps, pick.point]
            for who, metric in zip(evaluators, metrics, strict=True):
                ratio = None if mine is plain else perplexity_ratio(plain, mine, metric)
                gains.append(Gain(rule, pick, who.spec.name, mine, ratio))
    return gains


# ---------------------------------------------------------------- writing it


def write_selection(out: Path, now: Mapping[str, Mapping[str, Any]]) -> str:
    """Write choices with their hashes before anything is judged; earlier ones stay on record."""
    from strop.disk import write
    from strop.store.documents import as_json, damaged, parsed
    from strop.store.layout import SELECTION

    digest = hashlib.sha256("".join(one["sha256"] for one in now.values()).encode()).hexdigest()
    path = out / SELECTION
    before: list[Any] = []
    try:
        old = parsed(path)
        before = old["earlier"] + ([old["selections"]] if old["sha256"] != digest else [])
    except FileNotFoundError:
        """Nothing was chosen before."""
    except (ValueError, KeyError, TypeError) as error:
        fix = f"restore {path}, or delete it: only the record of earlier choices is lost"
        raise damaged(path, repr(error), fix) from None
    write(path, as_json({"sha256": digest, "selections": now, "earlier": before}))
    return digest


def _write(out: Path, audit: Audit) -> None:
    """A file of samplers per rule that chose."""
    from strop.disk import write

    for rule in RULES:
        (out / f"sampler-{rule}.yaml").unlink(missing_ok=True)  # of an earlier choice
    for rule, one in audit.selections.items():
        write(out / f"sampler-{rule}.yaml", _yaml(one, audit.gains))


def _yaml(selection: Selection, gains: Sequence[Gain]) -> bytes:
    import yaml

    doubtful = {g.pick.steps: g for g in gains if g.rule == selection.rule and not g.recommended}
    lines = [
        f"# The samplers that the rule `{selection.rule}` chose, one per budget, from "
        f"{selection.cells} cells.",
        "# Use: strop sample CHECKPOINT --spec THIS_FILE -o RUN",
    ]
    for steps, gain in doubtful.items():
        lines.append(
            f"# Not a recommendation at steps: {steps}: its fresh outputs are "
            f"{DOUBTS[gain.fresh.verdict or '']}."
        )
    specs = [
        # The budget always, also where it is the default: it is what tells the entries apart.
        {"steps": pick.steps}
        | pick.point.at(pick.steps).model_dump(mode="json", exclude_defaults=True)
        for pick in selection.picks
    ]
    return ("\n".join(lines) + "\n" + yaml.safe_dump({"samplers": specs}, sort_keys=False)).encode()


# ---------------------------------------------------------------- the paper's tables


def _beside(name: str) -> Any:
    """The paper's cells of the checkpoint that this one stands for."""

    def table(result: Result, ask: Ask, roles: Mapping[str, str]) -> Table:
        role = roles.get(ask.sources[0], "public")
        where = {"checkpoint": role} if "checkpoint" in paper.table(name).columns else {}
        shown = RowByRow(f"perplexity; paper: {role}", POINT_COLUMNS, name, where)
        return shown(result, ask, roles)

    return table


_CORNERS = {"axis": {"temperature": (1.0, 0.9, 0.85)}, "fresh": False, "evaluator": "gpt2"}
_SMALL = {"evaluator": None, "n": (32,)}


def _grid(name: str, told: str, config: str, smoke: str, n: int) -> Item:
    return Item(
        f"grid-{name}",
        (f"grid-{name}",),
        f"seven temperatures, two precisions, 11 budgets: {told}",
        f"a checkpoint of your own ({OWN.format(config)}), gpt2, a GPU",
        _beside(f"grid-{name}"),
        {name.rpartition("-")[2]: None},
        {name.rpartition("-")[2]: smoke},
        values={"grid": True, "fresh": False, "evaluator": "gpt2", "n": (n,)},
        smoke_values={**_SMALL, "steps": (4, 16, 64), "n": (16,)},
    )


STUDY = Study(
    name="audit",
    title="How much of a checkpoint's few-step gap is its sampler?",
    about="Sample CHECKPOINT over temperatures, precisions and whatever other axes, score, choose "
    "by stated rules, and report the gain on fresh outputs.",
    sources=Sources(("CHECKPOINT",), "As for `strop sample`.", (CHECKPOINT,)),
    parameters=(
        Parameter(
            "steps",
            "Updates M, e.g. 16,64; a causal model has one budget.",
            kind="ints",
            smoke=(4, 16),
            least=1,
            most=2**20 + 1,
            shown="4,16,64,256,1024; with --grid 1,2,4,...,1024",
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
        Parameter("grid", "Seven temperatures .80 to 1.10 instead of three.", False, "flag"),
        parameters.evaluator(),
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
        *parameters.POINTED,
        *parameters.ANSWERING,
        *parameters.SCORED,
    ),
    run=_run,
    check=_check,
    kind="audit",
    next=lambda ask: f"strop report {quoted(ask.out)} -o {quoted(ask.out)}/report.html",
    examples=(
        "strop audit --steps 4,16 -n 32 -o runs/audit",
        "strop audit runs/duo --axis temperature=1,0.9 --axis top_p=1,0.9 -o runs/duo-audit",
        "strop audit --prompts prompts.jsonl --length 64 --steps 16 -n 64 -o runs/answers-audit",
    ),
    items=(
        Item(
            "headline",
            ("headline",),
            "the four corners on the public checkpoint",
            f"{PUBLIC}, gpt2, a GPU",
            _beside("headline"),
            {"public": PUBLIC},
            {"public": CHECKPOINT},
            values={**_CORNERS, "steps": (16, 64, 256, 1024)},
            smoke_values={**_SMALL, "steps": (4, 16, 64)},
        ),
        Item(
            "headline-full",
            ("headline-full",),
            "the same at every budget; three checkpoints, of which one is public",
            f"{PUBLIC}, gpt2, a GPU; --checkpoint late=PATH or early=PATH for the others",
            _beside("headline-full"),
            {"public": PUBLIC},
            {"public": CHECKPOINT},
            roles=("public", "early", "late"),
            values={**_CORNERS, "steps": (1, 2, 8, 32, 128, 512, 1024, 2048)},
            smoke_values={**_SMALL, "steps": (1, 2, 8, 32)},
        ),
        _grid("small-late", "MDLM-Small after 914,672 steps", "mdlm-small", CHECKPOINT, 128),
        _grid(
            "small-early",
            "MDLM-Small after 20,788 steps",
            "mdlm-small",
            EMBEDDED + "tales-early",
            128,
        ),
        _grid("tiny-late", "MDLM-Tiny", "mdlm-tiny", EMBEDDED + "tales-tiny", 256),
    ),
)
