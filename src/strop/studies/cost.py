"""The cost study: memory and time per sequence against the number of steps.

Standard and sharpened sampler, dense (the public algorithm, which the paper's figure is about) and
fast (the same law): one warm-up batch, then a few measured ones, each cell in a process of its own.
Configured updates and network calls are two numbers: a sampler may skip calls that change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from strop.denoisers import load_denoiser
from strop.denoisers.base import usable_length
from strop.errors import StropError, unknown_name, whole_number
from strop.generate import new_session
from strop.metrics.cost import Cost, measure_apart
from strop.spec import SEED_LIMIT, CheckpointSpec, SamplerSpec, Spec
from strop.studies.folder import Folder

__all__ = ["SETTINGS", "STEPS", "CostCell", "run_cost"]

STEPS = (1, 4, 16, 64, 256, 1024)
SETTINGS: dict[str, dict[str, Any]] = {
    "standard": {"temperature": 1.0, "precision": "float64"},
    "sharpened": {"temperature": 0.9, "precision": "float32"},
}
"""The two operating points that the paper compares."""
IMPLEMENTATIONS = ("dense", "fast")
GIB = 2**30


class CostCell(Spec):
    """What one cost depends on, the machine's load aside."""

    checkpoint: CheckpointSpec
    sampler: SamplerSpec
    length: int
    batch: int
    batches: int
    warmup: int
    seed: int
    device: str
    """Name of the device, and the number of threads on a CPU."""


def run_cost(
    checkpoint: str,
    *,
    out: Path,
    steps: Sequence[int] = STEPS,
    implementations: Sequence[str] = IMPLEMENTATIONS,
    batch_size: int = 8,
    batches: int = 3,
    warmup: int = 1,
    seed: int = 0,
    length: int | None = None,
    device: str = "auto",
    dtype: str = "auto",
    force: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Measure what is missing in `out`, and return the result document."""
    for name in implementations:
        if name not in IMPLEMENTATIONS:
            raise unknown_name("implementation", name, IMPLEMENTATIONS, where="--implementation")
    settings = {
        "batch": whole_number("batch_size", batch_size, 1, 2**20),
        "batches": whole_number("batches", batches, 1, 2**20),
        "warmup": whole_number("warmup", warmup, 0, 2**20),
        "seed": whole_number("seed", seed, 0, SEED_LIMIT),
    }
    specs = [
        (setting, SamplerSpec(**{"steps": m, "implementation": name, **SETTINGS[setting]}))
        for m, name, setting in product(steps, implementations, SETTINGS)
    ]
    denoiser = load_denoiser(checkpoint, device=device, dtype=dtype)
    settings["length"] = usable_length(denoiser, length)
    session, weights, place = new_session(denoiser), denoiser.spec, str(denoiser.device)
    del denoiser  # every cell loads its own
    where = f"{session['device_name']}, {place}"
    where += f", {session['threads']} threads" if place == "cpu" else ""
    with Folder.open(out, "cost", force=force) as folder:
        rows = []
        for setting, spec in specs:
            cell = CostCell(checkpoint=weights, sampler=spec, device=where, **settings)
            row = {"implementation": spec.implementation, "setting": setting, **_knobs(spec)}
            try:
                cost = _measured(folder, checkpoint, cell, place, dtype, settings)
            except StropError as error:
                # What does not fit is a finding too, and the other cells are still worth it.
                note(f"{_label(setting, spec)}: {error}")
                rows.append({**row, **_numbers(None, settings["batch"]), "failure": error.got})
                continue
            rows.append({**row, **_numbers(cost, settings["batch"]), "failure": None})
            note(f"{_label(setting, spec)}: {rows[-1]['seconds']:.3g} s per sequence")
        result = {
            "asked": {"steps": list(steps), "implementations": list(implementations), **settings},
            "checkpoint": {"source": checkpoint, "spec": weights.model_dump(mode="json")},
            "device": where,
            "session": session,
            "rows": rows,
            "comparisons": compare(rows),
        }
        folder.finish(result, rows)
        from strop.studies.cost_figure import save

        save(result, folder.figures())
    return result


def _measured(
    folder: Folder,
    checkpoint: str,
    cell: CostCell,
    device: str,
    dtype: str,
    settings: dict[str, int],
) -> Cost:
    """From disk if it is there, else in a process of its own: one line per measured batch."""
    import pyarrow as pa

    table = folder.cell(cell.id)
    if table is None:
        cost = measure_apart(checkpoint, cell.sampler, device=device, dtype=dtype, **settings)
        columns = asdict(cost)
        n = len(cost.seconds)
        table = pa.table(
            {k: v if isinstance(v, list) else [v] * n for k, v in columns.items()}
        ).replace_schema_metadata({"strop.cell": cell.canonical()})
        folder.complete(cell.id, table)
    columns = table.to_pydict()
    per_batch = ("seconds", "cpu_seconds", "calls")
    return Cost(**{k: v if k in per_batch else v[0] for k, v in columns.items()})


def _knobs(spec: SamplerSpec) -> dict[str, Any]:
    return {"temperature": spec.temperature, "precision": spec.precision, "updates": spec.steps}


def _numbers(cost: Cost | None, batch: int) -> dict[str, Any]:
    """Means over the measured batches, per sequence; the spread is that of whole batches."""
    if cost is None:
        names = ("calls", "seconds", "seconds_low", "seconds_high", "cpu_seconds")
        return dict.fromkeys((*names, "weights_gib", "extra_gib", "peak_gib", "memory"))
    per_sequence = [value / batch for value in cost.seconds]
    extra = cost.extra_bytes
    return {
        "calls": sum(cost.calls) / len(cost.calls),
        "seconds": sum(per_sequence) / len(per_sequence),
        "seconds_low": min(per_sequence),
        "seconds_high": max(per_sequence),
        "cpu_seconds": sum(cost.cpu_seconds) / len(cost.cpu_seconds) / batch,
        "weights_gib": cost.weights_bytes / GIB,
        "extra_gib": None if extra is None else extra / GIB,
        "peak_gib": None if extra is None else (cost.weights_bytes + extra) / GIB,
        "memory": cost.memory,
    }


def _label(setting: str, spec: SamplerSpec) -> str:
    return f"M = {spec.steps}, {spec.implementation}, {setting}"


def compare(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sharpened against standard per implementation, and fast against dense per setting.

    `memory_saved` is the share of the peak that is saved, `throughput` the factor gained.
    """
    done = {
        (r["updates"], r["implementation"], r["setting"]): r for r in rows if r["failure"] is None
    }
    out = []
    for (updates, name, setting), row in done.items():
        pairs = [(updates, name, "standard"), (updates, "dense", setting)]
        for other in pairs:
            if other == (updates, name, setting) or other not in done:
                continue
            against = done[other]
            saved = (
                None
                if row["peak_gib"] is None or not against["peak_gib"]
                else 1 - row["peak_gib"] / against["peak_gib"]
            )
            out.append(
                {
                    "updates": updates,
                    "what": f"{name} {setting}",
                    "against": f"{other[1]} {other[2]}",
                    "memory_saved": saved,
                    "throughput": against["seconds"] / row["seconds"],
                    "calls": row["calls"] / against["calls"],
                }
            )
    return out
