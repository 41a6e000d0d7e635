"""Local sources and what can be wrong with them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from small_checkpoints import FLAT, SMALL, random_tensors, with_buffer

from strop import assets
from strop.assets import embedded_names
from strop.checkpoints.checkpoint import read_checkpoint
from strop.checkpoints.config import infer_shape
from strop.errors import UserError

VECTORS = Path(__file__).parents[1] / "vectors"
Writer = Callable[..., Path]


def fails(source: object, **kwargs: object) -> str:
    with pytest.raises(UserError) as caught:
        read_checkpoint(source, **kwargs)  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.parametrize("prefix", ["backbone.", "backbone.backbone.", ""])
@pytest.mark.parametrize("buffer", [True, False])
def test_a_directory_in_the_hub_layout(prefix: str, buffer: bool, hub_dir: Writer) -> None:
    tensors = random_tensors(prefix=prefix)
    directory = hub_dir(with_buffer(tensors, prefix) if buffer else tensors)
    found = read_checkpoint(str(directory))
    assert found.source == str(directory)
    assert found.path == directory / "model.safetensors"
    assert found.config == FLAT
    assert (found.weights, found.revision, found.tokenizer_dir) == ("released", None, None)
    assert found.sha256 == hashlib.sha256(found.path.read_bytes()).hexdigest()
    for key, tensor in random_tensors().items():
        assert torch.equal(found.tensors[key], tensor)
    assert infer_shape(found) == SMALL
    assert read_checkpoint(found.path).config == FLAT  # the file itself, as a Path


NESTED = {
    "time_conditioning": False,
    "model": {
        "hidden_size": 16,
        "cond_dim": 6,
        "length": 8,
        "n_blocks": 2,
        "n_heads": 2,
        "dropout": 0.1,
        "scale_by_sigma": True,
    },
    "noise": {"type": "loglinear"},
}


@pytest.mark.parametrize("config", [NESTED, {"config": NESTED}, {"a": 1, "other": NESTED}])
def test_the_training_layout_is_flattened(config: dict, hub_dir: Writer) -> None:
    found = read_checkpoint(hub_dir(config=config))
    assert found.config == {k: v for k, v in FLAT.items() if k != "vocab_size"}


@pytest.mark.parametrize("name", ["mask_id", "mask_index", "mask_token_id"])
def test_the_mask_has_several_names_and_null_is_absent(name: str, hub_dir: Writer) -> None:
    config = {**FLAT, name: 3, "dropout": None, "architectures": ["X"], "auto_map": {"A": "b"}}
    found = read_checkpoint(hub_dir(config=config)).config
    assert found["mask_id"] == 3
    assert "dropout" not in found
    assert "auto_map" not in found


def test_shards(tmp_path: Path) -> None:
    tensors = random_tensors(prefix="backbone.")
    keys = list(tensors)
    places = {}
    for n, part in enumerate((keys[:7], keys[7:]), start=1):
        name = f"model-0000{n}-of-00002.safetensors"
        save_file({k: tensors[k] for k in part}, tmp_path / name)
        places |= dict.fromkeys(part, name)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (tmp_path / "config.json").write_text(json.dumps(FLAT))
    found = read_checkpoint(tmp_path)
    assert found.path.name == "model.safetensors.index.json"
    assert infer_shape(found) == SMALL
    listing = subprocess.run(
        "sha256sum *.safetensors | sha256sum",
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert found.sha256 == listing.split()[0]
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    assert "model-00002-of-00002.safetensors" in fails(tmp_path)


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/passwd", "a/b.safetensors", "x.pkl"])
def test_an_index_cannot_reach_elsewhere(name: str, tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": name}}))
    assert "not a file beside it" in fails(tmp_path)


def test_an_empty_index(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    assert "names no files" in fails(tmp_path)


def test_a_tokenizer_beside_the_weights_is_found(hub_dir: Writer) -> None:
    directory = hub_dir()
    (directory / "vocab.json").write_text("{}")
    assert read_checkpoint(directory).tokenizer_dir is None
    (directory / "merges.txt").write_text("")
    assert read_checkpoint(directory).tokenizer_dir == directory


def test_embedded_models(hub_dir: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "MODELS", tmp_path / "none")
    assert embedded_names() == []
    assert "no embedded model is known" in fails("embedded:x")
    directory = hub_dir(name="models/toy")
    monkeypatch.setattr(assets, "MODELS", directory.parent)
    assert embedded_names() == ["toy"]
    assert read_checkpoint("embedded:toy").path == directory / "model.safetensors"
    assert "did you mean 'toy'" in fails("embedded:toi")
    assert "one of toy" in fails("embedded:../models/toy")
    assert "revision" in fails("embedded:toy", revision="main")


@pytest.mark.parametrize("folder", ["mdlm", "duo_mdlm"])
def test_the_parity_vectors_load(folder: str, tmp_path: Path) -> None:
    case = json.loads((VECTORS / folder / "case.json").read_text())
    weights = VECTORS / folder / "weights.safetensors"
    (tmp_path / "model.safetensors").write_bytes(weights.read_bytes())
    config = case.get("config", {"model_length": 16})
    (tmp_path / "config.json").write_text(json.dumps(config))
    shape = infer_shape(read_checkpoint(tmp_path))
    assert (shape.vocab_size, shape.mask_id, shape.length) == (102, 101, 16)
    assert (shape.hidden_dim, shape.cond_dim, shape.n_blocks, shape.n_heads) == (64, 32, 2, 4)


# Bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "./nowhere",
        "/no/such/dir",
        "~/no-such-checkpoint",
        "a/b/c",
        "owner/x.ckpt",
        "owner/x.safetensors",
        "nowhere",
        "dir\\x",
        "a/b/c@main",
    ],
)
def test_a_missing_path(source: str) -> None:
    assert "There is no such checkpoint" in fails(source)


def test_an_empty_name() -> None:
    assert "empty" in fails("")


def test_an_empty_directory(tmp_path: Path) -> None:
    assert "an empty directory" in fails(tmp_path)


def test_a_directory_without_weights(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    assert "notes.txt" in fails(tmp_path)


def test_a_training_run_names_its_newest_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "my-training-run"
    for step in (900, 1500, 100_000_000):
        folder = run / "checkpoints" / f"step-{step:08d}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    (run / "checkpoints" / "step-notes").mkdir()
    (run / "resume.pt").write_bytes(b"state")
    told = fails(run)
    assert "training run" in told
    assert f"pass the newest: {run / 'checkpoints' / 'step-100000000'}" in told
    assert "resume.pt" not in told


def test_several_weight_files(hub_dir: Writer) -> None:
    directory = hub_dir(weights="a.safetensors")
    assert read_checkpoint(directory).path.name == "a.safetensors"
    (directory / "b.ckpt").write_bytes(b"")
    message = fails(directory)
    assert "a.safetensors, b.ckpt" in message
    assert "pass the file itself" in message


def test_the_hub_name_wins_over_other_weights(hub_dir: Writer) -> None:
    directory = hub_dir()
    (directory / "optimizer.safetensors").write_bytes(b"")
    assert read_checkpoint(directory).path.name == "model.safetensors"


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_truncated_weights(keep: int, hub_dir: Writer) -> None:
    file = hub_dir() / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    message = fails(file)
    assert "truncated" in message
    assert "bytes" in message


def test_a_git_lfs_pointer(hub_dir: Writer) -> None:
    file = hub_dir() / "model.safetensors"
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    assert "git lfs pull" in fails(file)


def test_a_config_that_is_not_json(hub_dir: Writer) -> None:
    directory = hub_dir()
    (directory / "config.json").write_text("{,")
    assert "not JSON" in fails(directory)
    (directory / "config.json").write_bytes(b"\xff\xfe\xff")
    assert "not JSON" in fails(directory)
    (directory / "config.json").write_text("[1]")
    assert "JSON object" in fails(directory)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_heads", "12"),
        ("n_heads", 0),
        ("model_length", 8.0),
        ("vocab_size", True),
        ("dropout", 2),
        ("time_conditioning", 1),
        ("mask_id", "x"),
    ],
)
def test_a_config_value_of_the_wrong_kind(name: str, value: object, hub_dir: Writer) -> None:
    message = fails(hub_dir(config={**FLAT, name: value}))
    assert name in message
    assert repr(value) in message


def test_an_unknown_suffix(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"")
    assert ".safetensors" in fails(tmp_path / "x.gguf")


def test_permission_denied(hub_dir: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = hub_dir()
    original = Path.open

    def refuse(self: Path, *args: object, **kwargs: object) -> object:
        if self.name == "model.safetensors":
            raise PermissionError(13, "Permission denied", str(self))
        return original(self, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)
    message = fails(directory)
    assert "may not read" in message
    assert "model.safetensors" in message


def test_choices_that_do_not_apply(hub_dir: Writer) -> None:
    directory = hub_dir()
    assert "nothing to choose" in fails(directory, weights="raw")
    assert "leave the revision out" in fails(directory, revision="main")
    assert "one of ema, raw" in fails(directory, weights="avg")
    assert "Two different revisions" in fails("owner/name@a", revision="b")
    assert "after '@' is empty" in fails("owner/name@")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_pipe_in_place_of_a_file_is_refused(name: str, hub_dir: Writer) -> None:
    directory = hub_dir(random_tensors())
    (directory / name).unlink(missing_ok=True)
    os.mkfifo(directory / name)
    told = fails(directory)  # a pipe that nobody writes to would be read for ever
    assert "a pipe" in told
    assert str(directory / name) in told
    assert "a pipe" in fails(directory / name)
