"""DUO with given tokens held fixed: its law by enumeration, and how far it is from conditional.

The denoiser here is perfect: at noise level alpha it knows the law of X_i given what noise has left
of all other positions, each of which shows its clean token with probability alpha and any token
otherwise. (The posterior adds what position i itself shows; this prediction makes it exact, and is
what training tends to.) Without a prompt, many updates then lead to the target. With tokens held
fixed they do not lead to the conditional law: what stands there is read as noisy.
"""

from __future__ import annotations

import functools
import itertools

import laws
import numpy as np
import pytest
import torch
from family_models import Table
from laws import chi_square, counts
from test_family_laws import Time, alpha
from test_output_laws import target

from strop import SamplerSpec

VOCAB, LENGTH = 3, 3
GIVEN = (0, None, None)
N, PASS, FAIL = 40_000, 1e-3, 1e-6
FORMS = pytest.mark.parametrize("implementation", ["fast", "dense"])
STATES = list(itertools.product(range(VOCAB), repeat=LENGTH))


class Perfect(Table):
    """The law of every X_i given what the others show, at any noise level."""

    def __init__(self, law: np.ndarray) -> None:
        super().__init__(VOCAB, LENGTH, mask_id=VOCAB, seed=0)
        self.law = law
        self.at = functools.cache(self._at)

    def _at(self, share: float) -> np.ndarray:
        """P(X_i = v | z without z_i): [z, i, v]."""
        seen = share * np.eye(VOCAB) + (1 - share) / VOCAB
        found = np.zeros((*[VOCAB] * LENGTH, LENGTH, VOCAB))
        for i in range(LENGTH):  # all but X_i through the noise: [z, z, v] of the other two
            joint = np.einsum("vab,ap,bq->pqv", np.moveaxis(self.law, i, 0), seen, seen)
            found[..., i, :] = np.expand_dims(joint / joint.sum(-1, keepdims=True), i)
        return found.reshape(len(STATES), LENGTH, VOCAB)

    def logits(self, hidden, sequence, position):
        state = hidden[sequence, position].numpy()
        rows = np.empty((len(state), VOCAB))
        for level in np.unique(state[:, 1]):
            at = state[:, 1] == level
            table = self.at(float(np.exp(-level)))
            rows[at] = table[state[at, 0].astype(int), position.numpy()[at]]
        return torch.from_numpy(np.log(rows))


def kernel(model: Perfect, before: float, after: float, given) -> np.ndarray:
    """The posterior update from share `before` to `after`, given tokens held: [z, z']."""
    ratio = before / after
    x = np.eye(VOCAB)[np.array(STATES)]
    joint = (after * model.at(before) + (1 - after) / VOCAB) * (ratio * x + (1 - ratio) / VOCAB)
    options = joint / joint.sum(-1, keepdims=True)
    moved = np.ones((len(STATES), len(STATES)))
    for i in range(LENGTH):
        option = options[:, i] if given[i] is None else x[:, i]
        moved *= option[:, [state[i] for state in STATES]]
    return moved


def held_law(model: Perfect, steps: int, given=GIVEN) -> np.ndarray:
    """The law of the whole text after all updates and the finish, [V, ..., V]."""
    free = [tuple(range(VOCAB)) if token is None else (token,) for token in given]
    law = np.zeros(len(STATES))
    for number, state in enumerate(STATES):
        if all(token in some for token, some in zip(state, free, strict=True)):
            law[number] = 1.0
    law /= law.sum()
    for k in range(steps + 1):
        t, s = (1e-5, 0.0) if k == steps else Time(steps).at(k)
        law = law @ kernel(model, alpha(t), alpha(s) if k < steps else 1.0, given)
    return law.reshape((VOCAB,) * LENGTH)


def conditional(law: np.ndarray) -> np.ndarray:
    kept = np.zeros_like(law)
    kept[GIVEN[0]] = law[GIVEN[0]]
    return kept / kept.sum()


def distance(p: np.ndarray, q: np.ndarray) -> float:
    return 0.5 * float(np.abs(p - q).sum())


def texts(seed: int = 2) -> np.ndarray:
    return target(VOCAB, LENGTH, seed=seed)


@FORMS
def test_the_held_sampler_has_its_enumerated_law(implementation: str) -> None:
    model = Perfect(texts())
    spec = SamplerSpec(name="duo-held", steps=4, implementation=implementation)  # type: ignore[arg-type]
    ids = laws.draw(model, spec, 5, n=N, given=GIVEN)
    seen = counts(ids, VOCAB - 1)
    assert chi_square(seen, held_law(model, 4)) > PASS
    assert chi_square(seen, conditional(model.law) + 1e-12) < FAIL
    free = held_law(model, 4, (None,) * LENGTH)
    blind = np.zeros_like(free)
    blind[GIVEN[0]] = free.sum(0)
    assert chi_square(seen, blind) < FAIL, "one that never looks at the prompt"


def test_holding_tokens_is_approximate_however_many_steps_are_taken() -> None:
    """The numbers of docs/prompts.md: on ten targets, the distance that no budget removes."""
    rows = []
    for seed in range(10):
        model = Perfect(texts(seed))
        exact = conditional(model.law)
        blind = np.zeros_like(exact)
        blind[GIVEN[0]] = model.law.sum(0)
        rows.append(
            [
                distance(held_law(model, 256, (None,) * LENGTH), model.law),
                distance(held_law(model, 64), exact),
                distance(held_law(model, 256), exact),
                distance(blind, exact),
            ]
        )
    free, few, many, blind = np.mean(rows, 0)
    assert free < 0.005, "without a prompt many steps lead to the target"
    assert few == pytest.approx(0.084, abs=0.001)
    assert many == pytest.approx(0.080, abs=0.001)
    assert blind == pytest.approx(0.326, abs=0.001)
