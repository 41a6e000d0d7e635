"""Scores of texts that no run holds: whoever wrote them, in the evaluator's own tokens.

There is no generator to ask for token ids, so entropy and repetition count the evaluator's tokens,
and pools can be compared with each other only under the same evaluator. There is no guard: it
belongs to a generator's vocabulary and length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strop.engine.progress import Progress, Silent
from strop.errors import UserError
from strop.measure.frame import Score, score_of
from strop.measure.metric import PERPLEXITY, leave_out_broken, metrics
from strop.measure.perplexity import TOKENS, perplexity_columns, perplexity_metric, token_columns
from strop.measure.rows import PoolRows
from strop.measure.spans import Passage
from strop.spec import SpanPolicy

if TYPE_CHECKING:
    from strop.measure.causal import Evaluator

BATCH = 16


def check_policies(policies: Sequence[SpanPolicy]) -> None:
    """Refuse a policy that only outputs of a generator have."""
    if "public-code" in policies:
        raise UserError(
            "The policy public-code cuts to a generator's length, and these texts have none.",
            where="`span`",
            got="public-code",
            expected="first-document or full-stream",
        )


def score_texts(
    texts: Sequence[str],
    evaluator: Evaluator,
    policies: Sequence[SpanPolicy],
    *,
    clean_up: bool | None = None,
    progress: Progress | None = None,
    name: str = "texts",
) -> list[Score]:
    """Perplexity by every policy, and every metric whose record needs ids or text alone."""
    check_policies(policies)
    ids = [np.array(row, np.int64) for row in evaluator.encode(list(texts))]
    found = [_perplexity(texts, ids, evaluator, one, clean_up, progress, name) for one in policies]
    nothing = PoolRows.of(np.zeros((len(texts), 0), np.int64))
    for record in metrics():
        if record.measure is None:
            continue
        spec = record.spec.model_copy(update={"evaluator": evaluator.spec})
        with leave_out_broken(record):
            rows = [record.measure([text], row[None]) for text, row in zip(texts, ids, strict=True)]
            columns = {key: np.concatenate([row[key] for row in rows]) for key in rows[0]}
            found.append(score_of(record, spec, np.arange(len(texts)), columns, nothing))
    return found


def text_tokens(
    texts: Sequence[str],
    evaluator: Evaluator,
    policy: SpanPolicy,
    *,
    progress: Progress | None = None,
    name: str = "texts",
) -> dict[str, NDArray]:
    """Every text's scored tokens one by one; see `token_columns`."""
    check_policies([policy])
    progress = Silent() if progress is None else progress
    progress.start(None, len(texts), 0, f"{name} {evaluator.spec.name} {policy}")
    metric = perplexity_metric(evaluator, policy, name=TOKENS)
    ids = [np.array(row, np.int64) for row in evaluator.encode(list(texts))]
    outputs = [Passage(text, row) for text, row in zip(texts, ids, strict=True)]
    # An end marker's text may be read as several tokens, and as one where it ends a document.
    width = 1 + max(map(len, ids), default=0)
    parts = []
    for start in range(0, len(outputs), BATCH):
        some = outputs[start : start + BATCH]
        parts.append(token_columns(evaluator, metric, some, width, 0))
        progress.advance(len(some), sum(len(one.ids) for one in some))
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _perplexity(
    texts: Sequence[str],
    ids: Sequence[Any],
    evaluator: Evaluator,
    policy: SpanPolicy,
    clean_up: bool | None,
    progress: Progress | None,
    name: str,
) -> Score:
    progress = Silent() if progress is None else progress
    progress.start(None, len(texts), 0, f"{name} {evaluator.spec.name} {policy}")
    metric = perplexity_metric(evaluator, policy, clean_up=clean_up)
    outputs = [Passage(text, row) for text, row in zip(texts, ids, strict=True)]
    parts = []
    for start in range(0, len(outputs), BATCH):
        some = outputs[start : start + BATCH]
        parts.append(perplexity_columns(evaluator, metric, some, 0))
        progress.advance(len(some), sum(len(one.ids) for one in some))
    columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    nothing = PoolRows.of(np.zeros((len(texts), 0), np.int64))
    return score_of(PERPLEXITY, metric, np.arange(len(texts)), columns, nothing)
