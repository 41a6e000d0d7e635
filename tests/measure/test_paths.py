"""The m-path bound of a denoiser on data, against the exact bound of the same small problem."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strop import TabularDenoiser
from strop.assets import HELD_OUT
from strop.cli.main import run
from strop.denoisers import load_denoiser
from strop.errors import UserError
from strop.instruments.posterior import path_scores
from strop.measure.guard import read_rows
from strop.samplers.machinery.start import reveal_grid
from strop.spec import SamplerSpec
from strop.theory.mpath import bound_from_scores, exact_bound
from strop.theory.sampler import LawProblem
from strop.theory.target import Target
from strop.verbs.study import run as run_study

LAMS = np.array([0.8, 1.0, 1.5])


@pytest.mark.parametrize("m", [1, 3])
def test_it_is_the_exact_bound_in_the_mean(m: int) -> None:
    """400 texts: four standard errors, which one honest run in 16,000 misses."""
    rng = np.random.default_rng(3)
    target = Target.dirichlet((3, 3, 3), 0.5, rng)
    problem = LawProblem.bayes(target, [0.0, 0.3, 1.0])
    flat = rng.choice(target.size, size=400, p=target.p)
    ids = np.stack(np.unravel_index(flat, target.P.shape), axis=1).astype(np.int64)
    model = TabularDenoiser(target.P)
    scores = path_scores(model, ids, [0.3, 0.7], paths=m, lams=LAMS, seed=1)
    curve = bound_from_scores(LAMS, scores.log_q, scores.slope)
    exact = exact_bound(problem, LAMS, m)
    assert np.abs(curve.value - exact).max() < 4 * curve.stderr.max()
    assert curve.stderr.max() < 0.06


def test_more_paths_lower_the_bound_on_a_trained_model(tmp_path: Path) -> None:
    out = tmp_path / "likelihood"
    found = run_study("likelihood", out=out, smoke=True, sources=["embedded:tales-tiny"])
    rows = {(r["paths"], r["temperature"]): r for r in found.table.rows}
    assert rows[4, 1.0]["bound"].value < rows[1, 1.0]["bound"].value
    assert rows[4, 1.0]["credit"] == pytest.approx(
        rows[4, 1.0]["bound"].value - rows[1, 1.0]["bound"].value
    )
    assert 3 < rows[1, 1.0]["bound"].value < 9  # nats per token; a uniform guess has 8.3
    assert json.loads((out / "result.json").read_text())["heldout"]["sequences"] == 8


def test_the_table_is_the_bound_at_every_temperature_per_token(tmp_path: Path) -> None:
    """The same rows and paths, scored here: a temperature is one over lambda."""
    asked: Any = {"steps": (2,), "n": 3, "length": 6, "paths": (2,), "temperature": (0.8, 1.0)}
    model = load_denoiser("embedded:tales-tiny", device="cpu")
    found = run_study("likelihood", out=tmp_path / "x", sources=["embedded:tales-tiny"], **asked)
    held = read_rows(HELD_OUT, model, length=6, most=3)
    masses = reveal_grid(SamplerSpec(steps=2)).masses
    lams = [1 / 0.8, 1.0]
    scores = path_scores(model, held.ids, masses, paths=2, lams=lams, seed=0)
    curve = bound_from_scores(lams, scores.log_q, scores.slope)
    assert [row["temperature"] for row in found.table.rows] == [0.8, 1.0]
    for k, row in enumerate(found.table.rows):
        bound, half = row["bound"], 4.303 * curve.stderr[k] / 6  # Student, two degrees
        assert bound.value == pytest.approx(curve.value[k] / 6)
        assert bound.ends == pytest.approx((bound.value - half, bound.value + half), rel=1e-4)
        assert bound.n == 3


def test_temperatures_without_1_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="1 among them"):
        run_study("likelihood", out=tmp_path / "x", temperature=(0.9,))
    one = tmp_path / "one.jsonl"
    one.write_text(json.dumps({"text": "Once upon a time there was a king."}) + "\n")
    for name in ("likelihood", "posterior"):  # one sequence has no spread
        with pytest.raises(UserError, match="Too few"):
            run_study(
                name, out=tmp_path / name, sources=["embedded:tales-tiny"], held_out=one, length=4
            )
    with pytest.raises(UserError, match="exceeds what the model was made for"):
        run_study("likelihood", out=tmp_path / "l", sources=["embedded:tales-tiny"], length=4096)
    assert run(["study", "likelihood", "--paths", "0", "-o", str(tmp_path / "y")]) != 0
