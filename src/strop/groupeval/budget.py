"""What judging costs: an estimate before, a cap during, a sum after.

Prices change faster than packages, so strop knows none: they come from a file of the user's,
in dollars (or any other unit) per million tokens:

    gpt-oss-120b: {input: 0.10, output: 0.50}
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.disk import reading
from strop.errors import UserError
from strop.groupeval.payload import Messages

__all__ = ["Budget", "Exhausted", "Price", "Usage", "guessed_tokens", "read_price", "usage"]

BYTES_PER_TOKEN = 4.0
"""Of English under usual tokenizers; a guess until the server has counted."""
CAUTIOUS_BYTES_PER_TOKEN = 2.5
"""For the reserve under a cap, which must not be too small."""


@dataclass(frozen=True)
class Price:
    """Per million tokens."""

    input: float
    output: float

    def of(self, tokens: dict[str, int]) -> float:
        """The price of one reply; thinking is billed as output."""
        spent = tokens["prompt"] * self.input + tokens["completion"] * self.output
        return spent / 1e6


def read_price(path: Path | None, model: str) -> Price | None:
    """A model's price, if a file is given and knows it."""
    import yaml

    if path is None:
        return None
    try:
        with reading(path):
            prices = yaml.safe_load(path.read_bytes())
        entry = prices.get(model)
        if entry is None:
            return None
        price = Price(float(entry["input"]), float(entry["output"]))
    except FileNotFoundError:
        raise UserError("There is no such price file.", where=path) from None
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            "The price file cannot be read.",
            where=path,
            got=repr(error)[:120],
            expected=f"{model}: {{input: 0.10, output: 0.50}}, per million tokens",
        ) from None
    if not (0 <= price.input < float("inf") and 0 <= price.output < float("inf")):
        raise UserError("A price is not a number of at least 0.", where=path, got=str(price))
    return price


def guessed_tokens(messages: Messages, cautious: bool = False) -> int:
    """Tokens of a question, from its bytes."""
    size = sum(len(message["content"].encode()) for message in messages)
    return round(size / (CAUTIOUS_BYTES_PER_TOKEN if cautious else BYTES_PER_TOKEN))


@dataclass(frozen=True)
class Usage:
    """What a journal says was used."""

    calls: int
    replies: int
    prompt: int
    completion: int
    uncounted: int
    """Replies whose tokens the server did not count."""


def usage(entries: Iterable[dict[str, Any]]) -> Usage:
    """The sums over a journal."""
    calls = replies = prompt = completion = uncounted = 0
    for entry in entries:
        calls += entry.get("calls", 0)
        if not entry.get("calls") or (entry.get("reply") is None and not entry.get("tokens")):
            continue  # a judge without calls, or a call without a reply
        replies += 1
        tokens = entry.get("tokens")
        uncounted += tokens is None
        prompt += (tokens or {}).get("prompt", 0)
        completion += (tokens or {}).get("completion", 0)
    return Usage(calls, replies, prompt, completion, uncounted)


class Exhausted(Exception):
    """The next request would pass a cap."""


class Budget:
    """Caps on a whole series, earlier sessions included."""

    def __init__(
        self,
        spent: Usage,
        *,
        max_calls: int | None = None,
        max_cost: float | None = None,
        price: Price | None = None,
    ) -> None:
        self.calls = spent.calls
        self.cost = 0.0
        self.price = price
        if price is not None:
            self.cost = price.of({"prompt": spent.prompt, "completion": spent.completion})
        if max_cost is not None and spent.uncounted:
            raise UserError(
                "This server does not count tokens, so its cost cannot be capped.",
                where="--max-cost",
                got=f"{spent.uncounted} replies without a count",
                fix="use --max-calls",
            )
        self._max_calls, self._max_cost = max_calls, max_cost
        self._reserved = 0.0
        self._changed = asyncio.Condition()

    def reserve(self, prompt: int, completion: int) -> float:
        """The most that a request may cost."""
        if self.price is None:
            return 0.0
        return self.price.of({"prompt": prompt, "completion": completion})

    async def admit(self, most: float) -> None:
        """Take a request on, once it fits beside those under way; `Exhausted` if it cannot."""
        async with self._changed:
            while True:
                if self._max_calls is not None and self.calls >= self._max_calls:
                    raise Exhausted(f"the cap of {self._max_calls} calls is reached")
                if self._max_cost is None or self.cost + self._reserved + most <= self._max_cost:
                    break
                if self._reserved == 0:
                    raise Exhausted(
                        f"{self.cost:.4f} are spent, and the next call may cost {most:.4f}: "
                        f"more than the cap of {self._max_cost:g}"
                    )
                await self._changed.wait()
            self.calls += 1
            self._reserved += most

    async def settle(self, most: float, tokens: dict[str, int] | None, delivered: bool) -> None:
        """Replace the reserve of a request by what it cost, or by itself if nobody counted."""
        async with self._changed:
            self._reserved = max(0.0, self._reserved - most)
            if self.price is not None and tokens is not None:
                self.cost += self.price.of(tokens)
            elif delivered:
                self.cost += most
            if abs(self._reserved) < 1e-12:
                self._reserved = 0.0
            self._changed.notify_all()
