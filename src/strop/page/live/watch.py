"""What is under way in a folder, from its files alone: nothing is asked of a run, and nothing held.

One walk over the folder gives every file's looks; what was read of a file is kept until its looks
change. That somebody is at work is told by the locks that the system knows (`/proc/locks`), which
end with their process however it ends; looking at them takes none.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from strop.disk import CLAIM, LOCK, TEMPORARY
from strop.errors import UserError
from strop.measure.metric import PASSED, TASK
from strop.page.data import place
from strop.page.origin import command_of
from strop.served.cost import CALLS, REPLY, SENT, SETTLED
from strop.spec.generator import label
from strop.store import KINDS, Cell, Mark, read_mark
from strop.store.folder import CELLS, MARK, OUTPUTS, PARTS, RESULT, SCORES
from strop.training.curve import METRICS, read_metrics

LOCKS = Path("/proc/locks")
RECENT = 30.0
"""Seconds after a change in which somebody is taken to be at work, where no locks can be seen."""
WINDOW = 60.0
"""Seconds over which a rate is taken."""
Looks = tuple[int, int, int]
"""Of a file: time of its content, size, number on the disk."""


def walk(root: Path, allowed: Sequence[Path]) -> dict[str, Looks]:
    """Every file below a folder by its name in it; refused where a link leads out of `allowed`."""
    base = os.path.realpath(root)
    if os.path.isfile(base):
        return {"": _looks(os.stat(base))}
    looks: dict[str, Looks] = {}
    waiting = [""]
    while waiting:
        inner = waiting.pop()
        try:
            entries = list(os.scandir(os.path.join(base, inner)))
        except (FileNotFoundError, NotADirectoryError):
            continue  # removed meanwhile
        for entry in entries:
            name = inner + entry.name
            if entry.is_symlink():
                _check_link(Path(entry.path), allowed)
            if entry.is_dir(follow_symlinks=False):
                waiting.append(f"{name}/")
            elif not entry.name.startswith(TEMPORARY) and not entry.is_dir():
                try:
                    looks[name] = _looks(entry.stat())
                except FileNotFoundError:
                    continue
    return looks


def _looks(status: os.stat_result) -> Looks:
    return status.st_mtime_ns, status.st_size, status.st_ino


def _check_link(link: Path, allowed: Sequence[Path]) -> None:
    target = link.resolve()
    if not any(target.is_relative_to(folder) for folder in allowed):
        raise UserError(
            "A link in the folder leads out of it, so the folder is not shown.",
            where=link,
            got=f"it leads to {target}",
            fix="remove the link, or give the folder that it leads to as well",
        )


def locked_files() -> set[int] | None:
    """The numbers on the disk of all files that some process holds; None where nobody tells."""
    try:
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return None
    matches = (re.search(r" FLOCK .* \w+:\w+:(\d+) ", line) for line in lines)
    return {int(match[1]) for match in matches if match is not None}


class WatchedFolder:
    """One of the given folders, as it was at the last look."""

    def __init__(self, number: int, path: Path, allowed: Sequence[Path]) -> None:
        self.number, self.path, self._allowed = number, path, allowed
        self.files: dict[str, Looks] = {}
        """By name, but for locks: another object as soon as one of them looks different."""
        self.busy = False
        self.error: UserError | None = None
        """Why nothing of it may be shown."""
        self._held = False
        self._last_read: dict[tuple[str, ...], tuple[Any, Any]] = {}
        self._counts: deque[tuple[float, float]] = deque()

    @property
    def name(self) -> str:
        """As the page calls it."""
        return place(str(self.path))

    @property
    def kind(self) -> str:
        """What it is, in words."""
        try:
            mark = self.marks().get("")
        except UserError:
            return "damaged"
        return "judgments" if mark is None else KINDS[mark.kind].words

    def details(self) -> dict[str, Any]:
        """What pages are told besides `state`: outputs by cell, judges, grades."""
        try:
            marks = self.marks()
            return {
                "counts": {cell["id"]: cell["done"] for cell in self._cells(marks)},
                "series": self.judged(),
                "grades": self.graded(),
            }
        except UserError:
            return {"counts": {}, "series": [], "grades": []}

    def look(self, locks: set[int] | None, now: float | None = None) -> bool:
        """Walk over it; whether something other than locks has changed since the last look."""
        now = time.time() if now is None else now
        try:
            files, self.error = walk(self.path, self._allowed), None
        except UserError as error:
            files, self.error = {}, error
        except OSError as error:
            files, self.error = (
                {},
                UserError("The folder cannot be read.", where=self.path, got=error),
            )
        holds = {name for name in files if is_hold(name)}
        others = {name: looks for name, looks in files.items() if name not in holds}
        changed = others != self.files
        if changed:
            self.files = others
        held = locks is not None and any(files[name][2] in locks for name in holds)
        self._held |= held
        # Another machine's locks cannot be seen here; its files change all the same.
        elsewhere = not self._held and self._newest() > (now - RECENT) and locks is None
        self.busy = held or elsewhere
        return changed

    def _newest(self) -> float:
        return max((looks[0] for looks in self.files.values()), default=0) / 1e9

    def state(self, now: float | None = None) -> dict[str, Any]:
        """What is told of it: done of asked, rate, time to go, failures, what continues it."""
        now = time.monotonic() if now is None else now
        message: dict[str, Any] = {"number": self.number, "name": self.name, "kind": None}
        message |= {"state": "damaged", "done": 0, "asked": None, "unit": "outputs", "rate": None}
        message |= {"left": None, "command": None, "failures": [], "cells": []}
        try:
            if self.error is not None:
                raise self.error
            marks = self.marks()
            mark = marks.get("")
            message["kind"] = self.kind
            counted = self._progress(marks)
            message |= counted
            message["state"] = self._state(mark, counted)
            message["failures"] = self._failures()
            if mark is not None:
                message["command"] = command_of(self.path, mark)
        except UserError as error:
            message["failures"] = [{"where": str(error.where or ""), "why": error.what, "count": 1}]
            return message
        message |= self._pace(now, message["done"], message["asked"])
        return message

    def marks(self) -> dict[str, Mark]:
        """The marks of the folder and of those inside it, by where they lie."""
        names = [name for name in self.files if name.rpartition("/")[2] == MARK]
        marks = {}
        for name in sorted(names):
            inner = name.removesuffix(MARK)
            mark = self._read_if_changed(
                ("mark", name), [name], lambda i=inner: read_mark(self.path / i)
            )
            if mark is not None:
                marks[inner] = mark
        return marks

    def judged(self) -> list[dict[str, Any]]:
        """Of every series of a GroupEval directory, how far it is and what failed."""
        series = []
        for name in self.files:
            if name.startswith("series/") and name.endswith("/judge.json"):
                inner = name.removesuffix("judge.json")
                files = [name, inner + CALLS]
                series.append(
                    self._read_if_changed(
                        ("series", name), files, lambda i=inner: _series(self.path, i)
                    )
                )
        return series

    def graded(self) -> list[dict[str, Any]]:
        """Of every cell with a task's verdicts, how many there are and how many are right."""
        graded_cells = []
        for inner, mark in self.marks().items():
            for id_ in mark.cells or ():
                folder = f"{inner}{CELLS}/{id_}/"
                scores = [name for name in self.files if name.startswith(folder + SCORES)]
                if scores and mark.owner == "task run":
                    grades = self._read_if_changed(
                        ("grades", folder), scores, lambda f=folder: _grades(self.path / f)
                    )
                    if grades is not None:
                        asked = mark.wanted()[id_]
                        graded_cells.append({**grades, "asked": asked, "label": inner.strip("/")})
        return graded_cells

    def _read_if_changed(
        self, what: tuple[str, ...], names: Sequence[str], read: Callable[[], Any]
    ) -> Any:
        """What was read of some files, while they look the same."""
        looks = [self.files.get(name) for name in names]
        kept = self._last_read.get(what)
        if kept is None or kept[0] != looks:
            kept = self._last_read[what] = (looks, read())
        return kept[1]

    def _cells(self, marks: Mapping[str, Mark]) -> list[dict[str, Any]]:
        counted: dict[str, dict[str, Any]] = {}
        by_cell: dict[str, list[str]] = {}
        for name in self.files:
            if name.endswith(".parquet") and f"/{SCORES}/" not in name:
                folder = name.rpartition("/")[0].removesuffix(f"/{PARTS}")
                by_cell.setdefault(folder, []).append(name)
        for inner, mark in marks.items():
            for id_, asked in mark.wanted().items():
                folder = f"{inner}{CELLS}/{id_}"
                files = sorted(by_cell.get(folder, ()))
                cell = self._read_if_changed(
                    ("cell", folder), [f"{folder}/spec.json"], lambda f=folder: _cell(self.path / f)
                )
                done = self._read_if_changed(
                    ("count", folder, *files), files, lambda c=cell, f=files: self._rows(c, f)
                )
                cell_label = "not begun" if cell is None else label(cell.spec.generator.sampler)
                new = {"id": id_, "label": cell_label, "done": min(done, asked), "asked": asked}
                if id_ not in counted or counted[id_]["done"] < new["done"]:
                    counted[id_] = new
        return list(counted.values())

    def _rows(self, cell: Cell | None, files: Sequence[str]) -> int:
        """How many outputs some files hold."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if cell is None:
            return 0
        if len(files) > 1 and any(name.endswith(OUTPUTS) for name in files) and not self.busy:
            return len(cell.indices())  # whoever merged was killed: rows may be there twice
        try:
            return sum(pq.read_metadata(self.path / name).num_rows for name in files)
        except (FileNotFoundError, pa.ArrowException):
            return len(cell.indices())  # merged meanwhile, or damaged: that is told in words

    def _progress(self, marks: Mapping[str, Mark]) -> dict[str, Any]:
        mark = marks.get("")
        if mark is not None and mark.kind == "training":
            last = self._read_if_changed(("steps",), [METRICS], lambda: _last_step(self.path))
            return {"done": last, "asked": mark.asked.get("steps"), "unit": "steps"}
        if mark is not None and mark.kind == "groupeval":
            series = self.judged()
            done, asked = (sum(entry[name] for entry in series) for name in ("done", "asked"))
            return {"done": done, "asked": asked or None, "unit": "groups"}
        cells = self._cells(marks)
        done, asked = (sum(cell[name] for cell in cells) for name in ("done", "asked"))
        return {"done": done, "asked": asked or None, "unit": "outputs", "cells": cells}

    def _state(self, mark: Mark | None, counted: Mapping[str, Any]) -> str:
        if self.busy:
            return "under way"
        whole = counted["asked"] is None or counted["done"] >= counted["asked"]
        if mark is not None and RESULT in KINDS[mark.kind].made:
            return "finished" if RESULT in self.files else "stopped"
        if mark is not None and mark.kind == "groupeval" and not self.judged():
            return "not judged"
        return "finished" if whole else "stopped"

    def _pace(self, now: float, done: float, asked: float | None) -> dict[str, Any]:
        """Rate and time to go, over the last minute that was watched."""
        if not self.busy:
            self._counts.clear()
            return {}
        self._counts.append((now, done))
        while now - self._counts[0][0] > WINDOW:
            self._counts.popleft()
        (since, had), span = self._counts[0], now - self._counts[0][0]
        if span <= 0 or done <= had:
            return {}
        rate = (done - had) / (now - since)
        return {"rate": rate, "left": None if asked is None else max(0.0, (asked - done) / rate)}

    def _failures(self) -> list[dict[str, Any]]:
        """What went wrong, by reason: of judges, of servers that were asked, of a result."""
        failures = [
            {"where": series["name"], **why} for series in self.judged() for why in series["why"]
        ]
        for name in self.files:
            if name.endswith(f"/{CALLS}") and name.startswith(CELLS):
                counted = self._read_if_changed(
                    ("calls", name), [name], lambda n=name: _refusals(self.path / n)
                )
                failures += [
                    {"where": name.split("/")[1], "why": why, "count": count}
                    for why, count in counted.items()
                ]
        if RESULT in self.files:
            missing = self._read_if_changed(
                ("result",), [RESULT], lambda: _missing_text(self.path / RESULT)
            )
            failures += [{"where": RESULT, "why": missing, "count": 1}] if missing else []
        return failures


def is_hold(name: str) -> bool:
    """Whether a file is a lock or a claim, which come and go while nothing changes."""
    last = name.rpartition("/")[2]
    return last == LOCK or last.startswith(CLAIM)


def _cell(folder: Path) -> Cell | None:
    return Cell.open(folder) if folder.is_dir() else None


def _lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a journal that are JSON objects."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    entries = []
    for line in content[: content.rfind(b"\n") + 1].splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            entries.append(entry)
    return entries


def _last_step(run: Path) -> int:
    """How far a training run is."""
    return max((entry["step"] for entry in read_metrics(run)), default=0)


def _series(run: Path, inner: str) -> dict[str, Any]:
    from strop.groupeval.series import Series

    series = Series.open(run, Path(inner).name)
    states = series.states("plan")
    done = sum(1 for _, answers in states if answers and not hasattr(answers[0], "reason"))
    why = Counter(
        f"{failure.reason}: {failure.detail}" if failure.detail else failure.reason
        for failure in series.failures()
    )
    reasons = [{"why": reason, "count": count} for reason, count in why.most_common()]
    return {
        "id": series.id,
        "name": series.name,
        "done": done,
        "asked": len(states),
        "failed": sum(why.values()),
        "why": reasons,
    }


def _grades(folder: Path) -> dict[str, Any] | None:
    cell = Cell.open(folder)
    scores = [
        score for score in cell.scores().values() if score.metric.name == TASK.name and len(score)
    ]
    if not scores:
        return None
    passed = next(column for name, column in scores[0].columns.items() if name.startswith(PASSED))
    sampler = label(cell.spec.generator.sampler)
    return {
        "cell": cell.id,
        "sampler": sampler,
        "graded": len(scores[0]),
        "right": int(passed.sum()),
    }


def _refusals(path: Path) -> dict[str, int]:
    """Requests of a served model that brought no text, by reason, and were not made up for."""
    last = {
        str(entry.get("sheet")): str(entry.get("outcome"))
        for entry in _lines(path)
        if entry.get("outcome") not in (SENT, SETTLED)
    }
    return dict(Counter(why for why in last.values() if why != REPLY))


def _missing_text(path: Path) -> str | None:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    missing = document.get("missing") if isinstance(document, dict) else None
    return missing if isinstance(missing, str) else None
