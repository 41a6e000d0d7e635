"""What the studies of sampled outputs are asked for, in one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.denoisers import load_model
from strop.facts import default_sampler
from strop.metrics.causal import Evaluator
from strop.metrics.heldout import HeldOutTexts
from strop.progress import Progress
from strop.spec import SpanPolicy
from strop.studies.cells import Scored, draw_and_score
from strop.studies.selection import Setting

__all__ = ["Sampling"]


@dataclass(frozen=True)
class Sampling:
    """How outputs are drawn and scored, the same for every checkpoint of a study."""

    evaluator: Evaluator
    n: int
    seed: int = 0
    span: SpanPolicy = "first-document"
    held_out: HeldOutTexts | None = None
    device: str = "auto"
    dtype: str = "auto"
    force: bool = False
    progress: Progress | None = None

    def run(
        self,
        checkpoint: str,
        points: Sequence[tuple[int, Setting]],
        out: Path,
        *,
        sampler: str | None = None,
    ) -> list[Scored]:
        """Draw and score one checkpoint at some operating points, by its family's sampler."""
        model = load_model(checkpoint, device=self.device, dtype=self.dtype)
        return draw_and_score(
            model,
            points,
            [self.evaluator],
            n=[self.n] * len(points),
            seed=self.seed,
            span=self.span,
            held_out=self.held_out,
            out=out,
            name=sampler or default_sampler(model.spec.family),
            force=self.force,
            progress=self.progress,
        )

    def asked(self) -> dict[str, Any]:
        """For the result: what the numbers depend on besides checkpoints and settings."""
        return {
            "evaluator": self.evaluator.spec.model_dump(mode="json"),
            "span": self.span,
            "n": self.n,
            "seed": self.seed,
        }
