"""The posterior loss against the exact accounting: both estimators, their variance, the slope."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from strop.denoisers import TabularDenoiser
from strop.denoisers.tabular import MarkovDenoiser
from strop.errors import UserError
from strop.instruments import posterior
from strop.instruments.posterior import (
    Contexts,
    check_temperatures,
    deployed_contexts,
    forced_contexts,
    level_contexts,
    measure,
)
from strop.samplers.machinery.start import reveal_grid
from strop.spec import SamplerSpec
from strop.theory.accounting import account, loss_profile, random_chain, token_losses
from strop.theory.sampler import LawProblem
from strop.theory.target import Target

STEPS = 3
LENGTH, VALUES = 4, 3
TAUS = (0.8, 0.9, 1.0, 1.1)


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.dirichlet((VALUES,) * LENGTH, 0.4, np.random.default_rng(5))


def masses(steps: int = STEPS) -> np.ndarray:
    return reveal_grid(SamplerSpec(steps=steps)).masses


def problem(target: Target, tau: float, steps: int = STEPS) -> LawProblem:
    grid = np.append(0.0, np.cumsum(masses(steps)))
    grid[-1] = 1.0
    return LawProblem.bayes(target, grid, 1 / tau)


def exact(target: Target, tau: float, steps: int = STEPS) -> float:
    """J_N / L from the theory room."""
    return account(problem(target, tau, steps)).J_N / target.L


def every_context(target: Target) -> tuple[np.ndarray, Contexts, np.ndarray]:
    """All (x, k, i, A) with their probabilities."""
    delta = masses()
    levels = np.append(0.0, np.cumsum(delta)[:-1])
    rows = []
    for x in itertools.product(range(VALUES), repeat=LENGTH):
        for k, level in enumerate(levels):
            for i in range(LENGTH):
                for hide in itertools.product((False, True), repeat=LENGTH):
                    if hide[i]:
                        others = sum(hide) - 1
                        chance = (1 - level) ** others * level ** (LENGTH - 1 - others)
                        weight = target.P[x] * delta[k] / LENGTH * chance
                        rows.append((x, k, level, i, hide, weight))
    x, k, level, i, hide, weight = zip(*rows, strict=True)
    n = len(rows)
    contexts = Contexts(
        np.arange(n), np.array(k), np.array(level), np.array(i), np.array(hide, dtype=bool)
    )
    return np.array(x), contexts, np.array(weight)


def test_both_estimators_are_unbiased_and_averaging_never_adds_variance(target):
    # Every context with its exact probability: no sampling, so equality to rounding.
    x, contexts, weight = every_context(target)
    assert weight.sum() == pytest.approx(1, abs=1e-12)
    losses = measure(TabularDenoiser(target.P), x, contexts, TAUS)
    for column, tau in enumerate(TAUS):
        wanted = exact(target, tau)
        one, mean = losses.target[:, column], losses.masked[:, column]
        assert weight @ one == pytest.approx(wanted, abs=1e-12)
        assert weight @ mean == pytest.approx(wanted, abs=1e-12)
        ratio = (weight @ one**2 - wanted**2) / (weight @ mean**2 - wanted**2)
        assert ratio > 1.3, f"variance ratio {ratio:.3f} at tau = {tau}"
    # Negative control: the mean without the forced target weighs contexts differently.
    free = weight * contexts.hidden.sum(1)  # as if larger hidden sets were likelier
    assert abs(free @ losses.masked[:, 2] / free.sum() - exact(target, 1.0)) > 0.005


def test_slope_is_the_derivative_by_inverse_temperature(target):
    x, contexts, weight = every_context(target)
    # An exact model has no slope at 1, so look at one that is not: another target's posteriors.
    wrong = Target.dirichlet((VALUES,) * LENGTH, 0.4, np.random.default_rng(6))
    step = 1e-5
    taus = (1 / (1 + step), 1.0, 1 / (1 - step))
    losses = measure(TabularDenoiser(wrong.P), x, contexts, taus)
    for values, slope in (
        (losses.target, losses.target_slope),
        (losses.masked, losses.masked_slope),
    ):
        central = (values[:, 0] - values[:, 2]) / (2 * step)
        assert slope == pytest.approx(central, abs=1e-6)
    assert weight @ losses.target_slope == pytest.approx(weight @ losses.masked_slope, abs=1e-12)
    assert abs(weight @ losses.masked_slope) > 0.1
    right = measure(TabularDenoiser(target.P), x, contexts, (1.0,))
    assert weight @ right.masked_slope == pytest.approx(0, abs=1e-12)


def test_curvature_is_the_second_derivative_by_inverse_temperature(target):
    x, contexts, weight = every_context(target)
    step = 1e-3
    taus = (1 / (1 + step), 1.0, 1 / (1 - step))
    losses = measure(TabularDenoiser(target.P), x, contexts, taus)
    for values, curvature in (
        (losses.target, losses.target_curvature),
        (losses.masked, losses.masked_curvature),
    ):
        central = (values[:, 0] - 2 * values[:, 1] + values[:, 2]) / step**2
        assert curvature == pytest.approx(central, abs=1e-4)
    assert weight @ losses.masked_curvature > 0.01


def drawn(target: Target, n: int, steps: int, seed: int = 3) -> tuple[np.ndarray, Contexts]:
    flat = np.random.default_rng(9).choice(target.size, size=n, p=target.p)
    x = np.stack(np.unravel_index(flat, target.shape), axis=1)
    return x, deployed_contexts(steps, seed=seed, sequences=np.arange(n), length=LENGTH)


@pytest.mark.parametrize("steps", [1, 2, 8])
def test_drawn_contexts_give_the_exact_loss(target, steps):
    # 40,000 contexts: the standard error is about .005 nats, so a bias of .03 is found with a
    # chance beyond .99 at five standard errors.
    x, contexts = drawn(target, 40_000, steps)
    losses = measure(TabularDenoiser(target.P), x, contexts, (0.9, 1.0))
    for column, tau in enumerate((0.9, 1.0)):
        wanted = exact(target, tau, steps)
        for values in (losses.target[:, column], losses.masked[:, column]):
            error = values.std() / np.sqrt(len(values))
            assert error < 0.006
            assert abs(values.mean() - wanted) < 5 * error


def test_the_same_test_finds_a_wrong_grid(target):
    # Negative controls: contexts of another budget, and contexts of one round later.
    x, contexts = drawn(target, 40_000, 8)
    denoiser = TabularDenoiser(target.P)
    late = forced_contexts(
        3,
        contexts.sequence,
        contexts.round,
        np.append(np.cumsum(masses(8))[:-1], 1.0)[contexts.round],
        length=LENGTH,
        address=8,
        draw=0,
        kind="late",
    )
    for wrong, wanted in ((contexts, exact(target, 1.0, 1)), (late, exact(target, 1.0, 8))):
        values = measure(denoiser, x, wrong, (1.0,)).masked[:, 0]
        error = values.std() / np.sqrt(len(values))
        assert abs(values.mean() - wanted) > 5 * error


def test_levels_follow_the_masses():
    n = 200_000
    contexts = deployed_contexts(4, seed=1, sequences=np.arange(n), length=4)
    share = np.bincount(contexts.round, minlength=5) / n
    assert share[:4] == pytest.approx(masses(4)[:4], abs=5 * np.sqrt(0.1875 / n))
    assert share[4] < 5e-5  # the finish has 1e-5
    np.testing.assert_allclose(contexts.level, contexts.round * (1 - 1e-5) / 4, rtol=0, atol=1e-12)
    visible = 1 - (contexts.hidden.sum(1) - 1) / 3
    for k in range(4):
        here = contexts.round == k
        assert visible[here].mean() == pytest.approx(k / 4, abs=0.01)
    assert contexts.hidden[np.arange(n), contexts.target].all()
    assert np.bincount(contexts.target) / n == pytest.approx(0.25, abs=0.005)


def test_contexts_depend_on_their_address_alone():
    few = deployed_contexts(8, seed=1, sequences=np.arange(4), length=16)
    many = deployed_contexts(8, seed=1, sequences=np.arange(9), length=16)
    assert (many.hidden[:4] == few.hidden).all()
    assert (many.target[:4] == few.target).all()
    for other in (
        deployed_contexts(8, seed=2, sequences=np.arange(4), length=16),
        deployed_contexts(9, seed=1, sequences=np.arange(4), length=16),
        deployed_contexts(8, seed=1, sequences=np.arange(4), length=16, draw=1),
        level_contexts(8, 32, seed=1, sequences=np.arange(4), length=16),
    ):
        assert (other.hidden != few.hidden).any()


def test_profile_levels_give_the_exact_profile(target):
    n = 20_000
    flat = np.random.default_rng(9).choice(target.size, size=n, p=target.p)
    x = np.stack(np.unravel_index(flat, target.shape), axis=1)
    exact_profile = loss_profile(token_losses(target, problem(target, 1.0).tables())[0], LENGTH)
    for level in (0, 5, 8):
        contexts = level_contexts(level, 9, seed=2, sequences=np.arange(n), length=LENGTH)
        values = measure(TabularDenoiser(target.P), x, contexts, (1.0,)).masked[:, 0]
        wanted = float(exact_profile(level / 9)) / LENGTH
        error = values.std() / np.sqrt(n)
        assert error < 0.006
        assert abs(values.mean() - wanted) < 5 * error


def test_a_long_chain_and_the_variance_it_saves():
    # 64 tokens: B_N + C_N + H over L is exact at any length; averaging pays more in long contexts.
    chain = random_chain(4, 64, np.random.default_rng(1))
    x = chain.draw(4_000, np.random.default_rng(2))
    contexts = deployed_contexts(8, seed=0, sequences=np.arange(len(x)), length=64)
    losses = measure(MarkovDenoiser(chain.kernel, 64), x, contexts, (0.9, 1.0))
    price, error = chain.account(masses(8), [1 / 0.9, 1.0])
    for column in range(2):
        wanted = (price + float(error[column]) + chain.entropy) / 64
        for values, limit in ((losses.target, 0.02), (losses.masked, 0.01)):
            stderr = values[:, column].std() / np.sqrt(len(x))
            assert stderr < limit
            assert abs(values[:, column].mean() - wanted) < 5 * stderr
    ratio = losses.target[:, 1].var() / losses.masked[:, 1].var()
    assert ratio > 3, f"variance ratio {ratio:.2f}"


def test_blocks_do_not_change_the_losses(target, monkeypatch):
    x, contexts = drawn(target, 50, 4)
    denoiser = TabularDenoiser(target.P)
    whole = measure(denoiser, x, contexts, TAUS)
    monkeypatch.setattr(posterior, "NETWORK_TOKENS", 3 * LENGTH)
    monkeypatch.setattr(posterior, "HEAD_ENTRIES", 2 * denoiser.vocab_size)
    asked: list[int] = []
    head = denoiser.logits

    def watched(hidden: torch.Tensor, sequence: torch.Tensor, position: torch.Tensor):
        asked.append(len(sequence))
        return head(hidden, sequence, position)

    monkeypatch.setattr(denoiser, "logits", watched)
    small = measure(denoiser, x, contexts, TAUS)
    assert max(asked) == 2  # memory stays flat
    assert sum(asked) == contexts.hidden.sum()  # and the head sees hidden rows only
    for name in ("target", "masked", "target_slope", "masked_slope"):
        assert getattr(small, name) == pytest.approx(getattr(whole, name), abs=1e-13)


@pytest.mark.parametrize("taus", [(), (0.9,), (0.0, 1.0), (1.0, -1.0), (1.0, float("inf"))])
def test_bad_temperatures(taus):
    with pytest.raises(UserError, match="1 must be one"):
        check_temperatures(taus)
