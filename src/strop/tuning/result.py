"""What a search found, in words, tables and YAML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strop.measure.metric import Number
from strop.spec.generator import OperatingPoint, SamplerSpec
from strop.table import Column, Table
from strop.tuning.gain import Gain, hashed
from strop.tuning.search import Tuned
from strop.verbs.verb import Ask, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from strop.denoisers import Model
    from strop.measure.guard import Guard


@dataclass(frozen=True)
class BudgetResult:
    """A search at one budget, and what its choice is worth."""

    search: Tuned
    gain: Gain
    notes: tuple[str, ...] = ()
    """On its fresh outputs."""

    @property
    def budget(self) -> str:
        """In words."""
        return self.gain.choice.budget

    @property
    def setting(self) -> str:
        """The choice in words."""
        return _setting(self.gain.choice.sampler, self.search)

    def row(self) -> dict[str, Any]:
        """One line of the table."""
        limits = self.gain.limits
        return {
            "budget": self.budget,
            **self.gain.row(),
            "point": self.setting,
            "limits": {one.words: {"found": one.value, "holds": one.holds} for one in limits},
            "held": all(one.holds for one in limits),
            "spent": self.search.spent,
            "settings": len(self.search.tried),
        }

    def sentence(self, plain: str, goal: Number) -> str:
        """What to use, or that nothing is recommended and why."""
        gain, setting = self.gain.gain, f"{self.setting} at {self.budget}"
        words = f"Use {setting}"
        if not self.gain.recommended:
            words = f"At {self.budget} nothing is recommended: {'; '.join(self.gain.doubts())}. "
            words += f"The choice was {self.setting}"
        if gain is not None and self.gain.ratio:
            words += f": {goal.heading} of {plain} is {gain:.3g} times as high"
        elif gain is not None:
            words += f": {goal.heading} {gain:+.3g} against {plain}"
        words += f", on {self.gain.outputs} fresh outputs"
        words += f"; searched with {self.search.spent} outputs of {len(self.search.tried)} settings"
        return "; ".join([words, *self.gain.remarks()]) + "."


def as_result(
    ask: Ask, model: Model, plain: str, guard: Guard, goal: Number, found: Sequence[BudgetResult]
) -> Result:
    """As typed tables and facts; `plain` is the standard sampler in words."""
    over = "gain" if goal.log else "difference"
    value = Column("objective", goal.heading)
    columns = (
        Column("budget"),
        Column("point", "setting"),
        value,
        Column("standard", f"of {plain}", bare=True),
        Column("gain", over, digits=3, signed=not goal.log),
        Column("held", "limits hold"),
        Column("calls", "network calls", digits=3),
        Column("seconds", digits=2),
        Column("spent", "outputs searched"),
        Column("mind", "note"),
    )
    title = f"{ask.sources[0]}: the choice, on {ask['fresh_n']} fresh outputs; 95% intervals"
    title += " (those of gains hold together)"
    table = Table(title, columns, [one.row() for one in found])
    tried = Table(
        "What was tried, the best first",
        (
            Column("budget"),
            Column("point", "setting"),
            Column("outputs", "n"),
            value,
            Column("limits"),
            Column("state"),
        ),
        [row for one in found for row in _tried(one)],
    )
    limits = list(dict.fromkeys(str(limit) for one in found for limit in one.search.limits))
    facts = {
        "checkpoint": ask.sources[0],
        "family": model.spec.family,
        "standard": plain,
        "objective": goal.name,
        "best": ask["best"] or goal.best,
        "limits": limits,
        "guard": {"threshold": guard.threshold, "source": guard.source},
        "answer": [one.sentence(plain, goal) for one in found],
        "paths": {one.budget: _path(one.search) for one in found},
    }
    notes = [*dict.fromkeys(note for one in found for note in (*one.search.told, *one.notes))]
    notes.append("limits: " + (", ".join(limits) or "none"))
    if ask["guard"] and guard.threshold is None:
        notes.append(f"without a usable guard ({guard.source}) sharpness had no bound")
    elif not ask["guard"]:
        notes.append("without the entropy guard sharpness had no bound")
    return Result(ask.said(), table, {"tried": tried}, facts, tuple(notes))


def _tried(found: BudgetResult) -> list[dict[str, Any]]:
    names = [str(one) for one in found.search.limits]
    return [
        {
            "budget": found.budget,
            "point": _setting(one.sampler, found.search),
            "sampler": one.sampler.model_dump(mode="json"),
            "outputs": one.outputs,
            "objective": one.objective,
            "limits": "; ".join(
                f"{name.partition('=')[0].rstrip('<>')} {value.value:.3f}"
                for name, value in zip(names, one.limits, strict=True)
            ),
            "state": one.state + (f" ({one.why})" if one.why else ""),
        }
        for one in found.search.tried
    ]


def _path(chosen: Tuned) -> list[list[Any]]:
    """After how many outputs which setting led, with its objective in the end."""
    value = {one.sampler: one.objective.value for one in chosen.tried}
    return [[n, None if spec is None else value[spec]] for n, spec in chosen.path]


def selected(one: Tuned) -> dict[str, Any]:
    """For the record of choices, with a hash."""
    return hashed(
        {
            "sampler": one.sampler.model_dump(mode="json"),
            "holds": one.holds,
            "limits": [str(limit) for limit in one.limits],
            "settings": len(one.tried),
            "outputs": one.spent,
        }
    )


def _setting(spec: SamplerSpec, chosen: Tuned) -> str:
    """A setting in words, with its steps where these were searched too."""
    several = len({one.sampler.steps for one in chosen.tried}) > 1
    return str(OperatingPoint.of(spec)) + (f", {spec.steps} steps" if several else "")


def draw(result: Result) -> Figure:
    """A panel per axis that was varied; outputs are the size of a point, the choice has a ring."""
    from strop.figures import GREY, PALETTE, log_y, panels, tidy

    rows = list(result.more["tried"].rows)
    names = _varied(rows)
    budgets = list(dict.fromkeys(row["budget"] for row in rows))
    ratio = result.facts["objective"].startswith("perplexity")
    figure, axes = panels(len(names) + 1, 1.9 * (len(names) + 1))
    for colour, budget in zip(PALETTE * len(budgets), budgets, strict=False):
        mine = [row for row in rows if row["budget"] == budget]
        for panel, name in zip(axes, names, strict=False):
            for row in mine:
                value, level = _fields(row).get(name), row["objective"].value
                if value is None:
                    continue
                stopped = row["state"].startswith("over")
                look: dict[str, Any] = {"color": GREY if stopped else colour, "alpha": 0.8}
                panel.scatter([value], [level], s=2 + row["outputs"] / 3, lw=0, **look)
                if row["state"].startswith("leads"):
                    panel.scatter([value], [level], s=90, fc="none", ec=colour, lw=1)
            panel.set(xlabel=name)
        path = [(n, value) for n, value in result.facts["paths"][budget] if value is not None]
        if path:
            axes[-1].step(*zip(*path, strict=True), where="post", color=colour, label=budget)
    axes[-1].set(xlabel="outputs spent")
    for panel in axes:
        panel.set(ylabel=result.facts["objective"])
        if ratio and rows:
            log_y(panel)
        tidy(panel)
    if len(budgets) > 1:
        axes[-1].legend()
    return figure


def _fields(row: Any) -> dict[str, Any]:
    sampler = row["sampler"]
    return {**sampler, **sampler.get("settings", {})}


def _varied(rows: list[Any]) -> list[str]:
    """The numeric fields in which candidates of one budget differ."""
    found: dict[str, None] = {}
    for row in rows:
        like = [_fields(one) for one in rows if one["budget"] == row["budget"]]
        for name, value in _fields(row).items():
            numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
            if numeric and len({str(one[name]) for one in like if name in one}) > 1:
                found[name] = None
    return list(found)
