"""What went wrong with a request, and what follows from it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from html import unescape
from typing import Any

from strop.errors import UserError
from strop.groupeval.budget import Fate
from strop.groupeval.judgment import Reason

__all__ = ["Trouble", "read_error"]

SHOWN = 300
PASSING_STATUS = (408, 409, 425)
UNSENT = ("ConnectError", "ConnectTimeout")
"""After these the server has certainly received nothing. By name: which HTTP package raises them
depends on the SDK's release."""


class Trouble(Exception):
    """A request that brought no reply."""

    def __init__(
        self,
        reason: Reason,
        detail: str,
        *,
        passing: bool = False,
        retry_after: float | None = None,
        fatal: UserError | None = None,
        status: int | None = None,
        fate: Fate = "answered",
    ) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason: Reason = reason
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
    error: Exception, judge: dict[str, Any], hide: Callable[[str], str] = str
) -> Trouble | None:
    """The SDK's exception in our terms; None if it is a bug of ours.

    `hide` takes the key out of what the server says, before anything is cut.
    """
    import openai

    if isinstance(error, Trouble):
        return error
    if isinstance(error, openai.APIStatusError):
        return _status(error, judge, hide)
    if isinstance(error, openai.APIConnectionError) and type(error.__cause__).__name__ in UNSENT:
        return _unreachable(error.__cause__ or error, judge)
    if isinstance(error, (openai.APITimeoutError, TimeoutError)):
        return Trouble("timeout", "no reply within the time limit", passing=True, fate="unknown")
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__ or error
        told = hide(f"the connection broke: {type(cause).__name__}: {cause}")
        return Trouble("server_error", told[:SHOWN], passing=True, fate="unknown")
    if isinstance(error, (openai.APIError, ValueError)):  # a body that is not JSON
        told = hide(f"the body cannot be read: {error}")
        return Trouble("server_error", told[:SHOWN], passing=True, fate="unknown")
    return None


def _unreachable(cause: BaseException, judge: dict[str, Any]) -> Trouble:
    told = f"the connection failed: {_root(cause)}"[:SHOWN]
    fatal = UserError(
        "The server cannot be reached.",
        where=judge["base_url"],
        got=told,
        fix="start it, or correct `base_url`: host, port and path; most end in /v1",
    )
    return Trouble("server_error", told, passing=True, fatal=fatal, fate="unsent")


def _root(error: BaseException) -> str:
    """The operating system's own words, under the layers of libraries that carry them."""
    found = error
    while (under := found.__cause__ or found.__context__) is not None:
        found = under
        if isinstance(found, OSError) and found.errno:
            break
    return f"{type(found).__name__}: {found}"


def _status(error: Any, judge: dict[str, Any], hide: Callable[[str], str]) -> Trouble:
    status, message = error.status_code, _message(error, hide)
    after = _retry_after(error.response.headers)
    if status == 429:
        spent = "insufficient_quota" in message
        return Trouble("rate_limited", message, passing=not spent, retry_after=after, status=429)
    if status in PASSING_STATUS or status >= 500:
        reason: Reason = "timeout" if status in (408, 504) else "server_error"
        return Trouble(reason, message, passing=True, retry_after=after, status=status)
    fatal = _fatal(status, message, judge) if status in (401, 403, 404) else None
    return Trouble("refused", message, fatal=fatal, status=status)


def _message(error: Any, hide: Callable[[str], str]) -> str:
    body = error.body
    inner = body.get("message") if isinstance(body, dict) else None
    code = body.get("code") if isinstance(body, dict) else None
    if not isinstance(inner, str):
        inner = body if isinstance(body, str) else json.dumps(body, default=str) if body else ""
    told = hide(_without_markup(inner or str(error.message)))
    return f"HTTP {error.status_code}: {told}{f' ({code})' if code else ''}"[:SHOWN]


def _without_markup(told: str) -> str:
    """A proxy's error page in a few words: its title, or its text."""
    if not re.search(r"<(!doctype|html|head|body)\b", told[:SHOWN], re.IGNORECASE):
        return told
    title = re.search(r"<title[^>]*>(.*?)</title>", told, re.IGNORECASE | re.DOTALL)
    shown = re.sub(r"<(script|style)\b.*?</\1>", " ", told, flags=re.IGNORECASE | re.DOTALL)
    words = unescape(title[1] if title else re.sub(r"<[^>]*>", " ", shown)).split()
    return f"an HTML page: {' '.join(words) or 'without words'}"


def _fatal(status: int, message: str, judge: dict[str, Any]) -> UserError:
    if status == 404:
        return UserError(
            "The server does not know this model or this address.",
            where=judge["base_url"],
            got=message,
            expected=f"a server that has {judge['model']!r}; most addresses end in /v1",
        )
    return UserError(
        "The server does not accept the key.",
        where=judge["base_url"],
        got=message,
        fix="export OPENAI_API_KEY=..., or name another variable with `key_env`",
    )


def _retry_after(headers: Any) -> float | None:
    """Seconds, from either form that HTTP allows."""
    value = headers.get("retry-after-ms")
    if value is not None and value.strip().isdigit():
        return int(value) / 1000
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
