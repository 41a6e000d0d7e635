"""The HTTP client: it talks to the named host alone, and reads replies up to a size.

A redirect is not followed: texts would go to a host that nobody named, and its answer would count
as the named one's. A reply is counted as it arrives, after decompression, so that neither a flood
nor a small compressed body that unfolds without end fills the memory.
"""

from __future__ import annotations

import time
from typing import Any

MOST_BYTES = 8 * 2**20
"""Of one reply, decompressed; 100,000 tokens of reasoning take about one tenth of it."""
ENCODINGS = ("", "identity", "gzip", "deflate")
"""What a reply may be packed in: one layer, of the kinds that unpack in small pieces."""


TIMES = "strop.times"
"""Under this name a response says when its first and last byte came, in seconds from sending."""


class Unreadable(Exception):
    """A reply that is not read to its end."""


class Endless(Unreadable):
    """A reply that drips on when its time is over."""


def bounded_client(seconds: float) -> Any:
    """A client for the SDK that follows no redirect and stops at `MOST_BYTES`, or at a reply that
    still drips after so many seconds."""
    from openai import DefaultAsyncHttpxClient

    class BoundedClient(DefaultAsyncHttpxClient):
        async def send(self, request: Any, **options: Any) -> Any:
            options.update(stream=True, follow_redirects=False)
            sent = time.perf_counter()
            response = await super().send(request, **options)
            try:
                return await _read(response, sent, seconds)
            finally:
                await response.aclose()

    return BoundedClient(follow_redirects=False)


async def _read(response: Any, sent: float, seconds: float) -> Any:
    """The same response with its body in memory, unpacked, and when its bytes came."""
    packed = response.headers.get("content-encoding", "").strip().lower()
    if packed not in ENCODINGS:
        raise Unreadable(f"the reply is packed as {packed[:40]!r}, not as gzip or deflate")
    body, first = bytearray(), None
    async for chunk in response.aiter_bytes():
        if first is None and chunk:
            first = time.perf_counter() - sent
        body += chunk
        if len(body) > MOST_BYTES:
            raise Unreadable(f"the reply has more than {MOST_BYTES // 2**20} MiB")
        if time.perf_counter() - sent > seconds:
            raise Endless(f"the reply has no end within {seconds:g} s")
    framing = ("content-encoding", "content-length", "transfer-encoding")
    headers = [pair for pair in response.headers.multi_items() if pair[0].lower() not in framing]
    last = time.perf_counter() - sent
    return type(response)(
        response.status_code,
        headers=headers,
        content=bytes(body),
        request=response.request,
        extensions={TIMES: (last if first is None else first, last)},
    )
