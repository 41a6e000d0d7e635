"""Every loop on a device that only claims to be CUDA: the CPU's ids, nothing mixed, few waits."""

from __future__ import annotations

import json
import linecache
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import strop
from strop.cli.main import run
from strop.denoisers import device
from strop.instruments import gpu
from strop.instruments.gpu import (
    AROUND,
    CASES,
    calls_of,
    drawn,
    exact,
    faults,
    loaded,
    most_waits,
    outputs_of,
    sampler,
    waits_of,
)
from strop.instruments.pretend import MixedDevices, Pretended, moved, pretended
from strop.prompts import PromptReader, PromptSet, resolve
from strop.records import SAMPLERS
from strop.samplers import fast
from strop.samplers.ancestral import RevealFirst
from strop.samplers.machinery.committing import NetworkReader
from strop.samplers.machinery.packed import FastDraw, packed
from strop.spec import SamplerSpec

DENSE_WAITS = {"fast-dllm-dream": 4.0}
"""How often the host may wait in a call of a public form, which looks at every update: twice.

Fast-dLLM's for Dream also asks, in every round, how many tokens to commit and whether to go on.
"""
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
    most = most_waits(family, name, len(calls))
    if form == "dense":
        most = DENSE_WAITS.get(name, 2.0) * len(calls) + AROUND
    assert sum(watched.waits.values()) <= most, watched.waits.most_common()
    assert not watched.unsaid


def test_float32_draws_have_the_ids_of_the_cpu(pair: Any) -> None:
    for family, name in (("mdlm", "ancestral"), ("llada", "llada"), ("didi", "didi-guided")):
        here, there = pair(family)
        spec = sampler(name).model_copy(update={"precision": "float32"})
        with exact():
            want = drawn(here, spec)
        with pretended() as watched:
            assert np.array_equal(drawn(there, spec), want), name
        assert not watched.unsaid


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


# ---------------------------------------------------------------- the doctor


BUDGETS = {"mdlm": 1.0, "llada": 3.0, "dream": 3.0, "sedd": 4.0, "duo": 4.0, "didi": 4.0, "ar": 4.0}
"""What no loop may exceed: the plain one of a transformer, decoders, and the others."""


def test_no_budget_is_above_what_was_promised() -> None:
    assert max(DENSE_WAITS.values()) <= 4
    for (family, name), most in CASES.items():
        revising = name in ("remdm-conf", "blockwise")  # decoders, too
        assert most <= (3.0 if revising else BUDGETS[family]), (family, name)
    assert most_waits("mdlm", "ancestral", 100) == 25 + AROUND


GOOD = {
    "family": "mdlm",
    "sampler": "ancestral",
    "same_ids": 1.0,
    "waits": 7,
    "waits_allowed": 7.0,
    "unsaid_waits": {},
}
UNDERSTOOD = {"said": "OutOfMemoryError", "understood": True}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"waits": 8}, "8 waits, 7 allowed"),
        ({"same_ids": 0.99}, "1.0% of the ids"),
        ({"unsaid_waits": {"samplers/duo.py:7": 2}}, "samplers/duo.py:7"),
        ({"error": "RuntimeError: no kernel"}, "no kernel"),
    ],
)
def test_a_report_says_what_is_wrong(change: dict[str, Any], words: str | None) -> None:
    found = faults({"loops": [GOOD, GOOD | change], "out_of_memory": UNDERSTOOD})
    assert len(found) == (words is not None)
    assert words is None or words in found[0]
    assert len(faults({"loops": [], "out_of_memory": UNDERSTOOD | {"understood": False}})) == 1


CURIOUS: str = """
def look(x):
    x.sum().item()  # waits
    return x.sum().item()
"""


def test_waits_are_counted_as_torch_tells_them() -> None:
    """By a warning each, at the line that waits; the one that the mode is new is none."""
    scope: dict[str, Any] = {}
    path = str(Path(strop.__file__).parent / "samplers" / "curious.py")
    exec(compile(CURIOUS, path, "exec"), scope)
    linecache.cache[path] = len(CURIOUS), 0.0, CURIOUS.splitlines(keepends=True), path
    with pretended():
        x = torch.ones(3, device="cuda:0")
        assert waits_of(lambda: x + 1) == (0, {})
        waits, unsaid = waits_of(lambda: scope["look"](x))
        assert waits == 2
        assert unsaid == {"samplers/curious.py:4": 1}
        assert waits_of(lambda: x.cpu())[1].total() == 1  # by none of the package's lines
        with pytest.raises(ZeroDivisionError):
            waits_of(lambda: 1 / 0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            x.sum().item()  # the mode is what it was
    del linecache.cache[path]


def test_the_doctor_runs_the_programme_and_fails_where_it_finds_a_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for case, budget, code in (
        (("mdlm", "ancestral"), 0.25, 0),
        (("llada", "llada"), 1.0, 0),
        (("mdlm", "ancestral"), -4.0, 2),
    ):
        monkeypatch.setattr(gpu, "CASES", {case: budget})
        assert run(["doctor", "--gpu", "--json"]) == code
        found = json.loads(capsys.readouterr().out)
        assert found["pretend"]
        assert found["out_of_memory"] == UNDERSTOOD
        [loop] = found["loops"]
        assert (loop["same_ids"], loop["unsaid_waits"]) == (1.0, {})
        assert loop["calls"] > 1
        assert 0 < loop["waits"] == round(loop["waits_per_call"] * loop["calls"])
        assert loop["calls_per_second"] is loop["peak_bytes"] is None
        assert len(found["faults"]) == (code == 2)


# ---------------------------------------------------------------- pieces, clocks, kernels


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("mdlm", "ancestral"),
        ("sedd", "sedd-analytic"),
        ("duo", "duo-ancestral"),
        ("llada", "llada"),
    ],
)
def test_scores_are_made_in_pieces_of_the_device_s_own_size(
    pair: Any, monkeypatch: pytest.MonkeyPatch, family: str, name: str
) -> None:
    model = pair(family)[1]
    monkeypatch.setattr(device, "HEAD_ENTRIES", {"cpu": 1, "cuda": 5 * model.vocab_size})
    asked, real = [], model.logits
    monkeypatch.setattr(model, "logits", lambda h, s, p: asked.append(len(s)) or real(h, s, p))
    with pretended():
        drawn(model, sampler(name))
    assert max(asked) == 5
    monkeypatch.undo()
    monkeypatch.setattr(model, "logits", lambda h, s, p: asked.append(len(s)) or real(h, s, p))
    with calls_of(model) as calls, pretended():
        asked.clear()
        drawn(model, sampler(name))
    assert len(asked) <= len(calls)  # the head is asked once a call, for all rows together


@pytest.mark.parametrize(
    ("family", "name", "form"),
    [
        ("mdlm", "ancestral", "fast"),
        ("llada", "llada", "fast"),
        ("sedd", "sedd-analytic", "fast"),
        ("mdlm", "ancestral", "dense"),
    ],
)
def test_seconds_are_those_that_the_device_takes(
    pair: Any, monkeypatch: pytest.MonkeyPatch, family: str, name: str, form: str
) -> None:
    """A clock that goes on only while something is fetched: every loop reads it after the copy."""
    model, real, clock = pair(family)[1], torch.Tensor.cpu, [0.0]

    def late(tensor: torch.Tensor) -> torch.Tensor:
        clock[0] += 1.0
        return real(tensor)

    monkeypatch.setattr(Pretended, "cpu", late, raising=False)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    with pretended():
        done = outputs_of(model, sampler(name, form), 2)
    assert clock[0] > 0
    assert sum(one.seconds for one in done) == pytest.approx(clock[0])


def test_prompts_of_one_length_leave_the_fast_kernel_of_attention_possible(
    pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mask of padding rules it out, and is looked at, which waits."""
    model = pair("llada")[1]
    masks, real = [], model.network.base_model.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        masks.append(kwargs["attention_mask"])
        return real(*args, **kwargs)

    monkeypatch.setattr(model.network.base_model, "forward", forward)
    for lengths, masked in (((3, 3), False), ((3, 2), True)):
        canvases = resolve(
            PromptSet.of([{"ids": list(range(1, n + 1))} for n in lengths]),
            PromptReader(model.vocab_size, model.mask_id, model.length, None),
            length=24,
        )
        masks.clear()
        with pretended() as watched:
            spec = sampler("llada").for_length(24)
            job: dict[str, Any] = {"seed": 1, "outputs": range(2), "slots": 2}
            done = list(fast(model, spec, **job, length=24, canvases=canvases))
        assert len(done) == 2
        assert {one is not None for one in masks} == {masked}
        if not masked:
            assert not watched.unsaid
    with pretended():
        reader = NetworkReader(model, np.zeros((2, 8), bool), starts=np.array([0, 2]))
        assert reader._starts(np.array([0])) is None  # the row that is padded is not read
        assert reader._starts(np.array([0, 1])) is not None


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
