"""The cost study: memory and time per sequence against the number of steps.

Standard and sharpened sampler, dense (the public algorithm, which the paper's figure is about) and
fast (the same law): one warm-up batch, then a few measured ones, each cell in a process of its own.
Configured updates and network calls are two numbers: a sampler may skip calls that change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import TYPE_CHECKING, Any

from strop.errors import StropError
from strop.records.record import SAMPLERS, default_sampler
from strop.spec.generator import CellSpec, CheckpointSpec, GeneratorSpec, SamplerSpec
from strop.spec.value import Spec
from strop.stats.interval import Interval, value_of
from strop.table import Column, Table
from strop.verbs import paper, parameters
from strop.verbs.points import SETTINGS, budgets, chosen_points
from strop.verbs.study import Study
from strop.verbs.verb import Ask, Parameter, Result, quoted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from strop.denoisers import Model
    from strop.instruments.cost import Cost

IMPLEMENTATIONS = ("dense", "fast")
GIB = 2**30
MEASURED = (
    Column("calls", digits=4, help="Network calls per sequence."),
    Column("seconds", digits=4, help="Per sequence."),
    Column("cpu_seconds", "CPU s", digits=4),
    Column("peak_gib", "peak GiB", digits=3, help="Weights and what was needed on top of them."),
    Column("extra_gib", "extra GiB", digits=3, help="On top of the weights."),
    Column("failure"),
)
COLUMNS = (Column("updates", "M"), Column("implementation"), Column("setting"), *MEASURED)
COMPARED = (
    Column("updates", "M"),
    Column("what"),
    Column("against"),
    Column("memory_saved", "peak memory saved", percent=True, digits=3),
    Column("throughput", "times the throughput", digits=3),
    Column("calls", "times the calls", digits=3),
)


class CostCell(Spec):
    """All that one cost depends on, except the machine's load."""

    checkpoint: CheckpointSpec
    sampler: SamplerSpec
    length: int
    batch: int
    batches: int
    warmup: int
    seed: int
    device: str
    """Name of the device, and the number of threads on a CPU."""


def _run(ask: Ask) -> Result:
    from strop.denoisers import load_model
    from strop.denoisers.base import usable_length
    from strop.denoisers.device import resolve_device
    from strop.engine.plan import WORKERS
    from strop.engine.sink import new_session

    source, device = ask.sources[0], resolve_device(ask["device"])
    # Every cell loads the model in a process of its own: on a GPU there may be no room for two.
    home = str(device) if device.type == "cpu" else WORKERS
    model = load_model(source, device=home, dtype=ask["dtype"])
    settings = {
        "batch": ask["batch_size"],
        "batches": ask["batches"],
        "warmup": ask["warmup"],
        "seed": ask["seed"],
        "length": usable_length(model, ask["length"]),
    }
    specs, notes = _specs(ask, model.spec.family, budgets(model, ask["steps"]), settings["length"])
    specs, more = with_noise(specs, device.type)
    notes = (*notes, *more)
    _note_plan(model, [spec for _, spec in specs], settings)
    session, weights, device_name = new_session(model, device), model.spec, str(device)
    del model
    where = f"{session['device_name']}, {device_name}"
    where += f", {session['threads']} threads" if device_name == "cpu" else ""
    rows = []
    for setting, spec in specs:
        cell = CostCell(checkpoint=weights, sampler=spec, device=where, **settings)
        rows.append(_row(ask, setting, cell, device_name))
    failed = sum(row["failure"] is not None for row in rows)
    compared = compare(rows)
    title = f"{where}; batch {settings['batch']}, {settings['batches']} measured batches, length "
    facts = {
        "checkpoint": {"source": source, "spec": weights.model_dump(mode="json")},
        "device": where,
        "session": session,
        "comparisons": compared,
    }
    return Result(
        ask.said(**settings, implementations=list(ask["implementation"])),
        Table(f"{title}{settings['length']}; per sequence", COLUMNS, rows),
        {"comparisons": Table("Against each other", COMPARED, compared)} if compared else {},
        facts,
        notes,
        f"{failed} cells could not be measured" if failed else None,
    )


def _note_plan(model: Model, specs: Sequence[SamplerSpec], settings: Mapping[str, Any]) -> None:
    """In a dry run, count each implementation's draws apart: their calls take different times."""
    from strop.draw import Planned
    from strop.draw.worker import CellDraw
    from strop.engine.plan import all_parts, stop_if_planning

    n = settings["batch"] * (settings["warmup"] + settings["batches"])
    size, length = settings["batch"], settings["length"]
    with all_parts() as part:
        for form in dict.fromkeys(spec.implementation for spec in specs):
            of_form = [spec for spec in specs if spec.implementation == form]
            generators = [GeneratorSpec.of(model.spec, spec, length) for spec in of_form]
            cells = [CellSpec.of(g, settings["seed"], n=n, batch_size=size) for g in generators]
            with part():
                stop_if_planning(Planned(model, None, [CellDraw(cell, n, size) for cell in cells]))


def _specs(
    ask: Ask, family: str, counts: Sequence[int], length: int
) -> tuple[list[tuple[str, SamplerSpec]], tuple[str, ...]]:
    """Every budget, implementation and setting; a form that a sampler lacks is left out."""
    name = ask["sampler"] or default_sampler(family)
    chosen, notes = chosen_points(ask, family, SETTINGS)
    forms = [form for form in ask["implementation"] if form == "dense" or SAMPLERS[name].fast]
    if SAMPLERS[name].causal:  # its only form
        forms = ["fast"]
    lacking = [f"{form} left out: {name} has no such form" for form in ask["implementation"]]
    notes = (*notes, *(words for words in lacking if words.split()[0] not in forms))
    fixed = {"steps": length} if SAMPLERS[name].causal else {}
    specs = [
        (setting, point.at(m or length).model_copy(update={"implementation": form, **fixed}))
        for m in counts
        for form in forms
        for setting, point in chosen.items()
    ]
    return specs, notes


def with_noise(
    specs: Sequence[tuple[str, SamplerSpec]], device: str
) -> tuple[list[tuple[str, SamplerSpec]], tuple[str, ...]]:
    """Dense draws on the device that the network is on, as the public code does; and a note on it.

    Copying numbers from the CPU at every step would not be a cost of the algorithm.
    """
    if device == "cpu" or all(spec.implementation != "dense" for _, spec in specs):
        return list(specs), ()
    on_device = [
        (name, s.model_copy(update={"noise": "device"}) if s.implementation == "dense" else s)
        for name, s in specs
    ]
    return on_device, (
        f"dense draws its random numbers on {device} (noise: device), as public codes do",
    )


def _row(ask: Ask, setting: str, cell: CostCell, device: str) -> dict[str, Any]:
    """One line; a cell that does not fit is a finding too, and the others are still measured."""
    spec = cell.sampler
    row = {
        "implementation": spec.implementation,
        "setting": setting,
        "temperature": spec.temperature,
        "precision": spec.precision,
        "updates": spec.steps,
    }
    label = f"M = {spec.steps}, {spec.implementation}, {setting}"
    try:
        cost = _measure_cell(ask, cell, device)
    except StropError as error:
        ask.note(f"{label}: {error}")
        return {**row, **_numbers(None, cell.batch), "failure": error.got}
    row |= _numbers(cost, cell.batch)
    ask.note(f"{label}: {row['seconds'].value:.3g} s per sequence")
    return {**row, "failure": None}


def _measure_cell(ask: Ask, cell: CostCell, device: str) -> Cost:
    """Read the cost from disk, or measure it in its own process; a row per measured batch."""
    import pyarrow as pa

    from strop.instruments import cost as metric

    assert ask.folder is not None
    table = ask.folder.cell(cell.id)
    if table is None:
        settings = {k: getattr(cell, k) for k in ("batch", "batches", "warmup", "seed", "length")}
        cost = metric.measure_apart(
            ask.sources[0], cell.sampler, device=device, dtype=ask["dtype"], **settings
        )
        n = len(cost.seconds)
        table = pa.table(
            {k: v if isinstance(v, list) else [v] * n for k, v in asdict(cost).items()}
        ).replace_schema_metadata({"strop.cell": cell.canonical()})
        ask.folder.complete(cell.id, table)
    per_batch = ("seconds", "cpu_seconds", "calls")
    return metric.Cost(**{k: v if k in per_batch else v[0] for k, v in table.to_pydict().items()})


def _numbers(cost: Cost | None, batch: int) -> dict[str, Any]:
    """Means over the measured batches, per sequence; the spread is that of whole batches."""
    if cost is None:
        names = ("calls", "seconds", "cpu_seconds")
        return dict.fromkeys((*names, "weights_gib", "extra_gib", "peak_gib", "memory"))
    extra = cost.extra_bytes
    return {
        "calls": sum(cost.calls) / len(cost.calls),
        "seconds": _range([value / batch for value in cost.seconds]),
        "cpu_seconds": sum(cost.cpu_seconds) / len(cost.cpu_seconds) / batch,
        "weights_gib": cost.weights_bytes / GIB,
        "extra_gib": None if extra is None else extra / GIB,
        "peak_gib": None if extra is None else (cost.weights_bytes + extra) / GIB,
        "memory": cost.memory,
    }


def _range(values: Sequence[float]) -> Interval:
    """The mean, the least and the most of a few measurements."""
    n = len(values)
    return Interval(sum(values) / n, min(values), max(values), level=1.0, n=n, how="range")


def compare(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every setting against the first per implementation, and fast against dense per setting.

    `memory_saved` is the share of the peak that is saved, `throughput` the factor gained.
    """
    done = {
        (r["updates"], r["implementation"], r["setting"]): r for r in rows if r["failure"] is None
    }
    first = next((setting for _, _, setting in done), "")
    out = []
    for (updates, name, setting), row in done.items():
        for other in ((updates, name, first), (updates, "dense", setting)):
            if other == (updates, name, setting) or other not in done:
                continue
            against = done[other]
            saved = None
            if row["peak_gib"] is not None and against["peak_gib"]:
                saved = 1 - row["peak_gib"] / against["peak_gib"]
            out.append(
                {
                    "updates": updates,
                    "what": f"{name} {setting}",
                    "against": f"{other[1]} {other[2]}",
                    "memory_saved": saved,
                    "throughput": against["seconds"].value / row["seconds"].value,
                    "calls": row["calls"] / against["calls"],
                }
            )
    return out


PANELS = (
    ("peak_gib", "peak memory, GiB"),
    ("seconds", "seconds per sequence"),
    ("calls", "network calls\nper sequence"),
)


def _draw(result: Result) -> Figure:
    """Colour: the setting; line: dense or fast. Panels without a measurement are left out."""
    from strop.figures import IMPLEMENTATIONS as LOOKS
    from strop.figures import PALETTE, grouped, legend_below, log_y, panels, steps_axis

    rows = [row for row in result.table.rows if row["failure"] is None]
    measured = [panel for panel in PANELS if any(row[panel[0]] is not None for row in rows)]
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    colours = dict(zip(settings, PALETTE * len(settings), strict=False))
    figure, axes = panels(max(len(measured), 1), 1.9 * max(len(measured), 1) + 0.5)
    for (field, title), axis in zip(measured, axes, strict=False):
        lines = grouped((r for r in rows if r[field] is not None), "implementation", "setting")
        for name, setting in product(LOOKS, settings):
            line = lines.get((name, setting))
            if line:
                look: dict[str, Any] = {"color": colours[setting], "ls": LOOKS[name], "ms": 2.5}
                levels = sorted((row["updates"], value_of(row[field])) for row in line)
                x, y = zip(*levels, strict=True)
                axis.plot(x, y, lw=1.2, marker="o", label=f"{name}, {setting}", **look)
        axis.set(ylabel=title)
        log_y(axis)
        steps_axis(axis, [row["updates"] for row in rows])
    if measured:
        legend_below(figure, axes[0])
        axes[len(measured) - 1].set_xlabel("configured updates M")
    return figure


def _beside(result: Result, *_: Any) -> Table:
    printed = paper.table("cost").by("setting", "steps")
    rows = []
    for row in result.table.rows:
        # The paper's figure is of the public algorithm, which is the dense one.
        dense = row["implementation"] == "dense"
        paper_row = printed.get((row["setting"], row["updates"]), {}) if dense else {}
        rows.append(
            {
                "setting": row["setting"],
                "steps": row["updates"],
                "implementation": row["implementation"],
                "paper": paper_row.get("seconds"),
                "measured": row["seconds"],
                "paper_peak": paper_row.get("peak_memory"),
                "peak": row["peak_gib"],
            }
        )
    keys = (Column("setting"), Column("steps", "M"), Column("implementation"))
    return paper.beside("seconds per sequence, and peak memory", keys, rows)


STUDY = Study(
    name="cost",
    title="Memory and time per sequence against steps",
    about="Measure what standard and sharpened sampling of CHECKPOINT cost, dense and fast. "
    "Nothing else should run on the machine meanwhile.",
    parameters=(
        parameters.steps(1, 4, 16, 64, 256, 1024, smoke=(4, 16)),
        Parameter(
            "implementation",
            "dense, fast or both.",
            IMPLEMENTATIONS,
            "words",
            choices=IMPLEMENTATIONS,
        ),
        Parameter.count("batch_size", "Sequences per batch.", 8, most=2**20),
        Parameter.count("batches", "Measured batches per cell.", 3, most=2**20),
        Parameter("warmup", "Batches before them that do not count.", 1, "int", most=2**20),
        *parameters.POINTED,
        *parameters.DRAWN,
        parameters.DRY_RUN,
    ),
    run=_run,
    draw=_draw,
    next=lambda ask: (
        f"strop sample {ask.sources[0]} --temperature 0.9 -o {quoted(ask.out)}-sharpened"
    ),
    examples=("strop study cost --steps 4,16 -o runs/cost",),
    items=(paper.item("cost", _beside),),
)
