"""Progress on stderr: bars on a terminal, a line a minute elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from strop.cli import output
from strop.engine.plan import Silent
from strop.spec.generator import CellSpec, label
from strop.table import duration

LINE_SECONDS = 60.0
_WAITING = "{}: another process is at work on it, waiting"


def _work(cell: CellSpec | None, what: str) -> int:
    """What an output costs beside others of the same call: network calls if it is drawn."""
    if cell is None or what:
        return 1
    return min(cell.generator.sampler.steps, cell.generator.length)


class _Stage:
    """How far one call has come: its current cell, and how much work is left."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._later: dict[str, int] = {}
        """Work of the cells that have not begun, by name."""
        self._begin()

    def _begin(self, cells: int = 1) -> None:
        self.cells, self.number = cells, 0
        self.total = self.done = 0
        """Outputs of the cell at work."""
        self.tokens, self._each, self._worked = 0, 1, 0
        self._began = self._cell_began = self._clock()

    def expect(self, cells: Sequence[tuple[CellSpec | None, int]], what: str = "") -> None:
        self._begin(len(cells))
        self._later = {}
        for cell, outputs in cells:
            name = self._key(cell, what)
            self._later[name] = self._later.get(name, 0) + outputs * _work(cell, what)

    def start(self, cell: CellSpec | None, total: int, done: int, what: str) -> None:
        if self._later.pop(self._key(cell, what), None) is None:
            self._later = {}
            self._begin()  # a call that did not say what comes
        self.name = what if cell is None else f"{label(cell.generator.sampler)} {what}".rstrip()
        self.number += 1
        self.total, self.done, self.tokens = total, done, 0
        self._each, self._cell_began = _work(cell, what), self._clock()

    def advance(self, outputs: int, tokens: int) -> None:
        self.done += outputs
        self.tokens += tokens
        self._worked += outputs * self._each

    @staticmethod
    def _key(cell: CellSpec | None, what: str) -> str:
        return what if cell is None else cell.id

    @property
    def which(self) -> str:
        """Of several cells, which one this is."""
        return f"cell {self.number} of {self.cells}" if self.cells > 1 else ""

    @property
    def left(self) -> int:
        """Work that is not done, cells that have not begun included."""
        return sum(self._later.values()) + (self.total - self.done) * self._each

    @property
    def share(self) -> float:
        """The part of the work of this process that is done."""
        return self._worked / max(self._worked + self.left, 1)

    @property
    def to_go(self) -> str:
        """How long the rest takes at the pace so far."""
        if not self._worked or not self.left:
            return ""
        return f"{duration((self._clock() - self._began) * self.left / self._worked)} to go"

    @property
    def speed(self) -> str:
        """Tokens a second; not all work makes tokens."""
        seconds = max(self._clock() - self._cell_began, 1e-9)
        return f"{self.tokens / seconds:,.0f} tok/s" if self.tokens else ""


class Bar:
    """Two rich bars: all cells of a call, and the current one. Finished bars disappear."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[status]}", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        self._stage = _Stage()
        self._all = self._progress.add_task("", total=1.0, status="", visible=False)
        self._cell = self._progress.add_task("", status="", visible=False)

    def __enter__(self) -> Bar:
        return self  # begins when there is something to show

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def expect(self, cells: Sequence[tuple[CellSpec | None, int]], what: str = "") -> None:
        """Open the bar of a call."""
        self._stage.expect(cells, what)

    def start(self, cell: CellSpec | None, total: int, done: int, what: str = "") -> None:
        """Open the bar of one cell, in place of the previous one."""
        self._progress.start()
        self._stage.start(cell, total, done, what)
        self._progress.reset(
            self._cell, description=output.harmless(self._stage.name), total=total, visible=True
        )
        self._show()

    def advance(self, outputs: int, tokens: int) -> None:
        """Move both."""
        self._stage.advance(outputs, tokens)
        self._show()

    def _show(self) -> None:
        stage = self._stage
        several = stage.cells > 1
        status = "  ".join(filter(None, [f"{stage.done}/{stage.total}", stage.speed]))
        if not several:
            status = "  ".join(filter(None, [status, stage.to_go]))
        self._progress.update(self._cell, completed=stage.done, status=status)
        self._progress.update(
            self._all,
            description=stage.which,
            completed=stage.share,
            status=stage.to_go,
            visible=several,
        )

    def waiting(self, cell: CellSpec) -> None:
        """Say why nothing moves."""
        self._progress.start()
        self._progress.console.print(_WAITING.format(label(cell.generator.sampler)))


class _Open:
    """A context with nothing to close."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing."""


class Lines(_Open):
    """A line a minute, for logs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._stage, self._last_line = clock, _Stage(clock), clock()

    def expect(self, cells: Sequence[tuple[CellSpec | None, int]], what: str = "") -> None:
        """What comes."""
        self._stage.expect(cells, what)

    def start(self, cell: CellSpec | None, total: int, done: int, what: str = "") -> None:
        """What begins."""
        self._stage.start(cell, total, done, what)

    def advance(self, outputs: int, tokens: int) -> None:
        """Say how far it is, if a minute has passed."""
        stage = self._stage
        stage.advance(outputs, tokens)
        now = self._clock()
        if now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            words = [stage.which, f"{stage.name}: {stage.done}/{stage.total}", stage.speed]
            output.note(", ".join(filter(None, [*words, stage.to_go])))

    def waiting(self, cell: CellSpec) -> None:
        """Say why nothing moves."""
        print(_WAITING.format(label(cell.generator.sampler)), file=sys.stderr)


class Quiet(_Open, Silent):
    """Says nothing."""


def reporter(*, quiet: bool = False) -> Bar | Lines | Quiet:
    """Bars if stderr is a terminal, else lines."""
    if quiet:
        return Quiet()
    return Bar() if sys.stderr.isatty() else Lines()


class TrainingBar:
    """A rich bar: loss, tokens per second, time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        self._progress = Progress(
            TextColumn("step {task.fields[step]:,}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("loss {task.fields[loss]}  {task.fields[speed]} tok/s  {task.fields[left]}"),
            console=Console(stderr=True),
        )
        self._task = None

    def __enter__(self) -> TrainingBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """A line above the bar."""
        self._progress.console.print(output.harmless(text), markup=False, highlight=False)

    def advance(self, step: int, share: float, loss: float, speed: float, left: float) -> None:
        """Move it."""
        fields = {
            "step": step,
            "loss": f"{loss:.3f}",
            "speed": f"{speed:,.0f}",
            "left": f"{_duration(left)} left",
        }
        if self._task is None:
            self._task = self._progress.add_task("", total=1.0, **fields)
        self._progress.update(self._task, completed=share, **fields)


class TrainingLines(_Open):
    """A line every few seconds, for logs."""

    _last_line = 0.0

    def say(self, text: str) -> None:
        """A line of its own."""
        print(text, file=sys.stderr, flush=True)

    def advance(self, step: int, share: float, loss: float, speed: float, left: float) -> None:
        """Now and then, and at the end."""
        now = time.monotonic()
        if share >= 1 or now - self._last_line > LINE_SECONDS:
            self._last_line = now
            self.say(
                f"step {step:,} ({share:.1%}), loss {loss:.4f}, {speed:,.0f} tokens/s, "
                f"{_duration(left)} left"
            )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


@contextmanager
def share(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to call with how much more is done; it prints a line a minute."""
    begun = time.monotonic()
    done, last_line = 0, begun

    def advance(more: int) -> None:
        nonlocal done, last_line
        done += more
        if time.monotonic() - last_line > LINE_SECONDS:
            last_line = time.monotonic()
            left = (last_line - begun) * (total - done) / max(done, 1)
            output.note(f"{name}: {done / max(total, 1):.0%}, {left:.0f} s left")

    yield advance


@contextmanager
def questions(name: str, total: int) -> Iterator[Callable[[str], None]]:
    """A function to call with the outcome of each question."""
    if not sys.stderr.isatty():
        yield _question_lines(name, total)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]}"),
        TimeRemainingColumn(),
    )
    failed = Counter[str]()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(output.harmless(name), total=total, failed="")

        def advance(outcome: str) -> None:
            failed[outcome] += outcome != "verdict"
            bar.update(task, advance=1, failed=_reasons(failed))

        yield advance


def _question_lines(name: str, total: int) -> Callable[[str], None]:
    failed = Counter[str]()
    done, last_line = 0, time.monotonic()
    if total:
        output.note(f"{name}: {total} groups")

    def advance(outcome: str) -> None:
        nonlocal done, last_line
        done += 1
        failed[outcome] += outcome != "verdict"
        if done == total or time.monotonic() - last_line > LINE_SECONDS:
            last_line = time.monotonic()
            output.note(f"{name}: {done}/{total} {_reasons(failed)}".rstrip())

    return advance


def _reasons(failed: Counter[str]) -> str:
    return ", ".join(f"{n} {reason}" for reason, n in failed.items() if n)


class Terminal:
    """Progress of work that is not drawn or scored cell by cell."""

    def training(self) -> TrainingBar | TrainingLines:
        """Of a training run."""
        return TrainingBar() if sys.stderr.isatty() else TrainingLines()

    questions = staticmethod(questions)
    share = staticmethod(share)


TERMINAL = Terminal()
