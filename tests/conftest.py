"""What the tests of the run directory, the commands and the loop share."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import settings

from tiny_models import write_checkpoint

torch.set_num_threads(1)

# The same examples on every machine, however slow it is.
settings.register_profile("strop", deadline=None, derandomize=True)
settings.load_profile("strop")


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with a tokenizer: 12 tokens, length 8."""
    return write_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny")


@pytest.fixture(scope="session")
def bare_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without a tokenizer."""
    return write_checkpoint(tmp_path_factory.mktemp("checkpoints") / "bare", texts=False)
