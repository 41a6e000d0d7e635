"""A checkpoint as the public training code writes it, configuration and tokenizer objects included.

Their classes live in modules that exist only while the file is written, as on a reader's machine
that has neither package.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

PUBLIC_CONFIG = {
    "time_conditioning": False,
    "parameterization": "subs",
    "sampling": {"steps": "${training.steps}"},
    "model": {
        "hidden_size": 16,
        "cond_dim": 6,
        "length": 8,
        "n_blocks": 2,
        "n_heads": 2,
        "dropout": 0.1,
    },
}


@contextmanager
def passing_modules(*names: str) -> Iterator[dict[str, type]]:
    """Classes under the given qualified names, importable only within the block."""
    classes, made = {}, []
    for qualified in names:
        module_name, name = qualified.rsplit(".", 1)
        parts = module_name.split(".")
        for package in (".".join(parts[: n + 1]) for n in range(len(parts))):
            if package not in sys.modules:
                sys.modules[package] = ModuleType(package)
                made.append(package)
        classes[name] = type(name, (), {"__module__": module_name})
        setattr(sys.modules[module_name], name, classes[name])
    try:
        yield classes
    finally:
        for module_name in made:
            del sys.modules[module_name]


def config_object(content: Any, kinds: dict[str, type], parent: Any = None) -> Any:
    """A dict as an OmegaConf container: nodes that know their parent and their metadata."""
    node = kinds["DictConfig" if isinstance(content, dict) else "AnyNode"]()
    node.__dict__["_metadata"] = kinds["Metadata"]()
    node.__dict__["_parent"] = parent
    if isinstance(content, dict):
        node.__dict__["_content"] = {k: config_object(v, kinds, node) for k, v in content.items()}
    else:
        node.__dict__["_val"] = content
    return node


def write_training_file(
    path: Path,
    raw: dict[str, Tensor],
    shadow: list[Tensor] | None,
    config: dict[str, Any] | None = None,
) -> Path:
    """Write `raw` as the state dict and `shadow` as the averaged weights."""
    names = (
        "strop_test_omegaconf.dictconfig.DictConfig",
        "strop_test_omegaconf.nodes.AnyNode",
        "strop_test_omegaconf.base.Metadata",
        "strop_test_transformers.tokenization_gpt2_fast.GPT2TokenizerFast",
    )
    with passing_modules(*names) as kinds:
        tokenizer = kinds["GPT2TokenizerFast"]()
        tokenizer.__dict__.update(
            state=b"\xff\x00binary", ranks={("a", "b"): 0}, names={"x"}, size=torch.Size([2])
        )
        state = OrderedDict(raw)
        state._metadata = OrderedDict({"": {"version": 1}})  # type: ignore[attr-defined]
        content = {
            "epoch": 3,
            "global_step": 100,
            "state_dict": state,
            "loops": {"fit_loop": {"state": {}}},
            "optimizer_states": [{"state": {0: {"exp_avg": torch.zeros(3)}}}],
            "hyper_parameters": {
                "config": config_object(PUBLIC_CONFIG if config is None else config, kinds),
                "tokenizer": tokenizer,
            },
        }
        if shadow is not None:
            content["ema"] = {"decay": 0.9999, "num_updates": 7, "shadow_params": shadow}
        torch.save(content, path)
    return path
