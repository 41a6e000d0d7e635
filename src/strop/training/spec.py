"""What a training run depends on, as one frozen value.

A `TrainSpec` is a YAML file with defaults filled in. Where the text comes from, what the network
looks like and how it is optimised are in it; devices, threads and directories are not, because the
result should not hang on them.
"""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import model_validator

from strop.errors import UserError, unknown_name
from strop.spec.value import Spec
from strop.store import read_mark
from strop.store.folder import load_yaml

CONFIGS = Path(str(resources.files("strop"))) / "assets" / "configs"

MOST_TOKENS = 1_000_000
"""The tokenizer's library sets memory aside for all of them at once, and aborts if it cannot."""


OWN_OBJECTIVE = {"ar": "causal", "llada": "llada"}
"""The default objective of each family."""


INFINITE = float("inf")


def _within(
    spec: Spec,
    names: str,
    low: float,
    high: float = INFINITE,
    *,
    above: bool = False,
    below: bool = False,
) -> None:
    """Refuse set fields outside of two bounds, which `above` and `below` exclude."""
    for field in names.split():
        value = getattr(spec, field)
        if value is None or (
            (low < value if above else low <= value) and (value < high if below else value <= high)
        ):
            continue
        ends = f"{'above' if above else 'at least'} {low:g}"
        if high != INFINITE:
            ends += f" and {'below' if below else 'at most'} {high:,}"
        where = f"{type(spec).__name__}.{field}"
        raise UserError(f"{where} is out of range.", where=where, got=value, expected=ends)


class SourceSpec(Spec):
    """Documents from local files or from a hub dataset."""

    name: str
    path: str | None = None
    """A text file, a gzipped one, or a directory of such; relative to the data root."""
    dataset: str | None = None
    """A dataset of the hub, streamed; or a format (`json`, `text`, `parquet`) with `files`."""
    revision: str | None = None
    split: str = "train"
    column: str = "text"
    """The field of a dataset's row that holds the document."""
    files: tuple[str, ...] = ()
    """Of a dataset given by its format: its files, relative to the data root."""
    licence: str
    """Recorded in the manifest and in every model card."""
    separator: str | None = "<|endoftext|>"
    """A line that stands between two documents of a file; a line break: every line is a document;
    null: every file is one."""
    skip: tuple[str, ...] = ()
    """Regular expressions; a document whose beginning matches one is left out."""
    repeat: int = 1
    """How often its rows count in an epoch."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.path is None) == (self.dataset is None):
            raise UserError(
                "A source is either a path or a dataset.",
                where=f"data.sources: {self.name}",
                got=f"path={self.path!r}, dataset={self.dataset!r}",
            )
        _within(self, "repeat", 1)
        return self


class HeldOut(Spec):
    """Which documents training never sees, decided before anything reads them."""

    every: int | None = None
    """Of every source, each document whose number is a multiple of this."""
    last: int | None = None
    """Of every source, that many documents at its end, as the public code splits OpenWebText."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.every is None) == (self.last is None):
            raise UserError(
                "Held-out documents need exactly one rule.",
                where="data.held_out",
                got=self.canonical(),
                expected="either every: N or last: N",
            )
        _within(self, "every", 2)
        _within(self, "last", 1)
        return self


class DataSpec(Spec):
    """From documents to rows of token ids."""

    younger = ("response",)
    sources: tuple[SourceSpec, ...] = ()
    held_out: HeldOut = HeldOut(every=20)
    clean: Literal["none", "prose"] = "none"
    """`prose`: plain quotes and ASCII, paragraphs unwrapped, headings and notices dropped."""
    tokenizer: str = "gpt2"
    """`gpt2`, `bpe` (trained here, on training documents), or a directory with a tokenizer."""
    bpe_size: int = 4096
    """Tokens of `bpe`, end-of-text included, the mask not."""
    rows: Literal["wrapped", "packed", "sentences", "pairs"] = "wrapped"
    """`wrapped` as in the public code, `packed` end to end, `sentences` from sentence starts;
    `pairs`: every document is a JSON object with `prompt` and `response`."""
    response: int | None = None
    """Tokens of the response in a row of `pairs`; end-of-texts fill it up, and count."""
    length: int = 1024
    """Tokens in a row."""
    keep: float = 1.0
    """The simplest share of rows: those of lowest unigram surprise, measured on training rows."""
    keep_all_of: tuple[str, ...] = ()
    """Sources that the filter leaves whole."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _within(self, "length", 4)
        _within(self, "bpe_size", 257, MOST_TOKENS)
        _within(self, "keep", 0, 1, above=True)
        names = [source.name for source in self.sources]
        if len(set(names)) != len(names):
            raise UserError("Two sources have the same name.", where="data.sources", got=names)
        for name in self.keep_all_of:
            if name not in names:
                raise unknown_name("source", name, names, where="data.keep_all_of")
        if (self.rows == "pairs") != (self.response is not None):
            raise UserError(
                "`response` and rows of pairs must be set together.",
                where="data.response",
                got=f"rows: {self.rows}, response: {self.response}",
            )
        _within(self, "response", 1, self.length - 1)
        return self


class ModelSpec(Spec):
    """The network; its vocabulary is the tokenizer's, plus the mask for diffusion."""

    younger = ("block_size",)
    family: Literal["mdlm", "bd3lm", "llada", "ar"] = "mdlm"
    """`mdlm`: masked diffusion. `bd3lm`: the same network, block by block. `llada`: masked
    diffusion with a Llama that looks both ways, in LLaDA's layout. `ar`: a causal language model
    that transformers loads."""
    hidden_dim: int = 768
    n_blocks: int = 12
    n_heads: int = 12
    cond_dim: int = 128
    dropout: float = 0.1
    time_conditioning: bool = False
    init: Literal["public", "local"] = "public"
    """`local`: gates open, output bias at unigram frequencies, heads at the nearest neighbours."""
    vocab_size: int | None = None
    """Classes, the mask included. Left out, the tokenizer decides; given, it must fit."""
    block_size: int | None = None
    """Tokens per block of `bd3lm`; the public checkpoints have 4, 8 and 16. A block as long as the
    row is masked diffusion of the whole row."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _within(self, "hidden_dim n_blocks n_heads cond_dim", 1)
        _within(self, "dropout", 0, 1, below=True)
        if self.hidden_dim % self.n_heads or (self.hidden_dim // self.n_heads) % 2:
            raise UserError(
                "The number of heads does not fit the width.",
                where="model.n_heads",
                got=f"{self.n_heads} heads, width {self.hidden_dim}",
                expected="a width that splits into heads of an even size",
            )
        if (self.family == "bd3lm") != (self.block_size is not None):
            raise UserError(
                "A block size and the family bd3lm must be set together.",
                where="model.block_size",
                got=f"family: {self.family}, block_size: {self.block_size}",
                fix="set model.block_size to, for example, 4, 8 or 16, with model.family: bd3lm",
            )
        _within(self, "block_size", 1)
        if self.family == "bd3lm" and self.time_conditioning:
            raise UserError(
                "A block diffusion network does not see the noise level.",
                where="model.time_conditioning",
                expected="false",
            )
        if self.family in ("llada", "ar") and (self.time_conditioning or self.init != "public"):
            raise UserError(
                "A Llama has no noise level and only one initialisation.",
                where="model",
                expected="time_conditioning: false and init: public",
            )
        return self


class TrainSpec(Spec):
    """A training run: data, network, objective, optimiser, what is kept."""

    name: str
    seed: int = 1
    model: ModelSpec = ModelSpec()
    data: DataSpec = DataSpec()
    start: str | None = None
    """A checkpoint to begin with instead of new weights, as `strop sample` takes it: a directory,
    `embedded:NAME`, a hub id. Family, shape and tokenizer must be the run's; optimiser and schedule
    begin anew."""
    objective: Literal["public", "any-order", "llada", "causal"] = "public"
    """`public`: t uniform on [1e-3, 1], weight 1/t. `any-order`: mask count uniform, weight 1/k.
    `llada`: as `public`, with LLaDA's masking; see `strop.training.model`."""
    steps: int | None = None
    """Optimizer steps; may be left out if `minutes` says when to end."""
    minutes: float | None = None
    """Training time, over all sessions; it then sets the schedule's end. Not reproducible to the
    bit, because clocks are not: a run with `steps` alone is."""
    batch: int = 512
    """Sequences per optimizer step, over all devices."""
    micro_batch: int | None = None
    """Sequences per forward pass; divides `batch`. Left out: the whole batch."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """`muon`: Muon for the blocks' matrices, AdamW for everything else."""
    lr: float = 3e-4
    muon_lr: float = 0.02
    """Of the matrices, with `muon`; it follows the same schedule."""
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    warmup: int = 2500
    """Steps of linear warm-up."""
    decay: Literal["constant", "cosine", "linear"] = "constant"
    decay_from: float = 0.0
    """Share of the run after which the rate falls."""
    decay_to: float = 0.0
    """The rate at the end, as a share of `lr`."""
    clip: float = 1.0
    """Largest norm of the gradient."""
    ema: float = 0.9999
    """Decay of the averaged weights, with the public warm-up min(decay, (1 + n) / (10 + n))."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the matrix products; `auto` is bfloat16 on CUDA and float32 on the CPU."""
    compile: bool = False
    """Whether torch compiles the blocks: a minute at the start, faster steps, other rounding. On
    the CPU it needs a C++ compiler."""
    keep_steps: tuple[int, ...] = ()
    """Checkpoints to keep, by step."""
    keep_every: int | None = None
    """Keep a checkpoint every so many steps."""
    keep_shares: tuple[float, ...] = ()
    """Checkpoints to keep, by share of the run; the last one is always kept."""
    save_every: int | None = None
    """Steps between resume states; `save_minutes` holds as well."""
    save_minutes: float = 10.0
    eval_every: int = 1000
    """Steps between held-out measurements."""
    eval_rows: int = 256
    final_rows: int = 2048
    """Held-out rows of the last measurement."""
    log_every: int = 10

    @model_validator(mode="before")
    @classmethod
    def _objective_of_family(cls, data: Any) -> Any:
        if isinstance(data, dict) and "objective" not in data:
            model = data.get("model", {})
            family = model.get("family") if isinstance(model, dict) else model.family
            if family in OWN_OBJECTIVE:
                data = {**data, "objective": OWN_OBJECTIVE[family]}
        return data

    @model_validator(mode="after")
    def _check(self) -> Self:
        _within(self, "batch eval_every eval_rows final_rows log_every", 1)
        _within(self, "steps micro_batch keep_every save_every", 1)
        _within(self, "lr muon_lr clip eps save_minutes minutes", 0, above=True)
        _within(self, "warmup seed weight_decay", 0)
        _within(self, "ema decay_from", 0, 1, below=True)
        _within(self, "decay_to", 0, 1)
        if self.steps is None and self.minutes is None:
            raise UserError("The run has no end.", where="TrainSpec", expected="steps or minutes")
        if self.batch % self.micro:
            raise UserError(
                "The batch is not a multiple of the micro-batch.",
                where="TrainSpec.micro_batch",
                got=f"batch {self.batch}, micro_batch {self.micro}",
            )
        if (self.objective == "causal") != (self.model.family == "ar"):
            raise UserError(
                "Objective and family do not go together.",
                where="TrainSpec.objective",
                got=f"{self.objective!r} for {self.model.family!r}",
                expected="causal for ar; public, any-order or llada for the others",
            )
        if self.data.response is not None and self.model.family in ("mdlm", "bd3lm"):
            raise UserError(
                "This family learns from text without prompts.",
                where="model.family",
                got=self.model.family,
                expected="llada or ar, with rows: pairs",
            )
        if self.objective in ("any-order", "llada") and self.model.time_conditioning:
            raise UserError(
                f"The {self.objective} form has no noise level to condition on.",
                where="TrainSpec.objective",
                expected="objective: public, or model.time_conditioning: false",
            )
        for share in self.keep_shares:
            if not 0 < share <= 1:
                raise UserError(
                    "A share of the run lies between 0 and 1.",
                    where="TrainSpec.keep_shares",
                    got=share,
                )
        return self

    @property
    def micro(self) -> int:
        """Sequences per forward pass."""
        return self.batch if self.micro_batch is None else self.micro_batch


def config_names() -> list[str]:
    """The configurations that ship with the package."""
    return sorted(path.stem for path in CONFIGS.glob("*.yaml"))


def read_spec(
    config: str | os.PathLike[str] | dict[str, Any] | TrainSpec,
    changes: dict[str, Any] | None = None,
) -> TrainSpec:
    """A spec from a YAML file, the name of a shipped configuration, a training run, a mapping.

    `changes` replaces single values by dotted keys, e.g. {"model.n_blocks": 2}.
    """
    if isinstance(config, TrainSpec):
        tree = config.model_dump(mode="json")
    elif isinstance(config, dict):
        tree = config
    elif (mark := read_mark(config)) is not None and mark.kind == "training":
        tree = dict(mark.asked)
    else:
        tree = _read_yaml(_find(os.fspath(config)))
    for key, value in (changes or {}).items():
        tree = _changed(tree, key.split("."), value, key)
    return TrainSpec(**tree)


def _find(text: str) -> Path:
    path = Path(text).expanduser()
    if path.is_file():
        return path
    shipped = CONFIGS / f"{text}.yaml"
    if text in config_names():
        return shipped
    raise unknown_name(
        "configuration",
        text,
        config_names(),
        fix="pass a YAML file, a training run, or the name of a shipped configuration",
    )


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        tree = load_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise UserError(
            "The configuration cannot be read.", where=path, got=str(error).replace("\n", " ")
        ) from None
    if not isinstance(tree, dict):
        raise UserError("The configuration is not a mapping.", where=path, got=type(tree).__name__)
    return {str(key): value for key, value in tree.items()}


def _changed(tree: Any, keys: list[str], value: Any, path: str) -> dict[str, Any]:
    if not isinstance(tree, dict):
        raise UserError("There is no such key in the configuration.", where=path)
    if len(keys) == 1:
        return {**tree, keys[0]: value}
    return {**tree, keys[0]: _changed(tree.get(keys[0], {}), keys[1:], value, path)}
