"""What a sampler's name promises, readable without loading torch: `SAMPLERS`, one entry each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from strop.errors import UserError
from strop.settings import Setting

__all__ = [
    "DIFFUSION",
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
    """Which tokens top_p keeps; see `strop.samplers.machinery.categorical`."""
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


def _loop_fits(settings: Mapping[str, Any]) -> None:
    """The loop's window is a window, and its masked rows keep a probability."""
    most = (1 - settings["alpha_on"]) / settings["alpha_on"]
    if settings["t_off"] >= settings["t_on"]:
        got = f"t_on={settings['t_on']:g}, t_off={settings['t_off']:g}"
        raise UserError(
            "The loop ends before it begins: time runs from 1 down to 0.",
            where="SamplerSpec.settings",
            got=got,
            expected="t_off below t_on",
        )
    if settings["eta"] > most:
        raise UserError(
            "The loop takes back more than it can reveal again.",
            where="SamplerSpec.settings.eta",
            got=f"eta={settings['eta']:g} at alpha_on={settings['alpha_on']:g}",
            expected=f"eta of at most (1 - alpha_on) / alpha_on = {most:.6g}",
        )


LOOP = {
    "eta": Setting("share of the visible tokens taken back per update in the loop", 0.02),
    "t_on": Setting("time at which the loop begins", 0.55, open=True),
    "t_off": Setting("time at which the loop ends", 0.05, open=True),
    "alpha_on": Setting("share of the positions visible during the loop", 0.9, open=True),
}

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
    "ancestral-remdm": SamplerFacts(
        "MDLM as the ReMDM code samples it: its nucleus, nothing taken back",
        "greedy",
        fast=True,
        nucleus="within",
    ),
    "remdm-cap": SamplerFacts(
        "ReMDM, at most a fixed share of the visible tokens taken back per update",
        "greedy",
        fast=True,
        nucleus="within",
        settings={"eta": Setting("the largest share taken back per update", 0.008)},
        baseline="ancestral-remdm",
    ),
    "remdm-rescale": SamplerFacts(
        "ReMDM, a fixed fraction of the largest possible share taken back",
        "greedy",
        fast=True,
        nucleus="within",
        settings={"eta": Setting("the fraction of the largest possible share", 0.015)},
        baseline="ancestral-remdm",
    ),
    "remdm-conf": SamplerFacts(
        "ReMDM, unsure tokens taken back first",
        "greedy",
        fast=True,
        nucleus="within",
        baseline="ancestral-remdm",
    ),
    "remdm-loop": SamplerFacts(
        "ReMDM, a long loop of taking back and revealing at a constant share",
        "greedy",
        fast=True,
        nucleus="within",
        settings=LOOP,
        check=_loop_fits,
        baseline="ancestral-remdm",
    ),
    "autoregressive": SamplerFacts(
        "a causal language model from left to right, with a cache",
        "draw",
        fast=True,
        causal=True,
        family="ar",
    ),
}

FAMILIES: dict[str, str] = {
    "mdlm": "ancestral",
    "sedd": "sedd-analytic",
    "duo": "duo-ancestral",
    "didi": "didi-guided",
    "ar": "autoregressive",
}
"""Families whose samplers cannot be exchanged, and the sampler that each uses by default.

A denoiser of a family not listed here predicts clean tokens at masks, as MDLM does.
"""

DIFFUSION = tuple(family for family, name in FAMILIES.items() if not SAMPLERS[name].causal)
"""The families that a diffusion checkpoint may be of."""


def reads_as(family: str) -> str:
    """The family whose samplers a checkpoint of `family` goes with."""
    return family if family in FAMILIES else "mdlm"


def default_sampler(family: str) -> str:
    """The sampler that a family's public code uses."""
    return FAMILIES[reads_as(family)]
