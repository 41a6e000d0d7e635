"""`strop view` in a thread of the test, at a port of its own."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def served(paths: Sequence[Path]) -> Iterator[str]:
    """The address of the pages of some folders."""
    uvicorn = pytest.importorskip("uvicorn")
    from strop.page.live.server import Server, Viewer

    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    app = Server(Viewer(paths), "token", port).app
    config = uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}/token/"
    server.should_exit = True
    thread.join(20)
    listening.close()
