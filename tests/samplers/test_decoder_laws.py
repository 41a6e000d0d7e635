"""The laws of the blockwise decoders: counts of many outputs against enumeration.

The target has V = 3 tokens on L = 4 positions, one of them given, so 27 outcomes. With N = 40,000
outputs a chi-square test at p < 1e-4 notices with power above 0.98 any law whose chi-square
distance to the right one is above 2e-3 (noncentrality N * 2e-3 = 80 on 26 degrees of freedom); the
distances of the wrong laws below are asserted to be larger. Seeds are fixed.
"""

from __future__ import annotations

import decoder_laws as by
import numpy as np
import pytest
import torch
from laws import chi_square, coarse, conditional, counts

from strop.denoisers.tabular import TabularDenoiser
from strop.errors import UserError
from strop.samplers.decoders import DecoderRecipe, fill
from strop.samplers.machinery.blocks import Decoder
from strop.samplers.machinery.committing import (
    Carried,
    Coins,
    EntropyBound,
    Factor,
    Quota,
    Schedule,
    Threshold,
)
from strop.samplers.machinery.drawing import Confidence
from strop.samplers.public_decoders import PublicRun, dream, fast_dllm_llada, llada
from strop.spec import SamplerSpec

N, ALARM, DISTANCE = 40_000, 1e-4, 2e-3
VOCAB, START = 3, (3, 3, 1, 3)
"""Three tokens; a mask is 3. The third position is given, with masks on both sides."""


@pytest.fixture(scope="module")
def denoiser() -> TabularDenoiser:
    rng = np.random.default_rng(5)
    return TabularDenoiser(rng.dirichlet(np.full(81, 0.4)).reshape((3,) * 4) * 0.97 + 0.03 / 81)


def outputs(denoiser, recipe: DecoderRecipe, *, steps: int, seed: int = 1, **draw) -> np.ndarray:
    ids = torch.tensor(START).repeat(N, 1)
    spec = SamplerSpec(name="blockwise", steps=steps, **draw)
    canvas = fill(denoiser, recipe, ids, spec, seed=seed, outputs=np.arange(N))
    assert (canvas.ids[:, 2] == 1).all()
    assert not (canvas.ids == VOCAB).any()
    return counts(canvas.ids.numpy(), VOCAB)


def exact(denoiser) -> np.ndarray:
    """The target given the given token."""
    law = np.zeros((VOCAB + 1,) * 4)
    law[:VOCAB, :VOCAB, 1, :VOCAB] = denoiser.target[:, :, 1, :]
    return law / law.sum()


def distance(law: np.ndarray, right: np.ndarray) -> float:
    """Chi-square distance: what N outputs multiply into a noncentrality."""
    seen = right > 0
    return float(((law - right)[seen] ** 2 / right[seen]).sum() + law[~seen].sum())


def one(round_: int, left: int) -> int:
    return 1


CHOSEN_BEFORE = {
    "random": (Confidence("random"), by.at_random(one, 1.0)),
    "left to right": (Confidence("left"), by.by_order(by.left, one, 1.0)),
    "top probability": (Confidence("top"), by.by_order(by.top, one, 1.0)),
    "margin": (Confidence("margin"), by.by_order(by.margin, one, 1.0)),
    "entropy": (Confidence("entropy", tempered=True), by.by_order(by.entropy, one, 1.0)),
}


@pytest.mark.parametrize("block", [0, 2])
@pytest.mark.parametrize("name", CHOSEN_BEFORE)
def test_one_position_a_round_chosen_before_its_draw_is_exact(denoiser, name, block):
    score, rule = CHOSEN_BEFORE[name]
    law = by.enumerated(denoiser.target, START, rule, block)
    assert np.allclose(law, exact(denoiser), atol=1e-12)  # the theorem, by enumeration
    seen = outputs(denoiser, DecoderRecipe(Decoder(score, Quota()), block_length=block), steps=3)
    assert chi_square(seen, law) > ALARM


def test_dreams_origin_is_exact_as_its_steps_grow_and_enumerated_at_any(denoiser):
    def hazards(steps: int) -> list[float]:
        t = np.linspace(1, 1e-3, steps + 1, dtype=np.float32)
        return [*(1 - t[1:-1] / t[:-2]).astype(float), 1.0]

    laws = {m: by.enumerated(denoiser.target, START, by.by_coins(hazards(m), 1.0)) for m in (2, 40)}
    assert distance(laws[40], exact(denoiser)) < distance(laws[2], exact(denoiser)) / 10
    recipe = DecoderRecipe(Decoder(Confidence("random"), Coins()))
    for steps, law in laws.items():
        assert chi_square(outputs(denoiser, recipe, steps=steps), law) > ALARM
    assert chi_square(outputs(denoiser, recipe, steps=2), exact(denoiser)) < ALARM


@pytest.mark.parametrize("tempered", [False, True], ids=["llada", "maskgit_plus"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_choosing_by_the_drawn_token_has_another_law(denoiser, temperature, tempered):
    """LLaDA orders by the network's own probability of the draw, Dream by the tempered one."""

    def choose(values: dict[int, float], round_: int) -> tuple[int, ...]:
        return by.best(values, 1)

    rule = by.by_draw(choose, temperature, tempered)
    law = by.enumerated(denoiser.target, START, rule)
    score = Confidence("confidence", tempered=tempered)
    recipe = DecoderRecipe(Decoder(score, Quota()))
    seen = outputs(denoiser, recipe, steps=3, temperature=temperature)
    assert chi_square(seen, law) > ALARM
    before = by.by_order(by.top, one, temperature)
    other = by.enumerated(denoiser.target, START, before)
    assert distance(other, law) > DISTANCE  # choosing before the draw is no stand-in
    assert chi_square(seen, other) < ALARM


def test_untempered_and_tempered_orders_differ(denoiser):
    def choose(values: dict[int, float], round_: int) -> tuple[int, ...]:
        return by.best(values, 1)

    laws = [
        by.enumerated(denoiser.target, START, by.by_draw(choose, 3.0, tempered))
        for tempered in (False, True)
    ]
    assert distance(laws[0], laws[1]) > DISTANCE
    for own, tempered in enumerate((False, True)):
        recipe = DecoderRecipe(Decoder(Confidence("confidence", tempered=tempered), Quota()))
        seen = outputs(denoiser, recipe, steps=3, temperature=3.0)
        assert chi_square(seen, laws[own]) > ALARM
        assert chi_square(seen, laws[1 - own]) < ALARM


@pytest.mark.parametrize("name", CHOSEN_BEFORE)
def test_two_rounds_have_the_law_of_two_rounds(denoiser, name):
    score, _ = CHOSEN_BEFORE[name]

    def quota(round_: int, left: int) -> int:
        return by.quotas(3, 2)[round_]

    values = {"left": by.left, "top": by.top, "margin": by.margin, "entropy": by.entropy}
    if score.kind == "random":
        rule = by.at_random(quota, 1.0)
    else:
        rule = by.by_order(values[score.kind], quota, 1.0)
    law = by.enumerated(denoiser.target, START, rule)
    assert distance(exact(denoiser), law) > DISTANCE
    seen = outputs(denoiser, DecoderRecipe(Decoder(score, Quota())), steps=2)
    assert chi_square(seen, law) > ALARM
    assert chi_square(seen, exact(denoiser)) < ALARM


def threshold(values: dict[int, float], round_: int) -> tuple[int, ...]:
    first = by.best(values, 1)[0]
    return tuple(i for i in values if values[i] >= 0.5 or i == first)


def factor(values: dict[int, float], round_: int) -> tuple[int, ...]:
    ordered = sorted(values.values(), reverse=True)
    needed = [-1.0] + [1 - 1.0 / (n + 1) for n in range(2, len(ordered) + 1)]
    failing = [k for k, (c, t) in enumerate(zip(ordered, needed, strict=True)) if c < t]
    at = failing[0] if failing else len(ordered) - 1
    return by.best(values, at + 1 if at in (0, len(ordered) - 1) else at)


PARALLEL = {"threshold": (Threshold(0.5), threshold), "factor": (Factor(1.0), factor)}


@pytest.mark.parametrize("name", PARALLEL)
def test_fast_dllms_rules_have_their_enumerated_laws(denoiser, name):
    commit, choose = PARALLEL[name]
    law = by.enumerated(denoiser.target, START, by.by_draw(choose, 1.0, False))
    seen = outputs(denoiser, DecoderRecipe(Decoder(Confidence("confidence"), commit)), steps=3)
    assert chi_square(seen, law) > ALARM
    for other, (_, rule) in PARALLEL.items():
        if other != name:
            wrong = by.enumerated(denoiser.target, START, by.by_draw(rule, 1.0, False))
            assert distance(wrong, law) > DISTANCE
            assert chi_square(seen, wrong) < ALARM


def test_the_carried_threshold_has_its_enumerated_law(denoiser):
    """Three masks in three rounds: one candidate a round and what was rejected, so never more."""
    law = by.enumerated(
        denoiser.target, START, by.by_draw(lambda values, _: by.best(values, 1), 1.0, True)
    )
    recipe = DecoderRecipe(Decoder(Confidence("confidence", tempered=True), Carried(0.5)))
    assert chi_square(outputs(denoiser, recipe, steps=3), law) > ALARM
    # In one round all are candidates, and the rejected wait for rounds that are added.
    law = by.enumerated(denoiser.target, START, by.by_draw(threshold, 1.0, True))
    assert chi_square(outputs(denoiser, recipe, steps=1), law) > ALARM


@pytest.mark.parametrize("bound", [0.3, 1.5])
def test_a_bound_on_entropy_has_its_enumerated_law(denoiser, bound):
    def rule(laws, round_):
        values = {i: by.entropy(law, i) for i, law in laws.items()}
        order = by.best(values, len(values))
        order = sorted(order, key=lambda i: (-values[i], i))
        take, spent = [order[0]], -values[order[0]]
        for i in order[1:]:  # the sum without the largest is what came before
            if spent > bound:
                break
            take.append(i)
            spent -= values[i]
        yield from by.drawn(laws, tuple(sorted(take)), 1.0)

    law = by.enumerated(denoiser.target, START, rule)
    recipe = DecoderRecipe(Decoder(Confidence("entropy"), EntropyBound(bound)))
    assert chi_square(outputs(denoiser, recipe, steps=1), law) > ALARM


def test_dreams_schedule_and_its_spread_have_their_enumerated_laws(denoiser):
    t = np.linspace(1, 1e-3, 3, dtype=np.float32)

    def count(round_: int, left: int) -> int:
        share = np.float32(1) - t[1] / t[0]
        return int(np.float32(left) * share) if round_ == 0 else left

    plain = by.enumerated(denoiser.target, START, by.by_order(by.entropy, count, 1.0))
    spread = by.enumerated(denoiser.target, START, by.by_weights(by.entropy, count, 0.5))
    assert distance(spread, plain) > DISTANCE
    for value, own, other in ((0.0, plain, spread), (0.5, spread, plain)):
        recipe = DecoderRecipe(
            Decoder(Confidence("entropy", tempered=True), Schedule(spread=value))
        )
        seen = outputs(denoiser, recipe, steps=2)
        assert chi_square(seen, own) > ALARM
        assert chi_square(seen, other) < ALARM


def test_a_sampler_that_ignores_the_given_token_is_noticed(denoiser):
    recipe = DecoderRecipe(Decoder(Confidence("random"), Quota()))
    seen = outputs(denoiser, recipe, steps=3)
    free = np.zeros((VOCAB + 1,) * 4)
    for i, context in ((0, (3, 3, 3, 3)), (1, (3, 3, 3, 3)), (3, (3, 3, 3, 3))):
        assert not np.allclose(
            conditional(denoiser.target, START, i), conditional(denoiser.target, context, i)
        )
    free[:VOCAB, :VOCAB, 1, :VOCAB] = denoiser.target.sum(2)
    assert distance(free, exact(denoiser)) > DISTANCE
    assert chi_square(seen, free) < ALARM


def test_an_output_does_not_depend_on_its_neighbours(denoiser):
    mixed = torch.tensor([START, (3, 3, 3, 3), (0, 3, 3, 3), START])
    for score, commit in (
        (Confidence("confidence"), Threshold(0.5)),
        (Confidence("random"), Coins()),
        (Confidence("entropy"), Schedule(spread=0.5)),
        (Confidence("confidence"), Carried(0.5)),
    ):
        recipe = DecoderRecipe(Decoder(score, commit), block_length=2)
        spec = SamplerSpec(name="blockwise", steps=4)
        together = fill(denoiser, recipe, mixed, spec, seed=4, outputs=[7, 8, 9, 3])
        for b, output in enumerate((7, 8, 9, 3)):
            alone = fill(denoiser, recipe, mixed[b : b + 1], spec, seed=4, outputs=[output])
            assert torch.equal(alone.ids[0], together.ids[b])
            assert np.array_equal(alone.order[0], together.order[b])
            assert alone.calls[0] == together.calls[b]


def test_float32_draws_have_the_law_of_the_float32_race(denoiser):
    """On a coarse lattice of 4 bits, left to right, by enumeration of every race."""
    from strop.samplers.machinery.lattice import exact_law

    def rule(laws, round_):
        i = min(laws)
        # The mask takes part in the race with no weight, as in the draw itself.
        won = exact_law(np.append(laws[i].astype(np.float32), np.float32(0)), 4)
        for v in range(VOCAB):
            if won[v] > 0:
                yield float(won[v]), {i: v}

    law = by.enumerated(denoiser.target, START, rule)
    assert distance(exact(denoiser), law) > DISTANCE
    recipe = DecoderRecipe(Decoder(Confidence("left"), Quota()))
    with coarse(4):
        seen = outputs(denoiser, recipe, steps=3, precision="float32")
    assert chi_square(seen, law) > ALARM
    assert chi_square(seen, exact(denoiser)) < ALARM


def the_best(values: dict[int, float], round_: int) -> tuple[int, ...]:
    return by.best(values, 1)


LITERAL = {
    "llada low_confidence": (
        lambda task: llada(task, steps=3, block_length=4, temperature=1.0),
        by.by_draw(the_best, 1.0, False),
    ),
    "llada random": (
        lambda task: llada(task, steps=3, block_length=4, temperature=1.0, remasking="random"),
        by.at_random(one, 1.0),
    ),
    "fast-dllm threshold": (
        lambda task: fast_dllm_llada(task, steps=3, block_length=4, temperature=0.7, threshold=0.5),
        by.by_draw(threshold, 0.7, False),
    ),
    "fast-dllm factor": (
        lambda task: fast_dllm_llada(task, steps=3, block_length=4, temperature=1.0, factor=1.0),
        by.by_draw(factor, 1.0, False),
    ),
    "dream origin": (
        lambda task: dream(task, steps=2, temperature=1.0, alg="origin"),
        by.by_coins([float(1 - np.float32(0.5005)), 1.0], 1.0),
    ),
    "dream topk_margin": (
        lambda task: dream(task, steps=2, temperature=1.0, alg="topk_margin"),
        by.by_order(by.margin, lambda round_, left: 1 if round_ == 0 else left, 1.0),
    ),
    "dream entropy, alg_temp": (
        lambda task: dream(task, steps=2, temperature=1.0, alg="entropy", alg_temp=0.5),
        by.by_weights(by.entropy, lambda round_, left: 1 if round_ == 0 else left, 0.5),
    ),
}


@pytest.mark.parametrize("name", LITERAL)
def test_the_literal_forms_have_the_same_laws(denoiser, name):
    play, rule = LITERAL[name]
    generator = torch.Generator().manual_seed(11)
    canvas = play(PublicRun(denoiser, torch.tensor(START).repeat(N, 1), 0, generator))
    law = by.enumerated(denoiser.target, START, rule)
    seen = counts(canvas.ids.numpy(), VOCAB)
    assert chi_square(seen, law) > ALARM
    assert distance(exact(denoiser), law) > DISTANCE or name == "llada random"


def test_a_public_loop_that_commits_masks_is_ended(denoiser):
    class Masked(TabularDenoiser):
        def logits(self, hidden, sequence, position):
            found = super().logits(hidden, sequence, position)
            found[:, VOCAB] = 9.0
            return found

    own = Masked(denoiser.target)
    own.spec = own.spec.model_copy(update={"family": "llada"})
    task = PublicRun(own, torch.tensor([START]), 0, torch.Generator())
    with pytest.raises(UserError, match="never end"):
        fast_dllm_llada(task, steps=1, block_length=4, threshold=0.9)
    greedy = DecoderRecipe(Decoder(Confidence("top"), Quota()))
    spec = SamplerSpec(name="blockwise", steps=2)
    filled = fill(own, greedy, task.ids, spec, seed=0, outputs=[0])
    assert not (filled.ids == VOCAB).any()
