"""Truth as metrics: what a run of a known language is worth, from its stored scores."""

from __future__ import annotations

import numpy as np
import pytest

from strop import SamplerSpec
from strop.draw import sample
from strop.language import Language
from strop.language.reading import truth
from strop.measure.cells import _entropy, measure
from strop.measure.entropy import entropy
from strop.measure.guard import MOST, default_guard
from strop.measure.metric import MODES, VIOLATIONS, PoolRows
from strop.store import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "perfect"
    sample("embedded:perfect", SamplerSpec(steps=32), n=12, out=out)
    return Run.open(out)


def test_a_run_is_measured_as_its_texts_are(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("strop.language.reading.DRAWS", 200)
    _entropy.cache_clear()
    (cell,) = run.cells()
    (row,) = measure([cell])
    ids = cell.pool().ids
    language = Language.load("even")
    expected = truth(ids, language, language.entropy(200))
    _entropy.cache_clear()
    found = {name: row.of(name).values for name in ("violations", "modes")}
    assert found["violations"]["violations"].value == expected.violations.value > 0
    assert found["violations"]["excess"].value == pytest.approx(expected.excess.value)
    assert found["modes"]["effective"] == pytest.approx(expected.effective_modes)
    assert found["modes"]["entropy"] == pytest.approx(expected.mode_entropy)
    assert found["modes"]["coverage"] == pytest.approx(expected.coverage)
    assert found["modes"]["overlap"] == pytest.approx(expected.overlap)


def test_the_guard_is_of_exact_texts(run: Run):
    (cell,) = run.cells()
    found = default_guard(cell.spec.generator)
    drawn = Language.load("even").draw(MOST)
    assert found.threshold == pytest.approx(np.quantile(entropy(drawn), 0.1))
    assert "exact texts" in found.source


def test_the_numbers_of_a_pool_by_hand():
    columns = {
        "mode": np.array([3, 3, 5, 3]),
        "probability": np.array([0.6, 0.6, 0.3, 0.6]),
        "valid": np.array([1, 1, 0, 0]),
    }
    rows = PoolRows.of(np.zeros((4, 1), int))
    values = {one.column.name: one.of(columns, rows) for one in MODES.aggregates}
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25)) + 1 / 8
    assert values["entropy"] == pytest.approx(entropy)
    assert values["effective"] == pytest.approx(np.exp(entropy))
    assert values["coverage"] == pytest.approx(0.9)
    assert values["overlap"] == pytest.approx(0.5)
    assert MODES.aggregates[0].of(columns, PoolRows.of(np.zeros((5, 1), int))) is None
    stored = {"violations": np.array([0, 3]), "excess": np.array([-1.0, 4.0])}
    means = [one.of(stored, rows).value for one in VIOLATIONS.aggregates]
    assert means == [1.5, 1.5]
