"""Prose as plain paragraphs: a fixed rule, fitted to nothing.

Old books come hard-wrapped or one paragraph a line, with chapter headings, notices and typographic
quotes. A small vocabulary and a small model are better spent on the sentences.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

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
    found: list[list[str]] = [[]]
    for line in lines:
        previous = found[-1][-1] if found[-1] else ""
        # Where no blank lines part them, a short line that ends a sentence ends a paragraph.
        closed = blank < 0.02 and previous and len(previous) < 0.75 * usual
        if not line or (closed and previous.endswith((".", "!", "?", '"', "'"))):
            found.append([])
        if line:
            found[-1].append(line)
    return [" ".join(block) for block in found if block]


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
