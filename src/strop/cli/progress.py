"""Progress on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time

from strop.spec import SAMPLERS, CellSpec, SamplerSpec

LINE_SECONDS = 10.0
_WAITING = "{}: another process is at work on it, waiting"


def label(spec: SamplerSpec) -> str:
    """A cell in a few words: steps, temperature, precision, and what is not the default.

    A revising sampler and its baseline always show top_p: it sharpens, and so may they.
    """
    words = [f"M={spec.steps}", f"tau={spec.temperature:g}", spec.precision]
    if spec.top_p != 1 or SAMPLERS[spec.name].nucleus == "within":
        words.append(f"top_p={spec.top_p:g}")
    if spec.grid != "uniform":
        words.append("own grid")
    if spec.name != "ancestral":
        words.insert(0, spec.name)
    declared = SAMPLERS[spec.name].settings
    words += [f"{k}={v}" for k, v in spec.settings.items() if v != declared[k].default]
    if spec.implementation != "fast":
        words.append(spec.implementation)
    return " ".join(words)


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
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def start(self, cell: CellSpec | None, total: int, done: int, what: str = "") -> None:
        """Open the bar of one cell."""
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
