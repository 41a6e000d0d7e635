"""Runs in float32, in bfloat16 and in a bfloat16 that is broken on purpose, beside each other.

A program of its own: which instructions the library may use is settled when torch is loaded.
`python bfloat16_runs.py DIRECTORY early|late` prints a JSON object; DIRECTORY holds toy.txt.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(1, str(Path(__file__).parents[1]))

import torch
import toy
from torch import Tensor

from strop.training import model, optimizers
from tiny_models import THREADS

ABOUT: dict[str, Any] = {"save_every": None, "optimizer": "muon", "model": {"dropout": 0.0}}


def uncentred(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of attention as if the softmax did not normalise."""
    query, key, value, weights = ctx.saved_tensors
    gradient = gradient.to(value.dtype)
    of_weights = (gradient @ value.mT).float() * weights.float()
    of_scores = (of_weights * query.shape[-1] ** -0.5).to(query.dtype)
    return of_scores @ key, of_scores.mT @ query, weights.mT @ gradient


def main(directory: Path, when: str) -> None:
    torch.set_num_threads(THREADS)
    if when == "early":  # should products in bfloat16 crash, they end this program
        optimizers._bfloat16_runs = lambda: True

    def run(name: str, **changes: Any) -> tuple[Tensor, float]:
        """All weights as one vector, and the held-out loss."""
        result = toy.train(directory, name, **{**ABOUT, **changes})
        found = toy.weights(result)
        together = torch.cat([found[key].double().flatten() for key in sorted(found)])
        return together, result["held_out"]["nats_per_token"].value

    start, before = run("start", steps=1, lr=1e-30, warmup=0)

    def change(name: str, precision: str) -> Tensor:
        return run(name, precision=precision, steps=4)[0] - start

    if when == "late":
        learned = {
            precision: before - run(f"long {precision}", precision=precision, steps=120)[1]
            for precision in ("float32", "bfloat16")
        }
        print(json.dumps(learned))
        return
    exact, rounded = change("short", "float32"), change("short bfloat16", "bfloat16")
    with mock.patch.object(model._Attention, "backward", staticmethod(uncentred)):
        broken = change("broken", "bfloat16")
    told = {
        "apart": float((rounded - exact).norm() / exact.norm()),
        "broken apart": float((broken - exact).norm() / exact.norm()),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
