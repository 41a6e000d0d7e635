"""A language model of a few words with all knobs of a server, right or wrong on purpose."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import Any

import numpy as np

WORDS = (
    *("a", "the", "cat", "dog", "tree", "house", "river", "saw", "liked", "left"),
    *("found", "old", "new", "red", "small", "and", "but", "so", "then", "here"),
)


@dataclass(frozen=True)
class Faults:
    """What is wrong on purpose."""

    ignores_seed: bool = False
    zero_is_one: bool = False
    leaks_batch: bool = False
    ignores_temperature: bool = False
    always_greedy: bool = False
    stop_late: bool = False
    """Cuts one token too late, at a stop word and at `max_tokens`."""
    ignores_top_p: bool = False
    ignores_top_k: bool = False
    echoes: bool = False
    blurs: float = 0.0
    """The share of replies whose law is slightly another one, as of arithmetic in batches."""


class WordLaw:
    """The law; `model` is which of many such models."""

    def __init__(
        self, faults: Faults | None = None, model: int = 0, sharpness: float = 1.5
    ) -> None:
        self.faults, self.model, self.sharpness = faults or Faults(), model, sharpness
        self._tables: dict[str, np.ndarray] = {}

    def _table(self, prompt: str) -> np.ndarray:
        """Logits of the next word by the last one, the last row at the start."""
        if prompt not in self._tables:
            seed = hashlib.sha256(f"{self.model}/{prompt}".encode()).digest()[:8]
            rng = np.random.default_rng(int.from_bytes(seed, "big"))
            size = (len(WORDS) + 1, len(WORDS))
            self._tables[prompt] = rng.normal(0, self.sharpness, size)
        return self._tables[prompt]

    def reply(self, prompt: str, body: dict[str, Any], company: int = 1) -> tuple[str, int, str]:
        """A text, its tokens and why it ended."""
        faults, heat = self.faults, float(body.get("temperature", 1.0))
        if faults.ignores_temperature or (faults.zero_is_one and heat == 0):
            heat = 1.0
        heat = 0.0 if faults.always_greedy else heat
        known = body.get("seed") if not faults.ignores_seed else None
        rng = random.Random(f"{known}/{prompt}" if known is not None else None)
        table = self._table(prompt)
        if faults.leaks_batch and company > 1:
            table = np.roll(table, company, axis=1)
        most = int(body.get("max_tokens", 16)) + faults.stop_late
        stops = body.get("stop") or []
        stops = [stops] if isinstance(stops, str) else stops
        words: list[str] = []
        last, why = len(WORDS), "length"
        while len(words) < most:
            last = self._draw(table[last], heat, body, rng)
            if WORDS[last] in stops:
                why = "stop"
                words += [WORDS[last]] * faults.stop_late
                break
            words.append(WORDS[last])
        text = " ".join(words)
        if faults.echoes:
            text = f"{prompt} {text}"
        return text, len(words), why

    def _draw(
        self, logits: np.ndarray, heat: float, body: dict[str, Any], rng: random.Random
    ) -> int:
        point = rng.random()
        if heat == 0:
            return int(logits.argmax())
        chances = np.exp((logits - logits.max()) / heat)
        chances /= chances.sum()
        order = np.argsort(-chances)
        if "top_k" in body and not self.faults.ignores_top_k and body["top_k"] > 0:
            chances[order[int(body["top_k"]) :]] = 0
        if "top_p" in body and not self.faults.ignores_top_p:
            before = np.cumsum(chances[order]) - chances[order]
            chances[order[before >= body["top_p"]]] = 0
        reached = np.cumsum(chances / chances.sum())
        return min(int(np.searchsorted(reached, point, side="right")), len(WORDS) - 1)
