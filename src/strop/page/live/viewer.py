"""The given folders as pages: gathered, rendered, and handed out until something there changes.

A view is one folder, or several side by side; it is the page that `strop report` would write of
them, without what a served page asks for when it is wanted.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any

from jinja2 import Environment, PackageLoader

from strop.errors import UserError
from strop.measure.frame import Frame, read_run
from strop.page.collect import gather, unmeasured
from strop.page.data import RATINGS, Report
from strop.page.evidence import SERVED
from strop.page.live.paged import Paged
from strop.page.live.ratings import Ratings
from strop.page.live.watch import WatchedFolder, is_hold, locked_files, walk
from strop.page.page import LIVE, SCRIPTS, STYLES, render
from strop.page.tables import output_columns
from strop.store import Cell, Run
from strop.version import __version__

SHARE = 10.0
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
        if not all(one.isascii() and one.isdigit() and len(one) < 6 for one in words):
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
                {"number": one.number, "name": one.name, "kind": one.kind}
                for one in self.folders
                if one.number in numbers
            ]
        view = "+".join(map(str, numbers))
        return {"view": view, "folders": folders, "ratings": True, "version": UNKNOWN}

    def index(self) -> str:
        """The page of all folders, of which one chooses."""
        self.look()
        return _announced(self.about(range(len(self.folders))) | {"index": True})

    def waiting(self, numbers: tuple[int, ...]) -> str:
        """What stands in the place of a page that is not ready."""
        return _announced(self.about(numbers) | {"waiting": True})

    def made(self, numbers: tuple[int, ...]) -> Made:
        """The page of a view; one that is out of date is shown a little longer if it was dear."""
        looks = self._looks(numbers)
        with self._making:
            known = self._made.get(numbers)
            if known is not None:
                share = SHARE if any(self.folders[i].busy for i in numbers) else 0.0
                young = time.monotonic() - known.at < max(LEAST, share * known.cost)
                if young or known.looks == looks:
                    return known
            new = self._rendered(numbers, looks)
            if known is not None and known.looks == looks:
                new.paged = known.paged
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
            known = self.known(numbers)
            if known is None:
                known = self._first[numbers] = self._rendered(numbers, looks, measured=False)
            return known

    def _rendered(
        self,
        numbers: tuple[int, ...],
        looks: tuple[Mapping[str, Any], ...],
        *,
        measured: bool = True,
    ) -> Made:
        began = time.monotonic()
        report = self._gathered(numbers, measured)
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
        known = self._made.get(numbers)
        return known is None or known.looks != self._looks(numbers)

    def paged(self, numbers: tuple[int, ...], cell: str) -> Paged:
        """The outputs of one of a view's cells; a KeyError where it has none of this id."""
        made = self.shown(numbers)
        if cell not in made.paged:
            shown = next((one for one in made.report.cells if one.measured.id == cell), None)
            if shown is None:
                raise KeyError(cell)
            where = Cell.open(shown.measured.path)
            made.paged[cell] = Paged(where, shown, output_columns(made.report))
        return made.paged[cell]

    def run_of(self, numbers: tuple[int, ...], cell: str) -> Run:
        """The run that holds one of a view's cells."""
        for one in self.shown(numbers).report.cells:
            if one.measured.id == cell:
                return Run.open(one.measured.path.parents[1])
        raise KeyError(cell)

    def ratings(self, run: Path) -> Ratings:
        """Those of a run."""
        return self._ratings.setdefault(run.resolve(), Ratings(run))

    def rated(self, numbers: tuple[int, ...]) -> list[list[Any]]:
        """All ratings of a view's outputs."""
        cells = {one.measured.id: one.measured.path for one in self.shown(numbers).report.cells}
        runs = dict.fromkeys(path.parents[1] for path in cells.values())
        found = [one for run in runs for one in self.ratings(run).now()]
        return [list(one) for one in found if one[0] in cells]

    def _looks(self, numbers: tuple[int, ...]) -> tuple[Mapping[str, Any], ...]:
        with self._looking:
            return tuple(self.folders[i].files for i in numbers)

    def _measured(self, run: Run) -> Frame:
        """The numbers of a run: computed once for what lies in it, of which ratings are no part."""
        beside = f"{RATINGS.parts[0]}/"
        files = walk(run.path, self._allowed).items()
        looks = {name: one for name, one in files if not (name.startswith(beside) or is_hold(name))}
        known = self._frames.get(run.path)
        if known is None or known[0] != looks:
            known = self._frames[run.path] = looks, read_run(run)
        return known[1]

    def _gathered(self, numbers: tuple[int, ...], measured: bool) -> Report:
        """What the folders hold; of those that hold nothing yet, nothing."""
        sound = [one for one in self.folders if one.number in numbers and one.error is None]
        read = self._measured if measured else unmeasured

        def report(folders: Sequence[WatchedFolder]) -> Report | None:
            paths = [one.path for one in folders]
            with suppress(UserError):
                return gather(paths, outputs=1, evidence=SERVED, measured=read) if paths else None
            return None

        name = " and ".join(one.name for one in sound[:3]) or "Nothing to show"
        return report(sound) or report([one for one in sound if report([one])]) or Report(name)


def _announced(live: Mapping[str, Any]) -> str:
    """A page of nothing but what is under way."""
    environment = Environment(loader=PackageLoader("strop.page"), autoescape=True)
    return environment.get_template("index.html").render(
        live=live, version=__version__, styles=STYLES, scripts=(SCRIPTS[0], LIVE)
    )
