"""What a name promises and where its code is, readable without loading torch.

A sampler is one file with its algorithm and one record that names it, a family one file with its
denoiser and one record. The built-in records stand in the other files of this room; scripts and
other packages add theirs (`strop.registry`). A denoiser whose family has no record, such as an
exact one, predicts clean tokens at masks, as MDLM does.

Settings that only some samplers have are declared by the sampler, checked and filled in. A
`SamplerSpec` holds their values in `settings`, every one of them, so that equal settings have equal
ids. A sampler without any has an empty `settings`, which its canonical text leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Literal

from strop.errors import UserError, unknown_name
from strop.registry import Reference, Registry

Finish = Literal["greedy", "draw", "none"]
Implementation = Literal["fast", "dense"]
Nucleus = Literal["reaching", "within"]
Precision = Literal["float32", "float64"]
Noise = Literal["cpu", "device"]
PLAIN = "mdlm"
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
    settings: Any,
    by_name: Mapping[str, Any],
    *,
    any_name: bool = False,
) -> dict[str, Value]:
    """Every declared setting: as given in the mapping or by its own name, or its default.

    With `any_name` there may be others, which are taken as they are.
    """
    if not isinstance(settings, Mapping):
        raise UserError(
            "A sampler's own settings are not a mapping.",
            where="SamplerSpec.settings",
            got=repr(settings)[:80],
            expected='names and values such as {"eta": 0.008}',
        )
    for name in settings:
        if name not in declared and not any_name:
            raise _unknown(sampler, str(name), declared)
    settings = {**settings, **by_name}
    values = {
        name: setting.checked(settings.get(name, setting.default), f"SamplerSpec.settings.{name}")
        for name, setting in declared.items()
    }
    return values | {
        name: _plain(name, settings[name]) for name in sorted(settings) if name not in values
    }


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
        reference = self.fast if implementation == "fast" else self.dense
        if reference is not None:
            return reference
        other = "dense" if implementation == "fast" else "fast"
        raise UserError(
            f"The sampler {self.name!r} has no {implementation} implementation.",
            where="SamplerSpec.implementation",
            got=implementation,
            expected=other,
            fix=f"use `implementation={other}`",
        )


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


def _samplers() -> tuple[Sampler, ...]:
    from strop.records.decoders import (
        BLOCK_DECODERS,  # made of this file's records
        CANVASES,
        DECODERS,
    )
    from strop.records.sampler import PLAIN_SAMPLERS

    return (*PLAIN_SAMPLERS, *DECODERS, *BLOCK_DECODERS, *CANVASES)


def _families() -> tuple[Family, ...]:
    from strop.records.family import BUILT_IN

    return BUILT_IN


SAMPLERS = Registry("sampler", Sampler, "strop.samplers", _samplers)
"""Every sampler by name."""
FAMILIES = Registry("family", Family, "strop.families", _families)
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
