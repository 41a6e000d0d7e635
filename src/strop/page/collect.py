"""From what a user names on the command line to a report.

A directory whose mark says what it is (`strop.store.folder`), or a file of judgments (`.jsonl`).
What lies one level inside a run, a study or a task run belongs to it and is found by itself.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from matplotlib.figure import Figure

from strop.errors import UserError
from strop.groupeval.judgments import Judgments, load_judgments
from strop.groupeval.series import CALLS, SERIES
from strop.measure.frame import Measured, read_run
from strop.measure.guard import Guard
from strop.page.data import (
    RATINGS,
    AuditPart,
    CellGroup,
    Look,
    Provenance,
    Report,
    Shown,
    StudyPart,
    listed,
    place,
)
from strop.page.evidence import ANSWERS, GROUPS, judged_groups, task_answers
from strop.page.origin import command_of
from strop.page.player import players, tokens_of
from strop.page.tables import beside_each_other, judged_series, recognised
from strop.served.address import notes_on
from strop.spec.value import MetricSpec
from strop.store import KINDS, Cell, Mark, Run, read_mark, study_result
from strop.store.folder import RESULT
from strop.store.tables import BEFORE, CHANCE, CHANGED, token_ids
from strop.table import Column, Table
from strop.tasks.outcome import OWNER
from strop.tasks.tables import draw as draw_accuracies
from strop.training.curve import METRICS, draw_losses, read_metrics
from strop.verbs.study import STUDIES
from strop.verbs.verb import Result, result_of
from strop.version import __version__

ROOM = "runs"
"""Where a comparison keeps the runs of its sides."""
SAMPLER = "sampler-"
"""How the audit's files of chosen samplers begin; the rule's name follows."""
TIMES = ("started", "ended", "when")
MOST_OUTPUTS = 1024
"""Of each cell, whose texts a page may hold unless it is told otherwise."""
COUNTS = ("session", "seconds", "outputs", "first", "last", "indices")
"""Of a session's facts, those that are told as one span of time, and those that are left out."""


@dataclass
class _Sources:
    """The user's paths by kind."""

    runs: list[Run] = field(default_factory=list)
    studies: list[tuple[Path, dict[str, Any]]] = field(default_factory=list)
    judged: list[str] = field(default_factory=list)
    rated: list[Judgments] = field(default_factory=list)
    """A person's ratings of outputs; their files are among the judged."""
    trained: list[tuple[Path, Mark]] = field(default_factory=list)
    tasks: list[Path] = field(default_factory=list)


def gather(
    sources: Sequence[str | Path],
    *,
    title: str | None = None,
    outputs: int | None = None,
    evidence: int | None = None,
    measured: Callable[[Run], Iterable[Measured]] = read_run,
) -> Report:
    """Read everything that the sources hold, and the texts of the first outputs of every cell.

    `evidence` is how many groups of a GroupEval directory, and responses of a task's setting, are
    read (None: as many as suit a page in one file). `measured` gives the numbers of a run's cells.
    With `unmeasured` nothing is computed of outputs, and none but the first of a cell are read.
    """
    by_kind = _sort(sources)
    groups = _groups(by_kind.runs, MOST_OUTPUTS if outputs is None else outputs, measured)
    cells = [(cell, run) for group, run in groups for cell in group.cells]
    parts = tuple(_study(path, document) for path, document in by_kind.studies)
    parts += tuple(filter(None, map(_search, by_kind.runs)))
    parts += tuple(training_part(*entry) for entry in by_kind.trained)
    parts = tuple(sorted(parts, key=lambda part: part.record is TASK_RUN))  # task runs come last
    names = list(dict.fromkeys(group.name for group, _ in groups))
    if parts and parts[0].record and not any(map(_audit, by_kind.runs)):
        names = [parts[0].title]
    names += [] if names else [part.name for part in parts]
    metrics = {score.metric: None for cell, _ in cells for score in cell.measured.scores}
    described = [spec for spec in metrics if spec.evaluator is not None or spec.settings]
    asked = [run.asked for run in by_kind.runs] + [dict(part.result.asked) for part in parts]
    places = [source.path for source in (*by_kind.runs, *parts)]
    cells_shown = [cell for cell, _ in cells]
    return Report(
        title=title or " and ".join(names[:3]) or "GroupEval",
        head=_head(by_kind),
        command=_made_by(Path(sources[0])),
        groups=tuple(group for group, _ in groups),
        audits=tuple(filter(None, map(_audit, by_kind.runs))),
        studies=parts,
        series=tuple(judged_series(by_kind.judged, cells_shown)),
        judgments=tuple(_judgments(by_kind, cells_shown, evidence or GROUPS)),
        agreement=tuple(beside_each_other(by_kind.judged, by_kind.rated, cells_shown)),
        answers=tuple(
            filter(None, (task_answers(folder, evidence or ANSWERS) for folder in by_kind.tasks))
        ),
        provenance=(*map(_origin_of_metric, described), *map(_origin_of_run, by_kind.runs)),
        commands=_commands(by_kind.runs),
        private=_private([*asked, list(sources), places, by_kind.judged]),
    )


def _judgments(by_kind: _Sources, cells: Sequence[Shown], most: int) -> Iterable[dict[str, Any]]:
    def name(called: str) -> str:
        cell = recognised(called, cells)
        return called if cell is None else cell.name

    documents = (judged_groups(source, name, by_kind.rated, most) for source in by_kind.judged)
    return (document for document in documents if document is not None)


def _sort(sources: Sequence[str | Path]) -> _Sources:
    by_kind, seen = _Sources(), set[Path]()
    for path in map(Path, sources):
        if path.resolve() in seen:
            continue
        seen.add(path.resolve())
        mark = read_mark(path)
        if mark is not None and mark.kind == "training":
            if not (path / METRICS).is_file():
                raise _nothing(path, mark)
            by_kind.trained.append((path, mark))
            continue
        taken = [_take(path, mark, by_kind)]
        if mark is not None and mark.kind != "groupeval":
            for inner in (folder for folder in _inside(path, mark) if folder.resolve() not in seen):
                seen.add(inner.resolve())
                taken.append(_take(inner, read_mark(inner), by_kind))
        if not any(taken):
            raise _nothing(path, mark)
    return by_kind


def _inside(path: Path, mark: Mark) -> list[Path]:
    """What belongs to a run or a study; a run within a run is somebody else's."""
    rooms = [
        path,
        *([path / ROOM] if (path / ROOM).is_dir() and not read_mark(path / ROOM) else []),
    ]
    inner = sorted(folder for room in rooms for folder in room.iterdir() if folder.is_dir())
    return [folder for folder in inner if not (mark.holds_cells and Run(folder).mark is not None)]


def _take(path: Path, mark: Mark | None, by_kind: _Sources) -> bool:
    if mark is None and path.is_file() and path.suffix == ".jsonl":
        by_kind.judged.append(str(path))
    elif mark is None or mark.kind == "training":  # one inside something else is its own affair
        return False
    elif mark.holds_cells:
        by_kind.runs.append(Run.open(path))
        rated = path / RATINGS
        if rated.is_file():
            by_kind.judged.append(str(rated))
            by_kind.rated.append(load_judgments(str(rated)))
    elif mark.kind == "groupeval":
        by_kind.judged.append(str(path))
    elif (document := study_result(path)) is not None:
        by_kind.studies.append((path, document))
        by_kind.tasks += [path] if mark.kind == "task" else []
    else:
        return False
    return True


def _nothing(path: Path, mark: Mark | None) -> UserError:
    """Why nothing can be shown of a path."""
    if mark is not None:
        return UserError(
            f"The {KINDS[mark.kind].words} has not come to a result yet.",
            where=path,
            fix="run the command that made it again; it continues",
        )
    if path.is_file():
        return UserError(
            "This is a file; a report reads run directories.",
            where=path,
            expected="a directory made by `strop sample`, or a .jsonl of judgments",
            fix="strop ls",
        )
    Run.open(path)  # says whether it is missing or no run
    return UserError("There is nothing to show.", where=path)


# ---------------------------------------------------------------------------- cells


def _groups(
    runs: Sequence[Run], outputs: int, numbers: Callable[[Run], Iterable[Measured]]
) -> list[tuple[CellGroup, Run]]:
    """Every cell that holds outputs, by checkpoint, length and seed; with the first run of each."""
    members: dict[tuple[str, int, int], dict[str, tuple[Measured, Cell, Run]]] = {}
    for run in runs:
        for measured, cell in zip(numbers(run), run.cells(), strict=True):
            generator = measured.spec.generator
            key = (generator.checkpoint.sha256, generator.length, measured.spec.seed)
            by_id = members.setdefault(key, {})
            longest = by_id.get(measured.id)
            # A cell that two runs hold is one cell: the longer one.
            if measured.outputs and (longest is None or longest[0].outputs < measured.outputs):
                by_id[measured.id] = (measured, cell, run)
    filled = {key: list(by_id.values()) for key, by_id in members.items() if by_id}
    if runs and not filled:
        raise UserError(
            "The run holds no outputs yet.",
            where=", ".join(str(run.path) for run in runs),
            fix="run the command that made it again; it draws what is missing",
        )
    return [_group(key, cells, outputs) for key, cells in filled.items()]


def unmeasured(run: Run) -> Iterable[Measured]:
    """The cells of a run with no number but that of their outputs."""
    for cell in run.cells():
        nothing = Guard(cell.spec.generator.length, None, "nothing was measured")
        yield Measured(cell.spec, cell.path, len(cell.table(["index"])), nothing, ())


def _group(
    key: tuple[str, int, int], members: Sequence[tuple[Measured, Cell, Run]], outputs: int
) -> tuple[CellGroup, Run]:
    _, length, seed = key
    run, generator = members[0][2], members[0][0].spec.generator
    name = place(str(run.asked.get("checkpoint") or generator.checkpoint.family))
    seen: Counter[tuple[int, str]] = Counter()
    shown = []
    for measured, cell, where in members:
        label = str(measured.point)
        seen[measured.steps, label] += 1
        number = seen[measured.steps, label]
        unique_label = label if number == 1 else f"{label} #{number}"
        shown.append(_shown_cell(measured, cell, where, unique_label, outputs))
    notes = tuple(_notes(shown, run, seen))
    return CellGroup(name, length, seed, tuple(shown), notes, _held_out(*members[0])), run


def _held_out(measured: Measured, cell: Cell, run: Run) -> str:
    """One of the texts that the guard was made from, where its tokens can be read."""
    words = tokens_of(cell, run) if measured.guard.texts else None
    return "" if words is None else "".join(words(measured.guard.texts[0]))


def _shown_cell(measured: Measured, cell: Cell, run: Run, label: str, outputs: int) -> Shown:
    columns = [name for name in cell.columns() if name not in (CHANGED, CHANCE, BEFORE)]
    table = next(cell.rows(columns, rows=max(1, outputs))).slice(0, outputs)
    index, texts = table["index"].to_pylist(), table["text"].to_pylist()
    as_ids = None in texts
    if as_ids:
        rows = token_ids(table, cell.spec).tolist()
        texts = [" ".join(str(token) for token in row if token >= 0) for row in rows]
    calls = dict(zip(index, table["nfe"].to_pylist(), strict=True))
    played = partial(players, cell, run)
    return Shown(measured, label, dict(zip(index, texts, strict=True)), calls, as_ids, played)


def _notes(cells: Sequence[Shown], run: Run, seen: Mapping[Any, int]) -> Iterable[str]:
    yield from notes_on(cell.measured.spec.generator.checkpoint for cell in cells)
    short = [
        f"{cell.plain_name}: {len(score.index)} of {cell.measured.outputs}"
        for cell in cells
        for score in cell.measured.perplexities
        if len(score.index) < cell.measured.outputs
    ]
    if short:
        problem = f"Some outputs have no perplexity yet ({listed(short)})"
        yield f"{problem}: strop score {shlex.quote(str(run.path))} continues."
    if any(number > 1 for number in seen.values()):
        yield (
            "Cells with a number (#2) have the same sampler and differ otherwise: in reveal grid, "
            "a batch, the network's precision. Their ids are under Provenance."
        )


# ---------------------------------------------------------------------------- studies, audits


def _study(path: Path, document: dict[str, Any]) -> StudyPart:
    name, result = str(document["study"]), result_of(document, path / RESULT)
    if name == OWNER:
        return StudyPart(f"task-{result.asked.get('task')}", path, result, TASK_RUN)
    return StudyPart(name, path, result, STUDIES.get(name))


TASK_RUN = Look("Accuracy against temperature", lambda result: draw_accuracies(result.table))


def _search(run: Run) -> StudyPart | None:
    """What `strop tune` found on a run."""
    document = _document(run, "search")
    return None if document is None else _study(run.path, document)


def _audit(run: Run) -> AuditPart | None:
    document = _document(run, "audit")
    if document is None:
        return None
    result = result_of(document, run.path / RESULT)
    rules = result.facts.get("selections", {})
    files = {p.stem.removeprefix(SAMPLER): p for p in sorted(run.path.glob(f"{SAMPLER}*.yaml"))}
    return AuditPart(
        result, {rule: files[rule].read_text("utf-8") for rule in rules if rule in files}
    )


def _document(run: Run, kind: str) -> dict[str, Any] | None:
    """The result of a run of a kind, if it has come to one."""
    mark = run.mark
    return study_result(run.path) if mark is not None and mark.kind == kind else None


# ---------------------------------------------------------------------------- training

MOST_LOSSES = 2000
"""Training losses that a curve on a page is made of."""
LOSS_COLUMNS = (
    Column("step", digits=None),
    Column("nats_per_token", help="Held out, with a 95% interval over rows."),
    Column("perplexity"),
    Column("nats_per_character"),
)


def training_part(path: Path, mark: Mark) -> StudyPart:
    """What a training run measured: its held-out losses, the last one in words, the curve."""
    metrics = read_metrics(path)
    held = [entry for entry in metrics if entry["kind"] == "held_out"]
    steps = max((entry["step"] for entry in metrics), default=0)
    asked = mark.asked.get("steps")
    of = "" if asked is None else f" of {asked:,}"
    # A bound, where the objective is one: `held_out_losses` says of which form it is.
    sentences = [f"{steps:,}{of} steps are done."] if not (path / RESULT).is_file() else []
    if metrics and not held:
        sentences = [f"The training loss is {metrics[-1]['loss']:.4f} nats per token.", *sentences]
    if held:
        most = "" if held[-1].get("form") == "causal" else "at most "
        sentences = [
            f"After {held[-1]['step']:,} steps held-out text has {most}"
            f"{held[-1]['nats_per_token']:.4f} nats per token.",
            *sentences,
        ]
    result = Result(
        asked=dict(mark.asked),
        table=Table("Held-out loss", LOSS_COLUMNS, held),
        facts={"answer": sentences, "metrics": metrics},
    )
    name = str(mark.asked.get("name") or "training")
    return StudyPart(f"training {name}", path, result, Look(f"Training of {name}", _curve))


def _curve(result: Result) -> Figure:
    """Every so many of the training losses, and all that was measured on held-out rows."""
    metrics = result.facts["metrics"]
    train = [entry for entry in metrics if entry["kind"] == "train"]
    held = [entry for entry in metrics if entry["kind"] == "held_out"]
    return draw_losses([*train[:: 1 + len(train) // MOST_LOSSES], *held])


# ---------------------------------------------------------------------------- provenance


def _origin_of_run(run: Run) -> Provenance:
    """What was asked, which weights answered, and the machines and packages they ran on."""
    facts = [(key, _words(value)) for key, value in run.asked.items() if key != "samplers"]
    cells = run.cells()
    for checkpoint in dict.fromkeys(cell.spec.generator.checkpoint for cell in cells):
        facts.append(("weights sha256", checkpoint.sha256))
        facts.append(("network", f"{checkpoint.family}, {checkpoint.network_dtype}"))
    facts.append(("cells", ", ".join(cell.id for cell in cells)))
    facts += _sessions(session for cell in cells for session in cell.sessions())
    return Provenance(place(str(run.path)), tuple(facts))


def _made_by(path: Path) -> str:
    """The command that made a directory, if its mark tells."""
    mark = read_mark(path)
    return "" if mark is None else command_of(path, mark) or ""


def _head(by_kind: _Sources) -> tuple[tuple[str, str], ...]:
    """The first things that one asks of a page: when, and with which code."""
    sessions = [
        session for run in by_kind.runs for cell in run.cells() for session in cell.sessions()
    ]
    times = sorted(str(session["started"]) for session in sessions if "started" in session)
    if not times:  # then as the files say
        files = [path / RESULT for path, _ in by_kind.studies]
        files += [path / METRICS for path, _ in by_kind.trained]
        for source in map(Path, by_kind.judged):
            files += [source] if source.is_file() else source.glob(f"{SERIES}/*/{CALLS}")
        times = sorted(
            datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat() for file in files
        )
    days = list(dict.fromkeys(time[:10] for time in (times[:1] + times[-1:])))
    codes = list(dict.fromkeys(str(session["code"]) for session in sessions if "code" in session))
    facts = {"measured": " to ".join(days), "strop": ", ".join(codes[-2:]) or __version__}
    return tuple((name, fact) for name, fact in facts.items() if fact)


def _sessions(sessions: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Each fact once with all its values: sessions mostly differ in their times only."""
    values: dict[str, dict[str, None]] = {}
    times: list[str] = []
    for session in sessions:
        for key, value in session.items():
            if key in TIMES:
                times.append(str(value))
            elif key not in COUNTS:
                values.setdefault(key.replace("_", " "), {})[_words(value)] = None
    facts = [(key, "; ".join(texts)) for key, texts in values.items()]
    return facts + ([("drawn", f"{min(times)} to {max(times)}")] if times else [])


def _origin_of_metric(metric: MetricSpec) -> Provenance:
    """Who measured, with which weights and settings."""
    fields = dict(metric.evaluator or ()) | {"span policy": metric.span} | metric.settings
    fields |= {"version of the metric": metric.version}
    facts = [(k.replace("_", " "), _words(v)) for k, v in fields.items() if v not in (None, ())]
    who = metric.evaluator.name if metric.evaluator is not None else "no network"
    return Provenance(f"{metric.name}, {who}", (("metric id", metric.id), *facts))


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_words, value))
    return place(str(value))


# ---------------------------------------------------------------------------- around them


def _commands(runs: Sequence[Run]) -> dict[str, str]:
    run = shlex.quote(str(runs[0].path)) if runs else "RUN"
    asked = str(runs[0].asked.get("checkpoint") or "") if runs else ""
    checkpoint = shlex.quote(asked) if asked else "CHECKPOINT"
    return {
        "audit": f"strop audit {checkpoint} -o {run}-audit",
        "score": f"strop score {run}",
        "study": f"strop study cost {checkpoint} -o {run}/cost",
        "groupeval": f"strop groupeval plan {run} -o {run}/groupeval",
    }


def _private(values: Iterable[Any]) -> dict[str, str]:
    """Every absolute path among some values, however deep, and its public name."""
    names: dict[str, str] = {}
    for value in values:
        if isinstance(value, Mapping):
            names |= _private(value.values())
        elif isinstance(value, (list, tuple)):
            names |= _private(value)
        # The root and one name say nothing of a machine.
        elif isinstance(value, (str, PurePath)) and len(PurePath(value).parts) > 2:
            names[str(value)] = place(str(value))
    return {path: name for path, name in names.items() if path != name}
