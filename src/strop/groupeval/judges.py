"""The judges: one record each, built in, from a script, or from another package.

A record says how the identity of a judge is made (`JudgeSpec`) and what answers for it. Plug-ins
come through the entry points `strop.judges`, or `strop.registry.register` for one process. What a
judge that is not installed here has said stays readable: a series needs no record.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from strop.errors import UserError
from strop.groupeval.profile import Profile
from strop.groupeval.series import Series, open_plan
from strop.groupeval.session import Answer, answer_series, pending
from strop.registry import Reference, Registry, resolve
from strop.spec.value import JudgeSpec


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
            client="strop.groupeval.oracle:oracle_client",
            spec="strop.groupeval.oracle:oracle_spec",
        ),
        Judge("human", "A person, by the page that `strop groupeval export-human` writes."),
    ),
)


def judge_spec(name: str, profile: Profile, /, **settings: Any) -> JudgeSpec:
    """The identity of a judge with these settings; the record's version is part of it."""
    record = JUDGES.find(name, where="`judge`")
    own = {"kind": record.name} | ({"version": record.version} if record.version else {})
    given = {key: value for key, value in settings.items() if value is not None}
    if record.spec is None:
        return JudgeSpec.from_document({**own, **given, **own})
    return resolve(record.spec)(profile, **given).model_copy(update=own)


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
                one.name for one in JUDGES.values() if one.client and not one.served
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
