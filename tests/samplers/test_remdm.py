"""ReMDM against enumerated output laws, in both implementations and precisions.

Power: with N = 20,000 outputs a law that is off by .04 in total variation moves the chi-square
statistic by at least 4 N .04**2 = 128, so over 64 outcomes a test at 1e-3 detects it with
probability above .99. The wrong laws below are off by more than that (asserted) and must fail.
Seeds are fixed: a passing test passes for ever.
"""

from __future__ import annotations

import functools
from typing import Any

import laws
import numpy as np
import pytest
import torch
from laws import chi_square, counts, exact_outcome, output_law
from revising_laws import Arbitrary, cap, largest, loop, rescale, revising_law, sigma_schedule

from strop import SamplerSpec, TabularDenoiser
from strop.draw import sample
from strop.samplers.machinery.categorical import clean_log_probs
from strop.samplers.machinery.start import reveal_grid
from strop.samplers.remdm import remdm_rates, unsure_first
from strop.spec import plain_baseline

N = 20_000
PASS, FAIL = 1e-3, 1e-6
LOOP = {"eta": 0.4, "t_on": 0.6, "t_off": 0.2, "alpha_on": 0.6}
SCHEDULES = {
    "remdm-cap": ({"eta": 0.3}, cap(0.3)),
    "remdm-rescale": ({"eta": 0.5}, rescale(0.5)),
    "remdm-conf": ({}, sigma_schedule(largest)),
    "remdm-loop": (LOOP, loop(**LOOP)),
}
IMPLEMENTATIONS = ["fast", "dense"]


def settings(name: str, **more: Any) -> SamplerSpec:
    return SamplerSpec(**{"name": name, "steps": 5, **SCHEDULES[name][0], **more})


model_of = functools.cache(Arbitrary)


def enumerated(denoiser: Arbitrary, spec: SamplerSpec, **changes: Any) -> np.ndarray:
    """The law that both implementations must have."""
    either = spec.model_copy(update={"implementation": "fast"})
    return _enumerated(denoiser, either.model_dump_json(), tuple(sorted(changes.items())))


@functools.cache
def _enumerated(denoiser: Arbitrary, settings: str, changes: tuple[tuple[str, Any], ...]) -> Any:
    spec = SamplerSpec.model_validate_json(settings)
    grid = reveal_grid(spec)
    options = {
        "schedule": SCHEDULES[spec.name][1],
        "confidence": spec.name == "remdm-conf",
        "temperature": spec.temperature,
        "top_p": spec.top_p,
        "finish": spec.finish,
    }
    return revising_law(
        denoiser.predictions,
        list(zip(grid.t.tolist(), grid.s.tolist(), strict=True)),
        **{**options, **dict(changes)},
    )


def draw(denoiser: Any, spec: SamplerSpec, seed: int, bits: int = 24) -> np.ndarray:
    return laws.draw(denoiser, spec, seed, n=N, bits=bits, slots=N)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_float64_law(name, implementation):
    for number, (vocab, length) in enumerate([(2, 3), (4, 2)]):
        denoiser = model_of(vocab, length, number)
        spec = settings(name, implementation=implementation)
        ids = draw(denoiser, spec, 10 + number)
        assert chi_square(counts(ids, vocab), enumerated(denoiser, spec)) > PASS


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_float32_law_on_a_coarse_lattice(name, implementation):
    denoiser = model_of(3, 2, 2)
    spec = settings(name, precision="float32", implementation=implementation)
    observed = counts(draw(denoiser, spec, 3, bits=5), 3)
    assert chi_square(observed, enumerated(denoiser, spec, bits=5)) > PASS
    assert chi_square(observed, enumerated(denoiser, spec)) < FAIL  # float64 is another law


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("remdm-cap", {"temperature": 0.7, "top_p": 0.8}),
        ("remdm-conf", {"temperature": 1.4, "top_p": 0.9}),
        ("remdm-loop", {"steps": 2}),
        ("remdm-rescale", {"grid": (0.3, 0.5, 0.2), "steps": 3, "finish": "greedy"}),
        ("remdm-loop", {"grid": (0.3, 0.2, 0.4, 0.1), "steps": 4, "finish": "greedy"}),
    ],
)
def test_other_settings(name, more, implementation):
    denoiser = model_of(4, 2, 5)
    spec = settings(name, implementation=implementation, **more)
    assert chi_square(counts(draw(denoiser, spec, 6), 4), enumerated(denoiser, spec)) > PASS


LONG = {"steps": 8}
ONE_BY_ONE = {"grid": (0.7, 0, 0, 0, 0.3), "steps": 5, "finish": "none"}
WRONG = {
    "another eta": ("remdm-cap", LONG, {"schedule": cap(0.05)}),
    "nothing taken back": ("remdm-rescale", LONG, {"schedule": rescale(0.0)}),
    "taken back before the prediction": ("remdm-cap", LONG, {"masked_first": True}),
    "no loop": ("remdm-loop", LONG, {"schedule": cap(0.0)}),
    "cap for rescale": ("remdm-rescale", LONG, {"schedule": cap(0.5)}),
    "sure or not, all alike": ("remdm-conf", ONE_BY_ONE, {"alike": True}),
}


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_law_is_noticed(wrong, implementation):
    name, more, change = WRONG[wrong]
    denoiser = model_of(3, 3, 1, 0.3) if name == "remdm-conf" else model_of(2, 3, 0)
    spec = settings(name, implementation=implementation, **more)
    right, other = enumerated(denoiser, spec), enumerated(denoiser, spec, **change)
    assert abs(right - other).sum() / 2 > 0.04
    observed = counts(draw(denoiser, spec, 9), denoiser.mask_id)
    assert chi_square(observed, right) > PASS
    assert chi_square(observed, other + 1e-12) < FAIL


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_without_taking_back_it_is_the_plain_sampler(implementation):
    law = np.random.default_rng(4).dirichlet(np.ones(9)).reshape(3, 3)
    spec = SamplerSpec(name="remdm-cap", eta=0.0, steps=4, implementation=implementation)
    masses = reveal_grid(spec).masses
    plain = output_law(law, 4, exact_outcome(masses), finish="greedy")
    assert chi_square(counts(draw(TabularDenoiser(law), spec, 1), 3), plain) > PASS


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_the_baseline_has_the_same_nucleus_and_takes_nothing_back(implementation):
    denoiser = model_of(4, 2, 5)
    spec = settings("remdm-cap", top_p=0.7, temperature=0.8)
    baseline = plain_baseline(spec)
    assert baseline is not None
    shown = {k: v for k, v in spec.model_dump().items() if k not in ("name", "settings")}
    assert {**baseline.model_dump(), **shown} == baseline.model_dump()
    plain = enumerated(denoiser, spec, schedule=cap(0.0))
    run = baseline.model_copy(update={"implementation": implementation})
    assert chi_square(counts(draw(denoiser, run, 2), 4), plain) > PASS
    reaching = run.model_copy(update={"name": "ancestral"})
    assert chi_square(counts(draw(denoiser, reaching, 2), 4), plain + 1e-12) < FAIL


def test_the_two_nucleus_rules():
    logits = torch.tensor([[0.6, 0.35, 0.05, 1.0]]).log()

    def kept(top_p: float, rule: Any) -> list[int]:
        probs = clean_log_probs(logits.clone(), 3, 1.0, top_p, rule).exp()[0]
        assert probs.sum() == pytest.approx(1)
        return torch.nonzero(probs > 1e-9)[:, 0].tolist()

    assert kept(0.9, "reaching") == [0, 1]
    assert kept(0.9, "within") == [0]
    assert kept(0.95, "within") == kept(0.95, "reaching") == [0, 1]
    assert kept(0.3, "within") == [0]
    assert kept(0.99, "reaching") == [0, 1, 2]


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_public_settings_are_the_defaults(name):
    public = {
        "remdm-cap": {"eta": 0.008},
        "remdm-rescale": {"eta": 0.015},
        "remdm-conf": {},
        "remdm-loop": {"eta": 0.02, "t_on": 0.55, "t_off": 0.05, "alpha_on": 0.9},
    }
    assert SamplerSpec(name=name).settings == public[name]


@pytest.mark.parametrize("name", ["remdm-cap", "remdm-rescale"])
def test_the_visible_share_is_that_of_the_grid(name):
    """Whatever is taken back, the same share is visible after every update: a_s."""
    spec = SamplerSpec(name=name, steps=50, eta=0.7)
    grid, rates = reveal_grid(spec), remdm_rates(spec, reveal_grid(spec))
    share = 0.0
    for k in range(50):
        assert rates.token[k] + rates.mask[k] == pytest.approx(1)
        share = share * (1 - rates.back[k]) + (1 - share) * rates.token[k]
        assert share == pytest.approx(1 - float(grid.s[k]), abs=1e-6)


def test_the_loop_climbs_circles_and_ends():
    spec = SamplerSpec(name="remdm-loop", steps=1000)
    grid, rates = reveal_grid(spec), remdm_rates(spec, reveal_grid(spec))
    share, shares = 0.0, []
    for token, mask, back in zip(rates.token, rates.mask, rates.back, strict=True):
        share = share * (1 - back) + (1 - share) * token / (token + mask)
        shares.append(share)
    inside = (grid.t <= 0.55) & (grid.t > 0.05)
    assert np.allclose(np.array(shares)[inside.numpy()], 0.9, atol=0.003)
    assert shares[-1] == pytest.approx(1, abs=1e-3)
    assert (rates.back[inside.numpy()] == 0.02).all()
    assert (rates.back[~inside.numpy()] == 0).all()


def test_shares_by_confidence():
    confidence = torch.tensor([[0.9, 0.1, 0.5], [0.2, 0.3, 0.4]])
    visible = torch.tensor([[True, True, False], [False, False, False]])
    shares = unsure_first(confidence, visible)
    assert shares[0].tolist() == pytest.approx(
        [
            np.exp(-0.9) / (np.exp(-0.9) + np.exp(-0.1)),
            np.exp(-0.1) / (np.exp(-0.9) + np.exp(-0.1)),
            0,
        ]
    )
    assert shares[1].tolist() == [0, 0, 0]


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_outputs_do_not_depend_on_the_batch(name, precision):
    denoiser = Arbitrary(4, 4, 1)
    spec = settings(name, precision=precision, steps=7)
    pools = [sample(denoiser, spec, n=16, seed=5, batch_size=b) for b in (1, 7, 16)]
    for pool in pools[1:]:
        assert (pool.ids == pools[0].ids).all()
        assert (pool.nfe == pools[0].nfe).all()
    assert len(np.unique(pools[0].ids, axis=0)) > 10
    assert pools[0].leftover_masks.sum() == 0


def test_tokens_are_revised_and_the_network_is_not_asked_in_vain():
    """A loop long enough changes outputs after everything was visible; eta=0 never does."""
    denoiser = Arbitrary(3, 3, 3)
    calls = {}
    for eta in (0.0, 0.3):
        spec = SamplerSpec(name="remdm-loop", steps=60, eta=eta, alpha_on=0.7, t_on=0.8, t_off=0.1)
        pool = sample(denoiser, spec, n=50, seed=2)
        calls[eta] = pool.nfe.mean()
        assert (pool.nfe <= 61).all()
    assert calls[0.0] <= 3  # at most one call per position
    assert calls[0.3] > 10
