"""strop.groupeval.run: texts that are in memory, planned, judged and scored in one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from strop.errors import UserError
from strop.verbs.groupeval_judge import JUDGE
from strop.verbs.groupeval_score import SCORE
from strop.verbs.verb import Result

if TYPE_CHECKING:
    from strop.groupeval.plan import Source

PROFILE, ANSWERS = "webtext-v1", "answers-v1"
FEW = 12
"""Digits of the plan's hash in the name of a default directory."""


class Judging(TypedDict, total=False):
    """Who judges, and how; as `strop groupeval judge` takes it."""

    base_url: str
    """Address of an OpenAI-compatible server, e.g. http://HOST:8000/v1."""
    model: str
    """Its name on the server."""
    key_env: str
    """The environment variable that holds the key; OPENAI_API_KEY by default."""
    judge: str
    offline: bool
    """The judge that only counts: no server, no model."""
    settings: Mapping[str, Any]
    features: str
    repeats: int
    concurrency: int
    timeout: float
    max_tokens: int
    response_format: str
    max_calls: int
    max_cost: float
    prices: str | PathLike[str]


def run(
    texts: Iterable[str] | Mapping[str, Iterable[str]],
    *,
    prompts: Iterable[str] | Mapping[str, Iterable[str]] | None = None,
    out: str | PathLike[str] | None = None,
    profile: str | PathLike[str] | None = None,
    seed: int = 0,
    **judging: Unpack[Judging],
) -> Result:
    """Quality and diversity of texts by a judge: `run(texts, base_url=..., model=...)`.

    `texts` are those of one generator, or of several by their names. `prompts` are what each text
    answers, for all generators or by their names; with them the profile is `answers-v1`, which
    judges the answers to one prompt together, and without them `webtext-v1`.

    Plan and replies are kept in `out` (left out, in a directory named by the plan): the same call
    again asks only for what is missing. The result's `value` is what `strop.groupeval.score` gives.
    """
    from strop.groupeval import Profile, make_plan, write_plan
    from strop.groupeval.inputs import fitted

    usual = PROFILE if prompts is None else ANSWERS
    rules = Profile.load(usual if profile is None else profile)
    sources, left_out = fitted(_sources(texts, prompts), rules)
    plan, frozen = make_plan(sources, rules, seed=seed)
    folder = Path(f"groupeval-{plan.hash[:FEW]}" if out is None else out)
    write_plan(folder, plan, rules, frozen)
    judged = JUDGE(folder, **judging)
    scored = SCORE(f"{folder}@{judged.value.id}")
    note = f"Plan and replies are in {folder}; the same call asks only for what is missing."
    return replace(
        scored,
        asked={"run": str(folder), "profile": rules.name, "seed": seed, "series": judged.value.id},
        notes=(*left_out, *scored.notes, note),
        remarks=(*judged.remarks, *scored.remarks),
        incomplete=judged.incomplete,
        missing=_missing(judged.json or {}) if judged.incomplete else None,
    )


def _missing(document: Mapping[str, Any]) -> str:
    reasons = ", ".join(f"{n} {reason}" for reason, n in document["failures"].items())
    judged = f"{document['judgments']} of {document['asked']} groups have a verdict"
    return f"{judged}: {document['stopped'] or reasons}"


def _sources(texts: Any, prompts: Any) -> list[Source]:
    from strop.groupeval.plan import Source

    named = texts if isinstance(texts, Mapping) else {"texts": texts}
    sources = []
    for name, pool in named.items():
        pool_texts, pool_prompts = _as_texts("texts", str(name), pool), None
        if prompts is not None:
            own_prompts = prompts.get(name, ()) if isinstance(prompts, Mapping) else prompts
            pool_prompts = _as_texts("prompts", str(name), own_prompts)
        if pool_prompts is not None and len(pool_prompts) != len(pool_texts):
            raise UserError(
                "There are not as many prompts as texts.",
                where=f"`prompts`, {name}",
                got=f"{len(pool_prompts)} prompts, {len(pool_texts)} texts",
                expected="what each text answers, once for each text",
            )
        sources.append(Source(str(name), pool_texts, pool_prompts, str(name)))
    return sources


def _as_texts(what: str, name: str, texts: Any) -> tuple[str, ...]:
    from strop.groupeval.inputs import as_text

    if isinstance(texts, (str, PathLike)) or not isinstance(texts, Iterable):
        raise UserError(
            f"The {what} of a generator are not a list.",
            where=f"`{what}`, {name}",
            got=repr(texts)[:80],
            expected='["...", ...], or {"name": ["...", ...], ...}',
            fix="texts in files: strop groupeval plan FILE... -o RUN",
        )
    entries: Sequence[Any] = list(texts)
    if not entries:
        raise UserError(f"There are no {what}.", where=f"`{what}`, {name}")
    return tuple(as_text(entry, f"{what[:-1]} {i}", name) for i, entry in enumerate(entries, 1))
