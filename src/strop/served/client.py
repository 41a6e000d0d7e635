"""One question to an OpenAI-compatible server, with the one retry layer there is.

What can pass (rate limits, timeouts, broken connections, server errors) is tried again with growing
waits and jitter, or after as long as the server's Retry-After says. What cannot pass (a wrong key,
an unknown model, an address where nobody has ever answered) ends the whole command. The form of the
request is the caller's and never changes here. `Trouble` is what went wrong with a request, and
says what follows from it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from html import unescape
from typing import Any, Literal
from urllib.parse import quote

from strop.errors import UserError
from strop.served.address import ServerAddress
from strop.served.cost import Exhausted, Fate, Tab, is_count
from strop.served.transport import TIMES, Endless, Unreadable, bounded_client

Fault = Literal["refused", "empty", "rate_limited", "timeout", "server_error"]
"""Why a request brought no usable reply."""

LEAST_KEY = 8
"""Characters from which a key is a secret; a local server's `none` may stand in any reply."""


@dataclass(frozen=True)
class Patience:
    """How long one question may take."""

    timeout: float = 300.0
    """Seconds for one request, from its first byte to the last of its reply; one that brings
    nothing is tried again, one that drips is not."""
    attempts: int = 6
    """Requests, the first included, before a question is given up for now."""
    first_wait: float = 1.0
    longest_wait: float = 60.0
    jitter: float = 1.0
    longest_retry_after: float = 600.0
    """A server that asks for a longer pause is left alone."""


@dataclass
class Reply:
    """What came back for one question, as the journal keeps it."""

    reply: str | None = None
    """The raw text, exactly as it came."""
    failure: Fault | None = None
    """Why there is no usable reply; None if the text is to be validated."""
    detail: str = ""
    delivered: bool = False
    """Whether the server answered at all; only then is asking again a content retry."""
    finish_reason: str | None = None
    model: str | None = None
    """As the server names it, which may differ from what was asked for."""
    system_fingerprint: str | None = None
    tokens: dict[str, int] | None = None
    request: dict[str, Any] = field(default_factory=dict)
    """What was asked for, as far as the journal is to tell it."""
    logprobs: Any = None
    """Where the server gives them, as it gives them."""
    first_byte: float | None = None
    last_byte: float | None = None
    """Seconds from sending the request to the first and to the last byte of its reply."""
    trouble: Trouble | None = None
    """What went wrong with the last request, if it brought no reply."""
    capped: str | None = None
    """Which cap forbade to try again."""
    started: str = ""
    finished: str = ""

    def record(self) -> dict[str, Any]:
        """Its part of a line of the journal."""
        left_out = ("failure", "trouble", "capped")
        named = {item.name: getattr(self, item.name) for item in fields(self)}
        if self.logprobs is None:
            named.pop("logprobs")
        return {name: value for name, value in named.items() if name not in left_out}


class Client:
    """A model behind an address."""

    def __init__(self, at: ServerAddress, key: str | None, patience: Patience) -> None:
        from openai import AsyncOpenAI

        self._client = AsyncOpenAI(
            api_key=key or "none",  # local servers want none, the SDK wants some
            base_url=at.base_url,
            max_retries=0,
            timeout=patience.timeout,
            http_client=bounded_client(patience.timeout),
        )
        # Retries are in the journal; told here they would only tear the progress bar.
        logging.getLogger("stamina").setLevel(logging.ERROR)
        self._at, self._patience = at, patience
        self._spellings = spellings(key) if key and len(key) >= LEAST_KEY else []
        self._open_at = 0.0
        self._heard = False
        """Whether the server has ever answered, with whatever."""

    async def close(self) -> None:
        """Let the connections go."""
        await self._client.close()

    async def ask(
        self,
        body: Mapping[str, Any],
        tab: Tab,
        hopeless: Callable[[Trouble], bool] = lambda _: False,
        told: Mapping[str, Any] | None = None,
    ) -> Reply:
        """The reply to one question; `tab` hears of every request.

        `body` is what is sent beside the model: with `messages` it is a chat, else a completion.
        `hopeless` knows of more trouble than the usual that no repetition can mend; `told` is what
        the reply says of the request, if not the body.
        """
        import stamina

        answer = Reply(started=_now(), request=dict(body if told is None else told))
        patience = self._patience
        try:
            async for attempt in stamina.retry_context(
                on=lambda error: self._pause(error, hopeless),
                attempts=patience.attempts,
                timeout=None,
                wait_initial=patience.first_wait,
                wait_max=patience.longest_wait,
                wait_jitter=patience.jitter,
            ):
                with attempt:
                    await self._send(body, answer, tab)
        except Trouble as trouble:
            if trouble.fatal is not None and not (trouble.fate == "unsent" and self._heard):
                raise trouble.fatal from None
        except Exhausted as error:
            if answer.trouble is None:
                raise
            answer.capped = str(error)
        if answer.trouble is not None:
            answer.failure, answer.detail = answer.trouble.reason, answer.trouble.detail
        answer.finished = _now()
        return answer

    def _pause(self, error: Exception, hopeless: Callable[[Trouble], bool]) -> bool | float:
        """Whether to try again, and after how many seconds if the server says so."""
        if not isinstance(error, Trouble) or not error.passing or hopeless(error):
            return False
        if error.fate == "unsent" and not self._heard:
            return False  # a wrong address is found out at once
        after = error.retry_after
        if after is None:
            return True
        if after > self._patience.longest_retry_after:
            return False
        after = max(after, self._patience.first_wait)  # "at once" would be no pause at all
        # The others wait too: the server's word holds for all of us.
        self._open_at = max(self._open_at, time.monotonic() + after)
        return after

    async def _send(self, body: Mapping[str, Any], answer: Reply, tab: Tab) -> None:
        """One request."""
        await asyncio.sleep(max(0.0, self._open_at - time.monotonic()))
        await tab.open()
        answer.trouble = None
        try:
            # A reply that drips is refused at its first byte after the limit; headers drip, too.
            async with asyncio.timeout(self._patience.timeout + SLACK):
                response = await self._request(body)
            answer.first_byte, answer.last_byte = response.extensions[TIMES]
            _take(response, answer)
        except Exception as error:
            trouble = read_error(error, self._at, self._hide)
            if trouble is None:
                raise
            answer.trouble = trouble
            self._heard = self._heard or trouble.fate != "unsent"
            await tab.close(trouble.fate)
            raise trouble from error
        self._heard = True
        for name in ("reply", "detail", "model", "system_fingerprint", "finish_reason"):
            value = getattr(answer, name)
            setattr(answer, name, self._hide(value) if isinstance(value, str) else None)
        answer.detail = (answer.detail or "")[:SHOWN]
        await tab.close("delivered", answer.tokens)

    def _hide(self, text: str) -> str:
        """What the server says, without the key that it may echo."""
        for spelling in self._spellings:
            text = text.replace(spelling, "[the key]")
        return text

    async def _request(self, body: Mapping[str, Any]) -> Any:
        """The response, its status a success, its body in memory."""
        options = {k: v for k, v in body.items() if k not in ("messages", "prompt")}
        if "messages" in body:
            chat = self._client.chat.completions.with_raw_response
            raw = await chat.create(
                model=self._at.model, messages=body["messages"], extra_body=options
            )
        else:
            plain = self._client.completions.with_raw_response
            raw = await plain.create(
                model=self._at.model, prompt=body["prompt"], extra_body=options
            )
        return raw.http_response

    async def models(self) -> list[str] | None:
        """What the server lists as its models; None where it has no such list.

        It costs nothing, so no cap counts it; only what ends every request is raised.
        """
        try:
            async with asyncio.timeout(min(self._patience.timeout, LISTING_SECONDS)):
                raw = await self._client.models.with_raw_response.list()
            listed = json.loads(raw.http_response.content)["data"]
            return [self._hide(str(model["id"])) for model in listed]
        except Exception as error:
            trouble = read_error(error, self._at, self._hide)
            if trouble is not None and (trouble.fate == "unsent" or trouble.status == 401):
                raise trouble.fatal or trouble from None
            return None


def spellings(key: str) -> list[str]:
    """A key as a server may echo it, longest first: whole, in part, reversed or encoded.

    Base64 looks different at each of the three places where the key may begin within a group of
    three bytes; only the characters that depend on the key alone are taken.
    """
    raw = key.encode(errors="surrogateescape")
    forms = {quote(raw, safe=""), raw.hex(), raw.hex().upper()}
    for before in range(3):
        after = -(before + len(raw)) % 3
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(b"\0" * before + raw + b"\0" * after).decode()
            forms.add(text[-(-8 * before // 6) : len(text) - -(-8 * after // 6)])
    for text in (key, key[::-1]):
        forms |= {text[start : start + LEAST_KEY] for start in range(len(text) - LEAST_KEY + 1)}
    return sorted({key, key[::-1], *forms}, key=lambda text: (-len(text), text))


def _take(response: Any, answer: Reply) -> None:
    """Read a completion of whatever quality into the answer."""
    packed = response.headers.get("content-type", "")
    page, streamed = "html" in packed, "event-stream" in packed
    document: Any = None
    if not page:
        document = _events(response.text) if streamed else json.loads(response.content)
    choices = document.get("choices") if isinstance(document, dict) else None
    if not isinstance(choices, list):
        text, words = response.text, _without_markup(response.text)
        came = words[:SHOWN] if words != text else f"{packed or 'something'}: {text[:60]!r}"
        problem = f"the body is not a completion but {came}"
        raise Trouble("server_error", problem, passing=not page, fate="unknown")
    answer.delivered = True
    answer.model = document.get("model")
    answer.system_fingerprint = document.get("system_fingerprint")
    answer.tokens = _tokens(document.get("usage"))
    choice = choices[0] if choices and isinstance(choices[0], dict) else {}
    message = choice.get("message", {"content": choice["text"]} if "text" in choice else None)
    if not isinstance(message, dict):
        answer.failure, answer.detail = "empty", "the completion has no choices"
        return
    content = message.get("content")
    answer.reply = content if isinstance(content, str) else None
    answer.finish_reason, answer.logprobs = choice.get("finish_reason"), choice.get("logprobs")
    refusal = message.get("refusal")
    if refusal or answer.finish_reason == "content_filter":
        answer.failure = "refused"
        answer.detail = str(refusal or "the server's content filter stopped it")


def _events(text: str) -> dict[str, Any]:
    """A stream of events as the completion that they make up."""
    document: dict[str, Any] = {}
    pieces, choice = [], {}
    for line in text.splitlines():
        if not line.startswith("data:") or line[5:].strip() == "[DONE]":
            continue
        event = json.loads(line[5:])
        document |= {k: v for k, v in event.items() if k != "choices" and v is not None}
        for piece in event.get("choices") or ():
            pieces.append((piece.get("delta") or {}).get("content") or piece.get("text") or "")
            choice |= {k: v for k, v in piece.items() if k == "finish_reason" and v is not None}
    joined = {"message": {"content": "".join(pieces)}, **choice}
    return {**document, "choices": [joined]}


def _tokens(usage: Any) -> dict[str, int] | None:
    counts = usage if isinstance(usage, dict) else {}
    prompt, completion = counts.get("prompt_tokens"), counts.get("completion_tokens")
    if not is_count(prompt) or not is_count(completion):
        return None
    tokens = {"prompt": prompt, "completion": completion}
    details = counts.get("completion_tokens_details")
    thought = details.get("reasoning_tokens") if isinstance(details, dict) else None
    return {**tokens, "reasoning": thought} if is_count(thought) else tokens


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


SHOWN = 300
LISTING_SECONDS = 20.0
"""For the list of models, which servers have at hand."""
SLACK = 5.0
"""Seconds beside the time limit, so that a reply that drips is seen to."""
PASSING_STATUS = (408, 409, 425)
UNSENT = ("ConnectError", "ConnectTimeout")
"""After these the server has certainly received nothing. By name: which HTTP package raises them
depends on the SDK's release."""


class Trouble(Exception):
    """A request that brought no reply."""

    def __init__(
        self,
        reason: Fault,
        detail: str,
        *,
        passing: bool = False,
        retry_after: float | None = None,
        fatal: UserError | None = None,
        status: int | None = None,
        fate: Fate = "answered",
    ) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason: Fault = reason
        self.detail = detail
        self.passing = passing
        """Whether the same request may succeed later."""
        self.retry_after = retry_after
        """Seconds that the server asks to wait."""
        self.fatal = fatal
        """What to tell the user if no other request can succeed either."""
        self.status = status
        self.fate: Fate = fate
        """What became of the request."""


def read_error(
    error: Exception, at: ServerAddress, hide: Callable[[str], str] = str
) -> Trouble | None:
    """The SDK's exception in our terms; None if it is a bug of ours.

    `hide` takes the key out of what the server says, before anything is cut.
    """
    import openai

    if isinstance(error, Trouble):
        return error
    refused = error.__cause__ if isinstance(error.__cause__, Unreadable) else error
    if isinstance(refused, Unreadable):  # another try would bring the same
        reason: Fault = "timeout" if isinstance(refused, Endless) else "server_error"
        return Trouble(reason, str(refused), fate="unknown")
    if isinstance(error, openai.APIStatusError):
        return _status(error, at, hide)
    if isinstance(error, openai.APIConnectionError) and type(error.__cause__).__name__ in UNSENT:
        return _unreachable(error.__cause__ or error, at)
    if isinstance(error, (openai.APITimeoutError, TimeoutError)):
        return Trouble("timeout", "no reply within the time limit", passing=True, fate="unknown")
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__ or error
        problem = hide(f"the connection broke: {type(cause).__name__}: {cause}")
        return Trouble("server_error", problem[:SHOWN], passing=True, fate="unknown")
    # A body that is not JSON, or nested too deep to be read.
    if isinstance(error, (openai.APIError, ValueError, RecursionError)):
        problem = hide(f"the body cannot be read: {error}")
        return Trouble("server_error", problem[:SHOWN], passing=True, fate="unknown")
    return None


def _unreachable(cause: BaseException, at: ServerAddress) -> Trouble:
    problem = f"the connection failed: {_root(cause)}"[:SHOWN]
    secure = "SSL" in problem  # of whatever package it is
    fatal = UserError(
        "The server's certificate is not accepted, or it does not speak TLS."
        if secure
        else "The server cannot be reached.",
        where=at.base_url,
        got=problem,
        fix="say http:// in `base_url` if it has no TLS, or put its certificate into a file and "
        "name that with SSL_CERT_FILE"
        if secure
        else "start it, or correct `base_url`: host, port and path; most end in /v1",
    )
    return Trouble("server_error", problem, passing=True, fatal=fatal, fate="unsent")


def _root(error: BaseException) -> str:
    """The operating system's own words, under the layers of libraries that carry them."""
    deepest = error
    while (under := deepest.__cause__ or deepest.__context__) is not None:
        deepest = under
        if isinstance(deepest, OSError) and deepest.errno:
            break
    return f"{type(deepest).__name__}: {deepest}"


def _status(error: Any, at: ServerAddress, hide: Callable[[str], str]) -> Trouble:
    status, message = error.status_code, _message(error, hide)
    after = _retry_after(error.response.headers)
    if status == 429:
        spent = "insufficient_quota" in message
        return Trouble("rate_limited", message, passing=not spent, retry_after=after, status=429)
    if status in PASSING_STATUS or status >= 500:
        reason: Fault = "timeout" if status in (408, 504) else "server_error"
        return Trouble(reason, message, passing=True, retry_after=after, status=status)
    fatal = _fatal(status, message, at) if status in (401, 403, 404) else None
    if 300 <= status < 400:
        target = hide(str(error.response.headers.get("location", "")))[:SHOWN]
        fatal = _redirected(message, target, at)
    return Trouble("refused", message, fatal=fatal, status=status)


def _message(error: Any, hide: Callable[[str], str]) -> str:
    body = error.body
    inner = body.get("message") if isinstance(body, dict) else None
    code = body.get("code") if isinstance(body, dict) else None
    if not isinstance(inner, str):
        inner = body if isinstance(body, str) else _dumped(body) if body else ""
    words = _without_markup(inner or str(error.message))
    named = f" ({code})" if isinstance(code, (str, int)) and code else ""
    return f"HTTP {error.status_code}: {hide(words + named)}"[:SHOWN]


def _dumped(body: Any) -> str:
    try:
        return json.dumps(body, default=str)
    except RecursionError:
        return "a body that is nested too deep to be shown"


def _without_markup(message: str) -> str:
    """A proxy's error page in a few words: its title, or its text."""
    if not re.search(r"<(!doctype|html|head|body)\b", message[:SHOWN], re.IGNORECASE):
        return message
    title = re.search(r"<title[^>]*>(.*?)</title>", message, re.IGNORECASE | re.DOTALL)
    visible = re.sub(r"<(script|style)\b.*?</\1>", " ", message, flags=re.IGNORECASE | re.DOTALL)
    words = unescape(title[1] if title else re.sub(r"<[^>]*>", " ", visible)).split()
    return f"an HTML page: {' '.join(words) or 'without words'}"


def _redirected(message: str, target: str, at: ServerAddress) -> UserError:
    return UserError(
        "The server sends requests to another address, which is not followed.",
        where=at.base_url,
        got=f"{message}; the other address: {target or 'not named'}",
        expected="an address that answers itself: texts go to no host that was not named",
        fix="give the other address as `base_url`, if you trust it with the texts",
    )


def _fatal(status: int, message: str, at: ServerAddress) -> UserError:
    if status == 404:
        return UserError(
            "The server does not know this model or this address.",
            where=at.base_url,
            got=message,
            expected=f"a server that has {at.model!r}; most addresses end in /v1",
        )
    return UserError(
        "The server does not accept the key.",
        where=at.base_url,
        got=message,
        fix="export OPENAI_API_KEY=..., or name another variable with `key_env`",
    )


def _retry_after(headers: Any) -> float | None:
    """Seconds above zero, from any form that servers use; None if there is no such number."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        seconds = milliseconds / 1000
    else:
        seconds = _number(headers.get("retry-after")) or _until(headers.get("retry-after"))
    return seconds if seconds is not None and seconds > 0 else None


def _number(value: str | None) -> float | None:
    try:
        return float(value or "")
    except ValueError:
        return None


def _until(date: str | None) -> float | None:
    try:
        return (parsedate_to_datetime(date or "") - datetime.now(UTC)).total_seconds()
    except (TypeError, ValueError, OverflowError):
        return None
