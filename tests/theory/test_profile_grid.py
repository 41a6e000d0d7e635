"""The grid that a loss profile would choose."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from strop.theory.schedules import grid_of_profile


def price(losses: list[float], masses: list[float]) -> float:
    """What the profile expects of a grid, said again: loss before a round, times its mass."""
    total, seen = 0.0, 0.0
    for mass in masses:
        total += mass * float(np.interp(seen, np.arange(len(losses)) / len(losses), losses))
        seen += mass
    return total


@pytest.mark.parametrize("losses", [[4.0, 1.0, 0.5, 0.2], [1.0, 0.9, 0.3, 0.1], [0.1, 1.0, 2.0]])
def test_no_grid_of_the_mesh_is_cheaper(losses):
    mesh = 8 * len(losses)
    masses, best, equal = grid_of_profile(losses, 3)
    points = [np.diff([0, *inner, mesh]) / mesh for inner in combinations(range(1, mesh), 2)]
    assert best == pytest.approx(min(price(losses, list(grid)) for grid in points))
    assert best == pytest.approx(price(losses, list(masses)))
    assert equal == pytest.approx(price(losses, [1 / 3] * 3))
    assert sum(masses) == pytest.approx(1)


def test_a_flat_profile_prefers_nothing():
    masses, best, equal = grid_of_profile([1.0] * 8, 4)
    assert best == pytest.approx(equal) == pytest.approx(1)
    assert len(masses) == 4


def test_a_falling_profile_reveals_little_at_first():
    masses, best, equal = grid_of_profile([5.0, 1.0, 0.5, 0.4], 4)
    assert masses[0] < 1 / 4 < masses[-1]
    assert best < equal
