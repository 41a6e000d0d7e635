"""One evaluator for all tests of the metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from evaluators import write_gpt2

from strop.measure.evaluator import Evaluator, load_evaluator


@pytest.fixture(scope="session")
def gpt2_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gpt2(tmp_path_factory.mktemp("evaluators") / "tiny-gpt2")


@pytest.fixture(scope="session")
def evaluator(gpt2_directory: Path) -> Evaluator:
    return load_evaluator(gpt2_directory, device="cpu")
