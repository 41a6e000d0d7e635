"""offline-v2 sorts by content, and what is certain stays certain."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from strop.groupeval.offline import (
    SORTINGS,
    Sorting,
    cuts,
    likeness,
    offline_client,
    offline_spec,
    soft_entropy,
    sort_by_content,
    text_likeness,
    without,
)
from strop.groupeval.profile import Profile

RULE = Sorting(surface=0.0, threshold=0.5, width=0.05, power=1.0)


def blocks(*sizes: int) -> np.ndarray:
    kind = np.repeat(np.arange(len(sizes)), sizes)
    return (kind[:, None] == kind[None, :]).astype(float)


def test_where_nothing_is_in_doubt_the_soft_entropy_is_that_of_modes() -> None:
    for sizes in ((4, 4), (5, 2, 1), (1,) * 8, (8,)):
        shares = np.array(sizes) / 8
        exact = -(shares * np.log(shares)).sum() / math.log(8)
        assert soft_entropy(blocks(*sizes), RULE) == pytest.approx(exact, abs=2e-4)


@pytest.mark.parametrize("features", ["minilm", "ngrams"])
@pytest.mark.parametrize("sizes", [(4, 4), (7, 1), (9, 1), (3, 2), (1,) * 5, (6,)])
def test_copies_are_one_mode_and_strangers_another(features: str, sizes: tuple[int, ...]) -> None:
    modes, hybrids, _ = sort_by_content(blocks(*sizes), SORTINGS[features])
    assert modes == [chr(65 + k) for k, size in enumerate(sizes) for _ in range(size)]
    assert not any(hybrids)


def test_copies_stay_together_even_where_more_modes_are_wanted() -> None:
    eager = Sorting(surface=0, threshold=0.5, width=0.05, power=1.0, full=0.6)
    assert soft_entropy(blocks(2, 1), eager) / eager.full > 0.9  # nearer to three modes than to two
    assert sort_by_content(blocks(2, 1), eager)[0] == ["A", "A", "B"]


def test_the_likeness_takes_the_context_out() -> None:
    context = np.array([1.0, 0, 0])
    texts = np.array([[0.8, 0.6, 0], [0.8, 0, 0.6], [1.0, 0, 0]])
    rest = without(texts, context)
    assert rest == pytest.approx(np.array([[0, 1.0, 0], [0, 0, 1.0], [1.0, 0, 0]]))
    assert (without(texts, None) == texts).all()
    both = likeness(np.eye(3), rest, 0.25)
    assert both == pytest.approx(np.eye(3))
    assert likeness(np.eye(3), texts, 0.25)[0, 1] == pytest.approx(0.75 * 0.64)
    assert likeness(texts, None, 1.0)[0, 1] == pytest.approx(0.64)


def test_linkages_differ_and_every_cut_is_a_sorting() -> None:
    chain = np.array([[1.0, 0.9, 0.45], [0.9, 1.0, 0.6], [0.45, 0.6, 1.0]])
    found = [sorted(map(sorted, one)) for one in cuts(chain, RULE)]
    assert found.count([[0, 1, 2]]) == 3  # .525, .45 and .6 are all within reach
    assert found.count([[0, 1], [2]]) == 3
    far = np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.1], [0.1, 0.1, 1.0]])
    assert [0, 1, 2] not in [sorted(one) for some in cuts(far, RULE) for one in some]


def test_doubt_is_said_and_power_wants_fewer_modes() -> None:
    unsure = np.full((4, 4), 0.5)
    np.fill_diagonal(unsure, 1.0)
    modes, hybrids, confidence = sort_by_content(unsure, RULE)
    # Half of a chance each: H = -log(.625) / log 4 = .339, and (3, 1) has .406, (4) has 0.
    assert soft_entropy(unsure, RULE) == pytest.approx(-math.log(0.625) / math.log(4))
    assert len(set(modes)) == 2
    assert any(hybrids)
    assert confidence == "medium"
    fewer = Sorting(surface=0, threshold=0.5, width=0.05, power=2.0)
    assert len(set(sort_by_content(unsure, fewer)[0])) == 1
    assert sort_by_content(np.ones((1, 1)), RULE) == (["A"], [False], "high")


def test_who_judges_what() -> None:
    """The second is the default wherever there are modes; the first has the series it had."""
    answers, web = Profile.load("answers-v1"), Profile.load("webtext-v1")
    assert offline_spec(answers, features="ngrams").name == "offline-v2/ngrams"
    assert offline_spec(web, features="ngrams").name == "offline-v2/ngrams"
    assert offline_spec(Profile.load("task-v1")).name == "offline-v1/counts"
    for profile in (answers, web):  # the series of this document is pinned in test_judges.py
        assert offline_spec(profile, features="ngrams", model="offline-v1").document() == {
            "kind": "offline",
            "model": "offline-v1",
            "name": "offline-v1/ngrams",
            "features": "ngrams",
        }


def test_texts_without_a_prompt_are_linked_as_before() -> None:
    """A group that both sort alike where it answers nothing, and differently elsewhere."""
    texts = (
        "The river rose in the night and the bridge at the mill was gone.",
        "The river fell in the night and the bridge at the ford was safe.",
        "The river froze in the night and the boats at the quay were stuck.",
        "A baker in the town sold bread that nobody else could make.",
    )

    def modes(profile: Profile, model: str) -> str:
        spec = offline_spec(profile, features="ngrams", model=model)
        said = json.loads(offline_client(spec, profile)("abcd", texts, None))["outputs"]
        return "".join(one["mode"] for one in said)

    answers, web = Profile.load("answers-v1"), Profile.load("webtext-v1")
    assert modes(web, "offline-v1") == modes(web, "offline-v2") == "ABCD"
    assert modes(answers, "offline-v1") == "ABCD"
    assert modes(answers, "offline-v2") == "AABC"


def test_a_reply_with_vectors_of_its_own() -> None:
    """Texts on one thing in other words are one mode, once the context is out of them."""
    place = {"q": [1.0, 0, 0], "a": [0.6, 0.8, 0], "b": [0.6, 0.8, 0], "c": [0.6, 0, 0.8]}

    def embed(texts: list[str]) -> np.ndarray:
        return np.array([place[one] for one in texts])

    alike = text_likeness(["a", "b", "c"], "q", embed, 0.3)
    assert alike[0, 1] == pytest.approx(0.7)
    assert alike[0, 2] == pytest.approx(0.0)
    assert text_likeness(["a", "b", "c"], None, embed, 0.3)[0, 2] == pytest.approx(0.7 * 0.36)
    profile = Profile.load("answers-v1")
    spec = offline_spec(profile, features="ngrams", model="offline-v2")
    client = offline_client(spec.model_copy(update={"features": "minilm"}), profile, embed)
    assert '"mode": "A"' in client(("x", "y", "z"), ("a", "b", "c"), "q")
