"""LLaDA's, Dream's and Fast-dLLM's decoders as published, under their own option names.

Each takes a prompt and a generator that was seeded as a user of the public code would seed torch;
ids, reveal order, network calls and the numbers drawn are those of the public code, leftover masks
included. Fast-dLLM's are in the state of its main branch of 2026-05-30. The forms for users are in
`decoders`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from strop.denoisers.base import Denoiser
from strop.denoisers.device import on_host
from strop.errors import UserError, unknown_name
from strop.samplers.machinery.blocks import BlockState, Decoder, Public, Watch, decode, spans
from strop.samplers.machinery.committing import (
    Cache,
    Carried,
    Coins,
    Commit,
    Factor,
    NetworkReader,
    Quota,
    Schedule,
    Threshold,
)
from strop.samplers.machinery.drawing import CategoricalDraws, Confidence, Draws, PowerDraws

REMASKING = {"low_confidence": Confidence("confidence"), "random": Confidence("random", late=True)}
ALGORITHMS = {
    "origin": Confidence("random"),
    "maskgit_plus": Confidence("confidence", tempered=True),
    "topk_margin": Confidence("margin", tempered=True),
    "entropy": Confidence("entropy", tempered=True),
}


@dataclass(frozen=True)
class PublicRun:
    """The input of every public decoder."""

    denoiser: Denoiser
    ids: Tensor
    """[B, L]: the prompts, and masks after them."""
    prompt: int
    """Positions of the prompts, the same for all."""
    generator: torch.Generator
    starts: Tensor | None = None
    """[B], where sequences begin that are padded on the left."""
    watch: Watch | None = None

    @property
    def length(self) -> int:
        """The number of positions after the prompt."""
        return self.ids.shape[1] - self.prompt

    def canvas(self, block_length: int) -> BlockState:
        """A copy to fill."""
        ids = self.ids.to(self.denoiser.device, copy=True)
        block = spans(len(ids), self.prompt, ids.shape[1], block_length)
        return BlockState(ids, block, self.denoiser.mask_id, self.watch)

    def run(
        self,
        decoder: Decoder,
        draws: Draws,
        steps: int,
        block_length: int,
        *,
        cache: Cache = "none",
        guidance: float = 0.0,
        padding: bool = True,
    ) -> BlockState:
        """Decode; blocks of 0 are all in one."""
        block_length = block_length or self.length
        _check_divides("block_length", self.length, block_length)
        _check_divides("steps", steps, self.length // block_length)
        canvas = self.canvas(block_length)
        starts = on_host(self.starts) if padding and self.starts is not None else None
        reader = NetworkReader(
            self.denoiser, ~canvas.masked, cache=cache, guidance=guidance, starts=starts
        )
        decode(decoder, canvas, reader, draws, steps)
        return canvas

    @property
    def no_token(self) -> list[int]:
        """The mask, where the model's family rules it out; LLaDA's and Dream's codes could draw it.

        Their loops would then leave masks, or go on for ever.
        """
        may = self.denoiser.spec.family in ("llada", "dream")
        return [] if may else [self.denoiser.mask_id]

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of the network's own scores, where it is not the one we are given."""
        name = self.denoiser.spec.network_dtype
        return getattr(torch, name) if name in ("bfloat16", "float16") else None


def llada(
    task: PublicRun,
    *,
    steps: int = 128,
    block_length: int = 128,
    temperature: float = 0.0,
    cfg_scale: float = 0.0,
    remasking: str = "low_confidence",
    logits_eos_inf: bool = False,
    confidence_eos_eot_inf: bool = False,
    stops: Sequence[int] = (),
) -> BlockState:
    """LLaDA's own `generate`; `stops` are its end-of-text and end-of-turn tokens."""
    # The switch writes the end of the text into the noisy scores, which are the scores themselves
    # at temperature 0 and a copy otherwise.
    hush = list(stops if temperature == 0 else stops[1:]) if confidence_eos_eot_inf else []
    draws = PowerDraws(
        task.generator,
        temperature,
        network_dtype=task.dtype,
        forbid=[*task.no_token, *(stops[:1] if logits_eos_inf else ())],
        hush=hush,
    )
    decoder = Decoder(
        _confidence_called(remasking, REMASKING), Quota("topk"), public=Public("steps")
    )
    return task.run(decoder, draws, steps, block_length, guidance=max(0.0, cfg_scale))


def fast_dllm_llada(
    task: PublicRun,
    *,
    cache: Cache = "none",
    steps: int = 128,
    block_length: int = 128,
    temperature: float = 0.0,
    remasking: str = "low_confidence",
    threshold: float | None = None,
    factor: float | None = None,
) -> BlockState:
    """Fast-dLLM's `generate`, `generate_with_prefix_cache` and `generate_with_dual_cache`."""
    commit: Commit = Quota("sort") if threshold is None else Threshold(threshold)
    if factor is not None:
        commit = Factor(factor, "topk")
    draws = PowerDraws(
        task.generator,
        temperature,
        score_dtype=torch.float64,
        number_dtype=torch.float64 if factor is None else torch.float32,
        network_dtype=task.dtype,
        twice=cache == "prefix",
        forbid=task.no_token,
    )
    public = Public("capped" if cache == "dual" else "full")
    decoder = Decoder(_confidence_called(remasking, REMASKING), commit, public=public)
    # This code never hands an attention mask to its network.
    return task.run(decoder, draws, steps, block_length, cache=cache, padding=False)


def dream(
    task: PublicRun,
    *,
    steps: int = 512,
    temperature: float = 0.0,
    top_p: float | None = None,
    top_k: int | None = None,
    alg: str = "origin",
    alg_temp: float | None = None,
    eps: float = 1e-3,
) -> BlockState:
    """Dream's `diffusion_generate`."""
    score = _confidence_called(alg, ALGORITHMS)
    spread = alg_temp or 0.0
    kind = Coins if alg == "origin" else Schedule
    commit = kind(eps, spread, rank="topk", shared=True)
    draws = _categorical(task, temperature, top_p, top_k)
    decoder = Decoder(score, commit, public=Public("steps", erases=True))
    return task.run(decoder, draws, steps, 0)


def fast_dllm_dream(
    task: PublicRun,
    *,
    cache: Cache = "none",
    steps: int = 512,
    block_length: int | None = 32,
    temperature: float = 0.0,
    top_p: float | None = None,
    top_k: int | None = None,
    alg: str = "origin",
    alg_temp: float | None = None,
    eps: float = 1e-3,
    threshold: float = 0.9,
) -> BlockState:
    """Fast-dLLM's `diffusion_generate` for Dream, without a cache or block by block with one."""
    by_threshold = alg == "confidence_threshold"
    if cache == "none" and not by_threshold:
        return dream(
            task,
            steps=steps,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            alg=alg,
            alg_temp=alg_temp,
            eps=eps,
        )
    if by_threshold and len(task.ids) != 1:
        raise UserError("This public sampler takes one sequence at a time.", got=len(task.ids))
    score = ALGORITHMS["maskgit_plus" if by_threshold else "entropy"]
    if cache == "none":
        _check_divides("steps", int((task.canvas(task.length).masked).sum()), steps)
        decoder = Decoder(score, Carried(threshold, "topk"), public=Public("steps"))
        draws = _categorical(task, temperature, top_p, top_k)
        return task.run(decoder, draws, steps, 0)
    commit: Commit = Schedule(eps, alg_temp or 0.0, rank="topk", shared=True, late=True)
    if by_threshold:
        commit = Threshold(threshold)
    draws = _categorical(task, temperature, top_p, top_k, wide=by_threshold and cache == "prefix")
    public = Public("twice", erases=not by_threshold)
    decoder = Decoder(score, commit, opening=True, public=public)
    return task.run(decoder, draws, steps, block_length or 0, cache=cache)


def _categorical(
    task: PublicRun, temperature: float, top_p: float | None, top_k: int | None, wide: bool = False
) -> CategoricalDraws:
    return CategoricalDraws(
        task.generator,
        temperature,
        top_p=top_p,
        top_k=top_k,
        wide=wide,
        network_dtype=task.dtype,
        forbid=task.no_token,
    )


def _confidence_called(name: str, orders: dict[str, Confidence]) -> Confidence:
    if name not in orders:
        raise unknown_name("order of positions", name, orders)
    return orders[name]


def _check_divides(name: str, number: int, parts: int) -> None:
    """The public codes take whole numbers of blocks, and of rounds in a block, only."""
    if parts < 1 or number % parts:
        raise UserError(
            "The public code refuses this division.",
            where=f"`{name}`",
            got=f"{number} in parts of {parts}",
            expected="no remainder",
        )
