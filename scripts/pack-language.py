"""Pack a checkpoint that learned a language, with a card that says how far it is from the law.

    python scripts/pack-language.py RUN OUT --name NAME --language even --shards DIR [--share 0.3]

Stores float16 and checks that the held-out loss is unchanged to three digits. The loss minus -log P
of the same texts is the predictor's own error: the continuous-time loss of the exact predictive
laws is -log P.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from packing import pack
from strop.disk import write
from strop.language import Language
from strop.training.documents import Shards
from strop.training.run import TrainingRun

ROWS = 512


def main() -> None:
    parser = argparse.ArgumentParser(description="Pack a training run of a language.")
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--language", default="even")
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--share", type=float, help="a kept checkpoint, by its share of the run")
    options = parser.parse_args()
    run, shards = TrainingRun(options.run), Shards(options.shards)
    kept = run.checkpoints()
    step = max(kept)
    if options.share is not None:
        step = min(kept, key=lambda one: abs(one - options.share * max(kept)))
    packed = pack(kept[step], options.out, shards, seed=1, rows=ROWS)
    language, loss = Language.load(options.language), packed.after.nats_per_token
    count = min(ROWS, len(shards.held_out))
    texts = shards.held_out[np.arange(count)][:, -language.length :]
    floor = float(-language.log_p(texts).mean()) / language.length
    logged = [e for e in run.metrics() if e["kind"] == "train" and e["step"] <= step]
    minutes = (logged[-1]["seconds"] if logged else 0.0) / 60
    kind = "causal" if run.spec.model.family == "ar" else "masked diffusion"
    card = f"""# embedded:{options.name}

A {kind} model of {packed.parameters:,} parameters that learned the language `{options.language}` of
`strop.language` from exact texts, trained by `scripts/train-language.sh`. It goes on from the token
`Story:`, which stands before every text.

- Held out: {loss.value:.4f} nats per word {loss.span(".4f")}, {packed.after.rows} texts, 95% over
  texts. -log P of held-out texts is {floor:.4f}: the rest is the predictor's own error.
- Stored in float16, which changes the loss by {packed.change:+.6f}.
- Step {step:,} of {max(kept):,}, {run.spec.batch} texts each; {minutes:.0f} minutes of training on
  one thread of a busy machine.

Knows these {language.mask_id} words and nothing else.

```json
{json.dumps(run.spec.model_dump(mode="json"), indent=1)}
```
"""
    write(options.out / "README.md", card.encode())
    size = packed.bytes / 1e6
    print(f"{options.out}: step {step:,}, {size:.2f} MB, {loss.value:.4f} nats (law {floor:.4f})")


if __name__ == "__main__":
    main()
