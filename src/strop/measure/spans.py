"""Which tokens of an output count: three policies by name.

An output's text is documents with `<|endoftext|>` between them. A policy turns it into readings:
token sequences that the evaluator reads with nothing before them, and marks what is scored.

The rule they share: the first token of a reading has no context and is never scored, unless the
evaluator's own tokenizer puts something before every text (Llama's `<s>`; GPT-2: nothing). Bytes
are UTF-8 bytes of text, without boundaries and without the text of an unscored first token.

In outputs that answer prompts, what is given is context and the response alone is scored. The
evaluator reads the whole text from left to right, given stretches and response in their order,
each stretch tokenised by itself, so that no token belongs to both. A token of the response is
scored given everything to its left; what a prompt gives to the right of a gap is not seen, since a
causal evaluator cannot. End markers that a prompt gives are context like any other token. Those of
the response count as the policy says: `first-document` scores the first and stops there,
`full-stream` begins anew after each, with nothing before it. `public-code` knows no prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError, unknown_name
from strop.spec.value import SpanPolicy

if TYPE_CHECKING:
    from strop.measure.evaluator import Evaluator


END_OF_TEXT = "<|endoftext|>"
"""How the end of a document reads in the text of an output."""

PUBLIC_CHUNK, LLAMA2_CHUNK = 1024, 4096
"""What the public code reads at once, whatever the evaluator could."""

CLEANED = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)
"""What transformers 4 did to decoded text by default, in this order."""


POLICIES: dict[SpanPolicy, Literal["sliding", "split"]] = {
    "first-document": "sliding",
    "full-stream": "sliding",
    "public-code": "split",
}
"""By policy, what happens to a reading that is longer than the evaluator's context.

`first-document`: everything after the first end of text that is not at the very start is left out.
The end that closes the document is scored, a leading one is context for the first token, and bytes
are the first document's.
`full-stream`: split at every end of text, each document read by itself, tokens pooled. The first
token of a document and ends of text are not scored; bytes are all documents', each without its
first token's.
`public-code`: as the public code does, the whole text, cut to the generator's length. The first
token is not scored, and of the ends of text only the first of a chunk; the text after it is. An
output without any that is shorter than the pool's longest is scored on one more, the public code's
first filler. Bytes are the whole text's, as far as it is read.
"""


@dataclass(frozen=True)
class Stretch:
    """A stretch of a text: given by a prompt, or of the response."""

    text: str
    ids: NDArray[np.int64]
    scored: bool


@dataclass(frozen=True)
class Passage:
    """An output to be scored."""

    text: str
    ids: NDArray[np.int64]
    """The generator's, for entropy and where nothing is retokenised."""
    parts: tuple[Stretch, ...] = ()
    """What it answers and the response itself, from left to right; none without a prompt."""


@dataclass(frozen=True)
class Reading:
    """What the evaluator reads in one go."""

    ids: NDArray[np.int64]
    scored: NDArray[np.bool_]
    filler: bool = False
    """Whether the last id is the public code's first filler, which counts only in some pools."""


@dataclass(frozen=True)
class Span:
    """What of one output is read, and how much of it."""

    readings: list[Reading]
    bytes: int
    """Of the scored text: the denominator of bits per byte."""
    kept_bytes: int
    """Of the text that is read."""
    source_bytes: int
    """Of the whole output, boundaries left out."""


@dataclass(frozen=True)
class Document:
    """What stands between end markers."""

    text: str
    ids: list[int]


def spans(
    outputs: Sequence[Passage],
    policy: SpanPolicy,
    evaluator: Evaluator,
    *,
    length: int,
    retokenise: bool = True,
    clean: bool = False,
) -> list[Span]:
    """The spans of outputs of a generator of the given length under a policy."""
    if policy not in POLICIES:
        raise unknown_name("span policy", policy, POLICIES, where="`span`")
    if not retokenise:
        if clean:
            raise UserError(
                "Text cannot be cleaned up where the generator's own ids are scored.",
                where="`clean_up`",
                fix="leave out `clean_up`, or leave out `own_ids`",
            )
        check_same_tokens(outputs, evaluator)
    texts = [clean_up(output.text) if clean else output.text for output in outputs]
    if policy == "public-code":
        ids = evaluator.encode_as_called(texts) if retokenise else [o.ids for o in outputs]
        return [
            _public(text, list(token_ids), evaluator, length)
            for text, token_ids in zip(texts, ids, strict=True)
        ]
    rule: Callable[[list[Document], Evaluator], Span]
    rule = _first_document if policy == "first-document" else _full_stream
    if retokenise:
        split = [text.split(END_OF_TEXT) for text in texts]
        flat = iter(evaluator.encode([piece for pieces in split for piece in pieces]))
        return [rule([Document(p, next(flat)) for p in pieces], evaluator) for pieces in split]
    return [rule(split_ids(output.ids, evaluator), evaluator) for output in outputs]


def clean_up(text: str) -> str:
    """Remove the spaces that transformers 4 removed from decoded text."""
    for old, new in CLEANED:
        text = text.replace(old, new)
    return text


def _first_document(documents: list[Document], evaluator: Evaluator) -> Span:
    end = [] if evaluator.end_of_text is None else [evaluator.end_of_text]
    leading = len(documents) > 1 and not documents[0].ids
    document = documents[1] if leading else documents[0]
    closed = len(documents) > (2 if leading else 1)
    ids = (end if leading else []) + document.ids + (end if closed else [])
    reading = _reading(ids, evaluator)
    headless = bool(document.ids) and not evaluator.spec.prefix and not (leading and end)
    kept_bytes = size(document.text)
    lost = first_piece(document, evaluator) if headless else 0
    return Span([reading], kept_bytes - lost, kept_bytes, sum(size(d.text) for d in documents))


def _full_stream(documents: list[Document], evaluator: Evaluator) -> Span:
    filled = [d for d in documents if d.ids]
    kept_bytes = sum(size(d.text) for d in filled)
    headless = not evaluator.spec.prefix
    lost = sum(first_piece(d, evaluator) for d in filled) if headless else 0
    return Span(
        [_reading(d.ids, evaluator) for d in filled], kept_bytes - lost, kept_bytes, kept_bytes
    )


def _reading(ids: list[int], evaluator: Evaluator) -> Reading:
    """Everything is scored but what the tokenizer put before it, or else the first token."""
    prefix = list(evaluator.spec.prefix)
    scored = np.ones(len(prefix) + len(ids), bool)
    scored[: max(len(prefix), 1)] = False
    return Reading(np.array(prefix + ids, np.int64), scored)


def _public(text: str, ids: list[int], evaluator: Evaluator, length: int) -> Span:
    full_text = "".join(text.split(END_OF_TEXT))
    end = evaluator.tokenizer.eos_token_id
    cut = ids[:length]
    read = full_text if len(cut) == len(ids) else evaluator.decode(cut).replace(END_OF_TEXT, "")
    widest = LLAMA2_CHUNK if "llama2" in evaluator.spec.name else PUBLIC_CHUNK
    chunk = min(widest, evaluator.context)
    readings = [_public_chunk(cut[i : i + chunk], chunk, end) for i in range(0, len(cut), chunk)]
    heads = [cut[i] for i in range(0, len(cut), chunk)]
    lost = sum(_piece_size(token, evaluator) for token in heads if token != end)
    kept_bytes = size(read)
    return Span(readings, max(kept_bytes - lost, 0), kept_bytes, size(full_text))


def _public_chunk(ids: list[int], chunk: int, end: int | None) -> Reading:
    array = np.array(ids, np.int64)
    ends = array == (-1 if end is None else end)
    scored = ~ends | (ends & (np.cumsum(ends) == 1))
    scored[0] = False
    if ends.any() or len(ids) == chunk or end is None:
        return Reading(array, scored)
    return Reading(np.append(array, end), np.append(scored, True), filler=True)


def split_ids(ids: NDArray[np.int64], evaluator: Evaluator) -> list[Document]:
    """Ids cut at end markers."""
    documents: list[list[int]] = [[]]
    for token in ids.tolist():
        if token == evaluator.end_of_text:
            documents.append([])
        else:
            documents[-1].append(token)
    return [Document(evaluator.decode(tokens), tokens) for tokens in documents]


def check_same_tokens(outputs: Sequence[Passage], evaluator: Evaluator) -> None:
    """The generator's ids mean something to the evaluator only if they spell the same text."""
    for output in outputs:
        in_vocabulary = len(output.ids) == 0 or int(output.ids.max()) < len(evaluator.tokenizer)
        if not in_vocabulary or evaluator.decode(output.ids.tolist()) != output.text:
            raise UserError(
                "The generator's ids are not the evaluator's: they spell another text.",
                where="`own_ids`",
                got=f"an output that reads {output.text[:40]!r}",
                expected="a generator and an evaluator with one tokenizer, and no leftover masks",
                fix="leave out `own_ids`: the text is then tokenised for the evaluator",
            )


def first_piece(document: Document, evaluator: Evaluator) -> int:
    """Bytes of the text that a document's first token stands for.

    A character whose bytes are spread over several tokens belongs to its last one: no bytes here.
    """
    piece = evaluator.decode(document.ids[:1])
    return size(piece) if document.text.startswith(piece) else 0


def _piece_size(token: int, evaluator: Evaluator) -> int:
    piece = evaluator.decode([token])
    return 0 if "\N{REPLACEMENT CHARACTER}" in piece else size(piece)


def size(text: str) -> int:
    """In UTF-8 bytes."""
    return len(text.encode("utf-8", errors="surrogatepass"))


def check_policy(
    policy: SpanPolicy, why: str = "The public code's span policy knows no prompts."
) -> None:
    """Refuse the policy that only outputs of a generator without prompts have."""
    if policy == "public-code":
        expected = "first-document or full-stream"
        raise UserError(why, where="`span`", got=policy, expected=expected)


def answer_spans(
    outputs: Sequence[Passage],
    policy: SpanPolicy,
    evaluator: Evaluator,
    *,
    retokenise: bool = True,
    clean: bool = False,
) -> list[Span]:
    """The spans of outputs with `parts` under a policy."""
    check_policy(policy)
    documents = (
        _encoded(outputs, evaluator, clean) if retokenise else _own_documents(outputs, evaluator)
    )
    return [_span(output, next(documents), policy, evaluator) for output in outputs]


Documents = list[list[Document]]
"""Per part, what stands between its end markers."""


def _encoded(outputs: Sequence[Passage], evaluator: Evaluator, clean: bool) -> Iterator[Documents]:
    texts = [
        [(clean_up(part.text) if clean else part.text).split(END_OF_TEXT) for part in output.parts]
        for output in outputs
    ]
    flat = iter(evaluator.encode([text for parts in texts for part in parts for text in part]))
    for parts in texts:
        yield [[Document(text, next(flat)) for text in part] for part in parts]


def _own_documents(outputs: Sequence[Passage], evaluator: Evaluator) -> Iterator[Documents]:
    parts = [part for output in outputs for part in output.parts]
    check_same_tokens([Passage(part.text, part.ids) for part in parts], evaluator)
    for output in outputs:
        yield [split_ids(part.ids, evaluator) for part in output.parts]


@dataclass
class _Building:
    """A reading that grows from left to right."""

    evaluator: Evaluator
    ids: list[int] = field(default_factory=list)
    scored: list[bool] = field(default_factory=list)
    lost: int = 0
    """Bytes of a first token of the response that has no context."""

    def __post_init__(self) -> None:
        prefix = self.evaluator.spec.prefix
        self.ids, self.scored = list(prefix), [False] * len(prefix)

    def add(self, document: Document, scored: bool) -> None:
        if scored and not self.ids and document.ids:
            self.lost = first_piece(document, self.evaluator)
        self.ids += document.ids
        self.scored += [scored] * len(document.ids)

    def end(self, scored: bool) -> None:
        if self.evaluator.end_of_text is not None:
            self.add(Document("", [self.evaluator.end_of_text]), scored)

    def done(self) -> Reading:
        scored = np.array(self.scored, bool)
        scored[:1] = False  # nothing stands before it
        return Reading(np.array(self.ids, np.int64), scored)


def _span(output: Passage, documents: Documents, policy: SpanPolicy, evaluator: Evaluator) -> Span:
    building, done, kept_bytes = _Building(evaluator), [], 0
    for scored, document, after_end in _walk(output, documents):
        if after_end and scored and policy == "first-document":
            building.end(scored=True)
            break
        if after_end and scored:
            done.append(building)
            building = _Building(evaluator)
        elif after_end:
            building.end(scored=False)
        building.add(document, scored)
        kept_bytes += size(document.text) if scored else 0
    readings = [reading for reading in (*done, building) if any(reading.scored)]
    source_bytes = sum(
        size(document.text)
        for part, its in zip(output.parts, documents, strict=True)
        for document in its
        if part.scored
    )
    return Span(
        [reading.done() for reading in readings],
        kept_bytes - sum(r.lost for r in readings),
        kept_bytes,
        source_bytes,
    )


def _walk(output: Passage, documents: Documents) -> Iterator[tuple[bool, Document, bool]]:
    """Every document in order: whether it is scored, and whether an end stands before it."""
    for part, its in zip(output.parts, documents, strict=True):
        for number, document in enumerate(its):
            yield part.scored, document, number > 0
