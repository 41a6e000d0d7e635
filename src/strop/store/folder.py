"""A directory that strop writes: whose it is, who may write there, and what became of it.

Every such directory has one file `strop.json`, its mark:

    kind      what lies here: one of `KINDS`
    format    version of the layout
    strop     the version of the code that wrote it
    owner     the verb or the study that it belongs to
    version   of a study that is not built in
    asked     what was asked
    cells     the ids of its cells, in order, where the kind has cells

The mark is written before everything else and removed after everything else, so that a process that
is killed at any moment leaves a directory that says whose it is. What is inside a directory and has
a mark of its own is a directory of its own.

The file also reads and writes JSON, YAML and Parquet, with messages for files that are damaged or
too new. `differences` compares two requests, for the messages that refuse to mix them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.disk import LOCK, TEMPORARY, disk, locked, reading, write
from strop.errors import UserError
from strop.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


# -------------------------------------------------------------------------------------- documents

FORMAT = 1
"""Version of the layout; a directory of a higher one is refused."""

MARK = "strop.json"
"""What every directory has that strop writes; see `strop.store.folder`."""
CELLS, SPEC, OUTPUTS, PARTS, COST, SCORES = (
    "cells",
    "spec.json",
    "outputs.parquet",
    "parts",
    "cost.json",
    "scores",
)
PROMPTS = "prompts"
"""Folder of what the outputs of a run answer, where they answer something."""
GUARD = "guard.json"
GRAMMAR = "grammar.json"
"""The entropy guard of a run, where it was made from texts that somebody brought."""
RESULT, TABLE = "result.json", "table.csv"
"""What came out of a study, an audit, a search or a comparison."""
SELECTION, FRESH = "selection.json", "fresh"
"""What audits and searches leave: their choices, and runs of fresh outputs."""
CELL_ID = METRIC_ID = re.compile(r"[0-9a-f]{16}")


BATCHING = ("n", "batch_size")


def setting_changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Where two trees of settings differ, one phrase each, by dotted names."""
    then, today = _flat(was), _flat(now)
    return [
        f"{key}: {then.get(key, 'nothing')} there, {today.get(key, 'nothing')} now"
        for key in {**then, **today}
        if then.get(key) != today.get(key)
    ]


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What was asked of two runs of outputs, a few settings of it."""
    # Where the file lies is not identity; the batch and n are part of it only for dense.
    then, today = _by_setting(was), _by_setting(now)
    dense = "dense" in then.get("implementation", "")
    ignored = {"checkpoint"} if dense else {"checkpoint", *BATCHING}
    changes = setting_changes(
        *({k: v for k, v in settings.items() if k not in ignored} for settings in (then, today))
    )
    if len(changes) > 4:
        changes = [*changes[:4], f"and {len(changes) - 4} more"]
    return "; ".join(changes) or "the same settings, but other cells"


def _by_setting(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A setting that all samplers share, or list, under its own name."""
    settings = {key: value for key, value in arguments.items() if key != "samplers"}
    samplers = [
        sampler for sampler in arguments.get("samplers") or [] if isinstance(sampler, Mapping)
    ]
    for name in dict.fromkeys(key for sampler in samplers for key in sampler):
        settings[name] = ", ".join(dict.fromkeys(str(sampler.get(name)) for sampler in samplers))
    return settings


def _flat(tree: Mapping[str, Any], key: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        nested = isinstance(value, Mapping)
        flat |= _flat(value, f"{key}{name}.") if nested else {f"{key}{name}": value}
    return flat


HOW: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
"""Parquet checks its pages only if asked to, at both ends."""
MISSING = "it is missing"


def as_json(document: Any) -> bytes:
    """A document as the bytes of its file."""
    return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()


def load_yaml(content: str | bytes) -> Any:
    """What a YAML text holds; a yaml.YAMLError where it is none, or says a key twice."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            twice = [name for name in names if names.count(name) > 1 and name != "<<"]
            if twice:
                raise yaml.YAMLError(f"the key {twice[0]!r} is there twice")
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(content, Loader=Loader)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deep") from None


def parsed(path: Path) -> Any:
    """What is in a JSON file. A missing one is a FileNotFoundError, another text a ValueError."""
    with reading(path):
        content = path.read_bytes()
    try:
        return json.loads(content)
    except RecursionError as error:  # brackets without end
        raise ValueError(str(error)) from None


def read_json(path: Path, key: str, kind: type, fix: str | None = None) -> dict[str, Any]:
    """A JSON object of this format or an older one, with what is looked for under `key`."""
    try:
        document = parsed(path)
        if not isinstance(document, dict):
            raise ValueError("it does not hold an object")
    except FileNotFoundError:
        raise damaged(path, MISSING, fix) from None
    except ValueError as error:
        raise damaged(path, error, fix) from None
    check_format(document, path, fix)
    if not isinstance(document.get(key), kind):
        raise damaged(path, f"it has no {key!r}", fix)
    return document


def parquet(table: pa.Table) -> bytes:
    """The content of a file with checksums in its pages."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **HOW)
    return sink.getvalue().to_pybytes()


def parquet_file(source: Any, **options: Any) -> pq.ParquetFile:
    """A file to read, strop's or anybody's, whose checksums are looked at if it has any."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(source, page_checksum_verification=True, **options)


class Damaged(UserError):
    """The content of a file is not what strop wrote."""


def damaged(path: Path, why: object, fix: str | None = None) -> Damaged:
    """The message for such a file; `fix` where it is not one of a run's."""
    reason = str(why).splitlines()[0][:200] if str(why) else type(why).__name__
    fix = _fix(path, why) if fix is None else fix
    return Damaged("A file of the run is damaged.", where=path, got=reason, fix=fix)


def _fix(path: Path, why: object) -> str:
    if path.name == MARK or (path.name == SPEC and why == MISSING):
        return "run the command that made this run again: it writes the same file"
    if path.name == OUTPUTS or (
        path.parent.name == PARTS and path.parent.parent.parent.name == CELLS
    ):
        return f"delete {path} and run the command that made it again: equal seeds, equal outputs"
    if path.parent.name == SCORES:
        return f"delete {path} and score again"
    if path.name == COST:
        return f"restore {path}, or delete it: only the record of earlier sessions is lost"
    if path.name == SPEC or path.parent.name == PROMPTS:
        return f"delete {path} and run the command that made it again: it writes the same file"
    if path.name == RESULT or path.parent.name in (CELLS, PARTS):
        return f"delete {path} and run the same command again: it is measured anew"
    return "restore the file, or start the run anew with `force`"


def check_format(document: Mapping[str, Any], path: Path, fix: str | None = None) -> None:
    """Refuse a document of a newer layout."""
    number = document.get("format")
    if type(number) is not int or number < 1:
        raise damaged(path, f"its format is {number!r}", fix)
    if number > FORMAT:
        raise UserError(
            "This run was made by a newer version of strop.",
            where=path,
            got=f"format {number} (strop {document.get('strop', 'unknown')})",
            expected=f"format {FORMAT} or lower (this is strop {__version__})",
            fix="pip install --upgrade strop",
        )


# ----------------------------------------------------------------------------------------- folder

PAUSE = 0.02
"""Seconds between two looks for a mark that somebody else is writing."""


@dataclass(frozen=True)
class Kind:
    """What is known of all directories of one kind."""

    words: str
    """As messages call it."""
    command: str
    """What makes it."""
    look: str = "strop show {}"
    cells: bool = False
    """Whether it holds cells: then it can be scored, merged and shown like a run."""
    made: tuple[str, ...] = ()
    """Patterns of what else strop writes there; gone when it is started anew."""

    def shown_by(self, path: str | os.PathLike[str]) -> str:
        """The command that shows such a directory."""
        return self.look.format(shlex.quote(os.fspath(path)))


_RESULT = (RESULT, TABLE)
_FIGURE = ("{owner}.svg", "{owner}.png")
_PAGE = "strop report {} -o report.html"
KINDS: dict[str, Kind] = {
    "run": Kind("run", "strop sample", cells=True, made=(GUARD, GRAMMAR)),
    # What was chosen earlier, and its fresh outputs, stay on record.
    "audit": Kind("audit", "strop audit", cells=True, made=(GUARD, GRAMMAR, *_RESULT)),
    "search": Kind(
        "search",
        "strop tune",
        cells=True,
        made=(GUARD, GRAMMAR, *_RESULT, *_FIGURE, "sampler-tuned.yaml", SELECTION, FRESH, "tune"),
    ),
    "study": Kind("study", "strop study", _PAGE, made=(CELLS, PARTS, *_RESULT, *_FIGURE)),
    "comparison": Kind(
        "comparison", "strop compare", _PAGE, made=("runs", "groupeval", *_RESULT, *_FIGURE)
    ),
    "power": Kind("power analysis", "strop power", _PAGE, made=("run", *_RESULT, *_FIGURE)),
    "certificate": Kind("certificate", "strop models certify", _PAGE, made=("run", *_RESULT)),
    "task": Kind("task run", "strop task run", "strop task score {}"),
    "training": Kind(
        "training run",
        "strop train",
        made=("metrics.jsonl", "resume.pt", RESULT, "loss.png", "checkpoints", "shards"),
    ),
    "groupeval": Kind(
        "GroupEval run",
        "strop groupeval plan",
        "strop groupeval show {}",
        made=("profile", "blinding.json", "texts.parquet", "plan.json", "series", "probes"),
    ),
}


@dataclass(frozen=True)
class Mark:
    """What a directory says of itself."""

    kind: str
    owner: str
    asked: Mapping[str, Any]
    cells: tuple[str, ...] | None = None
    version: str | None = None

    @property
    def holds_cells(self) -> bool:
        """Whether there are cells to score, merge and show."""
        return KINDS[self.kind].cells

    def wanted(self) -> dict[str, int]:
        """How many outputs each cell was asked for: `n` of them, or `outputs` has one per cell."""
        ids = self.cells or ()
        counts = self.asked.get("outputs") or [self.asked.get("n", 0)] * len(ids)
        return dict(zip(ids, counts, strict=True))

    def content(self) -> bytes:
        """As the file holds it."""
        document: dict[str, Any] = {"kind": self.kind, "format": FORMAT, "strop": __version__}
        document["owner"] = self.owner
        if self.version is not None:
            document["version"] = self.version
        document["asked"] = dict(self.asked)
        if self.cells is not None:
            document["cells"] = list(self.cells)
        return as_json(document)


def read_mark(folder: str | os.PathLike[str]) -> Mark | None:
    """What a directory says of itself; None where it says nothing."""
    path = Path(folder) / MARK
    with reading(path):
        exists = path.is_file()
    if not exists:
        return None
    document = read_json(path, "asked", dict)
    kind, owner, ids = (document.get(key) for key in ("kind", "owner", "cells"))
    if not isinstance(kind, str) or kind not in KINDS:
        raise damaged(path, f"its kind is {kind!r}")
    if not isinstance(owner, str):
        raise damaged(path, "it does not name its owner")
    if ids is not None:
        _check_cells(path, document["asked"], ids)
        ids = tuple(ids)
    return Mark(kind, owner, document["asked"], ids, document.get("version"))


def _check_cells(path: Path, asked: Mapping[str, Any], ids: Any) -> None:
    named = isinstance(ids, list) and all(isinstance(name, str) for name in ids)
    if not named or not all(map(CELL_ID.fullmatch, ids)):
        raise damaged(path, "it does not list cells")
    counts = asked.get("outputs", [asked.get("n", 0)] * len(ids))
    if not isinstance(counts, list) or [type(n) for n in counts] != [int] * len(ids):
        raise damaged(path, "it does not say how many outputs each cell has")


class Folder:
    """A directory of one kind, to write in. It can be given wherever a path can."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: str,
        owner: str,
        *,
        version: str | None = None,
        inside: Sequence[str] = (),
    ) -> None:
        """`inside` are directories in it that are its own and stay when it is started anew."""
        self.path, self.kind, self.owner, self.version = Path(path), kind, owner, version
        self._named = bool(os.fspath(path))
        self._made = [name.format(owner=owner) for name in KINDS[kind].made]
        self.inside = inside

    def __fspath__(self) -> str:
        return str(self.path)

    def mark(self) -> Mark | None:
        """The mark that is here; refused if it is that of another kind or another study."""
        mark = read_mark(self.path)
        if mark is None:
            return None
        if mark.kind != self.kind:
            raise self._other(f"{KINDS[mark.kind].words}, made by `{mark.owner}`")
        if mark.owner != self.owner and not mark.holds_cells:
            raise UserError(
                f"The directory belongs to another {KINDS[self.kind].words}.",
                where=self.path,
                got=mark.owner,
                expected=self.owner,
                fix="choose another `out`",
            )
        return mark

    def refuse_strangers(self, *, force: bool = False) -> None:
        """Say that this directory cannot be written, as far as can be seen without touching it."""
        if not self._named:
            raise UserError("The output path is empty.", where="`out`", fix="name a directory")
        with disk(self.path):
            exists, in_use = self.path.exists(), (self.path / LOCK).exists()
        if exists and not in_use:
            self._look(force)
        # Where there is a lock, somebody may be starting it anew: whether files without a mark are
        # strange is for who holds it to say.
        with suppress(Damaged):
            self.mark()

    @contextmanager
    def held(self, *, force: bool = False, wait: bool = True) -> Iterator[Mark | None]:
        """Hold the directory alone, and make it if need be. The mark, if a sound one is there.

        Refuses strangers, and without `wait` a directory that another process holds. What a process
        that was killed had not yet renamed into place goes.
        """
        self.refuse_strangers(force=force)  # before a lock file is left in somebody's directory
        with disk(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path, wait=wait) as acquired:
            if not acquired:
                raise UserError(
                    "Another process is at work in this directory.",
                    where=self.path,
                    fix="wait for it, or choose another `out`",
                )
            mark = self._look(force)
            with disk(self.path):
                for leftover in self.path.glob(TEMPORARY + "*"):
                    remove(leftover)
            yield mark

    def join(self, asked: Mapping[str, Any]) -> None:
        """Mark the directory without waiting for who holds it: for shards, which work together."""
        while True:
            self.refuse_strangers()
            with disk(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
            with locked(self.path, wait=False) as acquired:
                if acquired and self._look(False) is None:
                    self.write(asked)
            if self.mark() is not None:
                return
            time.sleep(PAUSE)

    def write(self, asked: Mapping[str, Any], cells: Sequence[str] | None = None) -> None:
        """Write the mark, if it says something else than the one that is there."""
        ids = None if cells is None else tuple(cells)
        content = Mark(self.kind, self.owner, asked, ids, self.version).content()
        path = self.path / MARK
        with reading(path):
            same = path.exists() and path.read_bytes() == content
        if not same:
            write(path, content)

    def clear(self) -> None:
        """Remove what strop made here, the mark last."""
        with disk(self.path):
            for path in self.path.iterdir():
                if _matches(path.name, self._made):
                    remove(path)
            (self.path / MARK).unlink(missing_ok=True)

    def holds_cells(self) -> bool:
        """Whether a folder describes itself as a cell, whatever else lies here."""
        from strop.store.cell import Cell

        for folder in cell_folders(self.path):
            try:
                Cell.open(folder)
            except UserError:
                continue
            return True
        return False

    def unmarked(self) -> UserError:
        """What is wrong with the mark of a directory that is ours: it is lost, or damaged."""
        try:
            read_mark(self.path)
        except Damaged as error:
            return error
        return damaged(self.path / MARK, MISSING)

    def stranger(self, names: Sequence[str]) -> UserError:
        """The refusal of a directory that holds these files."""
        return self._other(", ".join(names[:3]) + (", ..." if len(names) > 3 else ""), "files")

    def _other(self, got: str, what: str = "something else") -> UserError:
        kind = KINDS[self.kind]
        return UserError(
            f"The output directory holds {what} but no {kind.words}.",
            where=self.path,
            got=got,
            expected=f"a new or empty directory, or one made by `{kind.command}`",
            fix="choose another `out`",
        )

    def _look(self, force: bool) -> Mark | None:
        """The mark; None if the directory is new, or is ours and its mark is lost or damaged."""
        with disk(self.path):
            entries = sorted(path.name for path in self.path.iterdir())
        ours = (LOCK, MARK, TEMPORARY + "*")
        names = [name for name in entries if not _matches(name, ours)]
        try:
            mark = self.mark()
        except Damaged as error:
            # Cells describe themselves. Of others, what is asked for anew needs no mark.
            if self.holds_cells() if KINDS[self.kind].cells else force and self._left(names):
                return None
            fix = "restore the file, or start anew with `force`"
            if self._made:
                fix = f"delete {error.where} and run the same command again: it writes it anew"
            raise damaged(self.path / MARK, error.got, fix) from None
        if mark is not None:
            self.owner = mark.owner
        elif KINDS[self.kind].cells:
            if names and not self.holds_cells():
                raise self.stranger(names)
        else:
            strange = [name for name in names if not _matches(name, (*self._made, *self.inside))]
            if strange:
                raise self.stranger(strange)
        return mark

    def _left(self, names: Sequence[str]) -> bool:
        """Whether something here was made by strop."""
        recognised = any(_matches(name, (*self._made, *self.inside)) for name in names)
        return recognised or any(self.path.glob(f"*/{MARK}"))


def cell_folders(path: Path) -> list[Path]:
    """The folders of a directory that are named like cells."""
    with reading(path):
        candidates = (path / CELLS).glob("*")
        return sorted(
            folder for folder in candidates if CELL_ID.fullmatch(folder.name) and folder.is_dir()
        )


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def remove(path: Path) -> None:
    """A file or a folder, of which a mark goes last; somebody else may be removing it too."""
    with suppress(FileNotFoundError):
        if not path.is_dir() or path.is_symlink():
            path.unlink()
            return
        for inner in sorted(path.iterdir(), key=lambda entry: entry.name == MARK):
            remove(inner)
        with suppress(OSError):  # somebody wrote something there meanwhile
            path.rmdir()
