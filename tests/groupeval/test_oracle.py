"""The oracle: grades and modes of a known language, by its law."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strop.cli.main import run
from strop.errors import UserError
from strop.groupeval import Profile, judge_spec
from strop.groupeval.judges import judge_client
from strop.language import Language
from strop.language.reading import draw

PROFILE = Profile.load("webtext-v1")


def broken(language: Language, text: str, words: int) -> str:
    """The text with words in it that cannot stand there, from its end."""
    ids = language.encode(text)
    ids[96 - words :] = language.encode("vanished")[0]
    return language.decode(ids)


def test_grades_fall_with_violations_and_modes_are_those_of_the_law():
    language = Language.load("even")
    clean = [text for text in draw(12, seed=3) if language.violations(language.encode(text)) == 0]
    texts = [clean[0], clean[1], *(broken(language, clean[0], k) for k in (2, 4, 5))]
    texts += [clean[1], "no text of it", clean[2]]
    wrong = [
        0 if k == 6 else int(language.violations(language.encode(t))) for k, t in enumerate(texts)
    ]
    assert wrong == [0, 0, 2, 4, 5, 0, 0, 0]
    spec = judge_spec("oracle", PROFILE, valid=4)
    assert spec.settings["valid"] == 4
    assert "valid up to 4" in (spec.name or "")
    reply = json.loads(judge_client(spec, PROFILE)(list("stuvwxyz"), texts, None))
    outputs = reply["outputs"]
    assert [one["id"] for one in outputs] == list("stuvwxyz")
    assert [one["valid"] for one in outputs] == [True, True, True, True, False, True, False, True]
    points = [sum(one[name] for name in PROFILE.dimensions) for one in outputs]
    # of 8 points, the share 1 - violations / 5, rounded up
    assert points == [8, 8, 5, 2, 0, 8, 0, 8]
    best = [language.posterior(language.encode(text)).argmax() for text in clean[:3]]
    assert len(set(best)) == 3
    modes = [one["mode"] for one in outputs]
    assert modes[:4] == ["A", "B", "A", "A"]
    assert modes[4:] == [None, "B", None, "C"]


def test_texts_of_one_mode_share_a_letter_whatever_else_they_say():
    language = Language.load("skewed")  # its likeliest modes come back within a few texts
    texts = [
        t
        for t in draw(40, seed=3, language="skewed")
        if not language.violations(language.encode(t))
    ]
    spec = judge_spec("oracle", PROFILE, language="skewed")
    outputs = json.loads(judge_client(spec, PROFILE)(list("stuvwxyz"), texts[:8], None))["outputs"]
    likeliest = [int(language.posterior(language.encode(text)).argmax()) for text in texts[:8]]
    letters = dict.fromkeys(likeliest)
    assert 1 < len(letters) < 8
    names = dict(zip(letters, "ABCDEFGH", strict=False))
    assert [one["mode"] for one in outputs] == [names[mode] for mode in likeliest]


def test_texts_of_another_language_are_refused():
    ask = judge_client(judge_spec("oracle", PROFILE), PROFILE)
    own, other = draw(4), "a text in other words"
    with pytest.raises(UserError, match="missing from the language even") as caught:
        ask(list("abcdefgh"), [*own[:3], *[other] * 5], None)
    assert "language=tail" in str(caught.value)
    outputs = json.loads(ask(list("abcdefgh"), [*own, *[other] * 4], None))["outputs"]
    assert [one["valid"] for one in outputs] == [True] * 4 + [False] * 4


def test_series_are_told_apart_by_language_and_threshold():
    ids = {
        judge_spec("oracle", PROFILE, **one).id
        for one in ({}, {"valid": 24}, {"language": "skewed"}, {"language": "even", "valid": 8})
    }
    assert len(ids) == 3
    with pytest.raises(UserError, match="`valid` is out of range"):
        judge_spec("oracle", PROFILE, valid=-1)
    with pytest.raises(UserError, match="no setting of the oracle called 'least'"):
        judge_spec("oracle", PROFILE, least=1)
    with pytest.raises(UserError, match="no language called 'odd'"):
        judge_spec("oracle", PROFILE, language="odd")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    texts, plan = tmp_path / "exact.jsonl", str(tmp_path / "ge")
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in draw(8)))
    assert run(["groupeval", "plan", str(texts), "-o", plan]) == 0
    assert run(["groupeval", "judge", plan, "--oracle", "--offline"]) == 1
    assert "Two judges" in capsys.readouterr().err
    assert run(["groupeval", "judge", plan, "--oracle", "--model", "gpt2"]) == 1
    assert "oracle judge has neither" in capsys.readouterr().err
    assert run(["groupeval", "judge", plan, "--oracle", "--settings", "valid=2"]) == 0
    capsys.readouterr()
    assert run(["groupeval", "score", plan]) == 0
    assert "valid up to 2 violations" in capsys.readouterr().out
