"""Who may ask: whoever knows the token, by this machine's own name, and only to read.

Any page in the same browser can send requests to 127.0.0.1, and any name on the net can be made to
mean 127.0.0.1. Neither knows the token, which is the first part of every address; and a request by
another name is refused before its token is looked at.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
NAMES = ("127.0.0.1", "localhost")
READS = ("GET", "HEAD")


def new_token() -> str:
    """What nobody guesses."""
    return secrets.token_urlsafe(24)


class Guarded:
    """An application below a token, for one host and port; it sees addresses without the token."""

    def __init__(self, app: ASGIApp, token: str, port: int, writes: Iterable[str]) -> None:
        """`writes` are the ends of the addresses that may be posted to."""
        self._app, self._token = app, token
        self._hosts = {f"{name}:{port}" for name in NAMES}
        self._writes = tuple(writes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request: refused, or handed on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refused = self._refusal(scope)
        if refused is not None:
            await refused(scope, receive, sent)
            return
        path = scope["path"].partition(self._token)[2]
        await self._app({**scope, "path": path, "raw_path": path.encode()}, receive, sent)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        if headers.getlist("host") not in [[host] for host in self._hosts]:
            return PlainTextResponse("This server answers to 127.0.0.1 alone.", 403)
        given = scope["path"].removeprefix("/").partition("/")[0]
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            words = "The address lacks the right token: open the one that `strop view` printed."
            return PlainTextResponse(words, 403)
        if scope["method"] in READS:
            return None
        if scope["method"] != "POST" or not scope["path"].endswith(self._writes):
            return PlainTextResponse("This address can be read only.", 405)
        # A browser names the page that posts; what posts without a browser knows the token.
        origin = headers.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in self._hosts}:
            return PlainTextResponse("Another page may not post here.", 403)
        if headers.get("content-type", "").partition(";")[0] != "application/json":
            return PlainTextResponse("Only JSON can be posted here.", 415)
        return None
