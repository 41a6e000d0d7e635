"""Sampling from left to right with a causal language model.

A sequence of length L begins with the model's start token, which the output keeps, as in the public
evaluations; every further token is drawn from p(token | tokens before it), L - 1 draws and network
calls in all. Nothing ends it early: after an end-of-text token the model goes on, so that every
output has the same number of tokens. Temperature and top_p act as everywhere else, and so does the
precision of the draw: the same race of exponential clocks, without a mask.

After a prompt the prompt is read first, with nothing before it but what it says itself, and all L
tokens of the response are drawn.

`dense` draws one number per token of the vocabulary from one generator per batch; `fast` has the
same law from a few numbers with an address, so that an output does not depend on its batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.base import CausalModel, refuse_infinite
from strop.denoisers.device import Numbers, upload
from strop.samplers.machinery.categorical import Confirm, log_share, shaped
from strop.samplers.machinery.committing import LockstepRun, lockstep
from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.lattice import Weights, addressed

Choose = Callable[[Tensor, int], tuple[Numbers, Tensor]]
"""(log-probabilities [B, V + 1] with nothing in the last column, position) -> tokens [B], and how
likely each was."""


def dense(run: DenseRun) -> Tensor:
    """One number per token of the vocabulary and draw, from the batch's generator."""

    def choose(clean: Tensor, position: int) -> tuple[Numbers, Tensor]:  # noqa: ARG001
        token = run.draw(clean[:, :-1].to(run.dtype).exp())
        return token.cpu().numpy(), log_share(clean, token)  # waits

    run.calls = run.length - _given_length(run)
    return _left_to_right(run, run.batch, choose)


@lockstep
def fast(run: LockstepRun) -> Tensor:
    """The same law from numbers with an address."""
    draws, slots = addressed(run.spec.precision, run.stream), np.arange(len(run.outputs))
    certain, no_mask = Weights.certain(len(slots)), run.denoiser.vocab_size

    def choose(clean: Tensor, position: int) -> tuple[Numbers, Tensor]:
        where = run.address(slots, 0, np.full_like(slots, position))  # one round
        return draws.draw(clean, where, certain, no_mask)

    run.calls += run.length - _given_length(run)
    return _left_to_right(run, len(slots), choose, run.confirm)


def _given_length(run: DenseRun | LockstepRun) -> int:
    """How many tokens stand before the first one that is drawn."""
    return int((~run.begin.open[0]).sum()) if run.begin.held else 1


def _left_to_right(
    run: DenseRun | LockstepRun, batch: int, choose: Choose, confirm: Confirm = refuse_infinite
) -> Tensor:
    """The loop: read what is new, shape what follows, choose."""
    model = cast(CausalModel, run.denoiser)
    ids = upload(run.begin.ids(model.start_id).numpy(), model.device)
    memory, slots, first, read = None, np.arange(batch), _given_length(run), 0
    for position in range(first, run.length):
        scores, memory = model.read(ids[:, read:position], memory)
        read = position
        # The shared code rules a mask out: give it an empty column.
        padded = torch.nn.functional.pad(scores, (0, 1))
        token, chance = choose(shaped(padded, model.vocab_size, run.spec, confirm), position)
        ids[:, position] = upload(token, model.device)
        run.note(position - first, slots, np.full(batch, position), token)
        run.trace.chance[:, position] = chance.float()
    return ids
