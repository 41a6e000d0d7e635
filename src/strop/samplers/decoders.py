"""The blockwise decoders that users choose by name: records over one loop, in two forms.

`dense` is a public code to the bit (`public_decoders`). `fast` has the same law for a single
sequence, never leaves a mask, and gives each output the same tokens whatever its batch. Where the
public code lets the sequences of a batch influence each other, each is taken by itself here; where
it stops early or its network could draw the mask, this goes on and cannot. One law differs:
`llada` with `end=last` above temperature 0, where this holds back the ends of text and of turn, and
the public switch only one of them.

Temperature is not one thing. LLaDA draws from the tempered law and orders by the network's own, so
that improbable draws wait: the output is colder than the temperature says. Dream orders by the law
it draws from: near temperature 0 all positions look sure and the order decays to ties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from strop.denoisers.base import Denoiser
from strop.denoisers.device import Truths, upload
from strop.errors import UserError
from strop.samplers.machinery.blocks import BlockState, Decoder, Watch, block_numbers, decode
from strop.samplers.machinery.committing import (
    Cache,
    Carried,
    Coins,
    Commit,
    EntropyBound,
    Factor,
    LockstepRun,
    NetworkReader,
    Quota,
    Schedule,
    Threshold,
    lockstep,
)
from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.drawing import AddressedDraws, Confidence
from strop.samplers.public_decoders import ALGORITHMS, PublicRun
from strop.samplers.public_decoders import dream as public_dream
from strop.samplers.public_decoders import fast_dllm_dream as public_fast_dllm_dream
from strop.samplers.public_decoders import fast_dllm_llada as public_fast_dllm_llada
from strop.samplers.public_decoders import llada as public_llada
from strop.spec.generator import SamplerSpec

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class DecoderRecipe:
    """A decoder with everything but the model, the canvas and the seed."""

    decoder: Decoder
    block_length: int = 0
    """Open positions per block; 0 is all in one."""
    cache: Cache = "none"
    guidance: float = 0.0
    """LLaDA's `cfg_scale`."""
    top_k: int = 0
    """How many tokens may be drawn; 0 is all."""
    end: str = "free"
    """Of the tokens that end a text: `free`, `never` drawn, or `last` to be committed."""


def fill(
    denoiser: Denoiser,
    recipe: DecoderRecipe,
    ids: Tensor,
    spec: SamplerSpec,
    *,
    seed: int,
    outputs: NDArray[np.int64] | Sequence[int],
    starts: NDArray[np.int64] | None = None,
    stops: Sequence[int] = (),
    watch: Watch | None = None,
    reading: Callable[..., NetworkReader] = NetworkReader,
) -> BlockState:
    """Fill every mask of `ids` [B, L]; the filled canvas, with its order and its calls.

    Row b is output `outputs[b]` of the seed; tokens that are there stay. The `spec` says the steps,
    the draw and the name that random numbers are addressed by; the recipe stands for its settings.
    `starts` are the columns at which rows begin that are padded on the left, `stops` the tokens
    that end a text; `reading` makes the `NetworkReader`, where it is not the plain one.
    """
    mask_id = mask_of(denoiser)
    tokens = ids.cpu().numpy()  # waits
    open_ = tokens == mask_id
    block = block_numbers(open_, recipe.block_length or ids.shape[1])
    canvas = BlockState(upload(tokens.copy(), denoiser.device), block, mask_id, watch)
    reader = reading(denoiser, ~open_, cache=recipe.cache, guidance=recipe.guidance, starts=starts)
    draws = AddressedDraws(
        seed,
        spec,
        np.asarray(outputs, np.int64),
        np.maximum(open_.cumsum(1) - 1, 0),  # places of a response, wherever its prompt ends
        mask_id,
        top_k=recipe.top_k,
        forbid=stops[:1] if recipe.end == "never" else (),
        hush=stops if recipe.end == "last" else (),
    )
    decode(fitting(recipe, denoiser), canvas, reader, draws, spec.steps)
    draws.confirm.refuse_infinite()
    return canvas


@lockstep
def fast(run: LockstepRun) -> Tensor:
    """The form for users, as a sampler."""
    spec = run.spec
    canvas = fill(
        run.denoiser,
        recipe(spec.name, spec.settings),
        run.begin.ids(run.denoiser.mask_id),
        spec,
        seed=run.seed,
        outputs=run.outputs,
        starts=run.begin.starts,
        stops=_stops(run),
        watch=trace_rounds(run),
    )
    run.calls[:] = canvas.calls
    return canvas.ids


def dense(run: DenseRun) -> Tensor:
    """A public code to the bit, as a sampler; the precision of the draw is the code's own."""
    mask_of(run.denoiser)
    ids = run.start()
    is_given = (run.begin.ids(run.denoiser.mask_id) != run.denoiser.mask_id).all(0)
    prompt = int(is_given.long().cumprod(0).sum())  # on the host
    task = PublicRun(run.denoiser, ids, prompt, run.generator, watch=trace_rounds(run))
    canvas = LITERAL[run.spec.name](task, run)
    run.calls += canvas.total
    return canvas.ids


def trace_rounds(run: DenseRun | LockstepRun) -> Watch:
    """Rounds are network calls: the order in which a pool keeps when tokens came."""

    def watch(canvas: BlockState, changed: Truths) -> None:
        width = run.begin.open.shape[1]
        slot, position = np.nonzero(changed[:, :width])
        run.note(canvas.calls[slot] - 1, slot, position, canvas.tokens[slot, position])
        run.trace.chance.copy_(canvas.chance[:, :width])

    return watch


def recipe(name: str, settings: Settings) -> DecoderRecipe:
    """The recipe of a sampler's name and settings."""
    return RECIPES[name](settings)


def mask_of(denoiser: Denoiser) -> int:
    """The mask, which a decoder needs."""
    if denoiser.mask_id >= denoiser.vocab_size:
        raise UserError(
            "A blockwise decoder fills masks, and this model has none.",
            where=denoiser.source,
            got=f"a checkpoint of the family {denoiser.spec.family!r}",
        )
    return denoiser.mask_id


def fitting(recipe: DecoderRecipe, denoiser: Denoiser) -> Decoder:
    """Through a window a shifted network cannot score its first column, so the opening must."""
    shifted = denoiser.spec.family == "dream" and recipe.cache != "none"
    if not shifted or recipe.decoder.opening:
        return recipe.decoder
    return replace(recipe.decoder, opening=True)


def _stops(run: DenseRun | LockstepRun) -> Sequence[int]:
    """The tokens that end a text and a turn, where the model knows them and where it must."""
    stops = tuple(getattr(run.denoiser, "stop_ids", ()))
    end = run.spec.settings.get("end", "free")
    if end != "free" and not stops:
        raise UserError(
            "The tokens that end a text of this model are unknown.",
            where=run.denoiser.source,
            got=f"end={end!r}",
            expected="an end of text in the configuration, or an end of turn in the tokenizer",
            fix="use `end=free`",
        )
    return stops


def _parts(settings: Settings, score: Confidence, commit: Commit) -> DecoderRecipe:
    """What the settings say beside how positions are scored, and how many are committed."""
    return DecoderRecipe(
        Decoder(score, commit),
        block_length=settings.get("block_length", 0),
        cache=settings.get("cache", "none"),
        guidance=settings.get("cfg_scale", 0.0),
        top_k=settings.get("top_k", 0),
        end=settings.get("end", "free"),
    )


def _llada(settings: Settings) -> DecoderRecipe:
    """Fast-dLLM's too, which says how to commit."""
    likeliest = settings["remasking"] == "low_confidence"
    return _parts(settings, Confidence("confidence" if likeliest else "random"), _commit(settings))


def _dream(settings: Settings) -> DecoderRecipe:
    kind = Coins if settings["alg"] == "origin" else Schedule
    commit = kind(settings["eps"], settings["alg_temp"])
    return _parts(settings, ALGORITHMS[settings["alg"]], commit)


def _fast_dllm_dream(settings: Settings) -> DecoderRecipe:
    cached, level = settings["cache"] != "none", settings["threshold"]
    by_threshold = settings["alg"] == "confidence_threshold"
    if not cached:  # all of the canvas is one block
        one_block = {**settings, "block_length": 0}
        return (
            _parts(one_block, ALGORITHMS["maskgit_plus"], Carried(level))
            if by_threshold
            else _dream(one_block)
        )
    if by_threshold:
        score, commit = ALGORITHMS["maskgit_plus"], Threshold(level)
    else:  # whatever is asked for, the cached sampler orders by entropy
        score = ALGORITHMS["entropy"]
        commit = Schedule(settings["eps"], settings["alg_temp"], late=True)
    decoder_recipe = _parts(settings, score, commit)
    return replace(decoder_recipe, decoder=replace(decoder_recipe.decoder, opening=True))


def _blockwise(settings: Settings) -> DecoderRecipe:
    """Ours: the parts by name."""
    score = Confidence(settings["score"], tempered=settings["score_law"] == "drawn")
    return _parts(settings, score, _commit(settings))


def _commit(settings: Settings) -> Commit:
    kind = settings.get("commit")
    if kind == "threshold":
        return Threshold(settings["threshold"])
    if kind == "factor":
        return Factor(settings["factor"])
    if kind == "entropy-bound":
        return EntropyBound(settings["entropy_bound"])
    return Quota()


RECIPES: dict[str, Callable[[Settings], DecoderRecipe]] = {
    "llada": _llada,
    "fast-dllm": _llada,
    "dream": _dream,
    "fast-dllm-dream": _fast_dllm_dream,
    "blockwise": _blockwise,
}
"""By the name of the sampler; `strop.records.decoders` declares their settings."""


def _shared_options(run: DenseRun, *names: str) -> dict[str, Any]:
    """Options that have the same names in the public codes."""
    options = {name: run.spec.settings[name] for name in names}
    return {"steps": run.spec.steps, "temperature": run.spec.temperature, **options}


def _literal_llada(task: PublicRun, run: DenseRun) -> BlockState:
    end = run.spec.settings["end"]
    return public_llada(
        task,
        **_shared_options(run, "block_length", "cfg_scale", "remasking"),
        logits_eos_inf=end == "never",
        confidence_eos_eot_inf=end == "last",
        stops=_stops(run),
    )


def _literal_fast_dllm(task: PublicRun, run: DenseRun) -> BlockState:
    commit = run.spec.settings["commit"]
    level = () if commit == "quota" else (str(commit),)
    return public_fast_dllm_llada(
        task, **_shared_options(run, "cache", "block_length", "remasking", *level)
    )


def _literal_dream(task: PublicRun, run: DenseRun) -> BlockState:
    options = _shared_options(run, "top_k", "alg", "alg_temp", "eps")
    return public_dream(task, **options, top_p=run.spec.top_p)


def _literal_fast_dllm_dream(task: PublicRun, run: DenseRun) -> BlockState:
    options = ("cache", "block_length", "top_k", "alg", "alg_temp", "eps", "threshold")
    return public_fast_dllm_dream(task, **_shared_options(run, *options), top_p=run.spec.top_p)


LITERAL: dict[str, Callable[[PublicRun, DenseRun], BlockState]] = {
    "llada": _literal_llada,
    "fast-dllm": _literal_fast_dllm,
    "dream": _literal_dream,
    "fast-dllm-dream": _literal_fast_dllm_dream,
}
"""Those that have a public code to follow."""
