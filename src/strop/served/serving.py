"""How servers of generators are asked: how many requests at once, how much in all, by which key."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from strop.errors import UserError
from strop.served.address import ServerAddress
from strop.served.client import Client, Patience
from strop.served.cost import Caps, Usage, read_price


@dataclass(frozen=True)
class Serving:
    """What no output depends on, and every bill does."""

    concurrency: int = 8
    """Requests under way at once."""
    timeout: float = 300.0
    """Seconds for one request."""
    max_calls: int | None = None
    """For all cells of a command, earlier sessions of the same cells included."""
    max_cost: float | None = None
    prices: Path | None = None
    key_env: str = "OPENAI_API_KEY"

    def client(self, at: ServerAddress) -> Client:
        """Whoever asks."""
        if not 0 < self.timeout < float("inf"):
            raise UserError("`timeout` is out of range.", where="`timeout`", got=self.timeout)
        return Client(at, os.environ.get(self.key_env), Patience(timeout=self.timeout))

    def caps(self, model: str, spent: Usage) -> Caps:
        """What may be spent beside what was."""
        price = read_price(self.prices, model)
        if self.max_cost is not None and price is None:
            raise UserError(
                f"There is no price for {model!r}, so its cost cannot be capped.",
                where=self.prices or "`prices`",
                expected=f"a line {model}: {{input: X, output: Y}} in a YAML file, per million "
                "tokens",
                fix="add it, or use `max_calls`",
            )
        return Caps(spent, max_calls=self.max_calls, max_cost=self.max_cost, price=price)


_NOW: ContextVar[Serving | None] = ContextVar("serving", default=None)


def serving() -> Serving:
    """As the command that runs was told."""
    return _NOW.get() or Serving()


@contextmanager
def served_as(values: Mapping[str, Any]) -> Iterator[None]:
    """While a verb runs that was told how to ask servers."""
    told = {one.name: values.get(one.name) for one in fields(Serving)}
    token = _NOW.set(Serving(**{name: one for name, one in told.items() if one is not None}))
    try:
        yield
    finally:
        _NOW.reset(token)
