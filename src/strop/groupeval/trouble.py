"""What went wrong with a request, and what follows from it."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from strop.errors import UserError
from strop.groupeval.judgment import Reason

__all__ = ["Trouble", "adapted", "read_error"]

SHOWN = 300
PASSING_STATUS = (408, 409, 425)


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


def read_error(error: Exception, judge: dict[str, Any]) -> Trouble | None:
    """The SDK's exception in our terms; None if it is a bug of ours."""
    import openai

    if isinstance(error, Trouble):
        return error
    if isinstance(error, openai.APITimeoutError):
        return Trouble("timeout", "no reply within the time limit", passing=True)
    if isinstance(error, openai.APIStatusError):
        return _status(error, judge)
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__ or error
        told = f"the connection failed: {type(cause).__name__}: {cause}"
        return Trouble("server_error", told[:SHOWN], passing=True)
    if isinstance(error, (openai.APIError, ValueError)):  # a body that is not JSON
        told = f"the body cannot be read: {error}"
        return Trouble("server_error", told[:SHOWN], passing=True)
    return None


def _status(error: Any, judge: dict[str, Any]) -> Trouble:
    status, message = error.status_code, _message(error)
    after = _retry_after(error.response.headers)
    if status == 429:
        spent = "insufficient_quota" in message
        return Trouble("rate_limited", message, passing=not spent, retry_after=after, status=429)
    if status in PASSING_STATUS or status >= 500:
        reason: Reason = "timeout" if status in (408, 504) else "server_error"
        return Trouble(reason, message, passing=True, retry_after=after, status=status)
    fatal = _fatal(status, message, judge) if status in (401, 403, 404) else None
    return Trouble("refused", message, fatal=fatal, status=status)


def _message(error: Any) -> str:
    body = error.body
    inner = body.get("message") if isinstance(body, dict) else None
    code = body.get("code") if isinstance(body, dict) else None
    told = inner if isinstance(inner, str) else str(error.message)
    return f"HTTP {error.status_code}: {told}{f' ({code})' if code else ''}"[:SHOWN]


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
        fix="export OPENAI_API_KEY=..., or name another variable with --key-env",
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


def adapted(
    form: dict[str, Any], trouble: Trouble, formats: tuple[str, ...]
) -> dict[str, Any] | None:
    """The request without what the server says it does not take; None if it says no such thing."""
    if trouble.status not in (400, 422, 500, 501):
        return None
    told = trouble.detail.lower()
    if "max_completion_tokens" in told and "renamed" not in form:
        return {**form, "renamed": ["max_completion_tokens"]}
    dropped = form.get("dropped", [])
    for name in ("temperature", "top_p"):
        if name in told and name not in dropped:
            return {**form, "dropped": [*dropped, name]}
    speaks_of_form = any(w in told for w in ("response_format", "json_schema", "schema", "grammar"))
    place = formats.index(form["format"])
    if speaks_of_form and place + 1 < len(formats):
        return {**form, "format": formats[place + 1]}
    return None
