"""strop models: the checkpoints known by name, and a look at any."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strop.disk import disk
from strop.errors import UserError
from strop.records.record import FAMILIES, default_sampler
from strop.runtime import MOST_WEIGHTS, bounded
from strop.spec.value import OUTPUT_LIMIT
from strop.verbs.certify import STUDY as CERTIFY
from strop.verbs.parameters import DEVICE, FAMILY, REVISION, SEED, WEIGHTS, argument, out
from strop.verbs.verb import Ask, Parameter, Result, Verb, VerbGroup, grid, quoted, visible

HEADER = ["name", "short", "family", "hub id", "parameters", "licence", "sampler", "draw"]


def _list(_: Ask) -> Result:
    from strop.assets import known_models

    models = known_models()
    documents, rows = [], []
    for model in models:
        sampler, precision = default_sampler(model.family), FAMILIES[model.family].precision
        documents.append(dataclasses.asdict(model) | {"sampler": sampler, "precision": precision})
        named = [
            model.name,
            model.alias,
            model.family,
            model.source,
            f"{model.parameters / 1e6:.0f}M",
        ]
        rows.append([*named, model.licence, sampler, precision or "", model.verified])
    return Result(
        parts=(grid([*HEADER, "verified"], rows),),
        json={"models": documents},
        next=f"strop models check {models[0].source}",
        value=models,
    )


def _check(ask: Ask) -> Result:
    from strop.draw.check import check_model

    source, family = ask["source"], ask["family"]
    checked = check_model(source, **ask.some("revision", "weights", "family", "device"))
    pool, sampler = checked.pool, checked.pool.spec.generator.sampler
    outputs = [
        {"ids": ids, "text": None if pool.texts is None else pool.texts[i], "nfe": pool.nfe[i]}
        for i, ids in enumerate(pool.ids)
    ]
    sizes = ", ".join(f"{name} {count:,}" for name, count in checked.parameters.items())
    texts = [
        str(output["ids"].tolist()) if output["text"] is None else output["text"]
        for output in outputs
    ]
    again = f" --family {family}" if family else ""
    return Result(
        parts=(
            f"{checked.source}: {checked.family}, {checked.weights} weights",
            f"parameters: {sizes}; every tensor has the shape that the family needs"
            if sizes
            else "parameters: none, it is a known law",
            "shape: " + ", ".join(f"{name} {size}" for name, size in checked.shape.items()),
            f"sampler: {sampler.name}",
            *(
                f"  {output['nfe']} network calls: {visible(text)}"
                for output, text in zip(outputs, texts, strict=True)
            ),
        ),
        json={
            "source": checked.source,
            "family": checked.family,
            "weights": checked.weights,
            "parameters": checked.parameters,
            "shape": checked.shape,
            "sampler": sampler.model_dump(mode="json"),
            "outputs": outputs,
        },
        next=f"strop sample {quoted(source)}{again} --steps 16,64 -o runs/x",
        value=checked,
    )


SIZES = {"width": "hidden_dim", "blocks": "n_blocks", "heads": "n_heads"}
"""What a user calls a size, where the shape has another name for it."""


def _random(ask: Ask) -> Result:
    from strop.checkpoints.config import SHAPES
    from strop.checkpoints.layout import write_random
    from strop.registry import resolve

    out, sizes = Path(ask["out"]), ask.some("vocab_size", "length", *SIZES)
    with disk(out):
        taken = out.exists() and (not out.is_dir() or any(out.iterdir()))
    _refuse_taken(taken, out, "a new or empty directory")
    changes = {SIZES.get(name, name): size for name, size in sizes.items() if size is not None}
    shape = dataclasses.replace(SHAPES[ask["shape"]], **changes)
    if shape.hidden_dim % (2 * shape.n_heads):
        raise UserError(
            "The width does not divide among the heads.",
            where="`width`",
            got=f"width {shape.hidden_dim}, {shape.n_heads} heads",
            expected="a width that splits into heads of an even size",
            fix=f"`width={2 * shape.n_heads * max(1, shape.hidden_dim // (2 * shape.n_heads))}`",
        )
    per_block, per_token = 12 * shape.hidden_dim**2, 2 * shape.hidden_dim
    weights = shape.n_blocks * per_block + shape.vocab_size * per_token
    bounded("`width`", weights, MOST_WEIGHTS, "choose fewer blocks or tokens, or a smaller width")
    shape = dataclasses.replace(shape, mask_id=shape.vocab_size - 1)
    layout = FAMILIES[ask["family"]].layout
    assert layout is not None
    with disk(out):
        write_random(out, resolve(layout)(shape), ask["seed"])
    return Result(
        parts=(f"wrote {out}: {ask['family']}, random weights, so that its outputs are noise",),
        json={"checkpoint": str(out), "family": ask["family"], "shape": dataclasses.asdict(shape)},
        next=f"strop sample {quoted(out)} --steps 4 -n 2 -o runs/random-outputs",
        value=out,
    )


def _refuse_taken(taken: bool, out: Path, expected: str) -> None:
    if taken:
        what, fix = "Something is already at this path.", "choose another one"
        raise UserError(what, where=out, expected=expected, fix=fix)


def _rows(ask: Ask) -> Result:
    """Documents, joined and cut as the training code does, as the file that `posterior` reads."""
    import json

    import numpy as np

    from strop.denoisers import load_model
    from strop.disk import write
    from strop.measure.guard import HeldOutRows
    from strop.training.data import end_of_text, make_rows

    out = Path(ask["out"])
    _refuse_taken(out.exists(), out, "a new file")
    model = load_model(ask["source"])
    codec: Any = model.codec
    if codec is None:
        raise UserError("The checkpoint has no tokenizer.", where=ask["source"])
    length = ask["length"] or model.length
    if length < 3:
        raise UserError(
            "A row has an end-of-text on both sides.",
            where="`length`",
            got=length,
            expected="at least 3",
        )
    end, blocks, count = end_of_text(codec, ask["source"]), [], 0
    for block in make_rows(_documents(ask), ask["how"], codec, end, length):
        blocks.append(block[: ask["n"] - count])
        count += len(blocks[-1])
        if count == ask["n"]:
            break
    if not count:
        raise UserError(
            "The texts do not fill one row.",
            where=ask["texts"] or ask["dataset"],
            expected=f"{length} tokens or more",
            fix="give more text, or a smaller `length`",
        )
    rows = HeldOutRows(np.concatenate(blocks), 0, 0)
    lines = [{"text": codec.decode(row.tolist()), "ids": row.tolist()} for row in rows.ids]
    content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    with disk(out):
        write(out, content.encode())
    facts = {"rows": count, "length": length, "how": ask["how"], "sha256": rows.sha256}
    return Result(
        parts=(f"wrote {out}: {count} {ask['how']} rows of {length} tokens", rows.sha256),
        json={"file": str(out), **facts},
        next=f"strop study posterior {quoted(ask['source'])} --held-out {quoted(out)} -o runs/loss",
        value=rows,
    )


def _documents(ask: Ask) -> Iterator[str]:
    """From JSON lines, a text file, a directory or a dataset of the hub; only the last if asked."""
    from strop.measure.guard import plain_texts
    from strop.training.documents import read_source
    from strop.training.spec import HeldOut, SourceSpec

    texts, dataset, last = ask["texts"], ask["dataset"], ask["last"]
    if (texts is None) == (dataset is None):
        raise UserError(
            "Rows come from texts or from a dataset.",
            got="both" if texts else "neither",
            fix="give `texts=FILE`, or `dataset=NAME`",
        )
    if texts is not None and Path(texts).suffix == ".jsonl":
        all_texts = plain_texts(Path(texts))
        if not all_texts:
            raise UserError(
                "The file holds no text.", where=texts, expected="JSON lines with `text`"
            )
        yield from all_texts[-last:] if last else all_texts
        return
    path = None if texts is None else str(texts)
    source = SourceSpec(name="texts", licence="not asked", path=path, dataset=dataset)
    if last is None:
        yield from (text for _, text in read_source(source, HeldOut(every=2), Path()))
        return
    yield from (text for held, text in read_source(source, HeldOut(last=last), Path()) if held)


LIST = Verb(
    name="models",
    help="List the public checkpoints that strop knows, and what was verified about each.",
    parameters=(),
    run=_list,
)
CHECK = Verb(
    name="check",
    help="Load SOURCE, name its family, compare its shapes and draw two short outputs.",
    parameters=(
        argument("source", "SOURCE", "As for `strop sample`."),
        FAMILY,
        WEIGHTS,
        REVISION,
        DEVICE,
    ),
    run=_check,
    examples=("strop models check embedded:tales", "strop models check louaaron/sedd-small"),
)
RANDOM = Verb(
    name="random",
    help="Write a checkpoint with random weights in a family's public layout.\n\n"
    "To try commands without a download: its outputs are noise. The output bias falls like a Zipf "
    "law; LLaDA and Dream get a tokenizer with a chat template, so that prompts work.",
    parameters=(
        argument("out", "OUT", "The directory to write."),
        Parameter(
            "family",
            "Whose layout.",
            "mdlm",
            choices=tuple(
                name for name, family in FAMILIES.builtin.items() if family.layout is not None
            ),
        ),
        Parameter("shape", "The sizes to begin with.", "tiny", choices=("tiny", "small", "medium")),
        *(
            Parameter(name, words, kind="int", least=least, most=2**20, shown="of the shape")
            for name, words, least in (
                ("vocab_size", "Tokens, the mask included.", 2),
                ("length", "The longest sequence.", 1),
                ("width", "Of the network.", 1),
                ("blocks", "Transformer blocks.", 1),
                ("heads", "Attention heads.", 1),
            )
        ),
        SEED,
    ),
    run=_random,
    examples=("strop models random runs/random --family llada --width 64 --blocks 2 --heads 4",),
)
ROWS = Verb(
    name="rows",
    help="Write held-out rows for SOURCE: texts joined and cut as the training code does.\n\n"
    "What `strop study posterior --held-out` reads. The public MDLM holds out the last 100,000 "
    "documents of OpenWebText: --dataset Skylion007/openwebtext --last 100000 -n 512.",
    parameters=(
        argument("source", "SOURCE", "Whose tokenizer and length; as for `strop sample`."),
        Parameter.file("texts", "A .jsonl with `text`, a text file, or a directory of such."),
        Parameter("dataset", "A dataset of the hub, instead."),
        Parameter.count("last", "Only the last so many documents."),
        Parameter(
            "how",
            "wrapped: pieces between two end-of-texts, as in the public code; packed: end to end.",
            "wrapped",
            choices=("wrapped", "packed"),
        ),
        Parameter.count("n", "Rows, at most.", 512, most=OUTPUT_LIMIT),
        Parameter.count("length", "Tokens of a row.", shown="the model's own"),
        out("The .jsonl to write."),
    ),
    run=_rows,
    examples=("strop models rows embedded:tales --texts notes.txt -n 64 -o runs/rows.jsonl",),
)
GROUP = VerbGroup(
    name="models",
    help="Known checkpoints, and a look at any.",
    verbs=(CHECK, CERTIFY, ROWS, RANDOM),
    examples=("strop models", "strop models check embedded:tales"),
    own=LIST,
)
