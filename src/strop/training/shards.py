"""Token ids on disk: rows of one length in memory-mapped files, with a manifest that is last.

    shards/
      manifest.json            what is here and what it was made from
      tokenizer.json
      train-00000.bin ...      rows, uint16 or uint32
      train-source.bin         the source's number of every row, uint8
      train-prompts.bin        the length of every row's prompt, uint16 (only with responses)
      train-rows.npy           which rows count, and how often (only with a filter or repeats)
      held_out-...             the same for documents that nothing above has seen

A directory without a manifest is an unfinished preparation and is made anew. The manifest has the
SHA-256 of every other file and of itself; a run that begins or continues compares them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.checkpoints.files import opening, read_json_object, sha256_of
from strop.disk import disk, replacing, write
from strop.errors import UserError

MANIFEST, TOKENIZER = "manifest.json", "tokenizer.json"
FORMAT = 1
SHARD_TOKENS = 1 << 27
SPLITS = ("train", "held_out")


class ShardWriter:
    """Appends rows of one split; every shard is complete or absent."""

    def __init__(self, directory: Path, split: str, length: int, vocabulary: int) -> None:
        self.directory, self.split, self.length = directory, split, length
        self.dtype = np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)
        self.rows = 0
        self.files: list[dict[str, Any]] = []
        self._waiting: list[NDArray[Any]] = []
        self._waiting_rows = 0
        self._sources: list[NDArray[np.uint8]] = []
        self._prompts: list[NDArray[np.uint16]] = []
        self._per_shard = max(1, SHARD_TOKENS // length)

    def add(
        self, rows: NDArray[np.int64], source: int, prompts: NDArray[np.int64] | None = None
    ) -> None:
        """Take some rows of one source, with the lengths of their prompts if they have any."""
        if not len(rows):
            return
        self._waiting.append(rows.astype(self.dtype))
        self._waiting_rows += len(rows)
        self._sources.append(np.full(len(rows), source, np.uint8))
        if prompts is not None:
            self._prompts.append(prompts.astype(np.uint16))
        self.rows += len(rows)
        while self._waiting_rows >= self._per_shard:
            self._flush(self._per_shard)

    def close(self) -> None:
        """Write what is left, and the rows' sources."""
        if self._waiting_rows:
            self._flush(self._waiting_rows)
        sources = np.concatenate(self._sources) if self._sources else np.zeros(0, np.uint8)
        write(self.directory / f"{self.split}-source.bin", sources.tobytes())
        if self._prompts:
            prompts = np.concatenate(self._prompts)
            write(self.directory / f"{self.split}-prompts.bin", prompts.tobytes())

    def _flush(self, count: int) -> None:
        stacked = np.concatenate(self._waiting)
        name = f"{self.split}-{len(self.files):05d}.bin"
        with replacing(self.directory / name) as file:
            file.write(stacked[:count].tobytes())
        self.files.append({"name": name, "rows": count, "sha256": sha256_of(self.directory / name)})
        rest = stacked[count:]
        self._waiting, self._waiting_rows = ([rest] if len(rest) else []), len(rest)


class ShardRows:
    """The rows of one split, by number; they stay on disk until asked for."""

    def __init__(self, directory: Path, entry: dict[str, Any], split: str, length: int) -> None:
        dtype = np.dtype(entry["dtype"])
        self.length = length
        self._maps = []
        for shard in entry["shards"]:
            path = directory / shard["name"]
            size = shard["rows"] * length * dtype.itemsize
            found = path.stat().st_size if path.is_file() else -1
            if found != size:
                got = "no file" if found < 0 else f"{found:,} bytes"
                raise _damaged(path, got, f"{size:,} bytes")
            self._maps.append(np.memmap(path, dtype, "r", shape=(shard["rows"], length)))
        self._ends = np.cumsum([len(one) for one in self._maps])
        sources = directory / f"{split}-source.bin"
        with opening(sources):
            self.source: NDArray[np.uint8] = np.fromfile(sources, np.uint8)
        self.response: int | None = entry.get("response")
        """Tokens of every row's response; None: rows are text without prompts."""
        if self.response is not None:
            prompts = directory / f"{split}-prompts.bin"
            with opening(prompts):
                self._prompts = np.fromfile(prompts, np.uint16)
        index = directory / f"{split}-rows.npy"
        self._index = np.load(index, mmap_mode="r") if index.is_file() else None

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._index is None else len(self._index)

    def __getitem__(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Token ids [n, length] of some rows."""
        places = self.places(numbers)
        out = np.empty((len(places), self.length), np.int64)
        shard = np.searchsorted(self._ends, places, side="right")
        for i, (place, which) in enumerate(zip(places, shard, strict=True)):
            first = 0 if which == 0 else self._ends[which - 1]
            out[i] = self._maps[which][place - first]
        return out

    def prompts(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The lengths of the prompts of some rows."""
        return self._prompts[self.places(numbers)].astype(np.int64)

    def places(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where on disk the rows of these numbers lie."""
        return numbers if self._index is None else np.asarray(self._index[numbers])

    def blocks(self, size: int = 65_536) -> Iterator[NDArray[Any]]:
        """All rows on disk, filtered or not, in order."""
        for shard in self._maps:
            for first in range(0, len(shard), size):
                yield np.asarray(shard[first : first + size])

    def counts(self, vocabulary: int) -> NDArray[np.int64]:
        """How often each token occurs in the rows that count."""
        total = np.zeros(vocabulary, np.int64)
        for first in range(0, len(self), 65_536):
            rows = self[np.arange(first, min(first + 65_536, len(self)))]
            total += np.bincount(rows.ravel(), minlength=vocabulary)
        return total


class Shards:
    """A prepared corpus."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        path = directory / MANIFEST
        if not path.is_file():
            raise UserError(
                "There is no prepared corpus here.", where=directory, expected=f"a {MANIFEST}"
            )
        self.manifest = read_json_object(path)
        if int(self.manifest.get("format", 0)) > FORMAT:
            raise UserError(
                "The shards were made by a newer version of strop.",
                where=path,
                fix="pip install --upgrade strop",
            )
        if self.manifest.get("sha256") != _own_hash(self.manifest):
            raise _damaged(path, "content of another SHA-256 than it says")
        try:
            self.length = int(self.manifest["length"])
            self.vocabulary = int(self.manifest["tokenizer"]["vocabulary"])
            self.end_of_text = int(self.manifest["tokenizer"]["end_of_text"])
            self.train = ShardRows(directory, self.manifest["train"], "train", self.length)
            self.held_out = ShardRows(directory, self.manifest["held_out"], "held_out", self.length)
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(path, f"{type(error).__name__}: {error}") from None

    def verify(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Compare every file with the manifest: one wrong bit would train another model."""
        files = {TOKENIZER: self.manifest["tokenizer"]["sha256"], **self.manifest["files"]}
        for split in SPLITS:
            files |= {shard["name"]: shard["sha256"] for shard in self.manifest[split]["shards"]}
        size = sum(shard["rows"] for split in SPLITS for shard in self.manifest[split]["shards"])
        if size * self.length > SHARD_TOKENS:  # below, nobody waits for it
            say(f"comparing {len(files)} files of the corpus with their hashes")
        for name, expected in files.items():
            found = sha256_of(self.directory / name)
            if found != expected:
                raise _damaged(self.directory / name, f"SHA-256 {found}", f"SHA-256 {expected}")


def write_index(path: Path, rows: NDArray[np.int64]) -> None:
    """Which rows count, as .npy."""
    with replacing(path) as file:
        np.save(file, rows)


def write_manifest(directory: Path, manifest: dict[str, Any]) -> None:
    """The last file of a preparation: what is here, with the hashes that nobody has taken yet."""
    parts = ("source.bin", "prompts.bin", "rows.npy")
    beside = [f"{split}-{part}" for split in SPLITS for part in parts]
    files = {n: sha256_of(directory / n) for n in beside if (directory / n).is_file()}
    whole = {"format": FORMAT, **manifest, "files": files}
    text = json.dumps({**whole, "sha256": _own_hash(whole)}, indent=2, allow_nan=False) + "\n"
    write(directory / MANIFEST, text.encode())


def _own_hash(manifest: dict[str, Any]) -> str:
    """Of everything but itself, in one spelling."""
    content = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _damaged(path: Path, got: str, expected: str | None = None) -> UserError:
    return UserError(
        "A file of the prepared corpus is damaged or missing.",
        where=path,
        got=got,
        expected=expected,
        fix=f"delete {path.parent} and run the command again: the corpus is prepared anew",
    )


def clear(directory: Path) -> None:
    """Remove the files of an unfinished preparation, and nothing else."""
    names = [TOKENIZER, *(f"{split}-{part}" for split in SPLITS for part in ("*.bin", "*.npy"))]
    with disk(directory):
        for name in [*names, ".tmp-*"]:
            for path in directory.glob(name):
                path.unlink()
