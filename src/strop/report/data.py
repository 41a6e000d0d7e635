"""What a report shows, as plain values: no files, no models, nothing to compute.

`collect.py` fills these from run directories, `tables.py`, `figures.py` and `page.py` only read
them. Every part may be empty; the page then says which command adds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "CORNERS",
    "DAGGER",
    "STANDARD",
    "Cell",
    "Column",
    "CostRow",
    "Estimate",
    "Guard",
    "Judged",
    "Model",
    "Output",
    "Posterior",
    "Provenance",
    "Recommendation",
    "Report",
    "Setting",
]

DAGGER = "†"
"""Marks what lies below the entropy guard, wherever it is shown."""


@dataclass(frozen=True)
class Estimate:
    """A number with the ends of its 95% interval, where there is one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, order=True)
class Setting:
    """A sampler without its number of steps: what a column of the table stands for."""

    temperature: float
    precision: str
    more: str = ""
    """Whatever else differs from the defaults, in words, e.g. `dense`."""

    @property
    def label(self) -> str:
        """Short, for column heads and legends."""
        return " · ".join(filter(None, [f"τ {self.temperature:g}", self.precision, self.more]))


STANDARD = Setting(1.0, "float64")
"""What public code calls the sampler: the baseline of every ratio."""

CORNERS = (
    STANDARD,
    Setting(1.0, "float32"),
    Setting(0.9, "float64"),
    Setting(0.9, "float32"),
    Setting(0.85, "float32"),
)
"""The four corners of the audit, and one step further."""


@dataclass(frozen=True)
class Column:
    """What one number of an output or of a pool means."""

    key: str
    label: str
    help: str = ""
    """One sentence for who hovers over it."""
    digits: int = 3
    """Significant digits to show."""


@dataclass(frozen=True)
class Output:
    """One output, as text of any kind: nothing about it is trusted."""

    index: int
    text: str
    values: tuple[float | None, ...] = ()
    """One per `Report.output_columns`."""


@dataclass(frozen=True)
class Cell:
    """One generator under one seed, measured."""

    id: str
    run: str
    """The directory that it was read from."""
    steps: int
    setting: Setting
    n: int
    perplexity: Mapping[str, Estimate] = field(default_factory=dict)
    """By evaluator, a name of `Report.evaluators`."""
    entropy: Estimate | None = None
    """Mean unigram entropy of an output, in nats."""
    below_guard: bool = False
    pool: Mapping[str, Estimate] = field(default_factory=dict)
    """By key of `Report.pool_columns`: what only the whole pool shows."""
    calls: float | None = None
    """Network calls per output."""
    seconds: float | None = None
    """Seconds per output."""
    outputs: tuple[Output, ...] = ()
    as_ids: bool = False
    """No tokenizer was known: the texts are token ids."""

    @property
    def plain_label(self) -> str:
        """The generator in a few words."""
        return f"M {self.steps} · {self.setting.label}"

    @property
    def label(self) -> str:
        """The same, daggered below the guard."""
        return f"{self.plain_label} {DAGGER}" if self.below_guard else self.plain_label


@dataclass(frozen=True)
class Guard:
    """The entropy that an output of this length should not fall below."""

    value: float
    source: str
    """Where the number comes from, in words."""


@dataclass(frozen=True)
class Model:
    """One checkpoint at one length under one seed: the cells that may share a table."""

    name: str
    length: int
    seed: int
    guard: Guard | None
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    """What a reader must know before comparing: missing scores, a missing guard."""

    def settings(self) -> list[Setting]:
        """The corners first, in their order, then the others."""
        found = sorted({cell.setting for cell in self.cells}, reverse=True)
        corners = [setting for setting in CORNERS if setting in found]
        return corners + [setting for setting in found if setting not in corners]

    def steps(self) -> list[int]:
        """The budgets, ascending."""
        return sorted({cell.steps for cell in self.cells})

    def at(self, steps: int, setting: Setting) -> Cell | None:
        """The cell of one budget and setting."""
        for cell in self.cells:
            if cell.steps == steps and cell.setting == setting:
                return cell
        return None


@dataclass(frozen=True)
class CostRow:
    """What a sampler costs, measured in batches of equal size."""

    implementation: str
    steps: int
    """Configured updates."""
    calls: float
    """Network calls per sequence."""
    seconds: float
    """Amortised, per sequence."""
    memory_mb: float | None
    """Peak, on top of the weights."""
    batch: int
    setting: str = ""


@dataclass(frozen=True)
class Posterior:
    """Held-out posterior loss at a temperature, against temperature one."""

    model: str
    steps: int
    temperature: float
    difference: Estimate
    """Nats per token more than at temperature one; paired."""
    best_temperature: float | None = None
    """The grid's optimum for prediction."""
    ratio: Estimate | None = None
    """Perplexity of the samples at temperature one over that at this one; above 1 is better."""


@dataclass(frozen=True)
class Judged:
    """GroupEval of one cell by one judge."""

    series: str
    """The judge and the profile."""
    name: str
    geq: Estimate | None
    ged: float | None
    invalid_rate: float | None
    effective_modes: float | None
    accepted: int
    asked: int
    """Judgments; what is missing is missing, never a score."""
    below_guard: bool = False


@dataclass(frozen=True)
class Recommendation:
    """What to deploy, by which rule, and what it gains on fresh outputs."""

    rule: str
    text: tuple[str, ...]
    """Paragraphs."""
    yaml: str = ""
    """A `SamplerSpec`, ready to use."""


@dataclass(frozen=True)
class Provenance:
    """Where some of the numbers come from: a heading and named facts."""

    name: str
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Report:
    """All that the page shows."""

    title: str
    models: tuple[Model, ...]
    evaluators: tuple[str, ...] = ()
    """Names of the perplexities, the first being the one that figures show."""
    output_columns: tuple[Column, ...] = ()
    pool_columns: tuple[Column, ...] = ()
    recommendation: Recommendation | None = None
    cost: tuple[CostRow, ...] = ()
    posterior: tuple[Posterior, ...] = ()
    judged: tuple[Judged, ...] = ()
    provenance: tuple[Provenance, ...] = ()
    commands: Mapping[str, str] = field(default_factory=dict)
    """Part -> the command that adds it: `score`, `cost`, `posterior`, `groupeval`, `audit`."""
