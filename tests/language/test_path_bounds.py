"""Bounds of KL(P || sampler) by paths: exact cases, and enumeration of every text and path."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from small_grammar import GRAMMAR, write

from strop.cli.main import run
from strop.errors import UserError
from strop.language import Language, path_bounds
from strop.rng import derive_seed

SIZE, LENGTH = 5, 5
EVERY = np.array(list(product(range(SIZE), repeat=LENGTH)))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Language:
    return Language.load(write(tmp_path_factory.mktemp("language") / "small.json", GRAMMAR))


def drawn(language: Language, texts: int) -> np.ndarray:
    return language.draw(texts, derive_seed(0, "path-bound"))


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_all_tokens_in_one_round_have_one_path(small: Language, temperature: float):
    found = path_bounds(small, 1, temperature=temperature, paths=(1, 3), texts=50)
    ids = drawn(small, 50)
    laws = small.predictive([]) ** (1 / temperature)
    laws /= laws.sum(1, keepdims=True)
    apart = small.log_p(ids) - np.log(laws[np.arange(LENGTH), ids]).sum(1)
    for one in found:
        assert one.bound.value == pytest.approx(apart.mean(), rel=1e-12)
        assert one.bound.half == pytest.approx(1.96 * apart.std(ddof=1) / 50**0.5)


def test_one_token_a_round_is_exact(small: Language):
    [one] = path_bounds(small, 2**40, paths=(2,), texts=20)
    assert abs(one.bound.value) < 1e-12


def test_bounds_of_two_rounds_against_every_text_and_path(small: Language):
    p = np.exp(small.log_p(EVERY))
    q = np.zeros((2**LENGTH, len(EVERY)))
    first = small.predictive([])
    for k, later in enumerate(product((False, True), repeat=LENGTH)):
        second = small.predictive(np.where(later, SIZE, EVERY))
        for i in range(LENGTH):
            law = second[:, i] if later[i] else first[i][None]
            q[k] += np.log(
                np.broadcast_to(law, second[:, i].shape)[np.arange(len(EVERY)), EVERY[:, i]]
            )
    exact = (p * (np.log(p) - np.log(np.exp(q).mean(0)))).sum()
    one_path = (p * (np.log(p) - q.mean(0))).sum()
    found = path_bounds(small, 2, paths=(64, 1, 16), texts=600, seed=3)
    assert [one.paths for one in found] == [1, 16, 64]
    values = [one.bound.value for one in found]
    assert values == sorted(values, reverse=True)
    assert abs(values[0] - one_path) < 2 * found[0].bound.half
    assert exact < values[2] + 2 * found[2].bound.half
    assert values[2] < exact + 2 * found[2].bound.half + 0.02 * one_path
    assert exact < 0.9 * one_path  # there is something to tell apart


def test_the_command_and_what_it_refuses(
    small: Language, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    grammar = write(tmp_path / "small.json", GRAMMAR)
    words = ["language", "bound", "--language", str(grammar), "--steps", "2,4", "--paths", "1,2"]
    assert run([*words, "-n", "8", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["steps"], row["paths"]) for row in rows] == [(2, 1), (2, 2), (4, 1), (4, 2)]
    expected = [
        one.bound.value for m in (2, 4) for one in path_bounds(small, m, paths=(1, 2), texts=8)
    ]
    assert [row["bound"]["value"] for row in rows] == expected
    for wrong in ({"temperature": 0}, {"steps": 0}, {"texts": 1}, {"paths": ()}, {"paths": (0, 2)}):
        with pytest.raises(UserError, match="A bound needs"):
            path_bounds(small, **{"steps": 2, **wrong})
