"""The entropy guard: which texts make it, what it says, and for whom a kept one is kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from made_runs import cell_spec
from strop.errors import UserError
from strop.measure.causal import Evaluator
from strop.measure.entropy import entropy
from strop.measure.guard import (
    Guard,
    clean_tokens,
    default_guard,
    evaluator_guard,
    guard,
    guard_of,
    held_out_guard,
    quantile_ends,
)
from strop.measure.heldout import read_texts
from strop.spec import GeneratorSpec
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


def test_an_evaluators_guard_is_of_its_tokens(evaluator: Evaluator, tmp_path: Path) -> None:
    shipped = read_texts()
    assert shipped is not None
    found = evaluator_guard(evaluator, 24)
    ids = [one[:24] for one in evaluator.encode(shipped.texts) if len(one) >= 24]
    assert found.threshold == pytest.approx(np.quantile(entropy(np.array(ids)), 0.1))
    assert (found.length, "GPT-2" in found.source) == (24, False)
    assert evaluator_guard(evaluator, 1023).threshold == 5.0
    assert evaluator_guard(evaluator, 1022).threshold is None  # the texts that ship are shorter
    mine = tmp_path / "mine.jsonl"
    texts = [f"{'a b ' * i}one two three four five six seven eight nine" for i in range(25)]
    mine.write_text("".join(json.dumps({"text": one}) + "\n" for one in texts))
    given = evaluator_guard(evaluator, 8, mine)
    rows_of = np.array([one[:8] for one in evaluator.encode(texts)])
    assert given.threshold == pytest.approx(np.quantile(entropy(rows_of), 0.1))


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
