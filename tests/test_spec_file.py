"""`strop sample --spec FILE`."""

from __future__ import annotations

from pathlib import Path

import pytest

from strop.cli.main import run
from strop.errors import UserError
from strop.spec import SamplerSpec
from strop.verbs.sample import read_samplers


def test_a_file_of_samplers_and_one_sampler(tmp_path: Path) -> None:
    path = tmp_path / "samplers.yaml"
    path.write_text("samplers:\n- {steps: 4}\n- {steps: 8, temperature: 0.9}\n")
    assert read_samplers(path) == [SamplerSpec(steps=4), SamplerSpec(steps=8, temperature=0.9)]
    path.write_text("steps: 16\nprecision: float32\n")
    assert read_samplers(path) == [SamplerSpec(steps=16, precision="float32")]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("- 1", "no samplers"),
        ("samplers: []", "no samplers"),
        ("samplers: 3", "no samplers"),
        ("{", "not YAML"),
        ("steps: -1", "out of range"),
        ("stepz: 4", "steps"),
        ("\x00", "not YAML"),
    ],
)
def test_what_is_no_file_of_samplers(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "samplers.yaml"
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        read_samplers(path)
    assert told in str(caught.value)


def test_a_bad_value_is_named_by_its_key_and_file_not_by_a_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "samplers.yaml"
    path.write_text("{steps: 0}")
    assert run(["sample", "x", "--spec", str(path), "-o", str(tmp_path / "o")]) == 1
    told = capsys.readouterr().err
    assert f"where: {path}: steps\n" in told
    assert "--steps" not in told
    assert "SamplerSpec" not in told


def test_flags_beside_a_file_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "samplers.yaml"
    path.write_text("steps: 4\n")
    for flags in (["--steps", "8"], ["--temperature", "0.9"], ["--top-p", "0.5"]):
        assert run(["sample", "x", "--spec", str(path), *flags, "-o", str(tmp_path / "o")]) == 1
        assert "--spec already says" in capsys.readouterr().err
    assert run(["sample", "x", "--spec", str(tmp_path / "none"), "-o", str(tmp_path / "o")]) == 1
    assert "no such file of samplers" in capsys.readouterr().err
