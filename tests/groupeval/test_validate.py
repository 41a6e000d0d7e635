"""A judge against people: every number by another way, and files that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau, spearmanr
from scripted_server import Action, serving

from strop.cli.main import run
from strop.errors import UserError
from strop.groupeval.human import RatedGroup, read_groups, shipped_groups, tasks_of
from strop.groupeval.validation import (
    JudgedGroups,
    best_threshold,
    right_by_threshold,
    spearmans,
    taus,
    v_measure,
    validate,
    weighted_kappa,
)
from strop.groupeval.verdict import Grade, GroupVerdict
from strop.verbs.groupeval_validate import distinct_pairs

X = np.array([1.0, 2, 2, 3, 5, 5, 4, 0])
Y = np.array([2.0, 1, 3, 3, 6, 4, 7, 1])


def test_rank_correlations_are_scipys_with_ties_and_with_copies() -> None:
    counts = np.array([[1.0] * 8, [2, 0, 1, 1, 3, 0, 1, 1]])
    for row in counts:
        x, y = (np.repeat(v, row.astype(int)) for v in (X, Y))
        assert spearmans(X, Y, row[None])[0] == pytest.approx(spearmanr(x, y).statistic)
        assert taus(X, Y, row[None])[0] == pytest.approx(kendalltau(x, y).statistic)


def test_the_threshold_comes_from_other_contexts() -> None:
    x, high = np.array([1.0, 2, 3, 4]), np.array([False, False, True, True])
    assert best_threshold(x, high) == 2.5
    # b says that 2 is high, so a is wrong twice; a says nothing but that one of two is high.
    x, high = np.array([1.0, 2, 1, 2]), np.array([True, False, False, True])
    assert right_by_threshold(x, high, ["a", "a", "b", "b"]) == pytest.approx([0, 0, 0, 1])
    x, high = np.array([1.0, 2, 1, 2, 1.1, 2.2]), np.array([False, True] * 3)
    assert right_by_threshold(x, high, ["a", "a", "b", "b", "c", "c"]) == pytest.approx([1] * 6)
    assert right_by_threshold(x[:2], high[:2], ["a", "a"]) is None  # nothing else to learn it from


def test_modes_and_grades_by_hand() -> None:
    assert v_measure([0, 0, 1, 1], [0, 0, 1, 2]) == pytest.approx(0.8)  # 1 and 2/3
    assert v_measure([0, 0, 1, 1], [5, 5, 5, 5]) == pytest.approx(0)
    assert v_measure([0, 1], [1, 0]) == 1
    a, b = np.array([0.0, 2, 4]), np.array([0.0, 2, 1])
    # 9/3 is apart; by chance the nine pairs are 0,4,1, 4,0,1, 16,4,9 apart.
    assert weighted_kappa(a, b) == pytest.approx(1 - 3 / (39 / 9))
    assert weighted_kappa(a[:1], a[:1]) is None


def verdict(modes: str, qualities: list[int]) -> GroupVerdict:
    grades = tuple(
        Grade(i, True, (q, q, q, q), m)
        for i, (m, q) in enumerate(zip(modes, qualities, strict=True))
    )
    return GroupVerdict("people", 0, 0, grades, "high")


def test_tasks_stay_apart_and_contexts_together() -> None:
    groups = [
        RatedGroup(("x", "y"), f"c{i // 2}", task, float(score), score > 2)
        for task, scores in (("one", (1, 2, 3, 4)), ("two", (104, 103, 102, 101)))
        for i, score in enumerate(scores)
    ]
    judged = JudgedGroups("m", (1.0, 2.0, 3.0, 4.0, 8.0, 7.0, 6.0, None))
    found = validate(judged, groups, replicates=200)
    assert {t: one["spearman"].value for t, one in found["tasks"].items()} == {
        "one": pytest.approx(1),
        "two": pytest.approx(1),
    }
    assert found["means"]["mean"]["spearman"].value == pytest.approx(1)  # pooled it is -.4 at most
    one, two = found["tasks"].values()
    assert (one["n_groups"], one["n_contexts"], one["spearman"].n) == (4, 2, 2)
    assert (two["n_groups"], two["n_groups_asked"]) == (3, 4)
    assert two["accuracy"] is None  # all are high
    turned = JudgedGroups("m", tuple(-v if v else v for v in judged.values))
    assert validate(turned, groups, replicates=10)["means"]["mean"]["spearman"].value == -1


def test_intervals_resample_contexts() -> None:
    """Two groups of a context that always come together are one piece of evidence."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    y = x + rng.normal(size=30)
    twice = [RatedGroup(("a", "b"), f"c{i % 30}", score=float(y[i % 30])) for i in range(60)]
    alone = [RatedGroup(("a", "b"), score=one.score) for one in twice]
    values = tuple(float(x[i % 30]) for i in range(60))
    wide, narrow = (
        validate(JudgedGroups("m", values), some, replicates=2000)["tasks"]["all"]["spearman"]
        for some in (twice, alone)
    )
    assert wide.value == narrow.value
    assert wide.half == pytest.approx(narrow.half * 2**0.5, rel=0.12)  # 60 draws or 30


def test_modes_and_grades_of_a_judge() -> None:
    groups = [
        RatedGroup(("a", "b", "c", "d"), modes=("x", "x", "y", None), grades=(10.0, 5.0, 0.0, 5.0)),
        RatedGroup(("a", "b"), modes=("x", "y"), grades=(5.0, 5.0)),
    ]
    said = (verdict("AABB", [2, 1, 0, 2]), verdict("AB", [1, 2]))
    one = validate(JudgedGroups.of("j", said), groups, replicates=10)["tasks"]["all"]
    assert (one["adjusted_rand"], one["v_measure"], one["n_groups_with_modes"]) == (1, 1, 2)
    assert (one["mean_shift"], one["n_texts_with_grades"]) == (pytest.approx(10 / 6), 6)
    assert one["spearman"] is None
    assert 0 < one["weighted_kappa"] < 1
    assert 0 < one["alpha"] < 1


def test_what_ships() -> None:
    groups = shipped_groups()
    assert {task: len(places) for task, places in tasks_of(groups).items()} == {
        "conTest prompt": 200,
        "conTest response": 220,
        "conTest story": 250,
        "decTest prompt": 203,
        "decTest response": 203,
        "decTest story": 203,
    }
    published = JudgedGroups("s", tuple(one.columns["SentBert"] for one in groups))
    found = validate(published, groups, replicates=20)
    told = [round(one["spearman"].value, 2) for one in found["tasks"].values()]
    assert told == [0.82, 0.79, 0.78, 0.83, 0.73, 0.79]  # as the paper's tables
    assert [len(places) for places in tasks_of(shipped_groups(20)).values()] == [4, 4, 3, 3, 3, 3]


def test_distinct_pairs() -> None:
    assert distinct_pairs(RatedGroup(("a b c", "A b"))) == pytest.approx(2 / 3)
    assert distinct_pairs(RatedGroup(("a", "b"))) is None


def rated(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


PHRASES = (
    "the cat sat on the mat",
    "stock markets fell sharply today",
    "boil pasta for ten minutes",
)


def test_a_file_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"texts": [PHRASES[k % (1 + i)] for k in range(3)], "task": task, "score": s, "mine": -s}
        for task in ("prompt", "story")
        for i, s in enumerate((1.0, 2.5, 4.0))
    ]
    file = str(rated(tmp_path / "rated.jsonl", rows))
    line = ["groupeval", "validate", file, "--offline", "--features", "ngrams", "--json"]
    assert run([*line, "--columns", "mine", "-o", str(tmp_path / "out")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["judge"] == "offline-v2/ngrams"
    assert {t: one["spearman"] for t, one in document["tasks"].items()} == {
        "prompt": pytest.approx(1),
        "story": pytest.approx(1),
    }
    assert document["means"]["mean"]["spearman"] == pytest.approx(1)
    names = [one["name"] for one in document["judges"]]
    assert names == ["offline-v2/ngrams", "offline-v1/ngrams", "distinct-2, words", "mine"]
    assert document["judges"][-1]["tasks"]["story"]["spearman"] == pytest.approx(-1)
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert card["agreement"]["story"]["n_groups"] == 3
    assert card["planted"]["copies_are_one_mode"] == 1
    assert card["planted"]["mean_ged_of_unrelated_texts"] <= 10
    assert (tmp_path / "out" / "judge-against-people.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "holds no rated group"),
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"score": 1}', "Field required"),
        ('{"texts": ["a"], "score": 1}', "at least 2 items"),
        (json.dumps({"texts": ["a"] * 17, "score": 1}), "at most 16 items"),
        ('{"texts": ["a", 2], "score": 1}', "texts[1]"),
        ('{"texts": ["a", "b"]}', "nobody rated it"),
        ('{"texts": ["a", "b"], "score": "high"}', "valid number"),
        ('{"texts": ["a", "b"], "score": NaN}', "finite number"),
        ('{"texts": ["a", "b"], "label": "middling"}', "'low' or 'high'"),
        ('{"texts": ["a", "b"], "modes": ["a"]}', "`modes` needs one entry"),
        ('{"texts": ["a", "b"], "grades": [1, 11]}', "less than or equal to 10"),
        ('{"texts": ["a", "b"], "score": 1, "task": ["x"]}', "line 1, task"),
        ('{"texts": ["a", "b"], "score": 1, "context": true}', "line 1, context"),
    ],
)
def test_a_wrong_file_gets_one_message(tmp_path: Path, content: str, told: str) -> None:
    file = tmp_path / "rated.jsonl"
    file.write_text(content)
    with pytest.raises(UserError) as caught:
        read_groups(file)
    assert told in str(caught.value)
    with pytest.raises(UserError, match="cannot be read"):
        read_groups(tmp_path)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([{"score": s} for s in (1, 2, 3)], {"all": 1}),
        (
            [{"score": s, "context": None, "task": None, "label": None} for s in (1, 2, 3)],
            {"all": 1},
        ),
        ([{"score": s, "context": 7, "task": 2} for s in (1, 2, 3)], {"2": 1}),
        ([{"score": 3} for _ in range(3)], {"all": None}),
        ([{"score": s} for s in (1, 2)], {"all": None}),
        ([{"label": one} for one in ("Low", "high", "high")], {"all": None}),
        (
            [{"score": s, "task": "a"} for s in (1, 2, 3)] + [{"label": "high", "task": "b"}] * 2,
            {"a": 1, "b": None},
        ),
    ],
)
def test_every_task_has_a_spearman_if_only_none(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    rows: list[dict[str, Any]],
    told: dict[str, float | None],
) -> None:
    """One task, no label, no context, few groups, ties: a document all the same."""
    whole = [
        {"texts": [PHRASES[k % (1 + i % 3)] for k in range(3)], **r} for i, r in enumerate(rows)
    ]
    file = str(rated(tmp_path / "r.jsonl", whole))
    assert run(["groupeval", "validate", file, "--offline", "--features", "ngrams", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = {task: one["spearman"] for task, one in document["tasks"].items()}
    assert found == {task: one and pytest.approx(one) for task, one in told.items()}


def test_what_is_asked_must_go_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(rated(tmp_path / "r.jsonl", [{"texts": ["a b", "c d"], "score": 1}]))
    for words, told in (
        ([file, "--offline", "--base-url", "http://x"], "Two judges"),
        ([file, "--base-url", "http://x"], "address and a model"),
        ([file, "--base-url", "http://x", "--model", "m"], "-o DIR"),
        ([file, "--columns", "nothing"], "No group has a number"),
        ([file, "--offline", "--model", "offline-v9"], "offline-v9"),
    ):
        assert run(["groupeval", "validate", *words]) == 1
        assert told in capsys.readouterr().err
    assert run(["groupeval", "validate", file, "--offline", "--features", "ngrams"]) == 0
    assert "too few groups" in capsys.readouterr().out


def by_last_word(body: dict[str, Any], _: int) -> Action:
    """A judge whose modes are the texts' last words, and who likes texts that begin with good."""
    lines = body["messages"][-1]["content"].split("\n")
    texts = [json.loads(line) for line in lines if line.startswith('{"id"')]
    words = sorted({one["text"].split()[-1] for one in texts if one["text"]})
    grade = lambda one: 2 if one["text"].startswith("good") else 1  # noqa: E731
    names = ("readability", "coherence", "fulfilment", "nondegeneration")
    outputs = [
        {
            "id": one["id"],
            "valid": bool(one["text"]),
            **dict.fromkeys(names, grade(one) if one["text"] else 0),
            "mode": chr(65 + words.index(one["text"].split()[-1])) if one["text"] else None,
            "hybrid": False,
        }
        for one in texts
    ]
    return Action(json.dumps({"outputs": outputs, "confidence": "high"}))


def test_a_server_is_asked_once_and_its_verdicts_find_their_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two groups share a context, one has none, and texts are shown in another order."""
    rows = [
        {"texts": ["good x", "bad x", "bad x"], "context": "c", "score": 1, "modes": [1, 1, 1]},
        {"texts": ["bad x", "good y", "bad z"], "context": "c", "score": 5, "modes": [1, 2, 3]},
        {"texts": ["bad x", "bad x", "good y"], "score": 3, "modes": [1, 1, 2]},
        {"texts": ["bad x", "bad y"], "context": "d", "score": 6, "modes": [1, 2]},
    ]
    for row in rows:
        row["grades"] = [10 if text.startswith("good") else 5 for text in row["texts"]]
    file = str(rated(tmp_path / "r.jsonl", rows))
    out = str(tmp_path / "out")
    with serving(by_last_word) as served:
        line = ["groupeval", "validate", file, "--base-url", served.url, "--model", "m", "-o", out]
        assert run([*line, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        asked = len(served.requests)
        assert run([*line, "--json"]) == 0
        again = json.loads(capsys.readouterr().out)
        assert len(served.requests) == asked == 4 + 6 * 4  # and nothing was asked twice
    one = document["tasks"]["all"]
    assert (one["adjusted_rand"], one["v_measure"], one["mean_shift"]) == (1, 1, 0)
    assert (one["alpha"], one["weighted_kappa"]) == (1, 1)
    assert one["spearman"] == pytest.approx(spearmanr([0, 10, 5.79, 10], [1, 5, 3, 6]).statistic)
    assert document["judge"] == "m"
    card = document["card"]
    assert card["per_1000_texts"]["calls"] == pytest.approx(4 / 0.011)
    assert card["without_a_verdict"] == 0
    assert again["tasks"] == document["tasks"]
    assert again["card"] == card
    assert card["planted"] == {
        "n_groups_of_each_kind": 4,
        "copies_are_one_mode": 1,
        "a_copy_shares_its_mode": 1,
        "an_empty_text_is_invalid": 1,
        "mean_ged": pytest.approx((0 + 10 + 5.793802 + 10) / 4, abs=1e-6),
        # x x, x y, x x and x z: the first word of one group and the second of the next.
        "mean_ged_of_unrelated_texts": pytest.approx(5.0),
    }
    for name in ("repeatability", "other_order"):
        assert card[name] == {"n_groups": 4, "same_ged": 1, "mean_change_of_ged": 0}


def test_a_cap_is_on_groups_and_controls_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"texts": ["good x", "bad y"], "context": str(i), "score": i} for i in range(4)]
    file, out = str(rated(tmp_path / "r.jsonl", rows)), str(tmp_path / "out")
    with serving(by_last_word) as served:
        line = ["groupeval", "validate", file, "--base-url", served.url, "--model", "m", "-o", out]
        assert run([*line, "--max-calls", "5"]) == 2  # one finds out how to ask
        assert "nothing for planted controls" in capsys.readouterr().err
        assert len(served.requests) == 4
        assert run([*line, "--max-calls", "10"]) == 2
        assert len(served.requests) + len(served.probes) == 10
        assert run([*line, "--controls", "0", "--json"]) == 0
        assert len(served.requests) + len(served.probes) == 10
        capsys.readouterr()
        assert run([*line, "--controls", "0", "--json"]) == 0
        assert "planted" not in json.loads(capsys.readouterr().out)["card"]
