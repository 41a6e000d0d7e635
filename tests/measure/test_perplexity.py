"""Perplexity against a direct float64 computation, written without any of strop's code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from evaluators import END, END_ID, HAND_MADE, outputs_of, write_gpt2

from strop.errors import UserError
from strop.measure import perplexity as module
from strop.measure.across import statistics
from strop.measure.evaluator import Evaluator, load_evaluator
from strop.measure.perplexity import (
    TOKENS,
    perplexity_columns,
    perplexity_metric,
    token_columns,
)
from strop.measure.spans import POLICIES, clean_up

LENGTH = 40
CONTEXT = 32


class Direct:
    """The same weights in float64, full logits, one sequence at a time."""

    def __init__(self, directory: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.network: Any = AutoModelForCausalLM.from_pretrained(directory).double().eval()
        self.tokenizer: Any = AutoTokenizer.from_pretrained(directory)

    def tokens(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    @torch.no_grad()
    def surprise(self, ids: list[int]) -> np.ndarray:
        """-log p of tokens 1, 2, ... given all before them; windows of CONTEXT by halves."""
        found: list[float] = []
        start = 0
        while len(found) < len(ids) - 1:
            window = torch.tensor([ids[start : start + CONTEXT]])
            logp = self.network(window).logits[0].log_softmax(-1)
            values = -logp[:-1].gather(-1, window[0, 1:, None])[:, 0]
            found += values[len(found) - start :].tolist()
            start += CONTEXT // 2
        return np.array(found)

    def first_document(self, text: str) -> tuple[float, int]:
        ids = self.tokens(text)
        ends = [i for i, token in enumerate(ids) if token == END_ID and i > 0]
        kept = ids[: ends[0] + 1] if ends else ids
        values = self.surprise(kept)
        return float(values.sum()), len(values)

    def full_stream(self, text: str) -> tuple[float, int]:
        values = [self.surprise(self.tokens(piece)) for piece in text.split(END)]
        return float(sum(v.sum() for v in values)), sum(len(v) for v in values)

    def public_code(self, texts: list[str]) -> tuple[float, int]:
        """The public way: filled up to the longest of the pool with ends, chunk by chunk."""
        rows = [self.tokens(clean_up(text))[:LENGTH] for text in texts]
        width = max(len(row) for row in rows)
        total, count = 0.0, 0
        for row in rows:
            filled = row + [END_ID] * (width - len(row))
            for at in range(0, width, CONTEXT):
                chunk = filled[at : at + CONTEXT]
                real = max(0, min(len(row) - at, len(chunk)))
                if real == 0:
                    continue  # fillers alone: no end in it is a target that counts
                logits = self.network(torch.tensor([chunk])).logits[0].log_softmax(-1).detach()
                seen = False
                for j, token in enumerate(chunk):
                    counts = token != END_ID or not seen
                    seen = seen or token == END_ID
                    if j > 0 and counts:
                        total -= float(logits[j - 1, token])
                        count += 1
        return total, count


@pytest.fixture(scope="module")
def direct(gpt2_directory: Path) -> Direct:
    return Direct(gpt2_directory)


@pytest.fixture(scope="module")
def random_texts(evaluator: Evaluator) -> list[str]:
    """Random tokens, ends among them; some decode to bytes that are no text."""
    rng = np.random.default_rng(3)
    rows = rng.integers(0, END_ID, (12, LENGTH))
    rows[rng.random(rows.shape) < 0.06] = END_ID
    return [evaluator.decode(row.tolist()) for row in rows]


def columns_of(evaluator: Evaluator, span: Any, texts: list[str], **more: Any) -> dict[str, Any]:
    metric = perplexity_metric(evaluator, span, **more)
    return perplexity_columns(evaluator, metric, outputs_of(evaluator, texts), LENGTH)


@pytest.mark.parametrize("span", ["first-document", "full-stream"])
@pytest.mark.parametrize("kind", ["hand-made", "random"])
def test_equals_the_direct_computation(
    evaluator: Evaluator, direct: Direct, random_texts: list[str], span: str, kind: str
) -> None:
    texts = list(HAND_MADE.values()) if kind == "hand-made" else random_texts
    columns = columns_of(evaluator, span, texts)
    rule = direct.first_document if span == "first-document" else direct.full_stream
    expected = [rule(text) for text in texts]
    assert columns["tokens"].tolist() == [count for _, count in expected]
    np.testing.assert_allclose(columns["nll"], [nll for nll, _ in expected], rtol=2e-6, atol=1e-6)
    nll, tokens = (sum(part) for part in zip(*expected, strict=True))
    assert statistics(columns)["pooled"].value == pytest.approx(np.exp(nll / tokens), rel=1e-5)


@pytest.mark.parametrize("kind", ["hand-made", "random"])
def test_public_code_equals_the_direct_computation(
    evaluator: Evaluator, direct: Direct, random_texts: list[str], kind: str
) -> None:
    texts = list(HAND_MADE.values()) if kind == "hand-made" else random_texts
    columns = columns_of(evaluator, "public-code", texts)
    nll, tokens = direct.public_code(texts)
    pooled = statistics(columns)["pooled"]
    assert pooled.columns[:, 1].sum() == tokens
    assert pooled.columns[:, 0].sum() == pytest.approx(nll, rel=2e-6)
    assert pooled.value == pytest.approx(np.exp(nll / tokens), rel=1e-5)


def test_the_policies_differ(evaluator: Evaluator) -> None:
    """Else the comparisons above could not tell one from another."""
    texts = list(HAND_MADE.values())
    values = {span: columns_of(evaluator, span, texts)["nll"].sum() for span in POLICIES}
    assert len({round(value, 3) for value in values.values()}) == 3


EXPECTED = {  # tokens and bytes of (first-document, full-stream), counted by hand
    "leading": ((7, 23), (6, 20)),
    "closed": ((5, 12), (3 + 6, 9 + 22)),
    "repeated": ((1, 0), (1, 4)),
    "empty": ((0, 0), (0, 0)),
    "only ends": ((1, 0), (0, 0)),
    "one token": ((0, 0), (0, 0)),
    "one end": ((0, 0), (0, 0)),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_tokens_and_bytes_by_hand(evaluator: Evaluator, name: str) -> None:
    for span, expected in zip(("first-document", "full-stream"), EXPECTED[name], strict=True):
        columns = columns_of(evaluator, span, [HAND_MADE[name]])
        assert (int(columns["tokens"][0]), int(columns["bytes"][0])) == expected, span


def test_bytes_are_utf8_and_what_was_left_out_is_told(evaluator: Evaluator) -> None:
    text = f"{END}Größe.{END}Ещё"
    columns = columns_of(evaluator, "first-document", [text])
    assert columns["bytes"][0] == columns["kept_bytes"][0] == len("Größe.".encode())
    assert columns["source_bytes"][0] == len("Größe.Ещё".encode())
    kept = statistics(columns)["kept"].value
    assert kept == pytest.approx(8 / 14)


@pytest.mark.parametrize("span", POLICIES)
def test_the_batch_does_not_matter(
    evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch, span: Any, random_texts: list[str]
) -> None:
    texts = [*HAND_MADE.values(), *random_texts]
    whole = columns_of(evaluator, span, texts)
    monkeypatch.setitem(module.BATCH_TOKENS, "cpu", 1)  # every window alone
    alone = columns_of(evaluator, span, texts)
    parts = [columns_of(evaluator, span, [text]) for text in texts]
    for name, values in whole.items():
        np.testing.assert_allclose(alone[name], values, rtol=1e-6)
        split = np.concatenate([part[name] for part in parts])
        np.testing.assert_allclose(split, values, rtol=1e-6)


def test_the_head_in_slices_is_the_head(
    evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = list(HAND_MADE.values())
    assert evaluator.sliced
    whole = columns_of(evaluator, "full-stream", texts)["nll"]
    monkeypatch.setattr("strop.measure.evaluator.HEAD_ENTRIES", 3 * 50257)
    np.testing.assert_allclose(columns_of(evaluator, "full-stream", texts)["nll"], whole, rtol=1e-6)
    at_once = Evaluator(**{**vars(evaluator), "sliced": False})
    np.testing.assert_allclose(columns_of(at_once, "full-stream", texts)["nll"], whole, rtol=1e-6)


def test_clean_up_is_a_setting_with_an_effect(evaluator: Evaluator) -> None:
    texts = ["The cat sat , and did n't move ."]
    assert clean_up(texts[0]) == "The cat sat, and didn't move."
    plain = perplexity_metric(evaluator, "full-stream")
    tidy = perplexity_metric(evaluator, "full-stream", clean_up=True)
    assert plain.id != tidy.id
    assert perplexity_metric(evaluator, "public-code").settings["clean_up"] is True
    loose = columns_of(evaluator, "full-stream", texts)["tokens"][0]
    assert columns_of(evaluator, "full-stream", texts, clean_up=True)["tokens"][0] < loose


def test_own_ids_are_scored_as_they_are(evaluator: Evaluator) -> None:
    """The letters of a word one by one are another token sequence than the word."""
    from strop.measure.spans import Passage

    letters = np.array([evaluator.encode([c])[0][0] for c in "mat"])
    metric = perplexity_metric(evaluator, "full-stream", retokenise=False)
    columns = perplexity_columns(evaluator, metric, [Passage("mat", letters)], LENGTH)
    assert columns["tokens"][0] == 2
    assert columns_of(evaluator, "full-stream", ["mat"])["tokens"][0] == 0
    with pytest.raises(UserError, match="another text"):
        perplexity_columns(evaluator, metric, [Passage("cat", letters)], LENGTH)


def test_macro_gives_every_output_one_voice() -> None:
    columns = {
        "nll": np.array([2.0, 30.0, 0.0]),
        "tokens": np.array([1, 10, 0]),
        "bytes": np.array([4, 40, 0]),
        "kept_bytes": np.array([4, 40, 0]),
        "source_bytes": np.array([4, 80, 0]),
    }
    found = {name: one.value for name, one in statistics(columns).items()}
    assert found["pooled"] == pytest.approx(np.exp(32 / 11))
    assert found["macro"] == pytest.approx(np.exp((2 + 3) / 2))
    assert found["bits_per_byte"] == pytest.approx(32 / np.log(2) / 44)
    assert found["kept"] == pytest.approx(44 / 84)


def test_a_model_that_caps_its_logits_runs_whole(tmp_path: Path) -> None:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    directory = write_gpt2(tmp_path / "capped")
    config = Gemma2Config(
        vocab_size=50257,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        max_position_embeddings=32,
        final_logit_softcapping=0.5,
        initializer_range=2.0,
    )
    Gemma2ForCausalLM(config).save_pretrained(directory)
    tokenizer = '{"tokenizer_class": "GPT2Tokenizer"}'
    (directory / "tokenizer_config.json").write_text(tokenizer)
    capped = load_evaluator(directory, device="cpu")
    assert not capped.sliced
    text = "The cat sat on the mat."
    expected = Direct(directory).full_stream(text)
    columns = columns_of(capped, "full-stream", [text])
    assert columns["nll"][0] == pytest.approx(expected[0], rel=1e-5)


# ---------------------------------------------------------------- tokens one by one


@pytest.mark.parametrize("policy", POLICIES)
def test_tokens_one_by_one_add_up_to_the_sums(evaluator: Evaluator, policy: Any) -> None:
    outputs = outputs_of(evaluator, list(HAND_MADE.values()))
    metric = perplexity_metric(evaluator, policy)
    sums = perplexity_columns(evaluator, metric, outputs, 64)
    each = token_columns(
        evaluator, perplexity_metric(evaluator, policy, name=TOKENS), outputs, 128, 64
    )
    assert each["nats"].sum(1) == pytest.approx(sums["nll"])
    assert (each["ids"] >= 0).sum(1).tolist() == sums["tokens"].tolist()
    assert not each["nats"][each["ids"] < 0].any()
    for name in ("kept_bytes", "source_bytes"):
        assert each[name].tolist() == sums[name].tolist()
    # Cut to a width the first ones stay.
    few = token_columns(
        evaluator, perplexity_metric(evaluator, policy, name=TOKENS), outputs, 3, 64
    )
    assert few["ids"].tolist() == each["ids"][:, :3].tolist()
    assert few["nats"] == pytest.approx(each["nats"][:, :3])


def test_what_follows_the_first_document_counts_for_no_score(evaluator: Evaluator) -> None:
    """Noise behind the end buys no entropy: tokens, nats and all that is read on them stay."""
    from strop.comparing.diversity import Scored
    from strop.measure.entropy import entropy

    text = "The cat sat on the mat and the cat slept on the mat."
    noise = " quick brown foxes jumping over seven lazy sleeping dogs yesterday afternoon"
    metric = perplexity_metric(evaluator, "first-document", name=TOKENS)
    plain, noisy = (
        token_columns(evaluator, metric, outputs_of(evaluator, [one] * 3), 64, 64)
        for one in (f"{text}{END}", f"{text}{END}{noise}")
    )
    assert noisy["ids"].tolist() == plain["ids"].tolist()
    assert noisy["nats"] == pytest.approx(plain["nats"])
    assert (noisy["kept_bytes"] < 0.6 * noisy["source_bytes"]).all()
    size = int(Scored.of(plain).lengths[0])
    samples = [Scored.of(one).first(size) for one in (plain, noisy)]
    assert samples[0].entropy.tolist() == samples[1].entropy.tolist()
    assert samples[0].entropy[0] == entropy(plain["ids"][:1, :size])[0]
    # The whole output has more entropy, and that is what must not count.
    assert entropy(np.array(evaluator.encode([text + noise])))[0] > samples[1].entropy[0] + 0.3
