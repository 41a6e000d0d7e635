"""The decoders of block models: settings, and the public codes' names for them; without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from strop.records.record import Sampler, Setting

TRAINED_BLOCK = Setting("positions per block, from the text's first on; 0: as trained", 0, 0, 2**20)
FIRST_TOP_K = Setting("how many tokens may be drawn, cut before top_p; 0 is all", 0, 0, 2**31)
ORDER = Setting(
    "who comes first: the likeliest draws, or anyone, chosen before its token is drawn",
    "confidence",
    choices=("confidence", "random"),
)
ZERO = Setting(
    "what temperature 0 does: take the best token, or draw at 1 as an early release did",
    "argmax",
    choices=("argmax", "draw"),
)
POST = Setting("calls after a block is full, as long as they edit", 16, 0, 2**20)


def _threshold(default: float) -> Setting:
    return Setting("positions whose token has a higher probability are committed", default)


def _editing(default: float) -> Setting:
    return Setting("a more probable other token replaces one that stands; 1: off", default)


def _stop(default: str, *choices: str) -> Setting:
    return Setting(
        "what an end of text does: nothing, end the text after its block, or as soon as all "
        "before it is known",
        default,
        choices=choices,
    )


BLOCK_SETTINGS: dict[str, dict[str, Setting]] = {
    "sdar": {
        "block_length": TRAINED_BLOCK,
        "remasking": Setting(
            "who comes first, and how many: all likely draws or a quota, a quota of the "
            "likeliest, from left to right, or anyone",
            "low_confidence_dynamic",
            choices=("low_confidence_dynamic", "low_confidence_static", "sequential", "random"),
        ),
        "threshold": _threshold(0.85),
        "top_k": FIRST_TOP_K,
        "stop": _stop("block", "never", "block"),
    },
    "llada2": {
        "block_length": TRAINED_BLOCK,
        "threshold": _threshold(0.95),
        "order": ORDER,
        "top_k": FIRST_TOP_K,
        "zero": ZERO,
        "stop": _stop("block", "block", "early"),
    },
    "llada2-edit": {
        "block_length": TRAINED_BLOCK,
        "threshold": _threshold(0.95),
        "editing_threshold": _editing(0.9),
        "max_post_steps": POST,
        "num_to_transfer": Setting("positions that a call commits at least", 1, 1, 2**20),
        "top_k": FIRST_TOP_K,
        "zero": ZERO,
        "stop": _stop("never", "never", "block"),
    },
    "llada2-pipeline": {
        "block_length": TRAINED_BLOCK,
        "threshold": _threshold(0.7),
        "editing_threshold": _editing(0.5),
        "max_post_steps": POST,
        "sampling_method": Setting(
            "how tokens are made", "multinomial", choices=("multinomial", "greedy")
        ),
        "top_k": FIRST_TOP_K,
        "stop": _stop("early", "never", "early"),
    },
    "fast-dllm-v2": {
        "block_length": TRAINED_BLOCK,
        "small_block": Setting("positions of a block that are open at a time", 8, 1, 2**20),
        "threshold": _threshold(1.0),
        "first": Setting(
            "how a block's first token is made: the best, whatever the temperature, or drawn",
            "argmax",
            choices=("argmax", "draw"),
        ),
        "stop": _stop("early", "never", "early"),
    },
}
"""By the sampler's name. Steps are calls per block; `llada2-edit` and `fast-dllm-v2` have none."""

_BLOCK_SUMMARIES = {
    "sdar": "SDAR's own decoder: likely draws or a quota a call, block by block",
    "llada2": "LLaDA 2.0's own decoder: all above a threshold, or a quota a call, block by block",
    "llada2-edit": "LLaDA 2.1's own decoder: the same, and tokens that stand are edited",
    "llada2-pipeline": "LLaDA 2 as diffusers' pipeline decodes it, a batch together",
    "fast-dllm-v2": "Fast-dLLM v2's own decoder: a threshold in sub-blocks, one best token a block",
}
_PLAIN: dict[str, dict[str, Any]] = {
    "sdar": {"remasking": "random"},
    "llada2": {"order": "random"},
    "llada2-edit": {"editing_threshold": 1.0},
    "llada2-pipeline": {"editing_threshold": 1.0},
    "fast-dllm-v2": {"threshold": 1.0, "first": "draw"},
}
"""Positions chosen without their tokens; nothing taken back; no colder token."""
ALIASES = {
    "block_size": "block_length",
    "confidence_threshold": "threshold",
    "denoising_steps": "steps",
    "num_inference_steps": "steps",
    "remasking_strategy": "remasking",
    "small_block_size": "small_block",
    "tau": "temperature",
}


def _translated(name: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """The public codes' words; `eos_early_stop` is `stop`, an editing threshold of None is 1."""

    def translated(given: Mapping[str, Any]) -> dict[str, Any]:
        ours = {ALIASES.get(key, key): value for key, value in given.items()}
        if "eos_early_stop" in ours:
            early = str(ours.pop("eos_early_stop")).lower() == "true"
            choices = BLOCK_SETTINGS[name]["stop"].choices or ()
            ours.setdefault("stop", choices[int(early)])
        if "editing_threshold" in ours and ours["editing_threshold"] is None:
            ours["editing_threshold"] = 1.0
        return ours

    return translated


BLOCK_DECODERS = tuple(
    Sampler(
        name,
        _BLOCK_SUMMARIES[name],
        "draw",
        dense="strop.samplers.block_decoders:dense",
        fast=None if name == "llada2-pipeline" else "strop.samplers.block_decoders:fast",
        settings=settings,
        finishes=("draw",),
        grid=False,
        padding=False,
        plain=_PLAIN[name],
        counts=("blocks", "edits") if "editing_threshold" in settings else ("blocks",),
        public_names=_translated(name),
    )
    for name, settings in BLOCK_SETTINGS.items()
)
"""One loop, a record each (`strop.samplers.block_decoders`)."""
