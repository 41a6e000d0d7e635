"""Runs of BD3-LM's and DiffusionGemma's public codes, asked of ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from strop.samplers.bd3lm import SemiAR, Try
from strop.samplers.diffusion_gemma import CanvasRule, GeneratorDraws, Writing
from strop.spec import Cooling


def bd3lm(folder: Any, run: dict[str, Any]) -> dict[str, Any]:
    """One try of the semi-autoregressive sampler."""
    options, denoiser = dict(run["options"]), folder.denoiser
    rows, length = options.pop("batch", 1), options.pop("length")
    ids = torch.full((rows, length), denoiser.mask_id)
    ids[:, 0] = folder.case["bos_token_id"]
    generator = torch.Generator().manual_seed(run["seed"])
    clock = np.random.RandomState(run["seed"])
    asked = SemiAR(**options, eos_id=folder.case["eos_token_id"])
    one = Try(ids, asked, denoiser, generator, clock)
    found = one.run()
    return {
        "ids": found,
        "calls": one.calls,
        "counted_steps": None if found is None else one.changes,
        "masks_left": None if found is None else int((found == denoiser.mask_id).sum()),
        "next_rand": _next(generator),
        "next_numpy": clock.rand(),
    }


def diffusion_gemma(folder: Any, run: dict[str, Any]) -> dict[str, Any]:
    """transformers' `generate`; names of its generation config."""
    options = {name: one for name, one in run["options"].items() if one is not None}
    denoiser, expected = folder.denoiser, folder.expected
    prompt = expected[run["prompt"]].long()
    most, new = options.get("max_length"), options.get("max_new_tokens", 256)
    if most is not None and new == 256:  # its default: only then does the length decide
        new = most - prompt.shape[1]
    ends = options.get("eos_token_id", ())
    rule = CanvasRule(
        steps=options.get("max_denoising_steps", 48),
        temperature=Cooling(options.get("t_max", 0.8), options.get("t_min", 0.4)),
        entropy_bound=options.get("entropy_bound", 0.1),
        stability=options.get("stability_threshold", 1),
        confidence=options.get("confidence_threshold", 0.005),
        ends=tuple(ends) if isinstance(ends, (list, tuple)) else (ends,),
        pad_id=options.get("pad_token_id"),
        most=most,
    )
    generator = torch.Generator().manual_seed(run["seed"])
    size = denoiser.block_length
    fed: list[Tensor] = []
    accepted: list[Tensor] = []

    def watch(_: Any, read: Tensor, taken: Tensor) -> None:
        fed.append(read)
        accepted.append(taken)

    mask, first = run.get("attention_mask"), run.get("decoder_input_ids")
    writing = Writing(
        denoiser,
        rule,
        GeneratorDraws(generator, denoiser.vocab_size, denoiser.device),
        prompt,
        size,
        together=True,
        seen=None if mask is None else expected[mask].bool(),
        first=None if first is None else expected[first].long(),
        watch=watch,
    )
    ids = writing.run(-(-new // size))
    written = ids[:, prompt.shape[1] :]
    pad = rule.pad_id
    tokens = torch.full((len(ids),), written.shape[1]) if pad is None else (written != pad).sum(1)
    return {
        "ids": ids,
        "calls": writing.total,
        "tokens_per_forward": (tokens / torch.from_numpy(writing.decodings).int()).tolist(),
        "fed": torch.stack(fed),
        "accepted": torch.stack(accepted),
        "next_rand": _next(generator),
    }


def _next(generator: torch.Generator) -> float:
    return float(torch.rand(1, dtype=torch.float64, generator=generator))


PLAYS = {"bd3lm": bd3lm, "diffusion_gemma": diffusion_gemma}


def differences(folder: Any, run: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """What of a run is not the same; a name in the run is a number, a list or a tensor's name."""
    wrong = []
    for name, found in {**ours, "expected": ours["ids"]}.items():
        if name == "ids" or name not in run:
            continue
        wanted = run[name]
        if isinstance(found, Tensor):
            tensor = None if wanted is None else folder.expected[wanted]
            same = tensor is not None and torch.equal(found.long(), tensor.long())
        else:
            same = found == wanted
        if not same:
            wrong.append("ids" if name == "expected" else name)
    return wrong
