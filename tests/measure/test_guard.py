"""The entropy guard: which texts make it, what it says, and for whom a kept one is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from made_runs import cell_spec
from strop import assets
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError
from strop.measure import guard as module
from strop.measure.entropy import entropy
from strop.measure.guard import (
    Guard,
    HeldOutTexts,
    clean_tokens,
    default_guard,
    evaluator_guard,
    guard,
    guard_of,
    held_out_guard,
    quantile_ends,
    read_texts,
)
from strop.spec import GeneratorSpec, PromptSpec
from strop.stats.interval import Interval
from strop.store import Run

LENGTH = 16


def generator(length: int = LENGTH, vocab_size: int = 12, mask: int | None = None) -> GeneratorSpec:
    made = cell_spec(length).generator
    shape = {"vocab_size": vocab_size, "length": 2048}
    shape["mask_id"] = vocab_size - 1 if mask is None else mask
    checkpoint = made.checkpoint.model_copy(update={"shape": shape})
    return made.model_copy(update={"checkpoint": checkpoint})


def rows(n: int, length: int = LENGTH) -> np.ndarray:
    """Text i has i different tokens, evenly: the entropy of row i grows with i."""
    return np.stack([np.arange(length) % (1 + i % 10) for i in range(n)])


def filed(path: Path, ids: np.ndarray) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in ids.tolist()))
    return path


def between(low: float, high: float) -> Interval:
    return Interval((low + high) / 2, low, high, 0.95, 100)


@pytest.mark.parametrize(
    ("low", "high", "side"),
    [
        (5.0, 6.0, "above"),
        (4.999, 6.0, "undecided"),
        (4.0, 5.0, "undecided"),
        (4.0, 4.999, "below"),
    ],
)
def test_a_cell_lies_on_a_side_with_its_whole_interval(low, high, side) -> None:
    found = Guard(LENGTH, 5.0, "mine")
    assert found.verdict(between(low, high)) == side
    told = {"threshold": 5.0, "source": "mine", "verdict": side}
    assert found.document(between(low, high)) == told


def test_the_threshold_of_texts_has_an_interval_and_that_of_the_paper_is_a_convention() -> None:
    found = guard(LENGTH, rows(300))
    assert found.ends is not None
    assert found.threshold is not None
    assert found.ends[0] <= found.threshold <= found.ends[1]
    assert f"H >= {found.threshold:.3f} [{found.ends[0]:.3f}, {found.ends[1]:.3f}]" in str(found)
    assert found.document(None)["ends"] == list(found.ends)
    paper = default_guard(generator(1024, 50258))
    assert (paper.threshold, paper.ends) == (5.0, None)
    assert "a convention" in str(paper)


@pytest.mark.parametrize("n", [20, 35, 36, 60, 300, 2048])
def test_a_quantiles_interval_misses_it_by_chance_as_rarely_as_it_says(n: int) -> None:
    """Whatever the law: which ranks are taken decides, and their chances are the binomial's."""
    low, high = map(int, quantile_ends(np.arange(1, n + 1), 0.1))  # a rank is its value
    assert binom.cdf(low - 1, n, 0.1) <= 0.025 < binom.cdf(low, n, 0.1)
    assert binom.sf(high - 1, n, 0.1) <= 0.025 < binom.sf(high - 2, n, 0.1)
    assert (low == 0) == (n < 36)  # of fewer none is surely below


def test_without_a_threshold_or_entropy_there_is_no_verdict() -> None:
    assert Guard(LENGTH, None, "nothing").verdict(between(1, 2)) is None
    assert Guard(LENGTH, 5.0, "mine").verdict(None) is None


@pytest.mark.parametrize("length", [4, 15, 16])
def test_the_threshold_is_the_tenth_percentile_of_texts_cut_to_the_length(length: int) -> None:
    ids = rows(30)
    found = guard(length, ids, source="texts of mine")
    expected = np.quantile([entropy(row[None, :length])[0] for row in ids], 0.1)
    assert found.threshold == pytest.approx(expected)
    assert found.length == length
    assert found.source == f"tenth percentile of 30 texts of mine of {length} tokens"


def test_too_few_or_too_short_texts_make_none() -> None:
    assert guard(LENGTH, rows(20)).threshold is not None
    assert guard(LENGTH, rows(19)).threshold is None
    assert guard(LENGTH + 1, rows(20)).threshold is None
    assert guard(LENGTH).threshold is None


def test_a_mask_behind_the_last_token_is_no_token() -> None:
    assert clean_tokens(generator(vocab_size=12)) == 11
    assert clean_tokens(generator(vocab_size=12, mask=12)) == 12


@pytest.mark.parametrize("vocab_size", [50257, 50258, 50259])
def test_the_papers_number_is_for_its_length_and_vocabulary(vocab_size: int) -> None:
    known = default_guard(generator(1024, vocab_size))
    there = vocab_size != 50257  # with the mask among its tokens it is one short of GPT-2's
    assert (known.threshold == 5.0) is there
    assert default_guard(generator(1024, vocab_size, mask=vocab_size)).threshold == (
        None if vocab_size == 50259 else 5.0
    )
    assert default_guard(generator(1023, vocab_size)).threshold != 5.0


def test_the_texts_that_ship_are_for_their_vocabulary() -> None:
    shipped = read_texts()
    assert shipped is not None
    assert shipped.vocab_size is not None
    mine = generator(32, shipped.vocab_size + 1)
    expected = np.quantile(entropy(shipped.ids[:, :32]), 0.1)
    assert default_guard(mine).threshold == pytest.approx(expected)
    assert default_guard(generator(32, shipped.vocab_size)).threshold is None
    assert default_guard(generator(32, shipped.vocab_size + 2)).threshold is None


# ---------------------------------------------------------------- kept in a run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.prepare(tmp_path / "run", {"checkpoint": "", "n": 0}, [cell_spec(LENGTH)])


def test_what_was_made_of_given_texts_is_used_again(run: Run, tmp_path: Path) -> None:
    plain = guard_of(generator(), run)
    assert plain.threshold is None
    made = guard_of(generator(), run, held_out=filed(tmp_path / "mine.jsonl", rows(40) % 11))
    expected = np.quantile(entropy(rows(40) % 11), 0.1)
    assert made.threshold == pytest.approx(expected)
    assert guard_of(generator(), run) == made
    assert guard_of(generator(), Run.open(run.path)) == made


@pytest.mark.parametrize("length", [LENGTH - 1, LENGTH + 1, 2 * LENGTH])
def test_a_guard_of_another_length_is_not_used(run: Run, tmp_path: Path, length: int) -> None:
    made = guard_of(generator(), run, held_out=filed(tmp_path / "mine.jsonl", rows(40) % 11))
    other = guard_of(generator(length), run)
    assert other == default_guard(generator(length))
    assert other.threshold != made.threshold
    assert other.length == length


def test_other_texts_and_another_length_make_another_and_replace_it(run: Run, tmp_path) -> None:
    first = guard_of(generator(), run, held_out=filed(tmp_path / "one.jsonl", rows(40) % 11))
    second = guard_of(generator(), run, held_out=filed(tmp_path / "two.jsonl", rows(30) % 11))
    assert first.source != second.source
    assert guard_of(generator(), run) == second
    third = guard_of(generator(8), run, held_out=filed(tmp_path / "two.jsonl", rows(30) % 11))
    assert third.length == 8
    assert guard_of(generator(8), run) == third
    assert guard_of(generator(), run).threshold is None


def test_a_kept_guard_without_a_threshold_stays_one(run: Run, tmp_path: Path) -> None:
    """Too few texts are an answer, too: the default does not come back."""
    made = guard_of(generator(), run, held_out=filed(tmp_path / "few.jsonl", rows(19) % 11))
    assert made.threshold is None
    assert made.source == "19 of 19 texts of few.jsonl have 16 tokens, where 20 are needed"
    assert guard_of(generator(), run) == made
    lines = [json.dumps(row) for row in (rows(19) % 11).tolist()] + ["[1, 2]"] * 2
    (tmp_path / "few.jsonl").write_text("\n".join(lines))
    made = guard_of(generator(), run, held_out=tmp_path / "few.jsonl")
    assert made.source == "19 of 21 texts of few.jsonl have 16 tokens, where 20 are needed"


def test_a_damaged_guard_is_told(run: Run) -> None:
    run.keep_guard({"length": LENGTH, "source": "mine"})
    with pytest.raises(UserError, match="guard cannot be read"):
        guard_of(generator(), run)


def test_texts_that_are_too_short_are_counted(tmp_path: Path) -> None:
    class Plain:
        vocab_size, mask_id, codec = 12, 11, None

    mixed = [row[: 16 - (i % 2)].tolist() for i, row in enumerate(rows(50) % 11)]
    path = tmp_path / "mixed.jsonl"
    path.write_text("\n".join(map(json.dumps, mixed)))
    found = held_out_guard(path, LENGTH, Plain())
    assert found.source == "tenth percentile of 25 texts of mixed.jsonl of 16 tokens"
    assert found.threshold == pytest.approx(np.quantile(entropy(rows(50)[::2] % 11), 0.1))


def test_a_checkpoint_without_a_vocabulary_has_no_guard(tmp_path: Path) -> None:
    class Unknown:
        vocab_size, mask_id, codec = 0, None, None

    found = held_out_guard(tmp_path / "not read.jsonl", LENGTH, Unknown())
    why = "the checkpoint does not say how large its vocabulary is"
    assert found == Guard(LENGTH, None, why)
    assert str(found) == f"no entropy guard: {why}"


# ---------------------------------------------------------------- by hand


def test_what_a_guard_says_of_itself() -> None:
    found = Guard(LENGTH, 1.23456, "mine", (1.0, 1.5))
    assert found.bound == "H >= 1.235 [1.000, 1.500]"
    assert str(found) == (
        "† below the entropy guard H >= 1.235 [1.000, 1.500] (mine), "
        "‡ undecided: the 95% interval of the mean entropy reaches it"
    )
    assert Guard(LENGTH, 5.0, "mine").bound == "H >= 5.000"
    assert found.document(between(1.3, 1.4)) == {
        "threshold": 1.23456,
        "source": "mine",
        "ends": [1.0, 1.5],
        "verdict": "above",
    }
    assert guard(LENGTH, rows(30)).source == "tenth percentile of 30 held-out texts of 16 tokens"
    why = "no 20 held-out texts of 17 tokens in the generator's vocabulary"
    assert guard(17, rows(30)) == guard(17) == Guard(17, None, why)


def test_the_ranks_of_a_quantiles_interval() -> None:
    """Ten values: below the median lie 4 to 6 with half the chance, in any order of the values."""
    values = np.array([5.0, 3, 9, 1, 7, 2, 10, 6, 4, 8])
    assert quantile_ends(values, 0.5, 0.5) == (4, 7)
    assert quantile_ends(values, 0.5) == (2, 9)  # 2 to 8 lie below with 95%
    assert quantile_ends(values[:3], 0.99) == (5, 9)  # beyond the last there is none
    assert quantile_ends(values, 0.1)[0] == 0.0


class Letters:
    """An evaluator with so many tokens, of which it uses a letter's number for a letter."""

    def __init__(self, tokens: int) -> None:
        self.tokenizer = range(tokens)

    def encode(self, texts: list[str]) -> list[list[int]]:
        return [[ord(one) - ord("a") for one in text] for text in texts]


SHIPPED = HeldOutTexts(
    ["".join(chr(ord("a") + k) for k in row) for row in rows(40) % 11],
    rows(40) % 11,
    11,
    "texts that ship",
)


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "read_texts", lambda: SHIPPED)


def evaluated(tokens: int, length: int, held_out: Path | None = None) -> Guard:
    return evaluator_guard(Letters(tokens), length, held_out)  # type: ignore[arg-type]


@pytest.mark.usefixtures("shipped")
def test_an_evaluators_guard_by_its_vocabulary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paper = "the paper's H >= 5 at 1,024 GPT-2 tokens, a convention"
    ours = guard(8, rows(40)[:, :8] % 11, source="texts that ship")
    assert ours.threshold is not None
    for tokens in (50257, 50258):
        assert evaluated(tokens, 1023) == Guard(1023, 5.0, paper)
        assert evaluated(tokens, 1022).threshold is None
        assert evaluated(tokens, 8) == ours
    assert evaluated(11, 8) == ours
    assert evaluated(11, 1023).threshold is None
    for tokens in (10, 12, 50256, 50259):
        assert evaluated(tokens, 8) == guard(8)
        assert evaluated(tokens, 1024) == guard(1024)
    path = tmp_path / "mine.jsonl"  # every other text is too short
    texts = [text[: 8 - k % 2] for k, text in enumerate(SHIPPED.texts)]
    path.write_text("".join(json.dumps({"text": one}) + "\n" for one in texts))
    wanted = guard(8, rows(40)[::2, :8] % 11, source="texts of mine.jsonl")
    assert [evaluated(tokens, 8, path) for tokens in (11, 12, 50257)] == [wanted] * 3
    monkeypatch.setattr(module, "MOST", 39)
    assert evaluated(12, 8, path).threshold == wanted.threshold
    monkeypatch.setattr(module, "MOST", 38)
    assert evaluated(12, 8, path).threshold is None  # nineteen are left
    monkeypatch.setattr(module, "read_texts", lambda: None)
    assert evaluated(11, 8) == guard(8)


@pytest.mark.usefixtures("shipped")
def test_the_default_guard_by_the_generators_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = guard(8, rows(40) % 11, source="texts that ship")
    assert default_guard(generator(8, 12)) == ours
    assert default_guard(generator(8, 13)) == guard(8)
    answers = generator(8, 12).model_copy(
        update={"prompts": PromptSpec(sha256="0" * 64, count=1, form="prefix")}
    )
    why = "the outputs answer prompts, and the texts we know answer none"
    assert default_guard(answers) == Guard(8, None, why)
    codec = TextCodec.gpt2()
    own = [ids[:5] for ids in codec.encode_all(SHIPPED.texts) if len(ids) >= 5]
    assert 20 <= len(own) < 40
    for size in (50258, 50259):
        assert default_guard(generator(5, size)) == guard(
            5, np.array(own), source="texts that ship"
        )
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "tokenizers" else name)
    why = "GPT-2's tokenizer is not installed here (tokenizers)"
    assert default_guard(generator(5, 50258)) == Guard(5, None, why)
    monkeypatch.setattr(module, "read_texts", lambda: None)
    assert [default_guard(generator(5, size)) for size in (12, 50258)] == [guard(5)] * 2


def test_a_shape_that_says_little_has_few_tokens() -> None:
    def shaped(**shape: int) -> int:
        made = generator()
        checkpoint = made.checkpoint.model_copy(update={"shape": shape})
        return clean_tokens(made.model_copy(update={"checkpoint": checkpoint}))

    assert [shaped(), shaped(vocab_size=12), shaped(vocab_size=12, mask_id=0)] == [0, 12, 11]


def test_a_vocabulary_of_one_token_is_one(tmp_path: Path) -> None:
    class One:
        vocab_size, mask_id, codec = 1, None, None

    path = filed(tmp_path / "mine.jsonl", np.zeros((20, LENGTH), int))
    assert held_out_guard(path, LENGTH, One()).threshold == 0.0


def test_texts_are_read_by_the_given_vocabulary_or_by_the_runs_checkpoint(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Plain:
        vocab_size, mask_id, codec = 12, 11, None

    asked: list[str] = []

    def found(source: str, made: GeneratorSpec) -> Plain:
        assert made == generator()
        asked.append(source)
        return Plain()

    monkeypatch.setattr(module._Reader, "of", found)
    path = filed(tmp_path / "mine.jsonl", rows(20) % 11)
    first = guard_of(generator(), held_out=path)
    named = Run.prepare(tmp_path / "named", {"checkpoint": "a/b", "n": 0}, [cell_spec(LENGTH)])
    assert guard_of(generator(), named, held_out=path) == first
    assert guard_of(generator(), run, held_out=path, vocabulary=Plain()) == first
    assert asked == ["", "a/b"]
    assert guard_of(generator(), run) == guard_of(generator(), named) == first
    assert first.ends is not None
    named.keep_guard({"length": LENGTH, "threshold": 2, "source": "s"})
    assert guard_of(generator(), named) == Guard(LENGTH, 2.0, "s", None)


def test_the_tokenizer_beside_the_weights_reads_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(TextCodec, "beside", lambda *given: seen.append(given) or "codec")
    for name, file in (("one", "tokenizer.json"), ("two", "vocab.json"), ("none", "x.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
    places = ("", "one", "two/weights.ckpt", "none", "none/weights.ckpt")
    for place in places:
        source = str(tmp_path / place) if place else ""
        found = module._Reader.of(source, generator(vocab_size=12))
        assert (found.vocab_size, found.mask_id, found.codec) == (12, 11, "codec")
    folders = [None, tmp_path / "one", tmp_path / "two", None, None]
    assert seen == [(folder, 12, -1) for folder in folders]
    seen.clear()
    module._Reader.of("embedded:tales", generator(vocab_size=50258))
    module._Reader.of("", generator(vocab_size=50258, mask=50258))
    module._Reader.of("", generator(vocab_size=50257))
    folder = assets.embedded_path("embedded:tales")
    assert seen == [(folder, 50258, 50258), (None, 50258, 50258), (None, 50257, -1)]
    made = generator()
    bare = made.model_copy(update={"checkpoint": made.checkpoint.model_copy(update={"shape": {}})})
    assert module._Reader.of("", bare) == module._Reader(0, None, "codec")


def test_the_paper_passes_a_cell_by_its_mean() -> None:
    strict = Guard(8, 5.0, "a convention")
    paper = replace(strict, rule="mean")
    near, at, under = (Interval(value, value - 0.1, value + 0.1) for value in (5.01, 5.0, 4.99))
    assert [strict.verdict(one) for one in (near, at, under)] == ["undecided"] * 3
    assert [paper.verdict(one) for one in (near, at, under)] == ["above", "above", "below"]
    assert paper.document(near)["rule"] == "mean"
    assert "undecided" in str(strict)
    assert "by their mean" in str(paper)


def test_the_worse_of_entropy_and_diversity_decides() -> None:
    held = guard(LENGTH, rows(40))
    assert held.pairs is not None
    assert held.threshold is not None
    rich, poor = between(held.threshold, 9), between(0, held.threshold - 0.001)
    apart, near, alike = between(0.92, 1.1), between(0.8, 1), between(0.5, 0.8)
    assert [held.diverse(one) for one in (apart, near, alike)] == ["above", "undecided", "below"]
    assert [held.both(rich, one) for one in (apart, near, alike)] == ["above", "undecided", "below"]
    assert [held.both(poor, apart), held.both(rich, None), held.both(None, near)] == [
        "below",
        "above",
        "undecided",
    ]
    assert held.both(None, None) is None
    assert held.diverse(replace(alike, n=64)) == "below"
    assert held.diverse(replace(alike, n=63)) is None
    assert replace(held, rule="mean").both(rich, alike) == "above"
    told = held.document(rich, alike)
    assert (told["verdict"], told["least_diversity"], told["diversity_verdict"]) == (
        "above",
        0.92,
        "below",
    )
    assert "or the diversity guard of 92% of held-out" in str(held)
    assert replace(held, texts=held.texts[:20]).pairs is not None
    assert replace(held, texts=held.texts[:19]).pairs is None
    apart_all = tuple(tuple(range(k * LENGTH, (k + 1) * LENGTH)) for k in range(20))
    assert replace(held, texts=apart_all).pairs is None  # no two are alike at all


def test_shorter_texts_are_raised_by_what_their_length_costs() -> None:
    found = Guard(3, 5.0, "mine", rise=(3.0, 2.0, 0.0))
    assert found.raised(np.array([1.0, 1.5, 4.0]), np.array([1, 2, 3])).tolist() == [4.0, 3.5, 4.0]
    ids = rows(40)
    lower = [np.quantile(entropy(ids[:, :tokens]), 0.1) for tokens in range(1, LENGTH + 1)]
    assert guard(LENGTH, ids).rise == pytest.approx([lower[-1] - one for one in lower])


def test_a_known_languages_guard_is_of_exact_texts(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    class Known:
        def draw(self, n: int) -> np.ndarray:
            asked.append(n)
            return rows(40)

    def known(sha256: str, kept: Path | None) -> Known | None:
        asked.append((sha256, kept))
        return Known() if sha256 == "a" * 64 else None

    monkeypatch.setattr("strop.language.reading.known_language", known)
    made = generator()

    def of(sha256: str) -> GeneratorSpec:
        change = {"family": "language", "sha256": sha256}
        return made.model_copy(update={"checkpoint": made.checkpoint.model_copy(update=change)})

    assert default_guard(of("a" * 64)) == guard(LENGTH, rows(40), source="exact texts")
    assert default_guard(of("b" * 64), run) == guard(LENGTH)
    assert asked == [("a" * 64, None), 2048, ("b" * 64, run.grammar)]
