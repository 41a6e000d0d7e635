"""How far a run is, what the learning rate is there, and which checkpoints stay."""

from __future__ import annotations

import math

from strop.training.spec import TrainSpec


def share_done(spec: TrainSpec, step: int, seconds: float) -> float:
    """The share of the run that lies behind after `step` steps and so many seconds of training."""
    by_steps = step / spec.steps if spec.steps is not None else 0.0
    by_time = seconds / (60 * spec.minutes) if spec.minutes is not None else 0.0
    return min(1.0, max(by_steps, by_time))


def is_over(spec: TrainSpec, step: int, seconds: float) -> bool:
    """Whether steps or minutes are used up."""
    return share_done(spec, step, seconds) >= 1.0


def learning_rate(spec: TrainSpec, step: int, share: float) -> float:
    """The rate of the update number `step` (from 0), as the public warm-up has it: it starts at 0.

    After the share `decay_from` it falls to `decay_to` of itself, in a line or along a cosine.
    """
    rate = spec.lr * min(1.0, step / spec.warmup) if spec.warmup else spec.lr
    if spec.decay == "constant" or share <= spec.decay_from:
        return rate
    way = (share - spec.decay_from) / (1 - spec.decay_from)
    left = 1 - way if spec.decay == "linear" else 0.5 * (1 + math.cos(math.pi * way))
    return rate * (spec.decay_to + (1 - spec.decay_to) * left)


def is_kept(spec: TrainSpec, step: int, before: float, now: float) -> bool:
    """Whether the checkpoint after `step` steps is one that stays.

    `before` and `now` are the shares done before and after the step.
    """
    return (
        step in spec.keep_steps
        or (spec.keep_every is not None and step % spec.keep_every == 0)
        or any(before < share <= now for share in spec.keep_shares)
    )
