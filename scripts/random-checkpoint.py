"""Write a checkpoint with random weights in a public layout, to try commands without a download.

    python scripts/random-checkpoint.py DIR [--family mdlm|sedd|duo|didi|llada|dream]
        [--shape tiny|small|medium] [--width W --blocks N ...]

Nothing was trained: what it generates is noise. The output bias falls like a Zipf law, so that
token frequencies at least look like those of a language. LLaDA and Dream have no such bias; they
get a tokenizer with a chat template, so that prompts work.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from strop.checkpoints.config import SHAPES
from strop.checkpoints.layout import Layout, write_random
from strop.records import FAMILIES
from strop.registry import resolve


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Write a checkpoint with random weights in a public layout."
    )
    parser.add_argument("directory", type=Path)
    layouts = {name: one.layout for name, one in FAMILIES.items() if one.layout is not None}
    parser.add_argument("--family", choices=layouts, default="mdlm")
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--vocab-size", type=int)
    parser.add_argument("--length", type=int)
    parser.add_argument("--width", dest="hidden_dim", type=int)
    parser.add_argument("--blocks", dest="n_blocks", type=int)
    parser.add_argument("--heads", dest="n_heads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = vars(parser.parse_args())
    directory, seed, family = (options.pop(name) for name in ("directory", "seed", "family"))
    shape = replace(
        SHAPES[options.pop("shape")], **{k: v for k, v in options.items() if v is not None}
    )
    shape = replace(shape, mask_id=shape.vocab_size - 1)

    layout: Layout = resolve(layouts[family])(shape)
    write_random(directory, layout, seed)
    print(f"wrote {directory}")


if __name__ == "__main__":
    main()
