"""Spans and sums of perplexity by hand, with an evaluator whose tokens are bytes.

Its probabilities are chosen, so that every number is exact: token j after token k costs j + k / 512
nats. The networks of `test_perplexity.py` say that the same holds for real ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from made_runs import cell_spec, made_cell, output
from strop.errors import UserError
from strop.measure import perplexity as module
from strop.measure.across import statistics
from strop.measure.evaluator import EvaluatorRecipe
from strop.measure.perplexity import (
    TOKENS,
    PerplexityJob,
    perplexity_columns,
    perplexity_metric,
    score_perplexity,
    score_readings,
    token_columns,
)
from strop.measure.score import Outputs
from strop.measure.spans import (
    END_OF_TEXT,
    Passage,
    Reading,
    Stretch,
    answer_spans,
    clean_up,
    spans,
)
from strop.prompts import Canvas, Canvases
from strop.spec import EvaluatorSpec
from strop.stats.resample import POSITIVE, SHARE
from strop.store.tables import KeptPrompts

END = 256
SUMS = ("nll", "tokens", "bytes", "kept_bytes", "source_bytes")


class Tokenizer:
    """As large as it says, with an end token or none."""

    def __init__(self, end: int | None) -> None:
        self.eos_token_id = end

    def __len__(self) -> int:
        return 257


class Bytes:
    """An evaluator that reads bytes; `|` stands for the end of a text in what tests write."""

    def __init__(self, context: int = 8, end: int | None = END, **spec: Any) -> None:
        given = {"name": "bytes", "sha256": "0" * 64, "tokenizer": "1" * 64} | spec
        self.spec = EvaluatorSpec(context=context, **given)
        self.end_of_text, self.tokenizer, self.context = end, Tokenizer(end), context
        self.device, self.source = SimpleNamespace(type="cpu"), "here"
        self.recipe = EvaluatorRecipe("bytes", None, "float32")
        self.encoded: list[int] = []
        self.batches: list[list[tuple[list[int], list[int]]]] = []

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        self.encoded.append(len(texts))
        return [list(text.encode()) for text in texts]

    def encode_as_called(self, texts: Sequence[str]) -> list[list[int]]:
        return [ids_of(text.replace(END_OF_TEXT, "|")) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        pieces = bytes(one if one < END else 0 for one in ids).split(b"\0")
        return END_OF_TEXT.join(piece.decode(errors="replace") for piece in pieces)

    def log_probs(self, ids: Sequence[Any], scored: Sequence[Any]) -> list[np.ndarray]:
        batch = [
            (one.tolist(), np.flatnonzero(some).tolist())
            for one, some in zip(ids, scored, strict=True)
        ]
        self.batches.append(batch)
        return [costs(one, np.asarray(some)) for one, some in zip(ids, scored, strict=True)]


def ids_of(text: str) -> list[int]:
    return [END if one == ord("|") else one for one in text.encode()]


def costs(ids: Any, scored: Any) -> np.ndarray:
    ids = np.asarray(ids, float)
    before = np.append(0, ids[:-1])
    return np.where(scored, -(ids + before / 512), 0.0)


def passage(text: str) -> Passage:
    return Passage(text.replace("|", END_OF_TEXT), np.array(ids_of(text), np.int64))


def spans_of(text: str, policy: Any, evaluator: Any = None, length: int = 99, **how: Any) -> Any:
    """Readings as their text and what is scored of it, then the three counts of bytes."""
    evaluator = evaluator or Bytes()
    [span] = spans([passage(text)], policy, evaluator, length=length, **how)
    return told_of(span, evaluator)


def told_of(span: Any, evaluator: Any) -> Any:
    assert all((one.ids.dtype, one.scored.dtype) == (np.int64, bool) for one in span.readings)
    readings = [
        (evaluator.decode(one.ids.tolist()).replace(END_OF_TEXT, "|"), marks(one.scored))
        + (("filler",) if one.filler else ())
        for one in span.readings
    ]
    return readings, span.bytes, span.kept_bytes, span.source_bytes


def marks(scored: np.ndarray) -> str:
    return "".join("x" if one else "." for one in scored)


FIRST = {
    "": ([("", "")], 0, 0, 0),
    "ab": ([("ab", ".x")], 1, 2, 2),
    "|ab": ([("|ab", ".xx")], 2, 2, 2),
    "ab|cd": ([("ab|", ".xx")], 1, 2, 4),
    "|ab|cd|": ([("|ab|", ".xxx")], 2, 2, 4),
    "||ab": ([("||", ".x")], 0, 0, 2),
    "|": ([("|", ".")], 0, 0, 0),
    "a|": ([("a|", ".x")], 0, 1, 1),
    "éa": ([("éa", ".xx")], 3, 3, 3),  # the first token is no character yet
}


@pytest.mark.parametrize("retokenise", [True, False])
@pytest.mark.parametrize("text", FIRST)
def test_the_first_document(text: str, retokenise: bool) -> None:
    assert spans_of(text, "first-document", retokenise=retokenise) == FIRST[text]


STREAM = {
    "": ([], 0, 0, 0),
    "ab|c||de": ([("ab", ".x"), ("c", "."), ("de", ".x")], 2, 5, 5),
    "|éa|": ([("éa", ".xx")], 3, 3, 3),
}


@pytest.mark.parametrize("retokenise", [True, False])
@pytest.mark.parametrize("text", STREAM)
def test_the_full_stream(text: str, retokenise: bool) -> None:
    assert spans_of(text, "full-stream", retokenise=retokenise) == STREAM[text]


ANSWERS: dict[tuple[str, ...], Any] = {
    ("ab", "cd|e"): (
        ([("abcd|", "..xxx")], 2, 2, 3),
        ([("abcd", "..xx"), ("e", ".")], 2, 3, 3),
    ),
    ("", "cd"): (([("cd", ".x")], 1, 2, 2),) * 2,
    ("a|b", "c"): (([("a|bc", "...x")], 1, 1, 1),) * 2,
    ("", "éa", "b", "c"): (([("éabc", ".xx.x")], 4, 4, 4),) * 2,
    ("a", ""): (([], 0, 0, 0),) * 2,
}
"""Prompt and response in turn; what the first document and the full stream make of them."""


@pytest.mark.parametrize("retokenise", [True, False])
@pytest.mark.parametrize("parts", ANSWERS)
def test_answers_are_scored_behind_their_prompts(parts: tuple[str, ...], retokenise: bool) -> None:
    stretches = tuple(
        Stretch(one.text, one.ids, scored=k % 2 == 1)
        for k, one in enumerate(passage(part) for part in parts)
    )
    whole = passage("".join(parts[1::2]))
    answer = Passage(whole.text, whole.ids, stretches)
    for policy, expected in zip(("first-document", "full-stream"), ANSWERS[parts], strict=True):
        evaluator: Any = Bytes()
        [span] = answer_spans([answer], policy, evaluator, retokenise=retokenise)
        assert told_of(span, evaluator) == expected


def test_what_a_tokenizer_puts_before_a_text_is_context_of_its_first_token() -> None:
    told = Bytes(prefix=(65, 66))
    assert spans_of("ab|c", "first-document", told) == ([("ABab|", "..xxx")], 2, 2, 3)
    assert spans_of("ab|c", "full-stream", told) == ([("ABab", "..xx"), ("ABc", "..x")], 3, 3, 3)
    assert spans_of("", "first-document", told) == ([("AB", "..")], 0, 0, 0)


def test_without_an_end_token_a_boundary_is_no_context() -> None:
    plain = Bytes(end=None)
    assert spans_of("|ab|c", "first-document", plain) == ([("ab", ".x")], 1, 2, 3)
    assert spans_of("a|b", "full-stream", plain) == ([("a", "."), ("b", ".")], 0, 2, 2)


PUBLIC = {  # the context is 8
    "abc": ([("abc|", ".xxx", "filler")], 2, 3, 3),
    "abcdefgh": ([("abcdefgh", ".xxxxxxx")], 7, 8, 8),
    "abcdefghij": ([("abcdefgh", ".xxxxxxx"), ("ij|", ".xx", "filler")], 8, 10, 10),
    "a|b|c": ([("a|b|c", ".xx.x")], 2, 3, 3),
    "|ab": ([("|ab", ".xx")], 2, 2, 2),
    "éa": ([("éa|", ".xxx", "filler")], 3, 3, 3),
    "": ([], 0, 0, 0),
    "abcdefgh|j": ([("abcdefgh", ".xxxxxxx"), ("|j", ".x")], 8, 9, 9),
}


@pytest.mark.parametrize("retokenise", [True, False])
@pytest.mark.parametrize("text", PUBLIC)
def test_the_public_code(text: str, retokenise: bool) -> None:
    assert spans_of(text, "public-code", retokenise=retokenise) == PUBLIC[text]


def test_the_public_code_cuts_to_the_generators_length() -> None:
    assert spans_of("abc", "public-code", length=2) == ([("ab|", ".xx", "filler")], 1, 2, 3)
    assert spans_of("abc", "public-code", length=3) == PUBLIC["abc"]
    assert spans_of("ab|cd", "public-code", length=3) == ([("ab|", ".xx")], 1, 2, 4)
    # Half of a character is read as one that stands for it.
    assert spans_of("aé", "public-code", length=2)[1:] == (3, 4, 3)


def test_the_public_code_without_an_end_token_fills_nothing() -> None:
    assert spans_of("a|b", "public-code", Bytes(end=None))[0][0][1] == ".xx"


@pytest.mark.parametrize(
    ("name", "context", "sizes"),
    [
        ("gpt2", 5000, [1024, 1024, 453]),
        ("a-llama2-of-7b", 5000, [2501]),
        ("a-llama2-of-7b", 1500, [1500, 1001]),
        ("gpt2", 1025, [1024, 1024, 453]),
    ],
)
def test_the_public_code_reads_as_much_at_once_as_it_says(name, context, sizes) -> None:
    evaluator: Any = Bytes(context, None, name=name)
    [span] = spans([passage("a" * 2501)], "public-code", evaluator, length=9999)
    assert [len(one.ids) for one in span.readings] == sizes
    [span] = spans([passage("a" * 4097)], "public-code", evaluator, length=9999)
    assert max(len(one.ids) for one in span.readings) == min(
        context, 4096 if "llama2" in name else 1024
    )


def test_bytes_are_never_fewer_than_none() -> None:
    class Adding(Bytes):
        def encode_as_called(self, texts: Sequence[str]) -> list[list[int]]:
            return [[65, *ids] for ids in super().encode_as_called(texts)]

    assert spans_of("", "public-code", Adding()) == ([("A|", ".x", "filler")], 0, 0, 0)
    assert spans_of("ab", "public-code", Adding())[1:] == (1, 2, 2)


SPACED = "a . b ? c ! d , e ' f n't g 'm h 's i 've j 're k"


@pytest.mark.parametrize("policy", ["first-document", "full-stream", "public-code"])
def test_what_transformers_cleaned_is_cleaned_where_it_is_asked_for(policy: Any) -> None:
    tidy = "a. b? c! d, e'fn't g'm h's i've j're k"
    assert clean_up(SPACED) == tidy
    for clean, text in ((False, SPACED), (True, tidy)):
        readings, *_ = spans_of(SPACED, policy, Bytes(100, None), clean=clean)
        assert readings == [(text, "." + "x" * (len(text) - 1))]
    with pytest.raises(UserError, match="cannot be cleaned up") as caught:
        spans_of(SPACED, policy, retokenise=False, clean=True)
    assert caught.value.where == "`clean_up`"


def test_ids_that_spell_another_text_are_refused() -> None:
    def own(text: str, ids: list[int]) -> None:
        one = Passage(text, np.array(ids, np.int64))
        spans([passage(""), one], "full-stream", Bytes(), length=9, retokenise=False)  # type: ignore[arg-type]

    own("a" + END_OF_TEXT, [97, 256])
    # The evaluator has 257 tokens: what it would make of number 257 does not matter.
    for text, ids in (("b", [97]), ("a" + END_OF_TEXT, [97, 257]), ("a", [97, 98])):
        with pytest.raises(UserError, match="spell another text") as caught:
            own(text, ids)
        assert caught.value.got == f"an output that reads {text!r}"


def test_a_policy_that_nobody_knows_is_refused() -> None:
    for wrong in (lambda: spans_of("a", "all"), lambda: perplexity_metric(Bytes(), "all")):  # type: ignore[arg-type]
        with pytest.raises(UserError, match="no span policy called 'all'"):
            wrong()


# ---------------------------------------------------------------- sums


@pytest.mark.parametrize(
    ("span", "given", "settings"),
    [
        ("full-stream", {}, (True, False, "sliding")),
        ("first-document", {"clean_up": True}, (True, True, "sliding")),
        ("public-code", {}, (True, True, "split")),
        ("public-code", {"clean_up": False}, (True, False, "split")),
        ("public-code", {"retokenise": False}, (False, False, "split")),
    ],
)
def test_the_metric_says_how(span: Any, given: dict[str, Any], settings: tuple[Any, ...]) -> None:
    evaluator: Any = Bytes()
    metric = perplexity_metric(evaluator, span, **given)
    told = dict(zip(("retokenise", "clean_up", "long"), settings, strict=True))
    assert (metric.name, metric.evaluator, metric.span) == ("perplexity", evaluator.spec, span)
    assert metric.settings == told
    prompted = perplexity_metric(evaluator, span, prompted=True, name=TOKENS, **given)
    assert (prompted.name, prompted.settings) == ("scored-tokens", {**told, "context": "prompt"})


def total(*texts: str) -> float:
    """Nats of all but the first token of each."""
    return -sum(
        costs(ids_of(text), [False] + [True] * (len(ids_of(text)) - 1)).sum() for text in texts
    )


def columns(span: Any, texts: list[str], length: int = 99, **given: Any) -> dict[str, list[Any]]:
    evaluator: Any = Bytes(16, **given)
    metric = perplexity_metric(evaluator, span)
    found = perplexity_columns(evaluator, metric, [passage(one) for one in texts], length)
    return {name: values.tolist() for name, values in found.items()}


def test_sums_are_of_each_output() -> None:
    found = columns("full-stream", ["ab|cde", "", "f", "gh"])
    assert found == {
        "nll": [total("ab", "cde"), 0.0, 0.0, total("gh")],
        "tokens": [3, 0, 0, 1],
        "bytes": [3, 0, 0, 1],
        "kept_bytes": [5, 0, 1, 2],
        "source_bytes": [5, 0, 1, 2],
    }
    found = columns("first-document", ["ab|cde", "|x"])
    assert found["nll"] == [total("ab|"), total("|x")]
    assert [found[name] for name in ("bytes", "kept_bytes", "source_bytes")] == [
        [1, 1],
        [2, 1],
        [5, 1],
    ]


def test_the_public_codes_filler_is_apart() -> None:
    long = "abcdefghijklmnopqr"  # two chunks
    found = columns("public-code", ["abc", "a|b", long])
    filler = 256 + np.array([ord("c"), 0, ord("r")]) / 512
    assert found["nll"] == [total("abc"), total("a|b"), total(long[:16], "qr")]
    assert found["tokens"] == [2, 2, 16]
    assert found["read"] == [3, 3, 18]
    assert found["filler_nll"] == [filler[0], 0.0, filler[2]]
    assert found["filler_tokens"] == [1, 0, 1]
    assert columns("public-code", ["abc"], length=2)["read"] == [2]


def test_tokens_one_by_one() -> None:
    evaluator: Any = Bytes(16)

    def found(span: Any, width: int, *texts: str, length: int = 99) -> dict[str, np.ndarray]:
        metric = perplexity_metric(evaluator, span, name=TOKENS)
        return token_columns(evaluator, metric, [passage(one) for one in texts], width, length)

    whole = found("full-stream", 4, "abc|de", "", "fg|hi|jklm|no")
    b, c, e, g, i, k, last = (ord(one) for one in "bcegikl")
    assert whole["ids"].tolist() == [[b, c, e, -1], [-1] * 4, [g, i, k, last]]
    nats = [[b + 97 / 512, c + 98 / 512, e + 100 / 512, 0], [0] * 4]
    nats.append([g + 102 / 512, i + 104 / 512, k + 106 / 512, last + 107 / 512])
    assert whole["nats"].tolist() == nats
    assert whole["kept_bytes"].tolist() == whole["source_bytes"].tolist() == [5, 0, 10]
    narrow = found("full-stream", 1, "abc|de")
    assert (narrow["ids"].tolist(), narrow["nats"].tolist()) == ([[b]], [[b + 97 / 512]])
    public = found("public-code", 5, "abc")
    assert public["ids"].tolist() == [[b, c, -1, -1, -1]]  # without the filler
    assert found("public-code", 5, "abc", length=2)["ids"].tolist() == [[b, -1, -1, -1, -1]]
    first = found("first-document", 3, "ab|cd")
    assert first["ids"].tolist() == [[b, 256, -1]]
    assert (first["kept_bytes"].tolist(), first["source_bytes"].tolist()) == ([2], [4])


def test_a_metric_of_another_evaluator_is_refused() -> None:
    evaluator: Any = Bytes()
    metric = perplexity_metric(evaluator, "full-stream")
    other: Any = Bytes(name="other")
    for mine, one in ((other, metric), (evaluator, metric.model_copy(update={"span": None}))):
        with pytest.raises(UserError, match="not one of this evaluator"):
            perplexity_columns(mine, one, [], 9)


def test_of_answers_the_response_is_scored_given_the_prompt() -> None:
    evaluator: Any = Bytes()
    some = Outputs(np.array([3, 4]), ["xy", "z"], np.array([[120, 121, -1], [122, -1, -1]]), None)
    canvases = Canvases((Canvas("p", (97, None, None)), Canvas("q", (98, 99, None))))
    kept = KeptPrompts(canvases, [["a", 2], ["bc", 1]])
    first, second = module._passages(some, kept)
    # Output 3 answers the second of two prompts, which has room for one token.
    assert [(p.text, p.ids.tolist(), p.scored) for p in first.parts] == [
        ("bc", [98, 99], False),
        ("xy", [120], True),
    ]
    assert (first.text, first.ids.tolist(), second.ids.tolist()) == ("xy", [120, 121], [122])
    assert [(p.text, p.ids.tolist(), p.scored) for p in second.parts] == [
        ("a", [97], False),
        ("z", [122], True),
    ]
    metric = perplexity_metric(evaluator, "first-document", prompted=True, retokenise=False)
    found = perplexity_columns(evaluator, metric, [second], 9)
    assert found["nll"].tolist() == [122 + 97 / 512]
    plain = list(module._passages(some, None))
    assert [(one.text, one.ids.tolist(), one.parts) for one in plain] == [
        ("xy", [120, 121], ()),
        ("z", [122], ()),
    ]


def test_gaps_of_a_prompt_are_filled_in_turn() -> None:
    some = Outputs(np.array([0]), ["xyz"], np.array([[120, 121, 122]]), [["x", "yz"]])
    canvases = Canvases((Canvas("p", (None, 97, None, None)),))
    [one] = module._passages(some, KeptPrompts(canvases, [[1, "a", 2]]))
    assert [(p.text, p.ids.tolist(), p.scored) for p in one.parts] == [
        ("x", [120], True),
        ("a", [97], False),
        ("yz", [121, 122], True),
    ]


# ---------------------------------------------------------------- windows and batches


def windows(size: int, context: int, scored: Any = None) -> list[tuple[list[int], list[int]]]:
    """What goes through the network, in the order of its first token; the ids are positions."""
    evaluator: Any = Bytes(context)
    mask = np.ones(size, bool) if scored is None else np.isin(np.arange(size), scored)
    [values] = score_readings(evaluator, [Reading(np.arange(size), mask)])
    assert np.flatnonzero(values).tolist() == [i for i in np.flatnonzero(mask) if i > 0]
    seen = [one for batch in evaluator.batches for one in batch]
    return sorted((ids, [ids[k] for k in places]) for ids, places in seen)


def test_windows_overlap_by_half_and_score_every_token_once() -> None:
    assert windows(4, 4) == [([0, 1, 2, 3], [0, 1, 2, 3])]
    assert windows(8, 4) == [
        ([0, 1, 2, 3], [0, 1, 2, 3]),
        ([2, 3, 4, 5], [4, 5]),
        ([4, 5, 6, 7], [6, 7]),
    ]
    assert windows(10, 5) == [
        ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4]),
        ([2, 3, 4, 5, 6], [5, 6]),
        ([4, 5, 6, 7, 8], [7, 8]),
        ([6, 7, 8, 9], [9]),
    ]
    assert windows(3, 1) == [([0], [0]), ([1], [1]), ([2], [2])]
    # A window in which nothing is scored is not read.
    assert windows(8, 4, [1, 7]) == [([0, 1, 2, 3], [1]), ([4, 5, 6, 7], [7])]


def test_a_token_is_scored_with_what_stands_before_it_in_its_window() -> None:
    evaluator: Any = Bytes(4)
    ids = np.array([5, 7, 11, 13, 17, 19, 23])
    scored = np.array([False, True, True, True, True, False, True])
    other = Reading(np.array([29, 31]), np.array([False, True]))
    first, second = score_readings(evaluator, [Reading(ids, scored), other])
    assert first.tolist() == [
        0, -(7 + 5 / 512), -(11 + 7 / 512), -(13 + 11 / 512), -(17 + 13 / 512), 0, -(23 + 19 / 512),
    ]  # fmt: skip
    assert second.tolist() == [0, -(31 + 29 / 512)]


def test_batches_hold_so_many_tokens_longest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def sizes(tokens: int, lengths: list[int]) -> list[list[int]]:
        monkeypatch.setitem(module.BATCH_TOKENS, "cpu", tokens)
        evaluator: Any = Bytes(9)
        readings = [Reading(np.arange(one), np.ones(one, bool)) for one in lengths]
        score_readings(evaluator, readings)
        return [[len(ids) for ids, _ in batch] for batch in evaluator.batches]

    assert module.BATCH_TOKENS == {"cpu": 1024, "cuda": 8192}
    assert sizes(8, [3, 1, 4, 2, 3]) == [[4, 3], [3, 2], [1]]
    assert sizes(9, [3, 1, 4, 2, 3]) == [[4, 3], [3, 2, 1]]
    assert sizes(7, [3, 1, 4, 2, 3]) == [[4], [3, 3], [2, 1]]
    assert sizes(1, [2, 2]) == [[2], [2]]
    assert sizes(4, []) == []


# ---------------------------------------------------------------- cells


def test_cells_are_scored_some_outputs_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["ab", "c|de", "f", "ghi", "jk"]
    outputs = [
        output(i, [0] * 6, text=text.replace("|", END_OF_TEXT)) for i, text in enumerate(texts)
    ]
    cell = made_cell(tmp_path, cell_spec(6), outputs)
    heard: list[Any] = []

    class Heard:
        def __getattr__(self, name: str) -> Any:
            return lambda *given: heard.append((name, given))

    evaluator: Any = Bytes(16)
    monkeypatch.setattr(module, "OUTPUT_TOKENS", 18)
    metric = score_perplexity(cell, evaluator, "first-document", progress=Heard())  # type: ignore[arg-type]
    assert metric == perplexity_metric(evaluator, "first-document")
    assert evaluator.encoded == [4, 2]  # documents of three outputs, then of two
    assert ("start", (cell.spec, 5, 0, "bytes first-document")) in heard
    table = cell.score(metric)
    assert table is not None
    assert table.columns["nll"].tolist() == [total(one) for one in ("ab", "c|", "f", "ghi", "jk")]
    # Tokens one by one, twice as many as the length at most, and in batches as asked for.
    evaluator.encoded.clear()
    one_by_one = score_perplexity(
        [cell], evaluator, "public-code", name=TOKENS, batch_size=4, clean_up=False
    )
    table = cell.score(one_by_one)
    assert table is not None
    assert table.columns["ids"].shape == (5, 12)
    assert one_by_one == perplexity_metric(evaluator, "public-code", clean_up=False, name=TOKENS)
    monkeypatch.setattr(module, "OUTPUT_TOKENS", 5)  # fewer than one output has: one at a time
    score_perplexity(cell, evaluator, "full-stream")
    assert evaluator.encoded == [1, 2, 1, 1, 1]


def test_prompts_are_context_and_the_public_code_knows_none(tmp_path: Path) -> None:
    canvases = Canvases((Canvas("p", (1, None, None)),))
    spec = cell_spec(2)
    generator = spec.generator.model_copy(update={"prompts": canvases.spec})
    spec = spec.model_copy(update={"generator": generator})
    from strop.store import Run

    run = Run.prepare(tmp_path, {"checkpoint": "made", "n": 1}, [spec])
    run.keep_prompts(canvases, [["a", 2]])
    cell = run.cell(spec.id)
    cell.add([output(0, [2, 3], text="bc", prompt="p")])
    cell.merge()
    evaluator: Any = Bytes()
    metric = score_perplexity(cell, evaluator, "full-stream")
    assert metric.settings["context"] == "prompt"
    table = cell.score(metric)
    assert table is not None
    assert table.columns["nll"].tolist() == [98 + 97 / 512 + 99 + 98 / 512]
    with pytest.raises(UserError, match="knows no prompts"):
        score_perplexity(cell, evaluator, "public-code")


def test_another_process_loads_the_same_evaluator(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator: Any = Bytes()
    metric = perplexity_metric(evaluator, "full-stream")
    recipe = EvaluatorRecipe("there", "main", "bfloat16")
    job = PerplexityJob((metric,), (None,), (9,), recipe)
    calls: list[Any] = []
    loads = "strop.measure.evaluator."
    monkeypatch.setattr(loads + "check_evaluator", lambda *given: calls.append(given))
    monkeypatch.setattr(
        loads + "load_evaluator", lambda name, **how: calls.append((name, how)) or evaluator
    )
    job.check()
    loaded = job.load("cuda:1")
    how = {"revision": "main", "device": "cuda:1", "dtype": "bfloat16"}
    assert calls == [(job.recipe, evaluator.spec), ("there", how)]
    some = Outputs(np.array([0]), ["ab"], np.array([[97, 98]]), None)
    [(found, tokens)] = job.open(loaded).work(0, some)
    assert (found["nll"].tolist(), tokens) == ([total("ab")], 2)


# ---------------------------------------------------------------- a pool's numbers


def test_a_pools_numbers_by_hand() -> None:
    """An output without a token, and two whose fillers count since a third is longer."""
    table = {
        "nll": np.array([2.0, 30.0, 0.0], np.float32),
        "tokens": np.array([1, 10, 0]),
        "bytes": np.array([4, 40, 0]),
        "kept_bytes": np.array([4, 40, 0]),
        "source_bytes": np.array([4, 80, 4]),
    }
    found = statistics(table)
    assert {name: one.columns.tolist() for name, one in found.items()} == {
        "pooled": [[2, 1], [30, 10], [0, 0]],
        "macro": [[2, 1], [3, 1], [0, 0]],
        "bits_per_byte": [[2 / np.log(2), 4], [30 / np.log(2), 40], [0, 0]],
        "kept": [[4, 4], [40, 80], [0, 4]],
    }
    assert {name: one.value for name, one in found.items()} == pytest.approx(
        {
            "pooled": np.exp(32 / 11),
            "macro": np.exp(5 / 2),
            "bits_per_byte": 32 / np.log(2) / 44,
            "kept": 44 / 88,
        }
    )
    spans_of_values = {name: one.span for name, one in found.items()}
    assert spans_of_values == {
        "pooled": POSITIVE,
        "macro": POSITIVE,
        "bits_per_byte": POSITIVE,
        "kept": SHARE,
    }
    filled = {
        **table,
        "read": np.array([2, 11, 1]),
        "filler_nll": np.array([0.5, 0.25, 0.125]),
        "filler_tokens": np.array([1, 1, 1]),
    }
    assert statistics(filled)["pooled"].columns.tolist() == [[2.5, 2], [30, 10], [0.125, 1]]
    assert statistics(filled)["macro"].columns.tolist() == [[1.25, 1], [3, 1], [0.125, 1]]


def test_nothing_and_too_much_are_values_and_no_warnings() -> None:
    one = statistics({name: np.array([1]) for name in SUMS} | {"nll": np.array([1000.0])})
    none = statistics({name: np.array([0]) for name in SUMS})
    with np.errstate(all="raise"):
        assert one["pooled"].value == np.inf
        assert all(np.isnan(some.value) for some in none.values())
        assert one["kept"].finish(np.array([[1.0, 0.0], [1.0, 2.0]])).tolist() == [np.inf, 0.5]
    empty = {name: np.zeros(0, np.int64) for name in (*SUMS, "read", "filler_nll", "filler_tokens")}
    assert statistics(empty)["pooled"].columns.shape == (0, 2)
