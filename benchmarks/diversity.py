"""How often the diversity guard is right, where the truth is known: the rates in docs/audit.md.

    python benchmarks/diversity.py [--repeats 200] [--fewer 40] [--outputs 128,256,512]

Pools of the languages `even` and `skewed` are held against exact texts of theirs, anew in every
repeat: other exact texts must be above the guard; outputs at temperature .6, outputs in the order
of confidence, and half collapsed outputs with half noise must not. Outputs of a sampler are drawn
once, `POOL` of them, and every repeat takes some without replacement. About five minutes of a core.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

from strop.denoisers import load_model
from strop.draw import sample_cells
from strop.language import Language
from strop.measure.across import MARGIN, TEXTS, HeldOutPairs
from strop.measure.guard import side_of
from strop.spec import SamplerSpec
from strop.stats.resample import wilson

POOL = 1024
SAMPLERS = {
    "standard, 64 steps": {"steps": 64},
    "standard, 4 steps": {"steps": 4},
    "temperature .8, 16 steps": {"steps": 16, "temperature": 0.8},
    "temperature .6, 16 steps": {"steps": 16, "temperature": 0.6},
    "confidence order, 16 calls": {"name": "llada", "steps": 16, "block_length": 0},
}
COPIES = 8
"""Texts that the collapsed half repeats."""


def pools(name: str, language: Language) -> dict[str, np.ndarray]:
    """Outputs by what they are; exact texts and half collapsed ones are made when needed."""
    model = load_model("embedded:perfect", load={"language": name})
    found = {}
    for told, settings in SAMPLERS.items():
        spec = SamplerSpec(**{"name": "ancestral", **settings})
        [pool] = sample_cells(model, [spec], n=POOL, seed=3)
        found[told] = np.asarray(pool.ids)
        print(f"# {name}, {told}: {language.violations(found[told]).mean():.2f} violations")
    return found


def taken(told: str, n: int, language: Language, drawn: dict, seed: int) -> np.ndarray:
    """The outputs of one repeat."""
    rng = np.random.default_rng([seed, n])
    if told == "exact texts":
        return language.draw(n, seed=10_000 + 2 * seed)
    if told in drawn:
        return rng.permutation(drawn[told])[:n]
    half = rng.permutation(drawn["temperature .6, 16 steps"])[: n // 2]
    if told == "half copies, half noise":
        half = np.repeat(half[:COPIES], n // 2 // COPIES, axis=0)
    noise = language.draw(n - len(half), seed=20_000 + seed)
    return np.concatenate([half, rng.permuted(noise.ravel()).reshape(noise.shape)])


def main() -> None:
    """Print a row per language, pool and number of outputs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=200, help="of exact texts")
    parser.add_argument("--fewer", type=int, default=40, help="repeats of everything else")
    parser.add_argument("--outputs", default="128,256,512")
    parser.add_argument("--languages", default="even,skewed")
    asked = parser.parse_args()
    print("language | outputs | n | diversity | above | undecided | below")
    for name in asked.languages.split(","):
        language = Language.load(name)
        drawn = pools(name, language)
        halves = ("half copies, half noise", "half at temperature .6, half noise")
        for told in ("exact texts", *SAMPLERS, *halves):
            for n in map(int, asked.outputs.split(",")):
                words: Counter[str] = Counter()
                values = []
                repeats = asked.repeats if told == "exact texts" else asked.fewer
                for seed in range(repeats):
                    held = HeldOutPairs(language.draw(TEXTS, seed=10_001 + 2 * seed))
                    found = held.diversity(taken(told, n, language, drawn, seed))
                    assert found is not None
                    words[side_of(found, MARGIN)] += 1
                    values.append(found.value)
                above = wilson(words["above"] / repeats, repeats)
                print(
                    f"{name} | {told} | {n} | {np.mean(values):.3f} | {above:.2f} | "
                    f"{words['undecided'] / repeats:.2f} | {words['below'] / repeats:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
