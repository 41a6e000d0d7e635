"""The decoders of block models that users choose by name, in two forms.

`dense` is a public code to the bit (`public_blocks`), one row after another from one generator; the
pipeline takes the batch together, as it does. `fast` has the same law for one sequence, never
draws the mask and gives each output the same tokens whatever its batch. Two laws differ: where a
block holds fewer masks than SDAR's quota, the public code writes over the prompt and this keeps it;
and a prompt of exactly one block, which Fast-dLLM v2's code never sees, is seen here.

Behind the first end of a text both forms repeat it, where the public codes cut.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from strop.denoisers.base import BlockDenoiser
from strop.denoisers.device import Numbers, upload, upload_rows
from strop.errors import UserError
from strop.records.decoders import ALIASES
from strop.records.record import SAMPLERS
from strop.samplers import public_blocks
from strop.samplers.decoders import mask_of, trace_rounds
from strop.samplers.machinery.block_loop import BlockRules, fill_blocks
from strop.samplers.machinery.blocks import BlockState
from strop.samplers.machinery.committing import LockstepRun, lockstep
from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.drawing import AddressedDraws
from strop.samplers.public_blocks import PublicText, beyond_positions
from strop.spec.generator import SamplerSpec

DEFAULT_BLOCK = 32
"""For a model that was not trained in blocks."""
ONE_END = ("llada2", "llada2-edit", "llada2-pipeline", "fast-dllm-v2")
"""Whose public codes know one end of text; SDAR's takes a list."""


@lockstep
def fast(run: LockstepRun) -> Tensor:
    """The form for users, as a sampler."""
    spec, denoiser, block = run.spec, run.denoiser, _block(run)
    ids = run.begin.ids(mask_of(denoiser))
    length = ids.shape[1]
    if isinstance(denoiser, BlockDenoiser):  # the last block is decoded whole, then cut
        ids = pad(ids, (0, -length % block), value=denoiser.mask_id)
        if ids.shape[1] > denoiser.length:
            raise beyond_positions(denoiser, ids.shape[1])
    open_ = ids.numpy() == denoiser.mask_id
    canvas = BlockState(
        upload(ids.numpy(), denoiser.device),
        np.where(open_, 0, -1),
        denoiser.mask_id,
        trace_rounds(run),
    )
    heat, places = _temperature(spec), np.maximum(open_.cumsum(1) - 1, 0)
    # Where the best token is taken its probability is the model's own.
    law = spec.model_copy(update={"temperature": heat, "top_p": spec.top_p if heat else 1.0})
    draws = AddressedDraws(run.seed, law, run.outputs, places, denoiser.mask_id)
    # LLaDA 2's code takes no more steps than there are tokens to write; our random order, all.
    written = np.clip(open_[:, :length].sum(1), 1, spec.steps)
    steps = written if spec.settings.get("order") == "confidence" else None
    counts = fill_blocks(denoiser, canvas, _rules(spec, block, steps), draws, _stops(run))
    run.counts = {name: counts[name] for name in SAMPLERS[spec.name].counts}
    run.calls[:] = canvas.calls
    return canvas.ids[:, :length]


def _rules(spec: SamplerSpec, block: int, steps: Numbers | None = None) -> BlockRules:
    """The rules of a sampler's name and settings; `steps` [B] instead of its own."""
    settings: dict[str, Any] = dict(spec.settings)
    common = {
        "block": block,
        "steps": spec.steps if steps is None else steps,
        "stop": settings["stop"],
        "top_k": settings.get("top_k", 0) if _temperature(spec) else 0,
    }
    if spec.name == "sdar":
        remasking = settings["remasking"]
        order = {"sequential": "left", "random": "random"}.get(remasking, "confidence")
        level = settings["threshold"] if remasking == "low_confidence_dynamic" else np.inf
        return BlockRules(**common, order=order, threshold=level)
    if spec.name == "llada2":
        return BlockRules(**common, order=settings["order"], threshold=settings["threshold"])
    if spec.name == "llada2-edit":
        return BlockRules(
            **common,
            quota=settings["num_to_transfer"],
            threshold=settings["threshold"],
            editing=settings["editing_threshold"],
            post_steps=settings["max_post_steps"],
        )
    return BlockRules(
        **common,
        quota=1,
        threshold=settings["threshold"],
        sub=min(settings["small_block"], block),
        first=settings["first"],
    )


def dense(run: DenseRun) -> Tensor:
    """A public code to the bit, as a sampler; its arithmetic is its own."""
    denoiser, block = run.denoiser, _block(run)
    if not isinstance(denoiser, BlockDenoiser):
        raise UserError(
            f"The public code of {run.spec.name!r} needs a model that reads in blocks.",
            where=denoiser.source,
            got=f"a checkpoint of the family {denoiser.spec.family!r}",
            fix="use `implementation=fast`",
        )
    _refuse_own_settings(run.spec)
    code, kind, more_options = LITERAL[run.spec.name]
    ids = run.start()
    together = run.spec.name == "llada2-pipeline"
    run.row_calls, blocks, edits = np.zeros((3, run.batch), np.int64)
    counted = {"blocks": blocks, "edits": edits}
    run.counts = {name: counted[name] for name in SAMPLERS[run.spec.name].counts}
    parts = [slice(0, run.batch)] if together else [slice(i, i + 1) for i in range(run.batch)]
    for part in parts:
        text = PublicText(denoiser, ids[part, : _prompt(run, part)], run.generator)
        text.on_call = _trace_part(run, part, text)
        response = code(
            text, _options(kind, run, block, ids.shape[1] - text.size, more_options(run))
        )
        if run.spec.name.startswith("llada2"):  # they return the response alone
            response = torch.cat([text.prompt, response], 1)
        ids[part] = _on_canvas(ids[part], response, text.size, _stops(run))
        run.row_calls[part], blocks[part] = text.calls, len(text.opened)
        edits[part] = torch.as_tensor(text.edits).cpu().numpy()  # waits
    return ids


def _on_canvas(ids: Tensor, response: Tensor, prompt: int, stops: Sequence[int]) -> Tensor:
    """A public answer (prompt included) on the canvas; behind its first end, that end."""
    columns = min(ids.shape[1], response.shape[1])
    ids = torch.cat([response[:, :columns], ids[:, columns:]], 1)
    for row in ids:
        ends = torch.isin(row[prompt:], torch.tensor(list(stops), device=row.device)).nonzero()
        if len(ends):
            row[prompt + ends[0] + 1 :] = row[prompt + ends[0]].clone()
    return ids


def _prompt(run: DenseRun, part: slice) -> int:
    """The length of the prompt, which is all that the public codes know to be given."""
    is_given = ~run.begin.open[part]
    size = int(is_given[0].sum())
    if not is_given[:, :size].all():
        raise UserError(
            f"The public code of {run.spec.name!r} takes prompts, not gaps.",
            got="given tokens behind an open position",
            fix="use `implementation=fast`",
        )
    return size


def _trace_part(run: DenseRun, part: slice, text: PublicText) -> Callable[[Tensor], None]:
    """Tell the trace what a call changed."""
    length = run.begin.open.shape[1]
    before = run.begin.ids(run.denoiser.mask_id)[part].numpy().copy()
    calls = 0

    def note_call(x: Tensor) -> None:
        nonlocal calls
        now = x[:, :length].cpu().numpy()  # waits
        old = before[:, : now.shape[1]]
        row, column = np.nonzero((now != old) & run.begin.open[part, : now.shape[1]])
        run.note(calls, row + part.start, column, now[row, column])
        old[:], calls = now, calls + 1
        if text.chance is None:
            return
        start, chance = text.chance
        in_block = np.flatnonzero((column >= start) & (column < start + chance.shape[1]))
        at = upload_rows(chance.device, row[in_block], column[in_block] - start)
        run.know(row[in_block] + part.start, column[in_block], chance[at])

    return note_call


def _block(run: DenseRun | LockstepRun) -> int:
    """The requested block length; one that differs from the trained one brings a warning."""
    requested = int(run.spec.settings["block_length"])
    trained = getattr(run.denoiser, "block_length", None)
    if trained is not None and requested not in (0, trained):
        warnings.warn(
            f"{run.denoiser.source} was trained in blocks of {trained} and is now given blocks of "
            f"{requested}: it was not trained for predictions there.",
            stacklevel=2,
        )
    return requested or trained or min(DEFAULT_BLOCK, run.length)


def _temperature(spec: SamplerSpec) -> float:
    drawn = spec.temperature == 0 and spec.settings.get("zero") == "draw"
    return 1.0 if drawn else spec.temperature


def _stops(run: DenseRun | LockstepRun) -> tuple[int, ...]:
    stops = tuple(getattr(run.denoiser, "stop_ids", ()))
    return stops[:1] if run.spec.name in ONE_END else stops


def _stop(run: DenseRun) -> int:
    """The one end that a public code knows; -1: none."""
    return next(iter(_stops(run)), -1)


def _ends(name: str, switch: str) -> Callable[[DenseRun], dict[str, Any]]:
    """The option that says which token ends a text, and that an end stops the code."""

    def end_options(run: DenseRun) -> dict[str, Any]:
        return {name: _stop(run), "eos_early_stop": run.spec.settings["stop"] == switch}

    return end_options


def _sdar(run: DenseRun) -> dict[str, Any]:
    stops = run.spec.settings["stop"] == "block"
    return {"stopping_criteria_idx": _stops(run) if stops else None}


def _pipeline(run: DenseRun) -> dict[str, Any]:
    level = float(run.spec.settings["editing_threshold"])
    ends = _ends("eos_token_id", "early")
    return {**ends(run), "editing_threshold": level if level < 1 else None}


def _fast_dllm_v2(run: DenseRun) -> dict[str, Any]:
    settings, block = run.spec.settings, _block(run)
    return {
        "block_size": block,
        "small_block_size": min(int(settings["small_block"]), block),
        "stop_token": _stop(run) if settings["stop"] == "early" else -1,
    }


def _options(
    kind: Any, run: DenseRun, block: int, length: int, more_options: dict[str, Any]
) -> Any:
    """A public code's options: our settings under its names, and what is its own."""
    settings = {**run.spec.settings, "steps": run.spec.steps, "top_p": run.spec.top_p}
    settings |= {"temperature": _temperature(run.spec), "block_length": block}
    settings |= {"gen_length": length, "max_new_tokens": length}
    name_of_option = {field.name: ALIASES.get(field.name, field.name) for field in fields(kind)}
    return kind(
        **{
            **{
                option: settings[name]
                for option, name in name_of_option.items()
                if name in settings
            },
            **more_options,
        }
    )


LITERAL: dict[str, tuple[Callable[..., Tensor], Any, Callable[[DenseRun], dict[str, Any]]]] = {
    "sdar": (public_blocks.sdar, public_blocks.SDAROptions, _sdar),
    "llada2": (public_blocks.llada2, public_blocks.LLaDA2Options, _ends("eos_id", "early")),
    "llada2-edit": (
        public_blocks.llada2_edit,
        public_blocks.LLaDA2EditOptions,
        _ends("eos_id", "block"),
    ),
    "llada2-pipeline": (public_blocks.llada2_pipeline, public_blocks.PipelineOptions, _pipeline),
    "fast-dllm-v2": (public_blocks.fast_dllm_v2, public_blocks.FastV2Options, _fast_dllm_v2),
}
"""By the name of the sampler: the public code, its options, and those that no setting is."""
OWN_SETTINGS = {
    "sdar": ("remasking", "random", "has no random order"),
    "llada2": ("order", "random", "commits the likeliest draws first"),
    "fast-dllm-v2": ("first", "draw", "takes the best first token of a block"),
}
"""Settings of which the public codes know but one side."""


def _refuse_own_settings(spec: SamplerSpec) -> None:
    name, value, why = OWN_SETTINGS.get(spec.name, ("", "", ""))
    if name and spec.settings[name] == value:
        raise UserError(
            f"The public code of {spec.name!r} {why}.",
            where=f"SamplerSpec.settings.{name}",
            got=value,
            fix="use `implementation=fast`",
        )
