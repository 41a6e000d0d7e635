"""Which sampler to deploy: named rules over a frame, and the record of what was chosen.

    frozen       one setting for all budgets: the lowest perplexity (geometric mean over the
                 budgets) among the settings that pass the entropy guard at more than half of them
    sharpest     the lowest mean entropy among the same settings (the paper's rule, where cells
                 pass the guard by their mean)
    per-budget   for each budget, the lowest perplexity among the settings that pass the guard there

A cell passes if it is `above` the guard, by entropy and by diversity, or if there is none. A rule
only sees the frame it is given. Choosing the best of many noisy numbers flatters the choice, so the
gain is reported on fresh outputs (`strop.tuning.gain`), and the choice is written and hashed before
that.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from strop.errors import UserError, unknown_name
from strop.spec.generator import OperatingPoint, SamplerSpec
from strop.tuning.race import Limit, guard_limits

if TYPE_CHECKING:
    from strop.measure.frame import Measured

Rule = Literal["frozen", "sharpest", "per-budget"]
RULES: tuple[Rule, ...] = ("frozen", "sharpest", "per-budget")


@dataclass(frozen=True)
class Choice:
    """The setting of one budget, and what was known of it before any fresh output."""

    budget: str
    """In words: `M = 16`, or `16 calls`."""
    steps: int
    point: OperatingPoint
    holds: bool = True
    """Whether whoever chose had something to choose: else it is the least bad setting."""
    passes: bool = True
    """Whether it was inside every limit at this budget; a frozen setting may fail at some."""
    edges: tuple[str, ...] = ()
    """Where a wider grid or space might choose otherwise."""
    limits: tuple[Limit, ...] = ()
    """What its fresh outputs must hold, too."""

    @property
    def sampler(self) -> SamplerSpec:
        """With its steps."""
        return self.point.at(self.steps)


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
class Selection:
    """A rule's answer, with what it was chosen from."""

    rule: Rule
    choices: tuple[Choice, ...]
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
                    "steps": one.steps,
                    "point": str(one.point),
                    "sampler": one.point.fields(),
                    "passes": one.passes,
                    "at_edge": list(one.edges),
                }
                for one in self.choices
            ],
            "candidates": self.candidates,
            "cells": self.cells,
        }


def choose(frame: Sequence[Measured], rule: str) -> Selection:
    """Apply a rule to the rows of a frame, which are held against one guard."""
    candidates = [
        Candidate(
            row.steps,
            row.point,
            row.perplexity().value,
            row.entropy.value if row.entropy is not None else 0.0,
            row.verdict in ("above", None),
        )
        for row in frame
    ]
    return select(candidates, rule, guard_limits(frame[0].guard if frame else None))


def select(table: Sequence[Candidate], rule: str, limits: tuple[Limit, ...] = ()) -> Selection:
    """Apply a rule to a full table: every setting measured at every budget."""
    if rule not in RULES:
        raise unknown_name("selection rule", rule, RULES)
    cells = {(cell.steps, cell.point): cell for cell in table}
    budgets = sorted({cell.steps for cell in table})
    settings = sorted({cell.point for cell in table}, key=lambda point: point.order)
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
    choices = tuple(
        Choice(
            f"M = {m}",
            m,
            chosen[m],
            passes=cells[m, chosen[m]].passes,
            edges=_edges(chosen[m], settings),
            limits=limits,
        )
        for m in budgets
    )
    return Selection(rule, choices, len(settings), len(cells))  # type: ignore[arg-type]


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
            "No setting is above the guard at most budgets.",
            got=", ".join(f"{s}: {passing(s)} of {len(budgets)}" for s in settings[:6]),
            fix="draw more outputs, add higher temperatures, or look at the table: the guard may "
            "not fit this model",
        )
    return min(allowed, key=lambda s: sum(level(cells[m, s]) for m in budgets))


def _best(cells: Cells, steps: int, settings: list[OperatingPoint]) -> OperatingPoint:
    allowed = [s for s in settings if cells[steps, s].passes]
    if not allowed:
        raise UserError(
            "No setting is above the guard at this budget.",
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
            if not isinstance(f[name], str)  # a schedule of temperatures has no place among numbers
        )
        if len(same) < 2 or (name == "top_p" and value == 1):
            continue  # nothing else was tried, or nothing else can be
        where = f"{name} tried in {chosen.sampler.precision}"
        if value == same[0]:
            told.append(f"{value:g} is the lowest {where}")
        if value == same[-1]:
            told.append(f"{value:g} is the highest {where}")
    return tuple(told)


# ---------------------------------------------------------------- the record of choices


def hashed(document: Mapping[str, Any]) -> dict[str, Any]:
    """A choice as it is written, with the hash of its canonical JSON."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return {"sha256": hashlib.sha256(text.encode()).hexdigest(), **document}


def write_selection(out: Path, now: Mapping[str, Mapping[str, Any]]) -> str:
    """Write choices with their hashes before anything is judged; earlier ones stay on record."""
    from strop.disk import write
    from strop.store.documents import SELECTION, as_json, damaged, parsed

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
