"""What a page opens with: the sentence that decides, its figure, and the sampler to copy.

What was given decides what that is. Nothing is recommended here that the result does not recommend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strop.groupeval.scores import judged_sentence
from strop.measure.guard import MARKS
from strop.page.data import Report, count
from strop.page.svg import Drawing
from strop.records.record import default_sampler
from strop.spec.generator import OperatingPoint, SamplerSpec
from strop.table import Table
from strop.verbs.verb import NO_TABLE, Result, quoted

PLAIN = ("name", "steps", "temperature", "precision")
"""What of a sampler fits on a command line; the rest goes into a file."""
OFFLINE = "This judge counts words and letters: its grades are no evidence about quality."


@dataclass(frozen=True)
class Recommended:
    """A sampler that a result recommends, in the forms in which it is used."""

    name: str
    spec: SamplerSpec
    forms: Mapping[str, str]
    """YAML, command and Python."""

    @classmethod
    def of(cls, sampler: Mapping[str, Any], checkpoint: str, family: str) -> Recommended:
        """From the sampler's document in a result."""
        spec = SamplerSpec.model_validate(dict(sampler))
        fields = spec.written_fields()
        plain = {key: getattr(spec, key) for key in PLAIN}
        words = f"strop sample {quoted(checkpoint)}"
        if SamplerSpec(**plain) == spec:
            name = "" if spec.name == default_sampler(family) else f" --sampler {spec.name}"
            words += f"{name} --steps {spec.steps} --temperature {spec.temperature:g}"
            words += f" --precision {spec.precision}"
        else:
            words += " --spec sampler.yaml"
        arguments = ", ".join(f"{key}={value!r}" for key, value in fields.items())
        return cls(
            f"M {spec.steps:,} · {OperatingPoint.of(spec)}",
            spec,
            {
                "YAML": _yaml(fields),
                "Command": f"{words} -n 16 -o runs/recommended",
                "Python": "import strop\n\n"
                f"spec = strop.SamplerSpec({arguments})\n"
                f"strop.sample({checkpoint!r}, spec=spec, n=16)",
            },
        )


def _yaml(fields: Mapping[str, Any]) -> str:
    import yaml

    return yaml.safe_dump({"samplers": [dict(fields)]}, sort_keys=False)


@dataclass(frozen=True)
class Hero:
    """The first screen."""

    sentences: Sequence[str] = ()
    """What decides comes first."""
    warning: str = ""
    figure: Drawing | None = None
    table: Table = NO_TABLE
    recommended: Sequence[Recommended] = ()
    part: str = ""
    """The part of the page of which this is the first screen; it does not say it again."""


def hero(report: Report, drawn: Sequence[Drawing]) -> Hero:
    """Of an audit its answer, of a study or a comparison its own, else what was measured."""

    def first(*wanted: str) -> Drawing | None:
        by_kind = {
            drawing.name.rpartition("-")[0]: drawing
            for drawing in reversed(drawn)
            if drawing.part in wanted
        }
        named = [by_kind[name] for name in ("frontier", "perplexity", "entropy") if name in by_kind]
        return next(iter([*named, *(drawing for drawing in drawn if drawing.part in wanted)]), None)

    if report.audits:
        result = report.audits[0].result
        sentences = _sentences([audit.result for audit in report.audits])
        gains = result.more.get("gains", NO_TABLE)
        return Hero(
            sentences or ["The audit chose nothing."],
            figure=first("group-1"),
            table=gains,
            recommended=_recommendations(result),
        )
    if report.studies:
        part, name = report.studies[0], "study-1"
        sentences = _sentences([part.result]) or [part.title]
        missing = (
            f"Not all of it was measured: {part.result.missing}" if part.result.missing else ""
        )
        return Hero(sentences, missing, first(name), NO_TABLE, _recommendations(part.result), name)
    if report.series and not report.groups:
        series = report.series[0]
        words = judged_sentence(series.table) if series.table.rows else series.table.title + "."
        warning = OFFLINE if series.offline else ""
        return Hero([words], warning, first("series-1"), series.table)
    return Hero([summary(report)] if report.cells else [], figure=first("group-1"))


def _sentences(results: Sequence[Result]) -> list[str]:
    return [line for result in results for line in result.facts.get("answer", ())]


def _recommendations(result: Result) -> list[Recommended]:
    """The samplers that nothing speaks against, by the result itself."""
    decision = result.facts.get("decision")
    if decision is not None:
        samplers = [decision["sampler"]] if decision.get("recommended") else []
    else:
        rows = [row for row in result.table.rows if row.get("recommended")]
        samplers = [row["sampler"] for row in rows if "sampler" in row]
    where = str(result.facts.get("checkpoint") or "CHECKPOINT")
    family = str(result.facts.get("family") or "mdlm")
    return [Recommended.of(sampler, where, family) for sampler in samplers]


def summary(report: Report) -> str:
    """How much was measured, and by whom."""
    cells = [cell.measured for cell in report.cells]
    if not cells:
        return ""
    names = {group.name for group in report.groups}
    words = (
        f"{count(len(cells), 'generator')} of {count(len(names), 'checkpoint')}, "
        f"{count(sum(cell.outputs for cell in cells), 'output')}"
    )
    if report.perplexities:
        words += f"; perplexity under {' and '.join(report.perplexities.values())}"
    words += "."
    for verdict, label in (("below", "below the entropy guard"), ("undecided", "undecided")):
        number = sum(cell.verdict == verdict for cell in cells)
        words += f" {count(number, 'generator')} {label} ({MARKS[verdict]})." if number else ""
    return words


def hints(report: Report) -> list[tuple[str, str]]:
    """What is not there, and the command that adds it."""
    parts = {
        "audit": ("An audit", report.audits),
        "score": ("Perplexity", report.perplexities),
        "study": ("Cost and other studies", report.studies),
        "groupeval": ("Quality and diversity by a judge", report.series),
    }
    return [
        (what, report.commands[part])
        for part, (what, content) in parts.items()
        if not content and part in report.commands
    ]
