"""`dry_run`: what a verb would draw, and how long that would take here. Nothing is kept.

The verb runs in an empty folder that is removed afterwards. Its draws are recorded instead of made.
A verb whose draws do not depend on each other is counted in full; a search stops after its first
round. What is measured in blocks (losses, caches) is counted and timed block by block.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from strop.engine.plan import Elsewhere, planning
from strop.errors import UserError
from strop.records.record import SAMPLERS
from strop.spec.generator import CellSpec
from strop.table import Column, Table, duration
from strop.verbs.verb import Ask, Result

if TYPE_CHECKING:
    from strop.draw import Planned
    from strop.engine.workers import Blocks, PlannedBlocks, Worker

SECONDS = 3.0
"""About how long the trial of a checkpoint takes."""
COLUMNS = (
    Column("checkpoint"),
    Column("steps", "M", help="Configured updates."),
    Column("implementation"),
    Column("cells"),
    Column("outputs"),
    Column("calls_each", "calls per output", digits=3, help="Network calls, about."),
    Column("calls", digits=3),
    Column("time", help="Of drawing, on this device."),
)
BLOCKS = (
    Column("checkpoint"),
    Column("what"),
    Column("cells"),
    Column("blocks", help="Measured and kept one at a time."),
    Column("time", help="Of measuring, on this device."),
)


def dry_run(ask: Ask) -> Result:
    """Cells, outputs, network calls and time of a command."""
    from strop.engine.workers import PlannedBlocks

    if ask.values.get("out", ask.out) is not None:  # a study's is no parameter
        _check_directory(ask)
    planned = _planned_draws(ask)
    blocks = [part for part in planned if isinstance(part, PlannedBlocks)]
    if blocks:
        return _in_blocks(ask, blocks)
    if not planned:
        raise UserError(
            "Nothing would be drawn: the command reads outputs that exist already.",
            where="`dry_run`",
            fix="leave `dry_run` out",
        )
    if all(draw.denoiser.spec.family == "served" for draw in planned):
        return _requests(ask, planned)
    running = {draw.denoiser: draw.running() for draw in planned}
    planned = [replace(draw, denoiser=running[draw.denoiser]) for draw in planned]
    rows, paces = [], {}
    for draw in planned:
        key = id(draw.denoiser), draw.cells[0].cell.generator.sampler.implementation
        if key not in paces:
            paces[key] = draw.pace(SECONDS)
        rows += _rows(draw, paces[key])
    facts: dict[str, Any] = {
        name: sum(row[name] for row in rows) for name in ("cells", "outputs", "calls", "seconds")
    }
    device = planned[0].denoiser.device
    answer = (
        f"Drawing takes about {duration(facts['seconds'])} on {device}: {facts['cells']:,} "
        f"{'cell' if facts['cells'] == 1 else 'cells'}, "
        f"{facts['outputs']:,} outputs, about {round(facts['calls']):,} network calls. Nothing "
        "was drawn yet."
    )
    if ask.verb.most is not None:
        most = max(ask.verb.most(ask), facts["outputs"])
        total = duration(most * facts["seconds"] / facts["outputs"])
        answer = (
            f"All of it is at most {most:,} outputs, about {total} on {device}; what comes first, "
            f"{facts['outputs']:,} outputs, takes about {duration(facts['seconds'])}. Nothing was "
            "drawn yet."
        )
        facts["most"] = most
    counted = {draw.denoiser.source for draw in planned}
    uncounted = [source for source in ask.sources if source not in counted]
    notes = (
        *(() if ask.verb.later is None else (ask.verb.later(ask),)),
        *((f"not counted: {', '.join(uncounted)}, which comes afterwards",) if uncounted else ()),
        f"time: from a trial of about {SECONDS:.0f} s on {device}; loading and scoring come on top",
    )
    mixed = len({row["implementation"] for row in rows}) > 1
    columns = [column for column in COLUMNS if mixed or column.name != "implementation"]
    table = Table("What would be drawn", tuple(columns), rows)
    return Result(ask.mark(), table, {}, {"answer": [answer], **facts}, notes)


def _requests(ask: Ask, planned: list[Planned]) -> Result:
    """For served models: count the requests, and make none."""
    rows = [row for draw in planned for row in _rows(draw, 0.0)]
    facts = {name: sum(row[name] for row in rows) for name in ("cells", "outputs", "calls")}
    answer = (
        f"Drawing makes {facts['outputs']:,} requests for {facts['cells']:,} cells; only the "
        "server knows how long they take. Nothing was requested yet."
    )
    columns = [column for column in COLUMNS if column.name not in ("implementation", "time")]
    notes = () if ask.verb.later is None else (ask.verb.later(ask),)
    table = Table("What would be drawn", tuple(columns), rows)
    return Result(ask.mark(), table, {}, {"answer": [answer], **facts}, notes)


def _check_directory(ask: Ask) -> None:
    """Refuse an unsuitable directory now, as the verb itself would later."""
    from strop.store import Folder

    if ask.out.is_file():
        raise UserError(
            "The output path is a file; it must be a directory.", where="`out`", got=str(ask.out)
        )
    kind = getattr(ask.verb, "kind", "run" if ask.verb.name == "sample" else "task")
    inside = getattr(ask.verb, "runs", ())
    force = bool(ask.values.get("force"))
    Folder(ask.out, kind, ask.verb.name, inside=inside).refuse_strangers(force=force)


def _in_blocks(ask: Ask, planned: list[PlannedBlocks]) -> Result:
    """Cells, blocks and time of what is measured block by block."""
    rows, devices = [], set()
    for part in planned:
        worker = part.here()
        source = worker.facts["checkpoint"]
        devices.add(worker.facts["device"])
        for _ in worker.work(0, list(part.cells[0].blocks[0])[:1]):
            pass  # the first call is slower than those after it
        for number, cell in enumerate(part.cells):
            sequences = sum(map(len, cell.blocks))
            seconds = sequences * block_pace(worker, number, cell, SECONDS / len(part.cells))
            rows.append(
                {
                    "checkpoint": source if source in ask.sources else Path(source).name,
                    "what": cell.label,
                    "cells": len(cell.ids),
                    "blocks": len(cell.blocks),
                    "seconds": seconds,
                    "time": duration(seconds),
                }
            )
    facts: dict[str, Any] = {
        name: sum(row[name] for row in rows) for name in ("cells", "blocks", "seconds")
    }
    where = " and ".join(sorted(devices))
    answer = (
        f"Measuring takes about {duration(facts['seconds'])} on {where}: {facts['cells']:,} cells "
        f"in {facts['blocks']:,} blocks. Nothing was measured yet."
    )
    notes = (f"time: from a trial of each line on {where}; loading comes on top",)
    table = Table("What would be measured", BLOCKS, rows)
    return Result(ask.mark(), table, {}, {"answer": [answer], **facts}, notes)


def block_pace(worker: Worker, number: int, cell: Blocks, seconds: float) -> float:
    """Seconds per sequence or output of a cell, timed on growing parts of its first block."""
    first, size, began = list(cell.blocks[0]), 1, time.monotonic()
    while True:
        start = time.monotonic()
        for _ in worker.work(number, first[:size]):
            pass
        took = time.monotonic() - start
        if size == len(first) or time.monotonic() - began + 2 * took > seconds:
            return took / size
        size = min(2 * size, len(first))


def _planned_draws(ask: Ask) -> list[Any]:
    """The draws that do not depend on the results of others."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        usual = {"dry_run": False, "force": False, "engine": None, "devices": None}
        usual |= {"ray_address": None, "shard": None, "wait": False}
        changed = {name: value for name, value in usual.items() if name in ask.values}
        if ask.values.get("out") is not None:
            changed["out"] = str(out)
        aside = replace(ask, out=out, values={**ask.values, **changed}, progress=None)
        with planning() as planned, suppress(Elsewhere):
            ask.verb.answer(aside)
    return planned


def _rows(draw: Planned, seconds: float) -> list[dict[str, Any]]:
    """One row per number of steps."""
    rows: dict[int, dict[str, Any]] = {}
    for cell_draw in draw.cells:
        sampler, each = cell_draw.cell.generator.sampler, calls(cell_draw.cell)
        row = rows.setdefault(
            sampler.steps,
            {
                "checkpoint": draw.denoiser.source,
                "steps": sampler.steps,
                "implementation": sampler.implementation,
                "cells": 0,
                "outputs": 0,
                "calls": 0.0,
            },
        )
        row["cells"] += 1
        row["outputs"] += cell_draw.n
        row["calls"] += cell_draw.n * each
    for row in rows.values():
        row["calls_each"] = row["calls"] / row["outputs"]
        row["seconds"] = row["calls"] * seconds
        row["time"] = duration(row["seconds"])
    return list(rows.values())


def calls(cell: CellSpec) -> float:
    """Network calls of an output, about.

    A plain fast sampler asks the network only in updates that reveal something: each of L tokens is
    revealed in one of M updates, so M (1 - (1 - 1/M)^L) of them on average.
    """
    sampler, length = cell.generator.sampler, cell.generator.length
    record, steps = SAMPLERS[sampler.name], sampler.steps
    if record.family == "served":
        return 1.0
    if record.causal:
        return float(length)
    if sampler.implementation == "fast" and record.grid and record.baseline is None:
        return steps * (1 - (1 - 1 / steps) ** length)
    return float(steps)
