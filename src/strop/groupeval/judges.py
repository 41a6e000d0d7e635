"""The judges: one record each, built in, from a script, or from another package.

A record says how the identity of a judge is made (`JudgeSpec`) and what answers for it. Plug-ins
come through the entry points `strop.judges`, or `strop.registry.register` for one process. What a
judge that is not installed here has said stays readable: a series needs no record.

The oracle judges texts of a known language, whose law it knows. A text is valid if at most `valid`
of its words must be wrong. Its grades fall with every wrong word, from full marks at none to
nothing beyond `valid`, spread evenly over the profile's dimensions. Its mode is the likeliest one.
What is no text of the language is not valid; a group in which that is true of more than half is
refused: the language is then most likely another.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strop.errors import UserError, unknown_name, whole_number
from strop.groupeval.profile import Profile
from strop.groupeval.series import Series, open_plan
from strop.groupeval.session import Answer, answer_series, pending
from strop.registry import Reference, Registry, resolve
from strop.spec.value import JudgeSpec

# ----------------------------------------------------------------------------------------- oracle

NAME = "oracle-v1"
BEST = 2
"""The highest grade of a dimension."""
LETTERS = "ABCDEFGH"


def oracle_spec(
    profile: Profile, *, language: str = "even", valid: int = 8, **others: Any
) -> JudgeSpec:
    """Who judges: the language, by the hash of its grammar too, and what it takes for valid."""
    from strop.language.grammar import read_grammar

    for name in others:
        raise unknown_name("setting of the oracle", name, ("language", "valid"), where="`settings`")
    if not profile.modes:
        raise UserError(
            f"The oracle cannot use the profile {profile.name}.",
            expected="one in which every valid text has a mode, such as webtext-v1",
        )
    settings: dict[str, Any] = {
        "language": language,
        "grammar_sha256": read_grammar(language).sha256,
        "valid": whole_number("valid", valid, 0, 2**31),
    }
    name = f"{NAME}/{language}, valid up to {valid} violations"
    return JudgeSpec(kind="oracle", model=NAME, name=name, settings=settings)


def oracle_client(spec: JudgeSpec, profile: Profile) -> Answer:
    """What answers a sheet."""
    from strop.language import Language

    language, most = Language.load(str(spec.settings["language"])), spec.settings["valid"]
    assert isinstance(most, int)

    def judged(text: str) -> tuple[int | None, int]:
        """Violations (None: no text of the language), and the mode's number."""
        try:
            ids = language.encode(text)
        except UserError:
            return None, 0
        return int(language.violations(ids)), int(language.posterior(ids).argmax())

    def answer(labels: Sequence[str], texts: Sequence[str], task: str | None) -> str:  # noqa: ARG001
        readings = [judged(text) for text in texts]
        foreign = [text for text, (wrong, _) in zip(texts, readings, strict=True) if wrong is None]
        if len(foreign) > len(texts) / 2:
            raise UserError(
                f"Most texts of a group have words that are missing from the language "
                f"{spec.settings['language']}.",
                got=repr(foreign[0][:60]),
                fix="name the language that they are of: settings `language=tail`, or a "
                "grammar's file",
            )
        good = [wrong is not None and wrong <= most for wrong, _ in readings]
        seen = dict.fromkeys(mode for (_, mode), valid in zip(readings, good, strict=True) if valid)
        letters = dict(zip(seen, LETTERS, strict=False))
        outputs = []
        for label, (wrong, mode), valid in zip(labels, readings, good, strict=True):
            grades = _grades(wrong if valid else None, most, profile.dimensions)
            letter = letters[mode] if valid else None
            outputs.append({"id": label, "valid": valid, **grades, "mode": letter, "hybrid": False})
        return json.dumps({"outputs": outputs, "confidence": "high"})

    return answer


def _grades(wrong: int | None, most: int, dimensions: Sequence[str]) -> dict[str, int]:
    """All points at no violation, none beyond the limit; the first dimensions get the odd ones."""
    points = BEST * len(dimensions)
    points = 0 if wrong is None else int(np.ceil(points * (1 - wrong / (most + 1))))
    each, odd = divmod(points, len(dimensions))
    return {name: each + (k < odd) for k, name in enumerate(dimensions)}


# ----------------------------------------------------------------------------------------- judges


@dataclass(frozen=True)
class Judge:
    """A kind of judge."""

    name: str
    """What users write; the `kind` of its specs."""
    summary: str
    """One line, for people."""
    client: Reference | None = None
    """From its spec and the profile to what answers one sheet after another (`Answer`).

    Of a served judge, to what sends requests as `Endpoint` does. None: answers come from a file.
    """
    spec: Reference | None = None
    """From the profile and the settings to the spec; None takes the settings as they are."""
    served: bool = False
    """Whether an answer is a request to a server: it may fail, is tried again, costs, has a cap."""
    version: str | None = None
    """Of a plug-in: a changed one is another judge, with series of its own."""


JUDGES = Registry(
    "judge",
    Judge,
    "strop.judges",
    lambda: (
        Judge(
            "endpoint",
            "A language model behind an OpenAI-compatible server.",
            client="strop.groupeval.endpoint:Endpoint",
            spec="strop.groupeval.endpoint:endpoint_spec",
            served=True,
        ),
        Judge(
            "offline",
            "A rule that counts, for demonstrations and tests; no model.",
            client="strop.groupeval.offline:offline_client",
            spec="strop.groupeval.offline:offline_spec",
        ),
        Judge(
            "oracle",
            "The law itself, for texts of a known language (`strop language`).",
            client="strop.groupeval.judges:oracle_client",
            spec="strop.groupeval.judges:oracle_spec",
        ),
        Judge("human", "A person, by the page that `strop groupeval export-human` writes."),
    ),
)


def judge_spec(name: str, profile: Profile, /, **settings: Any) -> JudgeSpec:
    """The identity of a judge with these settings; the record's version is part of it."""
    record = JUDGES.find(name, where="`judge`")
    identity = {"kind": record.name} | ({"version": record.version} if record.version else {})
    chosen = {key: value for key, value in settings.items() if value is not None}
    if record.spec is None:
        return JudgeSpec.from_document({**identity, **chosen, **identity})
    return resolve(record.spec)(profile, **chosen).model_copy(update=identity)


def judge_client(spec: JudgeSpec, profile: Profile) -> Answer:
    """What answers for a judge in this process."""
    record = JUDGES.find(spec.kind, where="`judge`")
    if record.served or record.client is None:
        served = "judge RUN --base-url URL --model NAME, or strop.groupeval.run(texts, ...)"
        verb = served if record.served else "export-human RUN"
        raise UserError(
            f"The judge {record.name!r} does not answer in this process.",
            where="`judge`",
            expected=", ".join(
                record.name for record in JUDGES.values() if record.client and not record.served
            ),
            fix=f"strop groupeval {verb}",
        )
    return resolve(record.client)(spec, profile)


def judge_run(
    run: str | os.PathLike[str],
    judge: str = "offline",
    /,
    *,
    repeats: int = 1,
    told: Callable[[str], None] = lambda _: None,
    **settings: Any,
) -> Series:
    """Ask a judge of this process about every group without a verdict; the same call continues.

    `settings` are the judge's own, such as `features` of the offline one.
    """
    _, profile = open_plan(run)
    spec = judge_spec(judge, profile, **settings)
    client = judge_client(spec, profile)
    series = Series.create(run, spec)
    with series.writing():
        answer_series(series, pending(series, repeats), client, told)
    return series
