"""The samplers that go by updates, left to right or by a server: one record each.

A new one is added here; those that commit tokens on a canvas stand in the other files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strop.errors import UserError
from strop.records.record import Precision, Sampler, Setting


def _loop_fits(settings: Mapping[str, Any]) -> None:
    """The loop's window is a window, and its masked rows keep a probability."""
    most = (1 - settings["alpha_on"]) / settings["alpha_on"]
    if settings["t_off"] >= settings["t_on"]:
        window = f"t_on={settings['t_on']:g}, t_off={settings['t_off']:g}"
        raise UserError(
            "The loop ends before it begins: time runs from 1 down to 0.",
            where="SamplerSpec.settings",
            got=window,
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

SERVER = {
    "api": Setting(
        "how a server is asked: auto is chat with prompts, completions without",
        "auto",
        choices=("auto", "chat", "completions"),
    ),
    "start": Setting("what is completed where there are no prompts", "", choices=None),
}
SENT_ALWAYS = ("model", "messages", "prompt", "max_tokens", "temperature", "top_p", "seed", "n")


def _not_sent_twice(settings: Mapping[str, Any]) -> None:
    """A field of the request that has a place of its own is no setting."""
    for name in SENT_ALWAYS:
        if name in settings:
            raise UserError(
                f"`{name}` of a request is not a setting of the sampler.",
                where="SamplerSpec.settings",
                got=name,
                fix="use its own name: `temperature`, `top_p`, `length` (max_tokens), `seed`",
            )


SKIPPING: dict[Precision, int] = {"float32": 2}
"""The first stream had a number for every position and round; now rounds are skipped."""


PLAIN_SAMPLERS = (
    Sampler(
        "ancestral",
        "MDLM's default (`ddpm_cache`)",
        "greedy",
        dense="strop.samplers.ancestral:cached",
        fast="strop.samplers.ancestral:fast",
        streams=SKIPPING,
        cools=True,
    ),
    Sampler(
        "ancestral-uncached",
        "MDLM's `ddpm`: a network call at every step",
        "greedy",
        dense="strop.samplers.ancestral:uncached",
        cools=True,
    ),
    Sampler(
        "analytic",
        "MDLM's `analytic`: the score-based update",
        "draw",
        dense="strop.samplers.analytic:analytic",
    ),
    Sampler(
        "ancestral-duo",
        "MDLM as the DUO code samples it (`ancestral_cache`)",
        "draw",
        dense="strop.samplers.analytic:ancestral_duo",
    ),
    Sampler(
        "analytic-duo",
        "MDLM's scores as the DUO code samples them",
        "draw",
        dense="strop.samplers.analytic:analytic_duo",
    ),
    Sampler(
        "sedd-analytic",
        "SEDD's `analytic` predictor",
        "draw",
        dense="strop.samplers.sedd:analytic",
        fast="strop.samplers.sedd:fast_analytic",
        family="sedd",
    ),
    Sampler(
        "sedd-euler",
        "SEDD's `euler` predictor",
        "draw",
        dense="strop.samplers.sedd:euler",
        fast="strop.samplers.sedd:fast_euler",
        family="sedd",
    ),
    Sampler(
        "sedd-analytic-duo",
        "SEDD as the DUO code samples it",
        "draw",
        dense="strop.samplers.sedd:analytic_duo",
        family="sedd",
    ),
    Sampler(
        "duo-ancestral",
        "DUO's uniform-state ancestral sampler",
        "draw",
        dense="strop.samplers.duo:ancestral",
        fast="strop.samplers.duo:fast",
        family="duo",
        fast_precisions=("float64",),
        with_prompts="duo-held",
    ),
    Sampler(
        "duo-held",
        "DUO after a prompt, its tokens held fixed: approximate, however many steps are taken",
        "draw",
        dense="strop.samplers.duo:ancestral",
        fast="strop.samplers.duo:fast",
        family="duo",
        fast_precisions=("float64",),
    ),
    Sampler(
        "didi-guided",
        "DiDi-Instruct's reward-guided sampler: tilting, then re-ranking",
        "draw",
        dense="strop.samplers.didi:guided",
        fast="strop.samplers.didi:fast_guided",
        needs=("discriminator",),
        family="didi",
        settings={**GUIDANCE, "mask_logit": MASK_LOGIT},
    ),
    Sampler(
        "didi-ancestral",
        "DiDi-Instruct's student without its reward",
        "draw",
        dense="strop.samplers.didi:ancestral",
        fast="strop.samplers.didi:fast_ancestral",
        family="didi",
        settings={"mask_logit": MASK_LOGIT},
    ),
    Sampler(
        "didi-guided-literal",
        "the guided sampler as published, finished by another network",
        "draw",
        dense="strop.samplers.didi:guided_literal",
        needs=("discriminator",),
        family="didi",
        finishes=("draw", "none"),
        settings=GUIDANCE,
    ),
    Sampler(
        "didi-ancestral-literal",
        "the published `ancestral`, which never asks the student",
        "draw",
        dense="strop.samplers.didi:ancestral_literal",
        family="didi",
        finishes=("draw", "none"),
    ),
    Sampler(
        "ancestral-remdm",
        "MDLM as the ReMDM code samples it: its nucleus, nothing taken back",
        "greedy",
        dense="strop.samplers.ancestral:cached",
        fast="strop.samplers.ancestral:fast",
        nucleus="within",
        streams=SKIPPING,
        cools=True,
    ),
    Sampler(
        "remdm-cap",
        "ReMDM, at most a fixed share of the visible tokens taken back per update",
        "greedy",
        dense="strop.samplers.remdm:remdm",
        fast="strop.samplers.remdm:fast",
        nucleus="within",
        settings={"eta": Setting("the largest share taken back per update", 0.008)},
        baseline="ancestral-remdm",
    ),
    Sampler(
        "remdm-rescale",
        "ReMDM, a fixed fraction of the largest possible share taken back",
        "greedy",
        dense="strop.samplers.remdm:remdm",
        fast="strop.samplers.remdm:fast",
        nucleus="within",
        settings={"eta": Setting("the fraction of the largest possible share", 0.015)},
        baseline="ancestral-remdm",
    ),
    Sampler(
        "remdm-conf",
        "ReMDM, unsure tokens taken back first",
        "greedy",
        dense="strop.samplers.remdm:remdm",
        fast="strop.samplers.remdm:fast",
        nucleus="within",
        baseline="ancestral-remdm",
    ),
    Sampler(
        "remdm-loop",
        "ReMDM, a long loop of taking back and revealing at a constant share",
        "greedy",
        dense="strop.samplers.remdm:remdm",
        fast="strop.samplers.remdm:fast",
        nucleus="within",
        settings=LOOP,
        check=_loop_fits,
        baseline="ancestral-remdm",
    ),
    Sampler(
        "autoregressive",
        "a causal language model from left to right, with a cache",
        "draw",
        dense="strop.samplers.autoregressive:dense",
        fast="strop.samplers.autoregressive:fast",
        causal=True,
        grid=False,
        family="ar",
    ),
    Sampler(
        "served",
        "whatever a server does with the fields that it is sent",
        "draw",
        fast="strop.draw.served:ServedWorker",
        causal=True,
        grid=False,
        family="served",
        fast_precisions=("float64",),
        settings=SERVER,
        any_settings=True,
        check=_not_sent_twice,
    ),
)
