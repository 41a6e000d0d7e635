"""Denoisers of the families on tiny vocabularies, as tables, for laws that can be enumerated."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import torch

from strop.denoisers.base import all_log_probs
from strop.spec import CheckpointSpec


class Table:
    """Logits [contexts, L, V] by context and noise: table[context] * (1 + slope * sigma)."""

    time_conditioned = True
    codec, source, device = None, "table", torch.device("cpu")
    dtype = torch.float32

    def __init__(self, classes: int, length: int, mask_id: int, seed: int, slope: float = 0.1):
        rng = np.random.default_rng(seed)
        self.vocab_size, self.length, self.mask_id, self.slope = classes, length, mask_id, slope
        self.table = rng.normal(0, 1, (classes**length, length, classes))
        self._torch = torch.from_numpy(self.table)
        self.asked: list[tuple[int, int]] = []
        self.spec = CheckpointSpec(family="table", sha256=str(seed), shape={})

    def number(self, context) -> int:
        return int(np.ravel_multi_index(tuple(context), (self.vocab_size,) * self.length))

    def row(self, context, position: int, sigma: float) -> np.ndarray:
        return self.table[self.number(context), position] * (1 + self.slope * sigma)

    def hidden(self, ids, sigma):
        place = self.vocab_size ** torch.arange(self.length).flip(0)
        number = (ids * place).sum(-1)
        state = torch.stack([number.double(), sigma.double()], -1)
        return state[:, None].expand(-1, self.length, -1)

    def logits(self, hidden, sequence, position):
        state = hidden[sequence, position]
        self.asked.append((len(sequence), 0))
        rows = self._torch[state[:, 0].long(), position]
        return rows * (1 + self.slope * state[:, 1:])

    def log_probs(self, ids, sigma=None):
        return all_log_probs(self, ids, sigma)


class Judge:
    """A reward that is linear in the embeddings, with a table of its own for whole states."""

    def __init__(self, classes: int, length: int, width: int, seed: int):
        rng = np.random.default_rng(seed)
        self.table = rng.normal(0, 1, (classes, width))
        self.weight = rng.normal(0, 1, (length, width))
        self.vocab_embed = SimpleNamespace(embedding=torch.from_numpy(self.table))
        self._weight = torch.from_numpy(self.weight)

    def scores(self, embedded, sigma, dtype, *, frugal=False):  # noqa: ARG002
        return (embedded * self._weight).sum(-1)

    def reward(self, ids, sigma, dtype, counted=None):
        scores = self.scores(self.vocab_embed.embedding[ids], sigma, dtype)
        return (scores if counted is None else scores * counted).sum(-1)

    def gradient(self, embedded, masked, sigma, dtype):  # noqa: ARG002
        return masked[..., None] * self._weight.expand(embedded.shape)

    def worth(self, context) -> float:
        return float(sum(self.table[v] @ self.weight[i] for i, v in enumerate(context)))


def product_law(options: list[np.ndarray]) -> dict[tuple[int, ...], float]:
    """Independent positions as a law of states."""
    law = {}
    for state in itertools.product(*(np.flatnonzero(o > 0) for o in options)):
        law[tuple(map(int, state))] = math.prod(
            float(o[v]) for o, v in zip(options, state, strict=True)
        )
    return law


def chain(start: dict[tuple[int, ...], float], steps: list) -> dict[tuple[int, ...], float]:
    """Push a law of states through kernels (state -> law of the next state)."""
    law = start
    for step in steps:
        after: dict[tuple[int, ...], float] = {}
        for state, weight in law.items():
            for reached, chance in step(state).items():
                after[reached] = after.get(reached, 0.0) + weight * chance
        law = after
    return law


def softmax(z: np.ndarray) -> np.ndarray:
    p = np.exp(z - z.max())
    return p / p.sum()
