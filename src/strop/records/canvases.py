"""The samplers of BD3-LM and DiffusionGemma, and their public codes' options; without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strop.errors import UserError
from strop.records.decoders import switched
from strop.records.record import Sampler, Setting

REDRAW = Setting(
    "what happens to a text whose last 256 tokens have an entropy below 4 nats: nothing, or the "
    "whole try is thrown away, as the public code does, up to ten times",
    "low-entropy-tail",
    choices=("never", "low-entropy-tail"),
)
OWN_BLOCK = Setting("positions per block; 0 takes the checkpoint's own", 0, 0, 2**20)
BLOCK_CACHE = Setting(
    "whether the public code keeps finished blocks or reads them again; `fast` always keeps them, "
    "which is exact",
    "none",
    choices=("none", "blocks"),
)
UPDATE = Setting(
    "how a block is filled: one position a call, or on a grid of times, `steps` of them",
    "first-hitting",
    choices=("first-hitting", "grid"),
)


def _bd3lm_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """`first_hitting`, `nucleus_p`, `kv_cache`, `num_steps` and `T` of the public code."""
    ours = dict(given)
    for theirs, name in (("nucleus_p", "top_p"), ("num_steps", "steps"), ("T", "steps")):
        if theirs in ours:
            ours.setdefault(name, ours.pop(theirs))
    if "block_size" in ours:
        ours.setdefault("block_length", ours.pop("block_size"))
    if "first_hitting" in ours:
        first = switched("first_hitting", ours.pop("first_hitting"))
        ours.setdefault("update", "first-hitting" if first else "grid")
    if "kv_cache" in ours:
        kept = switched("kv_cache", ours.pop("kv_cache"))
        ours.setdefault("cache", "blocks" if kept else "none")
    return ours


IGNORED = {
    "do_sample": "every call draws, and `emit` says what comes out",
    "top_k": "no token is cut off",
    "num_beams": "there are no beams",
    "repetition_penalty": "nothing is penalised",
}
"""What DiffusionGemma's `generate` accepts from other models and ignores, and what acts instead."""
_GEMMA = {
    "max_denoising_steps": "steps",
    "stability_threshold": "stability",
    "confidence_threshold": "confidence",
}


def _gemma_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """The generation config's names; `t_max` and `t_min` are the ends of the temperature."""
    for name in IGNORED:
        if name in given:
            raise UserError(
                f"DiffusionGemma's public code accepts `{name}` and ignores it.",
                where=f"SamplerSpec.{name}",
                got=repr(given[name])[:80],
                expected=IGNORED[name],
                fix="leave it out; `temperature` (linear/A/B), `entropy_bound`, `stability` and "
                "`confidence` act",
            )
    ours = {_GEMMA.get(name, name): value for name, value in given.items()}
    ends = [ours.pop(name, None) for name in ("t_max", "t_min")]
    if any(end is not None for end in ends):
        if "temperature" in ours:
            raise UserError(
                "The temperature is given twice.",
                where="SamplerSpec.temperature",
                got=f"t_max, t_min and temperature={ours['temperature']!r}"[:120],
                fix="leave one out",
            )
        public = SCHEDULE.split("/")[1:]
        first, last = (p if end is None else end for end, p in zip(ends, public, strict=True))
        ours["temperature"] = f"linear/{first}/{last}"
    return ours


SCHEDULE = "linear/0.8/0.4"
CANVASES = (
    Sampler(
        "bd3lm",
        "BD3-LM's own: block after block, one position a call or on a grid, low tails redrawn",
        "draw",
        dense="strop.samplers.bd3lm:dense",
        fast="strop.samplers.bd3lm:fast",
        nucleus="within",
        settings={
            "update": UPDATE,
            "redraw": REDRAW,
            "block_length": OWN_BLOCK,
            "cache": BLOCK_CACHE,
        },
        plain={"redraw": "never"},
        counts=("redraws",),
        finishes=("draw",),
        grid=False,
        padding=False,
        public_names=_bd3lm_names,
    ),
    Sampler(
        "diffusion-gemma",
        "DiffusionGemma's own: canvases of noise, accepted by entropy, the best tokens at the end",
        "draw",
        dense="strop.samplers.diffusion_gemma:dense",
        fast="strop.samplers.diffusion_gemma:fast",
        settings={
            "entropy_bound": Setting(
                "the entropy that draws accepted together may share, in nats", 0.1, 0, 1e6
            ),
            "stability": Setting(
                "calls before the last that must have had the same best tokens", 1, 0, 2**20
            ),
            "confidence": Setting(
                "the mean entropy below which a canvas may end, in nats", 0.005, 0, 1e6
            ),
            "emit": Setting(
                "what comes out of the last call: the best tokens, drawn ones, or the accepted "
                "draws and noise elsewhere",
                "best",
                choices=("best", "drawn", "canvas"),
            ),
            "numbers": Setting(
                "the random numbers of a canvas: fresh ones, or those of the first again",
                "fresh",
                choices=("fresh", "same"),
            ),
        },
        plain={"temperature": "linear/1/1", "emit": "drawn"},
        counts=("canvases",),
        schedule=SCHEDULE,
        gaps=False,
        family="diffusion-gemma",
        finishes=("draw",),
        grid=False,
        public_names=_gemma_names,
    ),
)
"""Their records."""
