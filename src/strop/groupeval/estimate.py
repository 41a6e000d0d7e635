"""What a session would cost, before it is started."""

from __future__ import annotations

from typing import Any

from strop.groupeval.budget import BYTES_PER_TOKEN, Price, guessed_tokens, usage
from strop.groupeval.judge import pending
from strop.groupeval.payload import messages
from strop.groupeval.series import Series

__all__ = ["estimate"]

REPLY_BYTES_PER_OUTPUT = 150
"""Of an entry of the frozen schema; judges that think write many times more."""


def estimate(series: Series, repeats: int, price: Price | None) -> dict[str, Any]:
    """Calls, tokens and cost of all that has no verdict yet, if every reply is a verdict."""
    questions = pending(series, repeats)
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
