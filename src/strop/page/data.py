"""What a page shows: measured cells with their texts, results of studies, an audit, judgments.

Nothing here computes. `collect.py` fills these from directories; tables, figures and the page only
read them. Every part may be empty; the page then leaves it out and says which command adds it.

Text of any origin as text that can be written, stays where it is put and tells no secrets.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from strop.measure.frame import Measured
from strop.measure.guard import Guard
from strop.measure.metric import PERPLEXITY
from strop.records.record import default_sampler
from strop.spec.generator import OperatingPoint, SamplerSpec
from strop.spec.value import MetricSpec
from strop.stats.interval import Interval
from strop.table import Table
from strop.verbs.verb import NO_TABLE, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from strop.verbs.study import Study


INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's categories of controls, formats, half surrogates and separators of lines."""
RATINGS = Path("ratings", "human.jsonl")
"""In a run, what a person said of its outputs on a page."""
LONGEST = 48
"""Characters of a name in a figure; its end tells more than its beginning."""


def encodable(text: str) -> str:
    """Lone halves of surrogate pairs become U+FFFD; everything else stays."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def visible(text: str) -> str:
    """For labels: what would reorder, hide or break a line becomes U+FFFD; line breaks stay."""
    return "".join(
        c if c == "\n" or unicodedata.category(c) not in INVISIBLE else "\ufffd" for c in text
    )


def short(name: str) -> str:
    """A name from outside as a label: harmless, and no longer than a figure bears."""
    name = visible(name).replace("\n", " ")
    return name if len(name) <= LONGEST else "…" + name[1 - LONGEST :]


def place(path: str) -> str:
    """A path as a page that is passed on may show it: of an absolute one the last two parts."""
    pure = PurePath(path)
    return str(PurePath(*pure.parts[1:][-2:])) if pure.is_absolute() and pure.parts[1:] else path


def replaced(text: str, private: Mapping[str, str]) -> str:
    """The text with every private path by its public name, the longest first."""
    for path in sorted(private, key=len, reverse=True):
        text = text.replace(path, private[path])
    return text


def rater(source: str) -> str:
    """How a page calls whoever rated the outputs of a run."""
    return f"ratings in {Path(source).parents[1].name}"


def count(n: int, what: str) -> str:
    """`1 output`, `2 outputs`."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def listed(names: list[str], most: int = 3) -> str:
    """Some of them, and a sign that there are more."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


@dataclass(frozen=True, eq=False)
class Shown:
    """A measured cell with the texts of its outputs: nothing about those is trusted."""

    measured: Measured
    label: str
    """Its operating point; no two cells of one budget in one group have the same."""
    texts: Mapping[int, str]
    """By the output's number."""
    calls: Mapping[int, int] = field(default_factory=dict)
    """Network calls, likewise."""
    as_ids: bool = False
    """No tokenizer was known: the texts are token ids."""
    players: Callable[[Sequence[int]], list[dict[str, Any]]] = lambda _: []
    """How some outputs came about, by number (`strop.page.player`)."""

    @property
    def plain_name(self) -> str:
        """The generator in a few words."""
        return f"M {self.measured.steps:,} · {self.label}"

    @property
    def name(self) -> str:
        """The same with its mark."""
        return f"{self.plain_name} {self.measured.mark}".rstrip()


@dataclass(frozen=True, eq=False)
class CellGroup:
    """One checkpoint at one length under one seed: the cells that may share a table."""

    name: str
    length: int
    seed: int
    cells: tuple[Shown, ...]
    notes: tuple[str, ...] = ()
    """What a reader must know before comparing."""
    held_out: str = ""
    """A text of the kind that the model learned from."""

    @property
    def title(self) -> str:
        """What tells it from other groups."""
        return f"{self.name}, length {self.length:,}, seed {self.seed}"

    @cached_property
    def standard(self) -> OperatingPoint:
        """What the public code of the family does: the baseline of every ratio."""
        family = self.cells[0].measured.spec.generator.checkpoint.family
        return OperatingPoint.of(SamplerSpec(name=default_sampler(family)))

    @cached_property
    def labels(self) -> list[str]:
        """The columns of its table, in their order."""
        cells = sorted(self.cells, key=lambda cell: (cell.measured.point.order, cell.label))
        return list(dict.fromkeys(cell.label for cell in cells))

    @cached_property
    def steps(self) -> list[int]:
        """The budgets, ascending."""
        return sorted({cell.measured.steps for cell in self.cells})

    @cached_property
    def ordered(self) -> list[Shown]:
        """By budget, then in the order of the columns."""
        rank = {label: i for i, label in enumerate(self.labels)}
        return sorted(self.cells, key=lambda cell: (cell.measured.steps, rank[cell.label]))

    @property
    def guards(self) -> list[Guard]:
        """Mostly one; runs that were audited with other held-out texts have others."""
        return list(dict.fromkeys(cell.measured.guard for cell in self.cells))


@dataclass(frozen=True)
class Look:
    """How results of one kind are shown, where they are no study's."""

    title: str
    draw: Callable[[Result], Figure]
    beside_cells: None = None


@dataclass(frozen=True, eq=False)
class StudyPart:
    """What a study, or a task run, found."""

    name: str
    path: Path
    result: Result
    record: Study | Look | None
    """None for a study that is not installed here: its tables stand alone."""

    @property
    def title(self) -> str:
        """What it asks, with the names of the sides where it has some."""
        if self.record is None:
            return self.name
        called = self.result.facts.get("called")
        names = dict(zip("AB", called, strict=False)) if isinstance(called, (list, tuple)) else {}
        return re.sub(
            r"\b[AB]\b", lambda match: str(names.get(match[0], match[0])), self.record.title
        )


@dataclass(frozen=True, eq=False)
class AuditPart:
    """What an audit found, and the samplers that it wrote, by rule."""

    result: Result
    yaml: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class JudgedSeries:
    """All that one judge said. Judges differ, so no table holds two of them."""

    name: str
    offline: bool
    table: Table
    differences: Table = NO_TABLE
    """Every other generator minus the first; without rows where there is one generator."""
    card: str = ""
    """What is known of the judge's agreement with people."""


@dataclass(frozen=True)
class Provenance:
    """Where some of the numbers come from: a heading and named facts."""

    name: str
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class Report:
    """All that the page shows."""

    title: str
    head: tuple[tuple[str, str], ...] = ()
    """When it was measured, and with which code."""
    command: str = ""
    """What made the first of the directories."""
    groups: tuple[CellGroup, ...] = ()
    audits: tuple[AuditPart, ...] = ()
    studies: tuple[StudyPart, ...] = ()
    series: tuple[JudgedSeries, ...] = ()
    judgments: tuple[Mapping[str, Any], ...] = ()
    """Groups with every judge's verdict, a directory each (`strop.page.evidence`)."""
    agreement: tuple[Table, ...] = ()
    """Two judges each, or a judge and a person: how far they agree on what both judged."""
    answers: tuple[Mapping[str, Any], ...] = ()
    """Problems, responses and verdicts, a task run each."""
    provenance: tuple[Provenance, ...] = ()
    commands: Mapping[str, str] = field(default_factory=dict)
    """Part -> the command that adds it: `score`, `audit`, `study`, `groupeval`."""
    private: Mapping[str, str] = field(default_factory=dict)
    """Absolute paths and what the page says in their place."""

    @cached_property
    def cells(self) -> list[Shown]:
        """Of all groups."""
        return [cell for group in self.groups for cell in group.cells]

    @property
    def measured(self) -> bool:
        """Whether its cells have any numbers: what is shown while they are computed has none."""
        return any(cell.measured.parts for cell in self.cells)

    @cached_property
    def metrics(self) -> dict[MetricSpec, str]:
        """Every metric that a cell was measured by, with what tells it from its like.

        Perplexities go by evaluator and span, and by the beginning of their id where even those
        are the same; a metric without a network needs no name.
        """
        names = {score.metric: "" for cell in self.cells for score in cell.measured.scores}
        for spec in names:
            if spec.evaluator is not None:
                names[spec] = ", ".join(filter(None, [spec.evaluator.name, spec.span]))
        all_names = list(names.values())
        return {
            spec: f"{name}, {spec.id[:6]}" if name and all_names.count(name) > 1 else name
            for spec, name in names.items()
        }

    @cached_property
    def perplexities(self) -> dict[MetricSpec, str]:
        """Those of `metrics` that the table of corners shows; figures show the first."""
        return {spec: name for spec, name in self.metrics.items() if spec.name == PERPLEXITY.name}


def value_of(cell: Measured, wanted: MetricSpec | None) -> Interval | None:
    """A cell's perplexity under one metric, or with None its entropy; None where it has none."""
    if wanted is None:
        return cell.entropy
    score = next((score for score in cell.perplexities if score.metric == wanted), None)
    return None if score is None else score.interval("pooled")
