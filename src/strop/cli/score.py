"""strop score: perplexity, entropy, repetition and diversity of every cell of a run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from strop.cli import output
from strop.cli.progress import label, reporter
from strop.cli.values import listed
from strop.errors import UserError, unknown_name
from strop.spec import SpanPolicy

if TYPE_CHECKING:
    from strop.metrics.bootstrap import Interval
    from strop.metrics.summary import CellSummary
    from strop.progress import Progress
    from strop.store import Cell

__all__ = ["register"]

NONE = "none"
VENDI = ("auto", "on", "off")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("score")(score)


def score(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    evaluator: Annotated[
        str,
        typer.Option(
            help="Causal language models, e.g. embedded:tales-ar,gpt2@REVISION,smollm2-135m, a "
            "directory; none for the metrics that need no text."
        ),
    ] = "embedded:tales-ar",
    span: Annotated[
        str, typer.Option(help="What counts: first-document, full-stream, public-code.")
    ] = "full-stream",
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
        typer.Option(help="JSON lines with text and ids for the entropy guard, instead of ours."),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Outputs at a time; changes nothing but speed.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:i.")] = "auto",
    dtype: Annotated[
        str, typer.Option(help="Of the evaluator: auto (float32), bfloat16, float16.")
    ] = "auto",
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Score every cell of RUN. The same command continues; nothing is scored twice.

    Prints token-pooled perplexity and unigram entropy with 95% bootstrap intervals over outputs.
    """
    from strop.metrics.summary import as_document, summarise
    from strop.store import Run

    if vendi not in VENDI:
        raise unknown_name("choice", vendi, VENDI, where="--vendi")
    if batch_size is not None:
        output.positive("--batch-size", batch_size)
    opened = Run.open(run)
    cells = opened.cells()
    _check(run, cells)
    from strop.metrics.heldout import read_texts

    texts = read_texts(held_out)
    settings = {"retokenise": not own_ids, "clean_up": clean_up, "batch_size": batch_size}
    names = [] if evaluator == NONE else listed(evaluator, str, "--evaluator")
    policies = _policies(span)
    with reporter() as bar:
        wanted = _measure(cells, names, policies, settings, device, dtype, bar)
        with_vendi = _embed(cells, vendi, names, device, bar)
    summaries = [summarise(cell, held_out=texts) for cell in cells]
    if as_json:
        documents = [as_document(one) for one in summaries]
        output.emit({"run": str(run), "metrics": wanted, "cells": documents})
    else:
        _print(summaries, wanted, with_vendi)
    _remark(opened.asked.get("n", 0), summaries)
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


def _measure(
    cells: list[Cell],
    names: list[str],
    policies: list[SpanPolicy],
    settings: dict[str, Any],
    device: str,
    dtype: str,
    bar: Progress,
) -> list[str]:
    """Score what is missing; the ids of the perplexities that were asked for."""
    from strop.metrics.score import score_ids

    for cell in cells:
        if cell.indices():
            score_ids(cell)
    if not names:
        return []
    from strop.metrics.evaluator import load_evaluator
    from strop.metrics.perplexity import score_perplexity

    chosen = []
    for name in names:
        with output.warnings_noted():
            evaluator = load_evaluator(name, device=device, dtype=dtype)
        output.note(
            f"{evaluator.source}: context {evaluator.context}, on {evaluator.device}, in "
            f"{evaluator.spec.dtype}"
            + ("" if evaluator.sliced else "; its head does not come apart: more memory")
        )
        for policy in policies:
            for cell in cells:
                if not cell.indices():
                    continue
                metric = score_perplexity(cell, evaluator, policy, progress=bar, **settings)
                if metric.id not in chosen:
                    chosen.append(metric.id)
    return chosen


def _embed(cells: list[Cell], vendi: str, names: list[str], device: str, bar: Progress) -> bool:
    from strop.metrics.embeddings import available
    from strop.metrics.score import score_embeddings

    if vendi == "off" or (vendi == "auto" and (not names or not available())):
        return False
    for cell in cells:
        if cell.indices():
            score_embeddings(cell, device=device, progress=bar)
    return True


def _print(summaries: list[CellSummary], wanted: list[str], with_vendi: bool) -> None:
    from strop.metrics.entropy import DAGGER
    from strop.metrics.repetition import NGRAM

    shown = {
        p.metric.id: f"{p.metric.evaluator.name} {p.metric.span}"
        for one in summaries
        for p in one.perplexities
        if p.metric.id in wanted and p.metric.evaluator is not None
    }
    header = ["cell", "setting", "outputs", *(f"perplexity ({shown[m]})" for m in shown)]
    header += ["entropy", f"repeated {NGRAM}-grams", "across pool", "distinct-2"]
    rows = []
    for one in summaries:
        by_id = {p.metric.id: p for p in one.perplexities}
        mark = DAGGER if one.below_guard else ""
        row = [one.cell.id, label(one.cell.spec.generator.sampler), str(one.outputs)]
        row += [_interval(by_id[m].pooled if m in by_id else None) + mark for m in shown]
        row += [_interval(one.entropy) + mark]
        row += [_share(one.repetition), _share(one.pool_repetition), _number(one.distinct[2])]
        rows.append([*row, _number(one.vendi)] if with_vendi else row)
    output.table([*header, "Vendi"] if with_vendi else header, rows)
    output.say("perplexity: token-pooled; [..]: 95% bootstrap over outputs (10,000 replicates)")
    for words in dict.fromkeys(_guard_words(one) for one in summaries):
        output.say(words)


def _guard_words(one: CellSummary) -> str:
    from strop.metrics.entropy import DAGGER

    if one.guard.threshold is None:
        return f"no entropy guard: {one.guard.source}"
    return f"{DAGGER} below the entropy guard H >= {one.guard.threshold:.3f} ({one.guard.source})"


def _interval(value: Interval | None) -> str:
    if value is None:
        return "nothing scored"
    return f"{_number(value.value)} [{_number(value.low)}, {_number(value.high)}]"


def _share(value: Interval | None) -> str:
    return "-" if value is None else f"{100 * value.value:.1f}%"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}" if value < 1000 else f"{value:,.0f}"


def _remark(asked: int, summaries: list[CellSummary]) -> None:
    """What a reader of the numbers should know."""
    short = sum(one.outputs < asked for one in summaries)
    if short:
        output.note(f"{short} cells have fewer than the {asked} outputs that were asked for")
    silent = sum(p.unscored for one in summaries for p in one.perplexities)
    if silent:
        output.note(f"{silent} outputs have no token to score (empty, or a single token)")
