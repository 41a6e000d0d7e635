"""`strop doctor --gpu`: what the samplers do on this machine's GPU, or on a pretend one.

Every family has a small network with random weights, whose loop is run on the device and on the
CPU. Ids are compared, waits of the host are counted, calls of the network are timed.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from strop.assets import EMBEDDED
from strop.checkpoints.config import SHAPES
from strop.checkpoints.layout import write_random
from strop.denoisers import Model, load_model
from strop.errors import out_of_memory
from strop.instruments.pretend import moved, pretended
from strop.records import FAMILIES, SAMPLERS
from strop.registry import resolve
from strop.samplers import dense_batch, fast
from strop.spec import SamplerSpec

SIZES = {
    "hidden_dim": 32,
    "n_blocks": 2,
    "n_heads": 2,
    "length": 64,
    "vocab_size": 40,
    "mask_id": 39,
}
CASES = (
    ("mdlm", "ancestral"),
    ("mdlm", "remdm-conf"),
    ("mdlm", "blockwise"),
    ("sedd", "sedd-analytic"),
    ("duo", "duo-ancestral"),
    ("didi", "didi-ancestral"),
    ("didi", "didi-guided"),
    ("llada", "llada"),
    ("llada", "fast-dllm"),
    ("dream", "dream"),
    ("dream", "fast-dllm-dream"),
    ("ar", "autoregressive"),
)
"""The loops: a family and one of its samplers."""
LENGTH, STEPS, OUTPUTS = 32, 4, 3
CAUSAL = "sums-ar"
"""The embedded model that stands for causal ones."""


def source(family: str, folder: Path) -> str:
    """A small checkpoint of a family, written into `folder` if it is not there."""
    if family == "ar":
        return EMBEDDED + CAUSAL
    path = folder / family
    layout = FAMILIES[family].layout
    assert layout is not None
    if not path.exists():
        write_random(path, resolve(layout)(replace(SHAPES["tiny"], **SIZES)), 0)
    return str(path)


def loaded(family: str, folder: Path, device: str = "cpu") -> Model:
    """That checkpoint as a model."""
    written = family not in ("ar", "llada", "dream")
    return load_model(source(family, folder), family=family if written else None, device=device)


def sampler(name: str, form: str = "fast") -> SamplerSpec:
    """A sampler's settings, of few steps."""
    steps = {} if SAMPLERS[name].causal else {"steps": STEPS}
    spec = SamplerSpec(name=name, implementation=form, **steps)  # type: ignore[arg-type]
    return spec.for_length(LENGTH)


def drawn(model: Model, spec: SamplerSpec, outputs: int = OUTPUTS) -> np.ndarray:
    """Ids [n, L]."""
    if spec.implementation == "dense":
        many = dense_batch(model, spec, seed=1, first=0, count=outputs, length=LENGTH)
    else:
        many = list(fast(model, spec, seed=1, outputs=range(outputs), slots=outputs, length=LENGTH))
    return np.stack([one.ids for one in sorted(many, key=lambda one: one.index)])


@contextmanager
def calls_of(model: Any) -> Iterator[list[str]]:
    """The network's calls, a judge's included, as they are made."""
    calls: list[str] = []

    def counted(real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return real(*args, **kwargs)

        return call

    places = [(model, name) for name in ("hidden", "remember", "window", "padded", "read")]
    places.append((getattr(model, "_discriminator", None), "scores"))
    there = [(one, name) for one, name in places if hasattr(one, name)]
    for one, name in there:
        setattr(one, name, counted(getattr(one, name), name))
    try:
        yield calls
    finally:
        for one, name in there:
            delattr(one, name)


def exact() -> Any:
    """The attention that is made of plain operations: the same on every device but for rounding."""
    return sdpa_kernel(SDPBackend.MATH)


def report(folder: Path) -> dict[str, Any]:
    """Everything, on a CUDA device where there is one."""
    real = torch.cuda.is_available()
    found: dict[str, Any] = {
        "pretend": not real,
        "device": torch.cuda.get_device_name(0) if real else "a pretend device on the CPU",
        "torch": torch.__version__,
        "cuda": torch.version.cuda or torch.version.hip,
    }
    found["memory"] = torch.cuda.mem_get_info(0)[1] if real else None
    found["out_of_memory"] = _out_of_memory() if real else None
    found["loops"] = [_loop(family, name, folder, real=real) for family, name in CASES]
    return found


def _loop(family: str, name: str, folder: Path, *, real: bool) -> dict[str, Any]:
    spec = sampler(name)
    with exact():
        want = drawn(loaded(family, folder), spec)
    model = loaded(family, folder, "cuda:0" if real else "cpu")
    row: dict[str, Any] = {"family": family, "sampler": name}
    try:
        with exact(), nullcontext() if real else pretended():
            model = model if real else moved(model)
            same = drawn(model, spec) == want  # a warm-up as well
        if real:
            torch.cuda.reset_peak_memory_stats(0)
        with calls_of(model) as calls, exact():
            began = time.perf_counter()
            waits = _waits(lambda: drawn(model, spec), real=real)
            seconds = time.perf_counter() - began
    except Exception as error:  # the point of the report
        return row | {"error": f"{type(error).__name__}: {error}"[:400]}
    peak = torch.cuda.max_memory_allocated(0) if real else None
    return row | {
        "same_ids": float(same.mean()),
        "calls": len(calls),
        "waits_per_call": round(waits / len(calls), 2),
        "calls_per_second": round(len(calls) / seconds, 1) if real else None,
        "peak_bytes": peak,
    }


def _waits(work: Callable[[], Any], *, real: bool) -> int:
    """How often the host waited for the device."""
    if not real:
        with pretended() as watched:
            work()
            return sum(watched.waits.values())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(one.message) for one in told)


def _out_of_memory() -> dict[str, Any]:
    """Ask for more than there is: how it is said, and whether it is understood."""
    try:
        torch.empty(2 * torch.cuda.mem_get_info(0)[1], dtype=torch.uint8, device="cuda:0")
    except Exception as error:
        return {"said": type(error).__name__, "understood": out_of_memory(error)}
    return {"said": None, "understood": False}
