"""Progress of judging and scoring on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from strop.cli import output
from strop.cli.progress import LINE_SECONDS


@contextmanager
def counter(name: str, total: int) -> Iterator[Callable[[int], None]]:
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
def reporter(name: str, total: int) -> Iterator[Callable[[str], None]]:
    """A function that is told the outcome of each question."""
    if not sys.stderr.isatty():
        yield _lines(name, total)
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
            bar.update(task, advance=1, failed=_words(failed))

        yield told


def _lines(name: str, total: int) -> Callable[[str], None]:
    failed = Counter[str]()
    done, said = 0, time.monotonic()
    if total:
        output.note(f"{name}: {total} questions")

    def told(outcome: str) -> None:
        nonlocal done, said
        done += 1
        failed[outcome] += outcome != "verdict"
        if done == total or time.monotonic() - said > LINE_SECONDS:
            said = time.monotonic()
            output.note(f"{name}: {done}/{total} {_words(failed)}".rstrip())

    return told


def _words(failed: Counter[str]) -> str:
    return ", ".join(f"{n} {reason}" for reason, n in failed.items() if n)
