"""Spans of outputs that answer prompts: what is given is context, the response alone is scored.

The evaluator reads the whole text from left to right, given stretches and response in their order,
each stretch tokenised by itself, so that no token belongs to both. A token of the response is
scored given everything to its left; what a prompt gives to the right of a gap is not seen, since a
causal evaluator cannot. End markers that a prompt gives are context like any other token. Those of
the response count as the policy says: `first-document` scores the first and stops there,
`full-stream` begins anew after each, with nothing before it. `public-code` knows no prompts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from strop.errors import UserError
from strop.measure.spans import (
    END_OF_TEXT,
    Document,
    Passage,
    Reading,
    Span,
    check_same_tokens,
    clean_up,
    first_piece,
    size,
    split_ids,
)
from strop.spec import SpanPolicy

if TYPE_CHECKING:
    from strop.measure.causal import Evaluator


def check_policy(policy: SpanPolicy) -> None:
    """Refuse a policy that says nothing of prompts."""
    if policy == "public-code":
        raise UserError(
            "The public code's span policy knows no prompts.",
            where="`span`",
            got=policy,
            expected="first-document or full-stream",
        )


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
    documents = _encoded(outputs, evaluator, clean) if retokenise else _own(outputs, evaluator)
    return [_span(one, next(documents), policy, evaluator) for one in outputs]


Documents = list[list[Document]]
"""Per part, what stands between its end markers."""


def _encoded(outputs: Sequence[Passage], evaluator: Evaluator, clean: bool) -> Iterator[Documents]:
    texts = [
        [(clean_up(part.text) if clean else part.text).split(END_OF_TEXT) for part in one.parts]
        for one in outputs
    ]
    flat = iter(evaluator.encode([text for one in texts for part in one for text in part]))
    for one in texts:
        yield [[Document(text, next(flat)) for text in part] for part in one]


def _own(outputs: Sequence[Passage], evaluator: Evaluator) -> Iterator[Documents]:
    parts = [part for one in outputs for part in one.parts]
    check_same_tokens([Passage(part.text, part.ids) for part in parts], evaluator)
    for one in outputs:
        yield [split_ids(part.ids, evaluator) for part in one.parts]


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
    building, done, kept = _Building(evaluator), [], 0
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
        kept += size(document.text) if scored else 0
    readings = [one for one in (*done, building) if any(one.scored)]
    whole = sum(
        size(one.text)
        for part, its in zip(output.parts, documents, strict=True)
        for one in its
        if part.scored
    )
    return Span([one.done() for one in readings], kept - sum(r.lost for r in readings), kept, whole)


def _walk(output: Passage, documents: Documents) -> Iterator[tuple[bool, Document, bool]]:
    """Every document in order: whether it is scored, and whether an end stands before it."""
    for part, its in zip(output.parts, documents, strict=True):
        for number, document in enumerate(its):
            yield part.scored, document, number > 0
