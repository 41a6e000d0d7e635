"""Several runs of the same cells made into one: what shards drew apart from each other."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from strop.engine.plan import refuse_missing, spelled
from strop.errors import UserError
from strop.store import Cell, Folder, Run
from strop.store.folder import differences
from strop.store.tables import ScoreTable, same_outputs

if TYPE_CHECKING:
    import pyarrow as pa


def merge_runs(sources: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> Run:
    """Bring outputs and scores of runs of the same cells together in `out`; calling again goes on.

    Refuses runs of other cells, and outputs that two runs have differently. What is in `out`
    already stays, and so does what was merged.
    """
    runs = [Run.open(run) for run in sources]
    for run in runs:
        if run.path.resolve() == Path(out).resolve():
            raise UserError(
                "A run cannot be merged into itself.", where=out, fix="choose another `out`"
            )
        _refuse_others(runs[0], run)
    first = runs[0]
    counts = {id_: max(run.wanted()[id_] for run in runs) for id_ in first.wanted()}
    asked = {**first.asked, "n": max(counts.values()), "outputs": list(counts.values())}
    folder = Folder(out, *_whose(runs))
    merged = Run.prepare(folder, asked, [cell.spec for cell in first.cells()])
    for run in runs:
        _merge_run(run, merged)
    for cell in merged.cells():
        cell.merge()
    return merged


def _whose(runs: Sequence[Run]) -> tuple[str, str]:
    """Kind and owner of what shards drew apart: an audit's goes on as an audit."""
    whose = {(mark.kind, mark.owner) for run in runs if (mark := run.mark) is not None}
    return whose.pop() if len(whose) == 1 else ("run", "merge")


def refuse_gaps(run: Run) -> None:
    """Name the outputs that are still missing, if any are."""
    wanted = run.wanted()
    missing = {cell.id: set(range(wanted[cell.id])) - cell.indices() for cell in run.cells()}
    refuse_missing(run.path, missing)


def _refuse_others(first: Run, other: Run) -> None:
    if set(first.wanted()) != set(other.wanted()):
        raise UserError(
            "These runs do not belong together: they have other cells.",
            where=other.path,
            got=differences(first.asked, other.asked),
            expected=f"the cells of {first.path}",
        )


def _merge_run(run: Run, merged: Run) -> None:
    """Everything that one run has."""
    guard = run.guard()
    if guard is not None and merged.guard() is None:
        merged.keep_guard({key: value for key, value in guard.items() if key != "format"})
    for cell in run.cells():
        target = merged.cell(cell.id)
        prompts = cell.prompts()
        if prompts is not None:
            merged.keep_prompts(prompts.canvases, prompts.pieces)
        with target.drawing():
            _take_outputs(cell, target)
            recorded = {earlier["session"] for earlier in target.sessions()}
            for session in cell.sessions():
                if session["session"] not in recorded:
                    target.record(session)
        _take_scores(cell, target)


def _take_outputs(cell: Cell, target: Cell) -> None:
    new, old = cell.table(), target.table()
    _refuse_conflicts(cell, new, old)
    rows = np.flatnonzero(~np.isin(new["index"].to_numpy(), old["index"].to_numpy()))
    if len(rows):
        target.add_table(new.take(rows))


def _refuse_conflicts(cell: Cell, new: pa.Table, old: pa.Table) -> None:
    """Equal seeds give equal outputs: where they do not, one of the runs is not what it says."""
    index, new_rows, old_rows = np.intersect1d(
        new["index"].to_numpy(), old["index"].to_numpy(), return_indices=True
    )
    differ = ~same_outputs(new.take(new_rows), old.take(old_rows), cell.spec)
    if differ.any():
        raise UserError(
            "Two runs have different outputs with the same index.",
            where=cell.path,
            got=f"outputs {spelled(index[differ].tolist())}",
            expected="equal ones: the cell, the seed and the index are the same",
            fix="find out which of them was drawn otherwise (other packages, another device, "
            "another batch size), and merge without it",
        )


def _take_scores(cell: Cell, target: Cell) -> None:
    for table in cell.scores().values():
        stored = target.score(table.metric)
        if stored is not None:
            _refuse_other_scores(cell, table, stored)
        if not np.isin(table.index, [] if stored is None else stored.index).all():
            target.add_scores(table.metric, {"index": table.index, **table.columns})
            target.add_words(
                table.metric, {**cell.words(table.metric), **target.words(table.metric)}
            )


ROUNDING = 2.0**-7
"""How far apart two measurements of one output may lie, relative to them or in their unit: twice
bfloat16's step, as one machine may evaluate in it and the other not."""


def _refuse_other_scores(cell: Cell, new: ScoreTable, old: ScoreTable) -> None:
    """One metric of one output is one number, whoever measured it."""
    index, new_rows, old_rows = np.intersect1d(new.index, old.index, return_indices=True)
    if new.columns.keys() != old.columns.keys():
        differ, names = np.ones(len(index), bool), sorted(new.columns.keys() ^ old.columns.keys())
    else:
        differ, names = np.zeros(len(index), bool), []
    for name in new.columns.keys() & old.columns.keys():
        a, b = new.columns[name][new_rows], old.columns[name][old_rows]
        slack = ROUNDING if a.dtype.kind == "f" else 0.0
        far = np.abs(a - b) > slack * (1.0 + np.minimum(np.abs(a), np.abs(b)))
        far = far.any(axis=tuple(range(1, far.ndim)))  # of no common output, none
        names += [name] * bool(far.any())
        differ |= far
    if differ.any():
        raise UserError(
            f"Two runs have different scores of one output ({new.metric.name}).",
            where=cell.path,
            got=f"{', '.join(sorted(names))} of outputs {spelled(index[differ].tolist())}",
            expected="equal ones: the metric, the cell and the index are the same",
            fix="delete the scores that are wrong, and score again after merging",
        )
