"""The settings of the blockwise decoders, and the public codes' names for them; without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from strop.errors import UserError
from strop.records.record import Sampler, Setting

BLOCK = Setting("positions per block, filled from left to right; 0 takes all at once", 32, 0, 2**20)
CACHE = Setting(
    "what is read again: all, all but what lies before the block, or the block alone",
    "none",
    choices=("none", "prefix", "dual"),
)
REMASKING = Setting(
    "who comes first: the likeliest draws, or anyone",
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
            "who comes first: anyone, the likeliest draws, the largest lead, the least entropy",
            "entropy",
            choices=("origin", "maskgit_plus", "topk_margin", "entropy"),
        ),
        "alg_temp": SPREAD,
        "top_k": TOP_K,
        "eps": EPS,
    },
    "fast-dllm-dream": {
        "alg": Setting(
            "who comes first; through a cache all but `confidence_threshold` mean `entropy`",
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
            "who comes first",
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


def public_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under our names, where they came under those of the public codes.

    `block_length`, `remasking`, `cfg_scale`, `threshold`, `factor`, `alg`, `alg_temp`, `top_p`,
    `top_k` and `eps` are the same. `use_cache` and `dual_cache` are `cache`; `logits_eos_inf` is
    `end=never`, `confidence_eos_eot_inf` is `end=last`; a threshold or a factor says how to commit.
    """
    ours = {_ALIASES.get(name, name): value for name, value in given.items()}
    switches = {name: switched(name, ours.pop(name)) for name in _SWITCHES if name in ours}
    if switches.get("use_cache") or switches.get("dual_cache"):
        ours.setdefault("cache", "dual" if switches.get("dual_cache") else "prefix")
    for name, end in (("logits_eos_inf", "never"), ("confidence_eos_eot_inf", "last")):
        if switches.get(name):
            ours.setdefault("end", end)
    for name in ("threshold", "factor"):
        if name in ours and ours[name] is None:
            del ours[name]
    return ours


_SWITCHES = ("use_cache", "dual_cache", "logits_eos_inf", "confidence_eos_eot_inf")


def switched(name: str, value: Any) -> bool:
    """On or off; files and command lines have the words."""
    found = {"true": True, "false": False}.get(str(value).lower())
    if found is None:
        raise UserError(
            f"`{name}` is neither on nor off.",
            where=f"SamplerSpec.settings.{name}",
            got=repr(value)[:80],
            expected="true or false",
        )
    return found


def _said_how(name: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    def translated(given: Mapping[str, Any]) -> dict[str, Any]:
        ours = public_names(given)
        for rule in ("factor", "threshold"):
            if rule in ours and "commit" in SETTINGS[name]:
                ours.setdefault("commit", rule)
        return ours

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
        public_names=_said_how(name),
    )
    for name, settings in SETTINGS.items()
)
"""The blockwise decoders: one loop, a record each (`strop.samplers.decoders`)."""
