"""`strop doctor --gpu`: what the samplers do on this machine's GPU, or on a pretend one.

Every family has a small network with random weights, whose loop is run on the device and on the
CPU. Ids are compared, waits of the host are counted, calls of the network are timed.

Waits on a card are counted by torch's warnings (`set_sync_debug_mode`), each with its line. Its
mode "error" would end the loop at the first wait, and some waits are meant; and it is of the whole
process, so lines cannot be excepted. So all are let pass, and then held against the budget and the
notes in the code.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
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
from strop.instruments.cost import draw_batch
from strop.instruments.pretend import moved, pretended, waiting_line
from strop.pool import Output
from strop.records.record import FAMILIES, SAMPLERS
from strop.registry import resolve
from strop.spec.generator import SamplerSpec

SIZES = {
    "hidden_dim": 32,
    "n_blocks": 2,
    "n_heads": 2,
    "length": 64,
    "vocab_size": 40,
    "mask_id": 39,
}
CASES = {
    ("mdlm", "ancestral"): 0.25,
    ("mdlm", "remdm-conf"): 2.0,
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
"""The loops, a family and one of its samplers; how often the host may wait in a network call."""
AROUND = 4
"""And for a whole batch: at its start, at the first look at the scores, at its end."""
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
    """The model of a family's small checkpoint."""
    written = family not in ("ar", "llada", "dream")
    return load_model(source(family, folder), family=family if written else None, device=device)


def sampler(name: str, form: str = "fast") -> SamplerSpec:
    """A sampler's settings, of few steps."""
    steps = {} if SAMPLERS[name].causal else {"steps": STEPS}
    spec = SamplerSpec(name=name, implementation=form, **steps)  # type: ignore[arg-type]
    return spec.for_length(LENGTH)


def outputs_of(model: Model, spec: SamplerSpec, outputs: int) -> list[Output]:
    """Outputs of a sampler, in order."""
    return draw_batch(model, spec, outputs, 0, LENGTH, seed=1)


def drawn(model: Model, spec: SamplerSpec, outputs: int = OUTPUTS) -> np.ndarray:
    """The ids that a sampler draws [n, L]."""
    return np.stack([output.ids for output in outputs_of(model, spec, outputs)])


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
    methods = [(owner, name) for owner, name in places if hasattr(owner, name)]
    for owner, name in methods:
        setattr(owner, name, counted(getattr(owner, name), name))
    try:
        yield calls
    finally:
        for owner, name in methods:
            delattr(owner, name)


def exact() -> Any:
    """The attention that is made of plain operations: the same on every device but for rounding."""
    return sdpa_kernel(SDPBackend.MATH)


def report(folder: Path) -> dict[str, Any]:
    """Everything, on a CUDA device where there is one, else on a pretend one."""
    real = torch.cuda.is_available()
    with nullcontext() if real else pretended():
        content: dict[str, Any] = {
            "pretend": not real,
            "device": torch.cuda.get_device_name(0),
            "torch": torch.__version__,
            "cuda": torch.version.cuda or torch.version.hip,
            "memory": torch.cuda.mem_get_info(0)[1] if real else None,
            "out_of_memory": _out_of_memory(),
        }
    content["loops"] = [_loop(family, name, folder, real=real) for family, name in CASES]
    return content | {"faults": faults(content)}


def _loop(family: str, name: str, folder: Path, *, real: bool) -> dict[str, Any]:
    spec = sampler(name)
    row: dict[str, Any] = {"family": family, "sampler": name}
    try:
        with exact():
            want = drawn(loaded(family, folder), spec)
        model = loaded(family, folder, "cuda:0" if real else "cpu")
        with nullcontext() if real else pretended(), exact(), calls_of(model) as calls:
            moved(model)  # a card has it already; transformers cannot load for a pretend one
            same = drawn(model, spec) == want  # a warm-up as well
            calls.clear()
            waits, unsaid = waits_of(lambda: drawn(model, spec))
        count, speed = len(calls), None
        if real:  # without counting waits
            torch.cuda.reset_peak_memory_stats(0)
            began = time.perf_counter()
            with exact():
                drawn(model, spec)
            speed = round(count / (time.perf_counter() - began), 1)
    except Exception as error:  # the point of the report
        return row | {"error": f"{type(error).__name__}: {error}"[:400]}
    return row | {
        "same_ids": float(same.mean()),
        "calls": count,
        "waits": waits,
        "waits_per_call": round(waits / count, 2),
        "waits_allowed": most_waits(family, name, count),
        "unsaid_waits": dict(unsaid),
        "calls_per_second": speed,
        "peak_bytes": torch.cuda.max_memory_allocated(0) if real else None,
    }


def most_waits(family: str, name: str, calls: int) -> float:
    """How often the host may wait while the fast loop makes so many calls, in the float64 law."""
    return CASES[family, name] * calls + AROUND


def faults(content: dict[str, Any]) -> list[str]:
    """The faults of a report, a sentence each."""
    words = []
    for loop in content["loops"]:
        where = f"{loop['family']}, {loop['sampler']}"
        if "error" in loop:
            words.append(f"{where}: {loop['error']}")
            continue
        if loop["same_ids"] < 1:
            words.append(f"{where}: {1 - loop['same_ids']:.1%} of the ids are not those of the CPU")
        if loop["waits"] > loop["waits_allowed"]:
            words.append(f"{where}: {loop['waits']} waits, {loop['waits_allowed']:g} allowed")
        if loop["unsaid_waits"]:
            words.append(
                f"{where}: waits where the code says none: {', '.join(loop['unsaid_waits'])}"
            )
    memory = content["out_of_memory"]
    if not memory["understood"]:
        words.append(
            f"memory that ran out is not understood: {memory['said'] or 'nothing was said'}"
        )
    return words


def waits_of(work: Callable[[], Any]) -> tuple[int, Counter[str]]:
    """How often the host waited for the device, and where the code does not say that it does."""
    count, unsaid = 0, Counter[str]()

    def hear(message: Any, *_: Any, **__: Any) -> None:
        nonlocal count
        if "called a synchronizing" not in str(message):  # torch also says that it may miss some
            return
        count += 1
        site, declared = waiting_line()
        unsaid.update(() if declared else (site,))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = hear  # called at once, while the line that waits is still at work
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return count, unsaid


def _out_of_memory() -> dict[str, Any]:
    """Ask for more memory than there is: the error, and whether `out_of_memory` recognises it."""
    try:
        torch.empty(2 * torch.cuda.mem_get_info(0)[1], dtype=torch.uint8, device="cuda:0")
    except Exception as error:
        return {"said": type(error).__name__, "understood": out_of_memory(error)}
    return {"said": None, "understood": False}
