"""How often `strop compare` is right where the truth of texts is known: a language.

    python benchmarks/verdicts_language.py [--languages even,skewed] [-n 128] [--truth 1024]

Twelve generators of a language, perfect and bent denoisers under several samplers, are compared in
pairs by the rules of `strop compare`: seven temperatures, the language's own law as the evaluator,
copies and the diversity guard. What is true of a pair is settled beforehand, from other outputs at
the published settings: A is better if it has fewer violations and no fewer modes, worse the other
way round, a trade ("mixed") if it has fewer of both, and the two are close if violations do not
tell them apart. Differences count from 10% of the violations, and from .1 in mode entropy, where
their 95% intervals exclude these. A verdict on a close pair is not counted.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from strop.comparing.compare import compare
from strop.comparing.diversity import COPIES, copies, held_out_diversity
from strop.comparing.side import Sample, Side
from strop.comparing.verdict import SideVerdict
from strop.denoisers import Model, load_model
from strop.draw import sample_cells
from strop.language import Language
from strop.measure.entropy import entropy
from strop.measure.guard import Guard, guard
from strop.rng import derive_seed
from strop.spec import SamplerSpec
from strop.verbs.points import TEMPERATURES

GENERATORS = {
    "ancestral 4": ({}, {"steps": 4}),
    "ancestral 8": ({}, {"steps": 8}),
    "ancestral 16": ({}, {"steps": 16}),
    "ancestral 64": ({}, {"steps": 64}),
    "top-p .9, 16": ({}, {"steps": 16, "top_p": 0.9}),
    "remdm-cap 16": ({}, {"name": "remdm-cap", "steps": 16}),
    "confidence 16": ({}, {"name": "llada", "steps": 16, "block_length": 0}),
    "leaky 16": ({"leak": 0.02}, {"steps": 16}),
    "leaky 64": ({"leak": 0.02}, {"steps": 64}),
    "narrow 16": ({"narrow": 100.0}, {"steps": 16}),
    "narrow 64": ({"narrow": 100.0}, {"steps": 64}),
    "near 16": ({"near": 1.0}, {"steps": 16}),
}
"""What a denoiser is bent by, and its sampler."""
FEWER, MODES = 0.1, 0.1
"""From which a difference counts: of violations as a share, and in mode entropy."""
PARTS = 32
"""Parts of the truth's outputs that are left out in turn."""


@dataclass(frozen=True, eq=False)
class Generator:
    """What is compared, and what is true of it."""

    side: Side
    ids: NDArray[np.int64]
    """As published."""
    violations: NDArray[np.float64]
    """Of single texts."""
    modes: float
    """Mode entropy (Miller-Madow), ..."""
    modes_error: float
    """... and its standard error."""


def mode_entropy(modes: NDArray[np.int64]) -> float:
    """Of likeliest modes, with Miller and Madow's correction."""
    counts = np.unique(modes, return_counts=True)[1]
    shares = counts / len(modes)
    return float(-(shares * np.log(shares)).sum() + (len(counts) - 1) / (2 * len(modes)))


def drawn(model: Model, sampler: dict, n: int, seed: int) -> NDArray[np.int64]:
    """Outputs of one setting."""
    [pool] = sample_cells(model, [SamplerSpec(**{"name": "ancestral", **sampler})], n=n, seed=seed)
    return np.asarray(pool.ids, np.int64)


def generator(name: str, language: Language, source: str, n: int, truth: int) -> Generator:
    """Its frontier, and the truth from other outputs."""
    load, sampler = GENERATORS[name]
    model = load_model("embedded:perfect", load={"language": source, **load})
    samples, published = [], np.zeros((0, 0), np.int64)
    for tau in TEMPERATURES:
        seed = derive_seed(0, f"{name} {tau}") % 2**31
        ids = drawn(model, {**sampler, "temperature": tau}, n, seed)
        published = ids if tau == 1 else published
        tokens = np.full(n, float(ids.shape[1]))
        samples.append(Sample(-language.log_p(ids), tokens, entropy(ids), {COPIES: copies(ids)}))
    side = Side(samples, published=samples[TEMPERATURES.index(1.0)])
    ids = drawn(model, sampler, truth, derive_seed(0, f"{name} truth") % 2**31)
    modes = language.posterior(ids).reshape(truth, -1).argmax(1)
    parts = np.arange(truth) % PARTS
    left = np.array([mode_entropy(modes[parts != k]) for k in range(PARTS)])
    error = np.sqrt((PARTS - 1) * left.var())
    found = language.violations(ids).astype(float)
    return Generator(side, published, found, mode_entropy(modes), float(error))


def truth_of(a: Generator, b: Generator) -> str:
    """Better, worse, mixed, or close."""
    means = [one.violations.mean() for one in (a, b)]
    errors = [one.violations.std() / np.sqrt(len(one.violations)) for one in (a, b)]
    gap, doubt = means[0] - means[1], 1.96 * float(np.hypot(*errors))
    least = FEWER * max(means)
    if abs(gap) - doubt < least:
        return "close"
    cleaner, other = (a, b) if gap < 0 else (b, a)
    lost, off = other.modes - cleaner.modes, 1.96 * np.hypot(a.modes_error, b.modes_error)
    if lost - off > MODES:
        return "mixed"
    if lost + off > 2 * MODES:
        return "close"  # whether modes are lost is not known well enough
    return "better" if cleaner is a else "worse"


def verdict(a: Generator, b: Generator, held: Guard) -> SideVerdict:
    """That of the rules of `strop compare`, with its reason."""
    assert held.pairs is not None
    found = held_out_diversity([held.pairs.diversity(one.ids) for one in (a, b)], held)
    judged = [] if found is None else [found]
    return compare(a.side, b.side, floor=held.threshold, judged=judged).verdict


def main() -> None:
    """Print every pair, and how often verdicts are right, cannot tell, and are wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--languages", default="even,skewed")
    parser.add_argument("-n", type=int, default=128, help="outputs at each temperature")
    parser.add_argument("--truth", type=int, default=1024, help="outputs that the truth is from")
    parser.add_argument("--generators", default="; ".join(GENERATORS), help="some of them")
    asked = parser.parse_args()
    names = asked.generators.split("; ")
    rates: dict[str, Counter[str]] = {}
    for source in asked.languages.split(","):
        language = Language.load(source)
        held = guard(language.length, language.draw(2048, seed=5), source="exact texts")
        made = {}
        for name in names:
            one = made[name] = generator(name, language, source, asked.n, asked.truth)
            told = f"{one.violations.mean():.2f} violations, mode entropy {one.modes:.2f}"
            print(f"# {source}, {name}: {told} ± {1.96 * one.modes_error:.2f}", flush=True)
        for a, b in combinations(names, 2):
            found = verdict(made[a], made[b], held)
            right, said = truth_of(made[a], made[b]), found.kind
            how = "right" if said == right else "cannot tell" if said == "cannot tell" else "wrong"
            rates.setdefault(right, Counter())[how if right != "close" else said] += 1
            print(f"{source} | {a} | {b} | {right} | {said} | {found.why}", flush=True)
    for right, counts in rates.items():
        print(f"# {right}: {sum(counts.values())} pairs, {dict(counts)}")


if __name__ == "__main__":
    main()
