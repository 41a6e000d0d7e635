"""strop show: what a run holds, and how one of its outputs was made.

What is replayed is the round after which each token last changed, as the run keeps it. A sampler
that revises tokens may have shown others before; those are not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.assets import EMBEDDED, embedded_path
from strop.errors import UserError
from strop.spec.generator import label, plain_baseline
from strop.verbs.parameters import argument
from strop.verbs.verb import Ask, Frames, Parameter, Part, Result, Verb, grid, quoted, visible

if TYPE_CHECKING:
    from strop.store import Cell, Run
    from strop.store.tables import KeptPrompts

EXCERPT = 280
SHOWN = 120
"""Characters of what stands before a response, where not all is wanted."""
HIDDEN = "░"
GPT2 = (50257, 50258)
"""Vocabularies of GPT-2's tokenizer, without and with a mask."""

Decode = Callable[[Sequence[int]], str]


def _run(ask: Ask) -> Result:
    from strop.store import Run, read_mark

    run = Path(ask["run"])
    mark = read_mark(run)
    if mark is not None and mark.kind == "training":
        from strop.verbs.train import training_run

        return training_run(run)
    if ask["unmask"] and ask["output"] is None:
        raise UserError("One output is replayed at a time.", where="`unmask`", fix="add `output=0`")
    opened = Run.open(run)
    cells = opened.cells() if ask["cell"] is None else [opened.cell(ask["cell"])]
    if ask["output"] is not None:
        return _one_output(opened, cells, ask["output"], ask["unmask"])
    request, wanted = opened.asked, opened.wanted()
    documents = [_document(cell, wanted[cell.id], ask["first"]) for cell in cells]
    parts: list[Part] = [
        f"{run}: {request.get('checkpoint')}, seed {request.get('seed')}, n {request.get('n')}"
    ]
    for cell, document in zip(cells, documents, strict=True):
        parts += _cell(cell, document, fields=ask["cell"] is not None, full=ask["full"])
    incomplete = any(document["outputs"] < document["asked"] for document in documents)
    remark = "some outputs are missing: the command that made this run continues it"
    more = not incomplete and ask["cell"] is None and bool(cells)
    return Result(
        parts=tuple(parts),
        json={"run": str(run), "asked": request, "cells": documents},
        remarks=(remark,) if incomplete else (),
        next=f"strop show {quoted(run)} {cells[0].id} --full" if more else None,
        value=opened,
    )


def _cell(cell: Cell, document: Mapping[str, Any], *, fields: bool, full: bool) -> list[Part]:
    sampler = cell.spec.generator.sampler
    counted = f"{document['outputs']} of {document['asked']} outputs"
    parts: list[Part] = [f"\n{cell.id}  {label(sampler)}  {counted}"]
    baseline = plain_baseline(sampler)
    if baseline is not None:
        parts.append(f"  plain baseline: {label(baseline)}")
    if fields:
        parts.append(grid(["field", "value"], [[name, str(value)] for name, value in sampler]))
    prompts = cell.prompts()
    return parts + [
        f"  [{entry['index']}] nfe {entry['nfe']}  {_output_line(entry, prompts, full)}"
        for entry in document["first"]
    ]


def _one_output(run: Run, cells: list[Cell], number: int, unmask: bool) -> Result:
    """One output of every chosen cell: its text, or how it was made."""
    rows, parts = [], list[Part]()
    for cell in cells:
        table = cell.table()
        row = next((row for row in _rows(table) if row["index"] == number), None)
        if row is None:
            raise UserError(
                "There is no such output.",
                where=cell.path,
                got=f"output {number}",
                expected=f"a number below {table.num_rows}",
            )
        rows.append({"cell": cell.id, **row})
        parts.append(f"{cell.id}  {label(cell.spec.generator.sampler)}  output {number}")
        if unmask:
            shape = cell.spec.generator.checkpoint.shape
            parts.append(_replay(row, decoder(str(run.asked.get("checkpoint", "")), shape)))
        else:
            parts.append(_output_line(row, cell.prompts(), full=True))
    again = f"strop show {quoted(run.path)} --output {number} --unmask"
    return Result(
        parts=tuple(parts),
        json={"run": str(run.path), "outputs": rows},
        next=None if unmask else again,
        value=rows,
    )


def _document(cell: Cell, requested: int, first: int) -> dict[str, Any]:
    table = cell.table()
    head = _rows(table.slice(0, min(first, table.num_rows)))
    return {
        "cell": cell.id,
        "spec": cell.spec.model_dump(mode="json"),
        "outputs": table.num_rows,
        "asked": requested,
        "sessions": cell.sessions(),
        "first": head,
    }


def _rows(table: Any) -> list[dict[str, Any]]:
    """Outputs as they are, without what fills up short responses."""
    rows = table.to_pylist()
    return [{**row, "ids": row["ids"][: row.get("tokens", len(row["ids"]))]} for row in rows]


def _output_line(entry: dict[str, Any], prompts: Any, full: bool) -> str:
    """One output in a line, after the prompt that it answers."""
    if prompts is None:
        return _excerpt(entry, full)
    text = answered(entry, prompts, full=full)
    limit = 2 * EXCERPT
    text = text if full or len(text) <= limit else text[:limit] + " ..."
    return f"{entry['prompt']}: {text}"


def _excerpt(entry: dict[str, Any], full: bool) -> str:
    stored = entry["text"]
    text = " ".join(map(str, entry["ids"])) if stored is None else visible(stored)
    return text if full or len(text) <= EXCERPT else text[:EXCERPT] + " ..."


def answered(entry: Mapping[str, Any], prompts: KeptPrompts, *, full: bool) -> str:
    """An output inside what it answers: `given text[[response]] given text`."""
    stretches = prompts.canvases.prompt_of(entry["index"]).stretches
    pieces = prompts.pieces_of(entry["index"])
    if pieces is None or entry["text"] is None:
        responses, edge = iter(map(str, entry["ids"])), " "
        words = [
            " ".join(next(responses) if t is None else str(t) for t in stretch)
            for stretch in stretches
        ]
    else:
        responses, edge = iter(entry.get("pieces") or [entry["text"]]), ""
        words = [visible(next(responses) if isinstance(p, int) else p) for p in pieces]
    gaps = [stretch[0] is None for stretch in stretches]
    if not full:
        words = [w if gap else _cut(w) for gap, w in zip(gaps, words, strict=True)]
    return edge.join(f"[[{word}]]" if gap else word for gap, word in zip(gaps, words, strict=True))


def _cut(text: str) -> str:
    """The end of it, which is nearest to the response."""
    return text if len(text) <= SHOWN else "... " + text[-SHOWN:]


def decoder(source: str, shape: Mapping[str, Any]) -> Decode | None:
    """Tokens to text, where the checkpoint's tokenizer is on disk; nothing is downloaded."""
    directory = embedded_path(source) if source.startswith(EMBEDDED) else Path(source)
    directory = directory if directory.is_dir() else directory.parent
    has_tokenizer = (directory / "tokenizer.json").is_file()
    if not has_tokenizer and shape.get("vocab_size") not in GPT2:
        return None
    try:
        from strop.denoisers.tokenizer import TextCodec

        codec = TextCodec.from_directory(directory) if has_tokenizer else TextCodec.gpt2()
    except ModuleNotFoundError:
        return None
    mask = shape.get("mask_id")
    return lambda ids: codec.decode(ids, mask_id=mask)


def _replay(entry: Mapping[str, Any], decode: Decode | None) -> Frames:
    rounds = sorted({0, *entry["changed"]})
    return Frames([(f"after round {number}", _frame(entry, number, decode)) for number in rounds])


def _frame(entry: Mapping[str, Any], number: int, decode: Decode | None) -> str:
    """The tokens that stand since `number` or earlier; a run of others is one mark and a count."""
    tokens = [
        token if changed <= number else None
        for token, changed in zip(entry["ids"], entry["changed"], strict=True)
    ]
    parts = []
    for settled, group in groupby(tokens, key=lambda token: token is not None):
        run = list(group)
        ids = [token for token in run if token is not None]
        if not settled:
            parts.append(HIDDEN * min(3, len(run)) + (f"({len(run)})" if len(run) > 3 else ""))
        elif decode is None:
            parts.append(" ".join(map(str, ids)))
        else:
            parts.append(visible(decode(ids)))
    return ("" if decode is not None else " ").join(parts)


VERB = Verb(
    name="show",
    help="Print what a run or one of its cells holds: spec, counts, first outputs.",
    parameters=(
        argument("run", "RUN", "A run directory."),
        Parameter("cell", "A cell's id or its beginning.", argument="CELL"),
        Parameter("first", "Outputs to print.", 3, "int", most=2**99),
        Parameter.flag("full", "Print whole outputs."),
        Parameter("output", "Only the output of this number, whole.", kind="int", most=2**99),
        Parameter.flag("unmask", "Replay that output round by round."),
    ),
    run=_run,
    examples=(
        "strop show runs/first",
        "strop show runs/first 3f9a --first 10 --full",
        "strop show runs/first --output 3 --unmask",
    ),
)
