"""Every verb as a user types it: results, exit codes, and one clear message for bad input."""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import warm_processes
from strop.cli import output
from strop.cli.main import run
from strop.verbs import show
from tiny_models import WORDS, command, environment, strop, write_checkpoint

Called = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Called:
    """Run a command in this process: its exit code, stdout and stderr."""

    def called(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(list(map(str, arguments)))
        return code, *capsys.readouterr()

    return called


@pytest.fixture(scope="module")
def first(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "first"
    assert run(["sample", str(checkpoint), "--steps", "2,4", "-n", "5", "-o", str(path)]) == 0
    return path


@pytest.fixture
def made(first: Path, tmp_path: Path) -> Path:
    """A small finished run of two cells, to do with as one likes."""
    return shutil.copytree(first, tmp_path / "runs" / "first")


def refused(result: tuple[int, str, str], *told: str) -> None:
    """Exit code 1, one message that says all of `told`, no traceback, nothing on stdout."""
    code, out, err = result
    assert code == 1, err
    assert err.count("strop: ") == 1, err
    assert "Traceback" not in err
    assert out == ""
    for words in told:
        assert words in err


# Results


def test_sample_prints_a_table_and_the_next_command(
    call: Called, checkpoint: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a run"
    grid = ["--steps", "2,4", "--temperature", "1.0,0.5", "--precision", "float64,float32"]
    code, out, err = call("sample", checkpoint, *grid, "-n", 3, "-o", path)
    assert code == 0
    assert len(re.findall(r"^[0-9a-f]{16} ", out, re.MULTILINE)) == 8
    assert f"next: strop show '{path}'" in err
    assert "3/3" not in err, "a log gets a line a minute, and this took less"


def test_repeated_values_are_one_cell(call: Called, checkpoint: Path, tmp_path: Path) -> None:
    options = ["--steps", "2, 2,02", "--temperature", "1,1.0", "-n", 1, "-o", tmp_path / "run"]
    _, out, _ = call("sample", checkpoint, *options, "--json")
    assert len(json.loads(out)["cells"]) == 1


def test_sample_with_a_grid_of_its_own(call: Called, checkpoint: Path, tmp_path: Path) -> None:
    options = ["--grid", "0.25,0.25,0.5", "-n", 2, "-o", tmp_path / "run", "--json"]
    code, out, _ = call("sample", checkpoint, *options)
    assert code == 0
    [cell] = json.loads(out)["cells"]
    assert cell["sampler"]["grid"] == [0.25, 0.25, 0.5]
    assert cell["sampler"]["steps"] == 3
    assert cell["sampler"]["finish"] == "draw"


def test_every_verb_prints_one_json_document(call: Called, checkpoint: Path, made: Path) -> None:
    verbs: dict[tuple[object, ...], str] = {
        ("sample", checkpoint, "--steps", "2,4", "-n", 5, "-o", made): "cells",
        ("show", made): "cells",
        ("ls", made.parent): "runs",
        ("precision", checkpoint, "--steps", "4,16", "--reveals", 50): "reports",
        ("doctor",): "extras",
    }
    for line, key in verbs.items():
        code, out, _ = call(*line, "--json")
        assert code == 0, line
        assert json.loads(out)[key], line
        code, out, _ = call(*line)
        assert code == 0, line
        with pytest.raises(json.JSONDecodeError):
            json.loads(out)
        assert out.strip(), line


def test_failures_are_one_json_document_too(call: Called, tmp_path: Path) -> None:
    lines: list[tuple[object, ...]] = [
        ("sample", tmp_path / "missing", "-o", tmp_path / "run"),
        ("sample",),
        ("show", tmp_path / "missing"),
        ("ls", tmp_path / "missing"),
        ("precision", tmp_path / "missing"),
        ("doctor", "--bogus"),
        ("bogus",),
    ]
    for line in lines:
        code, out, err = call(*line, "--json")
        assert code == 1, line
        document = json.loads(out)
        assert document.keys() == {"error"}
        assert document["error"]["kind"] == "UserError"
        assert document["error"]["what"] in err


def test_show_a_run_and_a_cell(call: Called, made: Path) -> None:
    code, out, err = call("show", made)
    assert code == 0
    assert out.count("5 of 5 outputs") == 2
    assert out.count("  [0] nfe ") == 2
    cell = re.findall(r"^([0-9a-f]{16}) ", out, re.MULTILINE)[1]
    assert f"next: strop show {made}" in err
    code, out, _ = call("show", made, cell[:6], "--first", 5, "--full")
    assert code == 0
    assert out.count(" nfe ") == 5
    assert "temperature" in out
    document = json.loads(call("show", made, cell, "--first", 1, "--json")[1])
    assert [entry["index"] for entry in document["cells"][0]["first"]] == [0]
    assert document["cells"][0]["spec"]["generator"]["sampler"]["steps"] == 4
    assert len(document["cells"][0]["first"][0]["ids"]) == 8


def test_show_says_what_is_missing(call: Called, made: Path) -> None:
    next(made.glob("cells/*/outputs.parquet")).unlink()
    code, out, err = call("show", made)
    assert code == 0
    assert "0 of 5 outputs" in out
    assert "continues it" in err


def test_show_of_what_is_not_there(call: Called, made: Path, tmp_path: Path) -> None:
    refused(call("show", tmp_path / "no"), "no such run directory")
    refused(call("show", tmp_path), "not a run")
    refused(call("show", made, "zzz"), "No cell begins with 'zzz'", "one of ")
    refused(call("show", made, ""), "CELL is empty")


def test_ls_lists_every_run_and_survives_a_damaged_one(call: Called, made: Path) -> None:
    shutil.copytree(made, made.parent / "second")
    (made.parent / "third").mkdir()
    (made.parent / "third" / "strop.json").write_text("{")
    code, out, _ = call("ls", made.parent)
    assert code == 0
    assert out.count("10 of 10 outputs") == 2
    assert "damaged" in out
    assert len(json.loads(call("ls", made.parent, "--json")[1])["runs"]) == 3


def test_ls_of_an_empty_directory(call: Called, tmp_path: Path) -> None:
    code, out, err = call("ls", tmp_path)
    assert (code, out) == (0, "")
    assert "no runs" in err
    assert "next: strop sample" in err


def test_precision_tells_warnings_and_lengths(call: Called, checkpoint: Path) -> None:
    code, out, err = call("precision", checkpoint, "--steps", "8", "--reveals", 50)
    assert code == 0
    assert "hidden share" in out
    assert "next: strop sample" in err
    for flag, value in (("--length", 9), ("--length", 0), ("--seed", -1), ("--rows", 0)):
        refused(call("precision", checkpoint, "--steps", "8", flag, value), str(value))
    refused(call("precision", checkpoint, "--steps", "0"), "steps")
    refused(call("precision", checkpoint, "--steps", "x"), "--steps")


def test_warnings_are_told_in_one_line(call: Called, tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path / "model")
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "hidden_dim": 999}))
    for line in (
        ["sample", directory, "--steps", 2, "-n", 1, "-o", tmp_path / "run"],
        ["precision", directory, "--steps", 2, "--reveals", 10],
    ):
        code, _, err = call(*line)
        assert code == 0
        assert err.count("warning: ") == 1
        assert "999" in err
        assert "UserWarning" not in err


def test_doctor_names_what_is_missing_and_how_to_get_it(
    call: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    from strop.verbs import doctor

    real = doctor.find_spec
    monkeypatch.setattr(
        doctor, "find_spec", lambda name: None if name == "datasets" else real(name)
    )
    code, out, _ = call("doctor")
    assert code == 0
    assert "pip install 'strop[train]'" in out


def test_version_and_help(call: Called) -> None:
    code, out, _ = call("--version")
    assert code == 0
    assert re.fullmatch(r"strop \d+\.\d+\.\d+\n", out)
    for line in (["--help"], [], ["sample", "--help"], ["show", "--help"]):
        code, out, err = call(*line)
        assert code == 0, line
        assert "Usage" in out + err


# Bad input


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["bogus"], "bogus"),
        (["sampel"], "sampel"),
        (["--bogus"], "--bogus"),
        (["sample"], "--out"),
        (["sample", "x"], "--out"),
        (["sample", "x", "-o"], "-o"),
        (["sample", "x", "-o", "y", "--bogus"], "--bogus"),
        (["sample", "x", "-o", "y", "-n", "many"], "-n"),
        (["sample", "x", "-o", "y", "-n", "1.5"], "-n"),
        (["sample", "x", "-o", "y", "--top-p", "all"], "--top-p"),
        (["sample", "x", "-o", "y", "extra"], "extra"),
        (["show"], "RUN"),
        (["ls", "a", "b"], "b"),
        (["doctor", "now"], "now"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_flags_exit_1(call: Called, line: list[str], told: str) -> None:
    refused(call(*line), told, "--help")


BAD: list[tuple[list[str], str]] = [
    (["--steps", "0"], "from 1 to"),
    (["--steps", "-3"], "from 1 to"),
    (["--steps", ""], "whole numbers separated by commas"),
    (["--steps", "4,,8"], "whole numbers separated by commas"),
    (["--steps", "4.5"], "whole numbers separated by commas"),
    (["--steps", "99999999999"], "from 1 to"),
    (["--temperature", "-1"], "0 (greedy) or a positive number"),
    (["--temperature", "nan"], "0 (greedy) or a positive number"),
    (["--temperature", "inf"], "0 (greedy) or a positive number"),
    (["--temperature", "warm"], "values separated by commas"),
    (["--precision", "float16"], "float32, float64"),
    (["--precision", ""], "float32, float64"),
    (["--sampler", "ancestal"], "did you mean 'ancestral'"),
    (["--sampler", "analytic"], "--implementation dense"),
    (["--implementation", "quick"], "dense, fast"),
    (["--finish", "never"], "draw, greedy, none"),
    (["--top-p", "0"], "above 0 and up to 1"),
    (["--top-p", "nan"], "above 0 and up to 1"),
    (["--grid", "0.5,0.4"], "does not sum to one"),
    (["--grid", "nonsense"], "numbers separated by commas"),
    (["--grid", ""], "numbers separated by commas"),
    (["--grid", "1.5,-0.5"], "none of them negative"),
    (["--n", "0"], "at least 1"),
    (["-n", "-5"], "at least 1"),
    (["--seed", "-1"], "at least 0"),
    (["--seed", "9223372036854775808"], "below 2**63"),
    (["--batch-size", "0"], "at least 1"),
    (["--length", "0"], "at least 1"),
    (["--length", "9"], "1 to 8"),
    (["--device", "tpu"], "auto, cpu, cuda"),
    (["--device", "cuda:x"], "auto, cpu, cuda"),
    (["--dtype", "float64"], "auto, bfloat16, float16, float32"),
    (["--weights", "old"], "one of ema, raw"),
    (["--weights", "raw"], "nothing to choose"),
    (["--revision", "main"], "leave the revision out"),
    (["-o", ""], "The output path is empty"),
]


@pytest.mark.parametrize(
    ("flags", "told"), BAD, ids=lambda v: " ".join(v) if isinstance(v, list) else ""
)
def test_bad_values_get_one_message_and_make_nothing(
    call: Called, checkpoint: Path, tmp_path: Path, flags: list[str], told: str
) -> None:
    result = call("sample", checkpoint, "-o", tmp_path / "run", *flags)
    refused(result, told)
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_no_cuda(call: Called, checkpoint: Path, tmp_path: Path) -> None:
    for device in ("cuda", "cuda:0"):
        result = call("sample", checkpoint, "-o", tmp_path / "run", "--device", device)
        refused(result, "no CUDA device", "--device cpu")


def tensors_of(directory: Path) -> dict[str, torch.Tensor]:
    return load_file(directory / "model.safetensors")


def without_weights(directory: Path) -> None:
    (directory / "model.safetensors").unlink()


def truncated(directory: Path) -> None:
    file = directory / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def wrong_keys(directory: Path) -> None:
    renamed = {k.replace("attn_qkv", "qkv"): t for k, t in tensors_of(directory).items()}
    save_file(renamed, directory / "model.safetensors")


def wrong_shapes(directory: Path) -> None:
    tensors = tensors_of(directory)
    key = "backbone.blocks.0.attn_out.weight"
    save_file({**tensors, key: tensors[key][:3].clone()}, directory / "model.safetensors")


def not_finite(directory: Path) -> None:
    tensors = tensors_of(directory)
    tensors["backbone.blocks.0.mlp.0.bias"][2] = float("nan")
    save_file(tensors, directory / "model.safetensors")


def overflowing(directory: Path) -> None:
    tensors = tensors_of(directory)
    tensors["backbone.output_layer.linear.weight"] *= 1e38
    save_file(tensors, directory / "model.safetensors")


def no_mask(directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "mask_id": 12}))


def broken_config(directory: Path) -> None:
    (directory / "config.json").write_text("{")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (shutil.rmtree, "no such checkpoint"),
        (without_weights, "holds no weights"),
        (truncated, "truncated"),
        (wrong_keys, "blocks.0.attn_qkv.weight"),
        (wrong_shapes, "blocks.0.attn_out.weight"),
        (not_finite, "blocks.0.mlp.0.bias"),
        (overflowing, "not finite"),
        (no_mask, "mask"),
        (broken_config, "config.json"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_bad_checkpoints_get_one_message(
    call: Called, tmp_path: Path, damage: Callable[[Path], None], told: str
) -> None:
    directory = write_checkpoint(tmp_path / "model")
    damage(directory)
    result = call("sample", directory, "--steps", 2, "-n", 2, "-o", tmp_path / "run")
    refused(result, told)


def test_another_spec_a_newer_version_and_damage(
    call: Called, checkpoint: Path, made: Path
) -> None:
    line = ["sample", checkpoint, "--steps", "2,4", "-n", 5, "-o", made]
    refused(call(*line, "--seed", 3), "another spec", "seed: 0 there, 3 now", "--force")
    study = made / "strop.json"
    good = study.read_text()
    study.write_text(good.replace('"format": 1', '"format": 2'))
    refused(call(*line), "newer version", "upgrade")
    refused(call("show", made), "newer version")
    study.write_text(good)
    table = next(made.glob("cells/*/outputs.parquet"))
    before = json.loads(call("show", made, "--first", 5, "--json")[1])["cells"]
    table.write_bytes(table.read_bytes()[:500])
    refused(call(*line), "damaged", str(table), "delete")
    refused(call("show", made), "damaged", str(table))
    table.unlink()
    assert call(*line)[0] == 0
    after = json.loads(call("show", made, "--first", 5, "--json")[1])["cells"]
    for cell in (*before, *after):
        del cell["sessions"]
        for entry in cell["first"]:
            del entry["seconds"]
    assert after == before
    assert call(*line, "--seed", 3, "--force")[0] == 0


def test_a_directory_of_somebody_else(call: Called, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    for flags in ([], ["--force"]):
        result = call("sample", checkpoint, "-o", tmp_path, *flags)
        refused(result, "holds files but no run", "thesis.tex")
    refused(call("sample", checkpoint, "-o", tmp_path / "thesis.tex"), "must be a directory")
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_memory_that_is_not_there_is_said(
    call: Called, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import strop.draw.worker

    def greedy(*_: Any, **__: Any) -> Any:
        return torch.empty(2**60)

    monkeypatch.setattr(strop.draw.worker, "fast", greedy)
    refused(call("sample", checkpoint, "-o", tmp_path / "run"), "not enough memory", "--batch-size")


def test_too_little_memory_to_load_torch_is_said(checkpoint: Path, tmp_path: Path) -> None:
    limit = 300 * 2**20  # less than torch's libraries, more than everything before them

    def narrow() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    line = command("sample", checkpoint, "-n", 1, "-o", tmp_path / "run")
    options: dict[str, Any] = {"capture_output": True, "text": True, "preexec_fn": narrow}
    end = subprocess.run(line, env=environment(), check=False, **options)  # torch is not loaded
    refused((end.returncode, end.stdout, end.stderr), "not enough memory")


def test_bugs_keep_their_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def bug(*_: Any) -> Any:
        raise RuntimeError("ours")

    monkeypatch.setattr("strop.verbs.ls.find", bug)
    with pytest.raises(RuntimeError, match="ours"):
        run(["ls", str(tmp_path)])


def test_any_number_of_first_outputs(call: Called, made: Path) -> None:
    code, out, _ = call("show", made, "--first", "99999999999999999999", "--json")
    assert code == 0
    assert [len(cell["first"]) for cell in json.loads(out)["cells"]] == [5, 5]
    code, out, _ = call("show", made, "--first", 0, "--json")
    assert [len(cell["first"]) for cell in json.loads(out)["cells"]] == [0, 0]
    refused(call("show", made, "--first", "-1"), "--first")


EARLY = [
    ["-n", "0"],
    ["--seed", "-1"],
    ["--length", "0"],
    ["--batch-size", "0"],
    ["--settings", "eta"],
    ["--family", "mdml"],
    ["--device", "tpu"],
    ["--dtype", "float64"],
    ["--weights", "old"],
    ["--steps", "64", "--grid", "0.5,0.5"],
]


@pytest.mark.parametrize("flags", EARLY, ids=" ".join)
def test_flags_are_checked_before_the_model_is_looked_for(
    call: Called, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    def touched(*_: Any) -> Any:
        raise AssertionError("the checkpoint was looked for")

    monkeypatch.setattr("strop.denoisers.load.locate", touched)
    refused(call("sample", "lab/model", "-o", tmp_path / "run", *flags), flags[0])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "flags", [["--seed", "-1"], ["--length", "0"], ["--steps", "0"], ["--top-p", "2"]], ids=" ".join
)
def test_precision_checks_its_flags_first(
    call: Called, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    monkeypatch.setattr("strop.denoisers.load.locate", None)
    refused(call("precision", "lab/model", *flags), flags[0])


def test_the_output_directory_is_checked_before_the_model_is_looked_for(
    call: Called, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strop.denoisers.load.locate", None)
    (tmp_path / "notes.txt").write_text("mine")
    refused(call("sample", "lab/model", "-o", tmp_path), "holds files but no run", "another -o")
    refused(call("sample", "lab/model", "-o", tmp_path / "notes.txt"), "is a file")
    refused(call("sample", "lab/model", "-o", ""), "path is empty", "where: -o")


def test_steps_that_agree_with_the_grid_are_no_contradiction(
    call: Called, checkpoint: Path, tmp_path: Path
) -> None:
    line = ["sample", checkpoint, "--grid", "0.5,0.5", "-n", 1, "-o", tmp_path / "run"]
    assert call(*line, "--steps", 2)[0] == 0
    assert call(*line)[0] == 0  # the same cell
    refused(call(*line, "--steps", "2,64"), "disagree", "leave --steps out")


def test_a_mistyped_path_is_not_taken_for_a_hub_id(
    call: Called, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("strop.checkpoints.hub.fetch", None)  # would be called for a hub id
    out = tmp_path / "out"
    refused(call("sample", "runs/frist", "-o", out), "holds no 'frist'", "did you mean runs/first?")
    refused(call("sample", "runs/zzz", "-o", out), "holds no 'zzz'", "runs/zzz@main")
    refused(call("score", made, "--evaluator", "runs/zzz"), "holds no 'zzz'")


# Processes, pipes and terminals


LOADED = """
import sys
before = set(sys.modules)
{}
heavy = sorted({{name.split(".")[0] for name in sys.modules}} & {{"torch", "scipy", "matplotlib"}})
print("heavy:", *heavy)
"""


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import strop", "heavy:"),
        ("from strop.cli.main import run\nrun(['--help'])", "heavy:"),
        ("from strop.cli.main import run\nrun(['sample', '--help'])", "heavy:"),
        ("import strop\nstrop.SamplerSpec(), strop.UserError, strop.Run", "heavy:"),
        ("import strop\nstrop.load_denoiser", "heavy: torch"),
    ],
    ids=["import", "help", "sample-help", "specs", "control"],
)
def test_torch_scipy_and_matplotlib_are_loaded_only_when_needed(code: str, heavy: str) -> None:
    end = subprocess.run(
        [sys.executable, "-c", LOADED.format(code)],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert end.stdout.splitlines()[-1].split() == heavy.split()


WITHOUT_TORCH = """
import sys
for name in ("torch", "safetensors", "tokenizers", "transformers"):
    sys.modules[name] = None
"""


def test_without_torch_the_extra_is_named(made: Path, tmp_path: Path) -> None:
    code = f"""{WITHOUT_TORCH}
from strop.cli.main import run
run_path, new = {str(made)!r}, {str(tmp_path / "new")!r}
codes = [run(line) for line in (
    ["sample", "x", "-o", new], ["precision", "x"], ["show", run_path], ["ls", run_path], ["doctor"]
)]
import strop
try:
    strop.sample("x")
except strop.UserError as error:
    print("python:", error.fix)
sys.exit(codes != [1, 1, 0, 0, 0])
"""
    end = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert end.returncode == 0, end.stderr
    assert end.stderr.count("The package 'torch' is not installed.") == 2
    assert end.stderr.count("try: pip install 'strop[models]'") == 2
    assert "python: pip install 'strop[models]'" in end.stdout
    assert "no torch" in end.stdout
    assert "Traceback" not in end.stderr
    assert not (tmp_path / "new").exists()


def test_as_a_process_results_and_messages_go_their_ways(checkpoint: Path, tmp_path: Path) -> None:
    path = tmp_path / "ünï code"
    end = strop("sample", checkpoint, "--steps", 2, "-n", 2, "-o", path, "--json")
    assert end.returncode == 0
    assert json.loads(end.stdout)["run"] == str(path)
    assert "next: strop show" in end.stderr
    end = strop("show", tmp_path / "no")
    assert (end.returncode, end.stdout) == (1, "")
    assert end.stderr.startswith("strop: There is no such run directory.")


def test_a_reader_that_goes_away_is_no_failure(made: Path) -> None:
    line = command("show", made, "--json", "--first", 5)
    process = warm_processes.Popen(
        line, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    told = process.stderr.read().decode()
    assert process.wait(60) == 0
    assert "Broken" not in told
    assert "Traceback" not in told


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_result_that_cannot_be_printed_is_said(made: Path) -> None:
    with open("/dev/full", "w") as full:
        end = strop("show", made, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert end.returncode == 1
    assert "cannot be printed" in end.stderr
    assert "Traceback" not in end.stderr


def on_a_terminal(line: list[str], **variables: str) -> tuple[int, str, str]:
    """Run with stderr (and only it) as a terminal."""
    ours, theirs = pty.openpty()
    process = warm_processes.Popen(
        line,
        env=environment(TERM="xterm", COLUMNS="120", **variables),
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    told = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # how a terminal says that nobody writes any more
            break
        if not chunk:
            break
        told += chunk
    os.close(ours)
    assert process.stdout is not None
    out = process.stdout.read().decode()
    return process.wait(60), out, told.decode()


def test_a_progress_bar_on_a_terminal(checkpoint: Path, tmp_path: Path) -> None:
    line = command("sample", checkpoint, "--steps", "2,4", "-n", 3, "-o", tmp_path / "run")
    code, out, told = on_a_terminal([*line, "--json"])
    assert code == 0
    assert len(json.loads(out)["cells"]) == 2
    assert "3/3" in told
    assert "tok/s" in told
    assert "M=4 tau=1 float64" in told
    code, out, told = on_a_terminal([*line, "--json"])  # nothing left to do
    assert code == 0
    assert "3/3" in told


def test_a_failure_below_a_progress_bar(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path / "model")
    overflowing(directory)
    line = command("sample", directory, "--steps", 2, "-n", 2, "-o", tmp_path / "run")
    code, out, told = on_a_terminal(line)
    assert (code, out) == (1, "")
    assert told.count("not finite") == 1
    assert "Traceback" not in told


# Hostile text


def test_hostile_outputs_are_shown_harmlessly(
    call: Called, checkpoint: Path, tmp_path: Path
) -> None:
    hot = ["--steps", 2, "--temperature", 50, "-n", 20, "-o", tmp_path / "run"]  # every word
    assert call("sample", checkpoint, *hot)[0] == 0
    _, out, _ = call("show", tmp_path / "run", "--first", 20, "--full")
    assert out.replace("\n", "").isprintable(), "no control character reaches the terminal"
    for word in WORDS:
        assert repr(word)[1:-1] in out
    [cell] = json.loads(call("show", tmp_path / "run", "--first", 20, "--json")[1])["cells"]
    drawn = "".join(entry["text"] for entry in cell["first"])
    assert all(word in drawn for word in WORDS), "JSON carries what was drawn"


@pytest.mark.parametrize(
    "text",
    ["\x1b]0;title\x07", "[bold red]x[/]", "\ud800 lone", "a\r\nb\x00", "x" * 10**6, "\u202eevil"],
    ids=["escape", "markup", "surrogate", "controls", "huge", "bidi"],
)
def test_an_excerpt_of_any_text_is_one_printable_line(text: str) -> None:
    entry = {"text": text, "ids": [1]}
    short = show._excerpt(entry, full=False)
    assert short.isprintable()
    assert len(short) < 300
    assert show._excerpt(entry, full=True).isprintable()


def test_tables_print_any_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    long = "/a/very/long/path" * 30
    output.table(["a", "b"], [["[bold]x[/bold]", ":smile: \x1b[31m"], [long, "[/]"]])
    out = capsys.readouterr().out
    assert "[bold]x[/bold]" in out
    assert ":smile: \N{REPLACEMENT CHARACTER}[31m" in out
    assert "[/]" in out
    assert "…" not in out
    assert long in out


def test_a_hostile_study_is_shown_harmlessly(call: Called, made: Path) -> None:
    study = made / "strop.json"
    document = json.loads(study.read_text())
    document["asked"]["checkpoint"] = "\x1b[31m[bold]\a"
    study.write_text(json.dumps(document))
    for line in (["show", made], ["ls", made.parent]):
        code, out, err = call(*line)
        assert code == 0
        assert (out + err).replace("\n", "").isprintable()
        assert "[bold]" in out


@pytest.mark.slow
def test_names_that_no_encoding_knows(checkpoint: Path, tmp_path: Path) -> None:
    """A path of bytes that are not UTF-8, printed by a terminal that knows ASCII only."""
    path = os.fsencode(tmp_path) + b"/\xff\xfe-\xe9"
    line = command("sample", checkpoint, "--steps", 2, "-n", 1, "-o")

    def printed(*words: str | bytes) -> bytes:
        end = subprocess.run(
            [os.fsencode(word) for word in words],
            env=environment(PYTHONIOENCODING="ascii", PYTHONUTF8="0"),
            capture_output=True,
            check=False,
        )
        assert end.returncode == 0, end.stderr
        return end.stdout

    assert printed(*line, path)
    assert json.loads(printed(*command("show"), path, "--json"))["cells"]
    assert b"1 of 1 outputs" in printed(*command("show"), path)


# The example of the documentation


def test_the_python_example(checkpoint: Path) -> None:
    code = f"""
import strop
den = strop.load_denoiser({str(checkpoint)!r})
spec = strop.SamplerSpec(steps=48, temperature=1.0, precision="float32", implementation="dense")
pool = strop.draw.sample(den, spec, n=2, seed=20261, batch_size=2)
pool.ids, pool.nfe
assert pool.ids.shape == (2, 8) and pool.nfe.shape == (2,) and len(pool.texts) == 2
lp = den.log_probs(pool.ids)
assert tuple(lp.shape) == (2, 8, 12) and not lp.requires_grad and lp.device.type == "cpu"
"""
    warm_processes.run([sys.executable, "-c", code], env=environment(), check=True)


def test_python_dash_m_is_the_command() -> None:
    end = subprocess.run(command("--version"), capture_output=True, text=True, check=False)
    assert end.returncode == 0
    assert end.stdout.startswith("strop ")
