"""What a number depends on, as values: frozen, comparable, written as canonical JSON, hashed.

Read this room first. A `SamplerSpec` and a `CheckpointSpec` make a `GeneratorSpec`, the object of
every comparison; a `CellSpec` adds the seed, and its `id` names the folder of what came out
(`generator`). A `MetricSpec` names what was measured on it, a `JudgeSpec` who judged its texts
(`measure`). What a value is, and its id, stands in `value`.

The names load on first use: importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.registry import loader

if TYPE_CHECKING:
    from strop.records import SAMPLERS, Finish, Implementation, Precision, Sampler
    from strop.spec.generator import (
        EPSILON,
        CellSpec,
        CheckpointSpec,
        DenseBatch,
        GeneratorSpec,
        OperatingPoint,
        PromptSpec,
        SamplerSpec,
        check_family,
        check_prompts,
        label,
        plain_baseline,
        swept,
    )
    from strop.spec.value import (
        MOST_STEPS,
        OUTPUT_LIMIT,
        SEED_LIMIT,
        Cooling,
        EvaluatorSpec,
        JudgeSpec,
        MetricSpec,
        SpanPolicy,
        Spec,
    )

__all__ = [
    "EPSILON",
    "MOST_STEPS",
    "OUTPUT_LIMIT",
    "SAMPLERS",
    "SEED_LIMIT",
    "CellSpec",
    "CheckpointSpec",
    "Cooling",
    "DenseBatch",
    "EvaluatorSpec",
    "Finish",
    "GeneratorSpec",
    "Implementation",
    "JudgeSpec",
    "MetricSpec",
    "OperatingPoint",
    "Precision",
    "PromptSpec",
    "Sampler",
    "SamplerSpec",
    "SpanPolicy",
    "Spec",
    "check_family",
    "check_prompts",
    "label",
    "plain_baseline",
    "swept",
]

__getattr__ = loader(__name__)
