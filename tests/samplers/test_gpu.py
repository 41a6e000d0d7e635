"""Every loop on a device that only claims to be CUDA: the CPU's ids, nothing mixed, few waits."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import strop
from strop.instruments.gpu import CASES, calls_of, drawn, exact, loaded, sampler
from strop.instruments.pretend import MixedDevices, Pretended, moved, pretended
from strop.records import SAMPLERS
from strop.samplers import fast
from strop.samplers.ancestral import RevealFirst
from strop.samplers.machinery.packed import FastDraw, packed
from strop.spec import SamplerSpec

WAITS = {
    ("mdlm", "ancestral"): 0.25,
    ("mdlm", "remdm-conf"): 2.5,
    ("mdlm", "blockwise"): 1.0,
    ("sedd", "sedd-analytic"): 2.0,
    ("duo", "duo-ancestral"): 2.0,
    ("didi", "didi-ancestral"): 1.0,
    ("didi", "didi-guided"): 1.0,
    ("llada", "llada"): 1.0,
    ("llada", "fast-dllm"): 1.0,
    ("dream", "dream"): 1.0,
    ("dream", "fast-dllm-dream"): 1.0,
    ("ar", "autoregressive"): 1.25,
}
"""How often the host may wait for the device in a call of the network, in the float64 law."""
AROUND = 4
"""And for a whole batch: at its start, at the first look at the scores, at its end."""
DENSE_WAITS = 4.0
"""The same for the public forms, which look at every update."""
FORMS = [
    (family, name, form)
    for family, name in CASES
    for form in ("fast", "dense")
    if getattr(SAMPLERS[name], form) is not None
]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Any, Any]]:
    """A model here, and the same on the device."""
    folder, made = tmp_path_factory.mktemp("small"), {}

    def both(family: str) -> tuple[Any, Any]:
        if family not in made:
            here, there = loaded(family, folder), loaded(family, folder)
            with pretended():
                moved(there)
            made[family] = here, there
        return made[family]

    return both


@pytest.mark.parametrize(("family", "name", "form"), FORMS)
def test_the_ids_of_the_cpu_and_few_waits(pair: Any, family: str, name: str, form: str) -> None:
    here, there = pair(family)
    spec, outputs = sampler(name, form), 1 if (family, form) == ("dream", "dense") else 3
    with exact():
        want = drawn(here, spec, outputs)
    with calls_of(there) as calls, pretended() as watched:
        found = drawn(there, spec, outputs)
    assert np.array_equal(found, want)
    most = WAITS[family, name] if form == "fast" else DENSE_WAITS
    assert sum(watched.waits.values()) <= most * len(calls) + AROUND, watched.waits.most_common()


def test_float32_draws_have_the_ids_of_the_cpu(pair: Any) -> None:
    for family, name in (("mdlm", "ancestral"), ("llada", "llada"), ("didi", "didi-guided")):
        here, there = pair(family)
        spec = sampler(name).model_copy(update={"precision": "float32"})
        with exact():
            want = drawn(here, spec)
        with pretended():
            assert np.array_equal(drawn(there, spec), want), name


# ---------------------------------------------------------------- the fast loop by itself

LENGTH, MANY, SLOTS = 24, 7, 3


class There:
    """A denoiser on the device; a fixed law at every position."""

    time_conditioned, codec, source, device = False, None, "there", torch.device("cuda:0")
    spec = strop.CheckpointSpec(family="mdlm", sha256="there", shape={})
    vocab_size, mask_id, length = 9, 8, LENGTH

    def __init__(self) -> None:
        rows = torch.randn(LENGTH, 9, generator=torch.Generator().manual_seed(0))
        self._rows = rows.pin_memory().to(self.device, non_blocking=True)
        self.draws = 0

    def hidden(self, ids: torch.Tensor, sigma: torch.Tensor | None) -> torch.Tensor:  # noqa: ARG002
        return torch.zeros((*ids.shape, 1), device=ids.device)

    def logits(self, hidden: Any, sequence: torch.Tensor, position: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        self.draws += 1
        return self._rows[position]

    def log_probs(self, ids: torch.Tensor, sigma: torch.Tensor | None = None) -> torch.Tensor:
        raise NotImplementedError


def waits(spec: SamplerSpec, loop: Any = fast) -> tuple[list[str], There]:
    job = {"seed": 1, "outputs": range(MANY), "slots": SLOTS, "length": LENGTH}
    with pretended() as watched:
        model = There()
        watched.clear()
        done = list(loop(model, spec, **job))
    assert len(done) == MANY
    assert all((one.ids < 8).all() for one in done)
    return sorted(kind for kind, _ in watched.waits.elements()), model


LAWS: list[dict[str, Any]] = [
    {"steps": 40},
    {"steps": 40, "temperature": 0.7, "top_p": 0.9},
    {"steps": 40, "temperature": 0.0},
    {"grid": (0.5, 0.3, 0.2), "finish": "greedy"},
    {"name": "ancestral-remdm", "steps": 40, "top_p": 0.9},
]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_float64_law_waits_only_for_finished_sequences(law: dict[str, Any]) -> None:
    """And once after the first draw, whether the weights are sound."""
    found, model = waits(SamplerSpec(**law))
    assert found.count("_local_scalar_dense") == 1
    assert set(found) == {"_local_scalar_dense", "download"}
    assert found.count("download") <= MANY
    if "grid" not in law:  # three updates are too few to tell
        assert model.draws > MANY


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_float32_law_waits_once_a_draw(law: dict[str, Any]) -> None:
    found, model = waits(SamplerSpec(**law, precision="float32"))
    assert set(found) == {"_local_scalar_dense", "download"}
    assert found.count("_local_scalar_dense") == 1
    assert found.count("download") <= model.draws + MANY


def test_a_law_that_looks_at_its_tokens_is_noticed() -> None:
    """The control: the same law, asking every round what came out."""

    class Curious(RevealFirst):
        def draw(self, logits: Any, rows: Any, packed: Any) -> Any:
            return super().draw(logits, rows, packed).cpu().numpy()

    def loop(model: Any, spec: SamplerSpec, **job: Any) -> Any:
        return packed(Curious)(FastDraw(model, spec, **job))

    found, model = waits(SamplerSpec(steps=40), loop)
    assert found.count("download") >= model.draws > 3 * MANY


def test_seconds_include_the_wait_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is read after the copy: a device that answers late is part of an output's time."""
    real, asleep = torch.Tensor.cpu, 0.0

    def late(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal asleep
        asleep += 0.02
        time.sleep(0.02)
        return real(tensor)

    with pretended():
        model = There()
        monkeypatch.setattr(Pretended, "cpu", late, raising=False)
        job = {"seed": 1, "outputs": range(MANY), "slots": SLOTS, "length": LENGTH}
        done = list(fast(model, SamplerSpec(steps=5), **job))  # type: ignore[arg-type]
    assert asleep >= 0.04
    assert sum(one.seconds for one in done) >= asleep


# ---------------------------------------------------------------- the pretend device itself


@pytest.mark.parametrize(
    ("act", "wait"),
    [
        (lambda x: x.sum().item(), "_local_scalar_dense"),
        (lambda x: bool((x > 0).any()), "_local_scalar_dense"),
        (lambda x: torch.nonzero(x), "nonzero"),
        (lambda x: x[x > 0], "boolean index"),
        (lambda x: x.cpu(), "download"),
        (lambda x: x.tolist(), "tolist"),
        (lambda x: x.equal(x), "equal"),
        (lambda x: x.unique(), "_unique2"),
        (lambda x: x[torch.tensor([0, 1])], "index from the CPU"),
        (lambda x: x[[0, 1]], "index from the CPU"),
        (lambda x: x.copy_(torch.ones(3)), "upload"),
        (lambda x: torch.ones(3).to(x.device), "upload"),
        (lambda x: torch.ones(3).to(x.device, non_blocking=True), "upload"),  # not pinned
        (lambda x: x.__setitem__(x.long(), 1.0), "value from the CPU"),
    ],
)
def test_every_kind_of_wait_is_counted(act: Any, wait: str) -> None:
    with pretended() as watched:
        x = torch.arange(3.0).pin_memory().to("cuda:0", non_blocking=True)
        y = (x * 2)[1:].exp_()
        y[0] = 2.0
        assert not watched.waits
        act(x)
        assert wait in {kind for kind, _ in watched.waits}
        assert any("test_gpu.py" in site for _, site in watched.waits)
        assert np.allclose(y.cpu().numpy(), [2, np.exp(4)])


@pytest.mark.parametrize(
    "act",
    [
        lambda x: x + torch.ones(3),
        lambda x: torch.ones(3)[x.long()],
        lambda x: x + torch.ones(3, device="cuda:1"),
        lambda x: torch.cat([x, torch.ones(1)]),
        lambda x: x.numpy(),
    ],
)
def test_what_cuda_refuses_is_refused(act: Any) -> None:
    with pretended(2):
        x = torch.ones(3, device="cuda:0")
        with pytest.raises((MixedDevices, RuntimeError, TypeError)):
            act(x)


# ---------------------------------------------------------------- what the code may not say

FACTORIES = {"arange", "empty", "full", "linspace", "ones", "rand", "randint", "tensor", "zeros"}
LOOPS = ("samplers", "denoisers")
HOST = {
    "denoisers/padding.py": {"tensor"},
    "samplers/caches.py": {"tensor"},
    "samplers/ancestral.py": {"ones", "zeros"},
    "samplers/duo.py": {"ones"},
    "samplers/machinery/committing.py": {"linspace"},
    "samplers/machinery/grid.py": FACTORIES,
}
"""Tables of the grid and the like, which the host keeps for itself."""


def _of_modules(tree: ast.AST) -> list[range]:
    """Lines where weights are made, which are moved as one."""
    return [
        range(node.lineno, (node.end_lineno or node.lineno) + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]


def faults_in(path: Path, name: str) -> list[str]:
    tree = ast.parse(path.read_text())
    weights, faults = _of_modules(tree), []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        said = ast.unparse(call.func)
        kind = said.removeprefix("torch.")
        made = said.startswith("torch.") and kind in FACTORIES - HOST.get(name, set())
        placed = any(one.arg in ("device", "generator") for one in call.keywords)
        if made and not placed and not any(call.lineno in lines for lines in weights):
            faults.append(f"{name}:{call.lineno}: {said} without a device")
        if "from_numpy" in said and said.endswith(".to") and name != "denoisers/device.py":
            faults.append(f"{name}:{call.lineno}: a copy that waits; see `upload`")
    return faults


def test_tensors_are_made_where_they_are_used_and_copied_by_upload() -> None:
    root = Path(strop.__file__).parent
    files = [file for room in LOOPS for file in sorted((root / room).rglob("*.py"))]
    faults = [one for file in files for one in faults_in(file, str(file.relative_to(root)))]
    assert not faults, "\n".join(faults)


def test_the_look_at_the_code_notices(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("x = torch.zeros(3)\ny = torch.from_numpy(a).to(device)\n")
    assert len(faults_in(bad, "bad.py")) == 2
