"""The samplers that fill a canvas: their settings, and the public codes' names for them.

They are the blockwise decoders, the decoders of block models, BD3-LM's sampler and
DiffusionGemma's. Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from strop.errors import UserError
from strop.records.record import Sampler, Setting

# --------------------------------------------------------------------------------------- decoders

BLOCK = Setting("positions per block, filled from left to right; 0 takes all at once", 32, 0, 2**20)
CACHE = Setting(
    "what is read again: all, all but what lies before the block, or the block alone",
    "none",
    choices=("none", "prefix", "dual"),
)
REMASKING = Setting(
    "which positions come first: the likeliest draws, or random ones",
    "low_confidence",
    choices=("low_confidence", "random"),
)
GUIDANCE = Setting("how far to move away from what the model says without the prompt", 0.0, 0, 1e3)
END = Setting(
    "tokens that end a text: as they come, never drawn, or committed last",
    "free",
    choices=("free", "never", "last"),
)
THRESHOLD = Setting("the score from which on a position is committed", 0.9)
FACTOR = Setting("rank n is committed while its score is at least 1 - this / (n + 1)", 1.0, 0, 1e3)
BOUND = Setting("the entropy that positions committed together may share, in nats", 0.1, 0, 1e3)
SPREAD = Setting("temperature of the choice of positions; 0 takes the best", 0.0, 0, 1e3)
TOP_K = Setting("how many tokens may be drawn; 0 is all", 0, 0, 2**31)
EPS = Setting("where Dream's times end", 1e-3, open=True)
COMMIT = ("quota", "threshold", "factor")

SETTINGS: dict[str, dict[str, Setting]] = {
    "llada": {"block_length": BLOCK, "remasking": REMASKING, "cfg_scale": GUIDANCE, "end": END},
    "fast-dllm": {
        "block_length": BLOCK,
        "remasking": REMASKING,
        "commit": Setting("how many at a time", "threshold", choices=COMMIT),
        "threshold": THRESHOLD,
        "factor": FACTOR,
        "cache": CACHE,
    },
    "dream": {
        "alg": Setting(
            "the first positions: random, the likeliest draws, the largest lead, the least entropy",
            "entropy",
            choices=("origin", "maskgit_plus", "topk_margin", "entropy"),
        ),
        "alg_temp": SPREAD,
        "top_k": TOP_K,
        "eps": EPS,
    },
    "fast-dllm-dream": {
        "alg": Setting(
            "the first positions; through a cache all but `confidence_threshold` mean `entropy`",
            "confidence_threshold",
            choices=("confidence_threshold", "origin", "maskgit_plus", "topk_margin", "entropy"),
        ),
        "threshold": THRESHOLD,
        "alg_temp": SPREAD,
        "top_k": TOP_K,
        "eps": EPS,
        "cache": CACHE,
        "block_length": BLOCK,
    },
    "blockwise": {
        "score": Setting(
            "which positions come first",
            "confidence",
            choices=("confidence", "top", "margin", "entropy", "random", "left"),
        ),
        "score_law": Setting(
            "the law that scores read: the model's own, or the tempered one that is drawn from",
            "model",
            choices=("model", "drawn"),
        ),
        "commit": Setting("how many at a time", "quota", choices=(*COMMIT, "entropy-bound")),
        "threshold": THRESHOLD,
        "factor": FACTOR,
        "entropy_bound": BOUND,
        "block_length": BLOCK,
        "cache": CACHE,
        "cfg_scale": GUIDANCE,
        "top_k": TOP_K,
        "end": END,
    },
}
"""By the sampler's name. Steps, temperature, top_p and precision are fields of every sampler."""

_SUMMARIES: dict[str, str] = {
    "llada": "LLaDA's own decoder: a quota a step, the likeliest draws first, block by block",
    "fast-dllm": "Fast-dLLM for LLaDA: all positions above a threshold at once, with caches",
    "dream": "Dream's own decoder: four orders on one canvas",
    "fast-dllm-dream": "Fast-dLLM for Dream: a threshold, with caches block by block",
    "blockwise": "any score, any number at a time, any blocks: the parts by name",
}


def public_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under our names, where they came under those of the public codes.

    `block_length`, `remasking`, `cfg_scale`, `threshold`, `factor`, `alg`, `alg_temp`, `top_p`,
    `top_k` and `eps` are the same. `use_cache` and `dual_cache` are `cache`; `logits_eos_inf` is
    `end=never`, `confidence_eos_eot_inf` is `end=last`; a threshold or a factor says how to commit.
    """
    translated = {_ALIASES.get(name, name): value for name, value in settings.items()}
    switches = {
        name: switched(name, translated.pop(name)) for name in _SWITCHES if name in translated
    }
    if switches.get("use_cache") or switches.get("dual_cache"):
        translated.setdefault("cache", "dual" if switches.get("dual_cache") else "prefix")
    for name, end in (("logits_eos_inf", "never"), ("confidence_eos_eot_inf", "last")):
        if switches.get(name):
            translated.setdefault("end", end)
    for name in ("threshold", "factor"):
        if name in translated and translated[name] is None:
            del translated[name]
    return translated


_SWITCHES = ("use_cache", "dual_cache", "logits_eos_inf", "confidence_eos_eot_inf")


def switched(name: str, value: Any) -> bool:
    """On or off; files and command lines have the words."""
    switch = {"true": True, "false": False}.get(str(value).lower())
    if switch is None:
        raise UserError(
            f"`{name}` is neither on nor off.",
            where=f"SamplerSpec.settings.{name}",
            got=repr(value)[:80],
            expected="true or false",
        )
    return switch


def _translation_with_commit(name: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    def translated(settings: Mapping[str, Any]) -> dict[str, Any]:
        renamed = public_names(settings)
        for rule in ("factor", "threshold"):
            if rule in renamed and "commit" in SETTINGS[name]:
                renamed.setdefault("commit", rule)
        return renamed

    return translated


_ALIASES = {
    "diffusion_steps": "steps",
    "max_denoising_steps": "steps",
    "confidence_threshold": "threshold",
    "tau": "temperature",
}


def _bounded(settings: Mapping[str, Any]) -> None:
    if settings["commit"] == "entropy-bound" and settings["score"] != "entropy":
        raise UserError(
            "A bound on entropy needs positions scored by entropy.",
            where="SamplerSpec.settings.score",
            got=str(settings["score"]),
            expected="entropy",
        )


DECODERS = tuple(
    Sampler(
        name,
        _SUMMARIES[name],
        "draw",
        dense=None if name == "blockwise" else "strop.samplers.decoders:dense",
        fast="strop.samplers.decoders:fast",
        settings=settings,
        check=_bounded if name == "blockwise" else None,
        finishes=("draw",),
        grid=False,
        public_names=_translation_with_commit(name),
    )
    for name, settings in SETTINGS.items()
)
"""The blockwise decoders: one loop, a record each (`strop.samplers.decoders`)."""


# --------------------------------------------------------------------------------------- canvases

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


def _bd3lm_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`first_hitting`, `nucleus_p`, `kv_cache`, `num_steps` and `T` of the public code."""
    renamed = dict(settings)
    for public_name, name in (("nucleus_p", "top_p"), ("num_steps", "steps"), ("T", "steps")):
        if public_name in renamed:
            renamed.setdefault(name, renamed.pop(public_name))
    if "block_size" in renamed:
        renamed.setdefault("block_length", renamed.pop("block_size"))
    if "first_hitting" in renamed:
        first = switched("first_hitting", renamed.pop("first_hitting"))
        renamed.setdefault("update", "first-hitting" if first else "grid")
    if "kv_cache" in renamed:
        cached = switched("kv_cache", renamed.pop("kv_cache"))
        renamed.setdefault("cache", "blocks" if cached else "none")
    return renamed


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


def _gemma_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The generation config's names; `t_max` and `t_min` are the ends of the temperature."""
    for name in IGNORED:
        if name in settings:
            raise UserError(
                f"DiffusionGemma's public code accepts `{name}` and ignores it.",
                where=f"SamplerSpec.{name}",
                got=repr(settings[name])[:80],
                expected=IGNORED[name],
                fix="leave it out; `temperature` (linear/A/B), `entropy_bound`, `stability` and "
                "`confidence` act",
            )
    renamed = {_GEMMA.get(name, name): value for name, value in settings.items()}
    ends = [renamed.pop(name, None) for name in ("t_max", "t_min")]
    if any(end is not None for end in ends):
        if "temperature" in renamed:
            raise UserError(
                "The temperature is given twice.",
                where="SamplerSpec.temperature",
                got=f"t_max, t_min and temperature={renamed['temperature']!r}"[:120],
                fix="leave one out",
            )
        public = SCHEDULE.split("/")[1:]
        first, last = (p if end is None else end for end, p in zip(ends, public, strict=True))
        renamed["temperature"] = f"linear/{first}/{last}"
    return renamed


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
"""The records of these samplers."""


# --------------------------------------------------------------------------------- block_decoders

TRAINED_BLOCK = Setting("positions per block, from the text's first on; 0: as trained", 0, 0, 2**20)
FIRST_TOP_K = Setting("how many tokens may be drawn, cut before top_p; 0 is all", 0, 0, 2**31)
ORDER = Setting(
    "which positions come first: the likeliest draws, or random ones, chosen before the draw",
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
    return Setting("a more probable other token replaces a committed one; 1: off", default)


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
            "which positions come first, and how many: all likely draws or a quota, a quota of the "
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


def _translation(name: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """The public codes' words; `eos_early_stop` is `stop`, an editing threshold of None is 1."""

    def translated(settings: Mapping[str, Any]) -> dict[str, Any]:
        renamed = {ALIASES.get(key, key): value for key, value in settings.items()}
        if "eos_early_stop" in renamed:
            early = str(renamed.pop("eos_early_stop")).lower() == "true"
            choices = BLOCK_SETTINGS[name]["stop"].choices or ()
            renamed.setdefault("stop", choices[int(early)])
        if "editing_threshold" in renamed and renamed["editing_threshold"] is None:
            renamed["editing_threshold"] = 1.0
        return renamed

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
        public_names=_translation(name),
    )
    for name, settings in BLOCK_SETTINGS.items()
)
"""One loop, a record each (`strop.samplers.block_decoders`)."""
