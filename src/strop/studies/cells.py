"""Draw the cells of one checkpoint, score them, and read what was scored: the step that the audit
and the studies share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.denoisers import Model
from strop.errors import UserError
from strop.generate import sample_cells
from strop.metrics.aggregates import statistics
from strop.metrics.bootstrap import Interval, Statistic, ratio
from strop.metrics.causal import Evaluator
from strop.metrics.heldout import HeldOutTexts
from strop.metrics.perplexity import score_perplexity
from strop.metrics.score import score_ids
from strop.metrics.summary import CellSummary, PerplexitySummary, summarise
from strop.progress import Progress
from strop.spec import SAMPLERS, MetricSpec, SamplerSpec, SpanPolicy
from strop.store import Run
from strop.studies.selection import Setting

__all__ = ["Scored", "draw_and_score", "perplexity_ratio", "sampler"]


@dataclass(frozen=True)
class Scored:
    """One cell of a study with its scores."""

    steps: int
    setting: Setting
    summary: CellSummary
    metrics: tuple[MetricSpec, ...]
    """The perplexities, in the order of the evaluators."""

    def perplexity(self, evaluator: int = 0) -> PerplexitySummary:
        """The summary under one of the evaluators."""
        wanted = self.metrics[evaluator]
        return next(one for one in self.summary.perplexities if one.metric == wanted)

    def value(self, evaluator: int = 0) -> Interval:
        """Token-pooled perplexity with its interval."""
        found = self.perplexity(evaluator).pooled
        if found is None:
            raise UserError(
                "No token of this cell could be scored.",
                where=self.summary.cell.path,
                fix="look at its outputs: strop show RUN --first 3",
            )
        return found

    def statistic(self, evaluator: int = 0) -> Statistic:
        """Token-pooled perplexity as something that can be resampled."""
        table = self.summary.cell.score(self.metrics[evaluator])
        if table is None:
            raise UserError("The cell's scores were removed.", where=self.summary.cell.path)
        return statistics(table.columns)["pooled"]

    def row(self) -> dict[str, Any]:
        """One line of a study's table, under the first evaluator."""
        level, entropy = self.value(), self.summary.entropy
        return {
            "steps": self.steps,
            "temperature": self.setting.temperature,
            "precision": self.setting.precision,
            "perplexity": level.value,
            "low": level.low,
            "high": level.high,
            "entropy": None if entropy is None else entropy.value,
            "below_guard": self.summary.below_guard,
        }

    def document(self) -> dict[str, Any]:
        """For JSON: the numbers that the tables show."""
        entropy = self.summary.entropy
        return {
            "cell": self.summary.cell.id,
            "steps": self.steps,
            "temperature": self.setting.temperature,
            "precision": self.setting.precision,
            "outputs": self.summary.outputs,
            "perplexity": [self.value(i).as_dict() for i in range(len(self.metrics))],
            "entropy": None if entropy is None else entropy.as_dict(),
            "below_guard": self.summary.below_guard,
        }


def sampler(steps: int, setting: Setting, name: str = "ancestral") -> SamplerSpec:
    """A sampler at one operating point; one that goes from left to right has no steps to set."""
    return SamplerSpec(
        name=name,
        steps=0 if SAMPLERS[name].causal else steps,
        temperature=setting.temperature,
        precision=setting.precision,  # type: ignore[arg-type]  # checked by the spec
    )


def draw_and_score(
    model: Model,
    points: Sequence[tuple[int, Setting]],
    evaluators: Sequence[Evaluator],
    *,
    n: Sequence[int],
    seed: int,
    span: SpanPolicy,
    held_out: HeldOutTexts | None,
    out: Path,
    name: str = "ancestral",
    force: bool = False,
    progress: Progress | None = None,
) -> list[Scored]:
    """Draw and score one cell per point; whatever is in `out` already is not done again.

    `name` is the sampler's.
    """
    specs = [sampler(steps, setting, name) for steps, setting in points]
    sample_cells(model, specs, n=n, seed=seed, out=out, force=force, progress=progress)
    scored = []
    for (steps, setting), cell in zip(points, Run.open(out).cells(), strict=True):
        score_ids(cell)
        metrics = tuple(
            score_perplexity(cell, evaluator, span, progress=progress) for evaluator in evaluators
        )
        scored.append(Scored(steps, setting, summarise(cell, held_out=held_out), metrics))
    return scored


def perplexity_ratio(above: Scored, below: Scored, evaluator: int = 0) -> Interval:
    """Perplexity of one cell over that of another, outputs resampled independently."""
    found = ratio(above.statistic(evaluator), below.statistic(evaluator))
    if found is None:
        raise UserError(
            "The ratio of two perplexities is not defined: one of them has no scored token.",
            where=f"{above.summary.cell.path}, {below.summary.cell.path}",
        )
    return found
