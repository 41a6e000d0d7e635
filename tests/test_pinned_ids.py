"""Ids, seeds and streams stay what they are: folders are found by them, and numbers come from them.

A name of a `Spec` subclass, a field, a label of `derive_seed` or the name of a stream is part of a
hash. One of each kind is written down here, and nothing may be missing: the source is searched for
new ones. Pinned elsewhere: ids of built-in metrics (test_registry), of generators without prompts
(test_prompts), of cells by version of their stream (test_spec), judges and series
(groupeval/test_judges), plans (groupeval/test_frozen), profiles (groupeval/test_profile).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import strop
from strop.rng import Stream, derive_seed
from strop.spec import (
    CellSpec,
    CheckpointSpec,
    DenseBatch,
    EvaluatorSpec,
    GeneratorSpec,
    JudgeSpec,
    MetricSpec,
    PromptSpec,
    SamplerSpec,
    Spec,
)
from strop.tasks import TASKS

SOURCE = Path(strop.__file__).parent


def values() -> dict[str, Spec]:
    """One value of every kind, with fields that are not at their defaults."""
    from strop.instruments.posterior import LossCell
    from strop.training.spec import DataSpec, HeldOut, ModelSpec, SourceSpec, TrainSpec
    from strop.verbs.cache import CacheCell
    from strop.verbs.cost import CostCell

    checkpoint = CheckpointSpec(family="mdlm", sha256="0" * 64, shape={"n_blocks": 2})
    sampler = SamplerSpec(name="remdm-cap", steps=8, eta=0.02, temperature=0.9)
    dense = SamplerSpec(steps=8, implementation="dense", precision="float32")
    prompts = PromptSpec(sha256="1" * 64, count=3, form="gaps")
    generator = GeneratorSpec(checkpoint=checkpoint, sampler=sampler, length=16)
    answering = generator.model_copy(update={"prompts": prompts, "sampler": dense})
    batch = DenseBatch(size=4, ragged_total=6)
    evaluator = EvaluatorSpec(name="gpt2", sha256="2" * 64, tokenizer="3" * 64, context=1024)
    source = SourceSpec(name="toy", path="toy.txt", licence="none")
    data = DataSpec(sources=(source,), held_out=HeldOut(every=5), length=32)
    model = ModelSpec(hidden_dim=32, n_blocks=2, n_heads=2)
    drawn: dict[str, Any] = {"checkpoint": checkpoint, "length": 16, "seed": 3}
    return {
        "SamplerSpec": sampler,
        "CheckpointSpec": checkpoint,
        "PromptSpec": prompts,
        "GeneratorSpec": generator,
        "GeneratorSpec with prompts": answering,
        "DenseBatch": batch,
        "CellSpec": CellSpec(generator=generator, seed=7),
        "CellSpec, dense": CellSpec(generator=answering, seed=7, batch=batch),
        "CellSpec, second stream": CellSpec(generator=generator, seed=7, stream=2),
        "EvaluatorSpec": evaluator,
        "MetricSpec": MetricSpec(
            name="perplexity", evaluator=evaluator, span="full-stream", settings={"clean_up": True}
        ),
        "MetricSpec, a version": MetricSpec(name="words", version="2"),
        "JudgeSpec": JudgeSpec(kind="human", name="Änne", settings={"round": 2}),
        "SourceSpec": source,
        "HeldOut": HeldOut(every=5),
        "DataSpec": data,
        "ModelSpec": model,
        "TrainSpec": TrainSpec(name="toy", steps=12, data=data, model=model),
        "LossCell": LossCell(
            **drawn,
            heldout="4" * 64,
            sequences=8,
            kind="deployed",
            count=4,
            draws=2,
            temperatures=(1.0, 0.9),
        ),
        "CostCell": CostCell(
            **drawn, sampler=sampler, batch=2, batches=1, warmup=0, device="a CPU, 1 threads"
        ),
        "CacheCell": CacheCell(**drawn, sampler=sampler, prompts="5" * 64, outputs=4),
        "CacheCell with a task": CacheCell(
            **drawn, sampler=sampler, prompts="5" * 64, outputs=4, task="6" * 16
        ),
    }


IDS = {
    "SamplerSpec": "537c38d3354814c8",
    "CheckpointSpec": "8442056edec20edc",
    "PromptSpec": "c3768e31fb4172f3",
    "GeneratorSpec": "afa345eb24a7619b",
    "GeneratorSpec with prompts": "e2bf2892a0fbd4b3",
    "DenseBatch": "2ede08839405f776",
    "CellSpec": "24c559982ea9f03e",
    "CellSpec, dense": "54932fc15970eb9b",
    "CellSpec, second stream": "552635ce0f7876a2",
    "EvaluatorSpec": "c157515d1a41b71d",
    "MetricSpec": "c42b96d9219d9678",
    "MetricSpec, a version": "88a9a24ca4146b7a",
    "JudgeSpec": "87701b43eb2591ba",
    "SourceSpec": "214be9d15335d2a3",
    "HeldOut": "8f41b21fc63a6008",
    "DataSpec": "cc2ca4add7d2857f",
    "ModelSpec": "129c134bcf2a2d62",
    "TrainSpec": "df21dcb64b043b02",
    "LossCell": "f97c0b49ebf06b58",
    "CostCell": "b8a24daa5b4ce25a",
    "CacheCell": "9ae9019a2cee6eb3",
    "CacheCell with a task": "42c2f251ee81fbf0",
}

TASK_FINGERPRINTS = {
    "gsm8k": "a2d4063b639fc6b3",
    "humaneval": "86caf36994b80891",
    "sums": "254e61e247cb15be",
}

SEEDS = {
    ("bootstrap", 0): 926206794529147457,
    ("bootstrap", 1): 5895833548249004572,
    ("certify", 0): 2351503955989985611,
    ("compare", 1): 9019421029772135155,
    ("compare-resamples", 1): 4279330840484195814,
    ("dense", 1): 9212598949770766867,
    ("dropout", 2): 1384584892531969908,
    ("enumerate", 0): 24919525720201701,
    ("epoch", 1): 9222097535737627607,
    ("fresh", 0): 8216873315314405040,
    ("groupeval codes", 0): 389227222966989434,
    ("groupeval control", 1): 1288157374256171339,
    ("groupeval order", 0): 3564721871470250263,
    ("groupeval partition", 2): 8972994795385283129,
    ("groupeval-conditions", 0): 7146253519180937350,
    ("groupeval-outputs:{}", 0): 6396600080319374956,
    ("groupeval-partitions", 0): 5779438113528616137,
    ("held-out", 0): 1264517794045509055,
    ("init", 0): 3405445527863957234,
    ("noise", 1): 2261065020572700409,
    ("path-bound", 0): 6472077888586470063,
    ("paths", 1): 6658816897056426379,
    ("propose", 1): 3473760248343817501,
}
"""Labels with the number of addresses behind them; the seed of root seed 0 at addresses 1, 2."""

STREAMS = {
    "language": 338314875,
    "lattice-race/2": 2287615976,
    "loglikelihood {}": 3397103516,
    "posterior-round": 1328110196,
    "posterior-seen-{}": 4121276713,
    "posterior-target-{}": 3172927894,
    "precision-draw": 2532097361,
    "precision-mask": 3994793042,
    "reveal-first": 1348212625,
    "revising": 2980780983,
    "sums {}": 1408132420,
    "{}": 1126517671,
    "{}/{}": 2485455193,
}
"""Names of streams ({} is filled in where they are made), and a word of each under seed 0."""


@pytest.fixture(scope="module")
def trees() -> list[ast.Module]:
    return [ast.parse(file.read_text(encoding="utf-8")) for file in SOURCE.rglob("*.py")]


def test_ids_are_what_they_were() -> None:
    assert {name: value.id for name, value in values().items()} == IDS


def test_a_value_of_every_kind_is_pinned(trees: list[ast.Module]) -> None:
    kinds = {"Spec"}
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for _ in range(3):  # subclasses of subclasses
        kinds |= {one.name for one in classes if {ast.unparse(base) for base in one.bases} & kinds}
    assert {name.split()[0].rstrip(",") for name in IDS} == kinds - {"Spec"}


def test_tasks_are_what_they_were() -> None:
    assert {name: one.fingerprint for name, one in TASKS.builtin.items()} == TASK_FINGERPRINTS


def test_derived_seeds_are_what_they_were() -> None:
    for (label, addresses), seed in SEEDS.items():
        assert derive_seed(0, label, *range(1, addresses + 1)) == seed, label


def test_every_label_of_a_seed_is_pinned(trees: list[ast.Module]) -> None:
    used = {(label, len(more)) for label, more in calls(trees, "derive_seed")}
    assert used == SEEDS.keys()


def test_streams_are_what_they_were() -> None:
    words = {name: int(Stream(0, name).words(1, 2, 3, 4)[0]) for name in STREAMS}
    assert words == STREAMS


def test_every_stream_is_pinned(trees: list[ast.Module]) -> None:
    assert {name for name, _ in calls(trees, "Stream")} == STREAMS.keys()


def calls(trees: list[ast.Module], function: str) -> Iterator[tuple[str, list[ast.expr]]]:
    """The name that each call gives to what it makes, and the arguments behind it."""
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == function:
                yield _template(node.args[1]), node.args[2:]


def _template(name: ast.expr) -> str:
    """A name as it is written, {} for what is put in."""
    if isinstance(name, ast.Constant):
        return str(name.value)
    if isinstance(name, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "{}" for part in name.values
        )
    return "{}"
