"""A causal language model that scores text: per-token log-probabilities in flat memory.

The body of the network runs once over a batch; the head, whose output has a column per token of the
vocabulary, runs over a few rows at a time and only where a token counts. Sums over tokens are
float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.errors import UserError
from strop.spec import EvaluatorSpec


@dataclass(frozen=True)
class EvaluatorRecipe:
    """How an evaluator was loaded, so that another process can load it too: all but the device."""

    name: str
    """A whole path, a hub id, `embedded:NAME`."""
    revision: str | None
    dtype: str


HEAD_ENTRIES = 2**23
"""Numbers in one slice of the head's output: 32 MB in float32."""

PROBE = 8
"""Tokens on which the sliced head is compared with the model's own logits at loading."""


@dataclass(frozen=True)
class Evaluator:
    """A network, its tokenizer, and what identifies both."""

    spec: EvaluatorSpec
    """Everything its numbers depend on."""
    source: str
    """Where it came from, for people."""
    network: Any
    """A causal model of transformers, in evaluation mode."""
    tokenizer: Any
    """Its tokenizer."""
    device: torch.device
    end_of_text: int | None
    """The id that a document boundary is read as: of `<|endoftext|>`, else the end token's."""
    sliced: bool
    """Whether body and head can run apart; if not, all logits are made at once."""
    recipe: EvaluatorRecipe
    """For other processes."""

    @property
    def context(self) -> int:
        """The most tokens it reads at once."""
        return self.spec.context

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts, without any token that is not in them."""
        if not texts:
            return []
        return self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]

    def encode_as_called(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids that the tokenizer gives by default, with what it adds."""
        return self.tokenizer(list(texts))["input_ids"] if texts else []

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, spaces as they are, special tokens included."""
        return self.tokenizer.decode(
            list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )

    @torch.no_grad()
    def log_probs(
        self, ids: Sequence[NDArray[np.int64]], wanted: Sequence[NDArray[np.bool_]] | None = None
    ) -> list[NDArray[np.float64]]:
        """Log p(token j | tokens before j) for every sequence, as one batch.

        Entry j is zero where the token is not wanted, and at j = 0, which has no context. No
        sequence may be longer than the context. Short ones are filled up at their end, which a
        causal model cannot see.
        """
        lengths = [len(one) for one in ids]
        out = [np.zeros(size) for size in lengths]
        if max(lengths, default=0) < 2:
            return out
        if max(lengths) > self.context:
            raise ValueError(f"{max(lengths)} tokens do not fit a context of {self.context}")
        batch = torch.zeros(len(ids), max(lengths), dtype=torch.long)
        want = torch.zeros_like(batch, dtype=torch.bool)
        for row, one in enumerate(ids):
            batch[row, : len(one)] = torch.from_numpy(np.asarray(one, np.int64))
            want[row, 1 : len(one)] = (
                True if wanted is None else torch.from_numpy(np.array(wanted[row][1:]))
            )
        sequence, position = torch.nonzero(want, as_tuple=True)
        values = self._score(batch.to(self.device), sequence, position).cpu().numpy()
        if not np.isfinite(values).all():
            raise UserError(
                "The evaluator's probabilities are not numbers.",
                where=self.source,
                got=f"{int((~np.isfinite(values)).sum())} of {len(values)} tokens",
                fix="check its weights, or use `dtype=float32`",
            )
        for row in range(len(ids)):
            mine = (sequence == row).numpy()
            out[row][position[sequence == row].numpy()] = values[mine]
        return out

    def _score(self, batch: Tensor, sequence: Tensor, position: Tensor) -> Tensor:
        """Log-probabilities, float64, of the tokens at the given places."""
        sequence, position = sequence.to(batch.device), position.to(batch.device)
        targets = batch[sequence, position]
        if not self.sliced:
            logits = self.network(input_ids=batch, use_cache=False).logits
            return _picked(logits[sequence, position - 1].float(), targets)
        hidden = self.network.base_model(input_ids=batch, use_cache=False)[0]
        rows = hidden[sequence, position - 1]
        return chunked_log_probs(self.network.get_output_embeddings(), rows, targets)


def chunked_log_probs(head: Any, rows: Tensor, targets: Tensor) -> Tensor:
    """Log-probabilities [R], float64, of targets under head(rows), a slice of rows at a time."""
    size = max(1, HEAD_ENTRIES // head.weight.shape[0])
    pieces = [
        _picked(head(rows[start : start + size]).float(), targets[start : start + size])
        for start in range(0, len(rows), size)
    ]
    return torch.cat(pieces) if pieces else torch.zeros(0, dtype=torch.float64)


def _picked(logits: Tensor, targets: Tensor) -> Tensor:
    """Log-softmax at the targets; overwrites the logits, so that no copy of them is made.

    One row is summed in the logits' own precision, pairwise: a float64 sum would copy the slice at
    twice its size for a seventh digit that the logits do not have.
    """
    logits.sub_(logits.amax(-1, keepdim=True))
    chosen = logits.gather(-1, targets[:, None])[:, 0].double()
    return chosen - logits.exp_().sum(-1).double().log()


@torch.no_grad()
def head_comes_apart(network: Any, device: torch.device) -> bool:
    """Whether head(body(ids)) is what the model itself returns.

    Some models scale or cap their logits after the head; those run whole.
    """
    head = network.get_output_embeddings()
    if head is None or getattr(head, "weight", None) is None:
        return False
    ids = (torch.arange(PROBE, device=device) % head.weight.shape[0])[None]
    whole = network(input_ids=ids, use_cache=False).logits.float()
    apart = head(network.base_model(input_ids=ids, use_cache=False)[0]).float()
    return whole.shape == apart.shape and torch.allclose(whole, apart, rtol=1e-3, atol=1e-3)
