"""How servers of generators are asked: how many requests at once, how much in all, by which key."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from strop.errors import UserError
from strop.served.address import ServerAddress
from strop.served.client import Client, Patience
from strop.served.cost import CALLS, Caps, Journal, MemoryJournal, Price, read_price, usage


@dataclass(frozen=True)
class Serving:
    """What no output depends on, and every bill does."""

    concurrency: int = 8
    """Requests under way at once."""
    timeout: float = 300.0
    """Seconds for one request."""
    max_calls: int | None = None
    """For everything in the command's directory, what other commands asked for included."""
    max_cost: float | None = None
    prices: Path | None = None
    key_env: str = "OPENAI_API_KEY"
    directory: Path | None = None
    """The command's directory."""

    def client(self, at: ServerAddress) -> Client:
        """Whoever asks."""
        if not 0 < self.timeout < float("inf"):
            raise UserError("`timeout` is out of range.", where="`timeout`", got=self.timeout)
        return Client(at, os.environ.get(self.key_env), Patience(timeout=self.timeout))

    def caps(self, model: str, asking: Sequence[Journal | MemoryJournal]) -> Caps:
        """What may be spent beside what was, by these journals and all others in the directory.

        A study draws cells in several goes, and may ask several models: the caps are on all.
        """
        files = () if self.directory is None else self.directory.rglob(CALLS)
        own_paths = {journal.path for journal in asking if isinstance(journal, Journal)}
        others = [Journal(path) for path in files if path not in own_paths]
        entries: dict[str, list[dict[str, Any]]] = {model: []}
        for entry in (e for journal in (*asking, *others) for e in journal.entries()):
            entries.setdefault(entry.get("asked", model), []).append(entry)
        spent = {name: (usage(lines), self._price(name)) for name, lines in entries.items()}
        used, price = spent.pop(model)
        caps = {"max_calls": self.max_calls, "max_cost": self.max_cost}
        return Caps(used, price=price, beside=spent.values(), **caps)

    def _price(self, model: str) -> Price | None:
        price = read_price(self.prices, model)
        if self.max_cost is not None and price is None:
            raise UserError(
                f"There is no price for {model!r}, so its cost cannot be capped.",
                where=self.prices or "`prices`",
                expected=f"a line {model}: {{input: X, output: Y}} in a YAML file, per million "
                "tokens",
                fix="add it, or use `max_calls`",
            )
        return price


_NOW: ContextVar[Serving | None] = ContextVar("serving", default=None)


def serving() -> Serving:
    """As the command that runs was told."""
    return _NOW.get() or Serving()


@contextmanager
def served_as(values: Mapping[str, Any], directory: Path | None) -> Iterator[None]:
    """While a verb runs that was told how to ask servers, in its directory if it has one."""
    settings = {
        **{option.name: values.get(option.name) for option in fields(Serving)},
        "directory": directory,
    }
    token = _NOW.set(
        Serving(**{name: value for name, value in settings.items() if value is not None})
    )
    try:
        yield
    finally:
        _NOW.reset(token)


T = TypeVar("T")


def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; SIGTERM ends it as Ctrl-C does, with everything closed and nothing lost.

    A notebook has a loop of its own in this thread: beside one, the work runs in another thread.
    """
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    cancel: list[Callable[[], object]] = []

    async def can_be_ended() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if task is not None:
            cancel.append(lambda: loop.call_soon_threadsafe(task.cancel))
            if threading.current_thread() is threading.main_thread():
                loop.add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    def run() -> T:
        try:
            return asyncio.run(can_be_ended())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    try:
        asyncio.get_running_loop()
        beside_a_loop = True
    except RuntimeError:
        beside_a_loop = False
    if beside_a_loop:
        with ThreadPoolExecutor(1) as beside:
            future = beside.submit(run)
            try:
                return future.result()
            except KeyboardInterrupt:
                for end in cancel if not future.done() else ():
                    end()
                raise
    before = signal.getsignal(signal.SIGTERM)
    try:
        return run()
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
