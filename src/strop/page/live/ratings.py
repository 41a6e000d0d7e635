"""What a person says of single outputs, 0 to 2: a journal, and the judgments that it comes to.

RUN/ratings/
  journal.jsonl    every rating as it was given; appended to, on the disk before it is confirmed
  human.jsonl      those that count now, as judgments that `strop groupeval` reads

The rating is taken for all four grades of a group of one output, which has no modes.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from strop.disk import disk, write
from strop.errors import UserError
from strop.groupeval.inputs import cell_names
from strop.groupeval.judgments import BEST, DIMENSIONS, portable_text
from strop.groupeval.verdict import Grade, GroupVerdict
from strop.page.data import RATINGS
from strop.store import Run

JOURNAL = "journal.jsonl"
Rated = tuple[str, int, int]


class Ratings:
    """The ratings of one run's outputs."""

    def __init__(self, run: Path) -> None:
        self.run, self._place = run, (run / RATINGS).parent
        self._lock = Lock()

    def now(self) -> list[Rated]:
        """Cell, output and rating, of all that count: the latest of each, if it was not undone."""
        latest: dict[tuple[str, int], int | None] = {}
        try:
            content = (self._place / JOURNAL).read_bytes()
        except FileNotFoundError:
            return []
        # A line without its end was being written by a server that was killed.
        for line in content[: content.rfind(b"\n") + 1].splitlines():
            try:
                entry = json.loads(line)
                latest[str(entry["cell"]), int(entry["index"])] = entry["value"]
            except (ValueError, KeyError, TypeError):
                continue
        return [(*which, value) for which, value in latest.items() if value is not None]

    def rate(self, cell: str, index: int, value: int | None) -> None:
        """Keep a rating, or take one back; on the disk when this returns."""
        if value is not None and (type(value) is not int or not 0 <= value <= BEST):
            raise UserError("A rating is 0, 1 or 2.", got=value)
        when = datetime.now(UTC).isoformat(timespec="seconds")
        entry = {"cell": cell, "index": index, "value": value, "when": when}
        with self._lock, disk(self._place):
            self._place.mkdir(exist_ok=True)
            _append(self._place / JOURNAL, json.dumps(entry).encode() + b"\n")
            self._judgments()

    def _judgments(self) -> None:
        """The file that GroupEval reads, under the names that a plan of this run would give."""
        run = Run.open(self.run)
        names = dict(zip(run.wanted(), cell_names(self.run, run.cells()), strict=True))
        verdicts = [
            GroupVerdict(
                names[cell], 0, index, (Grade(index, True, (value,) * DIMENSIONS, None),), "high"
            )
            for cell, index, value in sorted(self.now())
            if cell in names
        ]
        if verdicts:
            write(self.run / RATINGS, portable_text(verdicts).encode())
        else:  # all were taken back; a file without a judgment is refused
            (self.run / RATINGS).unlink(missing_ok=True)


def _append(path: Path, line: bytes) -> None:
    """One line more; what a killed server left of a line is ended first, and is none."""
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            line = b"\n" + line
        while line:
            line = line[os.write(handle, line) :]
        os.fsync(handle)
    finally:
        os.close(handle)
