"""A proxy before a real server that spoils what passes through it, on purpose."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Spoil = Callable[[dict[str, Any], int], dict[str, Any]]
"""From a request's body, and how many are under way, to what is passed on."""


def ignores_seed(body: dict[str, Any], _: int) -> dict[str, Any]:
    ignores_seed.count += 1
    return {**body, "seed": ignores_seed.count}


ignores_seed.count = 10_000  # type: ignore[attr-defined]


def zero_is_one(body: dict[str, Any], _: int) -> dict[str, Any]:
    return {**body, "temperature": body["temperature"] or 1.0}


def ignores_temperature(body: dict[str, Any], _: int) -> dict[str, Any]:
    return {**body, "temperature": 1.0}


def leaks_batch(body: dict[str, Any], company: int) -> dict[str, Any]:
    if company < 2:
        return body
    said = [{**one, "content": f"({company}) {one['content']}"} for one in body["messages"]]
    return {**body, "messages": said}


def stops_late(body: dict[str, Any], _: int) -> dict[str, Any]:
    return {**body, "max_tokens": body["max_tokens"] + 1}


@contextmanager
def proxy(target: str, spoil: Spoil) -> Iterator[str]:
    """The address of a proxy before `target`, a base URL."""
    lock, under_way = threading.Lock(), [0]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.passed(None)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                under_way[0] += 1
                company = under_way[0]
            try:
                self.passed(json.dumps(spoil(body, company)).encode())
            finally:
                with lock:
                    under_way[0] -= 1

        def passed(self, body: bytes | None) -> None:
            request = urllib.request.Request(
                target + self.path.removeprefix("/v1"), body, {"content-type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request, timeout=300) as found:
                    status, content = found.status, found.read()
            except urllib.error.HTTPError as error:
                status, content = error.code, error.read()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
