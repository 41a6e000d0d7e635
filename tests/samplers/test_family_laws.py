"""The families' samplers, dense and fast, against laws enumerated without their code.

Power: N = 30,000 outputs over 9 to 16 outcomes; a chi-square test at 1e-3 detects with probability
above .99 laws that differ by about .03 in total variation. The negative controls are such laws.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import laws
import numpy as np
import pytest
from family_models import Judge, Table, chain, product_law, softmax
from laws import chi_square, counts, sharpen

from strop import SamplerSpec
from strop.samplers import fast
from strop.samplers.machinery.lattice import exact_law

N = 30_000
PASS, FAIL = 1e-3, 1e-6
BOTH = pytest.mark.parametrize("implementation", ["fast", "dense"])


def draw(denoiser, spec: SamplerSpec, seed: int = 5, n: int = N, bits: int = 24) -> np.ndarray:
    return laws.draw(denoiser, spec, seed, n=n, bits=bits, slots=7000)


def p_value(denoiser, spec: SamplerSpec, law: dict, bits: int = 24) -> float:
    classes = denoiser.vocab_size
    table = np.zeros((classes, classes))
    for state, chance in law.items():
        table[state] += chance
    assert table.sum() == pytest.approx(1)
    return chi_square(observed(denoiser, spec.model_dump_json(), bits), table)


@functools.cache
def observed(denoiser, settings: str, bits: int) -> np.ndarray:
    """How often each output came out: right laws and wrong ones are held against the same."""
    spec = SamplerSpec.model_validate_json(settings)
    return counts(draw(denoiser, spec, bits=bits), denoiser.vocab_size - 1)


model_of = functools.cache(Table)


@dataclass(frozen=True)
class Time:
    """The public uniform grid, in plain numbers."""

    steps: int

    def at(self, k: int) -> tuple[float, float]:
        width = (1 - 1e-5) / self.steps
        return 1 - k * width, 1 - (k + 1) * width


def alpha(t: float) -> float:
    return 1 - 0.999 * t


def noise(t: float) -> float:
    return -math.log(alpha(t))


# --- SEDD ------------------------------------------------------------------------------------


def sedd_law(model, spec, *, wrong: str = "", bits: int | None = None) -> dict:
    mask, tokens, time = model.mask_id, model.vocab_size - 1, Time(spec.steps)

    def position(context, i, k):
        if context[i] != mask:
            return np.eye(tokens + 1)[context[i]]
        last = k == spec.steps
        t, s = (1e-5, 0.0) if last else time.at(k)
        score = np.exp(model.row(context, i, noise(t))[:tokens]) / math.expm1(noise(t)) / tokens
        total = score.sum()
        if wrong == "temperature without its sum":
            score = score ** (1 / spec.temperature)
            total = score.sum()
        rate = math.expm1(noise(t) - noise(s))
        if spec.name == "sedd-euler":
            rate = (t - s) * 0.999 / alpha(t)
        if wrong == "the grid's timing":
            rate = (t - s) / t / total
        reveal = 1.0 if last else min(1.0, rate * total)
        law = sharpen(score / score.sum(), spec.temperature, spec.top_p)
        if bits is None:
            return np.append(law * reveal, 1 - reveal)
        return exact_law(np.append(law * reveal, 1 - reveal).astype(np.float32), bits)

    def step(k):
        return lambda context: product_law([position(context, i, k) for i in range(2)])

    return chain({(mask, mask): 1.0}, [step(k) for k in range(spec.steps + 1)])


@BOTH
@pytest.mark.parametrize("name", ["sedd-analytic", "sedd-euler"])
@pytest.mark.parametrize("more", [{}, {"temperature": 0.6}, {"top_p": 0.7}, {"temperature": 0.0}])
def test_sedd(name, more, implementation):
    model = model_of(4, 2, mask_id=3, seed=1)
    spec = SamplerSpec(name=name, steps=4, implementation=implementation, **more)
    assert p_value(model, spec, sedd_law(model, spec)) > PASS


@BOTH
def test_sedd_in_float32_on_a_coarse_lattice(implementation):
    model = model_of(4, 2, mask_id=3, seed=2)
    spec = SamplerSpec(
        name="sedd-analytic", steps=4, precision="float32", implementation=implementation
    )
    assert p_value(model, spec, sedd_law(model, spec, bits=6), bits=6) > PASS
    assert p_value(model, spec, sedd_law(model, spec), bits=6) < FAIL


@BOTH
def test_wrong_laws_of_sedd_are_noticed(implementation):
    model = model_of(4, 2, mask_id=3, seed=1)
    spec = SamplerSpec(
        name="sedd-analytic", steps=4, temperature=0.6, implementation=implementation
    )
    for wrong in ("temperature without its sum", "the grid's timing"):
        assert p_value(model, spec, sedd_law(model, spec, wrong=wrong)) < FAIL, wrong


def test_with_log_linear_noise_both_predictors_of_sedd_have_one_law():
    """e^(sigma(t) - sigma(s)) - 1 = (t - s) dsigma/dt there, so only rounding tells them apart."""
    model = model_of(4, 2, mask_id=3, seed=1)
    laws = [
        sedd_law(model, SamplerSpec(name=name, steps=4)) for name in ("sedd-analytic", "sedd-euler")
    ]
    assert laws[0] == pytest.approx(laws[1])


# --- DUO -------------------------------------------------------------------------------------


def duo_law(model, spec, *, wrong: str = "") -> dict:
    classes, time = model.vocab_size, Time(spec.steps)

    def position(context, i, k):
        last = k == spec.steps
        t, s = (1e-5, 0.0) if last else time.at(k)
        a, b = alpha(t), 1.0 if last else alpha(s)
        p = sharpen(softmax(model.row(context, i, noise(t))), spec.temperature, spec.top_p)
        if last and spec.finish == "greedy":
            return np.eye(classes)[p.argmax()]
        if wrong == "absorbing":
            return b * p + (1 - b) / classes
        # Bayes: P(x_s | x_t) with x_0 ~ p, from the forward transitions themselves.
        x = np.eye(classes)[context[i]]
        q_s = b * np.eye(classes) + (1 - b) / classes  # rows x_0, columns x_s
        r = a / b
        back = r * x + (1 - r) / classes  # P(x_t | x_s) by x_s
        q_t = a * x + (1 - a) / classes  # P(x_t | x_0) by x_0
        # The public posterior plugs the mean of p into the joint and divides once.
        joint = (p @ q_s) * back
        return joint / (p @ q_t) if wrong != "unnormalised" else joint / joint.sum()

    def step(k):
        return lambda context: product_law([position(context, i, k) for i in range(2)])

    everywhere = {(v, w): 1 / classes**2 for v in range(classes) for w in range(classes)}
    return chain(everywhere, [step(k) for k in range(spec.steps + (spec.finish != "none"))])


@BOTH
@pytest.mark.parametrize(
    "more",
    [{}, {"temperature": 0.6}, {"top_p": 0.7}, {"finish": "greedy"}, {"finish": "none"}],
    ids=str,
)
def test_duo(more, implementation):
    model = model_of(3, 2, mask_id=3, seed=3)
    spec = SamplerSpec(name="duo-ancestral", steps=4, implementation=implementation, **more)
    law = duo_law(model, spec)
    assert p_value(model, spec, law) > PASS


@BOTH
def test_wrong_laws_of_duo_are_noticed(implementation):
    model = model_of(3, 2, mask_id=3, seed=3)
    spec = SamplerSpec(
        name="duo-ancestral", steps=4, temperature=0.6, implementation=implementation
    )
    assert p_value(model, spec, duo_law(model, spec, wrong="absorbing")) < FAIL
    assert p_value(model, spec, duo_law(model, spec.model_copy(update={"temperature": 1.0}))) < FAIL
    coarse = spec.model_copy(update={"steps": 1})
    assert p_value(model, spec, duo_law(model, coarse)) < FAIL


def test_duo_asks_the_head_only_where_a_change_is_nominated():
    model = Table(3, 2, mask_id=3, seed=3)
    spec = SamplerSpec(name="duo-ancestral", steps=64, finish="none")
    draw(model, spec, n=500)
    rows = sum(count for count, _ in model.asked)
    assert rows < 0.2 * 64 * 500 * 2  # 2 ln 64 of 64 updates, about 13 %


# --- DiDi-Instruct ---------------------------------------------------------------------------


@functools.cache
def didi_model(seed: int = 1) -> Table:
    model = Table(3, 2, mask_id=2, seed=seed)
    model.discriminator = Judge(3, 2, 2, seed + 1)  # type: ignore[attr-defined]
    return model


def didi_law(model, spec, *, wrong: str = "", bits: int | None = None) -> dict:
    mask, time, own = model.mask_id, Time(spec.steps), spec.settings
    judge = model.discriminator
    tilted = int(spec.steps * (1 - own["rerank"])) if "rerank" in own else 0

    def shares(z):
        tau = spec.temperature
        kind = own["mask_logit"]
        if kind == "tempered":
            return softmax(z / tau)[:mask]
        clean = sharpen(softmax(z[:mask]), tau, 1.0)
        return clean if kind == "out" else clean * (1 - softmax(z)[mask])

    def position(context, i, k):
        if context[i] != mask:
            return np.eye(mask + 1)[context[i]]
        t, s = (1e-5, 0.0) if k == spec.steps else time.at(k)
        z = model.row(context, i, noise(t))
        if k == spec.steps:
            return np.append(sharpen(softmax(z[:mask]), spec.temperature, 1.0), 0.0)
        if k < tilted and wrong != "no tilt":
            p, pull = softmax(z), judge.table @ judge.weight[i]
            strength = own["tilt_start"] + k / max(1, tilted - 1) * (
                own["tilt_end"] - own["tilt_start"]
            )
            z = z + strength * np.clip(p * (pull - p @ pull), -1, 1)
        tokens = shares(z) * (alpha(s) - alpha(t))
        weights = np.append(tokens, 1 - alpha(s))
        return weights / weights.sum() if bits is None else exact_law(weights.astype("f4"), bits)

    def step(k):
        def kernel(context):
            law = product_law([position(context, i, k) for i in range(2)])
            if "rerank" not in own or k < tilted or k == spec.steps or wrong == "no re-ranking":
                return law
            worth = {x: math.exp(judge.worth(x)) for x in law}
            if wrong == "the best":
                return {
                    x: sum(
                        p * q * (2 * (worth[x] > worth[y]) + (worth[x] == worth[y]))
                        for y, q in law.items()
                    )
                    for x, p in law.items()
                }
            return {
                x: sum(2 * p * q * worth[x] / (worth[x] + worth[y]) for y, q in law.items())
                for x, p in law.items()
            }

        return kernel

    return chain({(mask, mask): 1.0}, [step(k) for k in range(spec.steps + 1)])


def guided(implementation: str, **more) -> SamplerSpec:
    settings = {"tilt_start": 1.0, "tilt_end": 3.0, "candidates": 2, **more.pop("settings", {})}
    return SamplerSpec(
        name="didi-guided", steps=4, implementation=implementation, settings=settings, **more
    )


@BOTH
@pytest.mark.parametrize("mask_logit", ["tempered", "kept", "out"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_didi_unguided(mask_logit, temperature, implementation):
    spec = SamplerSpec(
        name="didi-ancestral",
        steps=4,
        temperature=temperature,
        implementation=implementation,
        settings={"mask_logit": mask_logit},
    )
    model = didi_model()
    assert p_value(model, spec, didi_law(model, spec)) > PASS


@BOTH
@pytest.mark.parametrize("rerank", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_didi_guided(rerank, temperature, implementation):
    spec = guided(implementation, temperature=temperature, settings={"rerank": rerank})
    model = didi_model()
    assert p_value(model, spec, didi_law(model, spec)) > PASS


@BOTH
def test_wrong_laws_of_didi_are_noticed(implementation):
    model, spec = didi_model(), guided(implementation, temperature=0.6)
    for wrong in ("no tilt", "no re-ranking", "the best"):
        assert p_value(model, spec, didi_law(model, spec, wrong=wrong)) < FAIL, wrong
    other = spec.model_copy(update={"settings": {**spec.settings, "mask_logit": "out"}})
    assert p_value(model, spec, didi_law(model, other)) < FAIL


@BOTH
def test_didi_in_float32_on_a_coarse_lattice(implementation):
    spec = SamplerSpec(
        name="didi-ancestral", steps=4, precision="float32", implementation=implementation
    )
    model = didi_model()
    assert p_value(model, spec, didi_law(model, spec, bits=5), bits=5) > PASS
    assert p_value(model, spec, didi_law(model, spec), bits=5) < FAIL


# --- all of them -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sedd-analytic", "duo-ancestral", "didi-guided"])
def test_outputs_depend_neither_on_the_batch_nor_on_their_neighbours(name):
    model = {"sedd": Table(4, 2, 3, 1), "duo": Table(3, 2, 3, 3), "didi": didi_model()}[
        name.partition("-")[0]
    ]
    spec = SamplerSpec(name=name, steps=4)
    whole = {
        one.index: one.ids.tolist()
        for one in fast(model, spec, seed=1, outputs=range(60), slots=60, length=2)
    }
    for one in fast(model, spec, seed=1, outputs=[7, 3, 41, 20], slots=3, length=2):
        assert one.ids.tolist() == whole[one.index]


@pytest.mark.parametrize("sampler", ["sedd-analytic", "didi-ancestral"])
def test_draws_that_break_a_bound_are_told(monkeypatch: pytest.MonkeyPatch, sampler: str) -> None:
    """The fast float32 forms count such draws as the others do; the count must not get lost."""
    from strop.samplers.machinery.lattice import Lattice

    real = Lattice.settle

    def breaking(self: Lattice, *given: object) -> tuple[object, int]:
        tokens, broken = real(self, *given)  # type: ignore[arg-type]
        return tokens, broken + 1

    monkeypatch.setattr(Lattice, "settle", breaking)
    spec = SamplerSpec(name=sampler, steps=2, precision="float32")
    model = didi_model() if sampler == "didi-ancestral" else model_of(4, 2, mask_id=3, seed=1)
    with pytest.warns(UserWarning, match="broke a bound"):
        draw(model, spec, n=10)
