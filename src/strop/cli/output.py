"""What reaches the terminal: results on stdout, everything else on stderr.

With `--json` stdout carries exactly one JSON document, also when the command fails.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from strop.cli.flags import in_flags
from strop.errors import StropError, UserError

if TYPE_CHECKING:
    from rich.console import Console

JSON_FLAG = typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")


def emit(document: Any) -> None:
    """Print the result of a `--json` call; a NaN here would be a bug, and is one loudly."""
    json.dump(document, sys.stdout, indent=2, allow_nan=False, default=_plain)
    sys.stdout.write("\n")


def _plain(value: Any) -> Any:
    """numpy scalars and arrays, paths and the like as what JSON knows."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)


def note(text: str) -> None:
    """Say something to the person at the terminal without touching stdout."""
    print(harmless(text), file=sys.stderr)


def say(text: str) -> None:
    """A line of the result on stdout."""
    print(harmless(text))


@contextmanager
def warnings_noted() -> Iterator[None]:
    """Tell the library's warnings as notes, without the line of code that they come from."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        note(f"warning: {in_flags(str(warning.message))}")


def next_command(command: str) -> None:
    """Each verb ends with the next useful command."""
    note(f"next: {command}")


def fail(error: StropError, as_json: bool) -> int:
    """Report a failure once, readably, and give its exit code."""
    if as_json:
        emit({"error": error.as_dict()})
    note(f"strop: {error}")
    return error.exit_code


def console() -> Console:
    """Where tables go: as wide as the terminal, and wide enough for any path in a file."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 400)


def table(header: list[str], rows: list[list[str]]) -> None:
    """A plain table on stdout; long entries are folded, never cut."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in header:
        grid.add_column(title, overflow="fold")
    for row in rows:
        grid.add_row(*(Text(harmless(cell)) for cell in row))  # Text: no markup is read
    console().print(grid)


def harmless(text: str) -> str:
    """Text of any origin without control characters, which a terminal would obey."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def positive(flag: str, value: int) -> None:
    """Refuse a count below one."""
    if value < 1:
        raise UserError(f"{flag} is out of range.", where=flag, got=value, expected="at least 1")
