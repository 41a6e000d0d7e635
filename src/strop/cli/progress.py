"""Progress on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from strop.cli import output
from strop.spec import CellSpec, label

LINE_SECONDS = 10.0
_WAITING = "{}: another process is at work on it, waiting"


def _name(cell: CellSpec | None, what: str) -> str:
    return what if cell is None else f"{label(cell.generator.sampler)} {what}".rstrip()


class Bar:
    """A rich progress bar with outputs, tokens per second and time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = None
        self._tokens, self._since = 0, 0.0

    def __enter__(self) -> Bar:
        return self  # begins when there is something to show

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def start(self, cell: CellSpec | None, total: int, done: int, what: str = "") -> None:
        """Open the bar of one cell."""
        self._progress.start()
        self._tokens, self._since = 0, time.monotonic()
        name = _name(cell, what)
        self._task = self._progress.add_task(name, total=total, completed=done, speed="")

    def advance(self, outputs: int, tokens: int) -> None:
        """Move it."""
        assert self._task is not None
        self._tokens += tokens
        speed = self._tokens / max(time.monotonic() - self._since, 1e-9)
        told = f"{speed:,.0f} tok/s" if self._tokens else ""  # not all work makes tokens
        self._progress.update(self._task, advance=outputs, speed=told)

    def waiting(self, cell: CellSpec) -> None:
        """Say why nothing moves."""
        self._progress.start()
        self._progress.console.print(_WAITING.format(label(cell.generator.sampler)))


class Lines:
    """One line per cell and every few seconds, for logs."""

    def __enter__(self) -> Lines:
        self._name, self._total, self._done, self._began, self._tokens = "", 0, 0, 0, 0
        self._since = self._told = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def start(self, cell: CellSpec | None, total: int, done: int, what: str = "") -> None:
        """Say what begins."""
        self._name = _name(cell, what)
        self._total, self._done, self._began = total, done, done
        self._tokens, self._since = 0, time.monotonic()
        already = f", {done} of {total} on disk" if done else ""
        print(f"{self._name}: {total} outputs{already}", file=sys.stderr)

    def advance(self, outputs: int, tokens: int) -> None:
        """Say how far it is, now and then and at the end."""
        self._done += outputs
        self._tokens += tokens
        now = time.monotonic()
        if self._done == self._total or now - self._told > LINE_SECONDS:
            self._told = now
            elapsed = max(now - self._since, 1e-9)
            speed = f"{self._tokens / elapsed:,.0f} tokens/s, " if self._tokens else ""
            fresh, left = self._done - self._began, self._total - self._done
            to_go = f", {elapsed * left / fresh:.0f} s to go" if left and fresh else ""
            print(
                f"{self._name}: {self._done}/{self._total}, {speed}{elapsed:.0f} s{to_go}",
                file=sys.stderr,
            )

    def waiting(self, cell: CellSpec) -> None:
        """Say why nothing moves."""
        print(_WAITING.format(label(cell.generator.sampler)), file=sys.stderr)


def reporter() -> Bar | Lines:
    """The one that suits where stderr goes."""
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
        told = {
            "step": step,
            "loss": f"{loss:.3f}",
            "speed": f"{speed:,.0f}",
            "left": f"{_duration(left)} left",
        }
        if self._task is None:
            self._task = self._progress.add_task("", total=1.0, **told)
        self._progress.update(self._task, completed=share, **told)


class TrainingLines:
    """A line every few seconds, for logs."""

    def __enter__(self) -> TrainingLines:
        self._told = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def say(self, text: str) -> None:
        """A line of its own."""
        print(text, file=sys.stderr, flush=True)

    def advance(self, step: int, share: float, loss: float, speed: float, left: float) -> None:
        """Now and then, and at the end."""
        now = time.monotonic()
        if share >= 1 or now - self._told > LINE_SECONDS:
            self._told = now
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
    """A function that is told how much more is done; what is soon done says nothing."""
    begun = time.monotonic()
    done, said = 0, begun

    def told(more: int) -> None:
        nonlocal done, said
        done += more
        if time.monotonic() - said > LINE_SECONDS:
            said = time.monotonic()
            left = (said - begun) * (total - done) / max(done, 1)
            output.note(f"{name}: {done / max(total, 1):.0%}, {left:.0f} s left")

    yield told


@contextmanager
def questions(name: str, total: int) -> Iterator[Callable[[str], None]]:
    """A function that is told the outcome of each question."""
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

        def told(outcome: str) -> None:
            failed[outcome] += outcome != "verdict"
            bar.update(task, advance=1, failed=_reasons(failed))

        yield told


def _question_lines(name: str, total: int) -> Callable[[str], None]:
    failed = Counter[str]()
    done, said = 0, time.monotonic()
    if total:
        output.note(f"{name}: {total} groups")

    def told(outcome: str) -> None:
        nonlocal done, said
        done += 1
        failed[outcome] += outcome != "verdict"
        if done == total or time.monotonic() - said > LINE_SECONDS:
            said = time.monotonic()
            output.note(f"{name}: {done}/{total} {_reasons(failed)}".rstrip())

    return told


def _reasons(failed: Counter[str]) -> str:
    return ", ".join(f"{n} {reason}" for reason, n in failed.items() if n)


class Terminal:
    """Progress of everything that is not drawn or scored cell by cell."""

    def training(self) -> TrainingBar | TrainingLines:
        """Of a training run."""
        return TrainingBar() if sys.stderr.isatty() else TrainingLines()

    questions = staticmethod(questions)
    share = staticmethod(share)


TERMINAL = Terminal()
