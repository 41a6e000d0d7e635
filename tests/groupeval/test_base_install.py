"""The base install is enough for GroupEval and the theory: no torch, no extras, an empty place.

On the oldest and the newest supported Python that is at hand.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pools import jsonl, texts

ROOT = Path(__file__).parents[2]
OLDEST = (3, 11)
HEAVY = ("torch", "transformers", "tokenizers", "safetensors")

Called = Callable[..., str]


def pythons() -> dict[str, str]:
    """The oldest and the newest one that runs, by minor version; they may be the same."""
    found: dict[int, str] = {sys.version_info.minor: sys.executable}
    for minor in range(OLDEST[1], 30):
        name = f"python3.{minor}"
        managed = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/{name}"))
        for place in [*map(str, managed), shutil.which(name)]:
            if place and _runs(place, minor):
                found.setdefault(minor, place)
    return {"newest": found[max(found)], "oldest": found[min(found)]}


def _runs(place: str, minor: int) -> bool:
    """A shim of a version that is not chosen is there and does not run."""
    program = "import sys, venv, ensurepip; print(sys.version_info.minor)"
    done = subprocess.run([place, "-c", program], capture_output=True, text=True)
    return done.stdout.strip() == str(minor)


@pytest.fixture(scope="module", params=["oldest", "newest"])
def call(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Called:
    """`strop` as an empty environment has it."""
    found = pythons()
    if request.param == "newest" and found["newest"] == found["oldest"]:
        pytest.skip("there is one Python only")
    python, place = found[request.param], tmp_path_factory.mktemp("base")
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    subprocess.run([python, "-m", "venv", place / "env"], check=True, env=clean)
    pip = [place / "env/bin/python", "-m", "pip", "install", "--quiet"]
    done = subprocess.run([*pip, str(ROOT)], env=clean, capture_output=True, text=True)
    if "No matching distribution found for hatchling" in done.stderr:
        pytest.skip("no package index at hand")
    assert done.returncode == 0, done.stderr
    for name in HEAVY:
        absent = [place / "env/bin/python", "-c", f"import {name}"]
        assert subprocess.run(absent, env=clean, capture_output=True).returncode == 1

    def called(*arguments: object, code: int = 0) -> str:
        line = [str(place / "env/bin/strop"), *map(str, arguments)]
        result = subprocess.run(line, env=clean, cwd=place, capture_output=True, text=True)
        assert result.returncode == code, f"{line}\n{result.stdout}{result.stderr}"
        assert "Traceback" not in result.stderr
        return result.stdout

    return called


@pytest.mark.slow
def test_groupeval_and_theory_need_no_extra(call: Called, tmp_path: Path) -> None:
    for name in ("a", "b"):
        rows = [{"text": f"{name} {text}"} for text in texts(16)]
        jsonl(tmp_path / f"{name}.jsonl", rows)
    run = tmp_path / "run"
    call("groupeval", "plan", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "-o", run)
    for features in ("ngrams", "auto"):
        told = call("groupeval", "judge", run, "--offline", "--features", features, "--json")
        assert json.loads(told)["name"] == "offline-v2/ngrams"
        assert json.loads(told)["complete"] is True
    scores = json.loads(call("groupeval", "score", run, "--json"))
    assert set(scores["cells"]) == {"a", "b"}
    pairs = json.loads(call("groupeval", "compare", f"{run}:a", f"{run}:b", "--json"))["pairs"]
    assert len(pairs) == 1
    call("groupeval", "reliability", run)
    call("groupeval", "show", run)
    call("groupeval", "export-human", run)
    assert (run / "human.html").stat().st_size > 10_000
    call("groupeval", "judge", run, "--offline", "--features", "minilm", code=1)  # told, no crash
    assert json.loads(call("theory", "account", "example:pair", "--json"))
    call("theory", "derivative", "example:pair")
