"""strop probe: what do the knobs of a generator do?"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strop.assets import CHECKPOINT
from strop.probing.evidence import LEVEL, Answer
from strop.served.address import ServerAddress, is_served, keep_probe
from strop.verbs import parameters
from strop.verbs.verb import Ask, Parameter, Result, Verb, grid, quoted

if TYPE_CHECKING:
    from strop.probing.questions import Subject

TOP = {"top_p": 0.01, "top_k": 1}
"""What servers know by these names, each as narrow as it can be."""


def _run(ask: Ask) -> Result:
    source = ask["checkpoint"]
    return (
        _served(ask, str(ServerAddress.parse(source))) if is_served(source) else _local(ask, source)
    )


def _served(ask: Ask, source: str) -> Result:
    from strop.probing.subjects import ServedSubject

    knobs = {**TOP, **_named(ask)}
    subject = ServedSubject(ServerAddress.parse(source), knobs)
    with closing(subject):
        _announce(ask, subject, len(knobs) + sum(isinstance(v, dict) for v in knobs.values()))
        subject.open()
        return _run_probe(ask, source, subject)


def _local(ask: Ask, source: str) -> Result:
    from strop.denoisers import load_model
    from strop.probing.subjects import LocalSubject

    model = load_model(source, device=ask["device"])
    subject = LocalSubject(model, ask["length"], ask["steps"])
    subject.knobs |= _named(ask)
    _announce(ask, subject, len(subject.knobs))
    return _run_probe(ask, source, subject)


def _named(ask: Ask) -> dict[str, Any]:
    """Knobs of the user's: one value against the server's own, or the first against the last."""
    knobs = {}
    for name, values in (ask["knob"] or {}).items():
        single = len(values) == 1
        knobs[name] = values[0] if single else {"against": values[0], "value": values[-1]}
    return knobs


def _announce(ask: Ask, subject: Subject, knobs: int) -> None:
    from strop.probing.questions import TOKENS, budget

    most = budget(knobs, served=subject.takes_stop, greedy=subject.greedy)
    each = f" of at most {TOKENS} tokens each" if subject.takes_stop else ""
    ask.note(f"at most {most + 1} requests{each}, one by one but for those that ask about company")


def _run_probe(ask: Ask, source: str, subject: Any) -> Result:
    from strop.probing.questions import Probe, budget

    total = budget(len(subject.knobs), served=subject.takes_stop, greedy=subject.greedy)
    with ask.bars.share(f"probe {source}", total) as advance:
        probe = Probe(subject, advance)
        refused = getattr(subject, "refuses", {})
        answers = [
            replace(answer, word="no", why=f"it is refused: {refused[answer.knob]}", idle=False)
            if answer.knob in refused
            else answer
            for answer in probe.run()
        ]
    return _result(source, subject, answers, probe.level)


def _result(source: str, subject: Any, answers: list[Answer], level: float) -> Result:
    rows = [[answer.knob, answer.word, answer.why] for answer in answers]
    idle = [answer.knob for answer in answers if answer.idle]
    remarks = [f"warning: {', '.join(idle)}: accepted, and without any effect"] if idle else []
    wrong = [answer.knob for answer in answers if answer.word == "no" and not answer.idle]
    if wrong:
        remarks.append(f"warning: not as it should be: {', '.join(wrong)}")
    document = {
        "checkpoint": source,
        "knobs": {answer.knob: answer.word for answer in answers},
        "idle": idle,
        "questions": [
            {
                "knob": answer.knob,
                "question": answer.question,
                "answer": answer.word,
                "why": answer.why,
            }
            for answer in answers
        ],
        "requests": subject.calls,
        "level": level,
        "server" if subject.takes_stop else "generator": subject.facts,
    }
    if subject.takes_stop:
        keep_probe(source, document["knobs"], idle)
    return Result(
        parts=(
            grid(["knob", "answer", "numbers"], rows),
            f"{subject.calls} requests; all tests together are wrong in {LEVEL:.0%} of probes at "
            "most; 'no' is a difference that was seen, or none in so many pairs",
        ),
        json=document,
        remarks=tuple(remarks),
        next=f"strop sample {quoted(source)} --temperature 1,0.7 -n 64 -o runs/NAME",
        value=document,
    )


VERB = Verb(
    name="probe",
    help="Say what the knobs of CHECKPOINT do: seed, temperature, top_p, company, limits.\n\n"
    "CHECKPOINT is local or served (server:URL#MODEL). Every answer is yes, no or cannot tell.",
    parameters=(
        Parameter(
            "checkpoint",
            "server:URL#MODEL, or a checkpoint as `strop sample` takes it.",
            CHECKPOINT,
            argument="CHECKPOINT",
        ),
        Parameter(
            "knob",
            "A further field and a value, or two to compare, e.g. threshold=0.1,0.99; may be "
            "repeated.",
            kind="axes",
        ),
        Parameter("length", "Of a local checkpoint: tokens per output.", 24, "int", least=2),
        Parameter("steps", "Of a local diffusion checkpoint: updates.", 8, "int", least=2),
        parameters.DEVICE,
        *parameters.SERVER,
    ),
    run=_run,
    examples=(
        "strop probe embedded:tales-ar",
        "strop probe 'server:http://127.0.0.1:8000/v1#NAME' --json",
    ),
)
