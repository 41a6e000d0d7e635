"""A directory of cells: made, opened, started anew."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from strop.disk import CLAIM, LOCK, TEMPORARY, disk, locked, reading, write
from strop.errors import UserError
from strop.prompts import Canvases
from strop.spec import CellSpec
from strop.store.cell import Cell
from strop.store.differences import differences
from strop.store.documents import MISSING, as_json, check_format, damaged, read_json
from strop.store.layout import (
    CELL_ID,
    CELLS,
    COST,
    FORMAT,
    GUARD,
    OUTPUTS,
    PARTS,
    PROMPTS,
    SCORES,
    SPEC,
    STUDY,
)
from strop.store.prompts import KeptPrompts, keep_prompts
from strop.version import __version__

__all__ = ["Run"]


class _DamagedStudy(Exception):
    """Why study.yaml cannot be what strop wrote."""


class Run:
    """A directory of cells."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @classmethod
    def prepare(
        cls,
        path: str | os.PathLike[str],
        asked: Mapping[str, Any],
        cells: Sequence[CellSpec],
        *,
        force: bool = False,
        grow: bool = False,
    ) -> Run:
        """Make a new run, or open one that was made for the same cells.

        `asked` is written to study.yaml for people; the cells' ids decide what is the same. Its
        `n` is the number of outputs of every cell, or `outputs` has one number per cell. A run that
        may `grow` gets the cells that it lacks and keeps those that it has; what was asked of it
        first stays written.
        """
        cls.refuse_strangers(path)  # before a lock file is left in somebody's directory
        run = cls(path)
        with disk(run.path):
            run.path.mkdir(parents=True, exist_ok=True)
        with run._lock():
            run._sweep()
            run._refuse_strangers()
            if force:
                run._clear()
            ids = [cell.id for cell in cells]
            each = asked.get("outputs") or [int(asked.get("n", 0))] * len(ids)
            if grow:
                wanted = dict(zip(ids, each, strict=True))
                ids = list(dict.fromkeys([*run._held(), *ids]))
                each = [wanted.get(one, 0) for one in ids]
            study = run._study_of(ids)
            other = study is not None and set(study["cells"]) != set(ids)
            if grow:  # by other settings of the same checkpoint
                first = {} if study is None else study["asked"]
                other = first.get("weights", asked.get("weights")) != asked.get("weights")
            if study is not None and other:
                raise UserError(
                    "This run directory was made by another spec.",
                    where=run.path,
                    got=differences(study["asked"], asked),
                    expected="the same checkpoint, settings and seed (only `n` may grow; for dense "
                    "by whole batches, see `batch_size`)",
                    fix="choose another `out`, or start this one anew with `force`",
                )
            before = run._counts(study) if study is not None else {}
            counts = [max(n, before.get(cell, 0)) for cell, n in zip(ids, each, strict=True)]
            said = {**asked, **(study["asked"] if study is not None and grow else {})}
            said["n"] = max(counts, default=0)
            said.pop("outputs", None)
            if len(set(counts)) > 1:
                said["outputs"] = counts
            run._write_study(said, ids)
            for cell in cells:
                Cell(run.path / CELLS / cell.id, cell)._prepare()
        return run

    @classmethod
    def refuse_strangers(cls, path: str | os.PathLike[str]) -> None:
        """Say that outputs cannot go to `path`, as far as can be seen without touching it."""
        if not os.fspath(path):
            raise UserError("The output path is empty.", where="`out`", fix="name a directory")
        run = cls(path)
        with disk(run.path):
            looked_at = run.path.exists() and not (run.path / LOCK).exists()
        if looked_at:
            run._refuse_strangers()

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Run:
        """A run that exists, to read from."""
        run = cls(path)
        with reading(run.path):
            exists = run.path.is_dir()
        if not exists:
            raise UserError("There is no such run directory.", where=run.path, fix="strop ls")
        if run._study() is None:
            if run._holds_cells():
                raise damaged(run.path / STUDY, MISSING)
            raise UserError(
                "This directory is not a run.",
                where=run.path,
                expected=f"a directory with {STUDY}",
                fix="strop ls",
            )
        return run

    @property
    def asked(self) -> dict[str, Any]:
        """What the run was asked to do, as study.yaml has it."""
        study = self._study()
        return {} if study is None else dict(study["asked"])

    def wanted(self) -> dict[str, int]:
        """How many outputs each cell was asked for, by the cell's id."""
        study = self._study()
        return {} if study is None else self._counts(study)

    @staticmethod
    def _counts(study: Mapping[str, Any]) -> dict[str, int]:
        asked, ids = study["asked"], study["cells"]
        counts = asked.get("outputs") or [asked.get("n", 0)] * len(ids)
        return dict(zip(ids, counts, strict=True))

    def cells(self) -> list[Cell]:
        """The cells of the study, in the order in which they were asked for."""
        study = self._study()
        ids = [] if study is None else study["cells"]
        return [Cell.open(self.path / CELLS / cell_id) for cell_id in ids]

    def cell(self, name: str) -> Cell:
        """One cell by its id or the beginning of it."""
        found = [cell for cell in self.cells() if cell.id.startswith(name)]
        if len(found) == 1:
            return found[0]
        raise UserError(
            f"{'Several cells begin' if found else 'No cell begins'} with {name!r}.",
            where=self.path,
            expected="one of " + ", ".join(cell.id for cell in self.cells()),
            fix=f"strop show {self.path}",
        )

    def of_earlier_stream(self, spec: CellSpec) -> Cell | None:
        """The cell that is here and differs from this one only in an earlier random stream."""
        for stream in range(1, spec.stream):
            folder = self.path / CELLS / spec.model_copy(update={"stream": stream}).id
            with reading(folder):
                there = (folder / SPEC).is_file()
            if there:
                return Cell.open(folder)
        return None

    def keep_prompts(
        self, canvases: Canvases, pieces: Sequence[Sequence[str | int] | None]
    ) -> KeptPrompts:
        """Keep what the cells' outputs answer; prompts that are here already keep their names."""
        with self._lock():
            return keep_prompts(self.path, canvases, pieces)

    def guard(self) -> dict[str, Any] | None:
        """The entropy guard that was kept here, if one was."""
        path = self.path / GUARD
        with reading(path):
            there = path.is_file()
        return read_json(path, "source", str) if there else None

    def keep_guard(self, guard: Mapping[str, Any]) -> None:
        """Keep the guard that this run's cells are held against, for whoever reads it later."""
        write(self.path / GUARD, as_json({"format": FORMAT, **guard}))

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with locked(self.path):
            yield

    def _sweep(self) -> None:
        """Remove what a session that was killed had not yet renamed into place."""
        with disk(self.path):
            for leftover in self.path.glob(TEMPORARY + "*"):
                leftover.unlink(missing_ok=True)

    def _refuse_strangers(self) -> None:
        """A directory without a study is ours only if it is empty, or only the study was lost."""
        with disk(self.path):
            names = sorted(
                p.name
                for p in self.path.iterdir()
                if p.name != LOCK and not p.name.startswith(TEMPORARY)
            )
        if names and STUDY not in names and not self._holds_cells():
            raise UserError(
                "The output directory holds files but no run.",
                where=self.path,
                got=", ".join(names[:3]) + (", ..." if len(names) > 3 else ""),
                expected="a new or empty directory, or one made by strop",
                fix="choose another `out`",
            )

    def _clear(self) -> None:
        """Remove what strop made here, and nothing else; wait for who is still writing."""
        cells = self._cell_folders()
        with ExitStack() as held, disk(self.path):
            for cell in cells:
                for folder in (cell, cell / SCORES):
                    if folder.is_dir():
                        held.enter_context(locked(folder))
            for cell in cells:
                made = [cell / SPEC, cell / OUTPUTS, cell / COST, *cell.rglob(TEMPORARY + "*")]
                made += [*(cell / PARTS).glob("*.parquet"), *(cell / SCORES).glob("*.parquet")]
                made += cell.glob(CLAIM + "*")
                for file in [*made, cell / SCORES / LOCK, cell / LOCK]:
                    file.unlink(missing_ok=True)
                for folder in (cell / PARTS, cell / SCORES, cell):
                    _remove_if_empty(folder)
            _remove_if_empty(self.path / CELLS)
            (self.path / GUARD).unlink(missing_ok=True)
            for kept in (self.path / PROMPTS).glob("*.json"):
                if CELL_ID.fullmatch(kept.stem):
                    kept.unlink()
            _remove_if_empty(self.path / PROMPTS)
            # Last: a session killed in here leaves a directory that still counts as a run.
            (self.path / STUDY).unlink(missing_ok=True)

    def _cell_folders(self) -> list[Path]:
        with reading(self.path):
            found = (self.path / CELLS).glob("*")
            return sorted(p for p in found if CELL_ID.fullmatch(p.name) and p.is_dir())

    def _holds_cells(self) -> bool:
        """Whether a folder describes itself as a cell, whatever else lies here."""
        for folder in self._cell_folders():
            try:
                Cell.open(folder)
            except UserError:
                continue
            return True
        return False

    def _held(self) -> list[str]:
        """The ids of the cells that are here, those of the study first, in their order."""
        try:
            study = self._read_study()
        except _DamagedStudy:  # the cells describe themselves
            study = None
        here = [folder.name for folder in self._cell_folders() if (folder / SPEC).exists()]
        return list(dict.fromkeys([*(study["cells"] if study else ()), *here]))

    def _study_of(self, ids: list[str]) -> dict[str, Any] | None:
        """The study; where it is lost or damaged, that of these cells if they are what is here.

        Cells describe themselves, so the command that made them can write their study again.
        """
        here = {folder.name for folder in self._cell_folders() if (folder / SPEC).exists()}
        mine = here <= set(ids) and self._holds_cells()
        try:
            study = self._read_study()
        except _DamagedStudy as error:
            if not mine:
                raise damaged(self.path / STUDY, error) from None
            return self._study_of_cells(ids)
        if study is None:
            if here and not mine:
                raise damaged(self.path / STUDY, MISSING)
            return self._study_of_cells(ids) if here else None
        # As many cells here and in the study as are asked for: one wrong digit in the study.
        slip = here == set(ids) != set(study["cells"]) and len(study["cells"]) == len(ids)
        return self._study_of_cells(ids) if slip else study

    def _study_of_cells(self, ids: list[str]) -> dict[str, Any]:
        """What a study of these cells must have asked for: the outputs that they hold."""
        folders = [self.path / CELLS / name for name in ids]
        held = [Cell.open(one).indices() if (one / SPEC).exists() else set() for one in folders]
        return {"asked": {"outputs": [1 + max(have, default=-1) for have in held]}, "cells": ids}

    def _study(self) -> dict[str, Any] | None:
        try:
            return self._read_study()
        except _DamagedStudy as error:
            raise damaged(self.path / STUDY, error) from None

    def _read_study(self) -> dict[str, Any] | None:
        import yaml

        path = self.path / STUDY
        try:
            with reading(path):
                study = yaml.safe_load(path.read_bytes())
        except FileNotFoundError:
            return None
        except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise _DamagedStudy(str(error)) from None
        if not isinstance(study, dict):
            raise _DamagedStudy("it is not a study")
        if type(study.get("format")) is not int:
            raise _DamagedStudy(f"its format is {study.get('format')!r}")
        check_format(study, path)
        asked, ids = study.get("asked"), study.get("cells")
        if not isinstance(asked, dict) or type(asked.get("n", 0)) is not int:
            raise _DamagedStudy("it does not say what was asked")
        if not isinstance(ids, list) or not all(CELL_ID.fullmatch(str(name)) for name in ids):
            raise _DamagedStudy("it does not list cells")
        counts = asked.get("outputs", [0] * len(ids))
        if not isinstance(counts, list) or [type(n) for n in counts] != [int] * len(ids):
            raise _DamagedStudy("it does not say how many outputs each cell has")
        return study

    def _write_study(self, asked: Mapping[str, Any], ids: list[str]) -> None:
        import yaml

        document = {"format": FORMAT, "strop": __version__, "asked": dict(asked), "cells": ids}
        # ASCII, so that names of any bytes that the file system allows can be written.
        content = yaml.safe_dump(document, sort_keys=False).encode()
        path = self.path / STUDY
        with reading(path):
            same = path.exists() and path.read_bytes() == content
        if not same:
            write(path, content)


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
