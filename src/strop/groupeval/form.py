"""Which form of request a server takes: found out once, before anything is judged.

Not every server knows JSON schemas, and some refuse `temperature` or want `max_tokens` under
another name. A fixed harmless question finds out which; the settings that it was accepted with are
the judge's own from then on. They belong to the identity of its series, so nothing that a server
says about a real text can change how the next one is asked.
"""

from __future__ import annotations

import uuid
from typing import Any

from strop.errors import Incomplete, UserError
from strop.groupeval.cost import SETTLED, Budget, Exhausted, Tab, guessed_tokens
from strop.groupeval.directory import Journal
from strop.groupeval.endpoint import FORMATS, Endpoint, Patience, Reply, Trouble
from strop.groupeval.payload import Messages
from strop.groupeval.profile import Profile

__all__ = ["PROBE", "form_words", "reply_limit", "settle_form", "settled_form"]

PROBE: Messages = [{"role": "user", "content": "Answer with an empty JSON object: {}"}]
"""It says nothing that could be mistaken for a setting when a server quotes it."""

ABOUT_THE_FORM = (400, 422, 500, 501)
"""Status with which servers refuse a setting."""

LIMITS = ("max_tokens", "max_completion_tokens")
"""The two names of the limit of a reply."""


def reply_limit(judge: dict[str, Any]) -> int:
    """The most tokens of a reply, by either name."""
    return next(judge["decoding"][name] for name in LIMITS if name in judge["decoding"])


def form_words(judge: dict[str, Any]) -> str:
    """How the judge is asked, for people."""
    settings = [f"{name} {value:g}" for name, value in judge["decoding"].items()]
    return ", ".join([judge["response_format"], *settings])


def settled_form(asked: dict[str, Any], journal: Journal) -> dict[str, Any] | None:
    """The judge as an earlier probe found that it can be asked."""
    found = [entry.get("judge") for entry in journal.entries() if entry["outcome"] == SETTLED]
    fitting = [one for one in found if isinstance(one, dict) and _is_form_of(one, asked)]
    return fitting[-1] if fitting else None


def _is_form_of(judge: dict[str, Any], asked: dict[str, Any]) -> bool:
    """Whether it is the judge that was asked for, in some form: a file can be edited."""
    decoding, wanted = judge.get("decoding"), asked["decoding"]
    if not isinstance(decoding, dict) or not set(decoding) & set(LIMITS):
        return False
    old, new = LIMITS
    same = {**judge, "decoding": None, "response_format": None} == {
        **asked,
        "decoding": None,
        "response_format": None,
    }
    known = {**wanted, new: wanted.get(old)}
    taken = all(name in known and known[name] == value for name, value in decoding.items())
    return same and taken and judge.get("response_format") in FORMATS


async def settle_form(
    asked: dict[str, Any],
    profile: Profile,
    key: str | None,
    patience: Patience,
    budget: Budget,
    journal: Journal,
) -> dict[str, Any]:
    """The judge in the first form that the server takes; `journal` keeps every request."""
    judge, session, answer = asked, uuid.uuid4().hex[:8], Reply()
    for number in range(1, 2 + len(FORMATS) + len(asked["decoding"])):
        line = {"sheet": "probe", "repeat": 0, "attempt": number, "session": session}
        answer = await _ask(judge, profile, key, patience, budget, journal, line)
        if answer.delivered:
            return judge
        better = None if answer.trouble is None else adapted(judge, answer.trouble)
        if better is None:
            raise _no_answer(asked, answer)
        judge = better
    raise _no_answer(asked, answer)


async def _ask(
    judge: dict[str, Any],
    profile: Profile,
    key: str | None,
    patience: Patience,
    budget: Budget,
    journal: Journal,
    line: dict[str, Any],
) -> Reply:
    most = {"prompt": guessed_tokens(PROBE, cautious=True), "completion": reply_limit(judge)}
    tab = Tab(budget, most, lambda entry: journal.append({**line, **entry}))
    endpoint = Endpoint(judge, profile, key, patience)
    answer = Reply()
    try:
        answer = await endpoint.ask(PROBE, tab, lambda trouble: adapted(judge, trouble) is not None)
    except Exhausted as error:
        raise Incomplete(
            "A cap was reached before it was known how to ask this judge.",
            got=error,
            fix="the same command with a higher cap",
        ) from None
    finally:
        await endpoint.close()
        if tab.calls:
            known = judge if answer.delivered else None
            told = {"outcome": SETTLED, "judge": known, "detail": answer.detail, **tab.entry()}
            journal.append({**line, **told, "tokens": answer.tokens, "model": answer.model})
    return answer


def adapted(judge: dict[str, Any], trouble: Trouble) -> dict[str, Any] | None:
    """The judge without what the server says it does not take; None if it says no such thing."""
    if trouble.status not in ABOUT_THE_FORM:
        return None
    told, decoding = trouble.detail.lower(), judge["decoding"]
    old, new = LIMITS
    if new in told and old in decoding:
        renamed = {new if name == old else name: value for name, value in decoding.items()}
        return {**judge, "decoding": renamed}
    for name in ("temperature", "top_p"):
        if name in told and name in decoding:
            rest = {other: value for other, value in decoding.items() if other != name}
            return {**judge, "decoding": rest}
    speaks_of_form = any(w in told for w in ("response_format", "json_schema", "schema", "grammar"))
    place = FORMATS.index(judge["response_format"])
    if speaks_of_form and place + 1 < len(FORMATS):
        return {**judge, "response_format": FORMATS[place + 1]}
    return None


def _no_answer(judge: dict[str, Any], answer: Reply) -> UserError | Incomplete:
    told = f"{answer.failure}: {answer.detail}"
    if answer.trouble is not None and answer.trouble.passing:
        return Incomplete(
            "The server does not answer a plain question.",
            where=judge["base_url"],
            got=told + (f" ({answer.capped})" if answer.capped else ""),
            fix="run the same command again when it does",
        )
    return UserError("The server refuses a plain question.", where=judge["base_url"], got=told)
