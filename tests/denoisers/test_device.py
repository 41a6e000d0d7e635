"""Models for a GPU: dtypes, memory and copies, as far as that goes without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from strop.checkpoints.config import SHAPES
from strop.denoisers import device, load_model
from strop.denoisers.base import NEG_INFINITY, carry_over
from strop.denoisers.bidirectional_load import first_device
from strop.denoisers.device import head_rows, on_host, resolve_device, resolve_dtype, upload_rows
from strop.denoisers.dit import DiT, Rotary
from strop.denoisers.network import cast_products, filled
from strop.draw.worker import MOST, ModelJob, largest_batch, unit_of_auto, what_to_load
from strop.engine import Engine, plan
from strop.engine.devices import _threads, failure
from strop.engine.plan import WORKERS
from strop.engine.workers import ModelSlot
from strop.errors import UserError, out_of_memory
from strop.instruments.gpu import loaded, source
from strop.instruments.pretend import claimed_cuda, moved, pretended
from strop.records import FAMILIES
from strop.spec import SamplerSpec

CUDA = torch.device("cuda:0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("small")


# ---------------------------------------------------------------- several GPUs


DIFFUSION = ("mdlm", "sedd", "duo", "didi")
OTHERS = ("llada", "dream", "ar")
PUBLIC = {**dict.fromkeys(DIFFUSION, "public"), **dict.fromkeys(OTHERS, "bfloat16")}
PUBLIC["ar"] = "float32"


def wanted(family: str, dtype: str) -> str:
    """What a network on a GPU computes in."""
    return {"auto": "float32", "public": PUBLIC[family]}.get(dtype, dtype)


def at_home(family: str, folder: Path, devices: str, dtype: str, engine: str = "devices") -> Any:
    """The model as the command has it, for workers on these devices."""
    home = Engine.of(engine, devices=devices).at_home("auto")
    known = family if family in DIFFUSION else None
    return load_model(source(family, folder), device=home, dtype=dtype, family=known)


@pytest.mark.parametrize("family", [*DIFFUSION, *OTHERS])
@pytest.mark.parametrize("dtype", ["auto", "bfloat16", "float16", "public"])
def test_what_workers_on_gpus_load_is_described_at_home(
    folder: Path, family: str, dtype: str
) -> None:
    """In the dtype of their device, as one GPU in this process would have it, without weights."""
    kind = wanted(family, dtype)
    with claimed_cuda(2):
        model = at_home(family, folder, "cuda:0,cuda:1", dtype)
        recipe, spec, print_ = what_to_load(model)
        assert resolve_dtype(dtype, CUDA, public=FAMILIES[family].public_dtype) == kind
    assert spec.network_dtype == recipe.dtype == kind
    assert all(one.is_meta for one in model.network.parameters())
    plain = loaded(family, folder).spec
    assert spec.model_copy(update={"network_dtype": "float32"}) == plain
    if kind == "float32" or family in DIFFUSION:  # others compute as they are loaded
        with pretended(2):
            there = ModelJob(recipe, spec, print_).load("cuda:1")  # which refuses another model
            assert there.device == torch.device("cuda:1")
            assert {one.device for one in there.network.parameters()} == {there.device}  # type: ignore[attr-defined]


@pytest.mark.parametrize("family", [*DIFFUSION, *OTHERS])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "public"])
def test_workers_on_the_processor_keep_its_rules(folder: Path, family: str, dtype: str) -> None:
    """Also where the command's machine has a GPU, and on a Ray cluster that has none."""
    refused = dtype != "public" or PUBLIC[family] == "bfloat16"
    with claimed_cuda(1), pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "join", lambda _: None)
        patch.setattr(plan, "machines", lambda: [{"Resources": {"CPU": 4.0}}])
        for engine, devices in (("devices", "cpu:2"), ("ray", "cpu:2"), ("ray", "all")):
            patch.setattr("ray.is_initialized", lambda: True)
            if refused:
                with pytest.raises(UserError, match="16 is for GPUs"):
                    at_home(family, folder, devices, dtype, engine)
            else:
                assert at_home(family, folder, devices, dtype, engine).spec == (
                    loaded(family, folder).spec
                )


def test_where_the_command_itself_loads_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nowhere, for workers on GPUs; a cluster is asked, and none is started for the question."""
    joined: list[str | None] = []
    monkeypatch.setattr(plan, "join", joined.append)
    monkeypatch.setattr(plan, "machines", lambda: [{"Resources": {"CPU": 4.0}}, {"Resources": gpu}])
    gpu = {"CPU": 4.0, "GPU": 1.0}
    assert Engine.of().at_home("cuda:1") == "cuda:1"
    assert Engine.of(devices="cpu:2").at_home("cuda") == "cpu"
    assert Engine.of(devices="cuda:0,cpu").at_home("auto") == "cpu"
    for devices in ("cuda:0", "cuda:0,cuda:1", "all"):
        assert Engine.of(devices=devices).at_home("cpu") == WORKERS
    assert Engine.of("ray", devices="cuda,cuda").at_home("cpu") == WORKERS
    assert not joined
    assert Engine.of("ray", ray_address="head:1").at_home("cpu") == WORKERS
    del gpu["GPU"]
    assert Engine.of("ray", ray_address="head:1").at_home("cpu") == "cpu"
    assert joined == ["head:1"] * 2
    for count, home in ((0, "cpu"), (2, WORKERS)):  # a cluster of this machine, not started yet
        with claimed_cuda(count):
            assert Engine.of("ray").at_home("cpu") == home
    assert len(joined) == 2


def test_at_home_only_the_sizes_of_weights_are_looked_at() -> None:
    """Tensors without numbers stand for a file that is not to be read: a copy would be refused."""
    shape = SHAPES["tiny"]
    with torch.device("meta"):
        tensors = dict(DiT(shape).state_dict())
    assert filled(DiT, shape, tensors, torch.device("meta")).vocab_embed.embedding.is_meta
    with pytest.raises(NotImplementedError, match="meta"):
        filled(DiT, shape, tensors, torch.device("cpu"))
    key = "vocab_embed.embedding"
    with pytest.raises(RuntimeError, match=key):
        filled(DiT, shape, tensors | {key: tensors[key][:, 1:]}, torch.device("meta"))


class Held:
    """A job that says which device is current when its model is loaded."""

    def __init__(self, current: list[Any]) -> None:
        self.current, self.needs = current, "something"

    def check(self) -> None: ...
    def load(self, device: str) -> Any:
        return device, self.current[-1]

    def open(self, loaded: Any) -> Any:
        return loaded


@pytest.mark.parametrize(
    ("device", "current"), [("cuda:1", "cuda:1"), ("cpu", None), ("cuda", None)]
)
def test_a_worker_s_device_is_the_current_one(
    monkeypatch: pytest.MonkeyPatch, device: str, current: str | None
) -> None:
    """Before anything is loaded: Triton's kernels ask. A Ray actor sees one device alone."""
    with claimed_cuda(2):
        asked: list[Any] = [None]
        monkeypatch.setattr(torch.cuda, "set_device", asked.append)
        assert ModelSlot(device).open(Held(asked)) == (device, current)


def test_an_embedding_that_was_offloaded_runs_where_accelerate_says(folder: Path) -> None:
    """Its weights lie on the disk; ids go to the device where they will be needed."""
    parts = ("model.embed_tokens", "model.layers", "model.norm", "model.rotary_emb", "lm_head")
    options = {
        "device_map": dict.fromkeys(parts, "cpu") | {parts[0]: "disk"},
        "offload_folder": str(folder / "offloaded"),
    }
    model: Any = load_model(source("llada", folder), device="cpu", load=options)
    assert model.network.get_input_embeddings().weight.is_meta
    assert model.device == torch.device("cpu")
    ids = torch.arange(12)[None]
    plain: Any = loaded("llada", folder)
    assert torch.equal(model.hidden(ids, None), plain.hidden(ids, None))
    for execution, place in ((1, "cuda:1"), ("cuda:0", "cuda:0"), ("cpu", "cpu")):
        model.network.get_input_embeddings()._hf_hook.execution_device = execution
        assert first_device(model.network) == torch.device(place)
    plain.network.get_input_embeddings()._hf_hook = model.network.get_input_embeddings()._hf_hook
    assert first_device(plain.network) == torch.device("cpu")  # where weights are is where they run


def test_a_model_that_each_worker_would_spread_is_refused(folder: Path) -> None:
    home = Engine.of(devices="cuda:0,cuda:1").at_home("auto")
    with pytest.raises(UserError, match="spread the model over all devices"):
        load_model(source("llada", folder), device=home, load={"device_map": "auto"})


@pytest.mark.parametrize("name", ["mps", "xpu:1", "xla"])
def test_other_devices_are_refused_by_name(name: str) -> None:
    with pytest.raises(UserError, match="float64") as caught:
        resolve_device(name)
    assert name.partition(":")[0] in str(caught.value)


def test_threads_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    assert _threads(["cpu", "cpu"]) == {"cpu": 8}
    assert _threads(["cuda:0", "cuda:1"]) == {"cuda:0": 8, "cuda:1": 8}
    assert _threads(["cuda:0", "cpu", "cpu", "cpu"]) == {"cuda:0": 4, "cpu": 5}


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize(
    ("vocabulary", "free", "rows"),
    [
        (126_464, 60 << 30, 2**26 // 126_464),
        (50_258, 60 << 30, 2**26 // 50_258),
        (50_258, 4 << 30, 2**25 // 50_258),  # a quarter of 4 GiB holds 2**25 times 28 bytes
        (50_258, 0, 2**20 // 50_258),  # never less than on the CPU
        (2**27, 60 << 30, 1),
    ],
)
def test_the_head_has_large_pieces_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, vocabulary: int, free: int, rows: int
) -> None:
    monkeypatch.setattr(device, "free_bytes", lambda _: free)
    assert head_rows(vocabulary, CUDA) == rows
    assert head_rows(vocabulary, torch.device("cpu")) == max(1, 2**20 // vocabulary)


def test_what_torch_keeps_counts_as_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with claimed_cuda(1):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (100, 1000))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda *_: 700)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda *_: 40)
        assert device.free_bytes(CUDA) == 760


def test_auto_asks_the_device_and_units_leave_it_room(folder: Path) -> None:
    spec = SamplerSpec(steps=4)
    with pretended():
        pass
    model = loaded("mdlm", folder)
    usual = largest_batch(model, spec, 64)
    with pretended():
        assert largest_batch(moved(model), spec, 64) == MOST > usual
    assert unit_of_auto(5000, 2) == MOST
    assert unit_of_auto(100, 3) == 34
    assert unit_of_auto(1, 8) == 1


@pytest.mark.parametrize(
    "words",
    [
        "CUDA error: out of memory",
        "CUDA out of memory. Tried to allocate 2 GiB.",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    ],
)
def test_every_way_to_say_that_memory_ran_out(words: str) -> None:
    assert out_of_memory(RuntimeError(words))
    assert isinstance(failure(RuntimeError(words)), MemoryError)
    assert not out_of_memory(RuntimeError("CUDA error: an illegal memory access"))


# ---------------------------------------------------------------- the network


def test_one_rotary_table_serves_every_length() -> None:
    """And its numbers are those of a table of that length alone, to the bit."""
    one, like = Rotary(8), torch.zeros(1)
    for length in (5, 64, 3, 40, 64):
        alone = Rotary(8).tables(length, like)
        assert all(torch.equal(a, b) for a, b in zip(one.tables(length, like), alone, strict=True))
    assert [len(cos) for cos, _ in one._tables.values()] == [64]


def test_products_round_as_autocast_rounds_them() -> None:
    """Matrices that are kept in bfloat16 give the scores of matrices that each call casts."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        shape = SHAPES["tiny"]
        network = DiT(shape).eval().requires_grad_(False)
        for one in network.parameters():
            torch.nn.init.normal_(one, std=0.05)
    ids = torch.arange(8)[None] % shape.vocab_size
    rows = torch.zeros(3, dtype=torch.long), torch.tensor([1, 4, 6])

    def scores() -> torch.Tensor:
        state = network.state(ids, torch.zeros(1), torch.bfloat16)
        return network.scores(state, *rows, torch.bfloat16)

    before = scores()
    cast_products(network, torch.bfloat16)
    assert network.blocks[0].attn_qkv.weight.dtype == torch.bfloat16  # type: ignore[union-attr]
    assert network.blocks[0].norm1.weight.dtype == torch.float32  # type: ignore[union-attr]
    assert network.sigma_map.mlp[0].weight.dtype == torch.float32
    assert torch.equal(scores(), before)


def test_rows_remember_their_numbers() -> None:
    with pretended() as watched:
        sequence, position = upload_rows(CUDA, np.array([2, 0]), np.array([5, 7]))
        assert on_host(sequence).tolist() == [2, 0]
        assert on_host(position).tolist() == [5, 7]
        assert not watched.waits
        assert on_host(position + 1).tolist() == [6, 8]
        assert sum(watched.waits.values()) == 1


def test_visible_tokens_are_carried_over() -> None:
    law = torch.tensor([[[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]])
    found = carry_over(law.clone(), torch.tensor([[1, 2]]), mask_id=2)
    assert found[0, 0].tolist() == [NEG_INFINITY, 0.0, NEG_INFINITY]
    assert torch.equal(found[0, 1], law[0, 1])
