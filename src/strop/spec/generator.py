"""A checkpoint plus its sampler, and one of them under a seed: what determines an output."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from strop.errors import UserError
from strop.records import SAMPLERS, default_sampler, reads_as
from strop.spec.sampler import SamplerSpec
from strop.spec.value import SEED_LIMIT, Spec, require


class CheckpointSpec(Spec):
    """Which denoiser: what it computes, not where its file lies."""

    younger = ("version",)
    family: str
    """The parameterisation, e.g. `mdlm`, `tabular`."""
    sha256: str
    """Of the weights file, as `sha256sum` prints it; of the target itself for an exact denoiser."""
    weights: str = "released"
    """`ema` or `raw` for a training checkpoint, `released` for a published file, `exact`."""
    shape: dict[str, int | float | bool]
    """Everything the tensors alone do not say, such as heads, mask id, time conditioning."""
    network_dtype: str = "float32"
    normalisation_dtype: str = "float32"
    version: str | None = None
    """Of a family that another package or a script brings: as its record says."""


class PromptSpec(Spec):
    """What outputs are conditioned on: token ids, whichever file, words or template led to them.

    `strop.prompts` makes it; every field follows from the ids, so equal ids are equal prompts.
    """

    sha256: str
    """Of the ids of all prompts in their order, written as JSON with null at open positions."""
    count: int
    """How many there are, P: output number i answers prompt i mod P."""
    form: Literal["prefix", "gaps"]
    """`prefix` if in every prompt all open positions follow all given ones."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        require(self, self.count >= 1, "count")
        return self


class GeneratorSpec(Spec):
    """A checkpoint plus its sampler: the object of comparison."""

    younger = ("prompts",)
    checkpoint: CheckpointSpec
    sampler: SamplerSpec
    length: int
    """Tokens per output; with prompts, the most open positions that one of them has."""
    prompts: PromptSpec | None = None
    """What the outputs answer; None without a condition."""

    @classmethod
    def of(
        cls,
        checkpoint: CheckpointSpec,
        sampler: SamplerSpec,
        length: int,
        prompts: PromptSpec | None = None,
    ) -> Self:
        """With the steps of a causal sampler filled in."""
        return cls(
            checkpoint=checkpoint,
            sampler=sampler.for_length(length),
            length=length,
            prompts=prompts,
        )

    @model_validator(mode="after")
    def _check(self) -> Self:
        require(self, self.length >= 1, "length")
        if self.prompts is not None:
            check_prompts(self.sampler.name, self.prompts)
        if SAMPLERS[self.sampler.name].causal and self.sampler.steps != self.length:
            raise UserError(
                f"The sampler {self.sampler.name!r} makes one step per token.",
                where="SamplerSpec.steps",
                got=f"{self.sampler.steps} steps for {self.length} tokens",
                fix="leave `steps` out and say `length`",
            )
        check_family(self.checkpoint.family, self.sampler.name)
        return self


def check_prompts(sampler: str, prompts: PromptSpec) -> None:
    """Refuse prompts that a sampler cannot answer."""
    facts = SAMPLERS[sampler]
    if (facts.causal or not facts.gaps) and prompts.form == "gaps":
        raise UserError(
            f"The sampler {sampler!r} writes from left to right and fills no gaps.",
            where="GeneratorSpec.prompts",
            got="prompts with gaps",
            expected="prompts that the output follows",
            fix="take the gaps out and say `length`, or use a masked model",
        )
    if facts.with_prompts is not None:
        raise UserError(
            f"The sampler {sampler!r} takes no prompts: its noise is a random token, and the "
            "network cannot tell a given token from a noisy one.",
            where="GeneratorSpec.prompts",
            got=f"{prompts.count} prompts",
            expected=f"the sampler {facts.with_prompts!r}, which holds them fixed: approximate, "
            "however many steps are taken",
            fix=f"use `sampler={facts.with_prompts}`, or a family whose noise is a mask",
        )


def check_family(family: str, sampler: str) -> None:
    """Refuse a sampler that reads another family's predictions."""
    if SAMPLERS[sampler].causal or SAMPLERS[sampler].family == reads_as(family):
        return
    fitting = [name for name, facts in SAMPLERS.items() if facts.family == reads_as(family)]
    raise UserError(
        f"The sampler {sampler!r} does not fit a checkpoint of the family {family!r}.",
        where="SamplerSpec.name",
        got=f"{sampler}, which reads predictions of the family {SAMPLERS[sampler].family!r}",
        expected="one of " + ", ".join(fitting),
        fix=f"use `sampler={default_sampler(family)}`",
    )


class DenseBatch(Spec):
    """The batches that share one random stream; part of a dense cell's identity."""

    size: int
    ragged_total: int | None = None
    """The number of outputs, where it is no multiple of `size` and the last batch is short."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        require(self, self.size >= 1, "size")
        return self


class CellSpec(Spec):
    """One generator under one seed: what fully determines output number i."""

    younger = ("stream",)
    generator: GeneratorSpec
    seed: int
    batch: DenseBatch | None = None
    """Only for `dense`: the fast samplers do not depend on the batch."""
    stream: int = 1
    """Which random numbers the sampler makes of the seed, by its record: another version of them
    is the same law with other outputs. `of` fills it in."""

    @classmethod
    def of(cls, generator: GeneratorSpec, seed: int, *, n: int, batch_size: int) -> Self:
        """The cell that is drawn now: from the stream that the sampler's record names.

        The number of outputs and the batch belong to it only where a batch shares random numbers.
        """
        sampler, batch = generator.sampler, None
        if sampler.implementation == "dense":
            size = min(batch_size, n)
            batch = DenseBatch(size=size, ragged_total=n if n % size else None)
        stream = SAMPLERS[sampler.name].stream(sampler.implementation, sampler.precision)
        return cls(generator=generator, seed=seed, batch=batch, stream=stream)

    @model_validator(mode="after")
    def _check(self) -> Self:
        require(self, 0 <= self.seed < SEED_LIMIT, "seed")
        require(self, self.stream >= 1, "stream")
        return self
