"""Small mistakes that used to pass in silence: said twice, said as nothing, or said to nobody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from strop.cli.main import run as strop
from strop.spec import CheckpointSpec
from strop.store.folder import load_yaml
from strop.tasks.outcome import Entrant, label_of


@pytest.mark.parametrize(
    "text", ["a: 1\na: 2", "b: {a: 1, c: 2, a: 3}", "- {a: 1}\n- {a: 1, 'a': 2}", "[" * 5000]
)
def test_yaml_that_says_a_key_twice_is_no_yaml(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match=r"twice|too deep"):
        load_yaml(text)


def test_yaml_is_read_as_before() -> None:
    text = "a: &x {b: 1, c: [1, 2.5, null]}\nd: {<<: *x, b: 2}\n1: yes\n"
    assert load_yaml(text) == yaml.safe_load(text)
    with pytest.raises(yaml.YAMLError):
        load_yaml("!!python/object/apply:os.getcwd []")


def told(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert strop([*map(str, words)]) == 1
    return capsys.readouterr().err


def test_a_side_with_a_key_twice_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    side = tmp_path / "side.yaml"
    side.write_text("checkpoint: embedded:tales-tiny\nsampler: {steps: 2, steps: 4}\n")
    err = told(capsys, "compare", side, "embedded:tales-tiny", "-o", tmp_path / "run")
    assert "the key 'steps' is there twice" in err


def test_a_model_argument_twice_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("lm_eval")
    words = ("--model-args", "pretrained=embedded:tales,seed=1,seed=2", "-o", tmp_path / "x")
    assert "'seed' is given twice" in told(capsys, "lm-eval", "--tasks", "gsm8k", *words)


def test_an_empty_objective_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna")
    err = told(capsys, "tune", "--objective", "", "--smoke", "-o", tmp_path / "run")
    assert "--objective is empty" in err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--sampler", "nosuch"), "no sampler called 'nosuch'"),
        (("--steps", "0"), "--steps"),
        (("--against", "99"), "There is no such row"),
    ],
)
def test_a_task_refuses_what_a_causal_model_would_not_have_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, str], words: str
) -> None:
    run = tmp_path / "run"
    assert words in told(capsys, "task", "run", "sums", "embedded:sums-ar", *flags, "-o", run)
    assert not run.exists()


@pytest.mark.parametrize("label", [5, None, "", "..", "../up", "a/b", ".hidden"])
def test_a_label_that_names_no_folder_here_is_damage(label: object) -> None:
    checkpoint = CheckpointSpec(family="mdlm", sha256="5" * 64, shape={"vocab_size": 12})
    good = Entrant("m", "m", checkpoint, False, "never", (), ())
    assert Entrant.read(json.loads(json.dumps(good.document()))) == good
    with pytest.raises(ValueError, match="its label is"):
        Entrant.read({**good.document(), "label": label})
    for source in ("embedded:sums-ar", "../..", "a/é b@main", "--x", "_x"):
        assert Entrant.read({**good.document(), "label": label_of(source)})


def test_a_row_that_is_none_is_told_with_those_that_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("task", "run", "sums", "embedded:sums-ar", "--temperature", "0,1", "--against", 3)
    assert "a number from 1 to 2" in told(capsys, *words, "-o", tmp_path / "run")
