"""What asking a server costs: caps during, a sum after.

Prices change faster than packages, so strop knows none: they come from a file of the user's,
in dollars (or any other unit) per million tokens:

    gpt-oss-120b: {input: 0.10, output: 0.50}

The journal keeps every request: announced before it leaves, its reply as it came. One JSON object a
line, appended, synced, never changed. `sheet` says what was asked for: a sheet of a judge's plan,
or the number of an output. A process that is killed in the middle of a line leaves a torn one at
the end. Readers pass over it; the next writer takes it away before it appends.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeGuard

from strop.disk import disk, reading
from strop.errors import UserError
from strop.store.folder import load_yaml

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
        tokens = entry.get("tokens")
        if entry.get("calls") and (entry.get("reply") is not None or tokens):
            sums["replies"] += 1  # neither a judge without calls, nor a call without a reply
            sums["uncounted"] += tokens is None
            sums["prompt"] += (tokens or {}).get("prompt", 0)
            sums["completion"] += (tokens or {}).get("completion", 0)
    for reserves in under_way.values():
        _unseen(sums, reserves)
    return Usage(**sums)


def _unseen(sums: Counter[str], reserves: list[dict[str, int]]) -> None:
    for reserve in reserves:
        sums["unseen"] += reserve.get("requests", 1)
        sums["unseen_prompt"] += reserve["prompt"]
        sums["unseen_completion"] += reserve["completion"]


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
        models = [(spent, price), *beside]
        self.calls = sum(used.calls for used, _ in models)
        self.price = price
        self.cost = sum(0.0 if each is None else used.cost(each) for used, each in models)
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


# ---------------------------------------------------------------- the journal

CALLS = "calls.jsonl"
REPLY = "reply"
"""The outcome of a request that brought a text, if only an empty one."""


def _text(value: Any) -> bool:
    return isinstance(value, str)


def is_count(value: Any) -> TypeGuard[int]:
    """Whether a number can be added to a bill: below zero it would lift every cap."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _counts(value: Any) -> bool:
    if not isinstance(value, dict) or not {"prompt", "completion"} <= value.keys():
        return False
    return all(map(is_count, value.values()))


KINDS: dict[str, Callable[[Any], bool]] = {
    "sheet": _text,
    "sheets": lambda value: isinstance(value, list) and all(map(_text, value)),
    "outcome": _text,
    "repeat": is_count,
    "attempt": is_count,
    "detail": _text,
    "reply": lambda value: value is None or _text(value),
    "calls": is_count,
    "unsent": is_count,
    "tokens": lambda value: value is None or _counts(value),
    "unseen": lambda value: value is None or _counts(value),
    "reserve": _counts,
    "session": _text,
    "asked": _text,
}
"""What is read back from an entry, and what it must be."""


def hash_of(reply: str) -> str:
    """SHA-256 of a reply, written beside it."""
    return hashlib.sha256(reply.encode(errors="replace")).hexdigest()


class MemoryJournal:
    """A journal of outputs that go nowhere but into a pool."""

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []

    def entries(self) -> list[dict[str, Any]]:
        """Every entry."""
        return self._entries

    def append(self, entry: dict[str, Any]) -> None:
        """One more."""
        self._entries.append(entry)


class Journal:
    """An append-only file of entries."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_to = 0
        self._entries: list[dict[str, Any]] = []

    def entries(self) -> list[dict[str, Any]]:
        """Every whole entry, oldest first; only what is new since the last call is read."""
        try:
            with reading(self.path), open(self.path, "rb") as file:
                file.seek(self._read_to)
                content = file.read()
        except FileNotFoundError:
            return []
        complete = content[: content.rfind(b"\n") + 1]
        first = len(self._entries) + 1
        new = [self._entry(line, first + k) for k, line in enumerate(complete.splitlines())]
        self._entries += new
        self._read_to += len(complete)
        return self._entries

    def append(self, entry: dict[str, Any]) -> None:
        """One line, on the disk when this returns."""
        line = json.dumps(entry, allow_nan=False).encode() + b"\n"
        with disk(self.path):
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                while line:
                    line = line[os.write(handle, line) :]
                os.fsync(handle)
            finally:
                os.close(handle)

    def mend(self) -> None:
        """Take away the torn line of a session that was killed; only for who holds its folder."""
        if not self.path.exists():
            return
        with disk(self.path), open(self.path, "rb+") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)

    def _entry(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._damaged(number, error) from None
        complete = isinstance(entry, dict) and {"outcome", "repeat"} <= entry.keys()
        if not complete or not {"sheet", "sheets"} & entry.keys():
            raise self._damaged(number, "it is not an entry")
        for name, kind in KINDS.items():
            if name in entry and not kind(entry[name]):
                raise self._damaged(number, f"{name} is {json.dumps(entry[name])[:60]}")
        if entry["outcome"] == SENT and not {"sheet", "reserve"} <= entry.keys():
            raise self._damaged(number, "it is no whole request")
        reply = entry.get("reply")
        if reply is not None and hash_of(reply) != entry.get("reply_sha256"):
            raise self._damaged(number, "the reply is not the one that was written")
        return entry

    def _damaged(self, number: int, why: object) -> UserError:
        return UserError(
            "A line of the journal is damaged.",
            where=f"{self.path}, line {number}",
            got=repr(why)[:160],
            fix="restore the file, or delete that line: its request is then sent again",
        )
