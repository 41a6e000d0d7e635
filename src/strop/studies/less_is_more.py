"""Less is more, until the sampler is fixed: two checkpoints against each other.

The perplexity of the longer trained (or larger) model over that of the other, at equal steps, under
three samplers. Above one, less is more. The paper finds that at few standard steps and not under
sharper samplers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strop.studies.cells import perplexity_ratio
from strop.studies.folder import Folder
from strop.studies.sampled import Sampling
from strop.studies.selection import STANDARD, Setting

__all__ = ["SAMPLERS", "STEPS", "STUDY", "run_less_is_more"]

STUDY = "less-is-more"
STEPS = (2, 4, 8, 16, 64)
SAMPLERS = {
    "standard": STANDARD,
    "sharpened": Setting(0.9, "float32"),
    "stronger": Setting(0.8, "float32"),
}
RUNS = ("more", "less")


def run_less_is_more(
    more: str, less: str, sampling: Sampling, *, out: Path, steps: Sequence[int] = STEPS
) -> dict[str, Any]:
    """Sample and score both, and write the ratios with intervals."""
    points = [(m, setting) for setting in SAMPLERS.values() for m in steps]
    with Folder.open(out, STUDY, runs=RUNS, force=sampling.force) as folder:
        scored = {
            name: {
                (one.steps, one.setting): one
                for one in sampling.run(checkpoint, points, out / name)
            }
            for name, checkpoint in zip(RUNS, (more, less), strict=True)
        }
        rows = []
        for name, setting in SAMPLERS.items():
            for m in steps:
                above, below = scored["more"][m, setting], scored["less"][m, setting]
                ratio = perplexity_ratio(above, below)
                rows.append(
                    {
                        "sampler": name,
                        "temperature": setting.temperature,
                        "precision": setting.precision,
                        "steps": m,
                        "ratio": ratio.value,
                        "low": ratio.low,
                        "high": ratio.high,
                        "more": above.value().value,
                        "less": below.value().value,
                        "inverted": ratio.low > 1,
                    }
                )
        result = {"asked": {"more": more, "less": less, **sampling.asked()}, "rows": rows}
        folder.finish(result, rows)
        from strop.studies.sampled_figures import save_ratios

        save_ratios(result, folder.figures())
    return result
