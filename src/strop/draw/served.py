"""Outputs of a served model: one request each, several at a time, every reply kept at once.

A request is in the cell's journal (`calls.jsonl`) before it leaves, with all that is sent, and its
reply before anything else is done with it. Whoever continues takes from the journal what has
arrived, so that no reply is asked for twice; what was on its way at a kill is asked again.

Output i sends a seed that is derived from (seed, i). With prompts a request is a chat of one
message, unless the setting `api` says `completions`; without prompts it is a completion of the
setting `start`, empty by default.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strop.denoisers.load import ServedModel
from strop.engine.sink import new_session
from strop.errors import Incomplete, UserError
from strop.pool import Output
from strop.prompts.canvas import Canvases
from strop.rng import derive_seed
from strop.served.client import Client, Reply
from strop.served.cost import (
    CALLS,
    CAUTIOUS_BYTES_PER_TOKEN,
    REPLY,
    SETTLED,
    Caps,
    Exhausted,
    Journal,
    MemoryJournal,
    Tab,
    hash_of,
)
from strop.served.serving import Serving, serving
from strop.spec.generator import CellSpec

if TYPE_CHECKING:
    from strop.draw.worker import CellDraw
    from strop.store import Cell

OWN = ("api", "start")
"""Settings that say how to ask; every other one is a field of the request's body."""
SHOWN = 3


def request_body(cell: CellSpec, prompt: str | None, index: int) -> dict[str, Any]:
    """All that is sent for one output, beside the model's name."""
    sampler, settings = cell.generator.sampler, dict(cell.generator.sampler.settings)
    chat = settings["api"] == "chat" or (settings["api"] == "auto" and prompt is not None)
    text = str(settings["start"]) if prompt is None else prompt
    body: dict[str, Any] = (
        {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}
    )
    body["max_tokens"] = cell.generator.length
    body["temperature"] = sampler.temperature
    if sampler.top_p != 1:
        body["top_p"] = sampler.top_p
    body["seed"] = derive_seed(cell.seed, "served", index) >> 32
    return body | {name: _field_value(value) for name, value in settings.items() if name not in OWN}


def _field_value(value: Any) -> Any:
    """A value as JSON: `true`, `{"a": 1}` and the like are read, other words are words."""
    if isinstance(value, str) and (value in ("true", "false", "null") or value[:1] in "[{"):
        with contextlib.suppress(ValueError):
            return json.loads(value)
    return value


@dataclass
class _Asking:
    """The common state of the requests for one unit."""

    client: Client
    caps: Caps
    journal: Journal | MemoryJournal
    cell: CellSpec
    waiting: list[int]
    arrived: queue.Queue[Any]
    pinned: dict[str, Any]
    """What the server said of itself with its first reply."""
    session: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    stopped: str | None = None
    failed: dict[int, str] = field(default_factory=dict)


class ServedWorker:
    """Asks for outputs of some cells."""

    def __init__(
        self,
        model: ServedModel,
        cells: Sequence[CellDraw],
        canvases: Canvases | None,
        folders: Sequence[Path | None],
    ) -> None:
        self._model, self._cells, self._canvases = model, cells, canvases
        self._how: Serving = serving()
        self._journals = [MemoryJournal() if f is None else Journal(f / CALLS) for f in folders]
        listed = asyncio.run(self._listed())
        self.facts = {
            **new_session(model),
            "device": "a server",
            "device_name": model.address.base_url,
            "served": {"model": model.address.model, "models": listed},
            "concurrency": self._how.concurrency,
        }

    async def _listed(self) -> list[str] | None:
        """What the server says that it has; a dead server and a wrong key are found out here."""
        client = self._how.client(self._model.address)
        try:
            return await client.models()
        finally:
            await client.close()

    def work(self, cell: int, missing: Sequence[int]) -> Iterator[Output]:
        """The outputs that are missing: those whose replies have arrived before, then the rest."""
        journal, spec = self._journals[cell], self._cells[cell].cell
        if isinstance(journal, Journal):
            journal.mend()
        replies = {int(e["sheet"]): e for e in journal.entries() if e["outcome"] == REPLY}
        for index in missing:
            if index in replies:
                yield self._output(index, replies[index])
        waiting = [index for index in missing if index not in replies]
        if waiting:
            yield from self._ask_side_by_side(journal, spec, waiting)

    def _ask_side_by_side(
        self, journal: Journal | MemoryJournal, spec: CellSpec, waiting: list[int]
    ) -> Iterator[Output]:
        """Ask side by side in a thread of their own; outputs in the order in which they arrive."""
        arrived: queue.Queue[Any] = queue.Queue()
        ended = threading.Event()
        thread = threading.Thread(
            target=lambda: asyncio.run(self._ask_all(journal, spec, waiting, arrived, ended)),
            daemon=True,
        )
        thread.start()
        try:
            while (arrival := arrived.get()) is not None:
                if isinstance(arrival, BaseException):
                    raise arrival
                yield self._output(*arrival)
        finally:
            ended.set()
            thread.join()

    async def _ask_all(
        self,
        journal: Journal | MemoryJournal,
        spec: CellSpec,
        waiting: list[int],
        arrived: queue.Queue[Any],
        ended: threading.Event,
    ) -> None:
        client = self._how.client(self._model.address)
        tasks: list[asyncio.Task[None]] = []
        try:
            caps = self._how.caps(self._model.address.model, self._journals)
            pinned = next((_pin(e) for e in journal.entries() if e["outcome"] == REPLY), {})
            work = _Asking(client, caps, journal, spec, waiting[::-1], arrived, pinned)
            most = min(self._how.concurrency, len(waiting))
            tasks += [asyncio.create_task(self._ask_in_turn(work)) for _ in range(most)]
            watch = asyncio.create_task(_until(ended))
            all_tasks = asyncio.gather(*tasks)
            await asyncio.wait([all_tasks, watch], return_when=asyncio.FIRST_COMPLETED)
            watch.cancel()
            if all_tasks.done():
                all_tasks.result()
                _refuse_missing(work, self._model.source)
                arrived.put(None)
        except BaseException as error:
            arrived.put(error)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.close()

    async def _ask_in_turn(self, work: _Asking) -> None:
        while work.waiting and work.stopped is None:
            index = work.waiting.pop()
            try:
                await self._ask_one(work, index)
            except Exhausted as error:
                work.stopped = str(error)
                work.failed[index] = "not asked"

    async def _ask_one(self, work: _Asking, index: int) -> None:
        body = request_body(work.cell, self._prompt(index), index)
        line = {
            "sheet": str(index),
            "repeat": 0,
            "attempt": 1,
            "session": work.session,
            "asked": self._model.address.model,
        }
        size = len(json.dumps(body).encode())
        most = {
            "prompt": round(size / CAUTIOUS_BYTES_PER_TOKEN),
            "completion": work.cell.generator.length,
        }
        tab = Tab(work.caps, most, lambda entry: work.journal.append({**line, **entry}))
        try:
            reply = await work.client.ask(body, tab)
        except UserError:
            work.journal.append({**line, "outcome": SETTLED, **tab.entry()})
            raise
        arrived = reply.delivered and reply.failure != "refused"
        if (
            arrived
            and not reply.reply
            and _asks_of_nothing(body)
            and reply.finish_reason == "length"
        ):
            work.journal.append({**line, **reply.record(), **tab.entry(), "outcome": SETTLED})
            raise UserError(
                "The server generates nothing from an empty text.",
                where=self._model.source,
                got="an empty reply that ended at the limit of tokens",
                expected="a text to go on from",
                fix="set the model's beginning-of-text, for example `start=<s>` (in a study "
                "an axis), or give `prompts`",
            )
        if arrived:  # a reply without a text is an empty one
            reply.reply = (reply.reply or "").encode(errors="replace").decode()
        entry = {
            **line,
            **reply.record(),
            **tab.entry(),
            "outcome": REPLY if arrived else reply.failure,
            "concurrency": self._how.concurrency,
            "reply_sha256": None if reply.reply is None else hash_of(reply.reply),
        }
        if arrived:
            self._check_pin(work, entry)
        work.journal.append(entry)
        if arrived:
            work.arrived.put((index, entry))
            return
        _refuse_form(reply, self._model.source)
        work.failed[index] = f"{reply.failure}: {reply.detail}"
        work.stopped = work.stopped or reply.capped

    def _check_pin(self, work: _Asking, entry: Mapping[str, Any]) -> None:
        """A server that becomes another one in the middle of a cell ends it."""
        pin = _pin(entry)
        work.pinned = work.pinned or pin
        if pin != work.pinned:
            raise UserError(
                "The server has changed: its replies come from a different model than before.",
                where=self._model.source,
                got=", ".join(f"{k} {v!r}" for k, v in pin.items()),
                expected=", ".join(f"{k} {v!r}" for k, v in work.pinned.items())
                + ", as in the replies that are kept",
                fix="start the server as it was, or draw into another `out`",
            )

    def _prompt(self, index: int) -> str | None:
        if self._canvases is None:
            return None
        token_ids = self._canvases.prompt_of(index).given
        return self._model.codec.decode([token for token in token_ids if token is not None])

    def _output(self, index: int, entry: Mapping[str, Any]) -> Output:
        text, length = str(entry["reply"]), self._cells[0].cell.generator.length
        ids = np.array(self._model.codec.encode(text)[:length], np.int64)
        return Output(
            index=index,
            ids=ids,
            nfe=1,
            seconds=float(entry.get("last_byte") or 0.0),
            leftover_masks=0,
            changed=np.zeros(len(ids), np.int32),
            text=text,
            prompt=None if self._canvases is None else self._canvases.prompt_of(index).id,
        )


def _replies(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """All that arrived for some cells."""
    entries = [e for cell in cells for e in Journal(cell.path / CALLS).entries()]
    return [e for e in entries if e["outcome"] == REPLY]


def named_otherwise(source: str, cells: Sequence[Cell]) -> tuple[str, ...]:
    """A warning where replies come from a model of another name."""
    requested = source.rpartition("#")[2]
    short = requested.rpartition("/")[2].lower()
    models = {str(e["model"]) for e in _replies(cells) if e.get("model") is not None}
    other = sorted(model for model in models if short not in model.lower())
    warning = f"warning: {requested} was requested, but the replies come from {', '.join(other)}"
    return (warning,) if other else ()


def latency_of(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Tokens per second of the replies that were asked for, as the server counts tokens.

    Overall: from sending a request to the last byte of its reply. Means over replies, with the
    bootstrap's 95% interval; of one concurrency at a time.
    """
    from strop.stats.resample import POSITIVE, bootstrap, mean

    lines = []
    replies = [e for e in _replies(cells) if e.get("tokens") and e.get("last_byte")]
    for at_once in sorted({int(e["concurrency"]) for e in replies}):
        of_concurrency = [e for e in replies if e["concurrency"] == at_once]
        speeds = [e["tokens"]["completion"] / e["last_byte"] for e in of_concurrency]
        streamed = [
            e["tokens"]["completion"] / (e["last_byte"] - e["first_byte"])
            for e in of_concurrency
            if e["request"].get("stream") and e["last_byte"] > e["first_byte"]
        ]
        for words, values in (("overall", speeds), ("first byte to last", streamed)):
            if values:
                interval = bootstrap(mean(np.array(values), span=POSITIVE))
                ends = "" if interval is None else " [{:.3g}, {:.3g}]".format(*interval.ends)
                lines.append(
                    f"tokens per second of a reply, {words}: {np.mean(values):.3g}{ends} (n "
                    f"{len(values)}, {at_once} at once)"
                )
    return tuple(lines)


def _pin(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The server's own statement of its model, in place of the weights' hash."""
    return {"model": entry.get("model"), "fingerprint": entry.get("system_fingerprint")}


def _asks_of_nothing(body: Mapping[str, Any]) -> bool:
    return not (body["prompt"] if "prompt" in body else body["messages"][0]["content"])


async def _until(ended: threading.Event) -> None:
    while not ended.is_set():
        await asyncio.sleep(0.05)


def _refuse_form(reply: Reply, source: str) -> None:
    """A request whose fields the server does not take fails for every output alike."""
    if reply.trouble is not None and reply.trouble.status in (400, 405, 422, 501):
        raise UserError(
            "The server does not accept the request.",
            where=source,
            got=reply.detail,
            fix="leave out the field that it names; `settings=api=completions` or "
            "`settings=api=chat` chooses the other form of request",
        )


def _refuse_missing(work: _Asking, source: str) -> None:
    """Say what has no reply; what has one is kept."""
    if not work.failed and not work.waiting:
        return
    first = list(work.failed.items())[:SHOWN]
    reasons = "; ".join(f"output {index}: {why}" for index, why in first)
    raise Incomplete(
        f"{len(work.failed) + len(work.waiting)} outputs have no reply.",
        where=source,
        got=work.stopped or reasons,
        fix="run the same command with a higher cap"
        if work.stopped
        else "run the same command again; replies that arrived are kept",
    )
