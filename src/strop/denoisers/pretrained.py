"""Loading a network of transformers: files, options, and what can go wrong.

Nothing from a checkpoint is run: only weights in safetensors and classes that transformers has.
Options that a user passes on to transformers and that change the numbers are part of the
checkpoint's identity.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from strop.checkpoints import hub
from strop.checkpoints.checkpoint import Located
from strop.checkpoints.config import few
from strop.checkpoints.files import sha256_of_all
from strop.checkpoints.foreign import load_foreign, quiet
from strop.errors import UserError, unknown_name
from strop.spec.generator import CheckpointSpec

DTYPES = ("float32", "bfloat16", "float16")
_ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
# The loader's own: they would run foreign code, or load something other than the checkpoint.
_RESERVED = (
    "config",
    "is_causal",
    "key_mapping",
    "local_files_only",
    "output_loading_info",
    "pretrained_model_name_or_path",
    "revision",
    "state_dict",
    "torch_dtype",
    "trust_remote_code",
    "use_safetensors",
)
# Where the parts lie, not what they compute.
_PLACEMENT = ("device_map", "low_cpu_mem_usage", "max_memory", "offload_buffers", "offload_folder")
_DEFAULTS = {"attn_implementation": "sdpa"}
_FAILURES = (ValueError, KeyError, OSError, RuntimeError, ImportError, TypeError, SafetensorError)


@dataclass(frozen=True)
class LoadOptions:
    """Options of one loading."""

    dtype: str
    """The dtype of the network."""
    passed: dict[str, Any] = field(default_factory=dict)
    """Handed to `from_pretrained` as they are."""
    adapter: Path | None = None
    """The directory of a PEFT adapter, which transformers adds to the network."""
    identity: int | None = None
    """A hash of everything that changes the numbers beside the dtype; None where nothing does."""

    @property
    def placed(self) -> bool:
        """Whether transformers decides where the network lies."""
        return any(name in self.passed for name in ("device_map", "quantization_config"))


def load_options(load: Mapping[str, Any] | None, dtype: str) -> LoadOptions:
    """Sort the options: the loader's own are refused, the others handed on.

    `dtype` is what the caller wants anyway. `load["dtype"]` may name another where that is the
    default. `load["adapter"]` is a directory with a PEFT adapter.
    """
    passed = dict(load or {})
    reserved = [name for name in passed if name in _RESERVED]
    if reserved:
        raise UserError(
            f"The loader sets {reserved[0]!r} itself.",
            where="`load`",
            got=f"{reserved[0]}={passed[reserved[0]]!r}"[:120],
            fix="leave it out; `dtype`, `device_map`, `attn_implementation`, "
            "`quantization_config` and `adapter` may be given",
        )
    dtype = _dtype(passed.pop("dtype", None), dtype)
    adapter = passed.pop("adapter", None)
    directory = None if adapter is None else _adapter(adapter)
    identifying = {k: v for k, v in passed.items() if k not in _PLACEMENT and v != _DEFAULTS.get(k)}
    hashable = {name: _plain(name, value) for name, value in identifying.items()}
    if directory is not None:
        hashable["adapter"] = sha256_of_all([directory / name for name in _ADAPTER])
    return LoadOptions(dtype, passed, directory, hashed(hashable) if hashable else None)


def _dtype(option: Any, argument: str) -> str:
    if option is None:
        return argument
    name = str(option).removeprefix("torch.")
    if name not in DTYPES:
        raise unknown_name("network dtype", name, DTYPES, where="`load`: dtype")
    if argument not in ("float32", name):
        raise UserError(
            "Two dtypes are given.",
            where="`load`: dtype",
            got=f"{name}, and {argument} as `dtype`",
            fix="give one of them",
        )
    return name


def _adapter(source: Any) -> Path:
    directory = Path(str(source)).expanduser()
    missing = [name for name in _ADAPTER if not (directory / name).is_file()]
    if missing:
        raise UserError(
            "There is no adapter in this directory.",
            where=directory,
            got=f"no {missing[0]}",
            expected=" and ".join(_ADAPTER),
            fix="pass the local directory of a PEFT adapter saved in safetensors format",
        )
    return directory


def _plain(name: str, value: Any) -> Any:
    """An option as data that can be hashed; transformers' own objects can say theirs."""
    plain = value.to_dict() if hasattr(value, "to_dict") else value
    try:
        json.dumps(plain)
    except (TypeError, ValueError) as error:
        raise UserError(
            "An option for transformers cannot be written as JSON, so it cannot be part of an id.",
            where=f"`load`: {name}",
            got=first_line(error),
            expected="text, numbers, true or false, or an object of these",
        ) from error
    return plain


CONFIG = "config.json"


def directory_of(located: Located) -> Path:
    """The directory that a model's files lie in."""
    return located.path if located.path.is_dir() else located.path.parent


def pinned(located: Located) -> str:
    """The source as the user wrote it, with the hub's commit where there is one."""
    if located.revision is None:
        return located.source
    return f"{located.source.partition('@')[0]}@{located.revision}"


def weight_files(directory: Path) -> list[Path]:
    """The weights in safetensors, all shards of them; a pickle would be code."""
    single, index = directory / hub.WEIGHTS, directory / hub.INDEX
    if single.is_file():
        return [single]
    if not index.is_file():
        raise UserError(
            "The model has no weights in safetensors format.",
            where=directory,
            expected=f"{hub.WEIGHTS} or {hub.INDEX}",
            fix="save it with `model.save_pretrained(DIRECTORY)`",
        )
    files = [directory / name for name in hub.shard_names(index)]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise UserError(
            "A part of the weights is missing.",
            where=directory,
            got=f"no {few(missing)}",
            expected=f"every file that {hub.INDEX} names",
            fix="finish the download",
        )
    return files


def load_network(
    name: str, directory: Path, options: LoadOptions, device: torch.device, kind: str, **fixed: Any
) -> Any:
    """The network of a class of transformers by name, complete and where it belongs."""
    passed = dict(options.passed)
    if options.placed:
        passed.setdefault("device_map", {"": str(device)})

    def load() -> Any:
        return load_foreign(
            name,
            directory,
            dtype=getattr(torch, options.dtype),
            use_safetensors=True,
            output_loading_info=True,
            **fixed,
            **passed,
        )

    network = complete(load, kind, directory)
    if options.adapter is not None:
        _adapt(network, options.adapter)
    return network if options.placed else network.to(device)


def _adapt(network: Any, directory: Path) -> None:
    """Add a PEFT adapter; transformers does it, and renames its keys like the weights'."""
    try:
        with quiet():
            network.load_adapter(str(directory), local_files_only=True)
    except (ValueError, KeyError, OSError, RuntimeError, ImportError, TypeError) as error:
        raise UserError(
            "transformers cannot add this adapter.",
            where=directory,
            got=first_line(error),
            fix="check the adapter and, if it is missing, `pip install peft`",
        ) from error


def spec_of(
    family: str, files: Sequence[Path], shape: Mapping[str, Any], options: LoadOptions
) -> CheckpointSpec:
    """The identity of a checkpoint, from its files and options."""
    load_identity = {} if options.identity is None else {"load": options.identity}
    sha256 = sha256_of_all(files)
    return CheckpointSpec(
        family=family, sha256=sha256, shape={**shape, **load_identity}, network_dtype=options.dtype
    )


def complete(load: Callable[[], Any], kind: str, directory: Path) -> Any:
    """The network that `load` makes with its loading report, if nothing is left at a random start.

    `kind` says in a message what the network is.
    """
    try:
        network, report = load()
    except _FAILURES as error:
        raise UserError(
            f"transformers cannot load this {kind}.",
            where=directory,
            got=first_line(error),
            expected="an architecture that transformers itself has, and weights that fit it",
            fix="check the directory and the options, or upgrade transformers",
        ) from error
    lacking = sorted(map(str, {*report["missing_keys"], *report.get("mismatched_keys", ())}))
    if lacking:
        raise UserError(
            f"The weights do not fit the {kind}.",
            where=directory,
            got=f"missing or misshapen: {few(lacking)}",
            fix="download the weights again, or correct config.json",
        )
    bad = [name for name, tensor in network.named_parameters() if not _finite(tensor)]
    if bad:
        raise UserError(
            "The checkpoint holds weights that are not finite numbers.",
            where=directory,
            got=few(bad),
            fix="download the weights again, or correct config.json",
        )
    return network


def _finite(tensor: torch.Tensor) -> bool:
    # Parts that were left on the disk have no values here, and packed ones are whole numbers.
    if tensor.is_meta or not tensor.is_floating_point() or tensor.element_size() < 2:
        return True
    return bool(tensor.isfinite().all())  # waits


def first_line(error: Exception) -> str:
    """The first line of another library's error, short enough for a message."""
    text = str(error).strip()
    if not text or isinstance(error, KeyError):  # whose text is a bare word
        return f"{type(error).__name__} {text}".strip()[:200]
    return text.splitlines()[0][:200]


def hashed(content: Mapping[str, Any]) -> int:
    """48 bits of a hash of plain data, for the numbers of a checkpoint's shape."""
    text = json.dumps(content, sort_keys=True)
    return int(hashlib.sha256(text.encode()).hexdigest()[:12], 16)
