"""Perplexity given a prompt, against a direct float64 computation; metrics of short responses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluators import END, END_ID, write_gpt2
from test_perplexity import Direct

import strop
from strop import SamplerSpec
from strop.assets import CHECKPOINT
from strop.errors import UserError
from strop.measure.entropy import distinct, entropy, pool_repetition, repetition
from strop.measure.evaluator import load_evaluator
from strop.measure.frame import read_cell
from strop.measure.perplexity import perplexity_columns, perplexity_metric, score_perplexity
from strop.measure.score import score_records
from strop.measure.spans import Passage, Stretch
from strop.store import Run


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gpt2(tmp_path_factory.mktemp("gpt2"))


@pytest.fixture(scope="module")
def evaluator(directory: Path) -> Any:
    return load_evaluator(str(directory), device="cpu")


@pytest.fixture(scope="module")
def direct(directory: Path) -> Direct:
    return Direct(directory)


def passage(evaluator: Any, *parts: str | tuple[str]) -> Passage:
    """Texts are given, one-tuples are the response's."""
    found = []
    for part in parts:
        text = part[0] if isinstance(part, tuple) else part
        ids = np.array(evaluator.encode([text])[0], np.int64)
        found.append(Stretch(text, ids, scored=isinstance(part, tuple)))
    own = [part for part in found if part.scored]
    ids = np.concatenate([part.ids for part in own])
    return Passage("".join(part.text for part in own), ids, tuple(found))


def surprise(direct: Direct, parts: list[tuple[list[int], bool]]) -> tuple[float, int]:
    """The sum over tokens that count, of one text read from left to right."""
    ids = [token for some, _ in parts for token in some]
    counts = np.array([counted for some, counted in parts for _ in some])[1:]
    return float(direct.surprise(ids)[counts].sum()), int(counts.sum())


@pytest.mark.parametrize("retokenise", [True, False])
@pytest.mark.parametrize("span", ["first-document", "full-stream"])
def test_only_the_response_is_scored_given_what_stands_before_it(
    evaluator: Any, direct: Direct, span: Any, retokenise: bool
) -> None:
    t = direct.tokens
    metric = perplexity_metric(evaluator, span, retokenise=retokenise, prompted=True)
    outputs = [
        passage(evaluator, "The cat sat on", (" the mat.",)),
        passage(evaluator, "The cat", (" sat on",), " the", (" mat.",)),
        passage(evaluator, ("The cat",), " sat on the mat"),
        passage(evaluator, "a long question " * 12, (" and an answer",)),
        passage(evaluator, f"one{END}two", (" three",)),
    ]
    wanted = [
        surprise(direct, [(t("The cat sat on"), False), (t(" the mat."), True)]),
        surprise(
            direct,
            [(t("The cat"), False), (t(" sat on"), True), (t(" the"), False), (t(" mat."), True)],
        ),
        surprise(direct, [(t("The cat"), True), (t(" sat on the mat"), False)]),
        surprise(direct, [(t("a long question " * 12), False), (t(" and an answer"), True)]),
        surprise(
            direct, [(t("one"), False), ([END_ID], False), (t("two"), False), (t(" three"), True)]
        ),
    ]
    columns = perplexity_columns(evaluator, metric, outputs, 40)
    assert columns["tokens"].tolist() == [tokens for _, tokens in wanted]
    assert columns["nll"] == pytest.approx([nll for nll, _ in wanted], rel=1e-5)
    # The first token of a text has no context; everything else of a response counts.
    assert columns["bytes"].tolist() == [9, 12, 4, 14, 6]
    assert columns["kept_bytes"].tolist() == columns["source_bytes"].tolist() == [9, 12, 7, 14, 6]


def test_ends_in_the_response(evaluator: Any, direct: Direct) -> None:
    t = direct.tokens
    output = passage(evaluator, "The cat", (f" sat{END}on a mat",))
    found = {
        span: perplexity_columns(
            evaluator, perplexity_metric(evaluator, span, prompted=True), [output], 40
        )
        for span in ("first-document", "full-stream")
    }
    first = surprise(direct, [(t("The cat"), False), ([*t(" sat"), END_ID], True)])
    assert found["first-document"]["nll"][0] == pytest.approx(first[0], rel=1e-5)
    assert found["first-document"]["tokens"][0] == first[1]
    assert found["first-document"]["kept_bytes"][0] == 4
    assert found["first-document"]["source_bytes"][0] == 12
    one = surprise(direct, [(t("The cat"), False), (t(" sat"), True)])
    two = surprise(direct, [(t("on a mat"), True)])
    assert found["full-stream"]["nll"][0] == pytest.approx(one[0] + two[0], rel=1e-5)
    assert found["full-stream"]["tokens"][0] == one[1] + two[1]
    assert found["full-stream"]["bytes"][0] == 12 - len("on")


def test_the_metric_says_that_prompts_are_context(evaluator: Any) -> None:
    plain = perplexity_metric(evaluator, "first-document")
    assert "context" not in plain.settings
    assert perplexity_metric(evaluator, "first-document", prompted=True).id != plain.id


def test_metrics_read_only_what_counts() -> None:
    rng = np.random.default_rng(0)
    short, long = rng.integers(0, 3, (5, 7)), rng.integers(0, 3, (4, 12))
    ids = np.full((9, 12), -1)
    ids[:5, :7], ids[5:] = short, long
    for measure in (entropy, repetition):
        assert measure(ids).tolist() == [*measure(short), *measure(long)]
    # Tokens that occur nowhere else instead of nothing: the same n-grams are shared.
    apart = np.where(ids < 0, 100 + np.arange(ids.size).reshape(ids.shape), ids)
    tokens = (ids >= 0).sum(1)
    assert pool_repetition(ids) * tokens == pytest.approx(pool_repetition(apart) * 12)
    bigrams = [tuple(row[k : k + 2]) for row in ids for k in range(11) if row[k + 1] >= 0]
    assert distinct(ids, 2) == len(set(bigrams)) / len(bigrams)


def test_a_cell_with_gaps_is_scored_without_its_file(evaluator: Any, tmp_path: Path) -> None:
    model = strop.load_model(CHECKPOINT, device="cpu")
    prompts = ["The king was[[3]]. In the end he[[5]]", "The dog[[4]] home."]
    pool = strop.draw.sample(
        model, SamplerSpec(steps=4), prompts=prompts, per_prompt=2, out=tmp_path
    )
    [cell] = Run.open(tmp_path).cells()
    score_records(cell)
    metric = score_perplexity(cell, evaluator, "first-document")
    found = read_cell(cell)
    by_name = {one.metric.name: one for one in found.scores}
    wanted = [entropy(pool.ids[i : i + 1, : pool.lengths[i]])[0] for i in range(4)]
    assert by_name["entropy"].columns["entropy"].tolist() == wanted
    assert metric.settings["context"] == "prompt"
    texts = pool.texts or []
    ends = [text.split(END)[0] for text in texts]
    sizes = [len(text.encode()) for text in ends]
    assert by_name["perplexity"].columns["kept_bytes"].tolist() == sizes
    assert found.guard.threshold is None
    with pytest.raises(UserError, match="knows no prompts"):
        score_perplexity(cell, evaluator, "public-code")
