"""What judging will cost: calls, tokens and money of the questions that are left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from strop.groupeval.payload import messages
from strop.served.cost import BYTES_PER_TOKEN, Price, guessed_tokens, usage

if TYPE_CHECKING:
    from strop.groupeval.plan import Sheet
    from strop.groupeval.series import Series

REPLY_BYTES_PER_OUTPUT = 150
"""Of an entry of the frozen schema; judges that think write many times more."""


def cost_estimate(
    series: Series, questions: Sequence[tuple[Sheet, int]], price: Price | None
) -> dict[str, Any]:
    """Calls, tokens and cost of these questions, if every reply is a verdict."""
    used = usage(series.journal.entries())
    counted = used.replies - used.uncounted
    if counted:
        basis = f"the mean of {counted} replies that the server counted"
        prompt = round(len(questions) * used.prompt / counted)
        completion = round(len(questions) * used.completion / counted)
    else:
        basis = "guessed from bytes; thinking, if the judge does any, comes on top"
        prompt, completion = 0, 0
        for sheet, _ in questions:
            texts, task = series.sheet_texts(sheet)
            prompt += guessed_tokens(messages(series.profile, sheet.labels, texts, task))
            completion += round(len(texts) * REPLY_BYTES_PER_OUTPUT / BYTES_PER_TOKEN)
    tokens = {"prompt": prompt, "completion": completion}
    return {
        "calls": len(questions),
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "cost": None if price is None else price.of(tokens),
        "basis": basis,
    }
