"""Lightning checkpoints of the public code: placeholders, averaged weights, configuration."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_checkpoints import FLAT, random_tensors, with_buffer
from training_file import PUBLIC_CONFIG, write_training_file

from strop.checkpoints.checkpoint import read_checkpoint
from strop.checkpoints.config import infer_shape
from strop.checkpoints.family import placeholder_value
from strop.checkpoints.pickles import Inert, load_pickle
from strop.errors import UserError


def raw_state(prefix: str = "backbone.") -> dict[str, torch.Tensor]:
    return with_buffer(random_tensors(seed=1, prefix=prefix), prefix)


def averages() -> list[torch.Tensor]:
    return list(random_tensors(seed=2).values())


@pytest.fixture
def public_file(tmp_path: Path) -> Path:
    return write_training_file(tmp_path / "mdlm.ckpt", raw_state(), averages())


def test_configuration_objects_load_as_records(public_file: Path) -> None:
    content = load_pickle(public_file)
    assert not any(name.startswith("strop_test_") for name in sys.modules)
    hyper = content["hyper_parameters"]
    assert isinstance(hyper["config"], Inert)
    assert hyper["config"].name == "strop_test_omegaconf.dictconfig.DictConfig"
    assert hyper["tokenizer"].state["state"] == b"\xff\x00binary"
    assert hyper["tokenizer"].state["ranks"] == {("a", "b"): 0}
    assert hyper["tokenizer"].state["names"] == {"x"}
    assert content["optimizer_states"][0]["state"][0]["exp_avg"].shape == (3,)


def test_values_are_dug_out_of_records_and_dicts(public_file: Path) -> None:
    hyper = load_pickle(public_file)["hyper_parameters"]
    assert placeholder_value(hyper, "config", "model", "length") == 8
    assert placeholder_value(hyper["config"], "time_conditioning") is False
    assert placeholder_value(hyper["config"], "model", "dropout") == 0.1
    assert placeholder_value(hyper["config"], "model") is None
    assert placeholder_value(hyper["config"], "model", "nothing", "there") is None
    assert placeholder_value(PUBLIC_CONFIG, "model", "length") == 8
    assert placeholder_value(None, "model") is None
    assert placeholder_value(hyper["tokenizer"], "ranks") is None


def test_averaged_weights_are_the_default_and_follow_parameter_order(public_file: Path) -> None:
    checkpoint = read_checkpoint(public_file)
    assert checkpoint.weights == "ema"
    wanted = random_tensors(seed=2)
    assert list(checkpoint.tensors) == list(with_buffer(wanted))
    for key, tensor in wanted.items():
        assert torch.equal(checkpoint.tensors[key], tensor), key
    assert checkpoint.sha256 == hashlib.sha256(public_file.read_bytes()).hexdigest()
    assert checkpoint.config == {k: v for k, v in FLAT.items() if k != "vocab_size"}
    shape = infer_shape(checkpoint)
    assert (shape.length, shape.n_heads, shape.vocab_size, shape.mask_id) == (8, 2, 13, 12)


def test_raw_weights_by_choice(public_file: Path) -> None:
    checkpoint = read_checkpoint(public_file, weights="raw")
    assert checkpoint.weights == "raw"
    for key, tensor in random_tensors(seed=1).items():
        assert torch.equal(checkpoint.tensors[key], tensor), key


def test_noise_parameters_may_follow_and_two_prefixes_come_off(tmp_path: Path) -> None:
    raw = raw_state("backbone.backbone.")
    file = write_training_file(tmp_path / "x.ckpt", raw, [*averages(), torch.zeros(())])
    checkpoint = read_checkpoint(file)
    assert torch.equal(
        checkpoint.tensors["blocks.1.mlp.2.bias"], random_tensors(seed=2)["blocks.1.mlp.2.bias"]
    )


def test_no_averages(tmp_path: Path) -> None:
    file = write_training_file(tmp_path / "x.ckpt", raw_state(), None)
    with pytest.raises(UserError, match="no averaged") as caught:
        read_checkpoint(file)
    assert "`weights=raw`" in str(caught.value)
    assert read_checkpoint(file, weights="raw").weights == "raw"


def test_too_few_averages(tmp_path: Path) -> None:
    file = write_training_file(tmp_path / "x.ckpt", raw_state(), averages()[:-1])
    with pytest.raises(UserError, match="do not match"):
        read_checkpoint(file)


def test_averages_of_another_shape_name_the_first_few(tmp_path: Path) -> None:
    shadow = averages()
    shadow[0] = torch.zeros(14, 16)
    file = write_training_file(tmp_path / "x.ckpt", raw_state(), shadow)
    with pytest.raises(UserError, match="shapes") as caught:
        read_checkpoint(file)
    assert "vocab_embed.embedding: (14, 16) instead of (13, 16)" in str(caught.value)


def test_other_modules_are_left_out_with_a_warning(tmp_path: Path) -> None:
    raw = raw_state() | {"teacher.x": torch.zeros(2)}
    file = write_training_file(tmp_path / "x.ckpt", raw, averages())
    with pytest.warns(UserWarning, match=r"teacher\.x"):
        assert "teacher.x" not in read_checkpoint(file).tensors


@pytest.mark.parametrize(
    "content",
    [
        {"model": {}},
        [1, 2],
        {"state_dict": {"a": 1}},
        {"state_dict": {}},
        {"state_dict": {"a": torch.ones(1)}},
    ],
)
def test_other_torch_files(content: object, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "x.ckpt")
    with pytest.raises(UserError) as caught:
        read_checkpoint(tmp_path / "x.ckpt")
    assert str(tmp_path / "x.ckpt") in str(caught.value)


@pytest.mark.parametrize("keep", [0, 3, 100, 0.5, 0.99])
def test_truncated(keep: float, public_file: Path) -> None:
    data = public_file.read_bytes()
    public_file.write_bytes(data[: int(keep if keep == int(keep) else keep * len(data))])
    with pytest.raises(UserError) as caught:
        read_checkpoint(public_file)
    assert caught.value.fix
    assert str(public_file) in str(caught.value)


def test_the_old_format_names_a_remedy(tmp_path: Path) -> None:
    torch.save({"a": 1}, tmp_path / "x.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(UserError, match="old format") as caught:
        load_pickle(tmp_path / "x.pt")
    assert "save it again" in str(caught.value)


def test_not_torch_at_all(tmp_path: Path) -> None:
    (tmp_path / "x.ckpt").write_text("<html>")
    with pytest.raises(UserError, match="not a torch checkpoint"):
        load_pickle(tmp_path / "x.ckpt")


def test_every_plain_kind_of_tensor_survives(tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    marked = torch.ones(2)
    marked.note = "attribute"  # type: ignore[attr-defined]
    content = {
        "transposed": base.T,
        "shared": base[1:],
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(5),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "bool": torch.tensor([True, False]),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "marked": marked,
        "set": {1, 2},
        "frozen": frozenset("ab"),
        "bytes": b"\x00\xff",
        "nested": [(1, 2.5, None, True), {"a": "ü"}],
        "dtype": torch.float32,
        "wide": 2**80,
    }
    torch.save(content, tmp_path / "x.pt")
    loaded = load_pickle(tmp_path / "x.pt")
    for key, value in content.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(loaded[key], value), key
            assert loaded[key].dtype == value.dtype
        elif key != "dtype":
            assert loaded[key] == value, key
    assert isinstance(loaded["dtype"], Inert)
    same = loaded["shared"].untyped_storage().data_ptr()
    assert same == loaded["transposed"].untyped_storage().data_ptr()


def test_reading_leaves_the_file_alone(public_file: Path) -> None:
    before = public_file.read_bytes()
    tensor = load_pickle(public_file)["state_dict"]["backbone.vocab_embed.embedding"]
    tensor.zero_()
    assert public_file.read_bytes() == before


@given(
    edits=st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=3)), min_size=1, max_size=6),
    drop=st.integers(0, 3),
)
@settings(max_examples=300, deadline=None)
def test_a_damaged_program_loads_or_is_explained(
    edits: list[tuple[int, bytes]], drop: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "damaged"
    whole = folder / "whole.ckpt"
    if not whole.exists():
        folder.mkdir()
        write_training_file(whole, raw_state(), averages())
    with zipfile.ZipFile(whole) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = next(n for n in members if n.endswith("data.pkl"))
    program = bytearray(members[name])
    for at, piece in edits:
        at %= len(program)
        program[at : at + drop] = piece
    with zipfile.ZipFile(folder / "x.ckpt", "w") as archive:
        for member, data in (members | {name: bytes(program)}).items():
            archive.writestr(member, data)
    with contextlib.suppress(UserError):
        load_pickle(folder / "x.ckpt")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"state_dict": 3}, "a 'state_dict' that is an object of the type 'int'"),
        ({"state_dict": None}, "a 'state_dict' that is nothing"),
        ({"weights": {}}, "the keys 'weights'"),
        ([1, 2], "an object of the type 'list'"),
        (torch.float16, "an object of the class torch.float16"),
        ({}, "an empty mapping"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_no_training_file_is_said_in_words(
    content: object, told: str, tmp_path: Path
) -> None:
    torch.save(content, tmp_path / "x.ckpt")
    with pytest.raises(UserError, match="not a training checkpoint") as caught:
        read_checkpoint(tmp_path / "x.ckpt")
    assert caught.value.got == told
