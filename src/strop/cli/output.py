"""What reaches the terminal: results on stdout, everything else on stderr.

With `--json` stdout carries exactly one JSON document, also when the command fails.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import typer

from strop.errors import StropError

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
    print(text, file=sys.stderr)


def next_command(command: str) -> None:
    """Each verb ends with the next useful command."""
    note(f"next: {command}")


def fail(error: StropError, as_json: bool) -> int:
    """Report a failure once, readably, and give its exit code."""
    if as_json:
        emit({"error": error.as_dict()})
    note(f"strop: {error}")
    return error.exit_code
