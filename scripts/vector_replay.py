"""Parity vectors, replayed: what a public code returned, asked of ours from the same weights.

A folder of vectors has `weights.safetensors`, `expected.safetensors` and `case.json`; one replay
per run of `case.json`. Ids are compared always, reveal order, calls and the generator's next number
where the vectors have them. Calls are counted where the network is asked.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file
from torch import Tensor

import canvas_replay
import strop
from strop.denoisers.base import BlockDenoiser, Denoiser
from strop.samplers import public_blocks
from strop.samplers.machinery.committing import Cache
from strop.samplers.public_decoders import PublicRun, dream, fast_dllm_dream, fast_dllm_llada, llada

__all__ = ["Folder", "Replayed", "folders", "played", "replay"]

ASKED = ("hidden", "padded", "remember", "window", "advance")
"""The methods of a denoiser that are one call of its network."""

DECODERS = ("llada", "dream")
BLOCKS = ("sdar", "llada2", "fast_dllm_v2")
CANVASES = tuple(canvas_replay.PLAYS)
CACHES: dict[str, Cache] = {
    "generate": "none",
    "generate_with_prefix_cache": "prefix",
    "generate_with_dual_cache": "dual",
}
SILENT = ("mask_id", "mask_token_id", "output_history", "return_dict_in_generate")
"""Options that change nothing in the ids, or say what the network's configuration says."""
OLDER = ("june", "july")
"""States of Fast-dLLM before its current one."""


@dataclass(frozen=True)
class Replayed:
    """One run."""

    name: str
    code: str
    identical: bool | None
    """None where it was skipped."""
    calls: int | None
    """Network calls of ours."""
    skipped: str | None = None
    """Why, where it was."""
    differs: tuple[str, ...] = ()
    """What is not the same."""

    @property
    def line(self) -> str:
        """For people."""
        if self.skipped:
            return f"{self.name} ({self.code}): skipped: {self.skipped}"
        if self.identical:
            return f"{self.name} ({self.code}): identical, {self.calls} calls"
        return f"{self.name} ({self.code}): DIFFERS in {', '.join(self.differs)}"

    def document(self) -> dict[str, Any]:
        """For programs."""
        found = {"name": self.name, "code": self.code, "identical": self.identical}
        found["calls"] = self.calls
        if self.skipped:
            found["skipped"] = self.skipped
        if self.differs:
            found["differs"] = list(self.differs)
        return found


@dataclass
class Ours:
    """What a run gave."""

    ids: Tensor
    order: Tensor | None = None
    next_rand: float | None = None


@dataclass
class Folder:
    """One folder of vectors."""

    path: Path
    case: dict[str, Any] = field(init=False)
    expected: dict[str, Tensor] = field(init=False)
    family: str = field(init=False)

    def __post_init__(self) -> None:
        self.case = json.loads((self.path / "case.json").read_text(encoding="utf-8"))
        self.expected = load_file(self.path / "expected.safetensors")
        self.family = self.case.get("family") or _family(self.path, self.case)
        self._denoiser: Denoiser | None = None

    @property
    def denoiser(self) -> Denoiser:
        """Its network."""
        if self._denoiser is None:
            self._denoiser = _load(self)
        return self._denoiser

    def run(self, run: dict[str, Any]) -> Replayed:
        """Replay one run."""
        code = run.get("code", self.family)
        reason = _older(code)
        if reason:
            return Replayed(run["name"], code, None, None, reason)
        play = played if self.family in DECODERS else _sampled
        play = _blocks if self.family in BLOCKS else play
        try:
            if self.family in CANVASES:
                found = canvas_replay.PLAYS[self.family](self, run)
                differs = tuple(canvas_replay.differences(self, run, found))
                return Replayed(run["name"], code, not differs, found["calls"], None, differs)
            with _Counted(self.denoiser) as counted:
                ours = play(self, run)
        except (strop.UserError, NotImplementedError, KeyError, TypeError) as error:
            said = str(error).strip().splitlines()[0]
            return Replayed(run["name"], code, False, None, None, (said,))
        differs = tuple(_differences(self, run, ours, counted.calls))
        return Replayed(run["name"], code, not differs, counted.calls, None, differs)


def folders(path: Path) -> list[Path]:
    """The folders of vectors at or below a path."""
    if (path / "case.json").is_file():
        return [path]
    return sorted(found.parent for found in path.glob("**/case.json"))


def replay(path: Path, folder: Callable[[Path], Folder] = Folder) -> Iterator[Replayed]:
    """Every run of every folder."""
    for place in folders(path):
        found = folder(place)
        for run in found.case["runs"]:
            yield found.run(run)


class _Counted:
    """Counts the network's calls while it lasts."""

    def __init__(self, denoiser: Denoiser) -> None:
        self.denoiser, self.calls = denoiser, 0

    def __enter__(self) -> _Counted:
        for name in ASKED:
            if hasattr(self.denoiser, name):
                setattr(self.denoiser, name, self._counting(getattr(self.denoiser, name)))
        return self

    def __exit__(self, *_: object) -> None:
        for name in ASKED:
            vars(self.denoiser).pop(name, None)

    def _counting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            return method(*arguments, **options)

        return counting


def _differences(folder: Folder, run: dict[str, Any], ours: Ours, calls: int) -> Iterator[str]:
    wanted = folder.expected[run["expected"]]
    if ours.ids.shape != wanted.shape or not torch.equal(ours.ids, wanted.long()):
        yield "ids"
    if run.get("order"):
        order = folder.expected[run["order"]].long()
        if ours.order is None or not torch.equal(ours.order, order):
            yield "order"
    if "calls" in run and calls != run["calls"]:
        yield f"calls ({calls} instead of {run['calls']})"
    if "next_rand" in run and ours.next_rand != run["next_rand"]:
        yield "next_rand"


def _older(code: str) -> str | None:
    _, _, state = code.partition("@")
    if state in OLDER:
        return f"an older state of Fast-dLLM ({state}); only its current one is followed"
    return None


def _family(path: Path, case: dict[str, Any]) -> str:
    """By the folder's name, or by what it holds."""
    known = ("duo_mdlm", "duo_sedd", "mdlm", "sedd", "didi", "duo")
    for name in known:
        if name in path.resolve().name.replace("-", "_").lower():
            return name
    keys = case.get("param_order", [])
    if "config" in case:
        return "mdlm"
    if "reward_baseline" in keys:
        return "didi"
    if "vocab_embed.embedding" in keys:
        return "sedd"
    predictors = {run.get("options", {}).get("predictor") for run in case["runs"]}
    if predictors & {"ancestral_cache", "ancestral"}:
        return "duo_mdlm"
    return "duo_sedd" if "analytic" in predictors else "duo"


def _load(folder: Folder) -> Denoiser:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a bare state dict says little about itself
        if folder.family not in (*DECODERS, *BLOCKS, *CANVASES):
            kind = folder.family.removeprefix("duo_")
            family = kind if kind in ("sedd", "duo") else None
            weights = folder.path / "weights.safetensors"
            return strop.load_denoiser(weights, family=family, device="cpu")
        with tempfile.TemporaryDirectory() as directory:  # under the names of a hub repository
            shutil.copy(folder.path / "weights.safetensors", f"{directory}/model.safetensors")
            if (folder.path / "generation_config.json").is_file():
                shutil.copy(folder.path / "generation_config.json", directory)
            config = json.loads((folder.path / "config.json").read_text(encoding="utf-8"))
            # Some public configurations leave the mask to the code, which has the release's.
            said = {"mask_token_id": folder.case.get("mask_token_id"), **config}
            Path(directory, "config.json").write_text(json.dumps(said), encoding="utf-8")
            return strop.load_denoiser(directory, device="cpu")


def played(folder: Folder, run: dict[str, Any]) -> Ours:
    """LLaDA, Dream and Fast-dLLM."""
    options = dict(run["options"])
    generator = torch.Generator().manual_seed(run["seed"])
    prompt = folder.expected[run["prompt"]].long()
    length = options.pop("gen_length", None) or options.pop("max_new_tokens", None)
    limit = options.pop("max_length", None)
    options.pop("max_new_tokens", None)
    length = length or run.get("gen_length") or limit - prompt.shape[1]
    starts = _starts(folder, options.pop("attention_mask", None))
    copies = options.pop("num_return_sequences", 1)
    prompt = prompt.repeat_interleave(copies, 0)
    starts = None if starts is None else starts.repeat_interleave(copies, 0)
    for name in SILENT:
        options.pop(name, None)
    ids = torch.nn.functional.pad(prompt, (0, int(length)), value=folder.denoiser.mask_id)
    task = PublicRun(folder.denoiser, ids, prompt.shape[1], generator, starts)
    code, _, _ = run["code"].partition("@")
    with torch.no_grad():
        canvas = _decoder(folder, code, run["sampler"], task, options)
    after = float(torch.rand(1, dtype=torch.float64, generator=generator))
    order = torch.from_numpy(canvas.order[:, prompt.shape[1] :])
    return Ours(canvas.ids, order, after)


GENERATORS: dict[str, tuple[Callable[..., Tensor], type[Any]]] = {
    "sdar": (public_blocks.sdar, public_blocks.SDAROptions),
    "llada2.0": (public_blocks.llada2, public_blocks.LLaDA2Options),
    "llada2.1": (public_blocks.llada2_edit, public_blocks.LLaDA2EditOptions),
    "diffusers": (public_blocks.llada2_pipeline, public_blocks.PipelineOptions),
    "fast-dllm-v2": (public_blocks.fast_dllm_v2, public_blocks.FastV2Options),
}
"""By the public code: ours, and its options."""


def _blocks(folder: Folder, run: dict[str, Any]) -> Ours:
    """SDAR, LLaDA 2 and Fast-dLLM v2."""
    generate, kind = GENERATORS[run["code"]]
    options = {name: value for name, value in run["options"].items() if name not in SILENT}
    generator = torch.Generator().manual_seed(run["seed"])
    seen = run.get("attention_mask")
    text = public_blocks.PublicText(
        cast(BlockDenoiser, folder.denoiser),
        folder.expected[run["prompt"]].long(),
        generator,
        None if seen is None else folder.expected[seen],
    )
    ids = generate(text, kind(**options))
    return Ours(ids, None, float(torch.rand(1, dtype=torch.float64, generator=generator)))


def _decoder(folder: Folder, code: str, sampler: str, task: PublicRun, options: dict[str, Any]):
    if code == "llada":
        stops = (folder.case["eos_token_id"], folder.case.get("eot_token_id"))
        stops = tuple(stop for stop in stops if stop is not None)
        return llada(task, stops=stops, **options)
    if code == "fast-dllm-llada":
        return fast_dllm_llada(task, cache=CACHES[sampler], **options)
    if code == "dream":
        return dream(task, **options)
    if code == "fast-dllm-dream":
        dual = options.pop("dual_cache", False)
        cache: Cache = "dual" if dual else "prefix"
        if sampler != "diffusion_generate_block":
            cache = "none"
        return fast_dllm_dream(task, cache=cache, **options)
    raise NotImplementedError(f"no decoder for {code}")


def _starts(folder: Folder, mask: str | None) -> Tensor | None:
    """The column at which each row of a left-padded batch begins."""
    if mask is None or mask == "ones":
        return None
    return (folder.expected[mask] == 0).sum(1)


def _sampled(folder: Folder, run: dict[str, Any]) -> Ours:
    """The older families, through `strop.draw.sample`."""
    wanted = folder.expected[run["expected"]]
    count, length = wanted.shape
    fields = _SPECS[folder.family](folder, run)
    spec = strop.SamplerSpec(steps=run["steps"], implementation="dense", **fields)
    pool = strop.draw.sample(
        folder.denoiser, spec, n=count, seed=run["seed"], batch_size=count, length=length
    )
    return Ours(torch.from_numpy(pool.ids).long())


def _mdlm(folder: Folder, run: dict[str, Any]) -> dict[str, Any]:
    names = {"ddpm": "ancestral-uncached", "ddpm_cache": "ancestral", "analytic": "analytic"}
    options = {**folder.case.get("config", {}).get("sampling", {}), **run.get("options", {})}
    fields = {"name": names[run.get("predictor") or options["predictor"]], "precision": "float32"}
    return fields if options.get("noise_removal", True) else {**fields, "finish": "none"}


def _duo_code(run: dict[str, Any], name: str) -> dict[str, Any]:
    """What all samplers of the DUO code share."""
    options = run.get("options", {})
    return {
        "name": name,
        "precision": "float64" if options.get("use_float64", True) else "float32",
        "top_p": options.get("p_nucleus", 1.0),
        "finish": {"greedy": "greedy", "none": "none"}.get(
            options.get("noise_removal", ""), "draw"
        ),
    }


def _duo_mdlm(_: Folder, run: dict[str, Any]) -> dict[str, Any]:
    names = {"ancestral_cache": "ancestral-duo", "analytic": "analytic-duo"}
    return _duo_code(run, names[run["options"].get("predictor", "ancestral_cache")])


_SPECS: dict[str, Callable[[Folder, dict[str, Any]], dict[str, Any]]] = {
    "mdlm": _mdlm,
    "sedd": lambda _, run: {"name": f"sedd-{run['options']['predictor']}", "precision": "float32"},
    "didi": lambda _, run: {
        "name": f"didi-{run['options']['predictor']}-literal",
        "precision": "float32",
    },
    "duo": lambda _, run: _duo_code(run, "duo-ancestral"),
    "duo_mdlm": _duo_mdlm,
    "duo_sedd": lambda _, run: _duo_code(run, "sedd-analytic-duo"),
}
