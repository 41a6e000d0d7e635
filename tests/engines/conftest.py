"""A model and runs that the tests of engines share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from drills import LONG, sampled

import warm_processes
from tiny_models import write_checkpoint


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough that a unit takes a moment."""
    directory = tmp_path_factory.mktemp("engines") / "tiny"
    return write_checkpoint(directory, length=24, hidden_dim=64, n_heads=4, n_blocks=2)


@pytest.fixture(scope="session")
def local(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that every engine must equal."""
    path = tmp_path_factory.mktemp("local") / "run"
    assert sampled(model, path) == 0
    return path


@pytest.fixture(scope="session")
def long_run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with more units, for runs that something happens to."""
    path = tmp_path_factory.mktemp("local") / "long"
    assert sampled(model, path, plan=LONG) == 0
    return path


@pytest.fixture
def warm_workers() -> Iterator[None]:
    """Engines' workers that have loaded torch: for what is not about how they start."""
    with warm_processes.everywhere():
        yield
