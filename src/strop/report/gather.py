"""From what a user names on the command line to a report.

A run directory (`study.yaml`), a GroupEval directory (`plan.json`), a study's directory
(`result.json`) or a file of judgments (`.jsonl`). What lies one level inside a run's or a study's
directory belongs to it and is found by itself.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from strop.errors import UserError
from strop.report.collect import POOL_COLUMNS, collect_runs
from strop.report.data import Cell, CostRow, Judged, Posterior, Recommendation, Report
from strop.report.parts import cost_rows, judged_rows, posterior_rows, study_result
from strop.report.recommend import recommendation as audited
from strop.store import Run

__all__ = ["gather"]

PLAN, STUDY = "plan.json", "study.yaml"


@dataclass
class _Sorted:
    """The user's paths by kind."""

    runs: list[Run] = field(default_factory=list)
    studies: list[tuple[Path, dict[str, Any]]] = field(default_factory=list)
    judged: list[str] = field(default_factory=list)


def gather(
    sources: Sequence[str | Path],
    *,
    title: str | None = None,
    recommendation: Recommendation | None = None,
) -> Report:
    """Read everything that the sources hold."""
    found = _sort(sources)
    runs = collect_runs(found.runs)
    cells = [cell for model in runs.models for cell in model.cells]
    names = list(dict.fromkeys(model.name for model in runs.models))
    known = _by_judged_name(cells)
    cost: list[CostRow] = []
    posterior: list[Posterior] = []
    for where, result in found.studies:
        if result["study"] == "cost":
            cost += cost_rows(result, where)
        elif result["study"] == "posterior":
            posterior += posterior_rows(result, where, runs.scored)
    judged: list[Judged] = [row for one in found.judged for row in judged_rows(one, known)]
    return Report(
        title=title or (" and ".join(names[:3]) or "GroupEval"),
        models=runs.models,
        evaluators=runs.evaluators,
        output_columns=runs.columns,
        pool_columns=POOL_COLUMNS,
        recommendation=recommendation or _recommended(found.runs),
        cost=tuple(cost),
        posterior=tuple(posterior),
        judged=tuple(judged),
        provenance=runs.provenance,
        commands=_commands(found, names),
    )


def _recommended(runs: Sequence[Run]) -> Recommendation | None:
    """Of the first run that was audited."""
    return next(filter(None, (audited(run.path) for run in runs)), None)


def _sort(sources: Sequence[str | Path]) -> _Sorted:
    found = _Sorted()
    seen: set[Path] = set()
    for source in sources:
        path = Path(source)
        if path.resolve() in seen:
            continue
        seen.add(path.resolve())
        if not _take(path, found):
            _explain(path)
        if (path / STUDY).is_file():
            for inner in sorted(p for p in path.iterdir() if p.is_dir()):
                if inner.resolve() not in seen and not (inner / STUDY).exists():
                    seen.add(inner.resolve())
                    _take(inner, found)
    return found


def _take(path: Path, found: _Sorted) -> bool:
    if (path / STUDY).is_file():
        found.runs.append(Run.open(path))
    elif (path / PLAN).is_file() or (path.is_file() and path.suffix == ".jsonl"):
        found.judged.append(str(path))
    else:
        result = study_result(path) if path.is_dir() else None
        if result is None:
            return False
        if result["study"] in ("cost", "posterior"):
            found.studies.append((path, result))
            return True
        # A study of sampled outputs: its runs, and what was judged of them.
        inner = [p for p in sorted(path.iterdir()) if p.is_dir()]
        parts = [p for p in inner if (p / STUDY).is_file() or (p / PLAN).is_file()]
        return bool(parts) and all(_take(part, found) for part in parts)
    return True


def _explain(path: Path) -> None:
    """Why nothing can be shown of a path."""
    if (path / "train.json").is_file():
        raise UserError(
            "This is a training run: it holds no outputs.",
            where=path,
            fix=f"strop sample {shlex.quote(str(path))} -o runs/first",
        )
    if path.is_file():
        raise UserError(
            "This is a file; a report reads run directories.",
            where=path,
            expected="a directory made by `strop sample`, or a .jsonl of judgments",
            fix="strop ls",
        )
    Run.open(path)  # says whether it is missing or no run


def _by_judged_name(cells: Sequence[Cell]) -> dict[str, Cell]:
    """How GroupEval may call a cell: by its id, or by its run and the settings that differ there.

    A name that two cells could have is nobody's.
    """
    found: dict[str, Cell] = {}
    taken: set[str] = set()
    for cell in cells:
        words = (
            f"steps={cell.steps}",
            f"temperature={cell.setting.temperature}",
            f"precision={cell.setting.precision}",
        )
        kept = (c for k in range(1, len(words) + 1) for c in combinations(words, k))
        run = Path(cell.run).resolve().name
        for name in (cell.id, *(" ".join([run, *some]) for some in kept)):
            if name in found:
                taken.add(name)
            found[name] = cell
    return {name: cell for name, cell in found.items() if name not in taken}


def _commands(found: _Sorted, names: Sequence[str]) -> dict[str, str]:
    run = shlex.quote(str(found.runs[0].path)) if found.runs else "RUN"
    checkpoint = shlex.quote(names[0]) if names else "CHECKPOINT"
    return {
        "audit": f"strop audit {checkpoint} -o {run}-audit",
        "score": f"strop score {run}",
        "cost": f"strop study cost {checkpoint} -o {run}/cost",
        "posterior": f"strop study posterior {checkpoint} -o {run}/posterior",
        "groupeval": f"strop groupeval plan {run} -o {run}/groupeval",
    }
