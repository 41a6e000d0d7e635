"""strop precision: what the float32 draw does to a checkpoint."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from strop.assets import CHECKPOINT
from strop.runtime import MOST_LENGTH
from strop.spec.generator import SamplerSpec
from strop.verbs import parameters
from strop.verbs.verb import Ask, Parameter, Part, Result, Verb, grid, quoted, spelled

if TYPE_CHECKING:
    from strop.instruments.precision import PrecisionReport

HEADER = ["hidden share", "truncated", "entropy (nats)", "in float32", "reveal ratio", "counted"]
DESCRIBED = ("temperature", "top_p", "samples", "rows", "reveals", "seed", "length")


def _run(ask: Ask) -> Result:
    for m in ask["steps"]:
        SamplerSpec(steps=m, **ask.some("temperature", "top_p"))
    from strop.denoisers import load_denoiser
    from strop.instruments.precision import describe

    denoiser = load_denoiser(ask["checkpoint"], **ask.some("device", "dtype"))
    reports = [describe(denoiser, steps=m, **ask.some(*DESCRIBED)) for m in ask["steps"]]
    again = f"strop sample {quoted(ask['checkpoint'])} --steps {spelled(ask['steps'])}"
    return Result(
        parts=tuple(part for report in reports for part in _parts(report)),
        json={"checkpoint": ask["checkpoint"], "reports": [asdict(report) for report in reports]},
        next=f"{again} --precision float64,float32 -o runs/precision",
        value=reports,
    )


def _parts(report: PrecisionReport) -> list[Part]:
    rows = [
        [
            f"{level.hidden_share:.3f}",
            f"{level.truncated:.2%}",
            f"{level.entropy:.3f}",
            f"{level.entropy_float32:.3f}",
            f"{level.reveal_float32 / level.reveal:.4f}",
            f"{level.reveal_drawn / level.reveal:.4f}"
            f" ± {level.reveal_drawn_error / level.reveal:.4f}",
        ]
        for level in report.levels
    ]
    return [
        f"\nM = {report.steps}, tau = {report.temperature:g}: float32 draw against float64",
        grid(HEADER, rows),
        f"mean reveal at {report.mean_reveal_float32:.3f} of the steps "
        f"(exact {report.mean_reveal:.3f}); left to the finish "
        f"{report.leftover_float32:.2e} (exact {report.leftover:.2e})",
    ]


VERB = Verb(
    name="precision",
    help="Say how much probability the float32 draw truncates, and how entropy and timing shift.",
    parameters=(
        Parameter("checkpoint", "As for `strop sample`.", CHECKPOINT, argument="CHECKPOINT"),
        parameters.budgets("Updates M, e.g. 64,1024.", (64, 1024)),
        Parameter.real("temperature", "tau of the draw.", 1.0),
        Parameter.real("top_p", "Nucleus of the draw.", 1.0),
        Parameter.count("samples", "Outputs whose contexts are looked at.", 4),
        Parameter.count("rows", "Masked positions per level.", 64),
        Parameter.count(
            "reveals", "Reveals to count per level in draws from the exact law.", 4_000
        ),
        parameters.SEED,
        Parameter.count("length", "Tokens per output.", most=MOST_LENGTH + 1),
        parameters.DEVICE,
        Parameter("dtype", "Of the network.", "auto"),
    ),
    run=_run,
    examples=("strop precision", "strop precision embedded:tales --steps 64,1024"),
)
