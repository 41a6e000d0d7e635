"""strop models certify: what a user sees, and the faults that it must find."""

from __future__ import annotations

import json
import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from called import Called

from strop.assets import ROOT, embedded_path
from strop.denoisers import load_model
from strop.errors import UserError
from strop.rng import derive_seed
from strop.stats.interval import Interval
from strop.store import Run
from strop.verbs import certify, paper
from strop.verbs.certify import FEW, FOLDER, chosen, published

sys.path.insert(0, str(Path(__file__).parents[1] / "denoisers"))

from training_file import write_training_file

SMALL = "embedded:tales-tiny"
N = 40
"""Outputs with which a fault of .2 nats is four standard errors; too few to pass."""
SEED = 1
"""Noise alone differs in one of twenty certificates; at N outputs seed 0 is such a one."""


def card(tmp_path: Path, **changes: Any) -> Path:
    """The card of the small model, one cell of 16 steps, with something else in it."""
    content = yaml.safe_load((FOLDER / "tales-tiny.yaml").read_text())
    content["rows"] = [row for row in content["rows"] if row[:3] == [16, 1.0, "float64"]]
    for name, value in changes.items():
        if name in content["columns"]:
            content["rows"][0][content["columns"].index(name)] = value
        else:
            content["settings"][name] = value
    content["id"] = "planted"
    path = tmp_path / "planted.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def result(out: Path) -> dict[str, Any]:
    """What is sent back."""
    return json.loads((out / "result.json").read_text())


def differing(out: Path) -> set[str]:
    return {row["number"] for row in result(out)["rows"] if row["verdict"] == "differs"}


def test_few_outputs_of_the_right_model_do_not_pass(call: Called, tmp_path: Path) -> None:
    out = tmp_path / "few"
    code, found, _ = call("models", "certify", SMALL, "--steps", 16, "-n", 8, "-o", out)
    assert code == 0
    assert found["counts"]["differs"] == 0
    assert {row["verdict"] for row in found["rows"] if row["number"] == "perplexity"} == {
        "cannot tell"
    }
    assert not found["certified"]
    files = {row["what"]: row["verdict"] for row in found["tables"]["files"]["rows"]}
    assert files["SHA-256 of the weights"] == files["evaluator"] == "agrees"
    assert result(out)["counts"] == found["counts"]
    # Fresh: a seed of its own, so that the very outputs behind a card do not certify themselves.
    assert {cell.spec.seed for cell in Run.open(out / "run").cells()} == {derive_seed(0, "certify")}


def test_another_temperature_is_found(call: Called, tmp_path: Path) -> None:
    """Draws at .95 against numbers of 1."""
    file = card(tmp_path, temperature=0.95)
    words = ("models", "certify", SMALL, "--published", file, "-n", N, "-o", tmp_path / "out")
    code, _, err = call(*words)
    assert code == 3
    assert "perplexity" in differing(tmp_path / "out")
    assert "differs from what was published" in err


def test_another_evaluator_is_found(call: Called, tmp_path: Path) -> None:
    file = card(tmp_path)
    words = ("--published", file, "--evaluator", "embedded:sums-ar", "-n", N)
    code, *_ = call("models", "certify", SMALL, *words, "-o", tmp_path / "out")
    assert code == 3
    assert differing(tmp_path / "out") == {
        "perplexity"
    }  # and the entropy, which needs none, does not
    told = result(tmp_path / "out")["tables"]["files"]["rows"]
    files = {row["what"]: row["verdict"] for row in told}
    assert files["evaluator"] == files["SHA-256 of the evaluator"] == "differs"


def test_a_gap_has_the_noise_of_both_sides() -> None:
    """Printed numbers by their outputs and digits, those of a card by their errors."""
    own = Interval(100.0, 100 / 1.1, 110.0, n=64)
    printed = certify._gap("perplexity", own, {"perplexity": 120.0, "outputs": 16})
    assert printed is not None
    assert printed.value == pytest.approx(-math.log(1.2))
    rounding = 0.05 / 120 / math.sqrt(3)
    assert printed.theirs == pytest.approx(math.hypot(2 * printed.own, rounding))
    told = {"perplexity": 120.0, "perplexity_error": 0.03, "entropy_error": 0.2, "outputs": 16}
    stored = certify._gap("perplexity", own, told)
    assert stored is not None
    assert (stored.theirs, stored.own) == (0.03, printed.own)
    level = Interval(4.0, 3.9, 4.1, n=64)
    entropy = certify._gap("entropy", level, {**told, "entropy": 4.5})
    assert entropy is not None
    assert (entropy.value, entropy.theirs) == (-0.5, 0.2)


def test_a_directory_is_no_public_name(call: Called, tmp_path: Path) -> None:
    """The stated evaluator from a folder of one's own: its hash is compared, its name is not."""
    folder = embedded_path("embedded:tales-ar")
    words = ("--published", card(tmp_path), "--evaluator", folder, "-n", 2)
    code, found, _ = call("models", "certify", SMALL, *words, "-o", tmp_path / "out")
    assert code == 0
    files = {row["what"]: row["verdict"] for row in found["tables"]["files"]["rows"]}
    assert files["evaluator"] == "cannot tell"
    assert files["SHA-256 of the evaluator"] == "agrees"
    told = (None, "gpt2"), ("gpt2", None), ("gpt2", "gpt2"), ("gpt2", "gpt2-large")
    verdicts = [certify._file_verdict(*one) for one in told]
    assert verdicts == ["not published", "cannot tell", "agrees", "differs"]


@pytest.fixture
def training_file(tmp_path: Path) -> Path:
    """The small model as averaged weights, and raw ones that jitter around them."""
    model: Any = load_model(SMALL)
    state = dict(model.network.named_parameters())
    torch.manual_seed(0)
    raw = {
        f"backbone.{k}": v.detach() + 0.3 * v.std() * torch.randn_like(v) for k, v in state.items()
    }
    sizes = json.loads((ROOT / "models/tales-tiny/config.json").read_text())
    config = {
        "time_conditioning": False,
        "model": {
            "hidden_size": sizes["hidden_dim"],
            "length": sizes["model_length"],
            **{k: sizes[k] for k in ("cond_dim", "n_blocks", "n_heads", "dropout")},
        },
    }
    shutil.copy(ROOT / "models/tales-tiny/tokenizer.json", tmp_path)
    shadow = [one.detach() for one in state.values()]
    return write_training_file(tmp_path / "model.ckpt", raw, shadow, config)


@pytest.mark.parametrize(("weights", "code"), [("ema", 0), ("raw", 3)])
def test_raw_for_averaged_weights_is_found(
    call: Called, tmp_path: Path, training_file: Path, weights: str, code: int
) -> None:
    sha = load_model(training_file).spec.sha256
    file = card(tmp_path, weights="ema", sha256=sha)
    words = ("--published", file, "--weights", weights, "-n", N, "--seed", SEED)
    words = (*words, "-o", tmp_path / "out")
    got, *_ = call("models", "certify", training_file, *words)
    assert got == code
    assert ("perplexity" in differing(tmp_path / "out")) == (code == 3)


@pytest.mark.slow
def test_the_right_model_passes(call: Called, tmp_path: Path) -> None:
    words = ("models", "certify", SMALL, "--steps", 16, "-n", 256, "-o", tmp_path / "a")
    code, found, _ = call(*words)
    assert code == 0
    assert found["certified"]
    assert found["counts"]["agrees"] == 4


def test_float32_for_float64_is_found(call: Called, tmp_path: Path) -> None:
    """Draws in float32 against numbers of float64, at the steps where it shows here."""
    content = yaml.safe_load((FOLDER / "tales-tiny.yaml").read_text())
    content["rows"] = [row for row in content["rows"] if row[0] == 4096]
    content["rows"][0][2] = "float32"
    content["id"] = "planted"
    file = tmp_path / "planted.yaml"
    file.write_text(yaml.safe_dump(content))
    words = ("--published", file, "-n", N, "-o", tmp_path / "b")
    code, *_ = call("models", "certify", SMALL, *words)
    assert code == 3
    assert "perplexity" in differing(tmp_path / "b")


def test_the_public_numbers_are_those_of_the_paper() -> None:
    small, large = published(paper.PUBLIC)
    assert (small.evaluator, large.evaluator) == ("gpt2", "gpt2-large")
    assert small.cells[64, 0.9, "float32"]["perplexity"] == 41.3
    assert small.cells[64, 0.9, "float32"]["outputs"] == 128
    assert large.cells[64, 0.9, "float32"]["outputs"] == 40
    assert {key[0] for key in chosen(small, None)} == set(FEW)
    [duo] = published("s-sahoo/duo-distilled")
    assert duo.evaluator == "gpt2-large"
    assert len(duo.cells) == 6


def test_what_others_published_of_a_public_checkpoint_stands_beside(
    call: Called, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small model against the public numbers: exit 3, and Generative Frontiers' in its cells."""
    public = replace(published(paper.PUBLIC)[0], length=None)
    monkeypatch.setattr(certify, "published", lambda _: [public])
    words = ("--published", paper.PUBLIC, "--evaluator", "embedded:tales-ar", "--steps", 16)
    out = tmp_path / "out"
    code, *_ = call("models", "certify", SMALL, *words, "-n", 2, "-o", out)
    assert code == 3
    others = {
        (row["number"], row["point"]): row["elsewhere"]
        for row in result(out)["rows"]
        if row["elsewhere"] is not None
    }
    # (1, float64), and the temperatures of the paper's corners in float64; others drew no float32.
    assert others["perplexity", "(1, float64)"] == 328.377
    assert others["entropy", "(1, float64)"] == 5.7948
    assert all("float64" in point for _, point in others)
    assert any("elsewhere: Generative Frontiers" in note for note in result(out)["notes"])


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 0},
        {"steps": "many"},
        {"steps": [16]},
        {"temperature": -1.0},
        {"temperature": "cold"},
        {"precision": "float16"},
        {"perplexity": None},
        {"perplexity": 0.5},
        {"perplexity": "many"},
        {"entropy": -4.0},
        {"perplexity_error": -0.1},
        {"perplexity_error": "big"},
        {"entropy_error": 0.0},
        {"outputs": 0},
        {"outputs": -3},
        {"outputs": "many"},
        {"evaluator": 5},
        {"sha256": 5},
        {"length": -1},
    ],
)
def test_numbers_that_cannot_be_compared_with_are_named(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match="cannot be used") as told:
        published(str(card(tmp_path, **changes)))
    [name] = changes
    assert name.removesuffix("_error") in str(told.value.got)


def test_wrong_input_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No published numbers of this checkpoint"):
        published("somebody/something")
    with pytest.raises(UserError, match="No number is published"):
        chosen(published(SMALL)[0], [17])
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")
    with pytest.raises(UserError, match="not a table of printed numbers"):
        published(str(broken))
    with pytest.raises(UserError, match="not a table of printed numbers"):
        published(str(tmp_path / "absent.yaml"))
    for content in ("", "- 1", "{id: broken, label: x, kind: table, rows: [[.nan]]}"):
        broken.write_text(content)
        with pytest.raises(UserError, match="not a table of printed numbers"):
            published(str(broken))
    content = yaml.safe_load((FOLDER / "tales-tiny.yaml").read_text())
    for rows in ([], content["rows"][:1] * 2):
        broken.write_text(yaml.safe_dump({**content, "id": "broken", "rows": rows}))
        with pytest.raises(UserError, match=r"no rows|cell twice"):
            published(str(broken))
    broken.write_text(
        "{id: broken, label: x, kind: table, caption: x, columns: [steps], rows: [[1]]}"
    )
    with pytest.raises(UserError, match="are incomplete"):
        published(str(broken))
