"""A small made-up language and a run on it, shared by the tests of this room."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

import warm_processes
from strop.training.loop import train as run_training
from tiny_models import environment

SUBJECTS = ["the fox", "a crow", "the old king", "her sister", "the miller", "a small boy"]
VERBS = ["saw", "followed", "called", "feared", "helped", "found"]
OBJECTS = ["the river", "a golden ring", "the dark wood", "his brother", "the tower", "a loaf"]
ENDS = ["at dawn", "in the snow", "without a word", "twice", "by the well", "last night"]


def documents(count: int, seed: int, sentences: int = 40) -> list[str]:
    """Texts in which the next word is often, not always, settled by the one before."""
    generator = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        told = []
        for _ in range(sentences):
            s = int(generator.integers(6))
            v = (s + int(generator.integers(2))) % 6
            o = (v + int(generator.integers(2))) % 6
            e = (o + int(generator.integers(2))) % 6
            told.append(f"{SUBJECTS[s]} {VERBS[v]} {OBJECTS[o]} {ENDS[e]}.".capitalize())
        out.append(" ".join(told) + "\n")
    return out


def write_corpus(path: Path, texts: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("<|endoftext|>\n".join(texts))
    return path


def config(**changes: Any) -> dict[str, Any]:
    """A run of seconds; keyword arguments replace top-level values, data and model merge."""
    whole: dict[str, Any] = {
        "name": "toy",
        "seed": 5,
        "model": {
            "hidden_dim": 32,
            "n_blocks": 2,
            "n_heads": 2,
            "cond_dim": 16,
            "dropout": 0.1,
            "init": "local",
        },
        "data": {
            "sources": [{"name": "toy", "path": "toy.txt", "licence": "none, made up"}],
            "held_out": {"every": 5},
            "tokenizer": "bpe",
            "bpe_size": 300,
            "rows": "packed",
            "length": 32,
        },
        "objective": "any-order",
        "steps": 12,
        "batch": 8,
        "micro_batch": 4,
        "lr": 2e-3,
        "warmup": 2,
        "ema": 0.9,
        "eval_every": 6,
        "eval_rows": 16,
        "final_rows": 32,
        "log_every": 1,
        "save_every": 3,
    }
    for key, value in changes.items():
        whole[key] = {**whole[key], **value} if key in ("model", "data") else value
    return whole


def train(
    corpus: Path, run: str = "run", *, picture: bool = False, **changes: Any
) -> dict[str, Any]:
    """A run in this process; its curve is drawn if asked for, which takes as long as the run."""
    without = mock.patch("strop.training.loop.plot_losses")
    with nullcontext() if picture else without:
        return run_training(
            config(**changes),
            out=corpus / run,
            data_root=corpus,
            shards=corpus / "shards",
            device="cpu",
        )


def weights(result: dict[str, Any]) -> dict[str, Tensor]:
    """Of a run's last checkpoint."""
    return load_file(f"{result['checkpoint']}/model.safetensors")


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    """Whether two sets of weights agree to the bit.

    They must where both runs had the same machine, batch shapes and number of threads.
    """
    return one.keys() == two.keys() and all(torch.equal(one[k], two[k]) for k in one)


def start(
    directory: Path,
    run: str,
    *,
    launcher: Sequence[str] = (sys.executable,),
    flags: Sequence[str] = (),
) -> subprocess.Popen[str]:
    """`strop train config.json -o RUN` in a process of its own."""
    command = [*launcher, "-m", "strop", "train", str(directory / "config.json")]
    command += ["-o", str(directory / run), "--data-root", str(directory), "--device", "cpu"]
    command += ["--shards", str(directory / "shards"), *flags]
    return warm_processes.Popen(
        command,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def losses(run: Path) -> list[tuple[int, float]]:
    """The logged curve."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["loss"]) for line in lines if line["kind"] == "train"]
