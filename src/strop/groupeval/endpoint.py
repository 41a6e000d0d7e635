"""A judge behind an address: how its question is put, in which form, and what judging will cost.

Not every server knows JSON schemas, and some refuse `temperature` or want `max_tokens` under
another name. A fixed harmless question finds out which, once, before anything is judged; the
settings that it was accepted with are the judge's own from then on. They belong to the identity of
its series, so nothing that a server says about a real text can change how the next one is asked.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from strop.errors import Incomplete, UserError, unknown_name
from strop.groupeval.profile import Messages, Profile, messages
from strop.served.address import ServerAddress, check_url
from strop.served.client import Client, Patience, Reply, Trouble
from strop.served.cost import (
    BYTES_PER_TOKEN,
    SETTLED,
    Caps,
    Exhausted,
    Journal,
    Price,
    Tab,
    guessed_tokens,
    usage,
)
from strop.spec.value import JudgeSpec

if TYPE_CHECKING:
    from strop.groupeval.plan import Sheet
    from strop.groupeval.series import Series


class Endpoint:
    """A judge's server. The form of the request is the judge's; `settle_form` finds it."""

    def __init__(
        self, judge: JudgeSpec, profile: Profile, key: str | None, patience: Patience
    ) -> None:
        self._client = Client(ServerAddress(judge.base_url or "", judge.model or ""), key, patience)
        self._judge, self._profile = judge, profile

    async def close(self) -> None:
        """Let the connections go."""
        await self._client.close()

    async def ask(
        self, messages: Messages, tab: Tab, hopeless: Callable[[Trouble], bool] = lambda _: False
    ) -> Reply:
        """The reply to one question; `tab` hears of every request."""
        form = self._judge.response_format
        body: dict[str, Any] = {"messages": messages, **_decoding(self._judge)}
        if form == "json_schema":
            schema = {"name": "verdict", "strict": True, "schema": self._profile.schema}
            body["response_format"] = {"type": form, "json_schema": schema}
        elif form == "json_object":
            body["response_format"] = {"type": form}
        return await self._client.ask(body, tab, hopeless, {"format": form})


PROBE: Messages = [{"role": "user", "content": "Answer with an empty JSON object: {}"}]
"""It says nothing that could be mistaken for a setting when a server quotes it."""

PROBE_TOKENS = 32
"""The most that its reply may have: whether it is cut short does not matter."""

ABOUT_THE_FORM = (400, 422, 500, 501)
"""Status with which servers refuse a setting."""

FORMATS = ("json_schema", "json_object", "text")
"""How the form of the reply is asked for, strictest first."""
LIMITS = ("max_tokens", "max_completion_tokens")
"""The two names of the limit of a reply."""


def endpoint_spec(
    profile: Profile,
    *,
    base_url: str,
    model: str,
    max_tokens: int | None = None,
    response_format: str = FORMATS[0],
) -> JudgeSpec:
    """A model, where it is, and how it is asked: the profile's decoding, in the strictest form."""
    if response_format not in FORMATS:
        raise unknown_name("response format", response_format, FORMATS, where="`response_format`")
    limit = {} if max_tokens is None else {"max_tokens": max_tokens}
    return JudgeSpec(
        kind="endpoint",
        model=model,
        base_url=check_url(base_url),
        decoding={**profile.decoding, **limit},
        response_format=response_format,
    )


def reply_limit(judge: JudgeSpec) -> int:
    """The most tokens of a reply, by either name."""
    decoding = _decoding(judge)
    return next(decoding[name] for name in LIMITS if name in decoding)


def form_words(judge: JudgeSpec) -> str:
    """How the judge is asked, for people."""
    settings = [f"{name} {value:g}" for name, value in _decoding(judge).items()]
    return ", ".join([str(judge.response_format), *settings])


def _decoding(judge: JudgeSpec) -> dict[str, Any]:
    return judge.decoding or {}


def settled_form(asked: JudgeSpec, journal: Journal) -> JudgeSpec | None:
    """The judge as an earlier probe found that it can be asked."""
    documents = [entry.get("judge") for entry in journal.entries() if entry["outcome"] == SETTLED]
    fitting = [judge for document in documents if (judge := _form_of(asked, document)) is not None]
    return fitting[-1] if fitting else None


def _form_of(asked: JudgeSpec, document: Any) -> JudgeSpec | None:
    """The judge that was asked for, in the form that a file tells of: a file can be edited."""
    try:
        judge = JudgeSpec.from_document(document) if isinstance(document, dict) else None
    except UserError:
        return None
    if judge is None or not set(_decoding(judge)) & set(LIMITS):
        return None
    old, new = LIMITS
    plain = {"decoding": None, "response_format": None}
    same = judge.model_copy(update=plain) == asked.model_copy(update=plain)
    allowed = {**_decoding(asked), new: _decoding(asked).get(old)}
    taken = all(k in allowed and allowed[k] == value for k, value in _decoding(judge).items())
    return judge if same and taken and judge.response_format in FORMATS else None


async def settle_form(
    asked: JudgeSpec, connect: Callable[[JudgeSpec], Endpoint], budget: Caps, journal: Journal
) -> JudgeSpec:
    """The judge in the first form that the server takes; `journal` keeps every request."""
    judge, session, answer = asked, uuid.uuid4().hex[:8], Reply()
    for number in range(1, 2 + len(FORMATS) + len(_decoding(asked))):
        line = {"sheet": "probe", "repeat": 0, "attempt": number, "session": session}
        answer = await _ask(judge, connect(_brief(judge)), budget, journal, line)
        if _form_works(answer):
            return judge
        better = None if answer.trouble is None else adapted(judge, answer.trouble)
        if better is None:
            raise _no_answer(asked, answer)
        judge = better
    raise _no_answer(asked, answer)


def _brief(judge: JudgeSpec) -> JudgeSpec:
    """The same judge, for a reply of a few tokens."""
    limits = {name: min(PROBE_TOKENS, n) for name, n in _decoding(judge).items() if name in LIMITS}
    return judge.model_copy(update={"decoding": {**_decoding(judge), **limits}})


def _form_works(answer: Reply) -> bool:
    """Whether the server took the form; some say by an error that a reply was cut by length."""
    if answer.delivered:
        return True
    detail = "" if answer.trouble is None else answer.trouble.detail.lower()
    return "could not finish" in detail or "limit was reached" in detail


async def _ask(
    judge: JudgeSpec, endpoint: Endpoint, budget: Caps, journal: Journal, line: dict[str, Any]
) -> Reply:
    most = {
        "prompt": guessed_tokens(PROBE, cautious=True),
        "completion": reply_limit(_brief(judge)),
    }
    tab = Tab(budget, most, lambda entry: journal.append({**line, **entry}))
    answer = Reply()
    try:
        answer = await endpoint.ask(PROBE, tab, lambda trouble: adapted(judge, trouble) is not None)
    except Exhausted as error:
        raise Incomplete(
            "A cap was reached before the form of requests to this judge was settled.",
            got=error,
            fix="the same command with a higher cap",
        ) from None
    finally:
        await endpoint.close()
        if tab.calls:
            form = judge.document() if _form_works(answer) else None
            settled = {"outcome": SETTLED, "judge": form, "detail": answer.detail, **tab.entry()}
            journal.append({**line, **settled, "tokens": answer.tokens, "model": answer.model})
    return answer


def adapted(judge: JudgeSpec, trouble: Trouble) -> JudgeSpec | None:
    """The judge without what the server says it does not take; None if it says no such thing."""
    if trouble.status not in ABOUT_THE_FORM:
        return None
    complaint, decoding = trouble.detail.lower(), _decoding(judge)
    old, new = LIMITS
    if new in complaint and old in decoding:
        renamed = {new if name == old else name: value for name, value in decoding.items()}
        return judge.model_copy(update={"decoding": renamed})
    for name in ("temperature", "top_p"):
        if name in complaint and name in decoding:
            kept = {other: value for other, value in decoding.items() if other != name}
            return judge.model_copy(update={"decoding": kept})
    speaks_of_form = any(
        w in complaint for w in ("response_format", "json_schema", "schema", "grammar")
    )
    position = FORMATS.index(str(judge.response_format))
    if speaks_of_form and position + 1 < len(FORMATS):
        return judge.model_copy(update={"response_format": FORMATS[position + 1]})
    return None


def _no_answer(judge: JudgeSpec, answer: Reply) -> UserError | Incomplete:
    reason = f"{answer.failure}: {answer.detail}"
    if answer.trouble is not None and answer.trouble.passing:
        return Incomplete(
            "The server does not answer a plain question.",
            where=judge.base_url,
            got=reason + (f" ({answer.capped})" if answer.capped else ""),
            fix="run the same command again when it does; a longer `timeout` gives it longer",
        )
    return UserError("The server refuses a plain question.", where=judge.base_url, got=reason)


REPLY_BYTES_PER_OUTPUT = 150
"""Of an entry of the frozen schema; judges that think write many times more."""


def cost_estimate(
    series: Series, questions: Sequence[tuple[Sheet, int]], price: Price | None
) -> dict[str, Any]:
    """Calls, tokens and cost of these questions, if every reply is a verdict."""
    used = usage(series.journal.entries())
    counted = used.replies - used.uncounted
    if counted:
        basis = f"the mean of {counted} replies that the server counted"
        prompt = round(len(questions) * used.prompt / counted)
        completion = round(len(questions) * used.completion / counted)
    else:
        basis = "guessed from bytes; thinking, if the judge does any, comes on top"
        prompt, completion = 0, 0
        for sheet, _ in questions:
            texts, task = series.sheet_texts(sheet)
            prompt += guessed_tokens(messages(series.profile, sheet.labels, texts, task))
            completion += round(len(texts) * REPLY_BYTES_PER_OUTPUT / BYTES_PER_TOKEN)
    tokens = {"prompt": prompt, "completion": completion}
    return {
        "calls": len(questions),
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "cost": None if price is None else price.of(tokens),
        "basis": basis,
    }
