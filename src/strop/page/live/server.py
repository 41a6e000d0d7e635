"""HTTP: addresses, answers, and events as they happen. What is shown is `viewer.py`'s to say."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import RLock
from types import FrameType
from typing import Any, TypeVar

import numpy as np
import uvicorn
from anyio import to_thread
from jinja2 import Environment, PackageLoader
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
from strop.measure.frame import Frame, read_run
from strop.page.collect import gather, unmeasured
from strop.page.data import RATINGS, Report, encodable
from strop.page.evidence import SERVED
from strop.page.live.guarded import Guarded
from strop.page.live.paged import LONGEST_RUN, MOST, Paged, Wish
from strop.page.live.ratings import Ratings
from strop.page.live.watch import WatchedFolder, is_hold, locked_files, walk
from strop.page.page import LIVE, SCRIPTS, STYLES, render
from strop.page.player import player
from strop.page.tables import output_columns
from strop.store import Cell, Run
from strop.version import __version__

# ----------------------------------------------------------------------------------------- viewer

"""How many times as long as it took to make a page it is shown, while somebody is at work."""
MANY = 2**12
"""Outputs whose numbers take longer than somebody waits for a page."""
LEAST = 3.0
"""Seconds that a page is shown at least while its folders change."""
UNKNOWN = "version-of-the-page"
"""What stands in a page in the place of its version, which is a hash of all of it."""


@dataclass
class Made:
    """A page as it was made of its folders at a moment."""

    looks: tuple[Mapping[str, Any], ...]
    report: Report
    html: str
    version: str
    cost: float
    at: float
    paged: dict[str, Paged] = field(default_factory=dict)


class Viewer:
    """All that is given, and the pages of it."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._allowed = [path.resolve() for path in paths]
        self.folders = [WatchedFolder(i, path, self._allowed) for i, path in enumerate(paths)]
        self._made: dict[tuple[int, ...], Made] = {}
        self._first: dict[tuple[int, ...], Made] = {}
        self._ratings: dict[Path, Ratings] = {}
        self._frames: dict[Path, tuple[Mapping[str, Any], Frame]] = {}
        self._looking, self._making, self._beginning = RLock(), RLock(), RLock()

    def chosen(self, view: str) -> tuple[int, ...]:
        """The folders of a view, `0` or `0+2`; a KeyError where there is none of this name."""
        words = view.split("+")
        if not all(word.isascii() and word.isdigit() and len(word) < 6 for word in words):
            raise KeyError(view)
        numbers = tuple(dict.fromkeys(map(int, words)))
        if max(numbers) >= len(self.folders):
            raise KeyError(view)
        return numbers

    def look(self, numbers: Sequence[int] | None = None) -> None:
        """See what has changed in some folders, by default in all."""
        locks = locked_files()
        with self._looking:
            for folder in self.folders:
                if numbers is None or folder.number in numbers:
                    folder.look(locks)

    def states(self) -> list[dict[str, Any]]:
        """What is told of every folder."""
        with self._looking:
            return [folder.state() for folder in self.folders]

    def about(self, numbers: Sequence[int]) -> dict[str, Any]:
        """What a page knows of the server: its view, and the folders in it."""
        with self._looking:
            folders = [
                {"number": folder.number, "name": folder.name, "kind": folder.kind}
                for folder in self.folders
                if folder.number in numbers
            ]
        view = "+".join(map(str, numbers))
        return {"view": view, "folders": folders, "ratings": True, "version": UNKNOWN}

    def index(self) -> str:
        """The page of all folders, of which one chooses."""
        self.look()
        return _announcement(self.about(range(len(self.folders))) | {"index": True})

    def waiting(self, numbers: tuple[int, ...]) -> str:
        """What stands in the place of a page that is not ready."""
        return _announcement(self.about(numbers) | {"waiting": True})

    def made(self, numbers: tuple[int, ...]) -> Made:
        """The page of a view; one that is out of date is shown a little longer if it was dear."""
        looks = self._looks(numbers)
        with self._making:
            last = self._made.get(numbers)
            if last is not None:
                share = SHARE if any(self.folders[i].busy for i in numbers) else 0.0
                young = time.monotonic() - last.at < max(LEAST, share * last.cost)
                if young or last.looks == looks:
                    return last
            new = self._rendered(numbers, looks)
            if last is not None and last.looks == looks:
                new.paged = last.paged
            self._made[numbers] = new
            self._first.pop(numbers, None)
            return new

    def begin(self, numbers: tuple[int, ...]) -> None:
        """Look at a view's folders; if they hold many outputs, make a page without numbers."""
        self.look(numbers)
        outputs = sum(sum(self.details(i)["counts"].values()) for i in numbers)
        if outputs > MANY and self.known(numbers) is None:
            self.first(numbers)

    def first(self, numbers: tuple[int, ...]) -> Made:
        """What is shown of a view until its page was made once: all but the cells' numbers."""
        self.look(numbers)
        looks = self._looks(numbers)
        with self._beginning:
            made = self.known(numbers)
            if made is None:
                made = self._first[numbers] = self._rendered(numbers, looks, measured=False)
            return made

    def _rendered(
        self,
        numbers: tuple[int, ...],
        looks: tuple[Mapping[str, Any], ...],
        *,
        measured: bool = True,
    ) -> Made:
        began = time.monotonic()
        report = self._report(numbers, measured)
        html = render(report, live=self.about(numbers)).html
        version = hashlib.sha256(html.encode()).hexdigest()[:16]
        html = html.replace(UNKNOWN, version)
        cost = time.monotonic() - began
        return Made(looks, report, html, version, cost, began + cost)

    def details(self, number: int) -> dict[str, Any]:
        """Of one folder: outputs by cell, judges, grades."""
        with self._looking:
            return self.folders[number].details()

    def known(self, numbers: tuple[int, ...]) -> Made | None:
        """The page that was made of a view last, or what is shown until one is."""
        return self._made.get(numbers) or self._first.get(numbers)

    def shown(self, numbers: tuple[int, ...]) -> Made:
        """What a page shows that asks for more; no numbers are waited for."""
        return self.known(numbers) or self.first(numbers)

    def outdated(self, numbers: tuple[int, ...]) -> bool:
        """Whether a view's folders have changed since its page was made."""
        made = self._made.get(numbers)
        return made is None or made.looks != self._looks(numbers)

    def paged(self, numbers: tuple[int, ...], cell: str) -> Paged:
        """The outputs of one of a view's cells; a KeyError where it has none of this id."""
        made = self.shown(numbers)
        if cell not in made.paged:
            shown = next((each for each in made.report.cells if each.measured.id == cell), None)
            if shown is None:
                raise KeyError(cell)
            where = Cell.open(shown.measured.path)
            made.paged[cell] = Paged(where, shown, output_columns(made.report))
        return made.paged[cell]

    def run_of(self, numbers: tuple[int, ...], cell: str) -> Run:
        """The run that holds one of a view's cells."""
        for shown_cell in self.shown(numbers).report.cells:
            if shown_cell.measured.id == cell:
                return Run.open(shown_cell.measured.path.parents[1])
        raise KeyError(cell)

    def ratings(self, run: Path) -> Ratings:
        """Those of a run."""
        return self._ratings.setdefault(run.resolve(), Ratings(run))

    def rated(self, numbers: tuple[int, ...]) -> list[list[Any]]:
        """All ratings of a view's outputs."""
        cells = {cell.measured.id: cell.measured.path for cell in self.shown(numbers).report.cells}
        runs = dict.fromkeys(path.parents[1] for path in cells.values())
        ratings = [rating for run in runs for rating in self.ratings(run).now()]
        return [list(rating) for rating in ratings if rating[0] in cells]

    def _looks(self, numbers: tuple[int, ...]) -> tuple[Mapping[str, Any], ...]:
        with self._looking:
            return tuple(self.folders[i].files for i in numbers)

    def _frame(self, run: Run) -> Frame:
        """The numbers of a run: computed once for what lies in it, of which ratings are no part."""
        beside = f"{RATINGS.parts[0]}/"
        files = walk(run.path, self._allowed).items()
        looks = {
            name: status for name, status in files if not (name.startswith(beside) or is_hold(name))
        }
        looks_and_frame = self._frames.get(run.path)
        if looks_and_frame is None or looks_and_frame[0] != looks:
            looks_and_frame = self._frames[run.path] = looks, read_run(run)
        return looks_and_frame[1]

    def _report(self, numbers: tuple[int, ...], measured: bool) -> Report:
        """What the folders hold; of those that hold nothing yet, nothing."""
        sound = [
            folder for folder in self.folders if folder.number in numbers and folder.error is None
        ]
        read = self._frame if measured else unmeasured

        def report(folders: Sequence[WatchedFolder]) -> Report | None:
            paths = [folder.path for folder in folders]
            with suppress(UserError):
                return gather(paths, outputs=1, evidence=SERVED, measured=read) if paths else None
            return None

        name = " and ".join(folder.name for folder in sound[:3]) or "Nothing to show"
        return (
            report(sound)
            or report([folder for folder in sound if report([folder])])
            or Report(name)
        )


def _announcement(live: Mapping[str, Any]) -> str:
    """A page of nothing but what is under way."""
    environment = Environment(loader=PackageLoader("strop.page"), autoescape=True)
    return environment.get_template("index.html").render(
        live=live, version=__version__, styles=STYLES, scripts=(SCRIPTS[0], LIVE)
    )


# ----------------------------------------------------------------------------------------- server

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
            Route("/{view}/outputs", self._json_route(self._outputs)),
            Route("/{view}/output", self._json_route(self._output)),
            Route("/{view}/ratings", self._json_route(self._ratings)),
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

    def _json_route(self, answer: Callable[[tuple[int, ...], Mapping[str, str]], Any]) -> Any:
        """A route for what is asked by name, in a thread of its own."""

        async def answered(request: Request) -> Response:
            numbers = self._view(request)
            return await _json_response(partial(answer, numbers, request.query_params))

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
        return await _json_response(partial(self._keep_rating, numbers, body))

    def _keep_rating(self, view: tuple[int, ...], body: bytes) -> Any:
        rating = json.loads(body)
        cell, index, value = rating["cell"], rating["index"], rating["value"]
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
                for name, key, message in await _until_closed(self._news, view):
                    text = json.dumps(message, allow_nan=False, default=str)
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
        states = [state for state in self._states if state["number"] in view]
        news: list[tuple[str, str, dict[str, Any]]] = [
            ("progress", "progress", {"folders": states})
        ]
        counts: dict[str, int] = {}
        for number in view:
            details = self._viewer.details(number)
            counts |= details["counts"]
            for name in ("series", "grades"):
                if details[name]:
                    event = {"series": "judgments", "grades": "grades"}[name]
                    key = {"series": "series", "grades": "cells"}[name]
                    news.append(
                        (event, f"{event} {number}", {"folder": number, key: details[name]})
                    )
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


async def _json_response(answer: Callable[[], Any]) -> Response:
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
        return {key: _sound(inner) for key, inner in value.items()}
    return [_sound(inner) for inner in value] if isinstance(value, list) else value


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
