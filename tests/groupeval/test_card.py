"""Cards: those that ship are of the judges that they name, and say what comes out here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pools import planned

from strop.cli.main import run as command
from strop.errors import UserError
from strop.groupeval import JudgeSpec, judge_run
from strop.groupeval.human import RatedGroup, shipped_groups
from strop.groupeval.offline import VERSIONS, offline_client, offline_spec
from strop.groupeval.profile import Profile
from strop.groupeval.validation import (
    CARDS,
    JudgedGroups,
    card_of,
    card_rows,
    card_words,
    effects,
    read_card,
    repeat_agreement,
    validate,
    verdicts_of,
)
from strop.groupeval.verdict import Grade, GroupVerdict, NoVerdict

ANSWERS = Profile.load("answers-v1")


@pytest.mark.parametrize("model", VERSIONS)
def test_a_card_that_ships_says_what_comes_out(model: str) -> None:
    spec = offline_spec(ANSWERS, features="ngrams", model=model)
    card = card_of(spec)
    assert card is not None
    assert card["judge"] == f"{model}/ngrams"
    groups = [one for one in shipped_groups() if one.task == "conTest prompt"]
    said = verdicts_of(groups, offline_client(spec, ANSWERS), ANSWERS)
    found = validate(JudgedGroups.of("x", said), groups, replicates=50)["tasks"]["conTest prompt"]
    told = card["agreement"]["conTest prompt"]
    for name in ("spearman", "kendall_tau_b", "accuracy"):
        assert found[name].value == pytest.approx(told[name], abs=1e-9)
    assert (told["n_groups"], told["n_contexts"]) == (200, 100)


def test_all_four_ship_and_every_one_is_whole() -> None:
    cards = {path.stem: read_card(path) for path in CARDS.glob("*.json")}
    assert sorted(cards) == [f"{m}-{f}" for m in VERSIONS for f in ("minilm", "ngrams")]
    for card in cards.values():
        assert card["profile_sha256"] == ANSWERS.hash
        assert card["n_groups_asked"] == 1279
        assert card["planted"]["copies_are_one_mode"] == 1
        assert len(card_rows(card)) > 30
        assert card_of(JudgeSpec.from_document(card["identity"])) == card
    second = cards["offline-v2-minilm"]["means"]
    assert second["conTest"]["spearman"] >= 0.68
    assert second["decTest"]["spearman"] >= 0.80


def test_the_sentence_says_what_is_not_known() -> None:
    card = read_card(CARDS / "offline-v2-ngrams.json")
    assert "0.58 on conTest and 0.80 on decTest" in card_words(card, "x", ANSWERS.hash)
    assert "nothing is known" not in card_words(card, "x", ANSWERS.hash)
    assert "nothing is known" in card_words(card, "x", Profile.load("webtext-v1").hash)
    assert "has no card" in card_words(None, "gpt")


def test_score_names_the_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = planned(tmp_path / "run", {"a": 16})
    judge_run(run, features="ngrams")
    assert command(["groupeval", "score", str(run)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Card of offline-v2/ngrams: its GED has a rank correlation of 0.58 on conTest" in told
    assert "of groups like these nothing is known" in told
    other = str(CARDS / "offline-v1-ngrams.json")
    assert command(["groupeval", "score", str(run), "--card", other]) == 1
    assert "another judge" in capsys.readouterr().err
    broken = tmp_path / "card.json"
    broken.write_text("{}")
    with pytest.raises(UserError, match="cannot be read"):
        read_card(broken)
    assert card_of(JudgeSpec(kind="endpoint", model="m")) is None
    judge = judge_run(run, features="ngrams").judge
    broken.write_text(json.dumps({"judge": "x", "means": {}, "identity": judge.document()}))
    found = card_of(judge, broken)
    assert found is not None
    assert found["judge"] == "x"


def said(modes: str, *qualities: int) -> GroupVerdict:
    grades = [
        Grade(i, True, (q,) * 4, m) for i, (m, q) in enumerate(zip(modes, qualities, strict=True))
    ]
    return GroupVerdict("people", 0, 0, tuple(grades), "high")


def test_asking_again_place_and_length_by_hand() -> None:
    first = [said("AB", 1, 2), said("AA", 1, 2), None]
    second = [said("AB", 0, 0), said("AB", 0, 0), said("AA", 0, 0)]
    assert repeat_agreement(first, second) == {
        "n_groups": 2,
        "same_ged": 0.5,
        "mean_change_of_ged": 5.0,
    }
    groups = [RatedGroup(("a", "bbb")), RatedGroup(("aa", "bbbb")), RatedGroup(("c", "d"))]
    found = effects(groups, first)
    assert found["position"]["mean_quality"] == [5, 10]
    assert found["length_and_quality"] == pytest.approx(0.894427, abs=1e-6)  # ranks 1 2 3 4, ties


def test_a_judge_without_a_verdict_is_counted_not_scored() -> None:
    def answer(*_: object) -> str:
        raise NoVerdict("refused", "no")

    reasons: list[str] = []
    groups = [RatedGroup(("a", "b"), score=1.0)]
    assert verdicts_of(groups, answer, ANSWERS, reasons.append) == [None]
    assert reasons == ["refused"]
    found = validate(JudgedGroups.of("x", [None]), groups, replicates=10)["tasks"]["all"]
    assert (found["n_groups"], found["n_groups_asked"]) == (0, 1)
