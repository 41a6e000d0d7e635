"""Entropy is read on the tokens that perplexity is read on, each output against its own length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from made_runs import cell_spec, made_cell, output
from strop.measure.entropy import entropy, prefix_entropy
from strop.measure.frame import Measured, cut_notes, read_cell
from strop.measure.guard import (
    CutOutputs,
    Guard,
    document_entropy,
    documents,
    end_token,
    first_document,
    guard,
)
from strop.measure.metric import ENTROPY, PERPLEXITY, Number, PoolRows
from strop.measure.spans import END_OF_TEXT
from strop.spec import MetricSpec, PromptSpec, SpanPolicy

LENGTH, END = 16, 10
RNG = np.random.default_rng(3)
HELD_OUT = RNG.integers(0, 8, (40, LENGTH))


def texts_of(ids: np.ndarray) -> list[str]:
    """As a tokenizer of single letters writes them."""
    letters = [*"abcdefghij", END_OF_TEXT]
    return ["".join(letters[token] for token in row if token >= 0) for row in ids]


def pool(*rows: list[int]) -> PoolRows:
    ids = np.array(rows)
    return PoolRows.of(ids, texts_of(ids))


def test_the_entropy_of_every_prefix() -> None:
    for ids in (HELD_OUT, np.random.default_rng(4).integers(0, 3, (4, 300))):
        found = prefix_entropy(ids)
        expected = [entropy(ids[:, :tokens]) for tokens in range(1, ids.shape[1] + 1)]
        np.testing.assert_allclose(found, np.stack(expected, 1), atol=1e-12)


def test_a_guard_knows_how_much_lower_that_of_fewer_tokens_is() -> None:
    """A text that lies at the guard of its own length is raised to the guard's threshold."""
    whole = guard(LENGTH, HELD_OUT)
    for tokens in (1, 5, LENGTH):
        shorter = guard(tokens, HELD_OUT[:, :tokens]).threshold
        raised = whole.raised(np.array([shorter]), np.array([tokens]))
        assert raised[0] == pytest.approx(whole.threshold)
    assert whole.rise[-1] == 0
    assert Guard(LENGTH, 5.0, "a convention").rise == ()


@pytest.mark.parametrize(
    ("row", "tokens"),
    [
        ([1, 2, END, 3], 3),
        ([END, 1, 2, END, 3], 4),  # a leading end opens the document
        ([END, END, 1], 2),
        ([1, 2, 3, END], 4),
        ([1, 2, 3, 4], 4),
        ([1, 2, -1, -1], 2),
        ([END, 1, 2, 3], 4),
    ],
)
def test_a_first_document_ends_with_its_end(row: list[int], tokens: int) -> None:
    assert first_document(np.array([row]), END).tolist() == [tokens]


def test_the_end_is_the_id_that_stands_as_often_as_in_the_text() -> None:
    assert end_token(pool([1, 2, END, 3], [4, END, 5, END]).rows()) == END
    assert end_token(pool([1, 2, 3, 3], [3, 2, 1, 1]).rows()) is None
    # 5 stands once, too, and nearer to the end's place, but in a text without an end as well
    words, ended = ["c" * 9, "c" * 9, END_OF_TEXT, "f"], [2, 2, END, 5]
    assert end_token([(["".join(words), "fccc"], np.array([ended, [5, 2, 2, 2]]))]) == END
    # 5 stands nearer to the end's place, but twice
    assert end_token([(["c" * 9 + END_OF_TEXT + "ff"], np.array([[2, END, 5, 5]]))]) == END
    # where nothing else tells, it is the one at the end's place
    for place in range(4):
        row = [1, 2, 3]
        row.insert(place, END)
        assert end_token(pool(row).rows()) == END


def test_only_outputs_that_are_cut_change() -> None:
    held = guard(LENGTH, HELD_OUT)
    ids = np.array([[*range(9), *[0] * 7], [1, 1, 2, END, *range(9), 0, 0, 0]])
    rows, values = PoolRows.of(ids, texts_of(ids)), entropy(ids)
    found, count = document_entropy(values, np.array([False, True]), rows, held)
    assert found[0] == values[0]
    own = -(0.5 * np.log(0.5) + 2 * 0.25 * np.log(0.25))  # of 1 1 2 END
    assert found[1] == pytest.approx(own + held.rise[3])
    assert count == CutOutputs(held=1)
    paper = Guard(LENGTH, 5.0, "a convention")
    same, count = document_entropy(values, np.array([False, True]), rows, paper)
    assert same.tolist() == values.tolist()
    assert count == CutOutputs(whole=1)


def test_outputs_are_counted_over_all_parts_of_a_pool() -> None:
    """A pool is read some rows at a time; in which ones an output stands changes nothing."""
    held = guard(LENGTH, HELD_OUT)
    ids = np.random.default_rng(5).integers(0, 8, (6, LENGTH))
    cut = np.array([False, True, False, True, True, False])
    ids[cut, 5] = END
    at_once = PoolRows.of(ids, texts_of(ids))
    parts = [(texts_of(ids[k : k + 2]), ids[k : k + 2]) for k in (0, 2, 4)]
    in_parts = PoolRows(6, lambda _: parts)
    values = [document_entropy(entropy(ids), cut, rows, held)[0] for rows in (at_once, in_parts)]
    assert values[0].tolist() == values[1].tolist()
    assert (values[0] != entropy(ids)).tolist() == cut.tolist()


def test_diversity_is_read_before_the_end_of_first_documents(tmp_path: Path) -> None:
    """Two documents, written again and again with something else behind, are two documents."""
    ids = np.random.default_rng(6).integers(0, 8, (64, LENGTH))
    ids[:, :9] = np.random.default_rng(7).integers(0, 8, (2, 9))[np.arange(64) % 2]
    ids[:32, 9] = END
    kept = np.where(np.arange(64) < 32, 9, LENGTH - 1)
    held = guard(LENGTH, HELD_OUT)
    assert held.pairs is not None
    cut = _measured(tmp_path, ids, kept, "first-document", held)
    assert cut.cut.held == 32
    alone = np.where((np.arange(LENGTH) >= 9) & (np.arange(64) < 32)[:, None], -1, ids)
    assert cut.diversity == held.pairs.diversity(alone) == held.pairs.diversity(ids[:, :9])
    whole = _measured(tmp_path, ids, kept, "full-stream", held)
    assert whole.diversity == held.pairs.diversity(ids)
    assert cut.diversity is not None
    assert whole.diversity is not None
    assert cut.diversity.below(whole.diversity.ends[0])
    unnamed = PoolRows.of(ids, ["no end"] * 64)
    assert documents(kept < LENGTH - 1, unnamed) is None


def _measured(
    tmp_path: Path,
    ids: np.ndarray,
    kept: np.ndarray,
    span: SpanPolicy,
    by: Guard,
    prompts: PromptSpec | None = None,
) -> Measured:
    """A cell whose perplexity is read on so many tokens of every output."""
    spec = cell_spec(LENGTH)
    answers = spec.generator.model_copy(update={"prompts": prompts})
    spec = spec.model_copy(update={"generator": answers})
    given = zip(ids, texts_of(ids), strict=True)
    asked = {} if prompts is None else {"prompt": "p"}
    outputs = [output(i, row.tolist(), text=text, **asked) for i, (row, text) in enumerate(given)]
    cell = made_cell(tmp_path / span, spec, outputs)
    metric = MetricSpec(name=PERPLEXITY.name, span=span, settings={"made": "by hand"})
    sizes = {"bytes": kept, "kept_bytes": kept, "source_bytes": np.full(len(ids), LENGTH - 1)}
    scores = {"index": np.arange(len(ids)), "nll": 2.0 * kept, "tokens": kept}
    cell.add_scores(metric, scores | sizes)
    return read_cell(cell, by)


def test_what_follows_the_first_document_lifts_no_output_over_the_guard(tmp_path: Path) -> None:
    """Read whole, a monotonous document with noise behind it would be above the guard."""
    n, half = 64, LENGTH // 2
    noise = np.stack([RNG.permutation(10)[:half] for _ in range(n)])
    dull = np.tile([1, 2], (n, half // 2))
    dull[:, -1] = END
    ids = np.concatenate([dull, noise], axis=1)
    kept = np.full(n, half - 1)
    held = guard(LENGTH, HELD_OUT)
    assert entropy(ids).mean() > (held.threshold or 0) + 0.2
    cut = _measured(tmp_path, ids, kept, "first-document", held)
    assert cut.verdict == "below"
    own = entropy(dull).mean() + held.rise[half - 1]
    assert cut.entropy is not None
    assert cut.entropy.value == pytest.approx(own)
    assert cut.statistic(Number.of(ENTROPY.name)).value == pytest.approx(own)  # what a race reads
    assert cut.document()["guard"]["cut"] == {"held": n, "whole": 0}
    [note] = cut_notes([cut])
    assert note.startswith(f"{n} of {n} outputs are read up to the end of their first document")
    whole = _measured(tmp_path, ids, kept, "full-stream", held)
    assert (whole.guard.verdict(whole.entropy), whole.cut) == ("above", CutOutputs())
    assert whole.verdict == "below"  # half of every output is the same: diversity sees it
    assert list(cut_notes([whole])) == []


def test_texts_that_are_only_shorter_stay_on_their_side(tmp_path: Path) -> None:
    """Documents like the held-out ones, cut to a quarter: raw, their entropy is below the guard."""
    held = guard(LENGTH, HELD_OUT)
    ids = np.random.default_rng(4).integers(0, 8, (64, LENGTH))
    ids[:, LENGTH // 4] = END
    tokens = LENGTH // 4 + 1
    assert entropy(ids[:, :tokens]).mean() < held.threshold
    cut = _measured(tmp_path, ids, np.full(64, tokens - 1), "first-document", held)
    assert held.verdict(cut.entropy) == "above"
    assert cut.verdict == "undecided"  # four tokens say little of diversity, and the end nothing
    assert held.pairs is not None
    assert cut.diversity == held.pairs.diversity(ids[:, : tokens - 1])
    paper = Guard(LENGTH, 1.0, "a convention")
    unknown = _measured(tmp_path, ids, np.full(64, tokens - 1), "first-document", paper)
    assert unknown.cut == CutOutputs(whole=64)
    [note] = cut_notes([unknown])
    assert "no guard of shorter texts is known" in note


def test_an_answer_is_counted_whole(tmp_path: Path) -> None:
    """Texts that answer no prompt say nothing of how long an answer should be."""
    ids = np.random.default_rng(4).integers(0, 8, (64, LENGTH))
    ids[:, LENGTH // 4] = END
    prompts = PromptSpec(sha256="d" * 64, count=64, form="prefix")
    held = guard(LENGTH, HELD_OUT)
    found = _measured(tmp_path, ids, np.full(64, 4), "first-document", held, prompts)
    assert found.entropy is not None
    assert found.entropy.value == pytest.approx(entropy(ids).mean())
