"""HTTP: addresses, answers, and events as they happen. What is shown is `viewer.py`'s to say."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import numpy as np
import uvicorn
from anyio import to_thread
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from strop import page
from strop.errors import UserError
from strop.page.data import encodable
from strop.page.live.guarded import Guarded
from strop.page.live.paged import LONGEST_RUN, MOST, Wish
from strop.page.live.viewer import Made, Viewer
from strop.page.page import LIVE, SCRIPTS, STYLES
from strop.page.player import player

Read = TypeVar("Read")

PAUSE = 1.0
"""Seconds between two looks at the folders, at least."""
SOON = 1.0
"""Seconds that a page is waited for; then the last one is shown, or what is under way alone."""
SHARE = 10.0
"""How many times as long as a look takes nobody looks."""
BEAT = 15.0
"""Seconds after which something is sent although nothing happened: who has gone is noticed."""
LONGEST_POST = 4096
TEMPLATES = Path(page.__file__).parent / "templates"
TYPES = {".css": "text/css", ".js": "text/javascript"}


class Server:
    """The routes over some folders, below a token."""

    def __init__(self, viewer: Viewer, token: str, port: int) -> None:
        self._viewer = viewer
        self._ticked = asyncio.Condition()
        self._listeners = 0
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._states: list[dict[str, Any]] = []
        self._making: dict[tuple[int, ...], asyncio.Task[Made]] = {}
        routes = [
            Route("/", self._index),
            Route("/events", self._events),
            Route("/{view}/", self._page),
            Route("/{view}/events", self._events),
            Route("/{view}/outputs", self._answered(self._outputs)),
            Route("/{view}/output", self._answered(self._output)),
            Route("/{view}/ratings", self._answered(self._ratings)),
            Route("/{view}/ratings", self._rate, methods=["POST"]),
            Route("/{name}", self._file),
            Route("/{view}/{name}", self._file),
        ]
        inner = Starlette(routes=routes, lifespan=self._lifespan)
        inner.router.redirect_slashes = False
        self.app = Guarded(inner, token, port, writes=["/ratings"])

    def close(self) -> None:
        """End all streams of events, from any thread."""
        self._closed = True
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._tell(), self._loop)

    # ------------------------------------------------------------------------ pages

    async def _index(self, _: Request) -> Response:
        if len(self._viewer.folders) == 1:
            return RedirectResponse("0/")
        return HTMLResponse(await run_in_threadpool(self._viewer.index))

    async def _page(self, request: Request) -> Response:
        view = self._view(request)
        making = self._make(view)
        await asyncio.wait([making], timeout=SOON)
        made = await making if making.done() else self._viewer.known(view)
        if made is None:
            return HTMLResponse(await run_in_threadpool(self._viewer.waiting, view))
        return HTMLResponse(made.html)

    def _make(self, view: tuple[int, ...]) -> asyncio.Task[Made]:
        """The page of a view as it becomes ready, made once for all who wait for it."""
        if view not in self._making or self._making[view].done():
            self._making[view] = asyncio.create_task(self._prepare(view))
        return self._making[view]

    async def _prepare(self, view: tuple[int, ...]) -> Made:
        """The page of a view; whoever waits for it hears at once of each form that is ready."""
        before = self._viewer.known(view)
        await _until_closed(self._viewer.begin, view)
        if self._viewer.known(view) is not before:
            await self._tell()
        made = await _until_closed(self._viewer.made, view)
        if made is not before:  # otherwise nobody need look again before the next tick
            await self._tell()
        return made

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in (*STYLES, *SCRIPTS, LIVE):
            raise HTTPException(404)
        return Response((TEMPLATES / name).read_text("utf-8"), media_type=TYPES[Path(name).suffix])

    def _view(self, request: Request) -> tuple[int, ...]:
        view = request.path_params.get("view")
        if view is None:
            return tuple(range(len(self._viewer.folders)))
        with suppress(KeyError):
            return self._viewer.chosen(view)
        raise HTTPException(404)

    # ------------------------------------------------------------------------ data

    def _answered(self, answer: Callable[[tuple[int, ...], Mapping[str, str]], Any]) -> Any:
        """A route for what is asked by name, in a thread of its own."""

        async def answered(request: Request) -> Response:
            numbers = self._view(request)
            return await _told(partial(answer, numbers, request.query_params))

        return answered

    def _outputs(self, view: tuple[int, ...], asked: Mapping[str, str]) -> Any:
        unlike = self._viewer.paged(view, asked["unlike"]) if "unlike" in asked else None
        return self._viewer.paged(view, asked["cell"]).page(_wish(asked), unlike)

    def _output(self, view: tuple[int, ...], asked: Mapping[str, str]) -> Any:
        cell, index = asked["cell"], int(asked["index"])
        rows = self._viewer.paged(view, cell).rows(np.array([index]))
        if not rows:
            raise KeyError(index)
        _, text, values = rows[0]
        run = self._viewer.run_of(view, cell)
        played = player(run.cell(cell), run, index)
        return {"cell": cell, "index": index, "text": text, "values": values, "player": played}

    def _ratings(self, view: tuple[int, ...], _: Mapping[str, str]) -> Any:
        return {"ratings": self._viewer.rated(view)}

    async def _rate(self, request: Request) -> Response:
        numbers = self._view(request)
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LONGEST_POST:
                return JSONResponse({"error": "That is too long for a rating."}, 413)
        return await _told(partial(self._rated, numbers, body))

    def _rated(self, view: tuple[int, ...], body: bytes) -> Any:
        said = json.loads(body)
        cell, index, value = said["cell"], said["index"], said["value"]
        if not isinstance(cell, str) or type(index) is not int:
            raise ValueError("`cell` is a text and `index` a whole number")
        if index not in self._viewer.paged(view, cell).numbers:
            raise KeyError(index)
        self._viewer.ratings(self._viewer.run_of(view, cell).path).rate(cell, index, value)
        return {"cell": cell, "index": index, "value": value}

    # ------------------------------------------------------------------------ events

    async def _events(self, request: Request) -> Response:
        view = self._view(request)
        return StreamingResponse(self._stream(view), media_type="text/event-stream")

    async def _stream(self, view: tuple[int, ...]) -> AsyncIterator[str]:
        """What is known now, then whatever of it becomes another."""
        whole = len(view) == len(self._viewer.folders) and len(view) > 1
        sent: dict[str, str] = {}
        self._listeners += 1
        try:
            await self._tick()
            beat = time.monotonic()
            while not self._closed:
                for name, key, told in await _until_closed(self._news, view):
                    text = json.dumps(told, allow_nan=False, default=str)
                    if sent.get(key) != text:
                        sent[key], beat = text, time.monotonic()
                        yield f"event: {name}\ndata: {encodable(text)}\n\n"
                if not whole and self._viewer.outdated(view):
                    self._make(view)
                if time.monotonic() - beat > BEAT:
                    beat = time.monotonic()
                    yield ":\n\n"
                async with self._ticked:
                    await self._ticked.wait()
        finally:
            self._listeners -= 1

    def _news(self, view: tuple[int, ...]) -> list[tuple[str, str, dict[str, Any]]]:
        """Every message of a view as it is now: its event, under which key, and what it says."""
        states = [one for one in self._states if one["number"] in view]
        news: list[tuple[str, str, dict[str, Any]]] = [
            ("progress", "progress", {"folders": states})
        ]
        counts: dict[str, int] = {}
        for number in view:
            found = self._viewer.details(number)
            counts |= found["counts"]
            for name in ("series", "grades"):
                if found[name]:
                    event = {"series": "judgments", "grades": "grades"}[name]
                    key = {"series": "series", "grades": "cells"}[name]
                    news.append((event, f"{event} {number}", {"folder": number, key: found[name]}))
        news.append(("outputs", "outputs", {"counts": counts}))
        made = self._viewer.known(view)
        if made is not None:
            news.append(("changed", "changed", {"version": made.version}))
        return news

    async def _tick(self) -> None:
        """Look at all folders, and wake who waits for news."""
        await _until_closed(self._viewer.look)
        self._states = await _until_closed(self._viewer.states)
        await self._tell()

    async def _tell(self) -> None:
        async with self._ticked:
            self._ticked.notify_all()

    async def _watch(self) -> None:
        while True:
            began = time.monotonic()
            if self._listeners:
                await self._tick()
            await asyncio.sleep(max(PAUSE, SHARE * (time.monotonic() - began)))

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self._loop = asyncio.get_running_loop()
        watching = asyncio.create_task(self._watch())
        yield
        watching.cancel()


class Listener(uvicorn.Server):
    """uvicorn, which ends by Ctrl-C or SIGTERM without a word: that is how a view ends."""

    def __init__(self, config: uvicorn.Config, server: Server) -> None:
        super().__init__(config)
        self._server = server

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Open pages are let go of, and what is broken off is no error."""
        super().handle_exit(sig, frame)
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._server.close()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As its own, but that nobody hears of the signal again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        ends = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in ends}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


async def _until_closed(read: Callable[..., Read], *given: Any) -> Read:
    """What a function reads, in a thread that nobody waits for when the server ends."""
    return await to_thread.run_sync(read, *given, abandon_on_cancel=True)


async def _told(answer: Callable[[], Any]) -> Response:
    """An answer as JSON; what was asked wrongly in words."""
    try:
        return JSONResponse(_sound(await run_in_threadpool(answer)))
    except KeyError as error:
        return JSONResponse({"error": f"There is no {error.args[0]!r} here."}, 404)
    except UserError as error:
        return JSONResponse({"error": str(error)}, 400)
    except (ValueError, TypeError) as error:
        return JSONResponse({"error": f"The request cannot be read: {error}."}, 400)


def _sound(value: Any) -> Any:
    """Without lone halves of surrogate pairs, which no answer can hold."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {key: _sound(one) for key, one in value.items()}
    return [_sound(one) for one in value] if isinstance(value, list) else value


def _wish(asked: Mapping[str, str]) -> Wish:
    limits: dict[str, Any] = {}
    if "bound" in asked:
        side = "least" if asked.get("direction") == "least" else "most"
        limits = {"column": int(asked["column"]), side: float(asked["bound"])}
    order = asked.get("order", "number").split()
    return Wish(
        after=max(0, int(asked.get("after") or 0)),
        count=min(MOST, max(1, int(asked.get("n") or 12))),
        search=asked.get("search", ""),
        repeats=min(LONGEST_RUN, max(0, int(asked.get("repeats") or 0))),
        order=None if order == ["number"] else (int(order[0]), 1 if int(order[1]) > 0 else -1),
        **limits,
    )
