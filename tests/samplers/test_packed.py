"""What the fast loop saves: shared passes, kept states, no final pass without need."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from laws import coarse
from test_output_laws import Clock, target

from strop import SamplerSpec, TabularDenoiser
from strop.samplers.ancestral import LatticeRace, RevealFirst
from strop.samplers.machinery.packed import FastDraw, Packed


class Counting(TabularDenoiser):
    """Counts the sequences that the network sees, and the rows of its head."""

    def __init__(self, law: np.ndarray) -> None:
        super().__init__(law)
        self.sequences = self.rows = 0

    def hidden(self, ids, sigma):
        self.sequences += len(ids)
        return super().hidden(ids, sigma)

    def logits(self, hidden, sequence, position):
        self.rows += len(sequence)
        return super().logits(hidden, sequence, position)


def run(denoiser, spec, n=500, slots=200, bits=24):
    packed = Packed(FastDraw(denoiser, spec, 1, (), slots, denoiser.length))
    with coarse(bits):
        law = RevealFirst(packed, 1) if spec.precision == "float64" else LatticeRace(packed, 1)
        done = list(packed.run(range(n), law))
    assert sorted(one.index for one in done) == list(range(n))
    return packed, done


def test_float64_visits_only_rounds_that_reveal():
    """Sequences pass once per own non-empty round; the all-mask pass is made once for all."""
    denoiser = Counting(target(3, 3))
    packed, done = run(denoiser, SamplerSpec(steps=1000))
    assert all(1 <= one.nfe <= 3 for one in done)
    assert np.mean([one.nfe for one in done]) == pytest.approx(3, abs=0.02)  # rounds rarely meet
    assert denoiser.sequences == 1 + sum(one.nfe - 1 for one in done) == packed.network_rows
    assert denoiser.rows == 3 * len(done), "the head only where a token is drawn"


def test_one_step_needs_one_pass_for_everybody():
    denoiser = Counting(target(3, 3))
    _, done = run(denoiser, SamplerSpec(grid=(1.0,)))
    assert denoiser.sequences == 1
    assert {one.nfe for one in done} == {1}


@pytest.mark.parametrize("bits", [6, 24])
def test_float32_keeps_the_state_while_nothing_is_revealed(bits):
    """On a coarse lattice most offers fall through; still no more passes than reveals."""
    denoiser = Counting(target(3, 3))
    _, done = run(denoiser, SamplerSpec(steps=200, precision="float32"), bits=bits)
    assert max(one.nfe for one in done) <= 3
    assert denoiser.sequences == 1 + sum(one.nfe - 1 for one in done)
    if bits == 6:
        assert denoiser.rows > 4 * len(done), "offers did fall through"


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_a_time_conditioned_state_is_shared_only_at_one_noise_level(precision):
    spec = SamplerSpec(steps=6, precision=precision)
    clock = Clock(spec, length=3)
    _, done = run(clock, spec)
    first = {int(one.ids.min()) for one in done}  # the token is the round
    passes = sum(clock.seen)
    assert passes == len(first) + sum(one.nfe - 1 for one in done)
    for one in done:  # one pass for each distinct round of the output, none reused
        assert one.nfe == len(np.unique(one.ids)) or precision == "float32"


def test_finish_none_leaves_masks_and_counts_them():
    denoiser = Counting(target(3, 3))
    for precision in ("float64", "float32"):
        spec = SamplerSpec(grid=(0.5, 0.5), finish="none", precision=precision)
        _, done = run(denoiser, spec)
        left = [one.leftover_masks for one in done]
        assert left == [int((one.ids == 3).sum()) for one in done]
        assert np.mean(left) == pytest.approx(1.5, abs=0.15)


def test_a_mask_in_the_middle_of_the_vocabulary():
    """The mask's id is whatever the checkpoint says."""

    class Shifted(TabularDenoiser):
        """Token 1 is the mask; tokens 0, 2, 3 stand for 0, 1, 2."""

        def __init__(self, law):
            super().__init__(law)
            self.mask_id = 1
            self._inner = torch.tensor([0, 3, 1, 2])

        def hidden(self, ids, sigma):
            mask, self.mask_id = self.mask_id, 3
            state = super().hidden(self._inner[ids], sigma)
            self.mask_id = mask
            return state

        def logits(self, hidden, sequence, position):
            return super().logits(hidden, sequence, position)[:, self._inner]

    law = target(3, 2)
    for precision in ("float64", "float32"):
        spec = SamplerSpec(steps=40, precision=precision)
        _, plain = run(TabularDenoiser(law), spec, n=4000, slots=2000)
        _, shifted = run(Shifted(law), spec, n=4000, slots=2000)
        shift = np.array([0, 2, 3])
        frequency = [
            np.bincount(np.stack([m[one.ids] for one in done]).ravel(), minlength=4)
            for m, done in ((shift, plain), (np.arange(4), shifted))
        ]
        assert frequency[1][1] == 0
        assert np.abs(frequency[0] - frequency[1]).max() < 5 * np.sqrt(8000) / 2
