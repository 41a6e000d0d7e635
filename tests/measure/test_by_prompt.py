"""Outputs that answer one prompt are not independent: intervals are over prompts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strop.measure.frame import BY_PROMPT, Measured, PartialScore, perplexity_ratio
from strop.measure.metric import CALLS, ENTROPY, PERPLEXITY, PoolRows
from strop.prompts import Canvas, Canvases
from strop.spec import CellSpec, CheckpointSpec, GeneratorSpec, MetricSpec, PromptSpec, SamplerSpec
from strop.stats.resample import clustered, mean, student
from strop.tuning.race import Arm, Drawn
from strop.verbs.points import UNSEEN, prompt_notes, unseen

PROMPTS, EACH, TOKENS = 8, 16, 50
TRUTH, OUTPUT, PROMPT = 3.0, 0.3, 0.3
"""Mean log-perplexity, and its standard deviations between outputs and between prompts."""


def _part(nats: np.ndarray, prompts: int | None, index: np.ndarray | None = None) -> PartialScore:
    """The perplexity of outputs with these nats per token."""
    n = len(nats)
    columns: dict[str, Any] = {"nll": TOKENS * nats, "tokens": np.full(n, TOKENS)}
    columns |= {name: np.full(n, 200) for name in ("bytes", "kept_bytes", "source_bytes")}
    index = np.arange(n) if index is None else index
    rows = PoolRows.of(np.zeros((n, 0), int))
    return PartialScore.of(PERPLEXITY, MetricSpec(name="perplexity"), index, columns, rows, prompts)


def _cell(part: PartialScore, prompts: PromptSpec | None) -> Measured:
    checkpoint = CheckpointSpec(family="mdlm", sha256="c" * 64, shape={"vocab_size": 9})
    generator = GeneratorSpec(
        checkpoint=checkpoint, sampler=SamplerSpec(), length=8, prompts=prompts
    )
    return Measured(
        CellSpec(generator=generator, seed=0), Path("run/cells/x"), len(part.index), None, (part,)
    )


def _spec(count: int) -> PromptSpec:
    return PromptSpec(sha256="d" * 64, count=count, form="prefix")


def test_the_interval_is_students_over_prompts() -> None:
    """Of equally many answers the pooled log-perplexity is the mean of the prompts' means."""
    nats = np.random.default_rng(0).normal(TRUTH, 1, 12)
    [found] = _cell(_part(nats, 4), _spec(4)).scores
    level = found.interval("pooled")
    means = nats.reshape(3, 4).mean(0)  # output i answers prompt i mod 4
    half = student(0.95, 3) * means.std(ddof=1) / 2
    assert level is not None
    assert np.log(level.ends) == pytest.approx([means.mean() - half, means.mean() + half])
    assert np.log(level.value) == pytest.approx(nats.mean())
    assert (level.n, level.how) == (4, BY_PROMPT)


@pytest.mark.parametrize("prompts", [None, 1, 12, 40])
def test_without_prompts_that_repeat_outputs_are_resampled(prompts: int | None) -> None:
    [found] = _cell(_part(np.linspace(2, 4, 12), prompts), None).scores
    level = found.interval("pooled")
    assert level is not None
    assert (level.n, level.how) == (12, "bootstrap")


def test_intervals_hold_for_other_prompts() -> None:
    """8 prompts with 16 answers each, as much variance between prompts as within.

    600 pools: 95% has a standard error of .9%, and the bounds are three of them. As independent
    outputs they would hold in about 53%, and with resampled prompts in 87%.
    """
    rng, held = np.random.default_rng(1), 0
    for _ in range(600):
        level = TRUTH + rng.normal(0, PROMPT, PROMPTS)
        nats = np.tile(level, EACH) + rng.normal(0, OUTPUT, PROMPTS * EACH)
        [found] = _cell(_part(nats, PROMPTS), _spec(PROMPTS)).scores
        interval = found.interval("pooled")
        assert interval is not None
        held += not interval.excludes(float(np.exp(TRUTH)))
    assert 0.923 < held / 600 < 0.977


@pytest.mark.parametrize("differs", [0.0, 0.2])
def test_ratios_are_paired_by_prompt(differs: float) -> None:
    """Of two samplers on the same prompts, whose gain may differ from prompt to prompt.

    600 pairs; unpaired, the ratio would hold in all of them where no gain differs, and in 80%
    where it does.
    """
    rng, held, width = np.random.default_rng(2), 0, 0.0
    for _ in range(600):
        level = TRUTH + rng.normal(0, 1, PROMPTS)
        gain = 0.5 + rng.normal(0, differs, PROMPTS)
        sides = [np.tile(one, EACH) for one in (level, level - gain)]
        pair = [
            _cell(_part(one + rng.normal(0, OUTPUT, len(one)), PROMPTS), _spec(PROMPTS))
            for one in sides
        ]
        found = perplexity_ratio(pair[0], pair[1])
        held += not found.excludes(float(np.exp(0.5)))
        width += float(np.log(found.ends[1]) - np.log(found.ends[0])) / 600
        assert (found.n, found.how) == (PROMPTS, BY_PROMPT)
    assert 0.923 < held / 600 < 0.977
    # What the prompts share cancels: the spread of the gain, and what 16 answers leave.
    spread = np.sqrt(differs**2 + 2 * OUTPUT**2 / EACH) / np.sqrt(PROMPTS)
    assert width == pytest.approx(2 * student(0.95, PROMPTS - 1) * spread, rel=0.05)


def test_only_prompts_that_both_answer_are_paired() -> None:
    """Whatever the order of the outputs, and however many a prompt has."""
    nats = np.array([1.0, 2.0, 4.0, 1.2, 2.2, 4.1])
    one = _part(nats, 4, np.array([0, 1, 2, 4, 5, 6]))
    other = _part(np.array([9.0, 3.0, 1.0]), 4, np.array([3, 2, 1]))
    found = perplexity_ratio(_cell(one, _spec(4)), _cell(other, _spec(4)))
    assert np.log(found.value) == pytest.approx((2.0 + 2.2 + 4.0 + 4.1) / 4 - (3.0 + 1.0) / 2)
    assert found.n == 2
    # Prompt 1 with prompt 1: 2.1 - 1 and 4.05 - 3 are near each other, crosswise they are not.
    assert np.ptp(np.log(found.ends)) == pytest.approx(2 * student(0.95, 1) * 0.025, rel=1e-6)
    # Other prompts are no pairs, and neither are answers to a single one.
    elsewhere = _cell(other, replace_sha(_spec(4)))
    assert perplexity_ratio(_cell(one, _spec(4)), elsewhere).how == "bootstrap"
    alone = [_cell(_part(nats, 1), _spec(1)) for _ in range(2)]
    assert perplexity_ratio(alone[0], alone[1]).how == "bootstrap"


def replace_sha(spec: PromptSpec) -> PromptSpec:
    return spec.model_copy(update={"sha256": "e" * 64})


def test_every_number_of_the_pool_is_over_prompts() -> None:
    rows = PoolRows.of(np.zeros((6, 0), int), beside={"nfe": np.full(6, 4.0)})
    values = {"entropy": np.array([11.0, 12, 13, 11, 12, 13])}
    part = PartialScore.of(ENTROPY, ENTROPY.spec, np.arange(6), values, rows, 3)
    found = part.score({}).interval("entropy")
    assert found is not None
    assert (found.n, found.value) == (3, 12.0)
    assert found.half == pytest.approx(student(0.95, 2) / np.sqrt(3))
    # Counts that a setting fixes are no accident, at however few prompts.
    calls = PartialScore.of(CALLS, CALLS.spec, np.arange(6), {"calls": np.full(6, 4.0)}, rows, 3)
    exact = calls.score({}).interval("calls")
    assert exact is not None
    assert exact.ends == (4.0, 4.0)


def test_a_race_counts_outputs_and_pairs_prompts() -> None:
    values = np.arange(12.0)
    arm = Arm("a", Drawn(clustered(mean(values), np.arange(12) % 4)))
    assert (arm.n, len(arm.drawn.objective.columns)) == (12, 4)
    assert clustered(arm.drawn.objective, [0, 0, 1, 1]).outputs == 12


def test_prompts_are_kept_for_the_end() -> None:
    def canvases(count: int) -> Canvases:
        return Canvases(tuple(Canvas(str(i), (i, None)) for i in range(count)))

    enough = unseen(canvases(4 + UNSEEN), 4)
    assert enough is not None
    assert [one.id for one in enough.prompts] == [str(i) for i in range(4, 4 + UNSEEN)]
    few = canvases(3 + UNSEEN)
    assert unseen(few, 4) is few
    assert unseen(None, 4) is None


def test_it_is_said_for_which_prompts_intervals_are() -> None:
    assert prompt_notes(8, None) == []
    assert prompt_notes(8, _spec(1)) == [
        "all outputs answer one prompt: intervals hold for this prompt alone"
    ]
    [told] = prompt_notes(24, _spec(8))
    assert "other prompts of the same kind, not for these alone" in told
    assert "24 outputs answer 8 prompts" in told
    assert "7 degrees of freedom" in told
    [told] = prompt_notes(8, _spec(8))
    assert "a prompt of its own" in told
    assert (
        "the prompts that the choice was made on; 32 prompts or more"
        in prompt_notes(24, _spec(8), _spec(8))[1]
    )
    assert prompt_notes(24, _spec(40), replace_sha(_spec(16)))[1] == (
        "the fresh outputs answer 16 prompts that nothing was chosen on"
    )
    assert replace(_cell(_part(np.ones(9), 8), _spec(8)), outputs=8).by_prompt is False
    assert _cell(_part(np.ones(9), 8), _spec(8)).by_prompt is True
