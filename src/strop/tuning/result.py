"""What a search found, in words, tables and YAML."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strop.measure.number import Number
from strop.spec import OperatingPoint, SamplerSpec
from strop.stats.interval import Interval
from strop.table import Column, Table
from strop.tuning.search import Tuned
from strop.verbs.points import standard
from strop.verbs.study import Ask, Result

if TYPE_CHECKING:
    from strop.denoisers import Model
    from strop.measure.guard import Guard


@dataclass(frozen=True)
class Gain:
    """What the choice of one budget is worth on outputs that it was not chosen on."""

    budget: str
    """In words: `M = 16`, or `16 calls`."""
    chosen: Tuned
    outputs: int
    fresh: Interval
    """The choice's objective."""
    plain: Interval
    """That of the standard sampler."""
    gain: Interval | None
    """Of ratios: standard over choice; else choice minus standard. None: they are the same."""
    limits: tuple[tuple[str, Interval, bool | None], ...]
    """Every limit on the fresh outputs: its words, the value, whether it holds for sure."""
    ratio: bool
    calls: float

    @property
    def shown(self) -> bool:
        """Whether the interval excludes that nothing was gained."""
        none = 1.0 if self.ratio else 0.0
        return self.gain is not None and self.gain.excludes(none)

    @property
    def recommended(self) -> bool:
        """Whether every limit holds for sure, when searched and on fresh outputs."""
        return self.chosen.holds and all(holds for _, _, holds in self.limits)

    def mind(self) -> list[str]:
        """What a reader must know of it."""
        told = [] if self.chosen.holds else ["no setting held every limit for sure"]
        told += [
            f"fresh outputs {'break' if holds is False else 'do not surely hold'} {words}"
            for words, _, holds in self.limits
            if not holds
        ]
        told = [f"{one}: no recommendation" for one in told[:1]] + told[1:]
        if self.gain is not None and not self.gain.bounded:
            told.append("too few outputs for an interval of the gain")
        elif self.gain is not None and not self.shown:
            told.append("the interval includes no gain")
        told += ["it is the standard sampler"] if self.gain is None else []
        return [*told, *self.chosen.edges]

    def row(self) -> dict[str, Any]:
        """One line of the table."""
        spec, gain = self.chosen.sampler, self.gain
        return {
            "budget": self.budget,
            "steps": spec.steps,
            "point": _setting(spec, self.chosen),
            "sampler": spec.model_dump(mode="json"),
            "objective": self.fresh,
            "standard": self.plain,
            "gain": gain,
            "limits": {words: {"found": found, "holds": h} for words, found, h in self.limits},
            "held": all(holds for _, _, holds in self.limits),
            "outputs": self.outputs,
            "calls": self.calls,
            "spent": self.chosen.spent,
            "settings": len(self.chosen.tried),
            "shown": self.shown,
            "recommended": self.recommended,
            "mind": "; ".join(self.mind()),
        }

    def sentence(self, plain: str, goal: Number) -> str:
        """What a reader wants to know first."""
        words = f"{self.budget}: {_setting(self.chosen.sampler, self.chosen)}"
        if self.gain is None:
            words += ", the standard sampler itself"
        elif self.ratio:
            words += f", {self.gain:.3g} times less {goal.heading} than {plain}"
        else:
            words += f", {goal.heading} {self.gain:+.3g} against {plain}"
        words += f" on {self.outputs} fresh outputs"
        words += f"; searched with {self.chosen.spent} outputs of {len(self.chosen.tried)} settings"
        told = self.mind()
        return words + (". " + "; ".join(told) + "." if told else ".")


def as_result(ask: Ask, model: Model, guard: Guard, goal: Number, gains: Sequence[Gain]) -> Result:
    """As typed tables and facts."""
    plain = str(standard(model.spec.family))
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
        Column("spent", "outputs searched"),
        Column("mind"),
    )
    title = f"{ask.sources[0]}: the choice, on {ask['fresh_n']} fresh outputs, with 95% intervals"
    table = Table(title, columns, [one.row() for one in gains])
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
        [row for gain in gains for row in _tried(gain)],
    )
    limits = list(dict.fromkeys(str(one) for gain in gains for one in gain.chosen.limits))
    facts = {
        "checkpoint": ask.sources[0],
        "family": model.spec.family,
        "standard": plain,
        "objective": goal.name,
        "best": ask["best"] or goal.best,
        "limits": limits,
        "guard": {"threshold": guard.threshold, "source": guard.source},
        "answer": [one.sentence(plain, goal) for one in gains],
        "paths": {gain.budget: _path(gain.chosen) for gain in gains},
    }
    notes = [*dict.fromkeys(one for gain in gains for one in gain.chosen.told)]
    notes.append("limits: " + (", ".join(limits) or "none"))
    if ask["guard"] and guard.threshold is None:
        notes.append(f"without a usable guard ({guard.source}) sharpness had no bound")
    elif not ask["guard"]:
        notes.append("without the entropy guard sharpness had no bound")
    return Result(ask.said(), table, {"tried": tried}, facts, tuple(notes))


def _tried(gain: Gain) -> list[dict[str, Any]]:
    names = [str(one) for one in gain.chosen.limits]
    return [
        {
            "budget": gain.budget,
            "point": _setting(one.sampler, gain.chosen),
            "sampler": one.sampler.model_dump(mode="json"),
            "outputs": one.outputs,
            "objective": one.objective,
            "limits": "; ".join(
                f"{name.partition('=')[0].rstrip('<>')} {found.value:.3f}"
                for name, found in zip(names, one.limits, strict=True)
            ),
            "state": one.state + (f" ({one.why})" if one.why else ""),
        }
        for one in gain.chosen.tried
    ]


def _path(chosen: Tuned) -> list[list[Any]]:
    """After how many outputs which setting led, with its objective in the end."""
    value = {one.sampler: one.objective.value for one in chosen.tried}
    return [[n, None if spec is None else value[spec]] for n, spec in chosen.path]


def selected(one: Tuned) -> dict[str, Any]:
    """For the record of choices, with a hash."""
    document = {
        "sampler": one.sampler.model_dump(mode="json"),
        "holds": one.holds,
        "limits": [str(limit) for limit in one.limits],
        "settings": len(one.tried),
        "outputs": one.spent,
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return {"sha256": hashlib.sha256(text.encode()).hexdigest(), **document}


def _setting(spec: SamplerSpec, chosen: Tuned) -> str:
    """A setting in words, with its steps where these were searched too."""
    several = len({one.sampler.steps for one in chosen.tried}) > 1
    return str(OperatingPoint.of(spec)) + (f", {spec.steps} steps" if several else "")


def as_yaml(gains: Sequence[Gain]) -> bytes:
    """The choices as `strop sample --spec` reads them."""
    import yaml

    lines = [
        "# The samplers that `strop tune` chose, one per budget.",
        "# Use: strop sample CHECKPOINT --spec THIS_FILE -o RUN",
    ]
    lines += [
        f"# Not a recommendation at {gain.budget}: {gain.mind()[0]}."
        for gain in gains
        if not gain.recommended
    ]
    specs = {
        gain.chosen.sampler.id: {"steps": gain.chosen.sampler.steps}
        | gain.chosen.sampler.model_dump(mode="json", exclude_defaults=True)
        for gain in gains
    }
    body = yaml.safe_dump({"samplers": list(specs.values())}, sort_keys=False)
    return ("\n".join(lines) + "\n" + body).encode()
