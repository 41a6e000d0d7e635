"""The laws of BD3-LM's and DiffusionGemma's samplers, enumerated without their code.

Counts are tested by chi-square at fixed seeds: a right law fails with chance 1e-4, and each wrong
law that stands beside it as a control must fail at 1e-7.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from laws import chi_square, conditional, counts, draw

from strop import SamplerSpec, UserError, spec
from strop.denoisers import TabularDenoiser
from strop.denoisers.diffusion_gemma import CanvasMemory, DiffusionGemma
from strop.samplers import bd3lm
from strop.samplers.diffusion_gemma import within_bound
from strop.spec import CheckpointSpec, Cooling

RIGHT, WRONG = 1e-4, 1e-7
N = 6000
BOUND = 0.3
"""Of entropy, in nats: at some canvases one draw is accepted, at others both."""


@pytest.fixture(scope="module")
def target() -> np.ndarray:
    return np.random.default_rng(5).dirichlet(np.full(81, 0.3)).reshape(3, 3, 3, 3)


def padded(law: np.ndarray) -> np.ndarray:
    """With a mask that never comes out."""
    return np.pad(law, [(0, 1)] * law.ndim)


@pytest.mark.parametrize("block", [1, 2, 3, 4])
def test_one_position_a_call_is_exact_whatever_the_block(target, block):
    asked = SamplerSpec(name="bd3lm", block_length=block, redraw="never")
    ids = draw(TabularDenoiser(target), asked, 3, n=N)
    assert chi_square(counts(ids, 3), padded(target)) > RIGHT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("bd3lm", {"block_length": 4, "redraw": "never"}),
        ("sdar", {"block_length": 8, "remasking": "random"}),
    ],
)
def test_one_position_a_call_is_exact_for_texts_of_full_length(name, settings):
    """32 texts of 96 words by the perfect denoiser. An exact text has a wrong word in a thousand:
    more than 13 of 3,072 come with chance 1e-5. Two words a call make 190 wrong (6 a text)."""
    from strop.denoisers.language import LanguageDenoiser
    from strop.language import Language

    language = Language.load("even")
    model = LanguageDenoiser(language)
    for steps, exact in ((settings["block_length"], True), (settings["block_length"] // 2, False)):
        way = {} if exact or name != "bd3lm" else {"update": "grid"}
        spec = SamplerSpec(name=name, steps=steps, settings={**settings, **way})
        ids = draw(model, spec, 7, n=32)
        wrong = int(language.violations(ids).sum())
        assert wrong <= 13 if exact else wrong > 60
        if exact:
            surprise = -language.log_p(ids)
            error = np.hypot(surprise.std() / np.sqrt(32), language.entropy(1000).half / 1.96)
            assert abs(surprise.mean() - language.entropy(1000).value) < 4 * error


def grid_law(target: np.ndarray, block: int, steps: int) -> np.ndarray:
    """Blocks from left to right, in each of `steps` calls every mask by itself with 1 / (N - i)."""
    vocab, length = target.shape[0], target.ndim
    law = {(vocab,) * length: 1.0}
    for first in range(0, length, block):
        for call in range(steps):
            after: dict[tuple[int, ...], float] = {}
            for context, chance in law.items():
                options = []
                for i, token in enumerate(context):
                    if token != vocab or not first <= i < first + block:
                        options.append([(token, 1.0)])
                        continue
                    reveal = 1 / (steps - call)
                    clean = conditional(target, context, i) * reveal
                    options.append([*enumerate(clean), (vocab, 1 - reveal)])
                for chosen in product(*options):
                    where = tuple(token for token, _ in chosen)
                    weight = chance * float(np.prod([w for _, w in chosen]))
                    after[where] = after.get(where, 0.0) + weight
            law = {where: weight for where, weight in after.items() if weight}
    table = np.zeros((vocab + 1,) * length)
    for where, weight in law.items():
        table[where] = weight
    return table


def test_a_grid_in_every_block_has_its_enumerated_law_and_one_call_is_not_the_target(target):
    model = TabularDenoiser(target)
    asked = SamplerSpec(name="bd3lm", block_length=2, update="grid", steps=2, redraw="never")
    ids = draw(model, asked, 4, n=N)
    assert chi_square(counts(ids, 3), grid_law(target, 2, 2)) > RIGHT
    assert chi_square(counts(ids, 3), grid_law(target, 4, 2)) < WRONG
    once = draw(model, asked.model_copy(update={"steps": 1}), 4, n=N)
    assert chi_square(counts(once, 3), padded(target)) < WRONG


def test_redraws_condition_on_the_tail_and_are_counted(target, monkeypatch):
    """The rule at four tokens: a text of one token only is thrown away."""
    monkeypatch.setattr(bd3lm, "TAIL", 3)
    monkeypatch.setattr(bd3lm, "LEAST_ENTROPY", 0.1)
    model = TabularDenoiser(target)
    asked = SamplerSpec(name="bd3lm", block_length=2)
    law = padded(target.copy())
    for a, b in product(range(3), repeat=2):
        law[a, b, b, b] = 0  # the last three are one token
    ids = draw(model, asked, 5, n=N)
    assert chi_square(counts(ids, 3), law) > RIGHT
    plain = draw(model, spec.plain_baseline(asked), 5, n=N)
    assert chi_square(counts(plain, 3), padded(target)) > RIGHT
    with pytest.raises(AssertionError, match="impossible"):
        chi_square(counts(plain, 3), law)
    from strop.samplers import fast

    done = list(fast(model, asked, seed=5, outputs=range(400), slots=64, length=4))
    redraws = np.array([one.counts["redraws"] for one in done])
    calls = np.array([one.nfe for one in done])
    assert (calls == 4 * (1 + redraws)).all()
    refused = 1 - law.sum()
    expected = refused / (1 - refused)
    assert abs(redraws.mean() - expected) < 5 * np.sqrt(expected * (1 + expected) / 400)
    alone = list(fast(model, asked, seed=5, outputs=[7, 300], slots=1, length=4))
    assert all((one.ids == done[i].ids).all() for one, i in zip(alone, (7, 300), strict=True))


def test_a_text_that_is_always_refused_ends_with_a_message(monkeypatch, target):
    monkeypatch.setattr(bd3lm, "TAIL", 1)
    monkeypatch.setattr(bd3lm, "LEAST_ENTROPY", 9.0)
    with pytest.raises(UserError, match="of 10 tries"):
        draw(TabularDenoiser(target), SamplerSpec(name="bd3lm", block_length=2), 5, n=2)


class Table(DiffusionGemma):
    """Two positions, three tokens: scores from a table of the canvas, moved by what was before."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(2)
        self.table = torch.randn(3, 3, 2, 3, generator=generator) * 1.5
        self.spec = CheckpointSpec(family="diffusion-gemma", sha256="0" * 64, shape={})
        self.source, self.codec, self.device = "table", None, torch.device("cpu")
        self.vocab_size = self.mask_id = 3
        self.length, self.block_length, self.default_length = 64, 2, 2
        self.start_id, self.stop_ids, self.pad_id = 0, (), None

    dtype = torch.float32  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]

    def encode(self, ids, memory=None, seen=None):  # noqa: ARG002
        return Nothing(None, ids.shape[1] + (0 if memory is None else memory.length))

    def denoise(self, canvas, memory, before):  # noqa: ARG002
        scores = self.table[canvas[:, 0], canvas[:, 1]]
        return scores if before is None else scores + 0.5 * before.softmax(-1)


class Nothing(CanvasMemory):
    def of(self, rows):  # noqa: ARG002
        return self


def canvas_law(model: Table, steps: int, cooling: Cooling, bound: float, emit: str) -> np.ndarray:
    """Every path of canvases, draws and noise, with its chance."""
    law = np.zeros((4, 4))
    pairs = list(product(range(3), repeat=2))
    states = {(pair, None): 1 / 9 for pair in pairs}
    for call in range(steps):
        tau = cooling.last + (cooling.first - cooling.last) * (steps - call) / steps
        after: dict = {}
        for (pair, before), chance in states.items():
            told = None if before is None else torch.tensor(before)[None]
            logits = model.denoise(torch.tensor([pair]), None, told)[0] / tau
            clean = logits.double().softmax(-1).numpy()
            entropy = -(clean * np.log(clean)).sum(-1)
            kept = [True, True]
            if entropy.min() > bound:  # the second is in if the first one's entropy is in bound
                kept[int(entropy.argmax())] = False
            for drawn in pairs:
                weight = chance * clean[0, drawn[0]] * clean[1, drawn[1]]
                if call == steps - 1 and emit == "best":
                    law[tuple(logits.argmax(-1).tolist())] += weight
                    continue
                if call == steps - 1 and emit == "drawn":
                    law[drawn] += weight
                    continue
                for noise in pairs:
                    read = tuple(d if k else z for d, k, z in zip(drawn, kept, noise, strict=True))
                    if call == steps - 1:
                        law[read] += weight / 9
                    else:
                        key = (read, tuple(map(tuple, logits.tolist())))
                        after[key] = after.get(key, 0.0) + weight / 9
        states = after
    return law


@pytest.mark.parametrize("implementation", ["fast", "dense"])
@pytest.mark.parametrize("emit", ["best", "drawn", "canvas"])
def test_canvases_have_their_enumerated_law(emit, implementation):
    model, cooling = Table(), Cooling(1.2, 0.6)
    fields = {"temperature": cooling, "entropy_bound": BOUND, "confidence": 0.0, "emit": emit}
    asked = SamplerSpec(name="diffusion-gemma", steps=2, implementation=implementation, **fields)
    ids = np.stack([one.ids for one in run(model, asked, N)])
    law = canvas_law(model, 2, cooling, BOUND, emit)
    assert law.sum() == pytest.approx(1)
    assert chi_square(counts(ids, 3), law) > RIGHT
    if emit != "best":  # the best token sees the temperature through the path only
        flat = canvas_law(model, 2, Cooling(1.2, 1.2), BOUND, emit)
        assert chi_square(counts(ids, 3), flat) < WRONG
    others = {"best", "drawn", "canvas"} - {emit}
    for other in others:
        wrong = canvas_law(model, 2, cooling, BOUND, other)
        if (wrong > 0).sum() >= (law > 0).sum():
            assert chi_square(counts(ids, 3), wrong) < WRONG


def run(model: Table, asked: SamplerSpec, n: int, slots: int = 10_000, length: int = 2):
    from strop.samplers import dense_batch, fast

    if asked.implementation == "dense":
        return dense_batch(model, asked, seed=3, first=0, count=n, length=length)
    return list(fast(model, asked, seed=3, outputs=range(n), slots=slots, length=length))


def test_outputs_do_not_depend_on_their_company():
    model = Table()
    asked = SamplerSpec(name="diffusion-gemma", steps=9, confidence=0.9, entropy_bound=0.5)
    together, apart = (run(model, asked, 12, slots, 6) for slots in (12, 5))
    assert [one.ids.tolist() for one in together] == [one.ids.tolist() for one in apart]
    assert [one.nfe for one in together] == [one.nfe for one in apart]
    assert len({one.nfe for one in together}) > 1
    assert all(one.counts["canvases"] == 3 for one in together)


def test_the_bound_subtracts_the_own_entropy():
    entropy = torch.tensor([[0.3, 0.05, 0.2, 0.9]])
    assert within_bound(entropy, 0.25).tolist() == [[True, True, True, False]]
    assert within_bound(entropy, 0.0).tolist() == [[False, True, False, False]]


def test_the_same_numbers_in_every_canvas_write_the_same_canvas_twice():
    model = Table()
    fields = {"steps": 3, "confidence": 0.0}
    same = run(model, SamplerSpec(name="diffusion-gemma", numbers="same", **fields), 40, length=4)
    assert all((one.ids[:2] == one.ids[2:]).all() for one in same)
    fresh = run(model, SamplerSpec(name="diffusion-gemma", **fields), 40, length=4)
    assert any((one.ids[:2] != one.ids[2:]).any() for one in fresh)
