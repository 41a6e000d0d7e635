"""Block against full diffusion, measured with the law of the language that both have learned.

    python scripts/block-truth.py CHECKPOINT... [-n 128] [--calls 25,50,0] [--tau 1,0.8]

Prints a line per checkpoint, calls and temperature. Calls are those of a text of 25 blocks of 4,
spread over a checkpoint's own blocks; 0: one position a call. A token that is no word counts as a
violation and as any word otherwise. Perplexity is that of the true law, per word.
"""

from __future__ import annotations

import argparse

import numpy as np

import strop
from strop.language import Language
from strop.language.reading import DRAWS, truth
from strop.measure.entropy import entropy
from strop.stats.resample import bootstrap, mean


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT")
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("--calls", default="25,50,0")
    parser.add_argument("--tau", default="1,0.8")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    language = Language.load("even")
    known = language.entropy(DRAWS)
    print("| block | tau | calls | violations | without | modes | entropy | perplexity | no word |")
    print("|---|---|---|---|---|---|---|---|---|")
    for source in options.checkpoints:
        model = strop.load_denoiser(source, device="cpu")
        for tau in map(float, options.tau.split(",")):
            for calls in map(int, options.calls.split(",")):
                print(_line(model, language, known, options, tau, calls), flush=True)


def _line(model, language, known, options, tau: float, calls: int) -> str:
    blocks = -(-model.length // model.block_length)
    update = {"update": "grid", "steps": max(1, calls // blocks)} if calls else {"steps": 1}
    spec = strop.SamplerSpec(name="bd3lm", temperature=tau, redraw="never", **update)
    pool = strop.draw.sample(model, spec, n=options.n, seed=options.seed, batch_size=options.n)
    ids = pool.ids[:, 1 : language.length + 1]
    strange = ids >= language.mask_id
    found = truth(np.where(strange, language.mask_id, ids), language, known)
    wrong = bootstrap(
        mean(language.violations(np.where(strange, language.mask_id, ids)) + strange.sum(1))
    )
    spread = bootstrap(mean(entropy(ids)))
    perplexity = found.surprise.mapped(lambda nats: float(np.exp(nats / language.length)))
    cells = (
        f"{model.block_length}",
        f"{tau:g}",
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
