"""What the language costs per text and per call: the numbers of docs/language.md.

    python benchmarks/language.py [--texts 256] [--languages even,skewed,tail]

CPU milliseconds a text for draws, log P, violations and the weights behind predictive laws, in
batches of 8 and of all texts; CPU milliseconds per network call of an output through the real
sampler with the exact denoiser; and as a ratio inside one run, what 16 times the texts cost.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from strop.denoisers import load_model
from strop.draw import sample_cells
from strop.language import Language
from strop.spec import SamplerSpec


def cpu(do: Callable[[], object], least: float = 0.3) -> float:
    """CPU seconds of one call, the least of a few."""
    do()
    best, spent = float("inf"), 0.0
    while spent < least:
        start = time.process_time()
        do()
        best = min(best, time.process_time() - start)
        spent += time.process_time() - start
    return best


def costs(language: Language, n: int) -> dict[str, float]:
    """CPU seconds per text, and last a ratio."""
    ids = language.draw(n, seed=1)
    hidden = ids.copy()
    hidden[:, ::2] = language.mask_id
    whole = cpu(lambda: language.log_p(ids))
    return {
        "draw": cpu(lambda: language.draw(n)) / n,
        "log P": whole / n,
        "violations": cpu(lambda: language.violations(ids)) / n,
        "weights of laws, a batch of 8": cpu(lambda: language.weights(hidden[:8])) / 8,
        f"weights of laws, a batch of {n}": cpu(lambda: language.weights(hidden)) / n,
        "times": whole / cpu(lambda: language.log_p(ids[: n // 16])),
    }


def main() -> None:
    """Print a row per language and operation."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--languages", default="even,skewed,tail")
    asked = parser.parse_args()
    print("language | what | ms per text")
    for name in asked.languages.split(","):
        rows = costs(Language.load(name), asked.texts)
        times = rows.pop("times")
        for what, seconds in rows.items():
            print(f"{name} | {what} | {1000 * seconds:.3f}", flush=True)
        print(f"{name} | log P of 16 times the texts costs {times:.1f} times as much |")
        model = load_model("embedded:perfect", load={"language": name})
        for steps in (4, 64):
            start = time.process_time()
            [pool] = sample_cells(model, [SamplerSpec(steps=steps)], n=64, seed=2)
            spent = (time.process_time() - start) / 64
            call = spent / float(pool.nfe.mean())
            print(
                f"{name} | an output at M = {steps} | {1000 * spent:.1f}, "
                f"{1000 * call:.2f} a network call",
                flush=True,
            )


if __name__ == "__main__":
    main()
