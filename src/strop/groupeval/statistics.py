"""What can be counted in a text without understanding it: for the offline judge.

The statistics lean on English (function words, Latin letters) and on the surface. A fluent lie,
a topic that drifts politely and a clever page all look the same to them.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Statistics", "measure"]

ARTICLES = frozenset(("a", "an", "the"))
FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a an the and or but nor if of in on at by for from to into with without as than then
        that this these those is are was were be been being am do does did has have had will would
        can could shall should may might must not no it its he she they we you i him her them us me
        his their our your my who whom which what when where why how there here so very too also up
        out about over under after before between through during because while until although""",
    )
)
AFTER_NO_ARTICLE = FUNCTION_WORDS - {"no", "very", "too", "then", "who", "what", "how", "not"}
"""Words that hardly ever follow an article in English; shuffled words put them there often."""
WINDOW = 40
"""Words per stretch of text where neighbouring stretches are compared."""


@dataclass(frozen=True)
class Statistics:
    """One text in numbers; shares are from 0 to 1."""

    words: int
    wordlike: float
    """Share of the visible characters that belong to words or usual punctuation."""
    function_words: float
    """Share of function words among the words; running English has about half."""
    misplaced: float
    """Share of articles that are followed by a word which cannot follow them."""
    sentence_words: float
    """Mean words per sentence."""
    repetition: float
    """Share of four-word sequences that stood before in the same text."""
    compression: float
    """Compressed bytes over bytes; loops are near 0, ordinary prose of a page is 0.4 to 0.6."""
    variety: float
    """Mean share of different words in a window."""
    continuity: float
    """Share of neighbouring windows of a document that share a longer word."""
    documents: int
    empty_documents: float
    """Share of documents without a word among those between boundaries."""


def measure(documents: Sequence[str]) -> Statistics:
    """The statistics of one text, given as its documents."""
    text = " ".join(documents)
    per_document = [_words(document) for document in documents]
    words = [word for document in per_document for word in document]
    sentences = [s for s in re.split(r"[.!?]+(?:\s|$)", text) if _words(s)]
    return Statistics(
        words=len(words),
        wordlike=_wordlike(text),
        function_words=_share(word in FUNCTION_WORDS for word in words),
        misplaced=_misplaced(words),
        sentence_words=len(words) / max(1, len(sentences)),
        repetition=_repetition(words),
        compression=_compression(text),
        variety=_variety(words),
        continuity=_continuity(per_document),
        documents=len(documents),
        empty_documents=_share(not document for document in per_document),
    )


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+(?:['’][^\W\d_]+)*", text.lower())


def _share(truths: Iterable[bool]) -> float:
    values = list(truths)
    return sum(values) / len(values) if values else 0.0


def _wordlike(text: str) -> float:
    visible = re.sub(r"\s", "", text)
    good = re.sub(r"[^\w.,;:!?'\"’“”()\-–—$%&/]|_|\ufffd", "", visible)
    return len(good) / len(visible) if visible else 0.0


def _misplaced(words: list[str]) -> float:
    followers = [b for a, b in pairwise(words) if a in ARTICLES]
    return _share(word in AFTER_NO_ARTICLE for word in followers)


def _repetition(words: list[str]) -> float:
    grams = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def _compression(text: str) -> float:
    raw = text.encode()
    # Short texts do not compress for want of material, and are not the worse for it.
    return len(zlib.compress(raw, 9)) / len(raw) if len(raw) >= 200 else 1.0


def _variety(words: list[str]) -> float:
    windows = [words[i : i + WINDOW] for i in range(0, len(words), WINDOW)]
    whole = [w for w in windows if len(w) == WINDOW] or [w for w in windows if w]
    return sum(len(set(w)) / len(w) for w in whole) / len(whole) if whole else 0.0


def _continuity(documents: list[list[str]]) -> float:
    shared = []
    for words in documents:
        content = [
            {w for w in words[i : i + WINDOW] if len(w) > 4 and w not in FUNCTION_WORDS}
            for i in range(0, len(words) - WINDOW // 2, WINDOW)  # a short rest says nothing
        ]
        shared += [bool(a & b) for a, b in pairwise(content)]
    return _share(shared) if shared else 1.0
