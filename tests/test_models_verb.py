"""strop models and strop models check, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strop.assets import known_models, known_source
from strop.checkpoints import smollm2
from strop.checkpoints.checkpoint import locate
from strop.cli.main import run
from strop.records import FAMILIES, SAMPLERS, reads_as
from tiny_models import strop

SMALL = ["--width", "16", "--blocks", "1", "--heads", "2", "--length", "8", "--vocab-size", "40"]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("checkpoints")
    for family in ("sedd", "didi"):
        assert run(["models", "random", str(root / family), "--family", family, *SMALL]) == 0
    return {family: root / family for family in ("sedd", "didi")}


def test_the_list_is_in_terms_of_what_exists() -> None:
    known = known_models()
    assert {one.family for one in known} == set(FAMILIES) - {
        "language",
        "served",
    }  # nobody releases one
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


@pytest.mark.parametrize("family", ["mdlm", "llada"])
def test_random_weights_can_be_sampled(family: str, tmp_path: Path) -> None:
    out = tmp_path / family
    sizes = ["--width", "16", "--blocks", "1", "--heads", "2", "--length", "8"]
    assert run(["models", "random", str(out), "--family", family, *sizes, "--seed", "3"]) == 0
    again = tmp_path / "again"
    assert run(["models", "random", str(again), "--family", family, *sizes, "--seed", "4"]) == 0
    weights = [(one / "model.safetensors").read_bytes() for one in (out, again)]
    assert weights[0] != weights[1], "the seed counts"
    assert run(["models", "check", str(out)]) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--family", "gpt"], "There is no family called 'gpt'"),
        (["--width", "15", "--heads", "2"], "does not divide among the heads"),
        (["--width", "6", "--heads", "2"], "heads of an even size"),
        (["--blocks", "0"], "--blocks"),
        (["--vocab-size", "1"], "at least 2"),
        (["--width", "16384", "--heads", "8", "--blocks", "1"], "asks for too much"),
        (["--width", "2048", "--heads", "8", "--vocab-size", "524288"], "asks for too much"),
        (["--width", "256", "--heads", "8", "--blocks", "2731"], "asks for too much"),
    ],
)
def test_what_cannot_be_written(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["models", "random", str(tmp_path / "new"), *words]) == 1
    assert told in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert run(["models", "random", str(tmp_path)]) == 1
    assert "already" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a" * 300, "file/below"])
def test_a_place_where_random_weights_cannot_go_is_told(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert run(["models", "random", str(tmp_path / name), *SMALL]) == 1
    assert "another" in capsys.readouterr().err


def test_rows_are_joined_as_the_training_code_does(tmp_path: Path, capsys) -> None:
    """Two documents: one stream, an end-of-text behind each, cut, and put between two of them."""
    from strop.denoisers import load_model
    from strop.measure.guard import read_rows

    texts = tmp_path / "texts.jsonl"
    said = ["The king went out.", "She had a golden ring, and no one knew of it."]
    texts.write_text("".join(json.dumps({"text": one}) + "\n" for one in ["left out", *said]))
    file = tmp_path / "rows.jsonl"
    words = ["models", "rows", "embedded:tales-tiny", "--texts", str(texts), "--last", "2"]
    capsys.readouterr()
    assert run([*words, "--length", "8", "-o", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    model: Any = load_model("embedded:tales-tiny")
    [end] = model.codec.encode("<|endoftext|>")
    stream = [token for one in said for token in [*model.codec.encode(one), end]]
    wanted = [[end, *stream[k : k + 6], end] for k in range(0, len(stream) // 6 * 6, 6)]
    rows = read_rows(file, model, length=8, most=100)
    assert rows.ids.tolist() == wanted
    assert told["rows"] == len(wanted) > 1
    assert told["sha256"] == rows.sha256
    plain = tmp_path / "plain.txt"
    plain.write_text("\n<|endoftext|>\n".join(said))
    again = [*words[:3], "--texts", str(plain), "--length", "8", "-n", "1", "-o"]
    for taken in (file, plain, tmp_path):
        kept = None if taken == tmp_path else taken.read_bytes()
        assert run([*again, str(taken)]) == 1
        assert "Something is already at this path" in capsys.readouterr().err
        assert kept is None or taken.read_bytes() == kept
    other = tmp_path / "other.jsonl"
    assert run([*again, str(other)]) == 0
    assert read_rows(other, model, length=8, most=9).ids.shape == (1, 8)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "give --texts FILE, or --dataset NAME"),
        (("--length", "2", "--texts"), "both sides"),
        (("--length", "100", "--texts"), "do not fill one row"),
        (("--texts",), "holds no text"),
    ],
)
def test_rows_that_cannot_be_made(tmp_path: Path, capsys, words: tuple, told: str) -> None:
    texts = tmp_path / ("rows.jsonl" if "no text" in told else "texts.txt")
    texts.write_text("[1]\n" if "no text" in told else "Short.")
    given = (*words, str(texts)) if words else ()
    command = ["models", "rows", "embedded:tales-tiny", *given, "-o", str(tmp_path / "x.jsonl")]
    assert run(command) == 1
    assert told in capsys.readouterr().err
    assert not (tmp_path / "x.jsonl").exists()
