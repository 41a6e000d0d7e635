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
            "limits": {
                limit.words: {"found": limit.value, "holds": limit.holds} for limit in limits
            },
            "held": all(limit.holds for limit in limits),
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
    ask: Ask, model: Model, plain: str, guard: Guard, goal: Number, results: Sequence[BudgetResult]
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
    table = Table(title, columns, [result.row() for result in results])
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
        [row for result in results for row in _tried(result)],
    )
    limits = list(dict.fromkeys(str(limit) for result in results for limit in result.search.limits))
    facts = {
        "checkpoint": ask.sources[0],
        "family": model.spec.family,
        "standard": plain,
        "objective": goal.name,
        "best": ask["best"] or goal.best,
        "limits": limits,
        "guard": {"threshold": guard.threshold, "source": guard.source},
        "answer": [result.sentence(plain, goal) for result in results],
        "paths": {result.budget: _path(result.search) for result in results},
    }
    notes = [
        *dict.fromkeys(note for result in results for note in (*result.search.notes, *result.notes))
    ]
    notes.append("limits: " + (", ".join(limits) or "none"))
    if ask["guard"] and guard.threshold is None:
        notes.append(f"without a usable guard ({guard.source}) sharpness had no bound")
    elif not ask["guard"]:
        notes.append("without the entropy guard sharpness had no bound")
    return Result(ask.said(), table, {"tried": tried}, facts, tuple(notes))


def _tried(result: BudgetResult) -> list[dict[str, Any]]:
    names = [str(limit) for limit in result.search.limits]
    return [
        {
            "budget": result.budget,
            "point": _setting(tried.sampler, result.search),
            "sampler": tried.sampler.model_dump(mode="json"),
            "outputs": tried.outputs,
            "objective": tried.objective,
            "limits": "; ".join(
                f"{name.partition('=')[0].rstrip('<>')} {value.value:.3f}"
                for name, value in zip(names, tried.limits, strict=True)
            ),
            "state": tried.state + (f" ({tried.why})" if tried.why else ""),
        }
        for tried in result.search.tried
    ]


def _path(chosen: Tuned) -> list[list[Any]]:
    """After how many outputs which setting led, with its objective in the end."""
    value = {tried.sampler: tried.objective.value for tried in chosen.tried}
    return [[n, None if spec is None else value[spec]] for n, spec in chosen.path]


def selected(chosen: Tuned) -> dict[str, Any]:
    """For the record of choices, with a hash."""
    return hashed(
        {
            "sampler": chosen.sampler.model_dump(mode="json"),
            "holds": chosen.holds,
            "limits": [str(limit) for limit in chosen.limits],
            "settings": len(chosen.tried),
            "outputs": chosen.spent,
        }
    )


def _setting(spec: SamplerSpec, chosen: Tuned) -> str:
    """A setting in words, with its steps where these were searched too."""
    several = len({tried.sampler.steps for tried in chosen.tried}) > 1
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
        own_rows = [row for row in rows if row["budget"] == budget]
        for panel, name in zip(axes, names, strict=False):
            for row in own_rows:
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
    names: dict[str, None] = {}
    for row in rows:
        like = [_fields(other) for other in rows if other["budget"] == row["budget"]]
        for name, value in _fields(row).items():
            numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
            if numeric and len({str(fields[name]) for fields in like if name in fields}) > 1:
                names[name] = None
    return list(names)
