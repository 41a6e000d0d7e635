"""Where the numbers come from: runs, checkpoints, evaluators, machines, as named facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from strop.report.data import Provenance
from strop.spec import CheckpointSpec, MetricSpec
from strop.store import Run

__all__ = ["origin_of_metric", "origin_of_run"]


def origin_of_run(run: Run) -> Provenance:
    """What was asked, which weights answered, and the machines and packages they ran on."""
    facts = [(key, _words(value)) for key, value in run.asked.items() if key != "samplers"]
    cells = run.cells()
    checkpoints: dict[str, CheckpointSpec] = {}
    for cell in cells:
        checkpoint = cell.spec.generator.checkpoint
        checkpoints[checkpoint.id] = checkpoint
    for checkpoint in checkpoints.values():
        facts.append(("weights sha256", checkpoint.sha256))
        facts.append(("network", f"{checkpoint.family}, {checkpoint.network_dtype}"))
    facts.append(("cells", ", ".join(cell.id for cell in cells)))
    facts += _sessions(session for cell in cells for session in cell.sessions())
    return Provenance(str(run.path), tuple(facts))


def _sessions(sessions: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Each fact once with all its values: sessions mostly differ in their times only."""
    values: dict[str, list[str]] = {}
    times: list[str] = []
    for session in sessions:
        for key, value in session.items():
            if key in ("started", "ended", "when"):
                times.append(str(value))
            elif key not in ("session", "seconds", "outputs", "first", "last", "indices"):
                told = values.setdefault(key.replace("_", " "), [])
                if _words(value) not in told:
                    told.append(_words(value))
    facts = [(key, "; ".join(told)) for key, told in values.items()]
    if times:
        facts.append(("drawn", f"{min(times)} to {max(times)}"))
    return facts


def origin_of_metric(metric: MetricSpec) -> Provenance:
    """Who measured, with which weights and settings."""
    facts = [("metric id", metric.id)]
    if metric.evaluator is not None:
        facts += [
            (k.replace("_", " "), _words(v)) for k, v in metric.evaluator if v not in (None, ())
        ]
    if metric.span is not None:
        facts.append(("span policy", metric.span))
    facts += [(key.replace("_", " "), _words(value)) for key, value in metric.settings.items()]
    who = metric.evaluator.name if metric.evaluator is not None else "no network"
    return Provenance(f"{metric.name}, {who}", tuple(facts))


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(one)}" for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_words, value))
    return str(value)
