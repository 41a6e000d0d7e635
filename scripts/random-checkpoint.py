"""Write a checkpoint with random weights in a public layout, to try commands without a download.

    python scripts/random-checkpoint.py DIR [--family mdlm|sedd|duo|didi|llada|dream]
        [--shape tiny|small|medium] [--width W --blocks N ...]

Nothing was trained: what it generates is noise. The output bias falls like a Zipf law, so that
token frequencies at least look like those of a language. LLaDA and Dream have no such bias; they
get a tokenizer with a chat template, so that prompts work.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from strop.assets import CHECKPOINT, embedded_path
from strop.checkpoints.config import SHAPES, DiTShape, expected_tensors
from strop.checkpoints.transformer import TransformerShape, checked_shape
from strop.denoisers import dream, llada
from strop.denoisers.discriminator import discriminator_tensors
from strop.denoisers.tokenizer import TextCodec
from strop.facts import DIFFUSION

HUB_NAMES = {"length": "model_length"}
LARGE = {"llada": llada, "dream": dream}
END = "<|endoftext|>"


def random_tensors(
    sizes: dict[str, tuple[int, ...]], seed: int, prefix: str
) -> dict[str, torch.Tensor]:
    """Weights of a moderate size for every tensor, under the layout's keys."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for key, size in sizes.items():
        if "norm" in key or "ln_f" in key:
            value = torch.ones(size)
        elif key == "output_layer.linear.bias":
            rank = torch.randperm(size[0], generator=generator).float()
            value = -(rank + 2).log()
        else:
            value = torch.randn(size, generator=generator) * (0.5 if len(size) == 1 else 1.0)
            value = value / (size[-1] ** 0.5 if len(size) == 2 else 10.0)
        tensors[prefix + key] = value
    for key in [k for k in tensors if k.endswith("weight_orig")]:
        left, scale, right = torch.linalg.svd(tensors[key], full_matrices=False)
        tensors[key.replace("_orig", "_u")] = left[:, 0].contiguous()
        tensors[key.replace("_orig", "_v")] = right[0].contiguous()
        tensors[key] = tensors[key] / scale[0]
    return tensors


def configuration(family: str, shape: DiTShape) -> dict[str, Any]:
    """config.json as the family's release has it."""
    flat = {HUB_NAMES.get(name, name): value for name, value in vars(shape).items()}
    if family == "sedd":
        names = ("cond_dim", "length", "n_blocks", "n_heads", "dropout")
        model = {"name": "random", "type": "ddit", "hidden_size": shape.hidden_dim}
        model |= {name: getattr(shape, name) for name in names} | {"scale_by_sigma": True}
        graph, noise = {"type": "absorb"}, {"type": "loglinear"}
        return {"tokens": shape.vocab_size - 1, "graph": graph, "noise": noise, "model": model}
    if family == "duo":
        kept = {k: v for k, v in flat.items() if k not in ("mask_id", "time_conditioning")}
        return {"model_type": "duo", **kept, "causal": False, "var_min": True}
    return flat


def large_tokenizer(family: str) -> tuple[dict[str, Any], dict[str, int]]:
    """The embedded tokenizer with a family's special tokens, and the ids of those."""
    content = json.loads(TextCodec.from_directory(embedded_path(CHECKPOINT)).to_json())
    vocabulary = content["model"]["vocab"]
    specials = {END: vocabulary[END]}
    for token in LARGE[family].SPECIAL:
        specials.setdefault(token, len(vocabulary) + len(specials) - 1)
    common = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    content["added_tokens"] = [
        {"id": number, "content": token, **common, "special": True}
        for token, number in sorted(specials.items(), key=lambda item: item[1])
    ]
    return content, specials


def tokenizer_files(family: str, content: dict[str, Any]) -> dict[str, str]:
    """The tokenizer in the files of the family's release; Dream has pairs, LLaDA one file."""
    added = content["added_tokens"]
    said = {
        "added_tokens_decoder": {str(one["id"]): dict(list(one.items())[1:]) for one in added},
        "bos_token": LARGE[family].SPECIAL[0],
        "eos_token": END,
        "pad_token": END,
        "chat_template": LARGE[family].CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }
    if family == "llada":
        config = {**said, "tokenizer_class": "PreTrainedTokenizerFast"}
        files = {"tokenizer.json": json.dumps(content, ensure_ascii=False)}
    else:
        mask = LARGE[family].SPECIAL[2]
        config = {**said, "mask_token": mask, "tokenizer_class": "Qwen2Tokenizer"}
        pairs = [" ".join(p) if isinstance(p, list) else p for p in content["model"]["merges"]]
        files = {
            "vocab.json": json.dumps(content["model"]["vocab"], ensure_ascii=False),
            "merges.txt": "\n".join(["#version: 0.2", *pairs]) + "\n",
        }
    return {**files, "tokenizer_config.json": json.dumps(config, indent=2)}


def write_large(family: str, directory: Path, seed: int, options: dict[str, Any]) -> None:
    """LLaDA or Dream; with a vocabulary too small for the tokenizer, ids only."""
    content, specials = large_tokenizer(family)
    known = len(content["model"]["vocab"]) + len(specials) - 1
    vocabulary = options["vocab_size"] or known
    texts = vocabulary >= known
    heads, width = options["n_heads"] or 4, options["hidden_dim"] or 128
    shape = TransformerShape(
        vocab_size=vocabulary,
        length=options["length"] or 2048,
        width=width,
        n_blocks=options["n_blocks"] or 4,
        n_heads=heads,
        n_kv_heads=heads // 2 if family == "dream" and heads % 2 == 0 else heads,
        mlp_width=3 * width,
        norm_eps=1e-5 if family == "llada" else 1e-6,
        rope_theta=5e5 if family == "llada" else 1e6,
        mask_id=specials[LARGE[family].SPECIAL[2]] if texts else vocabulary - 1,
    )
    checked_shape(shape, directory)
    config, sizes = LARGE[family].layout(shape, specials[END])
    tensors = random_tensors(sizes, seed, "")
    head = "model.transformer.ff_out.weight" if family == "llada" else "lm_head.weight"
    tensors[head][shape.mask_id] = 0.0  # a trained model never predicts the mask
    save_file(tensors, directory / "model.safetensors")
    for name, text in (tokenizer_files(family, content) if texts else {}).items():
        (directory / name).write_text(text)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Write a checkpoint with random weights in a public layout."
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--family", choices=sorted({*DIFFUSION, *LARGE}), default="mdlm")
    parser.add_argument("--shape", choices=SHAPES, help="tiny, unless LLaDA or Dream")
    parser.add_argument("--vocab-size", type=int)
    parser.add_argument("--length", type=int)
    parser.add_argument("--width", dest="hidden_dim", type=int)
    parser.add_argument("--blocks", dest="n_blocks", type=int)
    parser.add_argument("--heads", dest="n_heads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = vars(parser.parse_args())
    directory, seed, family = (options.pop(name) for name in ("directory", "seed", "family"))
    name = options.pop("shape")
    directory.mkdir(parents=True, exist_ok=True)
    if family in LARGE:
        if name is not None:
            parser.error(f"--shape is not for {family}; use --width, --blocks and --heads")
        write_large(family, directory, seed, options)
        print(f"wrote {directory}")
        return
    shape = replace(SHAPES[name or "tiny"], **{k: v for k, v in options.items() if v is not None})
    shape = replace(shape, mask_id=shape.vocab_size - 1)

    prefix = "" if family in ("sedd", "didi") else "backbone."
    save_file(
        random_tensors(expected_tensors(shape), seed, prefix), directory / "model.safetensors"
    )
    if family == "didi":
        judge = random_tensors(discriminator_tensors(shape), seed + 1, "")
        save_file(judge, directory / "discriminator.safetensors")
    config = configuration(family, shape)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    print(f"wrote {directory}")


if __name__ == "__main__":
    main()
