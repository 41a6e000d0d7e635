"""strop: a generator is a checkpoint plus its sampler.

The public names load on first use, so that `import strop` stays free of torch and scipy.
"""

from __future__ import annotations

import sys
from importlib import import_module

from strop.runtime import wait_asleep
from strop.version import __version__

wait_asleep()

# As `typing` has it, which takes longer to load than everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from strop import draw, groupeval, language, theory
    from strop.denoisers import Denoiser, TabularDenoiser, load_denoiser, load_model
    from strop.errors import CheckFailed, Incomplete, StropError, UserError
    from strop.pool import Pool
    from strop.registry import register
    from strop.spec.generator import CellSpec, CheckpointSpec, GeneratorSpec, SamplerSpec
    from strop.store import Run
    from strop.tasks import run_task, score_task
    from strop.training.spec import TrainSpec
    from strop.verbs.calls import (
        audit,
        compare,
        demo,
        doctor,
        export,
        lm_eval,
        ls,
        merge,
        power,
        precision,
        probe,
        report,
        reproduce,
        sample,
        score,
        show,
        task,
        train,
        tune,
        view,
    )
    from strop.verbs.verb import Result

_NEED_TORCH = (
    "Denoiser",
    "TabularDenoiser",
    "draw",
    "load_denoiser",
    "load_model",
    "run_task",
    "score_task",
)

_ROOMS = ("draw", "groupeval", "language", "theory")
"""Modules with functions of their own: strop.draw.sample, strop.groupeval.run."""

__all__ = [
    "CellSpec",
    "CheckFailed",
    "CheckpointSpec",
    "Denoiser",
    "GeneratorSpec",
    "Incomplete",
    "Pool",
    "Result",
    "Run",
    "SamplerSpec",
    "StropError",
    "TabularDenoiser",
    "TrainSpec",
    "UserError",
    "__version__",
    "audit",
    "compare",
    "demo",
    "doctor",
    "draw",
    "export",
    "groupeval",
    "language",
    "lm_eval",
    "load_denoiser",
    "load_model",
    "ls",
    "merge",
    "power",
    "precision",
    "probe",
    "register",
    "report",
    "reproduce",
    "run_task",
    "sample",
    "score",
    "score_task",
    "show",
    "task",
    "theory",
    "train",
    "tune",
    "view",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'strop' has no attribute {name!r}")
    from strop.errors import MissingName, UserError, missing_package
    from strop.registry import homes

    try:
        value = (
            import_module(f"strop.{name}")
            if name in _ROOMS
            else getattr(import_module(homes("strop")[name][0]), name)
        )
    except (ModuleNotFoundError, UserError) as error:
        remedy = missing_package(error) if isinstance(error, ModuleNotFoundError) else error
        if remedy is None:
            raise
        # `hasattr` waits for an AttributeError; `from strop import` would hide its words.
        importing = sys._getframe(1).f_globals.get("__name__") == "importlib._bootstrap"
        raise (remedy if importing else MissingName(remedy)) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # help() and documentation tools take every name that is listed, so those that cannot be had in
    # a base install are left out; taken by name, they say what to install.
    from importlib.util import find_spec

    absent = () if find_spec("torch") is not None else _NEED_TORCH
    return sorted(set(__all__) - {*absent})
