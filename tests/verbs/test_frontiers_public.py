"""The published frontiers of two checkpoints, read off at equal entropy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from strop import verbs
from strop.errors import UserError
from strop.verbs.frontiers_public import elsewhere, grid, read_off

# Worked out apart from this code, from the same file.
RATIOS = {
    5.0: [1.77, 1.30, 0.97, 0.80, 0.79],
    5.35: [2.07, 1.51, 1.22, 1.05, 1.06],
    5.5: [2.06, 1.58, 1.22, 1.08, 0.98],
}


def test_the_file_holds_what_was_published() -> None:
    cells = grid()
    assert sum(map(len, cells.values())) == 164
    assert cells["duo", 8][0].tolist() == [2.3029, 8.742, 0.7]
    for rows in cells.values():
        assert (
            np.diff(rows, axis=0) > 0
        ).all()  # entropy, perplexity and temperature rise together


def test_cells_of_public_checkpoints_stand_beside_the_papers() -> None:
    """As the source prints them, to four digits."""
    cell = {"precision": "float64", "temperature": 0.9}
    found = [elsewhere("MDLM-Small", {**cell, "steps": m}) for m in (8, 32, 64, 128)]
    assert found == pytest.approx([237.4, 67.9, 52.6, 44.9], abs=0.06)
    assert elsewhere("MDLM-Small", {**cell, "steps": 1}) is None
    assert elsewhere("MDLM-Small", {**cell, "steps": 8, "temperature": 0.91}) is None
    assert elsewhere("MDLM-Small", {**cell, "steps": 8, "precision": "float32"}) is None
    assert elsewhere("DUO-DCD", {**cell, "steps": 8}) is None
    assert elsewhere("DUO", {**cell, "steps": 8}) != found[0]


def test_between_two_cells_the_logarithm_is_a_line() -> None:
    cells = np.array([[4.0, 10.0, 0.8], [5.0, 40.0, 1.0]])
    assert read_off(cells, 4.5) == pytest.approx((20.0, 0.9))
    assert read_off(cells, 4.0) == pytest.approx((10.0, 0.8))


def test_ratios_at_equal_entropy(tmp_path: Path) -> None:
    result = verbs.run("frontiers-public", out=tmp_path / "study")
    for entropy, expected in RATIOS.items():
        rows = [row for row in result.table.rows if row["entropy"] == entropy]
        assert [row["steps"] for row in rows] == [8, 16, 32, 64, 128]
        assert [row["ratio"] for row in rows] == pytest.approx(expected, abs=0.005)
        assert [row["mdlm"] / row["duo"] for row in rows] == pytest.approx(expected, abs=0.005)
    assert "5.35 nats" in str(result.sentence)
    assert "2.07 at 8" in str(result.sentence)
    assert (tmp_path / "study" / "frontiers-public.svg").stat().st_size > 1000
    curve = result.facts["ratios"]["128"]
    assert (curve[0][0], curve[-1][0]) == (4.6676, 5.5341)  # where both frontiers have cells


def test_what_was_not_published_is_refused_or_left_out(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such budget"):
        verbs.run("frontiers-public", out=tmp_path / "a", steps=(8, 256))
    with pytest.raises(UserError, match="do not both reach"):
        verbs.run("frontiers-public", out=tmp_path / "b", entropy=(9.0,))
    for odd in (float("nan"), float("inf")):
        with pytest.raises(UserError, match="is a number here"):
            verbs.run("frontiers-public", out=tmp_path / "d", entropy=(odd,))
    result = verbs.run("frontiers-public", out=tmp_path / "c", entropy=(4.0, 5.0))
    assert len(result.table.rows) == 9  # at 128 steps DUO's frontier begins at 4.67
    assert "reach that far: 1." in " ".join(result.notes)
