"""Where a served model is: `server:URL#MODEL`; and what a probe found wrong with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from strop.disk import write
from strop.errors import UserError
from strop.store.remembered import cache_folder

if TYPE_CHECKING:
    from strop.spec.generator import CheckpointSpec


SERVER = "server:"


@dataclass(frozen=True)
class ServerAddress:
    """A model behind a URL."""

    base_url: str
    model: str

    @classmethod
    def parse(cls, source: str) -> ServerAddress:
        """From `server:URL#MODEL`."""
        url, _, model = source.removeprefix(SERVER).partition("#")
        if not url or not model:
            raise UserError(
                "The address of a served model is not complete.",
                where=source.split("@")[-1],
                expected="server:URL#MODEL, e.g. server:http://127.0.0.1:8000/v1#NAME",
                fix="write the model as the server names it behind a #",
            )
        return cls(check_url(url), model)

    def __str__(self) -> str:
        return f"{SERVER}{self.base_url}#{self.model}"


def is_served(source: object) -> bool:
    """Whether a checkpoint's name means a server."""
    return isinstance(source, str) and source.startswith(SERVER)


def check_url(url: str) -> str:
    """A base URL that can be written down: no key in it, and the same spelling every time."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(
            "The base URL cannot be used.",
            where="`base_url`",
            got=url.split("@")[-1],
            expected="http://HOST:PORT/v1 or https://HOST/v1",
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UserError(
            "The base URL carries more than an address.",
            where="`base_url`",
            got="a user, a password or a query",
            expected="the address alone: keys come from the environment and are never written",
            fix="export OPENAI_API_KEY=..., or name another variable with `key_env`",
        )
    return url.rstrip("/")


FAMILY = "served"


def keep_probe(source: str, words: Mapping[str, str], idle: Sequence[str]) -> None:
    """Keep the answers in the user's cache, under the model's identity."""
    digest = _digest(source)
    document = {"checkpoint": source, "knobs": dict(words), "idle": list(idle)}
    with suppress(OSError, UserError):
        _memory_path(digest).parent.mkdir(parents=True, exist_ok=True)
        write(_memory_path(digest), (json.dumps(document) + "\n").encode())


def probe_notes(digest: str) -> tuple[str, ...]:
    """A line for every result of a model of which the last probe found something wrong."""
    try:
        document = json.loads(_memory_path(digest).read_bytes())
        wrong = [knob for knob, word in document["knobs"].items() if word == "no"]
        idle = [str(knob) for knob in document["idle"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()
    faults = [f"{knob} does nothing" if knob in idle else f"{knob}: no" for knob in wrong]
    return (f"by the last `strop probe` of this server: {'; '.join(faults)}",) if faults else ()


def notes_on(checkpoints: Iterable[CheckpointSpec]) -> tuple[str, ...]:
    """The same for the checkpoints of cells; those that are not served have none."""
    served = dict.fromkeys(
        checkpoint.sha256 for checkpoint in checkpoints if checkpoint.family == FAMILY
    )
    return tuple(note for digest in served for note in probe_notes(digest))


def notes_of(sources: Iterable[str]) -> tuple[str, ...]:
    """The same for checkpoints by their names; those that are not served have none."""
    served = dict.fromkeys(
        str(ServerAddress.parse(source)) for source in sources if is_served(source)
    )
    return tuple(note for server in served for note in probe_notes(_digest(server)))


def _digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


def _memory_path(digest: str) -> Path:
    return cache_folder() / "probes" / f"{digest[:32]}.json"
