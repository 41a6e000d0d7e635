"""What a command left on disk, as documents of plain values that can be compared."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import math
import zlib
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import yaml

HIDDEN = (".tmp", ".cache")
"""Folders of the server's own in the directory where commands run."""
PACKED = 200
"""Characters from which on a text of a page may be outputs, deflated, as base64."""


def documents(root: Path, known: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """Every file below `root` that is not as `known` says, by its relative path, as a document."""
    found: dict[str, Any] = {}
    for file in sorted(root.rglob("*")):
        name = file.relative_to(root)
        if file.is_file() and name.parts[0] not in HIDDEN and known.get(str(name)) != stamp(file):
            found[str(name)] = read(file)
    return found


def stamp(file: Path) -> tuple[int, int]:
    """What changes when a file is written."""
    told = file.stat()
    return told.st_mtime_ns, told.st_size


def read(file: Path) -> Any:
    """One file as a document; a file of no known kind is only there."""
    reader = READERS.get(file.suffix)
    if reader is None or file.name.startswith("."):
        return "there"
    return plain(reader(file))


def plain(value: Any) -> Any:
    """Values that JSON knows; floats that it does not, in words."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def _lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]


def _yaml(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def _csv(file: Path) -> list[dict[str, Any]]:
    with file.open(encoding="utf-8", newline="") as rows:
        return [{key: _number(text) for key, text in row.items()} for row in csv.DictReader(rows)]


def _number(text: Any) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except (TypeError, ValueError):
            pass
    return text


def _parquet(file: Path) -> dict[str, list[Any]]:
    import pyarrow.parquet as pq

    return pq.read_table(file).to_pydict()


def _tensors(file: Path) -> dict[str, Any]:
    """Weights by shape, sum and sum of squares: a bit that flips somewhere moves one of them."""
    from safetensors.torch import load_file

    return {
        name: {
            "shape": list(one.shape),
            "sum": float(one.double().sum()),
            "squares": float(one.double().square().sum()),
        }
        for name, one in load_file(file).items()
    }


def _picture(file: Path) -> str:
    """A drawing by its bytes: equal numbers give equal ones."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _text(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def _page(file: Path) -> dict[str, Any]:
    """A report: its words, its tables, and the outputs that are packed into it."""
    reader = _Page()
    reader.feed(file.read_text(encoding="utf-8"))
    reader.close()
    return {"words": reader.words, "tables": reader.tables, "data": reader.data}


class _Page(HTMLParser):
    """Collects the words of a page, its tables cell by cell, and the data that its script reads."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.data: list[Any] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        if tag in ("meta", "link", "br", "input", "hr", "img", "wbr"):
            return  # nothing ends them
        self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        elif tag in ("td", "th") and self.tables and self.tables[-1]:
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        text = " ".join(data.split())
        if not text or "style" in self._open or "svg" in self._open:
            return
        if "script" in self._open or len(text) > PACKED:
            unpacked = _unpacked(text)
            if unpacked is not None:
                self.data.append(unpacked)
            if unpacked is not None or "script" in self._open:
                return
        if "td" in self._open or "th" in self._open:
            row = self.tables[-1][-1]
            row[-1] = f"{row[-1]} {text}".strip()
        else:
            self.words.append(text)


def _unpacked(text: str) -> Any:
    """JSON, or JSON deflated and written as base64; None where it is neither."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return json.loads(zlib.decompress(base64.b64decode(text, validate=True)))
    except (ValueError, zlib.error):
        return None


READERS: dict[str, Callable[[Path], Any]] = {
    ".json": _json,
    ".jsonl": _lines,
    ".yaml": _yaml,
    ".csv": _csv,
    ".parquet": _parquet,
    ".safetensors": _tensors,
    ".svg": _picture,
    ".html": _page,
    ".txt": _text,
    ".md": _text,
}
