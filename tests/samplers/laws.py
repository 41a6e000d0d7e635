"""Output laws by enumeration, written without the samplers' code, and the test against counts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from strop import SamplerSpec
from strop.prompts import Canvas, Canvases
from strop.samplers import dense_batch, fast
from strop.samplers.machinery import dense, lattice
from strop.samplers.machinery.lattice import BITS, exact_law

dense_uniforms = dense.uniforms

Context = tuple[int, ...]
Outcome = Callable[[np.ndarray, int], np.ndarray]
"""(clean-token law [V], round) -> law of one masked position's outcome [V + 1], mask last."""


def conditional(target: np.ndarray, context: Context, i: int) -> np.ndarray:
    """P(X_i = . | the visible entries of context), by direct summation; V stands for a mask."""
    vocab = target.shape[0]
    index = tuple(
        slice(None) if (x == vocab or j == i) else slice(x, x + 1) for j, x in enumerate(context)
    )
    joint = target[index].sum(axis=tuple(j for j in range(target.ndim) if j != i))
    return joint / joint.sum()


def sharpen(law: np.ndarray, temperature: float, top_p: float) -> np.ndarray:
    """Temperature, then nucleus, in plain numpy."""
    if temperature == 0:
        return np.eye(len(law))[law.argmax()]
    law = law ** (1 / temperature)
    law = law / law.sum()
    if top_p < 1:
        order = np.argsort(-law, kind="stable")
        keep, mass = [], 0.0
        for v in order:
            keep.append(v)
            mass += law[v]
            if mass >= top_p - 1e-9:
                break
        kept = np.zeros_like(law)
        kept[keep] = law[keep]
        law = kept / kept.sum()
    return law


def hazards(masses: np.ndarray) -> np.ndarray:
    tail = np.cumsum(masses[::-1])[::-1]
    return masses / tail


def exact_outcome(masses: np.ndarray) -> Outcome:
    """Exact arithmetic: revealed with the round's hazard, then a token."""
    hazard = hazards(masses)
    return lambda law, k: np.append(law * hazard[k], 1 - hazard[k])


def lattice_outcome(t: np.ndarray, s: np.ndarray, bits: int) -> Outcome:
    """The float32 race on a coarse lattice, enumerated."""

    def outcome(law: np.ndarray, k: int) -> np.ndarray:
        tokens = law.astype(np.float32) * np.float32(t[k] - s[k])
        return exact_law(np.append(tokens, np.float32(s[k])), bits)

    return outcome


def output_law(
    target: np.ndarray,
    rounds: int,
    outcome: Outcome,
    *,
    temperature: float | Sequence[float] = 1.0,
    top_p: float = 1.0,
    finish: str = "draw",
    start: Context | None = None,
) -> np.ndarray:
    """The law of what comes out, over (V + 1)^L (index V is a mask that was left).

    It begins with nothing but masks, or with `start`, whose tokens stay.

    `rounds` updates by `outcome`, then the finish: a draw (outcome of round `rounds`, given that
    the mask is ruled out), the best token, or nothing. A list of temperatures has one for every
    round and one for the finish.
    """
    heats = temperature if isinstance(temperature, Sequence) else [temperature] * (rounds + 1)
    vocab, length = target.shape[0], target.ndim
    shown = np.eye(vocab + 1)

    @functools.cache
    def clean(context: Context, i: int, k: int) -> np.ndarray:
        return sharpen(conditional(target, context, i), heats[k], top_p)

    law = np.zeros((vocab + 1,) * length)
    law[start or (vocab,) * length] = 1.0
    for k in range(rounds + 1):
        last = k == rounds
        if last and finish == "none":
            break
        after = np.zeros_like(law)
        for context in map(tuple, np.argwhere(law).tolist()):
            reached = law[context]
            for i, x in enumerate(context):
                if x != vocab:
                    option = shown[x]
                elif last and finish == "greedy":
                    option = shown[clean(context, i, k).argmax()]
                else:
                    option = outcome(clean(context, i, k), k)
                reached = np.multiply.outer(reached, option)
            after += reached
        law = after
    return law


def counts(ids: np.ndarray, vocab: int) -> np.ndarray:
    """How often each output [.., L] over 0..vocab came out."""
    length = ids.shape[1]
    table = np.zeros((vocab + 1,) * length)
    np.add.at(table, tuple(ids.T), 1)
    return table


def chi_square(observed: np.ndarray, law: np.ndarray, least: float = 5.0) -> float:
    """p-value of the counts under the law; outcomes of probability zero must not occur.

    Outcomes with an expectation under `least` are pooled.
    """
    observed, law = observed.ravel(), law.ravel() / law.sum()
    assert observed[law == 0].sum() == 0, "an impossible outcome came out"
    expected = law * observed.sum()
    small = expected < least
    seen = np.append(observed[~small], observed[small].sum())
    wanted = np.append(expected[~small], expected[small].sum())
    kept = wanted > 0
    if kept.sum() == 1:
        return 1.0  # a certain outcome, and nothing else came out
    statistic = ((seen[kept] - wanted[kept]) ** 2 / wanted[kept]).sum()
    return float(stats.chi2.sf(statistic, kept.sum() - 1))


@contextmanager
def coarse(bits: int) -> Iterator[None]:
    """Float32 random numbers of fewer bits, in both implementations: the same law, easily seen."""

    def uniforms(weights: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        found = dense_uniforms(weights, generator)
        return (found * 2**bits).floor() / 2**bits if found.dtype == torch.float32 else found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lattice, "BITS", bits)
        patch.setattr(dense, "uniforms", uniforms)
        yield


def draw(
    model: Any,
    spec: SamplerSpec,
    seed: int,
    *,
    n: int,
    bits: int = BITS,
    slots: int = 10_000,
    given: tuple[int | None, ...] | None = None,
) -> np.ndarray:
    """Ids [n, L] of n outputs by either implementation; after a prompt, with what is `given`."""
    canvas = None if given is None else Canvas("0", given)
    length = model.length if canvas is None else len(canvas.given)
    where: dict[str, Any] = {"length": length}
    if canvas is not None:
        where["canvases"] = Canvases((canvas,))
    with coarse(bits) if bits < BITS else nullcontext():
        if spec.implementation == "dense":
            done = dense_batch(model, spec, seed=seed, first=0, count=n, **where)
        else:
            job = {"seed": seed, "outputs": range(n), "slots": slots}
            done = list(fast(model, spec, **job, **where))
    ids = np.full((n, length), -1, np.int64)
    place = [*range(length)] if canvas is None else list(canvas.open)
    if canvas is not None:
        ids[:] = [-1 if token is None else token for token in canvas.given]
    drawn = np.concatenate([one.ids for one in done]).reshape(len(done), -1)
    ids[np.array([one.index for one in done])[:, None], place] = drawn
    return ids
