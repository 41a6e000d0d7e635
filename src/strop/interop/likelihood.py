"""log p(response | context): exactly by a causal model, by LLaDA's estimate with masks.

With masks the exact number would need all orders of revealing. What is published instead is a bound
that one can estimate: of L response tokens l are hidden, l uniform in 1..L and the places uniform
given l, and L / l times the log-probabilities of what is hidden is averaged. Its expectation is
at most log p, and equals it for one token. Here l goes round 1..L in even steps from a random
start, as in the public code, whose steps begin anew in every batch; ours do not, so that the batch
changes nothing. The random numbers belong to the seed and the tokens, not to the request's place.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from strop.denoisers.base import CausalModel, Denoiser, subs
from strop.denoisers.device import head_rows, upload_rows
from strop.errors import UserError
from strop.rng import Stream

TOKENS = 8192
"""Tokens per network batch where none is asked for."""


@dataclass(frozen=True)
class Pair:
    """A context, and the response that is scored."""

    context: tuple[int, ...]
    response: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of tokens of both."""
        return len(self.context) + len(self.response)


Score = tuple[float, bool]
"""The log-likelihood, and whether the greedy response is this one."""


def exact(model: CausalModel, pairs: Sequence[Pair], batch_size: int | None) -> list[Score]:
    """Sums of log p(token | tokens before it); a context has at least one token."""
    shapes: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, pair in enumerate(pairs):
        shapes[len(pair.context), len(pair.response)].append(index)
    scores: list[Score] = [(0.0, True)] * len(pairs)
    for (n_context, _), places in shapes.items():
        rows = batch_size or max(1, TOKENS // pairs[places[0]].size)
        for start in range(0, len(places), rows):
            batch = places[start : start + rows]
            ids = torch.tensor([pairs[i].context + pairs[i].response for i in batch])
            for i, score in zip(
                batch, _forced(model, ids.to(model.device), n_context), strict=True
            ):
                scores[i] = score
    return scores


def _forced(model: CausalModel, ids: torch.Tensor, n_context: int) -> Iterator[Score]:
    """Read a batch from left to right, whatever the model would have written."""
    total = torch.zeros(len(ids), dtype=torch.float64)
    greedy = torch.ones(len(ids), dtype=torch.bool)
    memory, read = None, 0
    for position in range(n_context, ids.shape[1]):
        scores, memory = model.read(ids[:, read:position], memory)
        read, target = position, ids[:, position]
        law = torch.log_softmax(scores.double(), -1)
        total += law.gather(1, target[:, None])[:, 0].cpu()
        greedy &= (law.argmax(-1) == target).cpu()
    yield from zip(total.tolist(), greedy.tolist(), strict=True)


def check_masked(model: Denoiser) -> None:
    """Refuse a model that the estimate does not apply to."""
    noisy = model.mask_id >= model.vocab_size
    if not noisy and not model.time_conditioned:
        return
    raise UserError(
        "The Monte Carlo estimate of a log-likelihood needs masks and a network that does not see "
        "the noise level.",
        where=model.source,
        got=f"a {model.spec.family} checkpoint, "
        + ("whose noise is not a mask" if noisy else "whose network sees the noise level"),
        expected="an MDLM, LLaDA or Dream checkpoint, or a causal model",
        fix="run generate_until tasks",
    )


def monte_carlo(
    model: Denoiser, pair: Pair, *, samples: int, seed: int, batch_size: int | None
) -> float:
    """The estimate of the bound on log p(response | context), over `samples` sets of masks."""
    hidden, counts = np.unique(patterns(pair, samples, seed), axis=0, return_counts=True)
    rows = batch_size or max(1, TOKENS // pair.size)
    log_probs = [
        _hidden_log_probs(model, pair, hidden[start : start + rows])
        for start in range(0, len(hidden), rows)
    ]
    weights = len(pair.response) / hidden.sum(1)
    return float((np.concatenate(log_probs) * weights * counts).sum() / counts.sum())


def patterns(pair: Pair, samples: int, seed: int) -> NDArray[np.bool_]:
    """Which tokens of the response each sample hides, [samples, L]."""
    length = len(pair.response)
    content = json.dumps([pair.context, pair.response]).encode()
    stream = Stream(seed, f"loglikelihood {hashlib.sha256(content).hexdigest()}")
    start = int(stream.uniform(0, 1, 0, 0) * length)
    many = 1 + (start + np.arange(samples) * length // samples) % length
    # The l places with the smallest of L numbers are a set of l drawn at random.
    numbers = stream.uniform(np.arange(samples)[:, None], 0, np.arange(length)[None], 0)
    return numbers.argsort(1).argsort(1) < many[:, None]


def _hidden_log_probs(
    model: Denoiser, pair: Pair, hidden: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Per row the sum of log p(token) over what it hides."""
    device, n_context = model.device, len(pair.context)
    clean = torch.tensor(pair.context + pair.response)
    ids = clean.repeat(len(hidden), 1)
    masked = torch.from_numpy(np.pad(hidden, ((0, 0), (n_context, 0))))
    ids[masked] = model.mask_id
    row, position = masked.nonzero(as_tuple=True)
    states = model.hidden(ids.to(device), None)
    # On the CPU all at once: other pieces would have other last bits.
    many = len(row) if device.type == "cpu" else head_rows(model.vocab_size, device)
    parts = []
    for start in range(0, len(row), many):
        rows = [part[start : start + many].numpy() for part in (row, position, clean[position])]
        sequence, at, token = upload_rows(device, *rows)
        law = subs(model.logits(states, sequence, at), model.mask_id)
        parts.append(law.gather(1, token[:, None])[:, 0].double())
    log_probs = torch.cat(parts).cpu()
    return torch.zeros(len(hidden), dtype=torch.float64).index_add_(0, row, log_probs).numpy()


def is_greedy(model: Denoiser, pair: Pair) -> bool:
    """Whether revealing the surest token first, one a call, writes this response."""
    n_context, device = len(pair.context), model.device
    ids = torch.tensor([pair.context + (model.mask_id,) * len(pair.response)]).to(device)
    for _ in pair.response:
        position = (ids[0] == model.mask_id).nonzero()[:, 0]
        position = position[position >= n_context]
        states = model.hidden(ids, None)
        law = subs(model.logits(states, torch.zeros_like(position), position), model.mask_id)
        best, token = law.max(-1)
        surest = int(best.argmax())
        column = int(position[surest])
        if int(token[surest]) != pair.response[column - n_context]:
            return False
        ids[0, column] = token[surest]
    return True
