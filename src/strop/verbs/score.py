"""strop score: perplexity, entropy, repetition and diversity of a run's cells, or of any texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from strop.assets import EVALUATOR
from strop.engine.plan import Elsewhere
from strop.errors import UserError
from strop.spec.generator import label
from strop.spec.value import SpanPolicy
from strop.verbs import parameters
from strop.verbs.verb import Ask, Parameter, Part, Result, Verb, grid, quoted

if TYPE_CHECKING:
    from strop.measure.evaluator import Evaluator
    from strop.measure.frame import Frame, Measured, Score
    from strop.store import Run
    from strop.table import Column

NONE = "none"


def _run(ask: Ask) -> Result:
    from strop.groupeval.inputs import holds_texts
    from strop.measure.score import refuse_usual_evaluator

    run = Path(ask["run"])
    named = ask["evaluator"]
    if named is None:
        if run.exists():  # a missing path has a message of its own
            refuse_usual_evaluator([str(run)])
        named = (EVALUATOR,)
    names: list[str] = [] if named == (NONE,) else list(named)
    if holds_texts(run):
        return _texts(ask, run, names)
    from strop.measure.guard import check_file
    from strop.store import Run

    if ask["held_out"] is not None:
        check_file(ask["held_out"])
    opened = Run.open(run)
    try:
        frame = _measure(ask, opened, names)
    except Elsewhere as waiting:  # other shards have not scored their parts yet
        return Result(
            json={"shard": str(ask.engine.shard), "missing": waiting.as_dict()},
            remarks=(f"shard {ask.engine.shard} is done; {waiting.what} {waiting.got}",),
        )
    ids = [metric.id for metric in frame.asked.get("perplexity", ())]
    return Result(
        parts=_parts(frame, ids),
        json={"run": str(run), "metrics": ids, "cells": [cell.document() for cell in frame]},
        remarks=_remarks(opened.asked.get("n", 0), frame),
        next=f"strop report {quoted(run)} -o report.html",
        value=frame,
    )


def _measure(ask: Ask, run: Run, names: list[str]) -> Frame:
    from strop.measure.cells import Scorers, measure
    from strop.measure.evaluator import embedder_available
    from strop.measure.guard import guard_of

    cells = run.cells()
    if all(not cell.indices() for cell in cells):
        raise UserError(
            "The run has no outputs to score.",
            where=run.path,
            fix="run the command that made it again; it draws what is missing",
        )
    vendi = ask["vendi"] == "on" or (
        ask["vendi"] == "auto" and bool(names) and embedder_available()
    )
    by = Scorers(
        evaluators=[_loader(ask, name, ask.engine.at_home(ask["device"])) for name in names],
        spans=ask["span"],
        engine=ask.engine,
        progress=ask.progress,
        embeddings=vendi,
        device=ask["device"],
        reading={"retokenise": not ask["own_ids"], **ask.some("clean_up", "batch_size")},
    )
    guard = guard_of(cells[0].spec.generator, run, held_out=ask["held_out"])
    return measure(cells, None, by, guard=guard)


def _loader(ask: Ask, name: str, device: str) -> Callable[[], Evaluator]:
    def load() -> Evaluator:
        from strop.measure.score import Late, known_evaluator

        evaluator = known_evaluator(name, device=device, dtype=ask["dtype"])
        if not isinstance(evaluator, Late):  # nothing may have to be scored
            memory_note = "" if evaluator.sliced else "; its head does not come apart: more memory"
            ask.note(
                f"{evaluator.source}: context {evaluator.context}, on {evaluator.device}, in "
                f"{evaluator.spec.dtype}{memory_note}"
            )
        return evaluator

    return load


def _texts(ask: Ask, path: Path, names: list[str]) -> Result:
    """Texts without a generator: they have no ids of their own and no guard."""
    alone = {"own_ids": ask["own_ids"], "held_out": ask["held_out"] is not None}
    alone |= {"engine": ask.engine.parallel, "shard": ask.engine.shard is not None}
    for name, value in alone.items():
        if value:
            raise UserError(
                f"`{name}` is for runs: these texts have no generator.", where=f"`{name}`"
            )
    if not names:
        raise UserError("Texts are scored in an evaluator's tokens.", where="`evaluator`", got=NONE)
    from strop.groupeval.inputs import read_inputs
    from strop.measure.cells import check_policies, score_texts

    check_policies(ask["span"])
    [source] = read_inputs([str(path)])
    documents, rows = [], []
    for name in names:
        evaluator = _loader(ask, name, ask["device"])()
        scores = score_texts(
            source.texts,
            evaluator,
            ask["span"],
            clean_up=ask["clean_up"],
            progress=ask.progress,
            name=source.name,
        )
        rows += [
            [
                evaluator.spec.name,
                aggregate.column.heading,
                score.metric.span or "",
                _entry(score, aggregate.column),
            ]
            for score in scores
            for aggregate in score.record.aggregates
        ]
        documents.append(
            {
                "evaluator": evaluator.spec.model_dump(mode="json"),
                "scores": [
                    {
                        "metric": score.metric.name,
                        "span": score.metric.span,
                        "unscored": score.unscored,
                        "values": score.document(),
                    }
                    for score in scores
                ],
            }
        )
    return Result(
        parts=(
            f"{source.name}: {len(source.texts)} texts",
            grid(["evaluator and its tokens", "metric", "span", "value"], rows),
            "no entropy guard: it belongs to a generator's vocabulary and length",
        ),
        json={"texts": str(path), "outputs": len(source.texts), "evaluators": documents},
        value=documents,
    )


def _parts(frame: Frame, wanted: list[str]) -> tuple[Part, ...]:
    from strop.verbs.points import guard_notes, prompt_notes

    columns = _columns(frame, wanted)
    rows = []
    for cell in frame:
        row = [cell.id, label(cell.spec.generator.sampler), str(cell.outputs)]
        by_id = {score.metric.id: score for score in cell.scores}
        for _, id_, column in columns:
            guarded = column.name in ("pooled", "entropy")
            row.append(_entry(by_id.get(id_), column) + (cell.mark if guarded else ""))
        rows.append(row)
    how = "95% bootstrap over outputs (10,000 replicates)"
    if any(cell.by_prompt for cell in frame):
        how = "95%, Student's t over prompts"
    answered = [prompt_notes(cell.outputs, cell.spec.generator.prompts) for cell in frame]
    return (
        grid(["cell", "setting", "outputs", *(heading for heading, _, _ in columns)], rows),
        f"perplexity: token-pooled; [..]: {how}",
        *dict.fromkeys((*guard_notes(frame), *(note for notes in answered for note in notes))),
    )


def _columns(cells: Sequence[Measured], wanted: list[str]) -> list[tuple[str, str, Column]]:
    """Heading, metric id and column of everything to show, each once, in the records' order."""
    columns: dict[tuple[str, str], tuple[str, str, Column]] = {}
    for score in (score for cell in cells for score in cell.scores):
        spec = score.metric
        if spec.span is not None and spec.id not in wanted:
            continue  # a perplexity of an earlier call
        scored = spec.span is not None and spec.evaluator is not None
        who = f" ({spec.evaluator.name} {spec.span})" if scored and spec.evaluator else ""
        for aggregate in score.record.aggregates:
            if aggregate.shown:
                key = (spec.id, aggregate.column.name)
                columns.setdefault(key, (aggregate.column.heading + who, spec.id, aggregate.column))
    return list(columns.values())


def _entry(score: Score | None, column: Column) -> str:
    if score is None:
        return column.text(None)
    if score.values[column.name] is None and column.name == "pooled":
        return "nothing scored"
    return column.entry(score.values).line


def _remarks(requested: int, cells: Sequence[Measured]) -> tuple[str, ...]:
    """Remarks for a reader of the numbers."""
    short = sum(cell.outputs < requested for cell in cells)
    silent = sum(score.unscored for cell in cells for score in cell.perplexities)
    few = f"{short} cells have fewer than the {requested} outputs that were asked for"
    empty = f"{silent} outputs have no token to score (empty, or a single token)"
    return (*((few,) if short else ()), *((empty,) if silent else ()))


VERB = Verb(
    name="score",
    help="Score every cell of RUN. The same command continues; nothing is scored twice.\n\n"
    "Prints token-pooled perplexity and unigram entropy with 95% bootstrap intervals over "
    "outputs. Texts that are no run are scored in memory, in the evaluator's tokens.",
    parameters=(
        parameters.argument(
            "run", "RUN", "A run directory; or any texts: a .jsonl, a .parquet, a folder of .txt."
        ),
        Parameter(
            "evaluator",
            "Causal language models, e.g. embedded:tales-ar,gpt2@REVISION,smollm2-135m, a "
            "directory; none for the metrics that need no text.",
            kind="words",
            shown=f"{EVALUATOR}, for runs of embedded checkpoints only",
        ),
        Parameter(
            "span", "What counts.", ("first-document",), "words", choices=get_args(SpanPolicy)
        ),
        Parameter(
            "clean_up",
            "Tidy spaces as transformers 4 did; by default for public-code only.",
            kind="flag",
        ),
        Parameter.flag("own_ids", "Score the generator's ids, without retokenising."),
        Parameter(
            "vendi",
            "Vendi score; auto: if embeddings are installed.",
            "auto",
            choices=("auto", "on", "off"),
        ),
        Parameter(
            "held_out",
            "Texts for the entropy guard, not the shipped ones: JSON lines or a .txt; kept in the "
            "run.",
            kind="place",
        ),
        Parameter.count("batch_size", "Outputs at a time; changes nothing but speed."),
        parameters.DEVICE,
        Parameter("dtype", "Of the evaluator: auto (float32), bfloat16, float16.", "auto"),
        *parameters.ENGINE,
    ),
    run=_run,
    examples=("strop score runs/first", "strop score stories.jsonl --evaluator gpt2"),
)
