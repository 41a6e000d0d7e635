"""Hub ids against a server on this machine that answers as the hub does.

huggingface_hub reads its settings when it is imported, so each reader is a process of its own,
which imports it anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from safetensors.torch import save
from small_checkpoints import FLAT, random_tensors

import warm_processes

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "fedcba9876543210fedcba9876543210fedcba98"
MERGES, VOCAB = b"#version: 0.2\na b\n", b'{"a": 0, "b": 1, "ab": 2}'


def _shards() -> dict[str, bytes]:
    tensors = random_tensors(prefix="backbone.")
    keys = list(tensors)
    files, places = {}, {}
    for n, part in enumerate((keys[:5], keys[5:]), start=1):
        name = f"model-0000{n}-of-00002.safetensors"
        files[name] = save({k: tensors[k] for k in part})
        places |= dict.fromkeys(part, name)
    return files | {"model.safetensors.index.json": json.dumps({"weight_map": places}).encode()}


CONFIG = json.dumps(FLAT).encode()
WEIGHTS = save(random_tensors(prefix="backbone."))
STUDENT = save(random_tensors(seed=5, prefix="backbone.backbone."))
# Every repository offers remote code; the server notes whether anyone asks for it.
REPOS: dict[tuple[str, str], tuple[str, dict[str, bytes]]] = {
    ("lab/mdlm", "main"): (
        COMMIT,
        {
            "config.json": CONFIG,
            "model.safetensors": WEIGHTS,
            "vocab.json": VOCAB,
            "merges.txt": MERGES,
            "modeling_mdlm.py": b"raise SystemExit",
        },
    ),
    ("lab/sdtt", "round-7"): (OTHER, {"config.json": CONFIG, "model.safetensors": STUDENT}),
    ("lab/sharded", "main"): (COMMIT, {"config.json": CONFIG, **_shards()}),
    ("lab/torn", "main"): (
        COMMIT,
        {k: v for k, v in _shards().items() if "00002-of" not in k},
    ),
    ("lab/empty", "main"): (COMMIT, {"README.md": b"", "pytorch_model.bin": b""}),
}


class Hub(BaseHTTPRequestHandler):
    """HEAD and GET of /owner/name/resolve/revision/file, with the hub's headers and error codes."""

    asked: list[str] = []  # noqa: RUF012

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self, body: bool) -> None:
        owner, name, _, revision, file = unquote(self.path).lstrip("/").split("/", 4)
        repo = f"{owner}/{name}"
        Hub.asked.append(f"{repo}/{file}")
        if repo == "lab/gated":
            return self._send(403, {"X-Error-Code": "GatedRepo"})
        if repo == "lab/broken":
            return self._send(404 if "config" in file else 410, {})
        known = {r: entry for (n, r), entry in REPOS.items() if n == repo}
        if not known:
            return self._send(404, {"X-Error-Code": "RepoNotFound"})
        entry = known.get(revision) or next((e for e in known.values() if e[0] == revision), None)
        if entry is None:
            return self._send(404, {"X-Error-Code": "RevisionNotFound"})
        commit, files = entry
        if file not in files:
            return self._send(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        data = files[file]
        etag = hashlib.sha256(data).hexdigest()
        return self._send(200, {"X-Repo-Commit": commit, "ETag": f'"{etag}"'}, data, body)

    def _send(
        self, code: int, headers: dict[str, str], data: bytes = b"", body: bool = False
    ) -> None:
        self.send_response(code)
        for key, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(data)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


READER = """
import json, sys, time, warnings
for name in [one for one in sys.modules if one.partition(".")[0] == "huggingface_hub"]:
    del sys.modules[name]  # what a warm process has imported knows nothing of this environment
warnings.simplefilter("ignore")
time.sleep = lambda seconds: None  # the hub's client waits between attempts
from strop.checkpoints.checkpoint import read_checkpoint
from strop.checkpoints.config import infer_shape
from strop.errors import UserError
out = []
for source, revision in json.loads(sys.argv[1]):
    try:
        c = read_checkpoint(source, revision=revision)
        out.append({"sha256": c.sha256, "revision": c.revision, "path": str(c.path),
                    "tokenizer": c.tokenizer_dir is not None, "config": c.config,
                    "heads": infer_shape(c).n_heads, "weights": c.weights,
                    "modules": [m for m in sys.modules if "modeling_mdlm" in m]})
    except UserError as error:
        out.append(str(error))
print(json.dumps(out))
"""


def read(
    endpoint: str, home: Path, *sources: tuple[str, str | None], **more: str
) -> list[dict[str, Any] | str]:
    """Read every source in one fresh process that knows only this server."""
    environment = {
        k: v for k, v in os.environ.items() if "proxy" not in k.lower() and not k.startswith("HF_")
    }
    environment |= {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
        **more,
    }
    done = warm_processes.run(
        [sys.executable, "-c", READER, json.dumps(sources)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "Retrying" not in done.stderr  # the library's own lines about what it tries
    return json.loads(done.stdout.splitlines()[-1])


def test_download_then_offline(endpoint: str, tmp_path: Path) -> None:
    Hub.asked.clear()
    sources = [
        ("lab/mdlm", None),
        ("lab/sdtt@round-7", None),
        ("lab/sdtt", "round-7"),
        ("lab/sharded", None),
        ("lab/mdlm", COMMIT),
    ]
    plain, student, same, sharded, pinned = read(endpoint, tmp_path, *sources)
    assert isinstance(plain, dict)
    assert plain["sha256"] == hashlib.sha256(WEIGHTS).hexdigest()
    assert (plain["revision"], plain["tokenizer"], plain["weights"]) == (COMMIT, True, "released")
    assert plain["config"] == FLAT
    assert plain["heads"] == 2
    assert plain["modules"] == []
    assert isinstance(student, dict)
    assert student == same
    assert student["sha256"] == hashlib.sha256(STUDENT).hexdigest()
    assert (student["revision"], student["tokenizer"]) == (OTHER, False)
    assert isinstance(sharded, dict)
    assert sharded["path"].endswith("model.safetensors.index.json")
    assert pinned == plain
    assert not any(name.endswith(".py") for name in Hub.asked)

    asked = len(Hub.asked)
    again = read(endpoint, tmp_path, *sources, HF_HUB_OFFLINE="1")
    assert again == [plain, student, same, sharded, pinned]
    assert len(Hub.asked) == asked

    # A cache filled by `hf download` does not remember which files the repository lacks.
    for memory in tmp_path.rglob(".no_exist"):
        shutil.rmtree(memory)
    assert read(endpoint, tmp_path, *sources, HF_HUB_OFFLINE="1") == again


def test_every_refusal_has_its_own_message(endpoint: str, tmp_path: Path) -> None:
    found = read(
        endpoint,
        tmp_path,
        ("lab/nothing", None),
        ("lab/gated", None),
        ("lab/mdlm@v9", None),
        ("lab/empty", None),
        ("lab/torn", None),
        ("lab/bad name", None),
        ("lab/broken", None),
    )
    wanted = [
        "no such repository",
        "is gated",
        "no such revision",
        "no weights in safetensors format",
        "lacks a part",
        "neither an existing path nor a hub id",
        "",
    ]
    for message, words in zip(found, wanted, strict=True):
        assert isinstance(message, str), message
        assert words in message
    assert all("hf download" in str(found[i]) for i in (0, 1, 3, 6))
    assert "v9" in str(found[2])


def test_offline_without_a_copy(tmp_path: Path) -> None:
    (message,) = read("http://127.0.0.1:9", tmp_path, ("lab/mdlm@x1", None), HF_HUB_OFFLINE="1")
    assert isinstance(message, str)
    assert "cannot be reached" in message
    assert (
        "hf download lab/mdlm --revision x1 --local-dir mdlm, then pass that directory" in message
    )


def test_no_connection(tmp_path: Path) -> None:
    (message,) = read("http://127.0.0.1:9", tmp_path, ("lab/mdlm", None))
    assert isinstance(message, str)
    assert "cannot be reached" in message
    assert "hf download lab/mdlm" in message


def test_a_name_without_an_address_fails_at_once(tmp_path: Path) -> None:
    """No retries for most of a minute where the hub's name has no address."""
    began = time.monotonic()
    (message,) = read("http://hub.invalid", tmp_path, ("nowhere/randm", None))
    assert time.monotonic() - began < 25  # most of it is importing torch
    assert isinstance(message, str)
    assert "no directory nowhere/randm here" in message
    assert "hub.invalid" in message
