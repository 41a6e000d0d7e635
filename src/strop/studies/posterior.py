"""The posterior study: does sharpening worsen the loss that the sampler's rounds see?

For every checkpoint and number of steps M, on the same held-out sequences with the same hidden
positions: the schedule-matched posterior loss J_{M+1}/L at every temperature, its difference from
tau = 1, the best temperature of the grid, the derivative at tau = 1, and the differences between
checkpoints; and the loss profile c(a)/L at evenly spaced visible probabilities. Intervals come
from one paired bootstrap over sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strop.assets import HELD_OUT
from strop.denoisers import load_denoiser
from strop.denoisers.base import usable_length
from strop.errors import UserError, whole_number
from strop.generate import new_session
from strop.metrics.heldout import HeldOutRows, read_rows
from strop.metrics.posterior import TEMPERATURES, check_temperatures
from strop.spec import MOST_STEPS, SEED_LIMIT
from strop.studies.folder import Folder
from strop.studies.posterior_cells import Note, measured_cell
from strop.studies.posterior_result import Cells, conclude, flat_rows

__all__ = ["LEVELS", "PROFILE_SEQUENCES", "SEQUENCES", "STEPS", "run_posterior"]

STEPS = (2, 8, 32, 128, 1024)
"""The paper's budgets."""
SEQUENCES = 512
LEVELS, PROFILE_SEQUENCES = 32, 128
"""The paper's profile."""


def run_posterior(
    checkpoints: Sequence[str],
    *,
    out: Path,
    heldout: Path | None = None,
    steps: Sequence[int] = STEPS,
    temperatures: Sequence[float] = TEMPERATURES,
    sharpened: float = 0.9,
    n: int = SEQUENCES,
    draws: int = 1,
    levels: int = LEVELS,
    profile_n: int = PROFILE_SEQUENCES,
    seed: int = 0,
    length: int | None = None,
    device: str = "auto",
    dtype: str = "auto",
    force: bool = False,
    note: Note = lambda _: None,
) -> dict[str, Any]:
    """Measure what is missing in `out`, and return the result document."""
    _check(checkpoints, steps, temperatures, sharpened)
    n, draws = whole_number("n", n, 2, 2**31), whole_number("draws", draws, 1, 2**20)
    seed = whole_number("seed", seed, 0, SEED_LIMIT)
    levels = whole_number("levels", levels, 0, 2**20)
    profile_n = whole_number("profile_n", profile_n, 2, 2**31)
    file = heldout or HELD_OUT
    settings: dict[str, Any] = {
        "draws": draws,
        "temperatures": tuple(float(tau) for tau in temperatures),
        "seed": seed,
    }
    with Folder.open(out, "posterior", force=force) as folder:
        measured: list[Cells] = []
        first: HeldOutRows | None = None
        for source in checkpoints:
            denoiser = load_denoiser(source, device=device, dtype=dtype)
            length = usable_length(denoiser, length)
            rows = read_rows(file, denoiser, length=length, most=n)
            if first is None:
                first = rows
                _tell(rows, file, n, length, note)
            _same_tokens(first, rows, checkpoints[0], source)
            settings |= {"checkpoint": denoiser.spec, "length": length}
            cells = {
                m: measured_cell(folder, denoiser, rows.ids, settings, "deployed", m, note)
                for m in steps
            }
            profile = None
            if levels:  # at tau = 1 alone: it has many contexts, and temperatures cost
                some, alone = rows.ids[:profile_n], {**settings, "temperatures": (1.0,)}
                profile = measured_cell(folder, denoiser, some, alone, "profile", levels, note)
            measured.append(Cells(source, denoiser.spec, cells, profile, new_session(denoiser)))
        assert first is not None  # there is at least one checkpoint
        result = {
            "asked": {
                "steps": list(steps),
                "temperatures": list(settings["temperatures"]),
                "sharpened": sharpened,
                "n": n,
                "draws": draws,
                "levels": levels,
                "profile_n": profile_n,
                "seed": seed,
            },
            "heldout": {
                "file": str(file) if heldout else f"shipped: {file.name}",
                "sha256": first.sha256,
                "sequences": len(first.ids),
                "length": length,
                "short": first.short,
                "retokenised": first.retokenised,
            },
            **conclude(measured, settings["temperatures"], sharpened, levels, seed),
        }
        folder.finish(result, flat_rows(result))
        from strop.studies.posterior_figure import save

        save(result, folder.figures())
    return result


def _check(
    checkpoints: Sequence[str],
    steps: Sequence[int],
    temperatures: Sequence[float],
    sharpened: float,
) -> None:
    if not checkpoints or len(set(checkpoints)) < len(checkpoints):
        raise UserError(
            "The study needs checkpoints, each of them once.",
            where="CHECKPOINT",
            got=", ".join(checkpoints) or "none",
        )
    for count in steps:
        whole_number("steps", count, 1, MOST_STEPS + 1)
    check_temperatures(temperatures)
    if sharpened not in temperatures or sharpened == 1:
        raise UserError(
            "The sharpened temperature must be on the grid, and not 1.",
            where="--sharpened",
            got=f"{sharpened:g}",
            expected="one of " + ", ".join(f"{tau:g}" for tau in temperatures if tau != 1),
        )


def _same_tokens(first: HeldOutRows, rows: HeldOutRows, one: str, other: str) -> None:
    if rows.sha256 != first.sha256:
        raise UserError(
            "The checkpoints read the held-out rows as different tokens.",
            where=other,
            got="another tokenizer or mask",
            expected=f"the tokens of {one}",
            fix="run the study for each of them: losses per token of two tokenizers do not compare",
        )


def _tell(rows: HeldOutRows, file: Path, n: int, length: int, note: Note) -> None:
    if rows.short:
        note(f"{file}: {rows.short} rows have fewer than {length} tokens and are left out")
    if len(rows.ids) < n:
        note(f"{file}: {len(rows.ids)} sequences, where {n} were asked for")
    if rows.retokenised:
        note(f"{file}: {rows.retokenised} rows have ids of another tokenizer; their text is read")
