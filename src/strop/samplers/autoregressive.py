"""Sampling from left to right with a causal language model.

A sequence of length L begins with the model's start token, which the output keeps, as in the public
evaluations; every further token is drawn from p(token | tokens before it), L - 1 draws and network
calls in all. Nothing ends it early: after an end-of-text token the model goes on, so that every
output has the same number of tokens. Temperature and top_p act as everywhere else, and so does the
precision of the draw: the same race of exponential clocks, without a mask.

`dense` draws one number per token of the vocabulary from one generator per batch; `fast` has the
same law from a few numbers with an address, so that an output does not depend on its batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.denoisers.base import CausalModel
from strop.rng import Stream
from strop.samplers.machinery.addressed import addressed
from strop.samplers.machinery.categorical import shaped
from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.packed import Finished
from strop.spec import SamplerSpec

__all__ = ["dense", "fast"]

Choose = Callable[[Tensor, int], Tensor]
"""(log-probabilities [B, V + 1] with nothing in the last column, position) -> tokens [B]."""


def dense(run: DenseRun) -> Tensor:
    """One number per token of the vocabulary and draw, from the batch's generator."""
    model = cast(CausalModel, run.denoiser)

    def choose(clean: Tensor, position: int) -> Tensor:  # noqa: ARG001
        return run.draw(clean[:, :-1].to(run.dtype).exp())

    run.calls = run.length - 1
    return _left_to_right(model, run.spec, run.batch, run.length, choose)


def fast(
    model: CausalModel,
    spec: SamplerSpec,
    *,
    seed: int,
    outputs: Iterable[int],
    slots: int,
    length: int,
    bits: int,
) -> Iterator[Finished]:
    """The given outputs in their order, `slots` at a time."""
    waiting = iter(outputs)
    while batch := list(islice(waiting, slots)):
        start = time.perf_counter()
        choose = _addressed(model, spec, seed, np.array(batch), bits)
        rows = _left_to_right(model, spec, len(batch), length, choose).cpu().numpy()
        seconds = (time.perf_counter() - start) / len(batch)
        for output, ids in zip(batch, rows, strict=True):
            yield Finished(output, ids, length - 1, seconds, leftover_masks=0)


def _addressed(
    model: CausalModel, spec: SamplerSpec, seed: int, output: NDArray[np.int64], bits: int
) -> Choose:
    stream = Stream(seed, "autoregressive")
    # One round, in which the tokens have all the weight and the mask has none.
    draws = addressed(spec.precision, stream, np.ones(1), np.zeros(1), bits)
    nobody = model.vocab_size

    def choose(clean: Tensor, position: int) -> Tensor:
        where = np.full(len(output), position)
        tokens = draws.draw(clean, output, np.zeros_like(output), where, nobody)
        return torch.from_numpy(tokens).to(model.device)

    return choose


def _left_to_right(
    model: CausalModel, spec: SamplerSpec, batch: int, length: int, choose: Choose
) -> Tensor:
    """The loop: read the last token, shape what follows, choose."""
    ids = torch.full((batch, length), model.start_id, device=model.device)
    memory = None
    for position in range(1, length):
        scores, memory = model.read(ids[:, position - 1 : position], memory)
        # The shared code rules a mask out: give it an empty column.
        padded = torch.nn.functional.pad(scores, (0, 1))
        ids[:, position] = choose(shaped(padded, model.vocab_size, spec), position)
    return ids
