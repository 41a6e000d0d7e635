"""An OpenAI-compatible server on loopback whose law is known, and that may be wrong on purpose.

Tokens are words. The law of the next word depends on the prompt and the word before it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from word_law import Faults, WordLaw


@dataclass
class WordServer:
    """What it was asked."""

    url: str = ""
    law: WordLaw = field(default_factory=WordLaw)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    fingerprint: str | None = "fp-1"
    model: str | None = None
    """Instead of the one that was asked for."""

    @property
    def source(self) -> str:
        return f"server:{self.url}#m"


@contextmanager
def word_server(
    faults: Faults | None = None,
    *,
    apis: tuple[str, ...] = ("chat", "completions"),
    lists: bool = True,
    delay: float = 0.0,
    raw: bytes | None = None,
    status: int = 200,
    key: str | None = None,
    stall: float | None = None,
) -> Iterator[WordServer]:
    """Serve until the end of the block.

    `raw` is sent instead of every completion; with `stall` it drips without end, a byte each time.
    """
    served = WordServer(law=WordLaw(faults or Faults()))
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if not lists:
                return self.send({"error": {"message": "no such path"}}, 404)
            return self.send({"object": "list", "data": [{"id": "m", "object": "model"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            api = "chat" if self.path.endswith("/chat/completions") else "completions"
            with lock:
                served.bodies.append(body)
                served.paths.append(self.path)
                served.keys.append(self.headers.get("authorization"))
                served.at_once += 1
                served.most_at_once = max(served.most_at_once, served.at_once)
                company = served.at_once
            try:
                if key is not None and self.headers.get("authorization") != f"Bearer {key}":
                    self.send({"error": {"message": "wrong key"}}, 401)
                elif body["model"] != "m":
                    self.send({"error": {"message": f"no model {body['model']}"}}, 404)
                elif api not in apis:
                    self.send({"error": {"message": "no such path"}}, 404)
                elif raw is not None:
                    self.send(raw, status)
                else:
                    time.sleep(delay)
                    with lock:
                        company = max(company, served.at_once)
                    self.send(self.completion(body, api, company), status)
            finally:
                with lock:
                    served.at_once -= 1

        def completion(self, body: dict[str, Any], api: str, company: int) -> dict[str, Any]:
            prompt = body["messages"][-1]["content"] if api == "chat" else body["prompt"]
            text, tokens, why = served.law.reply(prompt, body, company)
            choice: dict[str, Any] = {"index": 0, "finish_reason": why}
            if api == "chat":
                choice["message"] = {"role": "assistant", "content": text}
            else:
                choice["text"] = text
            document = {
                "id": "c",
                "model": served.model or body["model"],
                "choices": [choice],
                "usage": {"prompt_tokens": len(prompt.split()), "completion_tokens": tokens},
            }
            if served.fingerprint is not None:
                document["system_fingerprint"] = served.fingerprint
            return document

        def send(self, document: Any, status: int = 200) -> None:
            content = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            kind = "text/html" if content[:1] == b"<" else "application/json"
            self.send_header("content-type", kind)
            if stall is None:
                self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            while stall is not None:  # ended by the error of writing to nobody
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(stall)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *_: Any) -> None:
            """Clients that hang up are part of the test."""

    server = Server(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
