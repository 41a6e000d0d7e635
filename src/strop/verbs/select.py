"""Which sampler to deploy: named rules over a table of measured cells.

    frozen       one setting for all budgets: the lowest perplexity (geometric mean over the
                 budgets) among the settings that pass the entropy guard at more than half of them
    sharpest     the paper's rule: the lowest mean entropy among the same settings
    per-budget   for each budget, the lowest perplexity among the settings that pass the guard there

A cell passes if it is `above` the guard, or if there is none. A rule only sees the table it is
given. Choosing the best of many noisy numbers flatters the choice, so the gain is reported on fresh
outputs, and the selection is written and hashed before that.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from strop.errors import UserError, unknown_name
from strop.spec import OperatingPoint

Rule = Literal["frozen", "sharpest", "per-budget"]
RULES: tuple[Rule, ...] = ("frozen", "sharpest", "per-budget")


@dataclass(frozen=True)
class Candidate:
    """What a rule needs to know of one cell."""

    steps: int
    point: OperatingPoint
    perplexity: float
    entropy: float
    passes: bool
    """Whether it is above the guard, or there is none."""


@dataclass(frozen=True)
class Pick:
    """The chosen setting of one budget."""

    steps: int
    point: OperatingPoint
    passes: bool
    """Whether this very cell passes the guard; a frozen setting may fail at some budgets."""
    at_edge: tuple[str, ...]
    """Why a wider grid might choose otherwise; empty inside the grid."""


@dataclass(frozen=True)
class Selection:
    """A rule's answer, with what it was chosen from."""

    rule: Rule
    picks: tuple[Pick, ...]
    """One per budget, by steps."""
    candidates: int
    """Settings that were looked at, per budget."""
    cells: int
    """Cells that were looked at in all: the search budget."""

    def document(self) -> dict[str, Any]:
        """Plain data, to be written before anything is judged."""
        return {
            "rule": self.rule,
            "picks": [
                {
                    "steps": pick.steps,
                    "point": str(pick.point),
                    "sampler": pick.point.fields(),
                    "passes": pick.passes,
                    "at_edge": list(pick.at_edge),
                }
                for pick in self.picks
            ],
            "candidates": self.candidates,
            "cells": self.cells,
        }

    @property
    def sha256(self) -> str:
        """Of the document's canonical JSON."""
        text = json.dumps(self.document(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def select(rule: str, table: Sequence[Candidate]) -> Selection:
    """Apply a rule to a full table: every setting measured at every budget."""
    if rule not in RULES:
        raise unknown_name("selection rule", rule, RULES)
    cells = {(one.steps, one.point): one for one in table}
    budgets = sorted({one.steps for one in table})
    settings = sorted({one.point for one in table}, key=lambda point: point.order)
    missing = [f"{s} at {m}" for m in budgets for s in settings if (m, s) not in cells]
    if not cells or missing:
        raise UserError(
            "A sampler can only be chosen from a full table.",
            got="no cells" if not cells else "nothing for " + ", ".join(missing[:4]),
            expected="every setting measured at every number of steps",
        )
    if rule == "per-budget":
        chosen = {m: _best(cells, m, settings) for m in budgets}
    else:
        chosen = dict.fromkeys(budgets, _frozen(cells, budgets, settings, _LEVELS[rule]))
    picks = tuple(
        Pick(m, chosen[m], cells[m, chosen[m]].passes, _edges(chosen[m], settings)) for m in budgets
    )
    return Selection(rule, picks, len(settings), len(cells))  # type: ignore[arg-type]


_LEVELS: dict[str, Callable[[Candidate], float]] = {
    "frozen": lambda cell: math.log(cell.perplexity),
    "sharpest": lambda cell: cell.entropy,
}
"""What each rule for all budgets keeps as low as the guard allows, in the mean over budgets."""


Cells = dict[tuple[int, OperatingPoint], Candidate]


def _frozen(
    cells: Cells,
    budgets: list[int],
    settings: list[OperatingPoint],
    level: Callable[[Candidate], float],
) -> OperatingPoint:
    def passing(setting: OperatingPoint) -> int:
        return sum(cells[m, setting].passes for m in budgets)

    allowed = [s for s in settings if 2 * passing(s) > len(budgets)]
    if not allowed:
        raise UserError(
            "No setting is above the entropy guard at most budgets.",
            got=", ".join(f"{s}: {passing(s)} of {len(budgets)}" for s in settings[:6]),
            fix="draw more outputs, add higher temperatures, or look at the table: the guard may "
            "not fit this model",
        )
    return min(allowed, key=lambda s: sum(level(cells[m, s]) for m in budgets))


def _best(
    cells: dict[tuple[int, OperatingPoint], Candidate], steps: int, settings: list[OperatingPoint]
) -> OperatingPoint:
    allowed = [s for s in settings if cells[steps, s].passes]
    if not allowed:
        raise UserError(
            "No setting is above the entropy guard at this budget.",
            where=f"{steps} steps",
            fix="draw more outputs, add higher temperatures, or use another rule",
        )
    return min(allowed, key=lambda s: cells[steps, s].perplexity)


def _edges(chosen: OperatingPoint, settings: Sequence[OperatingPoint]) -> tuple[str, ...]:
    """The numeric fields in which the choice is the lowest or highest that was tried."""
    mine, told = chosen.fields(), []
    for name, value in mine.items():
        if isinstance(value, (bool, str)) or not isinstance(value, (int, float)):
            continue
        rest = {k: v for k, v in mine.items() if k != name}
        same = sorted(
            f[name]
            for f in (s.fields() for s in settings)
            if name in f and {k: v for k, v in f.items() if k != name} == rest
        )
        if len(same) < 2 or (name == "top_p" and value == 1):
            continue  # nothing else was tried, or nothing else can be
        where = f"{name} tried in {chosen.sampler.precision}"
        if value == same[0]:
            told.append(f"{value:g} is the lowest {where}")
        if value == same[-1]:
            told.append(f"{value:g} is the highest {where}")
    return tuple(told)
