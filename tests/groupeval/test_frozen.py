"""Plans and scores stay what they were: hashes and numbers made before large pools were sped up.

A plan that came out otherwise could not be continued, and its judgments could not be compared.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from made_judgments import random_verdicts
from pools import source

from strop.groupeval.bootstrap import score
from strop.groupeval.judgments import Judgments
from strop.groupeval.plan import Source, make_plan
from strop.groupeval.profile import Profile, canonical, sha256
from strop.groupeval.scores import PlannedGroups

PLANS: dict[str, tuple[dict[str, int], dict[str, Any], str]] = {
    "eight": ({"a": 8}, {}, "f543d7953183addd"),
    "sixteen": ({"a": 16}, {"seed": 3}, "07637e5790062fca"),
    "mixed": ({"a": 16, "b": 40, "c": 64}, {"seed": 1}, "ea596a0ee2693d66"),
    "paper": ({"a": 128, "b": 128}, {"controls": 2}, "a8615dfa81765a59"),
    "thousand": ({"a": 1000, "b": 1000}, {"seed": 2**62}, "8251d2eb6cfe94b6"),
    "ten thousand": ({"a": 10_000}, {}, "535641e9b5e9a0fd"),
    "search": ({"a": 40}, {"method": "best-of-2000"}, "e2c09c0611cebd01"),
}
"""What is planned, how, and the hash of the plan with its blinding."""

TASK = "5b2f33932a9fc8c7"


def made(sources: list[Source], profile: str, **options: Any) -> str:
    plan, texts = make_plan(sources, Profile.load(profile), **options)
    assert plan.texts_sha256 == texts.hash
    return sha256(canonical([plan.hash, plan.blinding]))[:16]


@pytest.mark.parametrize("name", PLANS)
def test_plans_are_what_they_were(name: str) -> None:
    cells, options, expected = PLANS[name]
    assert made([source(*cell) for cell in cells.items()], "webtext-v1", **options) == expected


def test_a_conditional_plan_is_what_it_was() -> None:
    prompts = tuple(f"task {i}" for i in range(12))
    sources = [Source(n, tuple(f"{n} {i}" for i in range(12)), prompts, n) for n in "ab"]
    assert made(sources, "task-v1") == TASK


SCORES: dict[str, list[float]] = {
    "8 0": [
        3.984375,
        -math.inf,
        math.inf,
        4.795739585136225,
        2.482868781608533,
        5.4262815654875185,
    ],
    "16 1": [
        4.609375,
        -0.47443009490510857,
        9.69318009490511,
        6.062706174222671,
        2.423917329573954,
        6.779758491435867,
    ],
    "128 0": [
        4.1748046875,
        3.846146750495111,
        4.503462624504889,
        5.903119965093395,
        4.519032265486672,
        5.409771055574555,
    ],
    "128 5": [
        4.1748046875,
        3.8110345699411656,
        4.538574805058834,
        5.738535162798149,
        4.349122644344343,
        5.379815630583998,
    ],
    "1000 0": [
        4.181875,
        4.072611400970647,
        4.2911385990293525,
        5.9277367924194815,
        4.845612560430884,
        5.147701962218903,
    ],
    "1000 7": [
        4.16125,
        4.049972470110933,
        4.272527529889067,
        5.920180582452268,
        4.8362092297645995,
        5.139118575559285,
    ],
}
"""GEQ, its interval, GED and its range of replicates; by outputs and groups left out."""


def scored(outputs: int, left_out: int) -> list[float]:
    verdicts = random_verdicts(9, outputs=outputs, size=8, modes=8)
    planned = {"cell": PlannedGroups(outputs, outputs // 4, 2)}
    judgments = Judgments("x", verdicts[left_out:], [], planned, False, True)
    cell = score(judgments, replicates=500, seed=4)["cells"]["cell"]
    geq = cell["geq"]
    return [geq.value, *geq.ends, cell["ged"], *cell["ged_weight_sensitivity"]]


@pytest.mark.parametrize("which", SCORES)
def test_scores_are_what_they_were(which: str) -> None:
    """To rounding: the order of a sum is the processor's."""
    outputs, left_out = map(int, which.split())
    assert scored(outputs, left_out) == pytest.approx(SCORES[which], rel=1e-12)
