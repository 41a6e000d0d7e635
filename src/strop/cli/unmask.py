"""Replaying one output in the terminal: which tokens were there after which round.

What is replayed is the round after which each token last changed, as the run keeps it. A sampler
that revises tokens may have shown others before; those are not kept.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from strop.assets import EMBEDDED, embedded_path
from strop.cli import output

FRAMES = 12
"""Rounds that are shown where there is no terminal to redraw."""
SECONDS = 6.0
"""How long a replay takes in a terminal, at most."""
HIDDEN = "░"
GPT2 = (50257, 50258)
"""Vocabularies of GPT-2's tokenizer, without and with a mask."""

Decode = Callable[[Sequence[int]], str]


def decoder(source: str, shape: Mapping[str, Any]) -> Decode | None:
    """Tokens to text, where the checkpoint's tokenizer is at hand; nothing is downloaded."""
    place = embedded_path(source) if source.startswith(EMBEDDED) else Path(source)
    place = place if place.is_dir() else place.parent
    known = (place / "tokenizer.json").is_file()
    if not known and shape.get("vocab_size") not in GPT2:
        return None
    try:
        from strop.denoisers.tokenizer import TextCodec

        codec = TextCodec.from_directory(place) if known else TextCodec.gpt2()
    except ModuleNotFoundError:
        return None
    mask = shape.get("mask_id")
    return lambda ids: codec.decode(ids, mask_id=mask)


def replay(entry: Mapping[str, Any], decode: Decode | None) -> None:
    """Show an output round by round; `decode` is None where no tokenizer is known."""
    rounds = sorted({0, *entry["changed"]})
    frames = [(number, _frame(entry, number, decode)) for number in rounds]
    if not sys.stdout.isatty():
        for number, text in _some(frames):
            output.say(f"after round {number}: {text}")
        return
    from rich.live import Live
    from rich.text import Text

    pause = min(0.4, SECONDS / len(frames))
    with Live(console=output.console(), auto_refresh=False) as live:
        for number, text in frames:
            shown = output.harmless(f"after round {number} of {rounds[-1]}\n\n{text}")
            live.update(Text(shown), refresh=True)
            time.sleep(pause)


def _some(frames: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """At most a dozen, evenly spread, the last among them."""
    if len(frames) <= FRAMES:
        yield from frames
        return
    yield from (frames[round(i * (len(frames) - 1) / (FRAMES - 1))] for i in range(FRAMES))


def _frame(entry: Mapping[str, Any], number: int, decode: Decode | None) -> str:
    """The tokens that stand since `number` or earlier; a run of others is one mark and a count."""
    tokens = [
        token if changed <= number else None
        for token, changed in zip(entry["ids"], entry["changed"], strict=True)
    ]
    parts = []
    for there, group in groupby(tokens, key=lambda token: token is not None):
        run = list(group)
        ids = [token for token in run if token is not None]
        if not there:
            parts.append(HIDDEN * min(3, len(run)) + (f"({len(run)})" if len(run) > 3 else ""))
        elif decode is None:
            parts.append(" ".join(map(str, ids)))
        else:
            parts.append(output.visible(decode(ids)))
    return ("" if decode is not None else " ").join(parts)
