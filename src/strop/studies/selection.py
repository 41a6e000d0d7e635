"""Which sampler to deploy: two named rules over a table of measured cells.

    frozen       one setting for all budgets: the lowest perplexity (geometric mean over the
                 budgets) among the settings that pass the entropy guard at more than half of them
    per-budget   for each budget, the lowest perplexity among the settings that pass the guard there

A rule only sees the table it is given. Choosing the best of many noisy numbers flatters the choice,
so the gain is reported on fresh outputs, and the selection is written and hashed before that.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from strop.errors import UserError, unknown_name

__all__ = ["RULES", "STANDARD", "Measured", "Pick", "Rule", "Selection", "Setting", "select"]

Rule = Literal["frozen", "per-budget"]
RULES: tuple[Rule, ...] = ("frozen", "per-budget")


@dataclass(frozen=True, order=True)
class Setting:
    """The two knobs."""

    temperature: float
    precision: str

    def __str__(self) -> str:
        return f"({self.temperature:g}, {self.precision})"


STANDARD = Setting(1.0, "float64")
"""The sampler that everything is compared with."""


@dataclass(frozen=True)
class Measured:
    """What a rule needs to know of one cell."""

    steps: int
    setting: Setting
    perplexity: float
    passes: bool
    """Whether its mean entropy reaches the guard."""


@dataclass(frozen=True)
class Pick:
    """The chosen setting of one budget."""

    steps: int
    setting: Setting
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
        return asdict(self)

    @property
    def sha256(self) -> str:
        """Of the document's canonical JSON."""
        text = json.dumps(self.document(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def select(rule: str, table: Sequence[Measured]) -> Selection:
    """Apply a rule to a full table: every setting measured at every budget."""
    if rule not in RULES:
        raise unknown_name("selection rule", rule, RULES)
    cells = {(one.steps, one.setting): one for one in table}
    budgets = sorted({one.steps for one in table})
    settings = sorted({one.setting for one in table})
    missing = [f"{s} at {m}" for m in budgets for s in settings if (m, s) not in cells]
    if not cells or missing:
        raise UserError(
            "A sampler can only be chosen from a full table.",
            got="no cells" if not cells else "nothing for " + ", ".join(missing[:4]),
            expected="every setting measured at every number of steps",
        )
    if rule == "frozen":
        chosen = dict.fromkeys(budgets, _frozen(cells, budgets, settings))
    else:
        chosen = {m: _best(cells, m, settings) for m in budgets}
    picks = tuple(
        Pick(m, chosen[m], cells[m, chosen[m]].passes, _edges(chosen[m], settings)) for m in budgets
    )
    return Selection(rule, picks, len(settings), len(cells))  # type: ignore[arg-type]


Cells = dict[tuple[int, Setting], Measured]


def _frozen(cells: Cells, budgets: list[int], settings: list[Setting]) -> Setting:
    def passing(setting: Setting) -> int:
        return sum(cells[m, setting].passes for m in budgets)

    def level(setting: Setting) -> float:
        return sum(math.log(cells[m, setting].perplexity) for m in budgets) / len(budgets)

    allowed = [s for s in settings if 2 * passing(s) > len(budgets)]
    if not allowed:
        raise UserError(
            "No setting passes the entropy guard at most budgets.",
            got=", ".join(f"{s}: {passing(s)} of {len(budgets)}" for s in settings[:6]),
            fix="add higher temperatures, or look at the table: the guard may not fit this model",
        )
    return min(allowed, key=level)


def _best(cells: Cells, steps: int, settings: list[Setting]) -> Setting:
    allowed = [s for s in settings if cells[steps, s].passes]
    if not allowed:
        raise UserError(
            "No setting passes the entropy guard at this budget.",
            where=f"{steps} steps",
            fix="add higher temperatures, or use the rule `frozen`",
        )
    return min(allowed, key=lambda s: cells[steps, s].perplexity)


def _edges(setting: Setting, settings: list[Setting]) -> tuple[str, ...]:
    same = sorted(s.temperature for s in settings if s.precision == setting.precision)
    if len(same) < 2:
        return ()
    told, tried = [], f"temperature tried in {setting.precision}"
    if setting.temperature == same[0]:
        told.append(f"{setting.temperature:g} is the lowest {tried}")
    if setting.temperature == same[-1]:
        told.append(f"{setting.temperature:g} is the highest {tried}")
    return tuple(told)
