"""What a family's name promises and where its code is, readable without loading torch.

A family is one file with its denoiser and one record that names it. The built-in records stand in
`_BUILT_IN`; scripts and other packages add theirs (`strop.registry`). A denoiser whose family has
no record, such as an exact one, predicts clean tokens at masks, as MDLM does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from strop.registry import Reference, Registry

if TYPE_CHECKING:
    from strop.records.sampler import Precision

PLAIN = "mdlm"


@dataclass(frozen=True)
class Family:
    """One family of checkpoints."""

    name: str
    label: str
    """What people call it, in tables and figures."""
    sampler: str
    """The sampler of its public code: the default."""
    denoiser: Reference | None = None
    """Its class, where it is a diffusion transformer that the shared loader reads."""
    load: Reference = "strop.denoisers.load:load_transformer"
    """Makes a model of (Located, Loading); by default the shared loader, with `denoiser`."""
    reads: str | None = None
    """The family whose samplers it goes with: `mdlm` for a predictor of clean tokens at masks;
    None: samplers of its own."""
    noise: Literal["mask", "uniform"] | None = "mask"
    """What noise does to a token: hide it, or replace it by any; None: a causal model, no noise."""
    time_conditioned: bool | None = None
    """Whether its network sees the noise level; None: the checkpoint's configuration says."""
    names: tuple[str, ...] = ()
    """What configurations call it (`model_type`, `algo.name`, ...) beside its own name."""
    architectures: tuple[str, ...] = ()
    """How the classes end that a transformers configuration names for it."""
    tensors: tuple[str, ...] = ()
    """How tensors begin that only its files hold."""
    layout: Reference | None = None
    """Its public layout for a network of a given shape (`strop.checkpoints.layout`)."""
    small: Reference | None = None
    """Makes a checkpoint of the embedded model, so that studies run anywhere."""
    precision: Precision | None = None
    """The precision in which its public code draws."""
    public_dtype: str | None = None
    """What `dtype=public` is on a GPU: a dtype, or `public` for casts that no single one names
    (`strop.denoisers.network`); None: not known."""
    colour: str = "#5c6672"
    """In figures that compare families."""
    version: str | None = None
    """Of a plug-in: enters the identity of its checkpoints. None is built in."""


_BUILT_IN = (
    Family(
        "mdlm",
        "MDLM",
        "ancestral",
        denoiser="strop.denoisers.network:MDLM",
        names=("subs",),
        layout="strop.denoisers.network:layout",
        precision="float32",
        public_dtype="public",
        colour="#1f5fa8",
    ),
    Family(
        "sedd",
        "SEDD",
        "sedd-analytic",
        denoiser="strop.denoisers.sedd:SEDD",
        time_conditioned=True,
        names=("absorb",),
        layout="strop.denoisers.sedd:layout",
        small="strop.verbs.families:small_sedd",
        precision="float32",
        public_dtype="public",
        colour="#8a8a8a",
    ),
    Family(
        "duo",
        "DUO",
        "duo-ancestral",
        denoiser="strop.denoisers.network:DUO",
        noise="uniform",
        time_conditioned=True,
        names=("duo_base", "distillation"),
        layout="strop.denoisers.network:duo_layout",
        small="strop.verbs.families:small_duo",
        precision="float64",
        public_dtype="public",
        colour="#2a8a57",
    ),
    Family(
        "didi",
        "DiDi-Instruct",
        "didi-guided",
        denoiser="strop.denoisers.didi:DiDi",
        names=("didi_instruct",),
        tensors=("student_ema.", "discriminator."),
        layout="strop.denoisers.didi:layout",
        small="strop.verbs.families:small_didi",
        precision="float32",
        public_dtype="public",
        colour="#d1660b",
    ),
    Family(
        "bd3lm",
        "BD3-LM",
        "bd3lm",
        denoiser="strop.denoisers.bd3lm:BD3LM",
        reads=PLAIN,
        time_conditioned=False,
        layout="strop.denoisers.bd3lm:layout",
        precision="float64",
        public_dtype="bfloat16",
        colour="#0f8b8d",
    ),
    Family(
        "llada",
        "LLaDA",
        "llada",
        load="strop.denoisers.llada:load",
        reads=PLAIN,
        time_conditioned=False,
        architectures=("LLaDAModelLM",),
        layout="strop.denoisers.llada:layout",
        precision="float64",
        public_dtype="bfloat16",
        colour="#7b4fa3",
    ),
    Family(
        "dream",
        "Dream",
        "dream",
        load="strop.denoisers.dream:load",
        reads=PLAIN,
        time_conditioned=False,
        architectures=("DreamModel",),
        layout="strop.denoisers.dream:layout",
        precision="float32",
        public_dtype="bfloat16",
        colour="#b8860b",
    ),
    Family(
        "sdar",
        "SDAR",
        "sdar",
        load="strop.denoisers.qwen:load_sdar",
        reads=PLAIN,
        time_conditioned=False,
        architectures=("SDARForCausalLM", "SDARMoeForCausalLM"),
        layout="strop.denoisers.qwen:sdar_layout",
        precision="float64",
        public_dtype="float16",
        colour="#c2185b",
    ),
    Family(
        "llada2",
        "LLaDA 2",
        "llada2",
        load="strop.denoisers.llada2:load_llada2",
        reads=PLAIN,
        time_conditioned=False,
        names=("llada2_moe",),
        architectures=("LLaDA2MoeModelLM",),
        layout="strop.denoisers.llada2:layout",
        precision="float64",
        public_dtype="bfloat16",
        colour="#4527a0",
    ),
    Family(
        "fast-dllm-v2",
        "Fast-dLLM v2",
        "fast-dllm-v2",
        load="strop.denoisers.qwen:load_fast_dllm_v2",
        reads=PLAIN,
        time_conditioned=False,
        names=("fast_dllm_qwen",),
        architectures=("Fast_dLLM_QwenForCausalLM",),
        layout="strop.denoisers.qwen:fast_dllm_v2_layout",
        precision="float64",
        public_dtype="bfloat16",
        colour="#00796b",
    ),
    Family(
        "diffusion-gemma",
        "DiffusionGemma",
        "diffusion-gemma",
        load="strop.denoisers.diffusion_gemma:load_diffusion_gemma",
        noise="uniform",
        time_conditioned=False,
        names=("diffusion_gemma",),
        architectures=("DiffusionGemmaForBlockDiffusion",),
        layout="strop.denoisers.diffusion_gemma:layout",
        precision="float32",
        public_dtype="bfloat16",
        colour="#c2378a",
    ),
    Family(
        "language",
        "a known law",
        "ancestral",
        load="strop.denoisers.language:load_language",
        reads=PLAIN,
        time_conditioned=False,
        colour="#3a8fb7",
    ),
    Family(
        "served",
        "a served model",
        "served",
        load="strop.denoisers.load:load_served",
        noise=None,
        time_conditioned=False,
        colour="#5a3e36",
    ),
    Family(
        "ar",
        "autoregressive",
        "autoregressive",
        load="strop.denoisers.causal:load_causal",
        noise=None,
        time_conditioned=False,
        architectures=("ForCausalLM", "LMHeadModel", "ForConditionalGeneration"),
        precision="float32",
        public_dtype="float32",
        colour="#222222",
    ),
)

FAMILIES = Registry("family", Family, "strop.families", lambda: _BUILT_IN)
"""Every family by name."""


def diffusion_families() -> list[str]:
    """The families that a diffusion checkpoint may be of."""
    return [name for name, family in FAMILIES.items() if family.noise is not None]


def reads_as(family: str) -> str:
    """The family whose samplers a checkpoint of `family` goes with."""
    return (FAMILIES[family].reads or family) if family in FAMILIES else PLAIN


def default_sampler(family: str) -> str:
    """The sampler that a family's public code uses."""
    return FAMILIES[family if family in FAMILIES else PLAIN].sampler
