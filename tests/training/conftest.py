"""Makes the helpers beside the tests importable; one small corpus for all of them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import toy


@pytest.fixture
def corpus(tmp_path):
    """A directory with toy.txt: 50 documents, every fifth held out."""
    toy.write_corpus(tmp_path / "toy.txt", toy.documents(50, seed=1))
    return tmp_path
