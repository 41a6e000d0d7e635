"""The law of a language: against enumeration where that is possible, against itself elsewhere."""

from __future__ import annotations

from copy import deepcopy
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare
from small_grammar import GRAMMAR, ODD, Enumerated, write

import make_grammars
from strop.errors import UserError
from strop.language import Language
from strop.language.elimination import Elimination
from strop.language.grammar import PRESETS, ROOT

SIZE, LENGTH = 5, 5
TRUTH = Enumerated(GRAMMAR)
CONTEXTS = list(product(range(SIZE + 1), repeat=LENGTH))
SOME = CONTEXTS[::37]
CLOSE = {"rtol": 1e-12, "atol": 1e-14}  # sums of a few dozen terms in float64


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Language:
    return Language.load(write(tmp_path_factory.mktemp("language") / "small.json", GRAMMAR))


@pytest.fixture(scope="module")
def even() -> Language:
    return Language.load("even")


def test_the_probability_of_every_text_and_marginal(small: Language):
    assert np.exp(small.log_p(list(product(range(SIZE), repeat=LENGTH)))).sum() == pytest.approx(1)
    np.testing.assert_allclose(np.exp(small.log_p(SOME)), [TRUTH.p(x) for x in SOME], **CLOSE)
    assert small.log_p(SOME[7]).shape == ()
    assert small.log_p(SOME[7][:3]) == small.log_p((*SOME[7][:3], SIZE, SIZE))  # cut off: masked


def test_predictive_laws_of_every_position(small: Language):
    found = small.predictive(SOME)
    for x, laws in zip(SOME, found, strict=True):
        for i, token in enumerate(x):
            if token != SIZE:
                expected = np.eye(SIZE)[token]
            else:
                filled = [TRUTH.p((*x[:i], v, *x[i + 1 :])) for v in range(SIZE)]
                expected = np.array(filled) / TRUTH.p(x)
            np.testing.assert_allclose(laws[i], expected, **CLOSE)


def test_posteriors_in_any_order_and_of_any_latents(small: Language):
    sizes = {"who": 2, "kind": 3, "odd": 2}
    for names in (("who", "kind"), ("kind", "who"), ("odd",), ("odd", "who", "kind")):
        found = small.posterior(SOME[:40], names)
        for x, table in zip(SOME[:40], found, strict=True):
            expected = np.zeros([sizes[name] for name in names])
            for share, (_, values, _) in zip(TRUTH.joint(x), TRUTH.explanations, strict=True):
                expected[tuple(values[name] for name in names)] += share
            np.testing.assert_allclose(table, expected / expected.sum(), **CLOSE)
    assert (small.posterior(SOME) == small.posterior(SOME, ("who", "kind"))).all()
    with pytest.raises(UserError, match="no latent called 'whom'"):
        small.posterior(SOME, ("whom",))


def test_violations_and_their_explanation(small: Language):
    assert small.violations(SOME).tolist() == [TRUTH.violations(x) for x in SOME]
    for x in SOME[:60]:
        values, _, laws = small.explanation(x)
        wrong = [i for i, v in enumerate(x) if v != SIZE and not small.possible(laws[i])[v]]
        assert len(wrong) == TRUTH.violations(x)
        fewest = [
            (share, v)
            for share, count, (_, v, _) in zip(
                TRUTH.joint(x), TRUTH.wrong(x), TRUTH.explanations, strict=True
            )
            if count == len(wrong)
        ]
        best = max(share for share, _ in fewest)
        likely = [v for share, v in fewest if share > best * (1 - 1e-9)]
        numbers = {n: GRAMMAR["latents"][n]["values"].index(v) for n, v in values.items()}
        assert numbers in likely


def test_expected_typos_by_kind(small: Language):
    found = small.typos(SOME)
    for k, x in enumerate(SOME):
        expected = TRUTH.typos(x)
        assert list(found) == list(expected)
        got = [column[k] for column in found.values()]
        np.testing.assert_allclose(got, list(expected.values()), **CLOSE)


def test_an_odd_grammar_agrees_with_enumeration(tmp_path: Path):
    odd, sums, dice = (
        Language.load(write(tmp_path / "odd.json", ODD)),
        Enumerated(ODD),
        np.random.default_rng(11),
    )
    size = len(ODD["vocabulary"])
    rows = np.concatenate([odd.draw(12, seed=4), dice.integers(0, size, (12, 7))])
    rows = np.concatenate([rows, np.where(dice.random(rows.shape) < 0.5, size, rows)])
    rows = np.concatenate([rows, [[size] * 7]])
    texts = [tuple(map(int, row)) for row in rows]
    np.testing.assert_allclose(odd.log_p(rows), np.log([sums.p(x) for x in texts]), **CLOSE)
    assert odd.violations(rows).tolist() == [sums.violations(x) for x in texts]
    laws, typos, names = odd.predictive(rows), odd.typos(rows), ("unsaid", "top", "mid")
    posterior = odd.posterior(rows, names)
    for k, x in enumerate(texts):
        for i in np.flatnonzero(rows[k] == size):
            filled = np.array([sums.p((*x[:i], v, *x[i + 1 :])) for v in range(size)])
            np.testing.assert_allclose(laws[k, i], filled / sums.p(x), **CLOSE)
        expected = np.zeros((3, 3, 2))
        for share, (_, values, _) in zip(sums.joint(x), sums.explanations, strict=True):
            expected[tuple(values[name] for name in names)] += share
        np.testing.assert_allclose(posterior[k], expected / expected.sum(), **CLOSE)
        for kind, value in sums.typos(x).items():
            np.testing.assert_allclose(typos[kind][k], value, **CLOSE)


def test_a_batch_has_room_for_the_largest_tables(tmp_path: Path, monkeypatch):
    names = "pqrst"
    latent = {"values": list("abc"), "weights": [1, 2, 3], "features": {"w": list("abc")}}
    pairs = [(one, two) for one in names for two in names if one < two]
    segments = [
        {
            "length": 2,
            "scope": both,
            "variants": [{"weight": 1, "tokens": [f"{{{one}.w}}" for one in both]}],
        }
        for both in pairs
    ]
    grammar = {"format": "strop-language/1", "length": 20, "noise": 0.1, "vocabulary": list("abcd")}
    grammar |= {"latents": dict.fromkeys(names, latent), "segments": segments}
    language = Language.load(write(tmp_path / "dense.json", grammar))
    # every latent is tied to all others: 3^5 entries, then 3^4, ...; the sentences have 90
    assert (language.elimination.largest, language.elimination.entries) == (243, 363)
    ids = language.draw(30, seed=1)
    whole = language.log_p(ids)
    monkeypatch.setattr("strop.language.law.AT_ONCE", 4 * 363)
    assert [len(some) for some in language._batches(ids)] == [4] * 7 + [2]
    np.testing.assert_allclose(language.log_p(ids), whole, rtol=1e-13)


def test_a_sentence_alone(small: Language):
    x = np.array([[0, SIZE, 2, SIZE, 1], [1, 3, SIZE, 2, SIZE]])
    alone = small._mixed(small.weights(x, alone=True))
    for part in (slice(0, 3), slice(3, 5)):
        own = np.full_like(x, SIZE)
        own[:, part] = x[:, part]
        expected = small._mixed(small.weights(own))[:, part]
        np.testing.assert_allclose(alone[:, part], expected, **CLOSE)
    assert abs(alone - small._mixed(small.weights(x))).max() > 0.01


def test_draws_follow_the_law(small: Language, tmp_path: Path):
    n = 40_000
    drawn = small.draw(n, seed=3)
    assert (small.draw(7, seed=3) == drawn[:7]).all()
    assert (small.draw(7, seed=4) != drawn[:7]).any()
    counts = np.bincount(drawn @ SIZE ** np.arange(LENGTH)[::-1], minlength=SIZE**LENGTH)

    def chance(language: Language) -> float:
        expected = n * np.exp(language.log_p(list(product(range(SIZE), repeat=LENGTH))))
        rare = expected < 10
        pooled = [np.append(x[~rare], x[rare].sum()) for x in (counts, expected)]
        return chisquare(pooled[0], pooled[1] * pooled[0].sum() / pooled[1].sum()).pvalue

    assert chance(small) > 0.001
    other = {**GRAMMAR, "noise": 0.14}
    assert chance(Language.load(write(tmp_path / "other.json", other))) < 1e-4


def test_the_entropy_has_an_interval(small: Language):
    p = np.exp(small.log_p(list(product(range(SIZE), repeat=LENGTH))))
    exact = -(p * np.log(p)).sum()
    spread = np.sqrt((p * (np.log(p) + exact) ** 2).sum())
    found = small.entropy(4_000, seed=1)
    assert found.half == pytest.approx(1.96 * spread / 4_000**0.5, rel=0.05)
    assert abs(found.value - exact) < 2 * found.half


def worst_ratio(language: Language, texts: int = 2) -> float:
    """How far predictive laws are from ratios of probabilities, relatively."""
    dice = np.random.default_rng(5)
    ids = language.draw(texts, seed=8)
    ids[dice.random(ids.shape) < 0.6] = language.mask_id
    found, worst = language.predictive(ids), 0.0
    for x, laws in zip(ids, found, strict=True):
        for i in dice.choice(np.flatnonzero(x == language.mask_id), 12, replace=False):
            words = np.append(laws[i].argmax(), dice.integers(0, language.mask_id, 4))
            filled = np.repeat(x[None], len(words), 0)
            filled[:, i] = words
            ratio = np.exp(language.log_p(filled) - language.log_p(x))
            worst = max(worst, abs(laws[i, words] / ratio - 1).max())
    return worst


@pytest.mark.parametrize("name", ["even", "skewed"])
def test_at_full_size_predictive_laws_are_ratios_of_probabilities(name: str):
    assert worst_ratio(Language.load(name)) < 1e-11  # a hundred logarithms of size ten


def test_a_dropped_message_is_noticed(even: Language, monkeypatch: pytest.MonkeyPatch):
    whole = Elimination.beliefs

    def dropping(self: Elimination, conditionals):
        beliefs = whole(self, conditionals)
        kept = conditionals[1].sum(self.buckets[1].axis)
        beliefs[1] = conditionals[1] / kept[..., 0].size  # as if nothing came from its parent
        return beliefs

    monkeypatch.setattr(Elimination, "beliefs", dropping)
    assert worst_ratio(even) > 0.01


def test_texts_and_ids(even: Language):
    ids = even.draw(20, seed=2)
    assert all((even.encode(even.decode(row)) == row).all() for row in ids)
    some = np.where(np.arange(96) % 3 == 0, even.mask_id, ids[0])
    assert (even.encode(even.decode(some)) == some).all()
    assert even.decode(ids[0]).endswith(".")
    assert " ." not in even.decode(ids[0])
    with pytest.raises(UserError, match="no such word") as caught:
        even.encode("Anna xylophone")
    assert "xylophone" in str(caught.value)
    with pytest.raises(UserError, match="longer"):
        even.encode("Anna " * 97)
    for wrong in ([0.5], [even.mask_id + 1], [-1], [0] * 97):
        with pytest.raises(UserError, match="not ids"):
            even.log_p(wrong)


def test_narrowed_makes_the_less_likely_half_rare(small: Language):
    narrow = small.narrowed(100)
    kind, who, odd = (latent.prior for latent in narrow.grammar.latents)
    np.testing.assert_allclose(who, [3 / 3.02, 0.02 / 3.02])
    np.testing.assert_allclose(odd, [0.01 / 4.01, 4 / 4.01])
    # of kind, y has .4, z .3 and x .3 (in rounding x first): two of three are kept
    marginal = small.posterior([], ["kind"])
    rare = int(np.argsort(-marginal, kind="stable")[-1])
    rows = np.array([[2, 1, 1], [0, 5, 3]], float)
    rows[:, rare] /= 100
    np.testing.assert_allclose(kind, rows / rows.sum(1, keepdims=True))


def test_what_ships_is_what_the_script_writes():
    texts = make_grammars.texts()
    assert sorted(texts) == [f"{name}.json" for name in PRESETS]
    for name, text in texts.items():
        assert (ROOT / "grammars" / name).read_text("utf-8") == text


def test_the_presets_are_as_the_page_says(even: Language):
    assert (even.length, even.mask_id, even.elimination.largest) == (96, 353, 1536)
    tail = Language.load("tail")
    assert (tail.length, tail.mask_id) == (96, 16_353)
    for language, modes in ((even, 41.0), (tail, 41.0), (Language.load("skewed"), 20.3)):
        law = language.posterior([])
        assert law.shape == (8, 8)
        assert np.exp(-(law * np.log(law)).sum()) == pytest.approx(modes, abs=0.1)


def _edit(*path: object, to: object):
    def apply(grammar: dict) -> None:
        place = grammar
        for key in path[:-1]:
            place = place[key]
        if to is None:
            del place[path[-1]]
        else:
            place[path[-1]] = to

    return apply


FIRST = ("segments", 0, "variants")
BAD = {
    "the whole document: 'noise' is": _edit("noise", to=None),
    "format": _edit("format", to="strop-language/2"),
    "noise": _edit("noise", to=0),
    "length: The lengths": _edit("length", to=6),
    "vocabulary[2]": _edit("vocabulary", 2, to="a"),
    "vocabulary[1]": _edit("vocabulary", 1, to=7),
    "classes.any.words[1]": _edit("classes", "any", "words", 1, to="d"),
    "classes.any.weights: There": _edit("classes", "any", "weights", to=[1]),
    "classes.any.weights[0]": _edit("classes", "any", "weights", 0, to=-1),
    "classes.any.weights: All": _edit("classes", "any", "weights", to=[0, 0]),
    "latents.kind.weights: There": _edit("latents", "kind", "weights", to=[[1, 1, 1]]),
    "latents.kind.weights[1]: All": _edit("latents", "kind", "weights", 1, to=[0, 0, 0]),
    "latents.kind.weights[0][2]": _edit("latents", "kind", "weights", 0, 2, to="1"),
    "latents.kind.given: There": _edit("latents", "kind", "given", to="whom"),
    "latents.kind.given: A latent": _edit(
        "latents", "who", to={"values": ["p", "q"], "given": "kind", "weights": [[1, 1]] * 3}
    ),
    "latents.who.features.w: There": _edit("latents", "who", "features", "w", to=["b"]),
    "latents.who.features.w[1]": _edit("latents", "who", "features", "w", 1, to="d"),
    "latents.who.values": _edit("latents", "who", "values", to=["p", "p"]),
    "segments[1].scope: There": _edit("segments", 1, "scope", to=["whom"]),
    "segments[1].scope: The": _edit("segments", 1, "scope", to=["who", "who"]),
    "segments[0].variants[0].tokens: A": _edit(*FIRST, 0, "tokens", to=["a"]),
    "segments[0].variants[0].tokens[1]: There": _edit(*FIRST, 0, "tokens", 1, to="<none>"),
    "segments[0].variants[1].tokens[1]: The word": _edit(*FIRST, 1, "tokens", 1, to="d"),
    "segments[0].variants[2].tokens[0]: The latent": _edit(*FIRST, 2, "tokens", 0, to="{who.x}"),
    "segments[1].variants[0].tokens[0]": _edit(
        "segments", 1, "variants", 0, "tokens", 0, to="{who.w}"
    ),
    "segments[0].variants[1].when.kind": _edit(*FIRST, 1, "when", "kind", to=["w"]),
    "segments[1].variants[1].when.who": _edit(
        "segments", 1, "variants", 1, "when", to={"who": "p"}
    ),
    "segments[0].variants[0]: The": _edit(*FIRST, 0, "wieght", to=1),
    "segments[0].variants: No": _edit(*FIRST, 0, "weight", to=0),
    "mode": _edit("mode", to=["whom"]),
}


@pytest.mark.parametrize("place", BAD)
def test_a_bad_grammar_gets_one_message_with_the_place(place: str, tmp_path: Path):
    grammar = deepcopy(GRAMMAR)
    BAD[place](grammar)
    path = write(tmp_path / "bad.json", grammar)
    with pytest.raises(UserError) as caught:
        Language.load(path)
    where, _, words = place.partition(": ")
    assert caught.value.where == f"{path}: {where}"
    assert words in f"{caught.value.what} {caught.value.got}"


def test_what_is_no_grammar_at_all(tmp_path: Path):
    with pytest.raises(UserError, match="no language called 'evem'"):
        Language.load("evem")
    with pytest.raises(UserError, match="no such grammar"):
        Language.load(tmp_path / "none.json")
    (tmp_path / "cut.json").write_text('{"format": ')
    with pytest.raises(UserError, match="not JSON"):
        Language.load(tmp_path / "cut.json")
