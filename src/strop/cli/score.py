"""strop score: perplexity, entropy, repetition and diversity of a run's cells, or of any texts."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from strop.cli import output
from strop.cli.commands import examples
from strop.cli.engine import with_engine
from strop.cli.progress import reporter
from strop.cli.values import listed
from strop.engine import Engine
from strop.engine.plan import Elsewhere
from strop.errors import UserError, unknown_name
from strop.spec import SpanPolicy, label

if TYPE_CHECKING:
    from strop.measure.causal import Evaluator
    from strop.measure.frame import Measured, Score
    from strop.store import Cell
    from strop.table import Column

NONE = "none"
VENDI = ("auto", "on", "off")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    commands = ("strop score runs/first", "strop score stories.jsonl --evaluator gpt2")
    app.command("score", epilog=examples(*commands))(with_engine(score))


def score(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="A run directory; or texts of anybody's: a .jsonl, a .parquet, a folder of .txt.",
        ),
    ],
    evaluator: Annotated[
        str,
        typer.Option(
            help="Causal language models, e.g. embedded:tales-ar,gpt2@REVISION,smollm2-135m, a "
            "directory; none for the metrics that need no text."
        ),
    ] = "embedded:tales-ar",
    span: Annotated[
        str, typer.Option(help="What counts: first-document, full-stream, public-code.")
    ] = "first-document",
    clean_up: Annotated[
        bool | None,
        typer.Option(help="Tidy spaces as transformers 4 did; by default for public-code only."),
    ] = None,
    own_ids: Annotated[
        bool, typer.Option("--own-ids", help="Score the generator's ids, without retokenising.")
    ] = False,
    vendi: Annotated[
        str, typer.Option(help="Vendi score: auto (if embeddings are installed), on, off.")
    ] = "auto",
    held_out: Annotated[
        Path | None,
        typer.Option(
            help="JSON lines of texts for the entropy guard, instead of ours; kept in the run."
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Outputs at a time; changes nothing but speed.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:i.")] = "auto",
    dtype: Annotated[
        str, typer.Option(help="Of the evaluator: auto (float32), bfloat16, float16.")
    ] = "auto",
    as_json: Annotated[bool, output.JSON_FLAG] = False,
    *,
    engine: Engine,
) -> None:
    """Score every cell of RUN. The same command continues; nothing is scored twice.

    Prints token-pooled perplexity and unigram entropy with 95% bootstrap intervals over outputs.
    Texts that are no run are scored in memory, in the evaluator's tokens.
    """
    if vendi not in VENDI:
        raise unknown_name("choice", vendi, VENDI, where="--vendi")
    if batch_size is not None:
        output.positive("--batch-size", batch_size)
    policies = _policies(span)
    names = [] if evaluator == NONE else listed(evaluator, str, "--evaluator")
    from strop.groupeval.inputs import holds_texts

    if holds_texts(run):
        alone = {"--own-ids": own_ids, "--held-out": held_out is not None}
        alone |= {"--engine": engine.parallel, "--shard": engine.shard is not None}
        _outside(run, names, policies, clean_up, alone, device, dtype, as_json)
        return
    from strop.measure.cells import Scorers, measure
    from strop.measure.guard import guard_of
    from strop.measure.heldout import check_file
    from strop.store import Run

    if held_out is not None:
        check_file(held_out)
    opened = Run.open(run)
    cells = opened.cells()
    _check(run, cells)
    with output.warnings_noted(), reporter() as bar:
        by = Scorers(
            evaluators=[_loader(name, engine.at_home(device), dtype) for name in names],
            spans=policies,
            engine=engine,
            progress=bar,
            embeddings=_embeds(vendi, names),
            device=device,
            reading={
                "retokenise": not own_ids,
                "clean_up": clean_up,
                "batch_size": batch_size,
            },
        )
        guard = guard_of(cells[0].spec.generator, opened, held_out=held_out)
        try:
            found = measure(cells, None, by, guard=guard)
        except Elsewhere as rest:  # other shards have not scored their parts yet
            if as_json:
                output.emit({"shard": str(engine.shard), "missing": rest.as_dict()})
            output.note(f"shard {engine.shard} is done; {rest.what} {rest.got}")
            return
    wanted = found.asked.get("perplexity", ())
    ids = [one.id for one in wanted]
    if as_json:
        documents = [one.document() for one in found]
        output.emit({"run": str(run), "metrics": ids, "cells": documents})
    else:
        _print(found, ids)
    _remark(opened.asked.get("n", 0), found)
    output.next_command(f"strop report {shlex.quote(str(run))} -o report.html")


def _check(run: Path, cells: list[Cell]) -> None:
    if not cells or all(not cell.indices() for cell in cells):
        raise UserError(
            "The run has no outputs to score.",
            where=run,
            fix="run the command that made it again; it draws what is missing",
        )


def _policies(text: str) -> list[SpanPolicy]:
    names = listed(text, str, "--span")
    for name in names:
        if name not in get_args(SpanPolicy):
            raise unknown_name("span policy", name, get_args(SpanPolicy), where="--span")
    return cast(list[SpanPolicy], names)


def _loaded(name: str, device: str, dtype: str) -> Evaluator:
    from strop.measure.known import Late, known_evaluator

    with output.warnings_noted():
        evaluator = known_evaluator(name, device=device, dtype=dtype)
    if isinstance(evaluator, Late):  # nothing may have to be scored
        return evaluator
    output.note(
        f"{evaluator.source}: context {evaluator.context}, on {evaluator.device}, in "
        f"{evaluator.spec.dtype}"
        + ("" if evaluator.sliced else "; its head does not come apart: more memory")
    )
    return evaluator


def _loader(name: str, device: str, dtype: str) -> Callable[[], Evaluator]:
    return lambda: _loaded(name, device, dtype)


def _embeds(vendi: str, names: list[str]) -> bool:
    from strop.measure.embeddings import available

    return vendi == "on" or (vendi == "auto" and bool(names) and available())


def _outside(
    path: Path,
    names: list[str],
    policies: list[SpanPolicy],
    clean_up: bool | None,
    alone: dict[str, bool],
    device: str,
    dtype: str,
    as_json: bool,
) -> None:
    """Texts of anybody's: no generator, no ids of its own, no guard."""
    for flag, given in alone.items():
        if given:
            raise UserError(f"{flag} is for runs: these texts have no generator.", where=flag)
    if not names:
        raise UserError("Texts are scored in an evaluator's tokens.", where="--evaluator", got=NONE)
    from strop.groupeval.inputs import read_inputs
    from strop.measure.outside import check_policies, score_texts

    check_policies(policies)

    [source] = read_inputs([str(path)])
    documents, rows = [], []
    with reporter() as bar:
        for name in names:
            evaluator = _loaded(name, device, dtype)
            scores = score_texts(
                source.texts, evaluator, policies, clean_up=clean_up, progress=bar, name=source.name
            )
            rows += [(evaluator.spec.name, score) for score in scores]
            documents.append(
                {
                    "evaluator": evaluator.spec.model_dump(mode="json"),
                    "scores": [
                        {
                            "metric": one.metric.name,
                            "span": one.metric.span,
                            "unscored": one.unscored,
                            "values": one.document(),
                        }
                        for one in scores
                    ],
                }
            )
    if as_json:
        shown = {"texts": str(path), "outputs": len(source.texts), "evaluators": documents}
        output.emit(shown)
        return
    output.say(f"{source.name}: {len(source.texts)} texts")
    output.table(
        ["evaluator and its tokens", "metric", "span", "value"],
        [
            [name, one.column.heading, score.metric.span or "", _entry(score, one.column)]
            for name, score in rows
            for one in score.record.aggregates
        ],
    )
    output.say("no entropy guard: it belongs to a generator's vocabulary and length")


def _print(found: Sequence[Measured], wanted: list[str]) -> None:
    columns = _columns(found, wanted)
    header = ["cell", "setting", "outputs", *(heading for heading, _, _ in columns)]
    rows = []
    for one in found:
        row = [one.id, label(one.spec.generator.sampler), str(one.outputs)]
        by_id = {score.metric.id: score for score in one.scores}
        for _, id_, column in columns:
            guarded = column.name in ("pooled", "entropy")
            row.append(_entry(by_id.get(id_), column) + (one.mark if guarded else ""))
        rows.append(row)
    output.table(header, rows)
    output.say("perplexity: token-pooled; [..]: 95% bootstrap over outputs (10,000 replicates)")
    from strop.verbs.points import guard_notes

    for words in guard_notes(found):
        output.say(words)


def _columns(found: Sequence[Measured], wanted: list[str]) -> list[tuple[str, str, Column]]:
    """Heading, metric id and column of everything to show, each once, in the records' order."""
    columns: dict[tuple[str, str], tuple[str, str, Column]] = {}
    for score in (score for one in found for score in one.scores):
        spec = score.metric
        if spec.span is not None and spec.id not in wanted:
            continue  # a perplexity of an earlier call
        for one in score.record.aggregates:
            if one.shown:
                who = (
                    ""
                    if spec.span is None or spec.evaluator is None
                    else (f" ({spec.evaluator.name} {spec.span})")
                )
                key = (spec.id, one.column.name)
                columns.setdefault(key, (one.column.heading + who, spec.id, one.column))
    return list(columns.values())


def _entry(score: Score | None, column: Column) -> str:
    if score is None:
        return column.text(None)
    if score.values[column.name] is None and column.name == "pooled":
        return "nothing scored"
    return column.entry(score.values).line


def _remark(asked: int, found: Sequence[Measured]) -> None:
    """What a reader of the numbers should know."""
    short = sum(one.outputs < asked for one in found)
    if short:
        output.note(f"{short} cells have fewer than the {asked} outputs that were asked for")
    silent = sum(score.unscored for one in found for score in one.perplexities)
    if silent:
        output.note(f"{silent} outputs have no token to score (empty, or a single token)")
