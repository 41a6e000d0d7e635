"""How the numbers of offline-v2 were chosen: on conTest, by nested cross-validation over contexts.

    python scripts/choose_sorting.py [DIRECTORY]     DIRECTORY keeps the embeddings between calls

Of every rule of a grid the mean over conTest's three tasks of Spearman's correlation with people is
taken on four fifths of the contexts, and the best rule is tried on the last fifth. What is printed
as nested is the mean over the five fifths, each by the rule that the other four chose: nothing that
it is computed from was used for choosing. decTest is not looked at before the end.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from strop.groupeval.human import shipped_groups, tasks_of
from strop.groupeval.offline import Sorting, cuts, pieces, soft_entropy, text_likeness
from strop.groupeval.scores import entropy
from strop.groupeval.trust import spearman
from strop.verbs.groupeval_validate import KEPT, KnownVectors
from strop.verbs.groupeval_verbs import VALIDATE

FOLDS, SEEDS = 5, 3
GRIDS = {
    "minilm": ((0.3, 0.45), (0.3, 0.35, 0.4, 0.45), (0.05, 0.07), (1.0, 1.5, 2.0), (1.0,)),
    "ngrams": ((1.0,), (0.1, 0.15, 0.2), (0.03, 0.05, 0.07), (1.0, 1.5), (1.0, 0.9, 0.88)),
}
"""Shares of the surface, thresholds, widths, powers, and what counts as full."""
GROUPS = shipped_groups()
SCORES = np.array([one.score for one in GROUPS])
CON = np.array([one.collection == "conTest" for one in GROUPS])
TASKS = {task: np.array(places) for task, places in tasks_of(GROUPS).items()}


def mean_over_tasks(values: np.ndarray, which: np.ndarray) -> float:
    """Of the tasks that some groups are from."""
    mine = [places[which[places]] for places in TASKS.values()]
    return float(
        np.mean(
            [spearman(values[p].tolist(), SCORES[p].tolist()) or 0.0 for p in mine if len(p) > 2]
        )
    )


def values_of(features: str, embed: KnownVectors) -> dict[Sorting, np.ndarray]:
    """What every rule of the grid makes of every group, as a share of the greatest GED."""
    shares, thresholds, widths, powers, fulls = GRIDS[features]
    found = {}
    for share in shares:
        uses = embed if features == "minilm" else None
        alike = [text_likeness(one.texts, one.context, uses, share) for one in GROUPS]
        for threshold, width in product(thresholds, widths):
            rule = Sorting(share, threshold, width, 1.0)
            soft = np.array([soft_entropy(one, rule) for one in alike])
            reach = [
                np.array(
                    [entropy([len(c) for c in cut]) / np.log(len(one)) for cut in cuts(one, rule)]
                )
                for one in alike
            ]
            for power, full in product(powers, fulls):
                wanted = np.minimum(1, soft / full) ** power
                near = [one[abs(one - w).argmin()] for one, w in zip(reach, wanted, strict=True)]
                found[replace(rule, power=power, full=full)] = np.array(near)
    return found


def nested(found: dict[Sorting, np.ndarray], seed: int) -> tuple[float, list[Sorting]]:
    """The mean over held-out fifths of contexts, and the rule that was chosen for each."""
    contexts = sorted({one.context or "" for one in GROUPS if one.collection == "conTest"})
    order = np.random.default_rng(seed).permutation(len(contexts)) % FOLDS
    fold_of = dict(zip(contexts, order.tolist(), strict=True))
    fold = np.array([fold_of.get(one.context or "", -1) for one in GROUPS])
    got, chosen = [], []
    for k in range(FOLDS):
        best = max(found, key=lambda rule: mean_over_tasks(found[rule], CON & (fold != k)))
        chosen.append(best)
        got.append(mean_over_tasks(found[best], CON & (fold == k)))
    return float(np.mean(got)), chosen


def main() -> None:
    embed = KnownVectors(Path(sys.argv[1]) / KEPT if len(sys.argv) > 1 else None)
    texts = [text for one in GROUPS for text in (*one.texts, one.context or "")]
    embed.learn([piece for text in texts for piece in pieces(text)], VALIDATE.asked({}))
    for features in GRIDS:
        found = values_of(features, embed)
        for seed in range(SEEDS):
            value, chosen = nested(found, seed)
            print(f"{features}: nested, seed {seed}: {value:.3f}", flush=True)
            for rule in dict.fromkeys(chosen):
                print(f"  {chosen.count(rule)} of {FOLDS}: {rule}")
        best = max(found, key=lambda rule: mean_over_tasks(found[rule], CON))
        told = [mean_over_tasks(found[best], which) for which in (CON, ~CON)]
        print(f"{features}: {best}: conTest {told[0]:.3f}, decTest {told[1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
