"""One question to an OpenAI-compatible server, with the one retry layer there is.

What can pass (rate limits, timeouts, broken connections, server errors) is tried again with
growing waits and jitter, or after as long as the server's Retry-After says. What cannot pass (a
wrong key, an unknown model) ends the whole command. A server that does not know a setting gets
the question without it, and the journal says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from strop.errors import UserError
from strop.groupeval.judgment import Reason
from strop.groupeval.payload import Messages
from strop.groupeval.profile import Profile
from strop.groupeval.trouble import Trouble, adapted, read_error

__all__ = ["FORMATS", "Endpoint", "Patience", "Reply", "check_url"]

FORMATS = ("json_schema", "json_object", "text")
"""How the form of the reply is asked for, strictest first; a server gets the first it knows."""


@dataclass(frozen=True)
class Patience:
    """How long one question may take."""

    timeout: float = 300.0
    """Seconds for one request."""
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
    failure: Reason | None = None
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
    """Which form of reply was asked for, and which settings the server did not take."""
    calls: int = 0
    """Requests sent, those that failed in transport included."""
    started: str = ""
    finished: str = ""


class Endpoint:
    """A model behind a URL."""

    def __init__(
        self, judge: dict[str, Any], profile: Profile, key: str | None, patience: Patience
    ) -> None:
        from openai import AsyncOpenAI

        self._client = AsyncOpenAI(
            api_key=key or "none",  # local servers want none, the SDK wants some
            base_url=judge["base_url"],
            max_retries=0,
            timeout=patience.timeout,
        )
        self._judge, self._profile, self._patience = judge, profile, patience
        self._form: dict[str, Any] = {"format": judge["response_format"]}
        self._open_at = 0.0
        self.silent = 0
        """Questions in a row that got no reply; whoever asks keeps count."""

    async def close(self) -> None:
        """Let the connections go."""
        await self._client.close()

    async def ask(
        self,
        messages: Messages,
        admit: Callable[[], Awaitable[None]],
        settle: Callable[[dict[str, int] | None, bool], Awaitable[None]],
    ) -> Reply:
        """The reply to one question. `admit` comes before each request, `settle` after it."""
        import stamina

        answer = Reply(started=_now())
        patience = self._patience
        try:
            async for attempt in stamina.retry_context(
                on=self._pause,
                attempts=patience.attempts,
                timeout=None,
                wait_initial=patience.first_wait,
                wait_max=patience.longest_wait,
                wait_jitter=patience.jitter,
            ):
                with attempt:
                    await self._send(messages, answer, admit, settle)
        except Trouble as trouble:
            if trouble.fatal is not None:
                raise trouble.fatal from None
            answer.failure, answer.detail = trouble.reason, trouble.detail
        answer.finished = _now()
        return answer

    def _pause(self, error: Exception) -> bool | float:
        """Whether to try again, and after how many seconds if the server says so."""
        if not isinstance(error, Trouble) or not error.passing:
            return False
        after = error.retry_after
        if after is None:
            return True
        if after > self._patience.longest_retry_after:
            return False
        # The others wait too: the server's word holds for all of us.
        self._open_at = max(self._open_at, time.monotonic() + after)
        return after

    async def _send(
        self,
        messages: Messages,
        answer: Reply,
        admit: Callable[[], Awaitable[None]],
        settle: Callable[[dict[str, int] | None, bool], Awaitable[None]],
    ) -> None:
        """One request; again at once, in another form, if the server does not take a setting."""
        while True:
            await asyncio.sleep(max(0.0, self._open_at - time.monotonic()))
            form = self._form
            await admit()
            answer.calls += 1
            answer.request = dict(form)
            try:
                completion = await self._request(messages, form)
            except Exception as error:
                trouble = read_error(error, self._judge)
                if trouble is None:
                    raise
                better = adapted(form, trouble, FORMATS)
                if better is None:
                    raise trouble from error
                if self._form is form:  # else somebody else has found it out already
                    self._form = better
            else:
                _take(completion, answer)
                return
            finally:
                await settle(answer.tokens, answer.delivered)

    async def _request(self, messages: Messages, form: dict[str, Any]) -> Any:
        decoding = dict(self._judge["decoding"])
        for name in form.get("dropped", ()):
            decoding.pop(name, None)
        if "max_completion_tokens" in form.get("renamed", ()):
            decoding["max_completion_tokens"] = decoding.pop("max_tokens")
        shape = _response_format(form["format"], self._profile)
        request: dict[str, Any] = {"model": self._judge["model"], "messages": messages, **decoding}
        if shape is not None:
            request["response_format"] = shape
        return await self._client.chat.completions.create(**request)


def _response_format(name: str, profile: Profile) -> dict[str, Any] | None:
    if name == "json_schema":
        schema = {"name": "verdict", "strict": True, "schema": profile.schema}
        return {"type": "json_schema", "json_schema": schema}
    return {"type": "json_object"} if name == "json_object" else None


def _take(completion: Any, answer: Reply) -> None:
    """Read a completion of whatever quality into the answer."""
    choices = getattr(completion, "choices", None)
    if not isinstance(choices, list):
        raise Trouble("server_error", "the body is not a chat completion", passing=True)
    answer.delivered = True
    answer.model = getattr(completion, "model", None)
    answer.system_fingerprint = getattr(completion, "system_fingerprint", None)
    answer.tokens = _tokens(getattr(completion, "usage", None))
    if not choices or getattr(choices[0], "message", None) is None:
        answer.failure, answer.detail = "empty", "the completion has no choices"
        return
    choice = choices[0]
    content = choice.message.content
    answer.reply = content if isinstance(content, str) else None
    answer.finish_reason = choice.finish_reason
    refusal = getattr(choice.message, "refusal", None)
    if refusal or choice.finish_reason == "content_filter":
        answer.failure = "refused"
        answer.detail = str(refusal or "the server's content filter stopped it")[:200]


def _tokens(usage: Any) -> dict[str, int] | None:
    prompt = getattr(usage, "prompt_tokens", None)
    completion = getattr(usage, "completion_tokens", None)
    if not isinstance(prompt, int) or not isinstance(completion, int):
        return None
    tokens = {"prompt": prompt, "completion": completion}
    details = getattr(usage, "completion_tokens_details", None)
    thought = getattr(details, "reasoning_tokens", None)
    return {**tokens, "reasoning": thought} if isinstance(thought, int) else tokens


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def check_url(url: str) -> str:
    """A base URL that can be written down: no key in it, and the same spelling every time."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(
            "The base URL cannot be used.",
            where="--base-url",
            got=url.split("@")[-1],
            expected="http://HOST:PORT/v1 or https://HOST/v1",
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UserError(
            "The base URL carries more than an address.",
            where="--base-url",
            got="a user, a password or a query",
            expected="the address alone: keys come from the environment and are never written",
            fix="export OPENAI_API_KEY=..., or name another variable with --key-env",
        )
    return url.rstrip("/")
