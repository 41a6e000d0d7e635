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

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.base import CausalModel
from strop.samplers.machinery.addressed import Address, Weights, addressed
from strop.samplers.machinery.categorical import shaped
from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.lockstep import LockstepRun, lockstep

__all__ = ["dense", "fast"]

Choose = Callable[[Tensor, int], Tensor]
"""(log-probabilities [B, V + 1] with nothing in the last column, position) -> tokens [B]."""


def dense(run: DenseRun) -> Tensor:
    """One number per token of the vocabulary and draw, from the batch's generator."""

    def choose(clean: Tensor, position: int) -> Tensor:  # noqa: ARG001
        return run.draw(clean[:, :-1].to(run.dtype).exp())

    run.calls = run.length - 1
    return _left_to_right(run, run.batch, choose)


@lockstep
def fast(run: LockstepRun) -> Tensor:
    """The same law from numbers with an address."""
    draws, output = addressed(run.spec.precision, run.stream), run.outputs
    # One round, in which the tokens have all the weight and the mask has none.
    weights = Weights(np.ones(len(output)), np.zeros(len(output)))
    nobody, device = run.denoiser.vocab_size, run.denoiser.device

    def choose(clean: Tensor, position: int) -> Tensor:
        where = Address(output, np.zeros_like(output), np.full_like(output, position))
        return torch.from_numpy(draws.draw(clean, where, weights, nobody)).to(device)

    run.calls += run.length - 1
    return _left_to_right(run, len(output), choose)


def _left_to_right(run: DenseRun | LockstepRun, batch: int, choose: Choose) -> Tensor:
    """The loop: read the last token, shape what follows, choose."""
    model = cast(CausalModel, run.denoiser)
    ids = torch.full((batch, run.length), model.start_id, device=model.device)
    memory, slots = None, np.arange(batch)
    for position in range(1, run.length):
        scores, memory = model.read(ids[:, position - 1 : position], memory)
        # The shared code rules a mask out: give it an empty column.
        padded = torch.nn.functional.pad(scores, (0, 1))
        token = choose(shaped(padded, model.vocab_size, run.spec), position)
        ids[:, position] = token
        run.note(position - 1, slots, np.full(batch, position), token.cpu().numpy())
    return ids
