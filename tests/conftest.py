"""What the tests of the run directory, the commands and the loop share."""

from __future__ import annotations

import gc
import json
import os
import random
from pathlib import Path

import pytest

gc.disable()  # until everything is imported: a fifth of that time went into looking for garbage
os.environ.pop("COLUMNS", None)

TESTS = Path(__file__).parent
NUMERIC = ("samplers", "denoisers", "measure", "training", "theory", "language", "test_generate.py")
"""Rooms whose tests compare numbers that the processor's instructions or threads can change."""
NOT_NUMERIC = {
    "denoisers/test_checkpoint_sources.py",
    "denoisers/test_hostile_pickles.py",
    "denoisers/test_hub_download.py",
    "denoisers/test_text_codec.py",
    "denoisers/test_training_files.py",
    "theory/test_input.py",
    "training/test_data.py",
}
"""Files in those rooms that are about words and files."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in random order")
    parser.addoption("--cpu-times", metavar="FILE", help="write processor seconds into FILE")


def pytest_configure(config: pytest.Config) -> None:
    """Load torch where tests run, not in the process that hands them out: workers wait for it."""
    if config.getoption("numprocesses", None):
        return
    import torch
    from hypothesis import settings

    import cpu_times
    from strop.cli import output
    from tiny_models import THREADS

    torch.set_num_threads(THREADS)
    output.PIPED = 400  # tables are as wide as they are, unless a test says otherwise
    # The same examples on every machine, however slow it is.
    settings.register_profile("strop", deadline=None, derandomize=True)
    settings.load_profile("strop")
    cpu_times.record(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        place = item.path.relative_to(TESTS)
        if place.parts[0] in NUMERIC and place.as_posix() not in NOT_NUMERIC:
            item.add_marker("numeric")
    seed = config.getoption("--shuffle")
    if seed is not None:  # file by file, so that what a file's tests share is made once
        draw = random.Random(seed).random
        turn: dict[Path, float] = {}
        items.sort(key=lambda item: (turn.setdefault(item.path, draw()), draw()))
    else:  # the longest files first: whatever comes last, both workers end at about the same time
        seconds = json.loads((TESTS / "durations.json").read_text())
        items.sort(key=lambda item: -seconds.get(item.path.relative_to(TESTS.parent).as_posix(), 0))


def pytest_collection_finish() -> None:
    """What is loaded by now stays: collections of garbage need not look through it again."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with a tokenizer: 12 tokens, length 8."""
    from tiny_models import write_checkpoint

    return write_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny")


@pytest.fixture(scope="session")
def bare_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without a tokenizer."""
    from tiny_models import write_checkpoint

    return write_checkpoint(tmp_path_factory.mktemp("checkpoints") / "bare", texts=False)
