"""strop demo: the main job on the models that ship, from outputs to the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from strop.registry import resolve
from strop.verbs.verb import Ask, Parameter, Part, Result, Strong, Verb, quoted

# ---------------------------------------------------------------------------- the picture
#
# Outputs that unmask side by side, from what a run keeps of each token. It is one SVG without a
# script. Where nothing moves (print, or a reader who asked for less motion) it shows the finished
# texts.

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


# ---------------------------------------------------------------------------- the verb

AUDITED = "embedded:tales"
WRITER, ROUNDS, TEMPERATURES = "embedded:leaky", 16, (1.0, 0.8)
"""A model of a known language with a small fault, and how it writes: standard, then sharper."""
PICTURE = "unmasking.svg"
SMALL: dict[str, Any] = {"steps": (4, 8), "n": (16,), "fresh_n": (8,)}
WHOLE: dict[str, Any] = {
    "steps": (4, 16, 64, 256),
    "n": (32, 32, 24, 16),
    "fresh_n": (16, 16, 16, 8),
}
AXES: dict[str, Any] = {"axis": {"temperature": (1.0, 0.9, 0.85), "precision": ("float64",)}}


def _run(ask: Ask) -> Result:
    out, wanted = Path(ask["out"]), SMALL if ask["smoke"] else WHOLE
    mistakes = _known_language(ask, out, 16 if ask["smoke"] else 128)
    ask.note(f"the first picture: {out / PICTURE}")
    audited, judged, page = out / "audit", out / "groupeval", out / "report.html"
    audit = _call("strop.verbs.audit:STUDY", ask, source_0=AUDITED, out=audited, **AXES, **wanted)
    sides = [{"steps": wanted["steps"][1], "temperature": t} for t in (1.0, 0.9)]
    _call("strop.verbs.groupeval_verbs:PLAN", ask, inputs=[str(audited)], where=sides, out=judged)
    _call("strop.verbs.groupeval_judge:JUDGE", ask, run=judged, offline=True)
    runs = [str(audited), str(judged)]
    _call("strop.page.command:VERB", ask, runs=runs, out=str(page))
    answer = [Strong(words) for words in audit.facts.get("answer", ())]
    return Result(
        parts=(*mistakes, "", audit.table.title, audit.table, "", *answer),
        json={"page": str(page), "picture": str(out / PICTURE), "audit": audit.document()},
        remarks=(f"the picture: {out / PICTURE}, the page: {page}",),
        next=f"open {quoted(page.resolve())} in a browser",
        then=None if ask["no_open"] or find_spec("uvicorn") is None else lambda: _view(ask, out),
        value=audit,
    )


def _view(ask: Ask, out: Path) -> None:
    """What the demo left, live in a browser."""
    folders = [str(out / name) for name in ("audit", "groupeval", "language")]
    _call("strop.page.live.command:VERB", ask, folders=folders)


def _known_language(ask: Ask, out: Path, n: int) -> list[Part]:
    """Mistakes that a reader sees: the first output of either temperature, and counts of all."""
    from strop.disk import write
    from strop.language import Language, explain
    from strop.language.reading import score
    from strop.store import Run

    run, language = out / "language", Language.load("even")
    given = {"steps": (ROUNDS,), "temperature": TEMPERATURES, "n": n}
    _call("strop.verbs.sample:VERB", ask, checkpoint=WRITER, out=run, **given)
    entropy = language.entropy(n)
    texts, parts = [], list[Part]()
    for cell in Run.open(run).cells():
        outputs = cell.table()
        first = outputs.slice(0, 1).to_pylist()[0]
        explained = explain(first["text"], language=language)
        scores = score(outputs["text"].to_pylist(), language=language, entropy=entropy)
        temperature = cell.spec.generator.sampler.temperature
        title = f"{ROUNDS} steps, temperature {temperature:g} (n = {n})"
        modes = f"{scores.effective_modes:.0f} of {scores.true_modes:.0f} modes"
        note = f"{scores.violations:.2f} mistakes a text, {modes}"
        words = [language.vocabulary[token] for token in first["ids"]]
        wrong = frozenset(mistake.position - 1 for mistake in explained.wrong)
        texts.append(UnmaskedText(title, note, words, first["changed"], wrong))
        parts += [f"{title}; {note}", f"  {explained.text}"]
    write(out / PICTURE, unmasking(texts).encode())
    return parts


def _call(record: str, ask: Ask, **given: Any) -> Result:
    """Another verb, which says how far it is to whoever listens to this one."""
    verb: Verb = resolve(record)
    asked = verb.asked(given, progress=ask.progress, note=ask.note, bars=ask.bars)
    result = verb.answer(asked)
    if result.error is not None:
        raise result.error
    return result


VERB = Verb(
    name="demo",
    help="Show what strop does: mistakes that one can see, an audit, a judge, and the page.\n\n"
    "On the models that ship, in about three minutes on two cores. The same command continues. "
    "Where there is a screen, it ends with `strop view` of what it made.",
    parameters=(
        Parameter("out", "The directory.", "runs/demo", flags=("-o", "--out")),
        Parameter.flag("smoke", "The same in small, in seconds."),
        Parameter.flag("no_open", "Open no browser at the end."),
    ),
    run=_run,
    examples=("strop demo", "strop demo --smoke -o runs/small"),
)
