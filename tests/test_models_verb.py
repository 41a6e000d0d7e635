"""strop models and strop models check, as a user types them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import warm_processes
from strop.assets.known import known_models, known_source
from strop.checkpoints import smollm2
from strop.checkpoints.checkpoint import locate
from strop.records import FAMILIES, SAMPLERS, reads_as
from tiny_models import environment, strop

SCRIPT = Path(__file__).parents[1] / "scripts" / "random-checkpoint.py"
SMALL = ["--width", "16", "--blocks", "1", "--heads", "2", "--length", "8", "--vocab-size", "40"]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("checkpoints")
    for family in ("sedd", "didi"):
        command = [sys.executable, str(SCRIPT), str(root / family), "--family", family, *SMALL]
        warm_processes.run(command, env=environment(), check=True, capture_output=True)
    return {family: root / family for family in ("sedd", "didi")}


def test_the_list_is_in_terms_of_what_exists() -> None:
    known = known_models()
    assert {one.family for one in known} == set(FAMILIES)
    for one in known:
        assert SAMPLERS[FAMILIES[one.family].sampler].family == reads_as(one.family)
        assert one.source.count("/") == 1 or one.source == smollm2.NAME


def test_a_short_name_stands_for_its_source(tmp_path: Path, monkeypatch) -> None:
    names = [one.alias for one in known_models() if one.alias]
    assert len(set(map(str.casefold, names))) == len(names)
    assert known_source("Llama-3.1-8B-Instruct") == "meta-llama/Llama-3.1-8B-Instruct"
    assert known_source("qwen3.5-9b@abc") == "Qwen/Qwen3.5-9B@abc"
    assert known_source("") is None
    assert known_source("embedded:tales") is None
    # A directory of that name is what it is.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qwen3.5-9b").mkdir()
    assert locate("qwen3.5-9b", None).path == Path("qwen3.5-9b")


def test_the_list_is_printed() -> None:
    done = strop("models", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["models"][0]["source"] == known_models()[0].source


def test_check_names_the_family_and_draws(checkpoints: dict[str, Path]) -> None:
    done = strop("models", "check", checkpoints["didi"], "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["family"] == "didi"
    assert found["sampler"]["name"] == "didi-guided"
    assert set(found["parameters"]) == {"network", "discriminator"}
    assert [len(one["ids"]) for one in found["outputs"]] == [8, 8]
    # Four updates, two tilts, two times four candidates; no mask left, so no finish (mostly).
    assert all(one["nfe"] <= 4 + 2 + 8 + 1 for one in found["outputs"])


def test_the_wrong_family_is_one_message(checkpoints: dict[str, Path]) -> None:
    done = strop("models", "check", checkpoints["sedd"], "--family", "duo")
    assert done.returncode == 1
    assert "of the family 'sedd', not 'duo'" in done.stderr
    assert "Traceback" not in done.stderr


def test_sample_takes_the_own_sampler_of_the_family(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    asked = ("sample", checkpoints["sedd"], "--steps", "3", "-n", "2", "-o", out)
    done = strop(*asked, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cells"][0]["sampler"]["name"] == "sedd-analytic"
    done = strop(*asked, "--sampler", "ancestral", "--force")
    assert done.returncode == 1
    assert "does not fit" in done.stderr
    assert "--sampler sedd-analytic" in done.stderr
