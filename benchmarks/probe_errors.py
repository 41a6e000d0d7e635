"""How often is `strop probe` wrong? Over simulated servers, right ones and wrong ones.

    python benchmarks/probe_errors.py --servers 200

A simulated server is a language model of its own, of a sharpness of its own, that draws from a law
that is known (`tests/served/word_law.py`); half of them do not count tokens. Right ones: a false
alarm is any "no". Wrong ones: a fault is found where the word of its knob is "no".
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "served"))

from word_law import Faults, WordLaw

from strop.probing.questions import Probe, Request, Said

FAULTS = {
    "none": (Faults(), ()),
    "ignores the seed": (Faults(ignores_seed=True), ("seed",)),
    "maps 0 to 1": (Faults(zero_is_one=True), ("temperature_0",)),
    "leaks the batch": (Faults(leaks_batch=True), ("batch",)),
    "ignores temperature": (Faults(ignores_temperature=True), ("temperature",)),
    "stops one token late": (Faults(stop_late=True), ("max_tokens", "stop")),
}


class Simulated:
    """A subject of a probe without a network between."""

    greedy = takes_stop = True

    def __init__(self, law: WordLaw, *, counts: bool) -> None:
        self.law, self.counts = law, counts
        self.knobs: dict[str, Any] = {"top_p": 0.01, "top_k": 1}

    def ask(self, requests: Sequence[Request], at_once: int = 1) -> list[Said]:
        return [self._one(request, at_once) for request in requests]

    def _one(self, request: Request, company: int) -> Said:
        told = {"seed": request.seed, "temperature": request.temperature}
        body = {**told, "max_tokens": request.max_tokens, **request.extra}
        text, tokens, why = self.law.reply(request.prompt, body, company)
        return Said(text, tokens if self.counts else None, why)


def answers(fault: str, server: int) -> dict[str, str]:
    """What the probe says of one server."""
    law = WordLaw(FAULTS[fault][0], model=server, sharpness=(0.8, 1.2, 1.6, 2.0)[server % 4])
    return {a.knob: a.word for a in Probe(Simulated(law, counts=server % 8 < 4)).run()}


def measure(servers: int, kinds: Sequence[str]) -> dict[str, Any]:
    """Per kind of server, how often each knob got which word, and how many were right."""
    found: dict[str, Any] = {}
    for fault in kinds:
        knobs = FAULTS[fault][1]
        words: Counter[str] = Counter()
        right = 0
        for server in range(servers):
            said = answers(fault, server)
            words.update(f"{knob}: {word}" for knob, word in said.items())
            wrong = [knob for knob, word in said.items() if word == "no"]
            right += not wrong if not knobs else any(knob in wrong for knob in knobs)
        found[fault] = {"servers": servers, "right": right, "words": dict(sorted(words.items()))}
        print(f"{fault}: {right} of {servers} right", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", type=int, default=200)
    parser.add_argument("--kind", choices=FAULTS, help="one kind of server instead of all")
    given = parser.parse_args()
    print(json.dumps(measure(given.servers, [given.kind] if given.kind else [*FAULTS]), indent=1))
