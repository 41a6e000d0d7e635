"""How servers of generators are asked: how many requests at once, how much in all, by which key.

Where a served model is: `server:URL#MODEL`; and what a probe found wrong with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from strop.disk import write
from strop.errors import UserError
from strop.served.client import Client, Patience
from strop.served.cost import CALLS, Caps, Journal, MemoryJournal, Price, read_price, usage
from strop.store.cell import cache_folder

if TYPE_CHECKING:
    from strop.spec.generator import CheckpointSpec


# ---------------------------------------------------------------------------------------- address

SERVER = "server:"


@dataclass(frozen=True)
class ServerAddress:
    """A model behind a URL."""

    base_url: str
    model: str

    @classmethod
    def parse(cls, source: str) -> ServerAddress:
        """From `server:URL#MODEL`."""
        url, _, model = source.removeprefix(SERVER).partition("#")
        if not url or not model:
            raise UserError(
                "The address of a served model is not complete.",
                where=source.split("@")[-1],
                expected="server:URL#MODEL, e.g. server:http://127.0.0.1:8000/v1#NAME",
                fix="write the model as the server names it behind a #",
            )
        return cls(check_url(url), model)

    def __str__(self) -> str:
        return f"{SERVER}{self.base_url}#{self.model}"


def is_served(source: object) -> bool:
    """Whether a checkpoint's name means a server."""
    return isinstance(source, str) and source.startswith(SERVER)


def check_url(url: str) -> str:
    """A base URL that can be written down: no key in it, and the same spelling every time."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(
            "The base URL cannot be used.",
            where="`base_url`",
            got=url.split("@")[-1],
            expected="http://HOST:PORT/v1 or https://HOST/v1",
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UserError(
            "The base URL carries more than an address.",
            where="`base_url`",
            got="a user, a password or a query",
            expected="the address alone: keys come from the environment and are never written",
            fix="export OPENAI_API_KEY=..., or name another variable with `key_env`",
        )
    return url.rstrip("/")


FAMILY = "served"


def keep_probe(source: str, words: Mapping[str, str], idle: Sequence[str]) -> None:
    """Keep the answers in the user's cache, under the model's identity."""
    digest = _digest(source)
    document = {"checkpoint": source, "knobs": dict(words), "idle": list(idle)}
    with suppress(OSError, UserError):
        _place(digest).parent.mkdir(parents=True, exist_ok=True)
        write(_place(digest), (json.dumps(document) + "\n").encode())


def probe_notes(digest: str) -> tuple[str, ...]:
    """A line for every result of a model of which the last probe found something wrong."""
    try:
        found = json.loads(_place(digest).read_bytes())
        wrong = [knob for knob, word in found["knobs"].items() if word == "no"]
        idle = [str(knob) for knob in found["idle"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()
    told = [f"{knob} does nothing" if knob in idle else f"{knob}: no" for knob in wrong]
    return (f"by the last `strop probe` of this server: {'; '.join(told)}",) if told else ()


def notes_on(checkpoints: Iterable[CheckpointSpec]) -> tuple[str, ...]:
    """The same for the checkpoints of cells; those that are not served have none."""
    served = dict.fromkeys(one.sha256 for one in checkpoints if one.family == FAMILY)
    return tuple(note for one in served for note in probe_notes(one))


def notes_of(sources: Iterable[str]) -> tuple[str, ...]:
    """The same for checkpoints by their names; those that are not served have none."""
    served = dict.fromkeys(str(ServerAddress.parse(one)) for one in sources if is_served(one))
    return tuple(note for one in served for note in probe_notes(_digest(one)))


def _digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


def _place(digest: str) -> Path:
    return cache_folder() / "probes" / f"{digest[:32]}.json"


# ---------------------------------------------------------------------------------------- serving


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
    place: Path | None = None
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
        files = () if self.place is None else self.place.rglob(CALLS)
        mine = {one.path for one in asking if isinstance(one, Journal)}
        others = [Journal(path) for path in files if path not in mine]
        entries: dict[str, list[dict[str, Any]]] = {model: []}
        for entry in (e for one in (*asking, *others) for e in one.entries()):
            entries.setdefault(entry.get("asked", model), []).append(entry)
        spent = {name: (usage(some), self._price(name)) for name, some in entries.items()}
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
def served_as(values: Mapping[str, Any], place: Path | None) -> Iterator[None]:
    """While a verb runs that was told how to ask servers, in its directory if it has one."""
    told = {**{one.name: values.get(one.name) for one in fields(Serving)}, "place": place}
    token = _NOW.set(Serving(**{name: one for name, one in told.items() if one is not None}))
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

    def whole() -> T:
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
            future = beside.submit(whole)
            try:
                return future.result()
            except KeyboardInterrupt:
                for end in cancel if not future.done() else ():
                    end()
                raise
    before = signal.getsignal(signal.SIGTERM)
    try:
        return whole()
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
