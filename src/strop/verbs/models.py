"""strop models: the checkpoints known by name, and a look at any."""

from __future__ import annotations

import dataclasses

from strop.records import FAMILIES, default_sampler
from strop.verbs.parameters import DEVICE, FAMILY, REVISION, WEIGHTS, argument
from strop.verbs.result import Result, grid
from strop.verbs.verb import Ask, Verb, VerbGroup, quoted, visible

HEADER = ["name", "short", "family", "hub id", "parameters", "licence", "sampler", "draw"]


def _list(_: Ask) -> Result:
    from strop.assets.known import known_models

    known = known_models()
    documents, rows = [], []
    for one in known:
        sampler, precision = default_sampler(one.family), FAMILIES[one.family].precision
        documents.append(dataclasses.asdict(one) | {"sampler": sampler, "precision": precision})
        named = [one.name, one.alias, one.family, one.source, f"{one.parameters / 1e6:.0f}M"]
        rows.append([*named, one.licence, sampler, precision or "", one.verified])
    return Result(
        parts=(grid([*HEADER, "verified"], rows),),
        json={"models": documents},
        next=f"strop models check {known[0].source}",
        value=known,
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
    texts = [str(one["ids"].tolist()) if one["text"] is None else one["text"] for one in outputs]
    again = f" --family {family}" if family else ""
    return Result(
        parts=(
            f"{checked.source}: {checked.family}, {checked.weights} weights",
            f"parameters: {sizes}; every tensor has the shape that the family needs",
            "shape: " + ", ".join(f"{name} {size}" for name, size in checked.shape.items()),
            f"sampler: {sampler.name}",
            *(
                f"  {one['nfe']} network calls: {visible(text)}"
                for one, text in zip(outputs, texts, strict=True)
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
GROUP = VerbGroup(
    name="models",
    help="Known checkpoints, and a look at any.",
    verbs=(CHECK,),
    examples=("strop models", "strop models check embedded:tales"),
    own=LIST,
)
