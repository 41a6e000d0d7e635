"""What a sampler's name promises, readable without loading torch: `SAMPLERS`, one entry each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from strop.settings import Setting

__all__ = [
    "FAMILIES",
    "SAMPLERS",
    "Finish",
    "Nucleus",
    "Precision",
    "SamplerFacts",
    "default_sampler",
    "reads_as",
]

Finish = Literal["greedy", "draw", "none"]
Nucleus = Literal["reaching", "within"]
Precision = Literal["float32", "float64"]


@dataclass(frozen=True)
class SamplerFacts:
    """One sampler."""

    summary: str
    finish: Finish
    """The finish of the public code, the default on the uniform grid."""
    fast: bool = False
    """Whether an implementation with the same law and a lower cost exists."""
    nucleus: Nucleus = "reaching"
    """Which tokens top_p keeps; see `strop.samplers.categorical`."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """Settings that this sampler has and others have not."""
    check: Callable[[Mapping[str, Any]], None] | None = None
    """Refuses values of `settings` that do not go together."""
    baseline: str | None = None
    """For a sampler that revises tokens: the plain one to see beside it."""
    causal: bool = False
    """Whether it goes from left to right, one token a step, on a causal language model."""
    family: str = "mdlm"
    """Whose predictions it reads; `mdlm` stands for every predictor of clean tokens at masks."""
    fast_precisions: tuple[Precision, ...] = ("float64", "float32")
    """The precisions of the draw that its fast implementation knows."""
    finishes: tuple[Finish, ...] = ("greedy", "draw", "none")
    """The finishes that it has."""


MASK_LOGIT = Setting(
    "the mask's logit in the softmax: divided by the temperature, kept as it is, or ruled out",
    "tempered",
    choices=("tempered", "kept", "out"),
)
GUIDANCE = {
    "tilt_start": Setting("strength of the reward's slope at the first update", 30.0, -1e6, 1e6),
    "tilt_end": Setting("strength at the last update that tilts", 40.0, -1e6, 1e6),
    "rerank": Setting("share of the updates that re-rank instead of tilting", 0.5),
    "candidates": Setting("states among which an update that re-ranks chooses", 4, 1, 1024),
}


SAMPLERS: dict[str, SamplerFacts] = {
    "ancestral": SamplerFacts("MDLM's default (`ddpm_cache`)", "greedy", fast=True),
    "ancestral-uncached": SamplerFacts("MDLM's `ddpm`: a network call at every step", "greedy"),
    "analytic": SamplerFacts("MDLM's `analytic`: the score-based update", "draw"),
    "ancestral-duo": SamplerFacts("MDLM as the DUO code samples it (`ancestral_cache`)", "draw"),
    "analytic-duo": SamplerFacts("MDLM's scores as the DUO code samples them", "draw"),
    "sedd-analytic": SamplerFacts("SEDD's `analytic` predictor", "draw", fast=True, family="sedd"),
    "sedd-euler": SamplerFacts("SEDD's `euler` predictor", "draw", fast=True, family="sedd"),
    "sedd-analytic-duo": SamplerFacts("SEDD as the DUO code samples it", "draw", family="sedd"),
    "duo-ancestral": SamplerFacts(
        "DUO's uniform-state ancestral sampler",
        "draw",
        fast=True,
        family="duo",
        fast_precisions=("float64",),
    ),
    "didi-guided": SamplerFacts(
        "DiDi-Instruct's reward-guided sampler: tilting, then re-ranking",
        "draw",
        fast=True,
        family="didi",
        settings={**GUIDANCE, "mask_logit": MASK_LOGIT},
    ),
    "didi-ancestral": SamplerFacts(
        "DiDi-Instruct's student without its reward",
        "draw",
        fast=True,
        family="didi",
        settings={"mask_logit": MASK_LOGIT},
    ),
    "didi-guided-literal": SamplerFacts(
        "the guided sampler as published, finished by another network",
        "draw",
        family="didi",
        finishes=("draw", "none"),
        settings=GUIDANCE,
    ),
    "didi-ancestral-literal": SamplerFacts(
        "the published `ancestral`, which never asks the student",
        "draw",
        family="didi",
        finishes=("draw", "none"),
    ),
}

FAMILIES: dict[str, str] = {
    "mdlm": "ancestral",
    "sedd": "sedd-analytic",
    "duo": "duo-ancestral",
    "didi": "didi-guided",
}
"""Families whose samplers cannot be exchanged, and the sampler that each uses by default.

A denoiser of a family not listed here predicts clean tokens at masks, as MDLM does.
"""


def reads_as(family: str) -> str:
    """The family whose samplers a checkpoint of `family` goes with."""
    return family if family in FAMILIES else "mdlm"


def default_sampler(family: str) -> str:
    """The sampler that a family's public code uses."""
    return FAMILIES[reads_as(family)]
