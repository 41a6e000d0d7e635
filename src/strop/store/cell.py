"""One generator under one seed, on disk.

A cell's outputs are read by index, each once, from any number of files, with a bounded number of
rows in memory. The rows of every file are in order, so several files are merged as they are read: a
file is opened when its first row is due, and memory holds one batch of each open file.

`FileMemory` remembers what was found out about files, by their paths and their looks. A file's
looks are its size, its inode, and the times of its last change of content and of status. The system
sets the last one, so a file that was replaced or changed in place looks different even if its size
and its modification time were kept. Whoever only needs to know what a model is
called, or what a file holds (a finished run, called again), asks here instead of reading it.
Nothing is computed from what is remembered: the loaders hash what they read. It lies in the user's
cache; losing it costs a load.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strop.disk import CLAIM, TEMPORARY, claimed, disk, locked, shared, write
from strop.errors import UserError
from strop.pool import Output, Pool, counted, filler
from strop.spec.generator import CellSpec, label
from strop.spec.value import MetricSpec
from strop.store.folder import (
    COST,
    FORMAT,
    OUTPUTS,
    PARTS,
    SCORES,
    SPEC,
    as_json,
    damaged,
    read_json,
)
from strop.store.tables import (
    BEFORE,
    CHANCE,
    PROMPT,
    ROWS,
    KeptPrompts,
    ScoreTable,
    add_scores,
    add_words,
    chances,
    lists,
    output_table,
    read_batches,
    read_parquet,
    read_prompts,
    read_score,
    read_scores,
    read_words,
    replaced,
    same_outputs,
    token_ids,
    write_parquet,
    write_stream,
)
from strop.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa


# ------------------------------------------------------------------------------------- remembered

SETTLED = 2.0
"""Seconds after which a file's time tells a later change from this one, on any file system."""
MOST = 1024
"""Entries that are kept, the latest."""
Looks = tuple[int, int, int, int]
"""Size, number on the disk, time of the content, time of the file."""


def cache_folder() -> Path:
    """Where what can be made again lies: STROP_CACHE, else the user's cache folder."""
    named = os.environ.get("STROP_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "strop"


class FileMemory:
    """What is known of some files, read under some settings."""

    def __init__(self, files: Sequence[Path], settings: Mapping[str, Any]) -> None:
        seen = [(str(file.resolve()), looks(file)) for file in files]
        newest = max((max(look[2:]) for _, look in seen), default=0)
        self._settled = newest < time.time_ns() - SETTLED * 1e9
        key = {"strop": __version__, "files": seen, **settings}
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        self._path = cache_folder() / "identities" / f"{digest[:32]}.json"

    def recall(self) -> dict[str, Any] | None:
        """What was kept; None where nothing was, or it cannot be read."""
        with suppress(OSError, ValueError):
            facts = json.loads(self._path.read_bytes())
            return facts if isinstance(facts, dict) else None
        return None

    def keep(self, facts: Mapping[str, Any]) -> None:
        """Keep it, if the files are old enough and the cache can be written."""
        if self._settled:
            with suppress(OSError, UserError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write(self._path, (json.dumps(dict(facts)) + "\n").encode())
                memories = list(self._path.parent.glob("*.json"))
                if len(memories) > MOST:
                    for old in sorted(memories, key=lambda file: file.stat().st_mtime)[:-MOST]:
                        old.unlink(missing_ok=True)


def looks(file: Path) -> Looks:
    """What changes whenever a file does."""
    status = file.stat()
    return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def files_at(path: Path) -> list[Path]:
    """The files of a folder, or those beside a file: what is read together with it."""
    folder = path if path.is_dir() else path.parent
    return [file for file in sorted(folder.iterdir()) if file.is_file()]


def contents(path: Path) -> list[list[str]]:
    """Every file at a place, by its path from there, with the hash of what it holds.

    A file is read once, and again when it looks different.
    """
    if not path.exists():
        return []
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    files = [file for file in files if file.is_file()]
    return [[str(file.relative_to(path)), _sha256(file)] for file in files]


def _sha256(file: Path) -> str:
    memory = FileMemory([file], {"kind": "content"})
    stored = (memory.recall() or {}).get("sha256")
    if isinstance(stored, str):
        return stored
    with open(file, "rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    memory.keep({"sha256": digest})
    return digest


# ------------------------------------------------------------------------------------------- cell

INDEX = "index"
WHOLE = 2**17
"""Rows that are read at a time where all of them are kept."""


class _File:
    """One file, read up to some row."""

    def __init__(self, path: Path, batches: Iterator[pa.Table]) -> None:
        self.path, self._batches = path, batches
        self.index = np.zeros(0, np.int64)
        self.table: pa.Table | None = None
        self.place = 0

    def at(self) -> int | None:
        """The index of its next row; None where it has ended."""
        while self.place >= len(self.index):
            self.table = next(self._batches, None)
            if self.table is None:
                return None
            before = self.index[-1:]
            self.index, self.place = self.table[INDEX].to_numpy(), 0
            if (np.diff(np.concatenate([before, self.index])) <= 0).any():
                raise damaged(self.path, "its rows are out of order")
        return int(self.index[self.place])

    def row(self) -> pa.Table:
        """Its next row, where there is one."""
        assert self.table is not None
        return self.table.slice(self.place, 1)

    def take(self, after: int, before: int | None) -> pa.Table | None:
        """Its next rows: those up to an index that another file has next, beyond one that is done.

        At least one row is passed over, so that two files with the same row both go on.
        """
        stop = len(self.index)
        if before is not None:
            stop = max(self.place + 1, int(np.searchsorted(self.index, before)))
        start = max(self.place, int(np.searchsorted(self.index, after, side="right")))
        self.place = stop
        return self.table.slice(start, stop - start) if self.table and start < stop else None


_Turn = tuple[int, bool, str, _File]
"""When a file's next row comes, and which file it is."""


def in_order(
    files: Sequence[Path],
    first: Callable[[Path], int | None],
    twice: Callable[[pa.Table, pa.Table], None],
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    *,
    after: int = -1,
    rows: int = ROWS,
) -> Iterator[pa.Table]:
    """The rows of some files beyond an index, up to `rows` at a time; the index is a column always.

    `first` tells the first index of a file (None: it is empty) without reading the rest of it;
    `twice` refuses two rows of one index that are not the same output.
    """
    import pyarrow as pa

    names = None if columns is None else list(dict.fromkeys([INDEX, *columns]))
    closed = sorted(((k, path) for path in files if (k := first(path)) is not None), reverse=True)
    going: list[_Turn] = []
    waiting: list[pa.Table] = []
    last: pa.Table | None = None
    count = 0
    while going or closed:
        while closed and (not going or closed[-1][0] <= going[0][0]):
            least, path = closed.pop()
            file = _File(path, read_batches(path, schema, names, rows, after))
            if (begins := file.at()) is not None and begins < least:
                raise damaged(path, "it is named after other rows")
            _queue(going, file)
        if not going:
            continue
        at, *_, file = heapq.heappop(going)
        # Another file's row is taken up to the next file's at most: of a row that is there twice,
        # the one that counts has come just before.
        if last is not None and at == after:
            twice(file.row(), last)
        nexts = [going[0][0]] if going else []
        nexts += [closed[-1][0]] if closed else []
        table = file.take(after, min(nexts, default=None))
        if table is not None:
            newest = last = table.slice(len(table) - 1)
            after = int(newest[INDEX][0].as_py())
            waiting.append(table)
            count += len(table)
        _queue(going, file)
        while count >= rows:
            joined = pa.concat_tables(waiting)
            yield joined.slice(0, rows)
            waiting, count = [joined.slice(rows)], count - rows
    if count:
        yield pa.concat_tables(waiting)


def _queue(going: list[_Turn], file: _File) -> None:
    at = file.at()
    if at is not None:
        # Of a row in two files, the merged one's counts: it may have been scored already.
        heapq.heappush(going, (at, file.path.parent.name == PARTS, file.path.name, file))


READ_ATTEMPTS = 100


class Cell:
    """One generator under one seed, on disk."""

    def __init__(self, path: Path, spec: CellSpec, source: str = "") -> None:
        self.path, self.spec, self.source = path, spec, source
        self.id = spec.id

    @cached_property
    def _empty(self) -> pa.Table:
        """The table without rows: its columns, their types and what it says of the cell."""
        return output_table([], self.spec)

    def __repr__(self) -> str:
        return f"Cell({self.id}, {label(self.spec.generator.sampler)}, seed {self.spec.seed})"

    @classmethod
    def open(cls, path: Path) -> Cell:
        """Read a cell's spec and check that it is the one the folder is named after."""
        document = read_json(path / SPEC, "spec", dict)
        try:
            cell = cls(path, CellSpec(**document["spec"]))
        except UserError as error:
            raise damaged(path / SPEC, error) from None
        if cell.id != path.name:
            raise damaged(path / SPEC, f"its content has the id {cell.id}, the folder {path.name}")
        return cell

    def _prepare(self) -> None:
        with disk(self.path):
            (self.path / PARTS).mkdir(parents=True, exist_ok=True)
        if not (self.path / SPEC).exists():
            document = {"format": FORMAT, "id": self.id, "spec": self.spec.model_dump(mode="json")}
            write(self.path / SPEC, as_json(document))
        else:
            Cell.open(self.path)

    @contextmanager
    def writing(self, *, wait: bool = True) -> Iterator[bool]:
        """Hold the cell for writing; yields False at once if it is taken and `wait` is off."""
        self._still_here()  # else taking the lock would make the folder again
        with locked(self.path, wait=wait) as acquired:
            if acquired:
                self._still_here()
                with disk(self.path):
                    # Not in the scores: they have a lock of their own, and somebody may hold it.
                    left = [*self.path.glob(TEMPORARY + "*")]
                    left += (self.path / PARTS).glob(TEMPORARY + "*")
                    left += self.path.glob(CLAIM + "[0-9]*")  # who claims holds the cell, too
                    for leftover in left:
                        leftover.unlink(missing_ok=True)
            yield acquired

    @contextmanager
    def drawing(self, *, wait: bool = True) -> Iterator[bool]:
        """Hold the cell together with others who draw: nobody starts it anew meanwhile.

        Who draws which outputs is settled by `claim`. Yields False at once if somebody holds the
        cell alone and `wait` is off.
        """
        with self.writing(wait=False):
            """Whoever is alone here removes what a killed session left."""
        with shared(self.path, wait=wait) as acquired:
            if acquired:
                self._still_here()
            yield acquired

    @contextmanager
    def claim(self, first: int) -> Iterator[bool]:
        """Be the only one at work on the unit whose first output this is, if nobody is."""
        with claimed(self.path / f"{CLAIM}{first:08d}") as acquired:
            yield acquired

    def _alone(self) -> AbstractContextManager[bool]:
        """For the moment in which files are read and written anew."""
        return claimed(self.path / f"{CLAIM}files", wait=True)

    def _still_here(self) -> None:
        if not (self.path / SPEC).exists():
            raise UserError(
                "The run was removed or started anew by another process.",
                where=self.path,
                fix="run the same command again",
            )

    def indices(self) -> set[int]:
        """Which outputs are on disk."""
        tables = self.rows(["index"])
        return {index for table in tables for index in table["index"].to_numpy().tolist()}

    def indices_of(self, path: Path) -> set[int]:
        """Which outputs are in one of its files."""
        schema = self._empty.schema
        return set(read_parquet(path, schema, ["index"])["index"].to_pylist())

    def files(self) -> list[Path]:
        """Those that hold outputs now.

        Parts first: one that is merged after they were listed is in the merged file.
        """
        parts = sorted((self.path / PARTS).glob("*.parquet"))
        merged = self.path / OUTPUTS
        return [merged, *parts] if merged.exists() else parts

    def add(self, rows: Iterable[Output]) -> Path | None:
        """Make some outputs durable; they become part of `outputs.parquet` at `merge`."""
        rows = sorted(rows, key=lambda row: row.index)
        return self.add_table(output_table(rows, self.spec)) if rows else None

    def add_table(self, table: pa.Table) -> Path:
        """The same for rows of another cell of this spec; the file that holds them."""
        index = table["index"].to_numpy()
        name = f"{index.min():08d}-{index.max():08d}-{uuid.uuid4().hex[:8]}.parquet"
        write_parquet(self.path / PARTS / name, table)
        return self.path / PARTS / name

    def merge(self) -> None:
        """Fold all parts into `outputs.parquet`; the parts go only when that is in place.

        Others may add parts meanwhile; two who merge take turns.
        """
        if not any((self.path / PARTS).glob("*.parquet")):
            return
        with self._alone():
            parts = sorted((self.path / PARTS).glob("*.parquet"))
            if not parts:
                return
            write_stream(self.path / OUTPUTS, self._empty.schema, self.rows())
            with disk(self.path):
                for part in parts:
                    part.unlink()

    def columns(self) -> list[str]:
        """What is known of an output, by the names of the table."""
        return self._empty.column_names

    def rows(
        self, columns: Sequence[str] | None = None, *, after: int = -1, rows: int = ROWS
    ) -> Iterator[pa.Table]:
        """All outputs beyond an index, in order, each once, up to `rows` at a time.

        For cells of any size. Where another process merges files that are being read, it goes on
        in the merged one.
        """
        schema, done = self._empty.schema, after
        for _ in range(READ_ATTEMPTS):
            try:
                for table in in_order(
                    self.files(), self._first, self._twice, schema, columns, after=done, rows=rows
                ):
                    yield table
                    done = int(table["index"][-1].as_py())
            except FileNotFoundError:
                continue
            return
        raise self._restless()

    def _first(self, path: Path) -> int | None:
        """The least index in a file; a part has it in its name."""
        name = path.name.partition("-")[0]
        if path.parent.name == PARTS and name.isdigit():
            return int(name)
        schema = self._empty.schema
        first = next(read_batches(path, schema, ["index"], 1), None)
        return None if first is None else int(first["index"][0].as_py())

    def _twice(self, row: pa.Table, other: pa.Table) -> None:
        """Refuse two rows with the same index whose columns hold different outputs.

        A crash between renaming the merged file and removing its parts leaves rows twice, but they
        are equal.
        """
        if not same_outputs(row, other, self.spec).all():
            why = f"it holds different outputs with the same index: {row['index'][0].as_py()}"
            fix = f"delete {self.path} and run the command that made it again"
            raise damaged(self.path, why, fix)

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All outputs, by index, each once; of some columns, the index among them."""
        import pyarrow as pa

        names = None if columns is None else list(dict.fromkeys(["index", *columns]))
        empty = self._empty.select(names or self._empty.column_names)
        return pa.concat_tables([empty, *self.rows(names, rows=WHOLE)])

    def pool(self, n: int | None = None) -> Pool:
        """The outputs 0 .. n - 1 (all that there are, by default)."""
        table = self.table()
        if n is None:
            n = 1 + int(table["index"].to_numpy().max(initial=-1))
        have = int((table["index"].to_numpy() < n).sum())
        table = table.slice(0, n)
        if have < n:
            raise UserError(
                "The cell does not hold all of its outputs.",
                where=self.path,
                got=f"{have} of {n} outputs",
                fix="run the command that made it again; it draws what is missing",
            )
        texts = table["text"].to_pylist()
        ids = token_ids(table, self.spec)
        prompted = PROMPT in table.column_names
        return Pool(
            spec=self.spec,
            ids=np.where(ids < 0, filler(self.spec), ids),
            lengths=(ids >= 0).sum(1),
            prompts=table[PROMPT].to_pylist() if prompted else None,
            texts=None if any(text is None for text in texts) else texts,
            nfe=table["nfe"].to_numpy(),
            seconds=table["seconds"].to_numpy(),
            leftover_masks=table["leftover_masks"].to_numpy(),
            changed=lists(table["changed"]),
            chance=chances(table[CHANCE]),
            earlier=replaced(table[BEFORE]),
            counts={name: table[name].to_numpy() for name in counted([], self.spec)},
            provenance=self.sessions(),
        )

    def sessions(self) -> list[dict[str, Any]]:
        """Cost and provenance of every session that added outputs."""
        path = self.path / COST
        if not path.exists():
            return []
        sessions = read_json(path, "sessions", list)["sessions"]
        if not all(isinstance(session, dict) and "session" in session for session in sessions):
            raise damaged(path, "its sessions have no names")
        return sessions

    def record(self, session: Mapping[str, Any]) -> None:
        """Write or update one session's entry, known by its `session` id."""
        with self._alone():
            others = [s for s in self.sessions() if s["session"] != session["session"]]
            document = {"format": FORMAT, "sessions": [*others, dict(session)]}
            write(self.path / COST, as_json(document))

    def prompts(self) -> KeptPrompts | None:
        """What the outputs answer; None without prompts."""
        spec = self.spec.generator.prompts
        return None if spec is None else read_prompts(self.path.parents[1], spec)

    def scores(self) -> dict[str, ScoreTable]:
        """What was measured on the outputs, by metric id."""
        return read_scores(self.path / SCORES, self.spec)

    def score(self, metric: MetricSpec) -> ScoreTable | None:
        """One metric, as far as it was measured."""
        return read_score(self.path / SCORES, self.spec, metric)

    def add_scores(self, metric: MetricSpec, columns: Mapping[str, np.ndarray]) -> None:
        """Make some outputs' scores durable; rows that are there already stay.

        The column `index` says which outputs; without it the rows are all outputs, in order.
        Columns hold numbers [n] or vectors [n, d]. Takes a lock of its own.
        """
        self._still_here()
        if "index" not in columns:
            columns = {"index": np.array(sorted(self.indices()), np.int64), **columns}
        add_scores(self.path / SCORES, self.spec, metric, columns)

    def add_words(
        self, metric: MetricSpec, words: Mapping[int, Mapping[str, Mapping[str, str]]]
    ) -> None:
        """Keep what was said of some outputs beside their scores, such as what programs printed."""
        self._still_here()
        add_words(self.path / SCORES, metric, words)

    def words(self, metric: MetricSpec) -> dict[int, dict[str, dict[str, str]]]:
        """The same by output; most metrics say nothing, and old results have none."""
        return read_words(self.path / SCORES, metric)

    def _restless(self) -> UserError:
        return UserError(
            "The cell's files change while they are read.",
            where=self.path,
            fix="run the same command again",
        )
