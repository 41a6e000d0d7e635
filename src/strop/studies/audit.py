"""The audit: how much of a checkpoint's few-step gap is its sampler?

1. Draw and score every cell of the table: budgets by settings, one seed.
2. Choose by the two rules of `selection.py`; write the choice and its hash.
3. Draw the standard sampler and the choices anew, under another seed, and report the gain there:
   fresh outputs know nothing of the search. Optionally a second evaluator scores them too.
4. Write the chosen samplers as YAML that `strop sample --spec` reads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.denoisers import Denoiser
from strop.disk import write
from strop.errors import UserError
from strop.metrics.bootstrap import Interval
from strop.metrics.causal import Evaluator
from strop.metrics.heldout import HeldOutTexts
from strop.progress import Progress
from strop.spec import SEED_LIMIT, SpanPolicy
from strop.studies.cells import Scored, draw_and_score, perplexity_ratio, sampler
from strop.studies.selection import RULES, STANDARD, Measured, Selection, Setting, select

__all__ = ["CORNERS", "GRID", "GRID_STEPS", "STEPS", "Audit", "Gain", "audit"]

STEPS = (4, 16, 64, 256, 1024)
CORNERS = (
    STANDARD,
    Setting(1.0, "float32"),
    Setting(0.9, "float64"),
    Setting(0.9, "float32"),
    Setting(0.85, "float32"),
)
"""The four corners, and one that is sharper still."""
GRID_STEPS = tuple(2**k for k in range(11))
GRID = tuple(
    Setting(temperature, precision)
    for precision in ("float64", "float32")
    for temperature in (0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1)
)
"""The paper's full grids: seven temperatures, two precisions, 11 budgets."""

RESULT, SELECTION, FRESH = "audit.json", "selection.json", "fresh"


@dataclass(frozen=True)
class Gain:
    """What a choice is worth on outputs that it was not chosen on."""

    rule: str
    steps: int
    setting: Setting
    evaluator: str
    ratio: Interval | None
    """Perplexity of the standard sampler over that of the choice; None if they are the same."""

    @property
    def shown(self) -> bool:
        """Whether the interval excludes a ratio of one."""
        return self.ratio is not None and not self.ratio.low <= 1 <= self.ratio.high


@dataclass(frozen=True)
class Audit:
    """The table, the choices, and what they are worth."""

    table: list[Scored]
    selections: dict[str, Selection]
    """By rule; a rule that cannot choose is absent and has a line in `refusals`."""
    refusals: dict[str, str]
    gains: list[Gain]
    evaluators: list[str]
    span: str

    @property
    def budgets(self) -> list[int]:
        """The numbers of steps, ascending."""
        return sorted({one.steps for one in self.table})

    @property
    def settings(self) -> list[Setting]:
        """The columns of the table, in the order in which they were asked for."""
        return list(dict.fromkeys(one.setting for one in self.table))

    def cell(self, steps: int, setting: Setting) -> Scored:
        """One entry of the table."""
        return next(one for one in self.table if (one.steps, one.setting) == (steps, setting))

    def ratio(self, steps: int, setting: Setting) -> Interval:
        """Perplexity of the standard sampler over that of a setting, at one budget."""
        return perplexity_ratio(self.cell(steps, STANDARD), self.cell(steps, setting))

    def document(self) -> dict[str, Any]:
        """For JSON."""
        guard = self.table[0].summary.guard
        return {
            "evaluators": self.evaluators,
            "span": self.span,
            "guard": {"threshold": guard.threshold, "source": guard.source},
            "cells": [one.document() for one in self.table],
            "ratios": [
                {
                    "steps": steps,
                    "temperature": setting.temperature,
                    "precision": setting.precision,
                    "ratio": self.ratio(steps, setting).as_dict(),
                }
                for steps in self.budgets
                for setting in self.settings
                if setting != STANDARD
            ],
            "selections": {
                rule: {"sha256": one.sha256, **one.document()}
                for rule, one in self.selections.items()
            },
            "refusals": self.refusals,
            "gains": [
                {
                    "rule": gain.rule,
                    "steps": gain.steps,
                    "temperature": gain.setting.temperature,
                    "precision": gain.setting.precision,
                    "evaluator": gain.evaluator,
                    "ratio": None if gain.ratio is None else gain.ratio.as_dict(),
                    "shown": gain.shown,
                }
                for gain in self.gains
            ],
        }


def audit(
    denoiser: Denoiser,
    evaluators: Sequence[Evaluator],
    *,
    out: Path,
    steps: Sequence[int] = STEPS,
    settings: Sequence[Setting] = CORNERS,
    n: Sequence[int],
    fresh: bool = True,
    fresh_n: Sequence[int] | None = None,
    seed: int = 0,
    span: SpanPolicy = "first-document",
    held_out: HeldOutTexts | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Audit:
    """Audit a checkpoint in a run directory; the first evaluator chooses, all report.

    `n` has one number of outputs per budget, and so has `fresh_n` for the gains (by default the
    same). The same call continues, or answers from what is there.
    """
    if STANDARD not in settings:
        raise UserError("The audit needs the standard sampler.", expected=str(STANDARD))
    counts = dict(zip(steps, n, strict=True))
    fresh_counts = counts if fresh_n is None else dict(zip(steps, fresh_n, strict=True))
    common: dict[str, Any] = {"span": span, "held_out": held_out, "progress": progress}
    points = [(m, setting) for m in steps for setting in settings]
    table = draw_and_score(
        denoiser,
        points,
        evaluators[:1],
        n=[counts[m] for m, _ in points],
        seed=seed,
        out=out,
        force=force,
        **common,
    )
    selections, refusals = _choose(table)
    digest = _write_selection(out, selections)
    gains: list[Gain] = []
    chosen = {(pick.steps, pick.setting) for one in selections.values() for pick in one.picks} | {
        (m, STANDARD) for m in steps
    }
    if fresh and selections:
        again = sorted(chosen)
        scored = draw_and_score(
            denoiser,
            again,
            evaluators,
            n=[fresh_counts[m] for m, _ in again],
            seed=(seed + 1) % SEED_LIMIT,
            out=out / FRESH / digest[:16],
            **common,
        )
        gains = _gains(selections, scored, evaluators)
    result = Audit(table, selections, refusals, gains, [e.spec.name for e in evaluators], span)
    for rule, one in selections.items():
        write(out / f"sampler-{rule}.yaml", _yaml(one))
    write(out / RESULT, (json.dumps(result.document(), indent=2, allow_nan=False) + "\n").encode())
    return result


def _choose(table: Sequence[Scored]) -> tuple[dict[str, Selection], dict[str, str]]:
    measured = [
        Measured(one.steps, one.setting, one.value().value, not one.summary.below_guard)
        for one in table
    ]
    selections, refusals = {}, {}
    for rule in RULES:
        try:
            selections[rule] = select(rule, measured)
        except UserError as error:
            refusals[rule] = str(error)
    return selections, refusals


def _write_selection(out: Path, selections: dict[str, Selection]) -> str:
    """Write the choices before anything is judged; choices made earlier stay on record."""
    now = {rule: {"sha256": one.sha256, **one.document()} for rule, one in selections.items()}
    digest = hashlib.sha256("".join(one.sha256 for one in selections.values()).encode()).hexdigest()
    path = out / SELECTION
    before: list[Any] = []
    if path.exists():
        try:
            old = json.loads(path.read_bytes())
            before = old["earlier"] + ([old["selections"]] if old["sha256"] != digest else [])
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                "The record of earlier choices is damaged.",
                where=path,
                got=str(error)[:200],
                fix=f"restore {path}, or delete it: only the record is lost",
            ) from None
    document = {"sha256": digest, "selections": now, "earlier": before}
    write(path, (json.dumps(document, indent=2) + "\n").encode())
    return digest


def _gains(
    selections: dict[str, Selection], scored: Sequence[Scored], evaluators: Sequence[Evaluator]
) -> list[Gain]:
    cells = {(one.steps, one.setting): one for one in scored}
    return [
        Gain(
            rule,
            pick.steps,
            pick.setting,
            evaluator.spec.name,
            None
            if pick.setting == STANDARD
            else perplexity_ratio(
                cells[pick.steps, STANDARD], cells[pick.steps, pick.setting], number
            ),
        )
        for rule, one in selections.items()
        for pick in one.picks
        for number, evaluator in enumerate(evaluators)
    ]


def _yaml(selection: Selection) -> bytes:
    import yaml

    specs = [
        # The budget always, also where it is the default: it is what tells the entries apart.
        {"steps": pick.steps}
        | sampler(pick.steps, pick.setting).model_dump(mode="json", exclude_defaults=True)
        for pick in selection.picks
    ]
    head = (
        f"# The samplers that the rule `{selection.rule}` chose, one per budget, from "
        f"{selection.cells} cells.\n# Use: strop sample CHECKPOINT --spec THIS_FILE -o RUN\n"
    )
    return (head + yaml.safe_dump({"samplers": specs}, sort_keys=False)).encode()
