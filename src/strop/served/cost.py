"""What asking a server costs: caps during, a sum after.

Prices change faster than packages, so strop knows none: they come from a file of the user's,
in dollars (or any other unit) per million tokens:

    gpt-oss-120b: {input: 0.10, output: 0.50}
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from strop.disk import reading
from strop.errors import UserError
from strop.store.documents import load_yaml

Messages = Sequence[Mapping[str, str]]
"""A conversation: roles and contents."""

SENT, SETTLED = "sent", "settled"
"""Outcomes of lines that are about requests and say nothing of a group."""

Fate = Literal["delivered", "answered", "unknown", "unsent"]
"""Of a request: a reply came; an error came; nothing came, so it may be billed; it never left."""

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
            prices = load_yaml(path.read_bytes())
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

    calls: int = 0
    """Requests that left, those included that were under way at a kill."""
    replies: int = 0
    prompt: int = 0
    completion: int = 0
    uncounted: int = 0
    """Replies whose tokens the server did not count."""
    unseen: int = 0
    """Requests that may be billed though nobody counted them: timeouts, kills."""
    unseen_prompt: int = 0
    unseen_completion: int = 0
    """The most that these can have used."""

    def cost(self, price: Price) -> float:
        """What was spent, with the most that may be billed for what nobody counted."""
        prompt, completion = self.prompt + self.unseen_prompt, self.completion
        return price.of({"prompt": prompt, "completion": completion + self.unseen_completion})


def usage(entries: Iterable[dict[str, Any]]) -> Usage:
    """The sums over a journal.

    A request has a line before it leaves (`SENT`), with its reserve. The line of the attempt that
    it belongs to settles it; one that no line settles was under way at a kill.
    """
    sums: Counter[str] = Counter()
    under_way: dict[tuple[Any, ...], list[dict[str, int]]] = {}
    for entry in entries:
        attempt = tuple(entry.get(key) for key in ("session", "sheet", "repeat", "attempt"))
        if entry["outcome"] == SENT:
            sums["calls"] += 1
            under_way.setdefault(attempt, []).append(entry["reserve"])
            continue
        if under_way.pop(attempt, None) is None:  # made before requests were announced
            sums["calls"] += entry.get("calls", 0)
        sums["calls"] -= entry.get("unsent", 0)
        _unseen(sums, [entry["unseen"]] if entry.get("unseen") else [])
        _reply(sums, entry)
    for reserves in under_way.values():
        _unseen(sums, reserves)
    return Usage(**sums)


def _unseen(sums: Counter[str], reserves: list[dict[str, int]]) -> None:
    for reserve in reserves:
        sums["unseen"] += reserve.get("requests", 1)
        sums["unseen_prompt"] += reserve["prompt"]
        sums["unseen_completion"] += reserve["completion"]


def _reply(sums: Counter[str], entry: dict[str, Any]) -> None:
    if not entry.get("calls") or (entry.get("reply") is None and not entry.get("tokens")):
        return  # a judge without calls, or a call without a reply
    sums["replies"] += 1
    tokens = entry.get("tokens")
    sums["uncounted"] += tokens is None
    sums["prompt"] += (tokens or {}).get("prompt", 0)
    sums["completion"] += (tokens or {}).get("completion", 0)


class Exhausted(Exception):
    """The next request would pass a cap."""


class Caps:
    """Caps on a whole series or run, earlier sessions included."""

    def __init__(
        self,
        spent: Usage,
        *,
        max_calls: int | None = None,
        max_cost: float | None = None,
        price: Price | None = None,
        beside: Iterable[tuple[Usage, Price | None]] = (),
    ) -> None:
        """`beside` is what other models have cost, on which the caps are, too."""
        every = [(spent, price), *beside]
        self.calls = sum(used.calls for used, _ in every)
        self.price = price
        self.cost = sum(0.0 if each is None else used.cost(each) for used, each in every)
        if max_cost is not None and spent.uncounted:
            raise UserError(
                "This server does not count tokens, so its cost cannot be capped.",
                where="`max_cost`",
                got=f"{spent.uncounted} replies without a count",
                fix="use `max_calls`",
            )
        self._max_calls, self._max_cost = max_calls, max_cost
        self._reserved = 0.0
        self._changed = asyncio.Condition()

    def of(self, tokens: dict[str, int]) -> float:
        """What tokens cost; 0 where no price is known."""
        return 0.0 if self.price is None else self.price.of(tokens)

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

    async def settle(self, most: float, cost: float, *, sent: bool = True) -> None:
        """Replace the reserve of a request by what it cost."""
        async with self._changed:
            self._reserved = max(0.0, self._reserved - most)
            self.cost += cost
            self.calls -= not sent
            if abs(self._reserved) < 1e-12:
                self._reserved = 0.0
            self._changed.notify_all()


class Tab:
    """The requests of one attempt at one question: each is announced before it leaves."""

    def __init__(
        self, budget: Caps, most: dict[str, int], announce: Callable[[dict[str, Any]], None]
    ) -> None:
        self._budget, self._most, self._announce = budget, most, announce
        self.calls = 0
        self._unsent = 0
        self._unseen = 0

    async def open(self) -> None:
        """Take a request on; `Exhausted` if a cap forbids it."""
        await self._budget.admit(self._budget.of(self._most))
        self._announce({"outcome": SENT, "reserve": self._most})
        self.calls += 1

    async def close(self, fate: Fate, tokens: dict[str, int] | None = None) -> None:
        """Settle the request that was opened last."""
        most = self._budget.of(self._most)
        unseen = fate == "unknown" or (fate == "delivered" and tokens is None)
        cost = most if unseen else self._budget.of(tokens) if tokens else 0.0
        self._unseen += fate == "unknown"
        self._unsent += fate == "unsent"
        await self._budget.settle(most, cost, sent=fate != "unsent")

    def entry(self) -> dict[str, Any]:
        """What the attempt's line in the journal says of its requests."""
        reserve = {key: self._unseen * tokens for key, tokens in self._most.items()}
        unseen = {"requests": self._unseen, **reserve} if self._unseen else None
        return {"calls": self.calls, "unsent": self._unsent, "unseen": unseen}
