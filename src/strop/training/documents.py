"""Documents, and which of them training never sees.

The split comes first: it looks at a document's number in its source and at nothing else, and every
later step (cleaning, tokenizer, filter, shards) gets its documents from here.

Prose as plain paragraphs: a fixed rule, fitted to nothing.

Old books come hard-wrapped or one paragraph a line, with chapter headings, notices and typographic
quotes. A small vocabulary and a small model are better spent on the sentences.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import unicodedata
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from strop.checkpoints.files import opening, unasked
from strop.errors import UserError
from strop.training.spec import HeldOut, SourceSpec

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
    kept = [plain for block in paragraphs(document) if _is_prose(plain := _plain(block))]
    return "".join(f"{paragraph}\n" for paragraph in kept)


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
"""By name."""


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
        """Of all documents, in order."""
        return self._digest.hexdigest()


def read_source(
    source: SourceSpec, held_out: HeldOut, root: Path, census: Census | None = None
) -> Iterator[tuple[bool, str]]:
    """Every document of a source with whether it is held out; skipped ones are not numbered."""
    census = Census() if census is None else census
    rules = [re.compile(rule) for rule in source.skip]

    def wanted() -> Iterator[str]:
        for text in _raw(source, root):
            if not text.strip():
                continue
            if any(rule.match(text.lstrip("\ufeff\n\r ")[:HEAD]) for rule in rules):
                census.skipped += 1
                continue
            census.note(text)
            yield text

    for held, text in split(wanted(), held_out):
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
        with unasked():  # older releases ask whether a dataset's own code may run
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
