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
        self._tables: dict[tuple[Any, ...], np.ndarray] = {}

    def _logits(self, prompt: str) -> np.ndarray:
        """Of the next word by the last one; the last row is the start's."""
        seed = hashlib.sha256(f"{self.model}/{prompt}".encode()).digest()[:8]
        rng = np.random.default_rng(int.from_bytes(seed, "big"))
        return rng.normal(0, self.sharpness, (len(WORDS) + 1, len(WORDS)))

    def reply(self, prompt: str, body: dict[str, Any], company: int = 1) -> tuple[str, int, str]:
        """A text, its tokens and why it ended."""
        faults, heat = self.faults, float(body.get("temperature", 1.0))
        if faults.ignores_temperature or (faults.zero_is_one and heat == 0):
            heat = 1.0
        heat = 0.0 if faults.always_greedy else heat
        known = body.get("seed") if not faults.ignores_seed else None
        rng = random.Random(f"{known}/{prompt}" if known is not None else None)
        shift = company if faults.leaks_batch and company > 1 else 0
        reached = self._reached(prompt, shift, heat, body)
        most = int(body.get("max_tokens", 16)) + faults.stop_late
        stops = body.get("stop") or []
        stops = [stops] if isinstance(stops, str) else stops
        words: list[str] = []
        last, why = len(WORDS), "length"
        while len(words) < most:
            last = min(int(np.searchsorted(reached[last], rng.random())), len(WORDS) - 1)
            if WORDS[last] in stops:
                why = "stop"
                words += [WORDS[last]] * faults.stop_late
                break
            words.append(WORDS[last])
        text = " ".join(words)
        if faults.echoes:
            text = f"{prompt} {text}"
        return text, len(words), why

    def _reached(self, prompt: str, shift: int, heat: float, body: dict[str, Any]) -> np.ndarray:
        """The chances of all words up to each, by the word before."""
        top_k = 0 if self.faults.ignores_top_k else int(body.get("top_k", 0))
        top_p = 1.0 if self.faults.ignores_top_p else float(body.get("top_p", 1.0))
        key = (prompt, shift, heat, top_k, top_p)
        if key not in self._tables:
            logits = np.roll(self._logits(prompt), shift, axis=1)
            best = logits == logits.max(1, keepdims=True)
            chances = best * 1.0 if heat == 0 else np.exp((logits - logits.max()) / heat)
            chances /= chances.sum(1, keepdims=True)
            order = np.argsort(-chances, axis=1)
            ordered = np.take_along_axis(chances, order, axis=1)
            out = np.cumsum(ordered, axis=1) - ordered >= top_p
            out[:, top_k or len(WORDS) :] = True
            ordered[out] = 0
            np.put_along_axis(chances, order, ordered, axis=1)
            self._tables[key] = np.cumsum(chances / chances.sum(1, keepdims=True), axis=1)
        return self._tables[key]
