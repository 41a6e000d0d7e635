"""Pack a training run of block diffusion on a language as a small model with a card.

    python scripts/pack-blocks.py RUN OUT --shards DIR [--name even-block] [--rows 500]

Stores float16 and checks that the held-out loss is unchanged to three digits.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from packing import pack
from strop.disk import write
from strop.training.documents import Shards
from strop.training.run import TrainingRun


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--name", default="even-block")
    parser.add_argument("--rows", type=int, default=500, help="held-out rows")
    options = parser.parse_args()
    run, shards = TrainingRun(options.run), Shards(options.shards)
    step, spec = max(run.checkpoints()), run.spec
    packed = pack(run.checkpoints()[step], options.out, shards, seed=1, rows=options.rows)
    nats = packed.after.nats_per_token
    minutes = max(one["seconds"] for one in run.metrics() if one["kind"] == "train") / 60
    lines = [
        f"# embedded:{options.name}",
        "",
        f"BD3-LM of {packed.parameters:,} parameters in blocks of {spec.model.block_size}, on "
        "texts of the language `even`, whose law is known (docs/language.md), by "
        "`scripts/train-blocks.sh`. A row is an end of text, 96 words and three ends.",
        "",
        "## Numbers",
        f"- Held out: {nats:.4f} nats per token, {packed.after.rows} rows, the any-order form of "
        "the negative ELBO within blocks, 95% interval from resampled rows.",
        f"- Stored in float16, which changes that by {packed.change:+.6f}.",
        f"- {step:,} steps of {spec.batch} rows, {minutes:.0f} minutes of a busy core.",
        "- What it writes, against the law of the language: docs/families/bd3lm.md.",
        "",
        "## Recipe",
        "```json",
        json.dumps(spec.model_dump(mode="json"), indent=1),
        "```",
        "",
        "## Limits",
        "Knows this language and nothing else. A few minutes of training: it gets words wrong.",
    ]
    write(options.out / "README.md", ("\n".join(lines) + "\n").encode())
    print(f"{options.out}: step {step:,}, {packed.bytes / 1e6:.2f} MB, held out {nats:.4f}")


if __name__ == "__main__":
    main()
