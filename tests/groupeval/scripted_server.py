"""An OpenAI-compatible server on loopback that does exactly what a script says."""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from string import ascii_uppercase
from typing import Any

from pools import verdict

from strop.groupeval.endpoint import PROBE
from strop.groupeval.profile import Profile


@dataclass
class Action:
    """What to do with one request."""

    content: str | None = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    error: dict[str, Any] | None = None
    finish_reason: str = "stop"
    refusal: str | None = None
    delay: float = 0.0
    body: bytes | None = None
    """Sent instead of a completion."""
    cut: int | None = None
    """Bytes after which the connection breaks, though more were promised."""
    drop: bool = False
    """Close without a word."""
    drip: float = 0.0
    """Seconds between two bytes."""
    flood: bytes | None = None
    """Sent after the body, again and again, until the client hangs up."""


def labels_of(body: dict[str, Any]) -> list[str]:
    """The ids that a request asks about."""
    return re.findall(r'^\{"id": "(\w+)", "text"', body["messages"][-1]["content"], re.MULTILINE)


def is_probe(body: dict[str, Any]) -> bool:
    """Whether a request only finds out which settings are taken."""
    return body["messages"] == PROBE


def agree(body: dict[str, Any], **options: Any) -> Action:
    return Action(json.dumps(verdict(labels_of(body))), **options)


def answers_verdict(body: dict[str, Any]) -> str:
    """Under answers-v1: all answers but empty ones are good, each of another kind."""
    lines = body["messages"][-1]["content"].split("\n")
    rows = [json.loads(one) for one in lines if one.startswith('{"id"') and '"text"' in one]
    outputs = []
    for i, row in enumerate(rows):
        good = bool(row["text"])
        grades = dict.fromkeys(Profile.load("answers-v1").dimensions, 2 * good)
        mode = ascii_uppercase[i] if good else None
        outputs.append({"id": row["id"], "valid": good, **grades, "mode": mode, "hybrid": False})
    return json.dumps({"outputs": outputs, "confidence": "high"})


Script = Callable[[dict[str, Any], int], Action]
"""From a request and how often it came (1, 2, ...) to what happens."""


@dataclass
class Served:
    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    """All but the probes."""
    probes: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)
    seen: Counter[str] = field(default_factory=Counter)
    at_once: int = 0
    most_at_once: int = 0

    @property
    def received(self) -> int:
        return len(self.requests) + len(self.probes)


@contextmanager
def serving(
    script: Script,
    probe: Script = lambda *_: Action("{}"),
    context: ssl.SSLContext | None = None,
) -> Iterator[Served]:
    """Answer by the script, and probes by a script of their own, by default with goodwill.

    With a `context` the server speaks TLS.
    """
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if is_probe(body):
                served.probes.append(body)
                self.act(body, probe(body, len(served.probes)))
                return
            with lock:
                served.requests.append(body)
                served.times.append(time.monotonic())
                served.keys.add(self.headers.get("authorization"))
                served.seen[" ".join(labels_of(body))] += 1
                count = served.seen[" ".join(labels_of(body))]
                served.at_once += 1
                served.most_at_once = max(served.most_at_once, served.at_once)
            try:
                self.act(body, script(body, count))
            finally:
                with lock:
                    served.at_once -= 1

        def act(self, body: dict[str, Any], action: Action) -> None:
            time.sleep(action.delay)
            if action.drop:
                self.close_connection = True
                return
            content = action.body if action.body is not None else self.completion(body, action)
            self.send_response(action.status)
            for name, value in action.headers.items():
                self.send_header(name, value)
            self.send_header("content-type", "application/json")
            if action.flood is None:
                self.send_header("content-length", str(len(content)))
            self.end_headers()
            if action.flood is not None:
                self.close_connection = True
                self.wfile.write(content)
                while True:  # ended by the error of writing to nobody
                    self.wfile.write(action.flood)
            if action.drip:
                for place in range(len(content)):
                    self.wfile.write(content[place : place + 1])
                    time.sleep(action.drip)
                return
            self.wfile.write(content[: action.cut])
            if action.cut is not None:
                self.close_connection = True

        def completion(self, body: dict[str, Any], action: Action) -> bytes:
            if action.status != 200:
                return json.dumps({"error": action.error or {"message": "no"}}).encode()
            message = {"role": "assistant", "content": action.content, "refusal": action.refusal}
            choice = {"index": 0, "message": message, "finish_reason": action.finish_reason}
            document = {
                "id": "c",
                "object": "chat.completion",
                "created": 1,
                "model": body["model"] + "-served",
                "system_fingerprint": "fp-1",
                "choices": [choice],
                "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100},
            }
            return json.dumps(document).encode()

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *_: Any) -> None:
            """Clients that hang up are part of the script."""

    server = Server(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "http" if context is None else "https"
    served = Served(f"{scheme}://127.0.0.1:{server.server_address[1]}/v1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
