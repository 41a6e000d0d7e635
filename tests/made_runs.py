"""Runs whose outputs are given by hand: what is on disk without a network that drew it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from strop.pool import Output
from strop.spec import CellSpec, CheckpointSpec, GeneratorSpec, MetricSpec, SamplerSpec
from strop.store import Cell, Run

SHAPE: dict[str, int | float | bool] = {"vocab_size": 12, "mask_id": 11, "length": 64}
PERPLEXITY = MetricSpec(name="perplexity", settings={"made": "by hand"})
SCORED_TOKENS = MetricSpec(name="scored-tokens", settings={"made": "by hand"})


def cell_spec(length: int, temperature: float = 1.0, **changes: Any) -> CellSpec:
    """Of a checkpoint that nobody has."""
    checkpoint = CheckpointSpec(family="mdlm", sha256="5" * 64, shape=SHAPE)
    sampler = SamplerSpec(steps=changes.pop("steps", 4), temperature=temperature)
    generator = GeneratorSpec(checkpoint=checkpoint, sampler=sampler, length=length)
    return CellSpec(generator=generator, seed=changes.pop("seed", 0), **changes)


def output(index: int, ids: Sequence[int], **changes: Any) -> Output:
    """One output; its calls and seconds tell which it is."""
    given: dict[str, Any] = {"nfe": 10 + index, "seconds": 0.5 + index, "leftover_masks": 0}
    given |= {"text": f"text {index}", "changed": np.arange(len(ids), dtype=np.int32)} | changes
    return Output(index=index, ids=np.asarray(ids, np.int64), **given)


def made_cell(path: Path, spec: CellSpec, outputs: Sequence[Output]) -> Cell:
    """A cell of the run at `path` with these outputs; a second one grows the run."""
    asked = {"checkpoint": "made", "n": 1 + max((one.index for one in outputs), default=-1)}
    run = Run.prepare(path, asked, [spec], grow=True)
    cell = run.cell(spec.id)
    cell.add(outputs)
    cell.merge()
    return cell


def with_perplexity(cell: Cell, nll: Sequence[float], tokens: Sequence[int]) -> None:
    """Nats and tokens of every output, as an evaluator would have left them."""
    found = {"nll": np.asarray(nll, float), "tokens": np.asarray(tokens)}
    sizes = dict.fromkeys(("bytes", "kept_bytes", "source_bytes"), 4 * found["tokens"])
    cell.add_scores(PERPLEXITY, found | sizes)


def with_tokens(cell: Cell, ids: np.ndarray, nats: np.ndarray) -> None:
    """Scored tokens of every output one by one; half of its bytes were read."""
    size = (ids >= 0).sum(1)
    sizes = {"kept_bytes": 4 * size, "source_bytes": 8 * size}
    found = {"index": np.arange(len(ids)), "ids": ids, "nats": nats, **sizes}
    cell.add_scores(SCORED_TOKENS, found)
