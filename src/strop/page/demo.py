"""strop demo: the main job on the models that ship, from outputs to the page."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from strop.registry import resolve
from strop.verbs.verb import Ask, Parameter, Part, Result, Strong, Verb, quoted

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
    folders = [str(out / one) for one in ("audit", "groupeval", "language")]
    _call("strop.page.live.command:VERB", ask, folders=folders)


def _known_language(ask: Ask, out: Path, n: int) -> list[Part]:
    """Mistakes that a reader sees: the first output of either temperature, and counts of all."""
    from strop.disk import write
    from strop.language import Language, explain
    from strop.language.reading import score
    from strop.page.unmasking import UnmaskedText, unmasking
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
        found = score(outputs["text"].to_pylist(), language=language, entropy=entropy)
        temperature = cell.spec.generator.sampler.temperature
        title = f"{ROUNDS} steps, temperature {temperature:g} (n = {n})"
        modes = f"{found.effective_modes:.0f} of {found.true_modes:.0f} modes"
        note = f"{found.violations:.2f} mistakes a text, {modes}"
        words = [language.vocabulary[token] for token in first["ids"]]
        wrong = frozenset(one.position - 1 for one in explained.wrong)
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
