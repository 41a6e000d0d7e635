"""Both implementations against enumerated output laws, in either precision.

Power: with N = 40,000 outputs over a few dozen outcomes a chi-square test at 1e-3 detects, with
probability above .99, laws that differ by about .03 in total variation; the negative controls
below are such laws and must fail. Seeds are fixed, so a passing test passes for ever.

Every case and implementation is tested at the largest shape and on the coarsest and the finest
lattice by `make test`; the other shapes and the lattice between run with the slow tests, at the
same N.
"""

from __future__ import annotations

import functools

import laws
import numpy as np
import pytest
import torch
from laws import chi_square, counts, exact_outcome, lattice_outcome, output_law

from strop import SamplerSpec, TabularDenoiser
from strop.denoisers.base import all_log_probs
from strop.samplers import dense_batch
from strop.samplers.machinery import dense
from strop.samplers.machinery.start import reveal_grid
from strop.spec import CheckpointSpec

N = 40_000
PASS, FAIL = 1e-3, 1e-6


def target(vocab: int, length: int, seed: int = 0, concentration: float = 0.4) -> np.ndarray:
    law = np.random.default_rng(seed).dirichlet(np.full(vocab**length, concentration))
    law = 0.98 * law + 0.02 / law.size
    return law.reshape((vocab,) * length)


def draw(denoiser, spec: SamplerSpec, seed: int, bits: int = 24, n: int = N) -> np.ndarray:
    return laws.draw(denoiser, spec, seed, n=n, bits=bits)


def exact(law: np.ndarray, spec: SamplerSpec, **changes) -> np.ndarray:
    masses = reveal_grid(spec).masses
    options = {"temperature": spec.temperature, "top_p": spec.top_p, "finish": spec.finish}
    return output_law(law, len(masses) - 1, exact_outcome(masses), **{**options, **changes})


def on_lattice(law: np.ndarray, spec: SamplerSpec, bits: int, **changes) -> np.ndarray:
    grid = reveal_grid(spec)
    t = np.append(grid.t.numpy(), np.float32(1))
    s = np.append(grid.s.numpy(), np.float32(0))
    options = {"temperature": spec.temperature, "top_p": spec.top_p, "finish": spec.finish}
    return output_law(law, grid.updates, lattice_outcome(t, s, bits), **{**options, **changes})


CASES = {
    "uniform": {"steps": 3},
    "one step": {"steps": 1},
    "many steps": {"steps": 20},
    "own grid": {"grid": (0.2, 0.5, 0.3)},
    "own grid, empty round": {"grid": (0.4, 0.0, 0.6)},
    "one mass": {"grid": (1.0,)},
    "own grid, greedy last mass": {"grid": (0.5, 0.5), "finish": "greedy"},
    "masks left": {"grid": (0.3, 0.3, 0.4), "finish": "none"},
    "sharper": {"steps": 3, "temperature": 0.7},
    "softer": {"steps": 3, "temperature": 1.6},
    "greedy tokens": {"grid": (0.3, 0.3, 0.4), "temperature": 0.0},
    "greedy tokens, masks left": {"grid": (0.3, 0.3, 0.4), "temperature": 0.0, "finish": "none"},
    "nucleus": {"steps": 3, "top_p": 0.8},
    "nucleus, sharper": {"grid": (0.5, 0.5), "top_p": 0.9, "temperature": 0.8},
}
SLOW = pytest.mark.slow
SHAPES = [pytest.param(0, 2, 3, marks=SLOW), pytest.param(1, 4, 2, marks=SLOW), (2, 3, 3)]


@pytest.mark.parametrize(("number", "vocab", "length"), SHAPES)
@pytest.mark.parametrize("implementation", ["fast", "dense"])
@pytest.mark.parametrize("case", CASES)
def test_float64_law(case, implementation, number, vocab, length):
    law = target(vocab, length, seed=number)
    spec = SamplerSpec(**CASES[case], implementation=implementation)
    ids = draw(TabularDenoiser(law), spec, seed=10 + number)
    assert chi_square(counts(ids, vocab), exact(law, spec)) > PASS


SCHEDULES = {
    # settings, and the temperature of every round and of the finish, worked out by hand
    "linear": ({"steps": 4, "temperature": "linear/1.4/0.4"}, [1.4, 1.15, 0.9, 0.65, 0.4]),
    "late": ({"steps": 4, "temperature": "late/1.2/0.4"}, [1.2, 1.2, 0.4, 0.4, 0.4]),
    "draws at the end": (
        {"grid": (0.2, 0.2, 0.6), "temperature": "linear/0.4/1.6"},
        [0.4, 0.64, 1.6],
    ),
    "late on an own grid": (
        {"grid": (0.3, 0.3, 0.4), "temperature": "late/1.5/0.5"},
        [1.5, 1.5, 0.5],
    ),
    "down to zero": ({"grid": (0.3, 0.2, 0.5), "temperature": "late/1/0"}, [1.0, 1.0, 0.0]),
    "with a nucleus": (
        {"steps": 2, "temperature": "linear/1.6/0.2", "top_p": 0.8},
        [1.6, 0.9, 0.2],
    ),
}


@pytest.mark.parametrize("implementation", ["fast", "dense"])
@pytest.mark.parametrize("case", SCHEDULES)
def test_a_temperature_per_round_has_its_law_in_both_precisions(case, implementation):
    fields, heats = SCHEDULES[case]
    spec = SamplerSpec(**fields, implementation=implementation)
    law = target(3, 3, seed=2)
    observed = counts(draw(TabularDenoiser(law), spec, seed=21), 3)
    assert chi_square(observed, exact(law, spec, temperature=heats)) > PASS
    # its mean, which is what it is to those who want a number, and the order turned round, are not
    flat = [sum(heats) / len(heats)] * len(heats)
    for wrong in (flat, heats[::-1]):
        assert chi_square(observed, exact(law, spec, temperature=wrong) + 1e-12) < FAIL
    spec, law = SamplerSpec(**fields, implementation=implementation, precision="float32"), law[0]
    observed = counts(draw(TabularDenoiser(law / law.sum()), spec, seed=22, bits=8), 3)
    coarse = on_lattice(law / law.sum(), spec, 8, temperature=heats)
    assert chi_square(observed, coarse) > PASS
    wrong = on_lattice(law / law.sum(), spec, 8, temperature=heats[::-1])
    assert chi_square(observed, wrong + 1e-12) < FAIL


def test_a_prediction_that_is_kept_gets_the_temperature_of_its_round(monkeypatch):
    # One sequence of one token: nothing changes in most rounds, and `dense` keeps what it has.
    seen, shaped = [], dense.shaped

    def noted(*given, temperature=None):
        seen.append(temperature)
        return shaped(*given, temperature=temperature)

    monkeypatch.setattr(dense, "shaped", noted)
    spec = SamplerSpec(steps=8, temperature="linear/1.8/0.2", implementation="dense")
    denoiser = TabularDenoiser(target(3, 1))
    [one] = dense_batch(denoiser, spec, seed=1, first=0, count=1, length=1)
    assert one.nfe < 9
    assert seen == pytest.approx([1.8 - 0.2 * k for k in range(9)], abs=1e-4)


def test_the_sampler_with_a_call_at_every_step_has_the_schedule_too():
    fields, heats = SCHEDULES["linear"]
    law, spec = (
        target(3, 3),
        SamplerSpec(name="ancestral-uncached", implementation="dense", **fields),
    )
    observed = counts(draw(TabularDenoiser(law), spec, seed=23), 3)
    assert chi_square(observed, exact(law, spec, temperature=heats)) > PASS


@pytest.mark.parametrize(
    "name", ["ancestral-uncached", "analytic", "ancestral-duo", "analytic-duo"]
)
def test_other_dense_samplers_have_the_same_law(name):
    law = target(3, 3)
    spec = SamplerSpec(name=name, steps=4, implementation="dense")
    ids = draw(TabularDenoiser(law), spec, seed=3)
    # The last mass of 1e-5 is far below what the test can see, so greedy or draw is the same here.
    assert chi_square(counts(ids, 3), exact(law, spec)) > PASS


@functools.cache
def two_rounds(implementation) -> tuple[np.ndarray, SamplerSpec, np.ndarray]:
    """A law, settings, and how often each output came out."""
    law = target(3, 3)
    spec = SamplerSpec(grid=(0.4, 0.6), implementation=implementation)
    return law, spec, counts(draw(TabularDenoiser(law), spec, seed=4), 3)


@pytest.mark.parametrize("implementation", ["fast", "dense"])
@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.9},
        {"top_p": 0.9},
        {"finish": "greedy"},
    ],
    ids=str,
)
def test_a_wrong_law_is_noticed(change, implementation):
    law, spec, observed = two_rounds(implementation)
    assert chi_square(observed, exact(law, spec)) > PASS
    assert chi_square(observed, exact(law, spec, **change) + 1e-12) < FAIL


def test_a_wrong_grid_is_noticed():
    law = target(3, 3)
    ids = draw(TabularDenoiser(law), SamplerSpec(grid=(0.4, 0.6)), seed=5)
    assert chi_square(counts(ids, 3), exact(law, SamplerSpec(grid=(0.5, 0.5)))) < FAIL


COARSE = {
    "few steps": {"steps": 3},
    "many steps": {"steps": 12},
    "own grid": {"grid": (0.3, 0.4, 0.3)},
    "greedy last mass": {"grid": (0.6, 0.4), "finish": "greedy"},
    "masks left": {"grid": (0.6, 0.4), "finish": "none"},
    "sharper": {"steps": 6, "temperature": 0.7},
    "greedy tokens": {"grid": (0.3, 0.7), "temperature": 0.0},
    "nucleus": {"steps": 6, "top_p": 0.8},
}


@functools.cache
def coarse_law(case: str, bits: int) -> np.ndarray:
    """The law that both implementations must have."""
    spec = SamplerSpec(**COARSE[case], precision="float32")
    return on_lattice(target(3, 2, seed=bits), spec, bits)


@pytest.mark.parametrize("bits", [6, pytest.param(8, marks=SLOW), 10])
@pytest.mark.parametrize("implementation", ["fast", "dense"])
@pytest.mark.parametrize("case", COARSE)
def test_float32_law_on_coarse_lattices(case, implementation, bits):
    spec = SamplerSpec(**COARSE[case], precision="float32", implementation=implementation)
    ids = draw(TabularDenoiser(target(3, 2, seed=bits)), spec, seed=bits, bits=bits)
    assert chi_square(counts(ids, 3), coarse_law(case, bits)) > PASS


@pytest.mark.parametrize("implementation", ["fast", "dense"])
def test_a_float32_sampler_that_draws_in_float64_is_noticed(implementation):
    law = target(3, 2, seed=1)
    spec = SamplerSpec(steps=12, precision="float32", implementation=implementation)
    secret = SamplerSpec(steps=12, precision="float64", implementation=implementation)
    coarse = on_lattice(law, spec, 6)
    ids = draw(TabularDenoiser(law), secret, seed=6)
    assert chi_square(counts(ids, 3), exact(law, secret)) > PASS
    assert chi_square(counts(ids, 3), coarse) < FAIL
    # and the other way round
    ids = draw(TabularDenoiser(law), spec, seed=6, bits=6)
    assert chi_square(counts(ids, 3), exact(law, secret)) < FAIL


class Clock:
    """A time-conditioned denoiser that names the round: token k is certain at the k-th sigma."""

    time_conditioned = True
    codec = None
    source = "clock"
    device = torch.device("cpu")
    spec = CheckpointSpec(family="mdlm", sha256="0" * 64, weights="exact", shape={})
    log_probs = all_log_probs

    def __init__(self, spec: SamplerSpec, length: int) -> None:
        self.sigmas = reveal_grid(spec).sigmas()
        self.mask_id = len(self.sigmas)
        self.vocab_size = self.mask_id + 1
        self.length = length
        self.seen: list[int] = []

    def hidden(self, ids, sigma):
        assert sigma is not None
        self.seen.append(len(ids))
        return sigma[:, None].expand(ids.shape).contiguous()

    def logits(self, hidden, sequence, position):
        gap = (hidden[sequence, position][:, None] - self.sigmas).abs()
        assert (gap.min(-1).values < 1e-6).all(), "a sigma that is on no grid"
        return torch.nn.functional.one_hot(gap.argmin(-1), self.vocab_size) * 60.0


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("implementation", ["fast", "dense"])
@pytest.mark.parametrize(
    "where", [{"steps": 8}, {"grid": (0.1, 0.5, 0.05, 0.35)}], ids=["uniform", "own"]
)
def test_reveal_timing_and_sigma(where, implementation, precision):
    """Positions are revealed in round k with the grid's mass, and the network saw that sigma.

    One certain token per round, so float32 truncates nothing here and both laws are the masses.
    """
    spec = SamplerSpec(**where, implementation=implementation, precision=precision)
    clock = Clock(spec, length=2)
    ids = draw(clock, spec, seed=7, n=20_000)
    masses = reveal_grid(spec).masses
    assert chi_square(np.bincount(ids.ravel(), minlength=len(masses)), masses) > PASS
    joint = counts(ids, len(masses) - 1)
    assert chi_square(joint, np.outer(masses, masses)) > PASS
    tilted = masses * np.linspace(1.15, 0.85, len(masses))
    assert chi_square(np.bincount(ids.ravel(), minlength=len(masses)), tilted) < FAIL


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("implementation", ["fast", "dense"])
@pytest.mark.parametrize("temperature", [5e-324, 1e-40, 1e-6, 1e6, 1e300])
def test_extreme_temperatures(temperature, implementation, precision):
    """Very cold is greedy, very hot is uniform, and the mask is never a token."""
    law = target(3, 2, seed=2)
    spec = SamplerSpec(
        steps=3, temperature=temperature, precision=precision, implementation=implementation
    )
    ids = draw(TabularDenoiser(law), spec, seed=8, n=5_000)
    limit = {"temperature": 0.0} if temperature < 1 else {"temperature": 1e3}
    assert (ids < 3).all()
    assert chi_square(counts(ids, 3), exact(law, spec, **limit)) > PASS
