"""What a number depends on, as values: frozen, comparable, written as canonical JSON, hashed.

Read this room first. A `SamplerSpec` (`sampler`) and a `CheckpointSpec` make a `GeneratorSpec`, the
object of every comparison; a `CellSpec` adds the seed, and its `id` names the folder of what came
out (`generator`). A `MetricSpec` names what was measured on it, a `JudgeSpec` who judged its texts
(`measure`). What a value is, and its id, stands in `value`.
"""

from strop.records import SAMPLERS, Finish, Implementation, Precision, Sampler
from strop.spec.generator import (
    CellSpec,
    CheckpointSpec,
    DenseBatch,
    GeneratorSpec,
    PromptSpec,
    check_family,
    check_prompts,
)
from strop.spec.measure import EvaluatorSpec, JudgeSpec, MetricSpec, SpanPolicy
from strop.spec.sampler import (
    EPSILON,
    Cooling,
    OperatingPoint,
    SamplerSpec,
    label,
    plain_baseline,
    swept,
)
from strop.spec.value import MOST_STEPS, OUTPUT_LIMIT, SEED_LIMIT, Spec

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
