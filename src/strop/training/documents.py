"""Documents, and which of them training never sees.

The split comes first: it looks at a document's number in its source and at nothing else, and every
later step (cleaning, tokenizer, filter, shards) gets its documents from here.

`prose` makes plain paragraphs of a document by a fixed rule, fitted to nothing. Old books come
hard-wrapped or one paragraph a line, with chapter headings, notices and typographic quotes. A small
vocabulary and a small model are better spent on the sentences.

On disk token ids are rows of one length in memory-mapped files, with a manifest that is written
last:

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

import gzip
import hashlib
import json
import re
import unicodedata
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from strop.checkpoints.files import opening, read_json_object, sha256_of
from strop.checkpoints.foreign import without_questions
from strop.disk import disk, replacing, write
from strop.errors import UserError
from strop.training.spec import HeldOut, SourceSpec

# ----------------------------------------------------------------------------------------- shards

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
        left_over = stacked[count:]
        self._waiting, self._waiting_rows = ([left_over] if len(left_over) else []), len(left_over)


class ShardRows:
    """The rows of one split, by number; they stay on disk until asked for."""

    def __init__(self, directory: Path, entry: dict[str, Any], split: str, length: int) -> None:
        dtype = np.dtype(entry["dtype"])
        self.length = length
        self._maps = []
        for shard in entry["shards"]:
            path = directory / shard["name"]
            size = shard["rows"] * length * dtype.itemsize
            size_on_disk = path.stat().st_size if path.is_file() else -1
            if size_on_disk != size:
                got = "no file" if size_on_disk < 0 else f"{size_on_disk:,} bytes"
                raise _damaged(path, got, f"{size:,} bytes")
            self._maps.append(np.memmap(path, dtype, "r", shape=(shard["rows"], length)))
        self._ends = np.cumsum([len(shard_map) for shard_map in self._maps])
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
        for i, (row, which) in enumerate(zip(places, shard, strict=True)):
            first = 0 if which == 0 else self._ends[which - 1]
            out[i] = self._maps[which][row - first]
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
            sha256 = sha256_of(self.directory / name)
            if sha256 != expected:
                raise _damaged(self.directory / name, f"SHA-256 {sha256}", f"SHA-256 {expected}")


def write_index(path: Path, rows: NDArray[np.int64]) -> None:
    """Which rows count, as .npy."""
    with replacing(path) as file:
        np.save(file, rows)


def write_manifest(directory: Path, manifest: dict[str, Any]) -> None:
    """The last file of a preparation: what is here, with the hashes that are still missing."""
    parts = ("source.bin", "prompts.bin", "rows.npy")
    beside = [f"{split}-{part}" for split in SPLITS for part in parts]
    files = {n: sha256_of(directory / n) for n in beside if (directory / n).is_file()}
    content = {"format": FORMAT, **manifest, "files": files}
    text = json.dumps({**content, "sha256": _own_hash(content)}, indent=2, allow_nan=False) + "\n"
    write(directory / MANIFEST, text.encode())


def _own_hash(manifest: dict[str, Any]) -> str:
    """The manifest's hash, of everything but the hash itself, in one spelling."""
    content = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _damaged(path: Path, got: str, expected: str | None = None) -> UserError:
    return UserError(
        "A file of the prepared corpus is damaged or missing.",
        where=path,
        got=got,
        expected=expected,
        fix=f"delete {path.parent} and run the command again: the corpus is prepared again",
    )


def clear(directory: Path) -> None:
    """Remove the files of an unfinished preparation, and nothing else."""
    names = [TOKENIZER, *(f"{split}-{part}" for split in SPLITS for part in ("*.bin", "*.npy"))]
    with disk(directory):
        for name in [*names, ".tmp-*"]:
            for path in directory.glob(name):
                path.unlink()


# -------------------------------------------------------------------------------------- documents

PLAIN = str.maketrans(
    {
        "“": '"', "”": '"', "„": '"', "«": '"', "»": '"',
        "‘": "'", "’": "'", "`": "'",
        "—": " - ", "–": " - ", "…": "...", "\u00a0": " ",
        "_": "", "*": "", "\ufeff": "", "\u00ad": "",
    }
)  # fmt: skip
UNWRAPPED = 110
"""Files whose long lines are longer than this have one paragraph a line."""
HEADING = re.compile(r"(?i)(chapter|book|volume|part|canto|illustration|produced by|end of)\b|\[")
NOTICE = re.compile(r"(?i)gutenberg|e-?text\b|e-?book\b|www\.|copyright|transcriber")
ENDS = re.compile(r"[.!?\"',;:\-]$")
BREAK = re.compile(r"(?:(?<=[a-z][.!?])|(?<=[.!?][\"']))(?= [A-Z\"'])")


def prose(document: str) -> str:
    """Paragraphs in plain ASCII, one a line; what is no sentence is left out."""
    prose_blocks = [plain for block in paragraphs(document) if _is_prose(plain := _plain(block))]
    return "".join(f"{paragraph}\n" for paragraph in prose_blocks)


def paragraphs(document: str) -> list[str]:
    """The paragraphs of a text, whichever way it marks them."""
    lines = [line.strip() for line in document.splitlines()]
    lengths = sorted(len(line) for line in lines if line)
    if not lengths or lengths[int(0.95 * len(lengths))] > UNWRAPPED:
        return [line for line in lines if line]
    blank = sum(not line for line in lines) / len(lines)
    usual = lengths[int(0.75 * len(lengths))]
    blocks: list[list[str]] = [[]]
    for line in lines:
        previous = blocks[-1][-1] if blocks[-1] else ""
        # Where no blank lines part them, a short line that ends a sentence ends a paragraph.
        closed = blank < 0.02 and previous and len(previous) < 0.75 * usual
        if not line or (closed and previous.endswith((".", "!", "?", '"', "'"))):
            blocks.append([])
        if line:
            blocks[-1].append(line)
    return [" ".join(block) for block in blocks if block]


def sentences(text: str) -> list[str]:
    """Pieces that begin where sentences do and join to the text again.

    A blank between two sentences goes with the second, a line break with the first, which is how
    byte-level tokenizers cut them anyway.
    """
    return [
        piece for line in text.splitlines(keepends=True) for piece in BREAK.split(line) if piece
    ]


def _plain(block: str) -> str:
    text = unicodedata.normalize("NFKD", block.translate(PLAIN))
    text = text.encode("ascii", "ignore").decode().replace("''", '"')
    text = re.sub(r"\s*--+\s*", " - ", text)
    return re.sub(r"\s+", " ", text).strip()


def _is_prose(paragraph: str) -> bool:
    return bool(
        ENDS.search(paragraph)
        and re.search("[a-z]", paragraph)
        and not HEADING.match(paragraph)
        and not NOTICE.search(paragraph)
    )


CLEANERS: dict[str, Callable[[str], str]] = {"none": lambda text: text, "prose": prose}
"""The ways of cleaning a document, by name."""


HEAD = 400
"""Characters of a document that `skip` looks at."""


@dataclass
class Census:
    """What was read of one source; goes into the manifest."""

    documents: int = 0
    skipped: int = 0
    held_out: int = 0
    characters: int = 0
    _digest: Any = field(default_factory=hashlib.sha256, repr=False)

    def note(self, text: str) -> None:
        """Count a document and hash it; the length goes in too, so that borders matter."""
        raw = text.encode("utf-8", "surrogatepass")
        self.documents += 1
        self.characters += len(text)
        self._digest.update(len(raw).to_bytes(8, "big") + raw)

    @property
    def sha256(self) -> str:
        """SHA-256 of all documents, in order."""
        return self._digest.hexdigest()


def read_source(
    source: SourceSpec, held_out: HeldOut, root: Path, census: Census | None = None
) -> Iterator[tuple[bool, str]]:
    """Every document of a source with whether it is held out; skipped ones are not numbered."""
    census = Census() if census is None else census
    rules = [re.compile(rule) for rule in source.skip]

    def documents() -> Iterator[str]:
        for text in _raw(source, root):
            if not text.strip():
                continue
            if any(rule.match(text.lstrip("\ufeff\n\r ")[:HEAD]) for rule in rules):
                census.skipped += 1
                continue
            census.note(text)
            yield text

    for held, text in split(documents(), held_out):
        census.held_out += held
        yield held, text


def split(documents: Iterable[str], rule: HeldOut) -> Iterator[tuple[bool, str]]:
    """Mark the held-out documents, by number alone."""
    if rule.every is not None:
        for number, text in enumerate(documents):
            yield number % rule.every == 0, text
        return
    assert rule.last is not None
    waiting: deque[str] = deque()  # a stream does not say when it ends: the last ones wait here
    for text in documents:
        waiting.append(text)
        if len(waiting) > rule.last:
            yield False, waiting.popleft()
    for text in waiting:
        yield True, text


def _raw(source: SourceSpec, root: Path) -> Iterator[str]:
    if source.dataset is not None:
        yield from _rows(source, root)
        return
    assert source.path is not None
    for file in _files(root / Path(source.path).expanduser()):
        yield from _texts(file, source.separator)


def check_source(source: SourceSpec, root: Path) -> None:
    """Refuse a source whose files are not there, before another one is read to its end."""
    if source.path is not None:
        _files(root / Path(source.path).expanduser())


def _files(path: Path) -> list[Path]:
    with opening(path):
        if not path.is_dir():
            path.open("rb").close()
            return [path]
    files = sorted(p for p in path.rglob("*") if p.name.endswith((".txt", ".txt.gz")))
    if not files:
        raise UserError(
            "The directory holds no text.", where=path, expected="files *.txt or *.txt.gz"
        )
    return files


def _texts(file: Path, separator: str | None) -> Iterator[str]:
    """The documents of one file, read line by line."""
    lines: list[str] = []
    with opening(file), _open(file) as stream:
        try:
            for number, line in enumerate(stream, 1):
                if "\x00" in line:
                    raise _not_text(file, f"a zero byte in line {number}")
                if separator == "\n":
                    yield line
                elif separator is not None and line.strip() == separator:
                    yield "".join(lines)
                    lines = []
                else:
                    lines.append(line)
        except UnicodeDecodeError as error:
            raise _not_text(
                file, f"{error.reason} (byte 0x{error.object[error.start]:02x})"
            ) from None
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UserError(
                "The compressed file is damaged.", where=file, got=error, fix="copy it again"
            ) from None
    yield "".join(lines)


def _open(file: Path) -> IO[str]:
    if file.suffix == ".gz":
        return gzip.open(file, "rt", encoding="utf-8")
    return file.open(encoding="utf-8")


def _not_text(file: Path, why: str) -> UserError:
    return UserError(
        "The file is not text.",
        where=file,
        got=why,
        expected="UTF-8 text, plain or gzipped",
        fix="convert it, e.g. iconv -f latin1 -t utf-8",
    )


def _rows(source: SourceSpec, root: Path) -> Iterator[str]:
    """The documents of a dataset, streamed: nothing has to fit in memory or on disk first."""
    from datasets import load_dataset

    assert source.dataset is not None
    files = [str(root / name) for name in source.files] or None
    try:
        with without_questions():  # older releases ask whether a dataset's own code may run
            rows = load_dataset(
                source.dataset,
                data_files=files,
                split=source.split,
                revision=source.revision,
                streaming=True,
            )
        for row in rows:
            text = row.get(source.column) if isinstance(row, dict) else None
            if not isinstance(text, str):
                raise UserError(
                    "The dataset's rows have no text where it was expected.",
                    where=f"data.sources: {source.name}, column {source.column!r}",
                    got=", ".join(row) if isinstance(row, dict) else type(row).__name__,
                    fix="set `column`",
                )
            yield text
    except (OSError, ValueError) as error:  # the library's own errors derive from these
        raise UserError(
            "The dataset cannot be read.",
            where=source.dataset,
            got=str(error).splitlines()[0] if str(error) else type(error).__name__,
            fix="check its name, split and the network; or download it and give its files",
        ) from error
