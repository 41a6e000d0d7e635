"""The offline judge sees what can be counted, always answers the same, and says who it is."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pools import planned

from strop.errors import UserError
from strop.groupeval import judge_run
from strop.groupeval.offline import (
    SECOND,
    linked,
    offline_client,
    offline_spec,
    reply,
    sort_modes,
    text_features,
)
from strop.groupeval.profile import Profile
from strop.groupeval.series import Series
from strop.groupeval.verdict import read_reply

PROFILE = Profile.load("webtext-v1")
LABELS = tuple(f"k{i}bb" for i in range(2, 10))

NEWS = (
    "The town council met on Tuesday evening to discuss the plan for a new bridge over the river. "
    "Several members of the council said that the bridge would cost more than the town could pay, "
    "while others argued that the old bridge was no longer safe for the buses that cross it every "
    "morning. The mayor told the council that the state would pay half of the cost if the work "
    "began before winter. A vote on the bridge is expected at the next meeting of the council."
)
RECIPE = (
    "To make the sauce, warm the butter in a small pan and stir in the flour until it is smooth. "
    "Pour in the milk a little at a time and keep stirring, so that the sauce does not turn lumpy. "
    "When the sauce is thick, add the grated cheese, some salt and a little pepper. Serve the "
    "sauce over the pasta with the rest of the cheese, and put the dish under the grill until the "
    "cheese is brown."
)
LOOP = "The market is open and the market is open and " * 30
NOISE = "@@ ## {{ }} ~~ ^^ || \\\\ << >> == ++ ** @@ ## {{ }}"


def shuffled(text: str) -> str:
    words = text.split()
    random.Random(3).shuffle(words)
    return " ".join(words)


TEXTS = [NEWS, RECIPE, LOOP, NOISE, "", shuffled(NEWS), NEWS, RECIPE.replace("cheese", "tofu")]


def graded(
    texts: list[str], embed: Any = None, features: str = "ngrams"
) -> dict[str, dict[str, Any]]:
    text = reply(texts, LABELS, PROFILE, linked(embed, features))
    document = read_reply(text, LABELS, PROFILE)  # by the rules of every judge
    return {one["id"]: one for one in document["outputs"]}


def test_good_text_is_better_than_loops_shuffles_and_noise() -> None:
    news, recipe, loop, noise, empty, mixed, again, swapped = graded(TEXTS).values()
    names = PROFILE.dimensions
    assert [news[name] for name in names] == [2, 2, 2, 2]
    assert [recipe[name] for name in names] == [2, 2, 2, 2]
    assert (loop["valid"], noise["valid"], empty["valid"]) == (False, False, False)
    assert mixed["valid"]
    assert mixed["readability"] == mixed["coherence"] == 0
    assert [again[name] for name in names] == [news[name] for name in names]
    assert again["mode"] == news["mode"] != recipe["mode"]
    assert swapped["mode"] == recipe["mode"]  # an entity put into the same template is no new mode


def test_repetition_in_part_costs_structure_only() -> None:
    part = NEWS + " " + "And so it goes on and on and on. " * 4
    one = graded([part, *TEXTS[1:]])["k2bb"]
    assert one["valid"]
    assert one["nondegeneration"] == 1


def test_documents_are_measured_one_by_one() -> None:
    one, other = "the bridge garden window " * 20, "the kettle copper basket " * 20
    apart, together = text_features([one, other]), text_features([one + other])
    assert (apart.documents, together.documents) == (2, 1)
    # Across a boundary the topic may change; within a document it is one break in three places.
    assert (apart.continuity, together.continuity) == (1.0, pytest.approx(2 / 3))
    assert text_features([NEWS, "", "", ""]).empty_documents == 0.75


def test_equal_texts_get_equal_answers_whatever_their_order() -> None:
    first = graded(TEXTS)
    again = graded(TEXTS[::-1])
    for a, b in zip(first.values(), reversed(again.values()), strict=True):
        assert {**a, "id": 0, "mode": 0} == {**b, "id": 0, "mode": 0}
    assert graded(TEXTS) == first


def test_modes_follow_the_vectors_that_are_passed_in() -> None:
    place = {NEWS: 0, RECIPE: 1}

    def embed(texts: Any) -> Any:
        return np.eye(3)[[next((k for t, k in place.items() if x[:40] in t), 2) for x in texts]]

    one = graded([NEWS, RECIPE] * 4, embed=embed, features="minilm")
    assert [x["mode"] for x in one.values()] == ["A", "B"] * 4
    assert not any(x["hybrid"] for x in one.values())


def test_sorting_names_doubt() -> None:
    sure, _, confidence = sort_modes(np.eye(3), 0.5)
    assert (sure, confidence) == (["A", "B", "C"], "high")
    close = np.array([[1.0, 0.0], [0.49, np.sqrt(1 - 0.49**2)]])
    modes, hybrids, confidence = sort_modes(close, 0.5)
    assert (modes, hybrids, confidence) == (["A", "B"], [True, True], "medium")
    assert sort_modes(np.zeros((0, 1)), 0.5) == ([], [], "high")


def test_it_is_a_series_of_its_own_and_says_so(tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 16}, controls=1)
    outcomes: list[str] = []
    series = judge_run(run, "offline", features="ngrams", told=outcomes.append)
    assert outcomes == ["verdict"] * 5
    assert (series.judge.kind, series.judge.model) == ("offline", SECOND)
    assert len(series.verdicts()) == 4
    assert len(series.verdicts("control")) == 1
    assert {entry["model"] for entry in series.journal.entries()} == {SECOND}
    dense = {"features": "minilm", "weights_sha256": "0" * 64}
    other = Series.planned(run, series.judge.model_copy(update=dense))
    assert other.id != series.id  # the features are part of the judge


def test_it_finds_the_controls(tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 16}, controls=1)
    series = judge_run(run, features="ngrams")
    (group,) = series.plan.controls
    (said,) = series.verdicts("control")
    grades = dict(zip(group.planted, said.outputs, strict=True))
    assert not grades["empty"].valid
    assert grades["duplicate"].mode == grades["copied"].mode
    assert grades["duplicate"].scores == grades["copied"].scores


TASK = Profile.load("task-v1")
QUESTION = "Anna has 7 apples. She finds 5 more. Then she has 2 times as many. How many apples now?"


def responses(*texts: str) -> list[dict[str, Any]]:
    answer = offline_client(offline_spec(TASK), TASK)
    names = LABELS[: len(texts)]
    return read_reply(answer(names, texts, QUESTION), names, TASK)["outputs"]


def test_of_a_task_it_counts_form_and_not_success() -> None:
    assert offline_spec(TASK).features == "counts"  # whatever is installed
    right, wrong = responses("7+5=12\n*2=24", "7+5=13\n*2=26")
    assert {**right, "id": 0} == {**wrong, "id": 0}  # it cannot check an answer
    assert (right["success"], right["reasoning"], right["readability"]) == (1, 2, 2)
    fewer, _ = responses("7+5=12", "")
    assert fewer["reasoning"] == 1  # a number of the task is not used
    loop, noise = responses("1=1=" * 40, "\ufffd\x00" * 9)
    assert not loop["valid"]
    assert not noise["valid"]
    aside, empty = responses("The weather 9999 was lovely yesterday evening.", "")
    assert (aside["reasoning"], aside["valid"], empty["valid"]) == (0, True, False)
    code, half = responses(
        "def apples(n):\n    return (n + 5) * 2\n", "12, 12, 12, 12, 12, so 7 + 5"
    )
    assert (code["valid"], code["nondegeneration"]) == (True, 2)
    assert half["nondegeneration"] == 1


def test_other_profiles_are_beyond_it() -> None:
    other = replace(TASK, name="x", dimensions=("charm",) * 4)
    with pytest.raises(UserError, match="cannot use the profile x"):
        offline_client(offline_spec(other), other)
    with pytest.raises(UserError, match="features"):
        offline_spec(TASK, features="minilm")


def test_the_reply_is_plain_json() -> None:
    document = json.loads(reply(TEXTS, LABELS, PROFILE, linked(None, "ngrams")))
    assert set(document) == {"outputs", "confidence"}
