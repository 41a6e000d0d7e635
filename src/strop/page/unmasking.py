"""A picture that moves: outputs that unmask side by side, from what a run keeps of each token.

It is one SVG without a script. Where nothing moves (print, or a reader who asked for less motion)
it shows the finished texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

SIZE, ADVANCE, LINE = 14, 8.45, 23
"""Of the letters of a monospaced font: their size, their width and the distance of lines."""
WIDTH, EDGE, HEAD = 500, 18, 52
SECONDS_A_ROUND, REST = 0.45, 4.0
"""How long a round is seen, and the finished text."""
CLOSING = ".,;:!?"

STYLE = f"""\
text {{ font: {SIZE}px ui-monospace, Menlo, Consolas, monospace; fill: #1f2328 }}
.title {{ font-weight: 600 }} .note {{ fill: #59636e }} .mask {{ fill: #d1d9e0 }}
.wrong {{ fill: #c4320a; text-decoration: underline }}
.page {{ fill: #ffffff; stroke: #d1d9e0 }}
"""


@dataclass(frozen=True)
class UnmaskedText:
    """One output, word by word."""

    title: str
    note: str
    words: Sequence[str]
    rounds: Sequence[int]
    """After which round each word stood, from 1."""
    wrong: frozenset[int] = frozenset()
    """The places of words that are wrong, from 0."""


def unmasking(texts: Sequence[UnmaskedText]) -> str:
    """The picture: texts beside each other, round by round and again from the beginning."""
    placed = [_placed(text.words) for text in texts]
    lines = 1 + max(line for places in placed for _, line in places)
    height = HEAD + lines * LINE + EDGE
    last = max(number for text in texts for number in text.rounds)
    body = [
        _panel(text, places, panel * (WIDTH + EDGE), height)
        for panel, (text, places) in enumerate(zip(texts, placed, strict=True))
    ]
    width = len(texts) * (WIDTH + EDGE) - EDGE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'width="{width}" height="{height}">\n'
        f"<title>{escape(' | '.join(text.title for text in texts))}</title>\n"
        f"<style>\n{STYLE}{_timing(last)}</style>\n" + "\n".join(body) + "\n</svg>\n"
    )


def _timing(last: int) -> str:
    """When the words of each round appear, and their masks go: one rule for a round."""
    whole = last * SECONDS_A_ROUND + REST
    rules = []
    for number in range(1, last + 1):
        shown = 100 * number * SECONDS_A_ROUND / whole
        for name, before, after in (("w", 0, 1), ("m", 1, 0)):
            rules.append(
                f"@keyframes {name}{number} {{ 0% {{ opacity: {before} }} "
                f"{shown:.2f}%, 100% {{ opacity: {after} }} }}"
            )
            rules.append(
                f".{name}{number} {{ animation: {name}{number} {whole:g}s step-end infinite }}"
            )
    moving = "\n".join(rules)
    return (
        f".mask {{ opacity: 0 }}\n@media (prefers-reduced-motion: no-preference) {{\n{moving}\n}}\n"
    )


def _panel(
    text: UnmaskedText, places: Sequence[tuple[int, int]], left: float, height: float
) -> str:
    parts = [
        f'<g transform="translate({left:g} 0)">',
        f'<rect class="page" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1:g}" rx="6"/>',
        f'<text class="title" x="{EDGE}" y="24">{escape(text.title)}</text>',
        f'<text class="note" x="{EDGE}" y="42">{escape(text.note)}</text>',
    ]
    for at, (word, number, (column, line)) in enumerate(
        zip(text.words, text.rounds, places, strict=True)
    ):
        x, y = EDGE + column * ADVANCE, HEAD + line * LINE + 16
        parts.append(
            f'<rect class="mask m{number}" x="{x:.1f}" y="{y - 11:.1f}" '
            f'width="{len(word) * ADVANCE - 1:.1f}" height="13" rx="2"/>'
        )
        wrong = " wrong" if at in text.wrong else ""
        parts.append(
            f'<text class="w{number}{wrong}" x="{x:.1f}" y="{y:.1f}">{escape(word)}</text>'
        )
    return "\n".join((*parts, "</g>"))


def _placed(words: Sequence[str]) -> list[tuple[int, int]]:
    """Column and line of every word; a full stop stands at the word before it."""
    most = int((WIDTH - 2 * EDGE) / ADVANCE)
    places, column, line = [], 0, 0
    for word in words:
        start = column if word in CLOSING or column == 0 else column + 1
        if start and start + len(word) > most:
            start, line = 0, line + 1
        places.append((start, line))
        column = start + len(word)
    return places
