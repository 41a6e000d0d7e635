"""Figures are drawn, from computed numbers, and the base commands stay light."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from strop.theory.figures import FIGURES, branches, draw_all
from strop.theory.temperature import pair


def test_branches_are_those_of_the_paper():
    same, apart, output = branches(1.0)
    assert np.allclose(same, 0.25)
    assert np.allclose(apart, [[0.35, 0.15], [0.15, 0.35]])
    assert np.allclose(output, (same + apart) / 2)
    star = pair(0.7, 0.5).lambda_star
    assert star is not None
    assert np.allclose(branches(star)[2], [[0.35, 0.15], [0.15, 0.35]])


def test_the_cheap_figures_are_written(tmp_path, monkeypatch):
    cheap = {name: FIGURES[name] for name in ("mixture", "loss-against-error")}
    monkeypatch.setattr("strop.theory.figures.FIGURES", cheap)
    files = draw_all(tmp_path / "new")
    assert sorted(f.name for f in files) == [
        "loss-against-error.png",
        "loss-against-error.svg",
        "mixture.png",
        "mixture.svg",
    ]
    again = draw_all(tmp_path / "again")
    svg = [f for f in files if f.suffix == ".svg"]
    for one, other in zip(svg, [f for f in again if f.suffix == ".svg"], strict=True):
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.slow
def test_all_figures(strop, tmp_path):
    code, out, _ = strop("theory", "figure", "-o", tmp_path)
    assert code == 0
    assert {f.stem for f in tmp_path.iterdir()} == set(FIGURES)
    assert "mixture.svg" in out


def test_a_file_in_the_way(strop, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = strop("theory", "figure", "-o", tmp_path / "file")
    assert code == 1
    assert "must be a directory" in err


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom strop.cli.main import run\nrun(['theory', '--help'])\n"
        "sys.exit(' '.join({'torch', 'scipy', 'matplotlib', 'numpy'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.stderr == b"\n", "what was loaded"


def test_theory_never_loads_torch():
    code = (
        "import sys\nimport strop.theory.verification, strop.theory.document\n"
        "import strop.theory.mpath, strop.theory.schedules, strop.theory.figures\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
