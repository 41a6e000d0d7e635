"""strop language: draw, score, explain, check."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from small_grammar import GRAMMAR, Enumerated, write

from strop import language
from strop.cli.main import run
from strop.language import Language, reading
from strop.language.elimination import Elimination
from strop.language.reading import truth
from strop.stats.interval import Interval

TRUTH = Enumerated(GRAMMAR)


@pytest.fixture(scope="module")
def grammar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("language") / "small.json", GRAMMAR)


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> dict:
    assert run(["language", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_truth_of_a_pool(grammar: Path):
    texts = [(0, 2, 1, 0, 4), (0, 2, 1, 0, 4), (1, 0, 2, 1, 1), (2, 2, 2, 2, 2), (0, 0, 1, 1, 1)]
    found = truth(np.array(texts), Language.load(grammar), Interval(5.0, 4.0, 6.0))
    wrong = np.array([TRUTH.violations(x) for x in texts])
    assert (wrong == 0).any()
    assert (wrong > 0).any()
    surprise = -np.log([TRUTH.p(x) for x in texts])
    assert found.violations.value == wrong.mean()
    assert found.violations.half == pytest.approx(1.96 * wrong.std(ddof=1) / 5**0.5)
    assert found.without.value == (wrong == 0).mean()
    assert found.surprise.value == pytest.approx(surprise.mean())
    assert found.excess.value == pytest.approx(surprise.mean() - 5)
    half = 1.96 * surprise.std(ddof=1) / 5**0.5
    assert found.excess.half == pytest.approx((half**2 + 1) ** 0.5)

    def modes(ids: tuple[int, ...]) -> np.ndarray:
        law = np.zeros((2, 3))
        for share, (_, values, _) in zip(TRUTH.joint(ids), TRUTH.explanations, strict=True):
            law[values["who"], values["kind"]] += share
        return law.reshape(-1) / law.sum()

    true, best = modes((5,) * 5), [int(modes(x).argmax()) for x in texts]
    counts = {mode: best.count(mode) / 5 for mode in best}
    assert 1 < len(counts) < 5
    correction = (len(counts) - 1) / 10
    entropy = -sum(p * np.log(p) for p in counts.values()) + correction
    assert found.mode_entropy == pytest.approx(entropy)
    assert found.effective_modes == pytest.approx(np.exp(entropy))
    positive = true[true > 0]
    assert found.true_modes == pytest.approx(np.exp(-(positive * np.log(positive)).sum()))
    distance = sum(p * np.log(p / true[mode]) for mode, p in counts.items()) - correction
    assert found.mode_distance == pytest.approx(distance)
    assert found.coverage == pytest.approx(sum(true[mode] for mode in counts))
    valid = [mode for mode, count in zip(best, wrong, strict=True) if count == 0]
    assert set(valid) < set(best)  # a mode that only a text with a wrong word has
    overlap = sum(min(true[mode], valid.count(mode) / 5) for mode in set(valid))
    assert found.overlap == pytest.approx(overlap)


def test_texts_are_drawn_written_and_scored(
    tmp_path: Path, grammar: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "texts.jsonl"
    asked = ("--language", grammar, "--seed", 5)
    drawn = printed(capsys, "draw", "-n", 30, *asked)["texts"]
    assert drawn == language.draw(30, language=grammar, seed=5)
    assert run(["language", "draw", "-n", "30", *map(str, asked), "-o", str(out)]) == 0
    capsys.readouterr()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["text"] for row in rows] == drawn
    assert [row["ids"] for row in rows] == Language.load(grammar).draw(30, 5).tolist()
    found = printed(capsys, "score", out, "--language", grammar)
    expected = language.score(drawn, language=grammar)
    assert found["rows"][0]["texts"] == 30
    assert found["rows"][0]["violations"] == expected.violations.document()
    assert found["entropy"]["n"] == 4000
    assert run(["language", "score", str(out), "--language", str(grammar)]) == 0
    assert f"{expected.violations:.2f}" in capsys.readouterr().out


def test_what_is_wrong_is_marked(capsys: pytest.CaptureFixture[str]):
    text = "Once Anna Marsh lived in the town of Los Angeles. He worked as a baker and sang twice"
    found = language.explain(text)
    assert found.text == (
        "Once [Anna -> Henry] Marsh lived in the town of Los Angeles. "
        "He worked as a baker and sang [twice -> every]"
    )
    assert found.latents["hero"] == "Henry Marsh"
    assert [(one.position, one.sentence, one.because) for one in found.wrong] == [
        (2, "who", "hero is Henry Marsh"),
        (19, "work", "the wording"),
    ]
    assert found.log_p == Language.load("even").log_p(Language.load("even").encode(text))
    assert run(["language", "explain", text]) == 0
    shown = capsys.readouterr().out
    assert found.text in shown
    assert "2 violations" in shown
    right = language.explain(language.draw(1, seed=1)[0])
    assert right.wrong == []


def test_a_word_of_another_class_names_the_class():
    whole = language.draw(1, seed=1)[0]
    ids = Language.load("even").encode(whole)
    lang = Language.load("even")
    _, _, laws = lang.explanation(ids)
    place = next(i for i, law in enumerate(laws) if law >= lang.mask_id)
    ids[place] = lang.encode("Anna")[0]
    (wrong,) = language.explain(lang.decode(ids)).wrong
    name = list(lang.grammar.classes)[laws[place] - lang.mask_id]
    assert (wrong.position, wrong.stands, wrong.should) == (place + 1, "Anna", f"<{name}>")
    likely = lang.vocabulary[int(lang.grammar.classes[name].argmax())]
    assert wrong.because.startswith(f"{likely}, ")


def test_a_word_that_is_not_there_is_named(grammar: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["language", "explain", "a, d", "--language", str(grammar)]) == 1
    assert "'d'" in capsys.readouterr().err


def test_a_grammar_is_checked(
    tmp_path: Path,
    grammar: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    found = printed(capsys, "check", grammar)
    assert found["latents"] == {"kind": 3, "who": 2, "odd": 2}
    assert (found["words"], found["length"], found["variants"]) == (5, 5, 5)
    assert found["combinations"] == 12
    assert found["error"] < 1e-12
    bad = deepcopy(GRAMMAR)
    bad["segments"][1]["variants"][0]["tokens"] = ["a"]
    assert run(["language", "check", str(write(tmp_path / "bad.json", bad))]) == 1
    assert "segments[1].variants[0].tokens" in capsys.readouterr().err
    monkeypatch.setattr(Elimination, "beliefs", lambda _, conditionals: list(conditionals))
    assert run(["language", "check", str(grammar)]) == 3
    assert "differ" in capsys.readouterr().err


def test_ends_around_a_text_of_a_network_are_no_words():
    texts = reading.draw(2, seed=4)
    rows = [f"<|endoftext|>{text}<|endoftext|><|endoftext|>" for text in texts]
    language = reading.language_of("even")
    assert (reading.encoded(rows, language) == reading.encoded(texts, language)).all()
