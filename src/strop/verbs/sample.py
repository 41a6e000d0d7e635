"""strop sample: draw outputs of a checkpoint under every combination of settings.

A sampler may come from a YAML file, such as the audit writes.
"""

from __future__ import annotations

import copy
import itertools
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from strop.assets import CHECKPOINT
from strop.engine.plan import Elsewhere
from strop.errors import UserError
from strop.prompts.rows import Bos, PromptSet
from strop.records.record import SAMPLERS, default_sampler
from strop.runtime import bounded_batch, bounded_outputs
from strop.spec.generator import SamplerSpec, label, plain_baseline
from strop.spec.value import OUTPUT_LIMIT, SEED_LIMIT, Cooling
from strop.verbs import parameters
from strop.verbs.verb import Ask, Parameter, Result, Verb, grid, quoted, spelled

if TYPE_CHECKING:
    from strop.denoisers import Model
    from strop.pool import Pool
    from strop.prompts.canvas import Canvases


def read_samplers(path: Path) -> list[SamplerSpec]:
    """The samplers of a file: a list under `samplers`, or one sampler's fields."""
    import yaml

    from strop.disk import reading
    from strop.store.folder import load_yaml

    try:
        with reading(path):
            document: Any = load_yaml(path.read_bytes())
    except FileNotFoundError:
        raise UserError("There is no such file of samplers.", where=path) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError("The file of samplers is not YAML.", where=path, got=reason) from None
    listed = document.get("samplers", [document]) if isinstance(document, dict) else None
    if not isinstance(listed, list) or not listed or not all(isinstance(s, dict) for s in listed):
        raise UserError(
            "The file holds no samplers.",
            where=path,
            expected="`samplers:` with a list of settings such as {steps: 64, temperature: 0.9}",
        )
    try:
        return [
            SamplerSpec(**{str(key): value for key, value in fields.items()}) for fields in listed
        ]
    except UserError as error:
        raise _of_file(error, path) from None


def _of_file(error: UserError, path: Path) -> UserError:
    """The same error for a user who wrote the fields into a file, not as flags."""
    restated = copy.copy(error)
    restated.what = as_keys(error.what)
    restated.where = f"{path}: {as_keys(error.where or '')}".removesuffix(": ")
    restated.fix = None if error.fix is None else as_keys(error.fix)
    return restated


def as_keys(text: str) -> str:
    """A message of the library for the author of a file of fields: `steps`, `steps: 64`."""
    text = re.sub(r"\bSamplerSpec(\.|$)", "", text)
    return re.sub(r"`([a-z_]+)(?:=([^`]*))?`", lambda m: m[1] + (f": {m[2]}" if m[2] else ""), text)


SETTING = (
    "steps",
    "temperature",
    "precision",
    "sampler",
    "top_p",
    "grid",
    "finish",
    "settings",
    "implementation",
    "noise",
)
"""Settings of the sampler; a file of samplers has all of them."""
REPEATED = (
    "n",
    "seed",
    "length",
    "finish",
    "family",
    "weights",
    "revision",
    "device",
    "dtype",
    "prompts",
    "per_prompt",
    "chat",
    "shots",
    "bos",
)
"""What a baseline shares with the cells beside which it stands."""


def _run(ask: Ask) -> Result:
    _check_prompts(ask)
    bounded_outputs([ask["n"] or 0])
    if isinstance(ask["batch_size"], int):
        bounded_batch(ask["batch_size"])
    from strop.store import Folder

    if ask["out"] is not None:
        Folder(ask["out"], "run", "sample").refuse_strangers()
    specs = _specs(ask, default_sampler("mdlm"), own=ask["sampler"] is not None)
    if ask["spec"] is not None:
        specs = _from_file(ask)
    from strop.draw import outputs_of, sample_cells

    model = _model(ask)
    if ask["sampler"] is None and ask["spec"] is None:
        # Checked above as far as it goes; which sampler the settings are for is known only now.
        specs = _specs(ask, default_sampler(model.spec.family), own=True)
    canvases = _canvases(ask, model)
    _note_model(ask, model, canvases)
    try:
        pools = sample_cells(
            model,
            specs,
            n=outputs_of(canvases, ask["n"], ask["per_prompt"], default=16),
            canvases=canvases,
            progress=ask.progress,
            engine=ask.engine,
            **ask.some("seed", "batch_size", "length", "out", "force"),
        )
    except Elsewhere as waiting:  # a shard has done its part, and those of others are missing
        return Result(
            json={"run": ask["out"], "shard": str(ask.engine.shard), "missing": waiting.as_dict()},
            remarks=(f"shard {ask.engine.shard} is done; {waiting.what} {waiting.got}",),
            next=f"strop show {quoted(ask['out'])}",
        )
    return _result(ask, model, specs, pools)


def _model(ask: Ask) -> Model:
    from strop.denoisers import Model, load_model

    if isinstance(ask["checkpoint"], Model):
        return ask["checkpoint"]
    return load_model(
        ask["checkpoint"],
        device=ask.engine.at_home(ask["device"]),
        load=ask["load"] or {},
        **ask.some("revision", "weights", "family", "dtype"),
    )


def _note_model(ask: Ask, model: Model, canvases: Canvases | None) -> None:
    from strop.denoisers.base import usable_length

    length = canvases.length if canvases else usable_length(model, ask["length"])
    if model.spec.family == "served":
        how = "each prompt as a chat of one message" if canvases else "completions of no prompt"
        ask.note(
            f"{model.source}: replies of at most {length} tokens, {how} (--settings api=chat or "
            "completions says otherwise); entropy is counted in GPT-2's tokens"
        )
        return
    where = model.device if model.device.type != "meta" else "its workers' devices"
    why = " (the default: the sampler's law should not depend on the device)"
    ask.note(
        f"{model.source}: {model.spec.family}, {model.vocab_size:,} tokens, length {length}, on "
        f"{where}, network in {model.spec.network_dtype}" + (why if ask["dtype"] == "auto" else "")
    )


def _specs(ask: Ask, name: str, *, own: bool) -> list[SamplerSpec]:
    """Every combination; `own`: with settings and schedules, which only some samplers have."""
    common = {
        "name": ask["sampler"] or name,
        "settings": (ask["settings"] or {}) if own else {},
        **ask.some("top_p", "finish", "implementation", "noise"),
    }
    budgets: list[dict[str, Any]] = [{"steps": m} for m in ask["steps"] or ()] or [{}]
    if ask["grid"] not in (None, "uniform"):
        budgets = [
            {**budget, "grid": ask["grid"]} for budget in budgets
        ]  # with steps, both must agree
    heat: list[dict[str, Any]] = [
        {"temperature": tau} if own or not isinstance(tau, Cooling) else {}
        for tau in ask["temperature"]
    ]
    if not ask.given("temperature"):
        heat = [{}]  # the sampler's own
    return [
        SamplerSpec(**{**common, **budget, **tau, "precision": precision})
        for budget, tau, precision in itertools.product(budgets, heat, ask["precision"])
    ]


def _from_file(ask: Ask) -> list[SamplerSpec]:
    if ask.given(*SETTING):
        raise UserError(
            "`spec` already says how to sample.",
            where="`spec`",
            fix="leave out `steps`, `temperature` and the sampler's other settings",
        )
    spec = ask["spec"]
    if isinstance(spec, str):
        return read_samplers(Path(spec))
    return [spec] if isinstance(spec, SamplerSpec) else list(spec)


def _check_prompts(ask: Ask) -> None:
    """What can be seen before a model is loaded, which may be large or far away."""
    if ask["per_prompt"] is not None and ask["n"] is not None:
        raise UserError(
            "There are two numbers of outputs.",
            where="`per_prompt`",
            got=f"{ask['n']} in all and {ask['per_prompt']} per prompt",
            fix="leave out one of them",
        )
    if isinstance(ask["prompts"], str):
        PromptSet.read(ask["prompts"])
    for name in ("per_prompt", "chat", "shots"):
        if ask["prompts"] is None and ask[name]:
            raise UserError(
                f"`{name}` is for prompts, and there are none.",
                where=f"`{name}`",
                fix="add `prompts`",
            )


def _canvases(ask: Ask, model: Model) -> Canvases | None:
    if ask["prompts"] is None:
        return None
    from strop.denoisers.prompting import canvases_of

    return canvases_of(model, ask["prompts"], **ask.some("length", "chat", "shots", "bos"))


def _result(ask: Ask, model: Model, specs: Sequence[SamplerSpec], pools: Sequence[Pool]) -> Result:
    header = ["cell", "setting", "outputs", "calls per output", "seconds per output"]
    counts = list(dict.fromkeys(name for pool in pools for name in pool.counts))
    header += ["tokens per call", *counts] if counts else []
    left = any(pool.leftover_masks.any() for pool in pools)
    header += ["masks left"] if left else []
    documents, rows = [_document(pool) for pool in pools], []
    plain = [plain_baseline(pool.spec.generator.sampler) for pool in pools]
    for pool, document, baseline in zip(pools, documents, plain, strict=True):
        speed = f"{document['seconds'] / document['n']:.3g}"
        setting = label(pool.spec.generator.sampler)
        row = [document["cell"], setting, str(document["n"]), f"{document['nfe_mean']:.1f}", speed]
        if counts:  # of a sampler that works in blocks or canvases
            row.append(
                f"{document['tokens_per_call']:.2f}" if "tokens_per_call" in document else ""
            )
            row += [f"{document[name]:.2f}" if name in document else "" for name in counts]
        row += [f"{document['leftover_masks'] / document['n']:.2f}"] if left else []
        rows.append([*row, *(["" if baseline is None else label(baseline)] if any(plain) else [])])
    return Result(
        parts=(grid([*header, *(["plain baseline"] if any(plain) else [])], rows),),
        json={"run": ask["out"], "cells": documents},
        remarks=(*_baseline(ask, model, specs), *_of_server(ask, model)),
        next=None if ask["out"] is None else f"strop show {quoted(ask['out'])}",
        value=list(pools),
    )


def _of_server(ask: Ask, model: Model) -> tuple[str, ...]:
    """Of a served model: other names, tokens per second, what a probe has found."""
    if model.spec.family != "served":
        return ()
    from strop.draw.served import latency_of, named_otherwise
    from strop.served.address import probe_notes
    from strop.store import Run

    notes = probe_notes(model.spec.sha256)
    if ask["out"] is None:
        return notes

    cells = Run.open(ask["out"]).cells()
    return (*named_otherwise(model.source, cells), *latency_of(cells), *notes)


def _document(pool: Pool) -> dict[str, Any]:
    generator = pool.spec.generator
    prompts, baseline = generator.prompts, plain_baseline(generator.sampler)
    return {
        "cell": pool.spec.id,
        "sampler": generator.sampler.model_dump(mode="json"),
        "seed": pool.spec.seed,
        "n": len(pool),
        "length": generator.length,
        "nfe_mean": float(pool.nfe.mean()),
        "seconds": float(pool.seconds.sum()),
        "leftover_masks": int(pool.leftover_masks.sum()),
        **_counted(pool),
        **({} if prompts is None else {"prompts": prompts.model_dump(mode="json")}),
        "plain_baseline": None if baseline is None else baseline.model_dump(mode="json"),
    }


def _counted(pool: Pool) -> dict[str, float]:
    """Means per output of what the sampler counts, and tokens per call beside them."""
    if not pool.counts:
        return {}
    tokens = pool.lengths if len(pool.lengths) else pool.ids.shape[1]
    means = {name: float(values.mean()) for name, values in pool.counts.items()}
    return {"tokens_per_call": float((tokens / pool.nfe).mean()), **means}


def _baseline(ask: Ask, model: Model, specs: Sequence[SamplerSpec]) -> tuple[str, ...]:
    """The command that draws the plain baseline of every cell of a revising sampler.

    The public settings of revising samplers sharpen too, by top_p: without the plain sampler at
    the same top_p and temperature beside them nobody can tell which of the two helped.
    """
    plain = [baseline for spec in specs if (baseline := plain_baseline(spec)) is not None]
    if not plain or ask["out"] is None:
        return ()
    first = plain[0]
    flags = {
        "--sampler": first.name,
        "--top-p": repr(first.top_p),
        "--temperature": _each(repr(baseline.temperature) for baseline in plain),
        "--precision": _each(baseline.precision for baseline in plain),
    }
    usual = SAMPLERS[first.name].settings
    changed = {
        name: value for name, value in first.settings.items() if value != usual[name].default
    }
    if changed:
        flags["--settings"] = ",".join(f"{name}={value}" for name, value in changed.items())
    if first.grid == "uniform":
        flags["--steps"] = _each(str(baseline.steps) for baseline in plain)
    else:
        flags["--grid"] = ",".join(map(repr, first.grid))
    words = [word for pair in flags.items() for word in pair] + ask.words(*REPEATED)
    source = ask["checkpoint"] if isinstance(ask["checkpoint"], str) else model.source
    command = ["strop", "sample", source, *words, "-o", f"{ask['out'].rstrip('/')}-plain"]
    return ("plain baseline: " + shlex.join(command),)


def _each(words: Any) -> str:
    return spelled(list(dict.fromkeys(words)))


VERB = Verb(
    name="sample",
    help="Draw outputs of CHECKPOINT for every combination of --steps, --temperature and "
    "--precision.\n\n"
    "The same command continues a run that was interrupted; nothing is drawn twice.",
    parameters=(
        parameters.out(required=False),
        Parameter(
            "checkpoint",
            "A directory, a .ckpt, a hub id owner/name or owner/name@revision, embedded:NAME, "
            "server:URL#MODEL.",
            CHECKPOINT,
            argument="CHECKPOINT",
        ),
        parameters.budgets("Updates M, e.g. 16,64; 64 by default (autoregressive: the length)."),
        Parameter("temperature", "tau, e.g. 1.0,0.9; 0 is greedy.", (1.0,), "floats"),
        Parameter("precision", "Of the draw: float64, float32 or both.", ("float64",), "words"),
        Parameter.count(
            "n",
            "Outputs per cell; may grow later. 16 by default; with prompts, one for each.",
            most=OUTPUT_LIMIT,
        ),
        Parameter("seed", "Root seed; output i depends on it and on i.", 0, "int", most=SEED_LIMIT),
        Parameter(
            "sampler",
            "By default that of the family; a plug-in's, or one of: "
            + ", ".join(SAMPLERS.builtin)
            + ".",
        ),
        Parameter.real("top_p", "Nucleus of the clean-token distribution.", 1.0),
        Parameter(
            "grid",
            "Reveal masses that sum to 1, e.g. 0.2,0.3,0.5, instead of --steps.",
            kind="masses",
        ),
        Parameter("finish", "Last mass: greedy, draw or none; by default the public one."),
        Parameter("spec", "A YAML file of samplers, e.g. from `strop audit`; no other settings."),
        parameters.SETTINGS,
        parameters.IMPLEMENTATION,
        Parameter("noise", "Of dense, drawn on: cpu (the same everywhere), or device.", "cpu"),
        parameters.tokens("Tokens per output, after a prompt if there is one; else the model's."),
        Parameter("prompts", "A .jsonl of prompts, or of texts with gaps such as [[12]]."),
        Parameter.count(
            "per_prompt", "Outputs for each prompt; may grow later.", most=OUTPUT_LIMIT
        ),
        parameters.CHAT,
        Parameter("shots", "A .jsonl of worked examples, put before every prompt."),
        Parameter(
            "bos",
            "What opens a prompt; tokenizer is its own rule.",
            "tokenizer",
            choices=get_args(Bos),
        ),
        parameters.BATCH_SIZE,
        parameters.DEVICE,
        parameters.NETWORK_DTYPE,
        parameters.REVISION,
        parameters.WEIGHTS,
        parameters.FAMILY,
        parameters.LOAD,
        Parameter.flag("force", "Start the run directory anew."),
        parameters.DRY_RUN,
        *parameters.SERVER,
        *parameters.ENGINE,
    ),
    run=_run,
    examples=(
        "strop sample -n 4 -o runs/first",
        "strop sample kuleshov-group/mdlm-owt --steps 16,64 --temperature 1,0.9 -o runs/owt",
        "strop sample --prompts prompts.jsonl --length 32 --per-prompt 4 -o runs/answers",
    ),
)
