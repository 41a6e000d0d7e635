"""What a sampler's name promises and where its code is, readable without loading torch.

A sampler is one file with its algorithm and one record that names it. The built-in records stand in
`_BUILT_IN`; scripts and other packages add theirs (`strop.registry`).

Settings that only some samplers have: declared by the sampler, checked, filled in.

A sampler's facts declare them by name (`strop.spec.SAMPLERS`); a `SamplerSpec` holds their values
in `settings`, every one of them, so that equal settings have equal ids. A sampler without any has
an empty `settings`, which its canonical text leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Literal

from strop.errors import UserError, unknown_name
from strop.registry import Reference, Registry

Value = float | int | str


@dataclass(frozen=True)
class Setting:
    """One setting; the type of its default is its type."""

    meaning: str
    """One line, for people."""
    default: Value
    """What the public code's own script uses."""
    least: float = 0.0
    most: float = 1.0
    open: bool = False
    """Whether both ends of the range are excluded."""
    choices: tuple[str, ...] | None = ()
    """The words that it may be, where its default is a word; None: any."""

    @property
    def expected(self) -> str:
        """What its value may be, for error messages."""
        if self.choices is None:
            return "a text"
        if self.choices:
            return "one of " + ", ".join(self.choices)
        kind = "a whole number" if isinstance(self.default, int) else "a number"
        if self.open:
            return f"{kind} above {self.least:g} and below {self.most:g}"
        return f"{kind} from {self.least:g} to {self.most:g}"

    def checked(self, value: Any, where: str) -> Value:
        """The value in its one spelling, or an error."""
        if isinstance(self.default, str):
            fits = isinstance(value, str) if self.choices is None else value in self.choices
        else:
            kind = Integral if isinstance(self.default, int) else Real
            fits = self._within(value) if _is(value, kind) else False
        if not fits:
            raise UserError(
                f"{where} is out of range.",
                where=where,
                got=repr(value)[:80],
                expected=self.expected,
            )
        if isinstance(self.default, str):
            return str(value)
        if isinstance(self.default, int):
            return int(value)
        return float(value) + 0.0  # -0.0 and 0.0 are one value and must have one id

    def _within(self, value: Any) -> bool:
        if not math.isfinite(value):
            return False
        if self.open:
            return self.least < value < self.most
        return self.least <= value <= self.most


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def filled(
    sampler: str,
    declared: Mapping[str, Setting],
    given: Any,
    by_name: Mapping[str, Any],
    *,
    any_name: bool = False,
) -> dict[str, Value]:
    """Every declared setting: as given in the mapping or by its own name, or its default.

    With `any_name` there may be others, which are taken as they are.
    """
    if not isinstance(given, Mapping):
        raise UserError(
            "A sampler's own settings are not a mapping.",
            where="SamplerSpec.settings",
            got=repr(given)[:80],
            expected='names and values such as {"eta": 0.008}',
        )
    for name in given:
        if name not in declared and not any_name:
            raise _unknown(sampler, str(name), declared)
    given = {**given, **by_name}
    found = {
        name: setting.checked(given.get(name, setting.default), f"SamplerSpec.settings.{name}")
        for name, setting in declared.items()
    }
    return found | {name: _plain(name, given[name]) for name in sorted(given) if name not in found}


def _plain(name: str, value: Any) -> Value:
    """A number or a word, as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise UserError(
        f"{name} is neither a number nor a text.",
        where=f"SamplerSpec.settings.{name}",
        got=repr(value)[:80],
        fix="write an object or a list as text in JSON",
    )


def _unknown(sampler: str, name: str, declared: Mapping[str, Setting]) -> UserError:
    if not declared:
        return UserError(
            f"The sampler {sampler!r} has no settings of its own.",
            where="SamplerSpec.settings",
            got=name,
            fix="leave it out, or choose the sampler that has it",
        )
    return unknown_name(f"setting of {sampler!r}", name, declared, where="SamplerSpec.settings")


Finish = Literal["greedy", "draw", "none"]
Implementation = Literal["fast", "dense"]
Nucleus = Literal["reaching", "within"]
Precision = Literal["float32", "float64"]
Noise = Literal["cpu", "device"]


@dataclass(frozen=True)
class Sampler:
    """One sampler."""

    name: str
    summary: str
    """One line, for people."""
    finish: Finish
    """The finish of the public code, the default on the uniform grid."""
    dense: Reference | None = None
    """The public code step by step: a function of a `DenseRun`."""
    fast: Reference | None = None
    """The same law at a lower cost: a function of a `FastDraw`, made by `packed` or `lockstep`."""
    nucleus: Nucleus = "reaching"
    """Which tokens top_p keeps; see `strop.samplers.machinery.categorical`."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """Settings that this sampler has and others have not."""
    any_settings: bool = False
    """Whether it has settings by any other name too: fields of a request to a server."""
    check: Callable[[Mapping[str, Any]], None] | None = None
    """Refuses values of `settings` that do not go together."""
    baseline: str | None = None
    """For a sampler that revises tokens: the plain one to see beside it."""
    counts: tuple[str, ...] = ()
    """What it counts of every output beside network calls, such as redraws."""
    plain: Mapping[str, Any] = field(default_factory=dict)
    """Fields and settings in which its plain sibling differs, where that is no other sampler."""
    schedule: str | None = None
    """The public schedule of temperatures, for a sampler that has one instead of a number."""
    cools: bool = False
    """Whether its temperature may be a schedule over the share revealed, instead of a number."""
    gaps: bool = True
    """Whether tokens may be given behind open positions."""
    causal: bool = False
    """Whether it goes from left to right, one token a step, on a causal language model."""
    family: str = "mdlm"
    """Whose predictions it reads; `mdlm` stands for every predictor of clean tokens at masks."""
    needs: tuple[str, ...] = ()
    """Networks beside the main one that a checkpoint must have for it."""
    fast_precisions: tuple[Precision, ...] = ("float64", "float32")
    """The precisions of the draw that its fast implementation knows."""
    streams: Mapping[Precision, int] = field(default_factory=dict)
    """Versions of the random numbers that its fast implementation makes of a seed, where they are
    not the first: to be raised whenever equal seeds give other outputs than before."""
    finishes: tuple[Finish, ...] = ("greedy", "draw", "none")
    """The finishes that it has."""
    grid: bool = True
    """Whether it reveals on a grid, at whose end a finish fills what is left."""
    public_names: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    """Turns the public code's names of options into ours."""
    padding: bool = True
    """Whether rows that are shorter may join a batch, where the network can tell padding."""
    with_prompts: str | None = None
    """For a sampler that cannot hold tokens: the name of one that does, and answers prompts."""
    version: str | None = None
    """Of a plug-in: enters the identity of its outputs. None is built in."""

    def has(self, setting: str) -> bool:
        """Whether it has a setting of this name."""
        return self.any_settings or setting in self.settings

    def stream(self, implementation: Implementation, precision: Precision) -> int:
        """The version of its random numbers."""
        return self.streams.get(precision, 1) if implementation == "fast" else 1

    def form(self, implementation: Implementation) -> Reference:
        """Where an implementation is, or that there is none."""
        found = self.fast if implementation == "fast" else self.dense
        if found is not None:
            return found
        other = "dense" if implementation == "fast" else "fast"
        raise UserError(
            f"The sampler {self.name!r} has no {implementation} implementation.",
            where="SamplerSpec.implementation",
            got=implementation,
            expected=other,
            fix=f"use `implementation={other}`",
        )


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
                f"`{name}` of a request is no setting of the sampler.",
                where="SamplerSpec.settings",
                got=name,
                fix="say it by its own name: `temperature`, `top_p`, `length` (max_tokens), `seed`",
            )


SKIPPING: dict[Precision, int] = {"float32": 2}
"""The first stream had a number for every position and round; now rounds are skipped."""


_BUILT_IN = (
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


def _built_in() -> tuple[Sampler, ...]:
    from strop.records.block_decoders import BLOCK_DECODERS  # made of this file's records
    from strop.records.canvases import CANVASES
    from strop.records.decoders import DECODERS

    return (*_BUILT_IN, *DECODERS, *BLOCK_DECODERS, *CANVASES)


SAMPLERS = Registry("sampler", Sampler, "strop.samplers", _built_in)
"""Every sampler by name."""
