"""What a probe found wrong with a served model, for the footnotes of later results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from strop.disk import write
from strop.errors import UserError
from strop.served.address import ServerAddress, is_served
from strop.store.remembered import cache_folder

if TYPE_CHECKING:
    from strop.spec import CheckpointSpec

FAMILY = "served"


def keep_probe(source: str, words: Mapping[str, str], idle: Sequence[str]) -> None:
    """Keep the answers in the user's cache, under the model's identity."""
    digest = _digest(source)
    document = {"checkpoint": source, "knobs": dict(words), "idle": list(idle)}
    with suppress(OSError, UserError):
        _place(digest).parent.mkdir(parents=True, exist_ok=True)
        write(_place(digest), (json.dumps(document) + "\n").encode())


def probe_notes(digest: str) -> tuple[str, ...]:
    """A line for every result of a model of which the last probe found something wrong."""
    try:
        found = json.loads(_place(digest).read_bytes())
        wrong = [knob for knob, word in found["knobs"].items() if word == "no"]
        idle = [str(knob) for knob in found["idle"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()
    told = [f"{knob} does nothing" if knob in idle else f"{knob}: no" for knob in wrong]
    return (f"by the last `strop probe` of this server: {'; '.join(told)}",) if told else ()


def notes_on(checkpoints: Iterable[CheckpointSpec]) -> tuple[str, ...]:
    """The same for the checkpoints of cells; those that are not served have none."""
    served = dict.fromkeys(one.sha256 for one in checkpoints if one.family == FAMILY)
    return tuple(note for one in served for note in probe_notes(one))


def notes_of(sources: Iterable[str]) -> tuple[str, ...]:
    """The same for checkpoints by their names; those that are not served have none."""
    served = dict.fromkeys(str(ServerAddress.parse(one)) for one in sources if is_served(one))
    return tuple(note for one in served for note in probe_notes(_digest(one)))


def _digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


def _place(digest: str) -> Path:
    return cache_folder() / "probes" / f"{digest[:32]}.json"
