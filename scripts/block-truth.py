"""Block against full diffusion, measured with the law of the language that both have learned.

    python scripts/block-truth.py CHECKPOINT... [-n 128] [--block 0] [--calls 25,50,0] [--tau 1]

Prints a line per checkpoint, block length (0: its own), temperature and number of calls, which are
spread over the blocks of a text; 0: one position a call. A token that is no word counts as a
violation, and as any word otherwise. Perplexity is that of the true law, per word.
"""

from __future__ import annotations

import argparse
from itertools import product
from typing import Any

import numpy as np

import strop
from strop.language import Language
from strop.language.reading import DRAWS, truth
from strop.measure.entropy import entropy
from strop.stats.interval import Interval
from strop.stats.resample import bootstrap, mean

AXES = ("block", "tau", "calls")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT")
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("--block", default="0")
    parser.add_argument("--calls", default="25,50,0")
    parser.add_argument("--tau", default="1")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    language = Language.load("even")
    known = language.entropy(DRAWS)
    print("| block | tau | calls | violations | without | modes | entropy | perplexity | no word |")
    print("|---|---|---|---|---|---|---|---|---|")
    for source in options.checkpoints:
        model: Any = strop.load_denoiser(source, device="cpu")
        for block, tau, calls in product(*(getattr(options, one).split(",") for one in AXES)):
            block = int(block) or model.block_length
            blocks = -(-model.length // block)
            grid = {"update": "grid"} if int(calls) else {}
            spec = strop.SamplerSpec(
                name="bd3lm",
                steps=max(1, int(calls) // blocks),
                temperature=float(tau),
                settings={"redraw": "never", "block_length": block, **grid},
            )
            print(_line(model, spec, language, known, options), flush=True)


def _line(
    model: Any,
    spec: strop.SamplerSpec,
    language: Language,
    known: Interval,
    options: argparse.Namespace,
) -> str:
    pool = strop.draw.sample(model, spec, n=options.n, seed=options.seed, batch_size=options.n)
    first = int(getattr(model, "start_id", None) is not None)
    ids = pool.ids[:, first : language.length + first]
    strange = ids >= language.mask_id
    words = np.where(strange, language.mask_id, ids)
    found = truth(words, language, known)
    wrong = bootstrap(mean(language.violations(words) + strange.sum(1)))
    spread = bootstrap(mean(entropy(ids)))
    perplexity = found.surprise.mapped(lambda nats: float(np.exp(nats / language.length)))
    cells = (
        f"{spec.settings['block_length']}",
        f"{spec.temperature:g}",
        f"{pool.nfe.mean():.0f}",
        f"{wrong:.2f}",
        f"{found.without:.2f}",
        f"{found.effective_modes:.1f}",
        f"{spread:.3f}",
        f"{perplexity:.2f}",
        f"{strange.mean():.4f}",
    )
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
