"""Checkpoints that answer tasks for the studies, and what a finished answer depends on.

The runs lie in OUT/tasks and are those of `strop task run`: `strop task score`, `strop show` and
`strop study conditional` read them. Fast-dLLM's modes are protocols here.

A finished answer stands for the same command: the same words and the same fingerprints. The
fingerprint of a file is its content, of a repository of the hub its commit, of a plug-in its
version, of a task its problems and rules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop import assets
from strop.engine.plan import all_parts
from strop.errors import UserError
from strop.registry import versions
from strop.store.remembered import contents
from strop.verbs import parameters
from strop.verbs.paper import declared
from strop.verbs.points import load
from strop.verbs.verb import Ask, Parameter
from strop.version import __version__

if TYPE_CHECKING:
    from strop.denoisers import Model
    from strop.tasks import Results


# ----------------------------------------------------------------------------------- fingerprints


def fingerprints(
    words: Mapping[str, Any], *, places: Sequence[str | None], task: str | None = None
) -> dict[str, Any]:
    """All that a finished answer depends on; nothing is loaded.

    `places` are models, evaluators and files as the user names them.
    """
    # Imported for their records, whose versions count.
    from strop.groupeval.judges import JUDGES  # noqa: F401
    from strop.measure.metric import METRICS  # noqa: F401
    from strop.tasks import TASKS

    facts = {
        "strop": __version__,
        "files": [_contents_of(str(name)) for name in places if name is not None],
        "plugins": versions(),
        "task": None if task is None else TASKS.find(task, where="`task`").fingerprint,
    }
    return json.loads(json.dumps({**words, **facts}, default=str))


def _contents_of(name: str) -> Any:
    """The content of a file or directory; of a repository of the hub its commit."""
    if name.startswith(assets.EMBEDDED):
        return contents(assets.embedded_path(name))
    path = Path(name).expanduser()
    if path.exists():
        return contents(path)
    repo, _, revision = name.partition("@")
    if repo.count("/") != 1:
        return name
    from strop.checkpoints.hub import config_of

    try:
        config = config_of(repo, revision or None)
    except UserError:  # loading it gives the message
        return None
    return None if config is None else config.parent.name


# --------------------------------------------------------------------------------------- entrants

FOLDER = "tasks"
PAPER_TASKS = ("gsm8k", "humaneval")
BLOCK = 32
DIFFUSION: dict[str, str] = declared()["large-models"]["sources"]
BASELINE = "baseline"
PROTOCOLS: dict[str, dict[str, dict[str, Any]]] = {
    BASELINE: {
        "llada": {"sampler": "fast-dllm", "commit": "quota"},
        "dream": {"sampler": "fast-dllm-dream", "alg": "entropy"},
    },
    "parallel": {
        "llada": {"sampler": "fast-dllm", "commit": "threshold", "threshold": 0.9},
        "dream": {"sampler": "fast-dllm-dream", "alg": "confidence_threshold", "threshold": 0.9},
    },
    "cached": {
        "llada": {"sampler": "fast-dllm", "threshold": 0.9, "cache": "prefix"},
        "dream": {
            "sampler": "fast-dllm-dream",
            "alg": "confidence_threshold",
            "threshold": 0.9,
            "cache": "prefix",
        },
    },
}
"""Fast-dLLM's modes by family; `baseline` takes one call per token, the others a step per block."""
MODES = {
    BASELINE: "one token per call, no cache; Dream's has no blocks",
    "parallel": "every position above .9 at once, no cache; Dream's has no blocks",
    "cached": "every position above .9 at once, with the prefix cache",
}


@dataclass(frozen=True)
class TaskResults:
    """The results of one task's run, and whose they are."""

    results: Results
    labels: Mapping[str, str]
    """The checkpoints that were asked for, as the user named them; a run may hold more."""


def answer_tasks(
    ask: Ask, tasks: Sequence[str], temperatures: Mapping[str, Sequence[float]], seeds: int
) -> dict[str, TaskResults]:
    """Let every checkpoint answer every task; each is loaded once."""
    from strop.tasks import run_task

    _ready(ask, tasks)
    # A run per task and protocol: responses of two are never in one curve.
    mode = "" if ask["protocol"] == BASELINE else f"-{ask['protocol']}"
    labels: dict[str, dict[str, str]] = {task: {} for task in tasks}
    runs: dict[str, Results] = {}
    with all_parts() as part:
        for number, source in enumerate(ask.sources):
            model = load(ask, source)
            for task in tasks:
                with part():
                    runs[task] = run_task(
                        task,
                        model,
                        ask.out / FOLDER / f"{task}{mode}",
                        temperatures=temperatures[task],
                        seeds=seeds,
                        limit=ask["limit"],
                        batch_size=ask["batch_size"],
                        unsafe_run=ask["unsafe_run"],
                        force=bool(ask["force"]) and number == 0,
                        progress=ask.progress,
                        note=ask.note,
                        engine=ask.engine,
                        **protocol(ask["protocol"], model, task),
                    )
                    entrants = runs[task].run.entrants
                    label = next(
                        entrant.label for entrant in entrants if entrant.checkpoint == model.spec
                    )
                    labels[task][label] = source
            del model
    return {task: TaskResults(runs[task], labels[task]) for task in tasks}


def _ready(ask: Ask, tasks: Sequence[str]) -> None:
    """Find every checkpoint, and a sandbox where one is needed, before hours of work."""
    from strop.tasks import TASKS, ready
    from strop.tasks.running import find_checkpoint

    for source in ask.sources:
        find_checkpoint(source)
    boxes = [ready(TASKS.find(t, where="`task`"), unsafe_run=ask["unsafe_run"]) for t in tasks]
    if any(boxes) and ask["unsafe_run"]:
        ask.note("warning: programs of the models run without a sandbox, as you")


def protocol(name: str, model: Model, task: str) -> dict[str, Any]:
    """A model's settings; of causal models, and those without a public mode, temperature alone."""
    from strop.records.record import SAMPLERS
    from strop.tasks import TASKS

    mode = PROTOCOLS[name].get(model.spec.family)
    if mode is None:  # a server draws by its own rules
        return {} if model.spec.family == "served" else {"precision": "float32"}
    length = TASKS.find(task, where="`task`").length
    block = min(BLOCK, length)
    settings = dict(mode)
    sampler = settings.pop("sampler")
    if "block_length" in SAMPLERS[sampler].settings:
        settings["block_length"] = block
    steps = (length if name == BASELINE else max(1, length // block),)
    return {"precision": "float32", "sampler": sampler, "steps": steps, "settings": settings}


TASK_PARAMETERS = (
    Parameter(
        "protocol",
        "Of the diffusion models: one token per call, or Fast-dLLM's threshold, or its cache too.",
        BASELINE,
        choices=tuple(PROTOCOLS),
    ),
    Parameter.count("limit", "Only so many problems, from the first.", smoke=64, shown="all"),
    Parameter.count("batch_size", "Responses at a time.", shown="as memory allows"),
    Parameter.flag("unsafe_run", "Run programs without a sandbox, as yourself."),
    *parameters.ANSWERED,
    *parameters.SERVER,
)
"""Parameters of studies that let checkpoints answer tasks."""
