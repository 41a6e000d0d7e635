"""Which command made a directory, from what its mark says was asked; the same command continues it.

Only what numbers depend on is on record: devices, workers and caps are not, and are to be said
again where they matter.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from strop.errors import UserError
from strop.records.record import SAMPLERS, default_sampler
from strop.spec.value import Cooling
from strop.store import Cell, Mark, read_mark
from strop.store.folder import CELLS, RESULT, parsed
from strop.verbs.calls import record_of
from strop.verbs.study import STUDIES, Study
from strop.verbs.verb import SAME, Verb, spelled

AXES = ("steps", "temperature", "precision")
"""What `strop sample` and `strop audit` take several values of."""
SHARED = ("top_p", "finish", "implementation")


def command_of(path: Path, mark: Mark) -> str | None:
    """The command that made a directory; None where its mark does not tell."""
    try:
        words = _words(path, mark)
    except (UserError, KeyError, TypeError, ValueError, AttributeError):
        # Of another version, or by hand, or of a plug-in that is not installed here.
        return None
    return None if words is None else shlex.join(map(str, words))


def _words(path: Path, mark: Mark) -> list[Any] | None:
    if mark.kind == "training":
        return ["strop", "train", path, "-o", path]
    if mark.kind == "groupeval":
        return _judging(path)
    if mark.kind == "task":
        return _task(path, mark)
    if mark.owner == "sample":
        return _cells_command("sample", _record("sample"), path, mark)
    study = STUDIES.get(mark.owner)
    if study is None or mark.kind == "run":  # inside what another command made
        return None
    if mark.holds_cells:
        return _cells_command(study.name, study, path, mark)
    name = [study.name] if study.kind != "study" else ["study", study.name]
    name = ["models", "certify"] if study.name == "certify" else name
    smoke = ["--smoke"] if mark.asked.get("smoke") else []
    flags = _flags(study, mark.asked, smoke=bool(smoke))
    return ["strop", *name, *mark.asked["checkpoints"], *flags, *smoke, "-o", path]


def _record(name: str) -> Verb:
    record = record_of(name)
    assert record is not None
    return record


def _flags(verb: Verb, asked: Mapping[str, Any], *, smoke: bool = False) -> list[str]:
    """What is not the default, as words."""
    flags: list[str] = []
    for parameter in verb.parameters:
        value = asked.get(parameter.name)
        if value is None or value is False or parameter.argument or parameter.name == "out":
            continue
        default = parameter.smoke if smoke and parameter.smoke is not SAME else parameter.default
        if value == json.loads(json.dumps(parameter.checked(default), default=str)):
            continue
        flag = "-n" if parameter.name == "n" else f"--{parameter.name.replace('_', '-')}"
        if isinstance(value, Mapping):
            flags += [word for k, v in value.items() for word in (flag, f"{k}={spelled(v)}")]
        else:
            flags += [flag] if value is True else [flag, spelled(value)]
    return flags


def _cells_command(name: str, verb: Verb, path: Path, mark: Mark) -> list[Any] | None:
    """Of a directory of cells: its samplers as axes, if they are all combinations of some."""
    samplers: Sequence[Mapping[str, Any]] = mark.asked["samplers"]
    axes = {axis: list(dict.fromkeys(sampler[axis] for sampler in samplers)) for axis in AXES}
    met = {tuple(sampler[axis] for axis in AXES) for sampler in samplers}
    family = mark.asked.get("weights", {}).get("family", "")
    rest = {json.dumps(_besides(sampler, family), sort_keys=True) for sampler in samplers}
    whole = met == set(product(*axes.values())) and len(rest) == 1
    answered = _study_arguments(path) if isinstance(verb, Study) else {}
    if not whole and not answered:
        return None
    asked: dict[str, Any] = {k: mark.asked.get(k) for k in ("n", "seed", "batch_size")}
    asked |= axes if whole else {}
    asked |= _besides(samplers[0], family) if whole else {}
    # A study takes its axes but the steps by one flag, `--axis temperature=1,0.9`.
    asked["axis"] = {axis: values for axis, values in axes.items() if axis != "steps"}
    asked |= answered
    shape = mark.asked.get("weights", {}).get("shape", {})
    if mark.asked.get("length") != shape.get("length"):
        asked["length"] = mark.asked.get("length")
    flags = _flags(verb, {k: v for k, v in asked.items() if k in _names(verb)})
    return ["strop", name, mark.asked["checkpoint"], *flags, "-o", path]


def _besides(sampler: Mapping[str, Any], family: str) -> dict[str, Any]:
    """A sampler's settings that are no axes and not its own defaults."""
    record = SAMPLERS.find(sampler["name"])
    fields = {k: sampler[k] for k in SHARED if k in sampler}
    if sampler["name"] != default_sampler(family):
        fields["sampler"] = sampler["name"]
    if fields.get("finish") == record.finish:
        del fields["finish"]
    settings = dict(sampler.get("settings", {}))
    own = {k: v for k, v in settings.items() if v != record.settings[k].default}
    if own:
        fields["settings"] = own
    if sampler.get("grid", "uniform") != "uniform":
        fields["grid"] = sampler["grid"]
    return fields


def _study_arguments(path: Path) -> dict[str, Any]:
    """What a study that came to an end says that it was asked."""
    if not (path / RESULT).is_file():
        return {}
    asked = parsed(path / RESULT).get("asked", {})
    return {k: v for k, v in asked.items() if k == "axis" or not isinstance(v, Mapping)}


def _names(verb: Verb) -> Iterable[str]:
    return [parameter.name for parameter in verb.parameters]


def _judging(path: Path) -> list[Any]:
    """Of a plan: the judge who has not finished it."""
    from strop.groupeval.series import list_series

    for series in list_series(path):
        if series.judge.kind == "endpoint" and len(series.verdicts()) < series.asked:
            at = series.judge.base_url or "URL"
            model = ["--base-url", at, "--model", series.judge.model]
            return ["strop", "groupeval", "judge", path, *model]
    return ["strop", "groupeval", "judge", path, "--offline"]


def _task(path: Path, mark: Mark) -> list[Any]:
    """Of a task run: its checkpoints, and the samplers, seeds and problems of their cells."""
    entrants, length = mark.asked["checkpoints"], mark.asked["length"]
    asked: dict[str, Any] = {"length": length}
    for inner in (path / entrant["label"] for entrant in entrants):
        run = read_mark(inner)
        if run is None:  # this checkpoint was not begun
            continue
        family = run.asked["weights"]["family"]
        drawn = [Cell.open(inner / CELLS / id_) for id_ in run.cells or () if _begun(inner, id_)]
        samplers = [cell.spec.generator.sampler.model_dump(mode="json") for cell in drawn]
        settings = {
            json.dumps(sampler, sort_keys=True): sampler
            for sampler in (*run.asked["samplers"], *samplers)
        }
        temperatures = [sampler["temperature"] for sampler in settings.values()]
        all_temperatures = {*temperatures, *asked.get("temperature", ())}
        asked["temperature"] = sorted(all_temperatures, key=Cooling.of)
        # Greedy cells are drawn once, all others under every seed.
        greedy = temperatures.count(0.0)
        seeds = math.ceil((len(run.cells or ()) - greedy) / max(1, len(settings) - greedy))
        asked["seeds"] = max(1, seeds, asked.get("seeds", 1))
        steps = {sampler["steps"] for sampler in settings.values()}
        if steps != {length}:
            asked["steps"] = sorted({*steps, *asked.get("steps", ())})
        asked |= _besides(next(iter(settings.values())), family)
        problems = max(run.wanted().values(), default=0)
        if problems < run.asked["prompts"]["count"]:
            asked["limit"] = problems
    verb = _record("task")
    flags = _flags(verb, {k: v for k, v in asked.items() if k in _names(verb)})
    sources = [entrant["source"] for entrant in entrants]
    return ["strop", "task", "run", mark.asked["task"], *sources, *flags, "-o", path]


def _begun(run: Path, cell: str) -> bool:
    return (run / CELLS / cell).is_dir()
