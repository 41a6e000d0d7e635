"""How many sequences go through a network at once: by rule, by what fits, and less after a refusal.

Only for the fast samplers, whose outputs do not depend on the batch. Dense batches share random
numbers and belong to the identity.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import torch

from strop.denoisers import Denoiser, Model
from strop.denoisers.device import ENTRY_BYTES, free_bytes, head_rows
from strop.errors import UserError, out_of_memory, whole_number
from strop.pool import Output
from strop.spec import OUTPUT_LIMIT, SamplerSpec

AUTO = "auto"
BatchSize = int | Literal["auto"]
FAST_TOKENS = 8192  # tokens per network batch: eight sequences of 1,024
DENSE_ENTRIES = 2**27  # numbers in one [B, L, V] table: half a gigabyte in float32
MOST = 1024
SHARE = {"cpu": 0.5, "cuda": 0.9}
"""Of the memory that is free now."""
STATES, TABLES = 4, 3
"""Copies of a sequence's state, and of its table of scores, that are alive at a time, at most."""
CUDA_STATES = 16
"""Of the state, where the network's own layers count too, and tables do not grow with the batch."""


def checked_batch(
    batch_size: BatchSize | None, specs: Sequence[SamplerSpec], *, sharded: bool = False
) -> BatchSize | None:
    """The batch size, if it is one and the samplers take it."""
    if batch_size is None:
        return None
    if batch_size != AUTO:
        return whole_number("batch_size", batch_size, 1, OUTPUT_LIMIT)
    if any(spec.implementation == "dense" for spec in specs):
        raise UserError(
            "Outputs of a dense batch share random numbers: its size is part of what is drawn.",
            where="`batch_size`",
            got=AUTO,
            expected="a whole number, the same on every machine",
            fix="say a number, or use `implementation=fast`",
        )
    if sharded:  # they cut the same plan without asking each other
        raise UserError(
            "Shards need batches of one size, and what fits differs from machine to machine.",
            where="`batch_size`",
            got=AUTO,
            fix="say a number",
        )
    return AUTO


def default_batch(model: Model, spec: SamplerSpec, length: int) -> int:
    """What holds where nothing is said."""
    if spec.implementation == "dense":
        return max(1, min(64, DENSE_ENTRIES // (length * model.vocab_size)))
    return max(1, min(MOST, FAST_TOKENS // length))


def largest_batch(model: Model, spec: SamplerSpec, length: int) -> int:
    """The most sequences that should fit into the memory that is free now.

    On a CPU no more than usual: there a larger batch is not faster. An estimate, from the state of
    one sequence; `Fitting` corrects it downwards.
    """
    most = default_batch(model, spec, length) if model.device.type == "cpu" else MOST
    free = free_bytes(model.device)
    if free is None:
        return most
    room = int(free * SHARE.get(model.device.type, 0.5))
    if model.device.type == "cuda":  # where the scores of all sequences together are bounded
        room -= head_rows(model.vocab_size, model.device) * model.vocab_size * ENTRY_BYTES
    return max(1, min(most, room // _bytes(model, length)))


def _bytes(model: Model, length: int) -> int:
    """Of one sequence, when all its positions are drawn at once."""
    tables = TABLES * length * model.vocab_size * 4
    if not isinstance(model, Denoiser):
        return tables
    states = STATES
    if model.device.type == "cuda":
        tables, states = 0, CUDA_STATES
    ids = torch.full((1, length), min(model.mask_id, model.vocab_size - 1), device=model.device)
    state = model.hidden(ids, torch.ones(1, device=model.device))
    return tables + states * state.numel() * state.element_size()


class Fitting:
    """Draws in batches of a size, in half of it where memory runs out, and remembers what fits."""

    def __init__(self, size: int, *, auto: bool) -> None:
        self.size, self.auto = size, auto

    def draws(
        self, draw: Callable[[Sequence[int], int], Iterable[Output]], indices: Sequence[int]
    ) -> Iterator[Output]:
        """The outputs of `draw(indices, size)`. What was drawn before a refusal is kept.

        Without `auto` a refusal is told: the size was asked for.
        """
        left = dict.fromkeys(indices)
        while left:
            size = min(self.size, len(left))
            try:
                for one in draw(list(left), size):
                    del left[one.index]
                    yield one
                continue
            except Exception as error:
                if not out_of_memory(error):
                    raise
                if not self.auto or size == 1:
                    raise _refusal(error, size, self.auto) from error
            # Outside of the handler, which keeps the tensors of the failed call alive.
            self.size = size // 2
            warnings.warn(f"Out of memory: going on with batches of {self.size}.", stacklevel=2)
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


def unit_of_auto(n: int, workers: int) -> int:
    """Outputs that a worker is given at a time, where it alone can say how many fit at once."""
    return max(1, min(MOST, -(-n // max(1, workers))))


def _refusal(error: Exception, size: int, auto: bool) -> UserError:
    fix = "use a smaller `length`" if auto or size == 1 else "use `batch_size=auto`, or a smaller"
    return UserError(
        "There is not enough memory for a batch.",
        where="`batch_size`",
        got=f"{size} sequences: {str(error).strip().splitlines()[0][:160] if str(error) else ''}",
        expected="what was drawn before is kept",
        fix=fix + ("" if auto or size == 1 else f" one than {size}"),
    )
