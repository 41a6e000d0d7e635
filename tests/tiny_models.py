"""Checkpoints small enough to be written by every test session, and the command run on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models

import warm_processes
from strop.checkpoints.config import DiTShape, expected_tensors

THREADS = int(os.environ.get("STROP_TEST_THREADS", "1"))
"""Of every test and of the processes it starts; `make test-portable` has more than one, too."""

SHAPE = DiTShape(
    vocab_size=12,
    length=8,
    hidden_dim=16,
    cond_dim=8,
    n_blocks=1,
    n_heads=2,
    dropout=0.0,
    time_conditioning=False,
    mask_id=11,
)

# What a model may print: markup, an escape sequence, a bell, a line break, a bidi override.
WORDS = ["the", " cat", " sat", "[bold]", "[/]", "\x1b[31m", "\x07", "\n", "\u202e", "é", ":smile:"]


def write_checkpoint(directory: Path, *, texts: bool = True, **changes: Any) -> Path:
    """Random weights in the hub layout; `changes` override fields of the shape."""
    shape = DiTShape(**{**vars(SHAPE), **changes})
    generator = torch.Generator().manual_seed(7)
    tensors = {
        f"backbone.{key}": torch.randn(size, generator=generator) * 0.5
        for key, size in expected_tensors(shape).items()
    }
    directory.mkdir(parents=True)
    save_file(tensors, directory / "model.safetensors")
    config = {**vars(shape), "model_length": shape.length}
    (directory / "config.json").write_text(json.dumps(config))
    if texts:
        vocabulary = {word: i for i, word in enumerate(WORDS)}
        Tokenizer(models.WordLevel(vocabulary, unk_token="the")).save(
            str(directory / "tokenizer.json")
        )
    return directory


def command(*arguments: object) -> list[str]:
    """`strop ARGUMENTS` as a process of the interpreter that runs the tests."""
    return [sys.executable, "-m", "strop", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    """As many threads as the tests themselves have, so that matrix products have equal bits."""
    threads = str(THREADS)
    return {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **more}


def strop(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in a process of its own, a warm one."""
    options = {"capture_output": True, "text": True, "timeout": 600, **options}
    return warm_processes.run(command(*arguments), env=environment(), **options)


def wait_for(process: subprocess.Popen[Any], reached: Any, seconds: float = 300.0) -> bool:
    """Whether `reached()` came true while the process lived; the limit only guards a hang."""
    import time

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if reached():
            return True
        if process.poll() is not None:
            return False
        time.sleep(0.005)
    process.kill()
    raise AssertionError("the process neither moved nor ended")
