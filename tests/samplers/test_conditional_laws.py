"""Responses to prompts against enumerated conditional laws, dense and fast, in both precisions.

Power: N = 40,000 outputs over at most 27 outcomes; a chi-square test at 1e-3 detects with
probability above .99 laws that differ by about .03 in total variation. The negative controls are
such laws, and their distances are asserted. Seeds are fixed.
"""

from __future__ import annotations

import functools
import itertools
import math
from types import SimpleNamespace
from typing import Any

import laws
import numpy as np
import pytest
import torch
from family_models import Judge, Table
from laws import chi_square, counts, exact_outcome, lattice_outcome, output_law
from revising_laws import Arbitrary
from test_family_laws import Time, alpha
from test_output_laws import target
from test_remdm import SCHEDULES, enumerated, model_of, settings

from strop import SamplerSpec, TabularDenoiser
from strop.samplers.machinery.start import reveal_grid

N = 40_000
PASS, FAIL = 1e-3, 1e-6
FORMS = pytest.mark.parametrize("implementation", ["fast", "dense"])
Given = tuple[int | None, ...]
PREFIX, GAPS, LATE = (2, 1, None, None), (None, 1, None, 0), (None, None, None, 2)
PROMPTS = pytest.mark.parametrize("given", [PREFIX, GAPS, LATE], ids=["prefix", "gaps", "late"])
MOST_PROMPTS = pytest.mark.parametrize(
    "given",
    [PREFIX, GAPS, pytest.param(LATE, marks=pytest.mark.slow)],
    ids=["prefix", "gaps", "late"],
)
"""A given token behind all open ones is a gap, too: the slow tests have it in every case."""


def law_of_texts(seed: int = 0) -> np.ndarray:
    return target(3, 4, seed=seed)


def start(given: Given, mask: int) -> tuple[int, ...]:
    return tuple(mask if token is None else token for token in given)


def conditional_law(law: np.ndarray, given: Given) -> np.ndarray:
    """P(X = x | X agrees with what is given), over (V + 1)^L."""
    vocab, length = law.shape[0], law.ndim
    kept = np.zeros((vocab + 1,) * length)
    for x in itertools.product(range(vocab), repeat=length):
        if all(token in (None, v) for token, v in zip(given, x, strict=True)):
            kept[x] = law[x]
    return kept / kept.sum()


def rounds_law(law: np.ndarray, spec: SamplerSpec, given: Given) -> np.ndarray:
    """The M-round law given a prompt, in exact arithmetic."""
    masses = reveal_grid(spec).masses
    return output_law(
        law,
        len(masses) - 1,
        exact_outcome(masses),
        temperature=spec.temperature,
        top_p=spec.top_p,
        finish=spec.finish,
        start=start(given, law.shape[0]),
    )


def distance(p: np.ndarray, q: np.ndarray) -> float:
    return 0.5 * float(np.abs(p - q).sum())


def seen(model, spec: SamplerSpec, given: Given, vocab: int, **more) -> np.ndarray:
    """How often each output came out of N."""
    return counts(laws.draw(model, spec, 7, n=N, given=given, **more), vocab)


def p_value(model, spec: SamplerSpec, given: Given, law: np.ndarray) -> float:
    return chi_square(seen(model, spec, given, law.shape[0] - 1), law)


# --- the exact conditional law -----------------------------------------------------------------


@PROMPTS
@pytest.mark.parametrize("name", ["ancestral", "ancestral-remdm"])
def test_one_position_at_a_time_has_the_conditional_law(given: Given, name: str) -> None:
    """A million rounds: no two positions meet, and which comes next is drawn before its token."""
    law = law_of_texts()
    spec = SamplerSpec(name=name, steps=2**20)
    exact = conditional_law(law, given)
    assert p_value(TabularDenoiser(law), spec, given, exact) > PASS


@FORMS
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_one_open_position_has_the_conditional_law_at_once(implementation, precision) -> None:
    law, given = law_of_texts(), (2, None, 1, 0)
    spec = SamplerSpec(grid=(1.0,), precision=precision, implementation=implementation)
    assert p_value(TabularDenoiser(law), spec, given, conditional_law(law, given)) > PASS


def test_rounds_tend_to_the_conditional_law() -> None:
    """By enumeration alone: the distance falls like one over the number of rounds."""
    law = law_of_texts()
    for given in (PREFIX, GAPS, LATE):
        exact = conditional_law(law, given)
        far = [
            distance(rounds_law(law, SamplerSpec(steps=steps), given), exact)
            for steps in (4, 16, 64)
        ]
        assert far[0] > 3 * far[1] > 9 * far[2] > 0


# --- M rounds ----------------------------------------------------------------------------------

ROUNDS = {
    "few": {"steps": 3},
    "own grid": {"grid": (0.2, 0.5, 0.3)},
    "sharper": {"steps": 3, "temperature": 0.7},
    "masks left": {"grid": (0.3, 0.3, 0.4), "finish": "none"},
}


@FORMS
@MOST_PROMPTS
@pytest.mark.parametrize("case", ROUNDS)
def test_rounds_in_float64(case: str, given: Given, implementation) -> None:
    law, spec = law_of_texts(), SamplerSpec(**ROUNDS[case], implementation=implementation)
    assert p_value(TabularDenoiser(law), spec, given, rounds_law(law, spec, given)) > PASS


@pytest.mark.parametrize(
    "name", ["ancestral-uncached", "analytic", "ancestral-duo", "analytic-duo"]
)
def test_other_dense_samplers_have_the_same_law(name: str) -> None:
    law, spec = law_of_texts(), SamplerSpec(name=name, steps=4, implementation="dense")
    assert p_value(TabularDenoiser(law), spec, GAPS, rounds_law(law, spec, GAPS)) > PASS


@FORMS
@pytest.mark.parametrize("given", [PREFIX, GAPS], ids=["prefix", "gaps"])
def test_rounds_in_float32_on_a_coarse_lattice(given: Given, implementation) -> None:
    law, bits = law_of_texts(), 6
    spec = SamplerSpec(steps=6, precision="float32", implementation=implementation)
    grid = reveal_grid(spec)
    t, s = np.append(grid.t.numpy(), np.float32(1)), np.append(grid.s.numpy(), np.float32(0))
    outcome = lattice_outcome(t, s, bits)
    rough = output_law(law, 6, outcome, finish="greedy", start=start(given, 3))
    observed = seen(TabularDenoiser(law), spec, given, 3, bits=bits)
    assert chi_square(observed, rough) > PASS
    assert chi_square(observed, rounds_law(law, spec, given)) < FAIL


# --- negative controls -------------------------------------------------------------------------


@FORMS
def test_wrong_conditional_laws_are_noticed(implementation) -> None:
    law = law_of_texts()
    spec = SamplerSpec(steps=4, implementation=implementation)
    right = rounds_law(law, spec, GAPS)
    observed = seen(TabularDenoiser(law), spec, GAPS, 3)
    assert chi_square(observed, right) > PASS
    # The prompt's tokens at other places, and a response that never saw them.
    other = np.moveaxis(rounds_law(law, spec, (None, 0, None, 1)), (1, 3), (3, 1))
    blind = np.zeros_like(right)
    apart = rounds_law(law, spec, (None,) * 4).sum(axis=(1, 3))
    blind[:, 1, :, 0] = apart
    for wrong in (other, blind):
        assert distance(wrong, right) > 0.03
        assert chi_square(observed, wrong + 1e-12) < FAIL


@FORMS
def test_a_sampler_that_ignores_the_prompt_is_noticed(implementation) -> None:
    """It draws a whole text and puts the given tokens over it."""
    law = law_of_texts()
    spec = SamplerSpec(steps=4, implementation=implementation)
    ids = laws.draw(TabularDenoiser(law), spec, 7, n=N)
    ids[:, 1], ids[:, 3] = 1, 0
    assert chi_square(counts(ids, 3), rounds_law(law, spec, GAPS)) < FAIL


# --- ReMDM -------------------------------------------------------------------------------------


@functools.cache
def remdm_case(name: str, given: Given, implementation) -> tuple[SamplerSpec, Arbitrary, Any]:
    """Settings, a model, and how often each output came out: two tests look at them."""
    spec, model = settings(name, implementation=implementation), model_of(2, 3, seed=3)
    return spec, model, seen(model, spec, given, 2)


@FORMS
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("given", [(1, None, None), (None, 0, None)], ids=["prefix", "gap"])
def test_remdm(name: str, given: Given, implementation) -> None:
    spec, model, observed = remdm_case(name, given, implementation)
    assert chi_square(observed, enumerated(model, spec, given=given)) > PASS


@FORMS
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_remdm_that_takes_given_tokens_back_is_noticed(name: str, implementation) -> None:
    given = (1, None, None)
    spec, model, observed = remdm_case(name, given, implementation)
    right = enumerated(model, spec, given=given)
    wrong = enumerated(model, spec, given=given, let_go=True)
    assert distance(right, wrong) > 0.03
    assert chi_square(observed, wrong + 1e-12) < FAIL


# --- SEDD with exact scores --------------------------------------------------------------------


class ExactScores(TabularDenoiser):
    """The scores of a law: p(v | visible) / (e^sigma - 1), as SEDD's logits have them."""

    def logits(self, hidden, sequence, position):
        return super().logits(hidden, sequence, position) + math.log(self.vocab_size - 1)


def sedd_law(law: np.ndarray, steps: int, given: Given) -> np.ndarray:
    """Sigma follows the schedule, as if the given tokens had been revealed by chance."""
    time = Time(steps)
    shares = [tuple(alpha(t) for t in time.at(k)) for k in range(steps)]
    hazard = [(b - a) / (1 - a) for a, b in shares] + [1.0]
    return output_law(
        law,
        steps,
        lambda clean, k: np.append(clean * hazard[k], 1 - hazard[k]),
        start=start(given, law.shape[0]),
    )


@FORMS
@MOST_PROMPTS
@pytest.mark.parametrize("name", ["sedd-analytic", "sedd-euler"])
def test_sedd(name: str, given: Given, implementation) -> None:
    law, spec = law_of_texts(), SamplerSpec(name=name, steps=4, implementation=implementation)
    assert p_value(ExactScores(law), spec, given, sedd_law(law, 4, given)) > PASS


def test_sedd_tends_to_the_conditional_law() -> None:
    law = law_of_texts()
    far = [distance(sedd_law(law, m, GAPS), conditional_law(law, GAPS)) for m in (4, 16, 64)]
    assert far[0] > 3 * far[1] > 9 * far[2] > 0
    spec = SamplerSpec(name="sedd-analytic", steps=4)
    assert p_value(ExactScores(law), spec, GAPS, sedd_law(law, 64, GAPS) + 1e-12) < FAIL


# --- DiDi-Instruct: the reward ranks open positions only ---------------------------------------


class Mixing(Judge):
    """A judge whose score of a position depends on the token at another."""

    def __init__(self, classes: int, length: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.matter = torch.from_numpy(rng.normal(0, 1.5, (length, length, classes)))
        self.vocab_embed = SimpleNamespace(embedding=torch.eye(classes, dtype=torch.float64))

    def scores(self, embedded, sigma, dtype, *, frugal=False):  # noqa: ARG002
        return torch.einsum("bjv,ijv->bi", embedded, self.matter)

    def worth_at(self, context, counted) -> float:
        return float(sum(self.matter[i, j, v] for i in counted for j, v in enumerate(context)))


@FORMS
@pytest.mark.parametrize("given", [(1, None), (None, 0)], ids=["prefix", "late"])
def test_didi_ranks_open_positions_only(given: Given, implementation) -> None:
    model = Table(3, 2, mask_id=2, seed=1)
    judge = model.discriminator = Mixing(3, 2, seed=4)  # type: ignore[attr-defined]
    spec = SamplerSpec(
        name="didi-guided",
        steps=3,
        implementation=implementation,
        settings={"rerank": 1.0, "candidates": 2},
    )
    [place] = [i for i, token in enumerate(given) if token is None]

    def law(counted: list[int]) -> np.ndarray:
        table, state = np.zeros((3, 3)), {start(given, 2): 1.0}
        for k in range(4):
            after: dict[tuple[int, ...], float] = {}
            for context, weight in state.items():
                for reached, chance in step(context, k, counted).items():
                    after[reached] = after.get(reached, 0.0) + weight * chance
            state = after
        for context, weight in state.items():
            table[context] += weight
        return table

    def step(context, k: int, counted: list[int]) -> dict[tuple[int, ...], float]:
        if context[place] != 2:
            return {context: 1.0}
        t, s = (1e-5, 0.0) if k == 3 else Time(3).at(k)
        z = model.row(context, place, -math.log(alpha(t)))
        shares = np.exp(z) / np.exp(z).sum()
        weights = np.append(shares[:2] * (alpha(s) - alpha(t)), 1 - alpha(s))
        weights = np.append(np.exp(z[:2]), 0.0) if k == 3 else weights
        weights = weights / weights.sum()
        if k == 3:
            return {_with(context, place, v): p for v, p in enumerate(weights)}
        worth = [math.exp(judge.worth_at(_with(context, place, v), counted)) for v in range(3)]
        return {
            _with(context, place, v): sum(
                2 * p * q * worth[v] / (worth[v] + worth[w]) for w, q in enumerate(weights)
            )
            for v, p in enumerate(weights)
        }

    right, everything = law([place]), law([0, 1])
    observed = seen(model, spec, given, 2)
    assert chi_square(observed, right) > PASS
    assert distance(right, everything) > 0.03
    assert chi_square(observed, everything) < FAIL


def _with(context: tuple[int, ...], place: int, token: int) -> tuple[int, ...]:
    return (*context[:place], token, *context[place + 1 :])
