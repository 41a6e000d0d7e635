"""What reaches the terminal: results on stdout, everything else on stderr.

With `--json` stdout carries exactly one JSON document, also when the command fails.

Messages use the flags of the command that was typed. The library names fields: with their owner
(`SamplerSpec.steps`), or, in backquotes, arguments and what to set them to (`out`, `weights=raw`).
Here they become the flags that the invoked verb has. A piece of advice that needs a flag which the
verb lacks is left out; alternatives are separated by ", or ".
"""

from __future__ import annotations

import ast
import copy
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from importlib import resources
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TextIO

import typer

from strop.errors import StropError
from strop.verbs.verb import Facts, Frames, Part, Strong, jsonable

if TYPE_CHECKING:
    from rich.console import Console

OWNERS = {
    "SamplerSpec": "",
    "GeneratorSpec": "",
    "CellSpec": "",
    "DenseBatch": "",
    "TrainSpec": "",
    "DataSpec": "data.",
    "ModelSpec": "model.",
    "SourceSpec": "data.sources.",
}
"""Records whose fields a user sets, and where a training configuration has those fields."""

RENAMED = {"SamplerSpec.name": "sampler", "DenseBatch.size": "batch_size"}

KEYS = {"name", "model"}
"""Flags of one verb that elsewhere are keys of files: messages mean those."""

OWNED = re.compile(rf"\b({'|'.join(OWNERS)})\.([a-z_]+(?:\.\w+)*)")
ARGUMENT = re.compile(r"`([a-z_]+)(?:=([^`]*))?`")
ALTERNATIVE = ", or "


class Flags:
    """The flags of the verb that a command line invokes."""

    def __init__(self, root: Any, argv: Sequence[str]) -> None:
        command = root
        for word in argv:
            if not word.startswith("-") and hasattr(command, "get_command"):
                command = command.get_command(None, word) or command
        self._argv = argv
        self._flags = {
            name: _flag_spelling(parameter, argv)
            for parameter in command.params
            for name in _names(parameter)
        }
        self._root = root

    @cached_property
    def _anywhere(self) -> set[str]:
        """Whatever some verb has as a flag."""
        return (_all_names(self._root) | _all_fields()) - KEYS

    def error(self, error: StropError) -> StropError:
        """The same error as this verb's user should read it."""
        reworded = copy.copy(error)
        reworded.what = self.text(error.what)
        reworded.where = self._where(error.where)
        reworded.expected = None if error.expected is None else self.text(error.expected)
        reworded.fix = None if error.fix is None else self._fix(error.fix)
        return reworded

    def text(self, text: str) -> str:
        """A sentence with flags for fields; a field without a flag in plain words."""
        return OWNED.sub(self._field_as_flag, ARGUMENT.sub(self._argument_as_flag, text))

    def _where(self, where: str | None) -> str | None:
        if where in OWNERS:  # a configuration as a whole, or flags that do not go together
            return self._flags.get("config")
        named = where is not None and (OWNED.match(where) or ARGUMENT.fullmatch(where))
        return self.text(where) if where is not None and named else where

    def _fix(self, fix: str) -> str | None:
        usable = [part for part in fix.split(ALTERNATIVE) if not self._lacks(part)]
        return self.text(ALTERNATIVE.join(usable)) if usable else None

    def _lacks(self, advice: str) -> bool:
        fields = {match[1] for match in ARGUMENT.finditer(advice)}
        return any(field in self._anywhere and field not in self._flags for field in fields)

    def _argument_as_flag(self, match: re.Match[str]) -> str:
        field, value = match[1], match[2]
        if field not in self._anywhere:
            return match[0]
        flag = self._flags.get(field, field.replace("_", " "))
        return flag if value is None else f"{flag} {value}"

    def _field_as_flag(self, match: re.Match[str]) -> str:
        owner, path = match[1], OWNERS[match[1]] + match[2]
        if "config" in self._flags:  # of a file, or changed on the command line
            changed = any(word.startswith(f"{path}=") for word in self._argv)
            return f"{self._flags['set']} {path}" if changed else path
        field, _, rest = path.partition(".")
        field = RENAMED.get(f"{owner}.{field}", field)
        return " ".join([self._flags.get(field, field), *rest.split()])


_verb: ContextVar[Flags | None] = ContextVar("verb", default=None)


@contextmanager
def speaking(root: Any, argv: Sequence[str]) -> Iterator[Flags]:
    """Inside, messages name the flags of the verb that `argv` invokes."""
    verb = Flags(root, argv)
    token = _verb.set(verb)
    try:
        yield verb
    finally:
        _verb.reset(token)


def in_flags(text: str) -> str:
    """A sentence of the library for the user of the verb at work."""
    verb = _verb.get()
    return text if verb is None else verb.text(text)


def _names(parameter: Any) -> set[str]:
    """What the library may call a parameter: as the function does, or as the flag does."""
    return {parameter.name, *(opt.lstrip("-").replace("-", "_") for opt in parameter.opts)}


def _flag_spelling(parameter: Any, argv: Sequence[str]) -> str:
    """A flag as it was typed, else as it is declared first; an argument as the help shows it."""
    if parameter.param_type_name == "argument":
        return parameter.metavar or parameter.name.upper()
    typed = [opt for opt in parameter.opts if opt in argv]
    return (typed or parameter.opts)[0]


def _all_fields() -> set[str]:
    """Arguments of all verbs, from the stub that lists them: no record is loaded."""
    stub = ast.parse(resources.files("strop.verbs").joinpath("calls.pyi").read_text("utf-8"))
    fields = [
        field
        for statement in stub.body
        if isinstance(statement, ast.ClassDef)
        for field in statement.body
    ]
    return {ast.unparse(field.target) for field in fields if isinstance(field, ast.AnnAssign)}


def _all_names(command: Any) -> set[str]:
    names = {name for parameter in command.params for name in _names(parameter)}
    return names.union(*map(_all_names, getattr(command, "commands", {}).values()))


ID = re.compile(r"[0-9a-f]{16}")
SHORT = 8
"""Digits of an id where there is no room for all sixteen."""
PIPED = 100
"""Columns of a table where neither a terminal nor COLUMNS says how many there are."""
NOTE_WORDS = 6
"""A text of so many words in a table is a note."""
FEW_NOTES = 4
"""Notes that may go below a broad table even if every row has a different one."""
MANY_COLUMNS = 5
"""Columns of a broad table, in which a folded note would have little room."""
COMMANDS = ("next:", "try: strop", "try: pip")
"""How lines begin that hold a command."""
SCREENS = frozenset({"DISPLAY", "WAYLAND_DISPLAY"})
RED, PLAIN = "\033[31m", "\033[0m"
GAPS = (3, 2)
"""Places between two columns: usually, and where that makes a table fit."""
FRAMES = 12
"""Texts of a replay that are shown where there is no terminal to redraw."""
SECONDS = 6.0
"""How long a replay takes in a terminal, at most."""

JSON_FLAG = typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")
QUIET_FLAG = typer.Option(
    "--quiet", help="Print the result only: no progress, no notes, no next command."
)


def emit(document: Any) -> None:
    """Print the result of a `--json` call; a NaN here is a bug and raises."""
    json.dump(document, sys.stdout, indent=2, allow_nan=False, default=jsonable)
    sys.stdout.write("\n")


def note(text: str) -> None:
    """Say something to the person at the terminal without touching stdout; warnings in red."""
    red = text.startswith("warning:") and sys.stderr.isatty() and "NO_COLOR" not in os.environ
    _print_lines(f"{RED}{harmless(text)}{PLAIN}" if red else harmless(text), sys.stderr)


def say(text: str) -> None:
    """Lines of the result on stdout."""
    _print_lines(harmless(text), sys.stdout)


def _print_lines(text: str, file: TextIO) -> None:
    """In a terminal lines are folded between words, but not those that hold a command to copy."""
    room = console().width if file.isatty() else 0
    for line in text.split("\n"):
        if 0 < room < len(line) and not line.lstrip().startswith(COMMANDS):
            _print_wrapped(line, room, file)
        else:
            print(line, file=file)


@contextmanager
def warnings_noted() -> Iterator[None]:
    """Print the library's warnings as notes, without the line of code that they come from."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        note(f"warning: {in_flags(str(warning.message))}")


def fail(error: StropError, as_json: bool) -> int:
    """Report a failure once, readably, and give its exit code."""
    if as_json:
        emit({"error": error.as_dict()})
    note(f"strop: {error}")
    return error.exit_code


def screen() -> bool:
    """Whether a person is at a terminal of a machine on which a browser can be seen."""
    graphical = sys.platform in ("darwin", "win32") or bool(SCREENS & os.environ.keys())
    return graphical and sys.stdout.isatty()


def console() -> Console:
    """Where tables go: as wide as the terminal, as COLUMNS says, or `PIPED` columns."""
    from rich.console import Console

    width_known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(width=None if width_known else PIPED)


def table(header: list[str], rows: list[list[str]]) -> None:
    """A plain table on stdout that breaks no word and no id.

    Where it is too wide, ids are shortened, columns move together, columns that say the same in
    every row go into a line above it, and notes that repeat or are few below it, under letters.
    Where that is not enough, lines are folded between words, and at last every row becomes lines of
    its own.
    """
    screen = console()
    rows = [[harmless(cell) for cell in row] for row in rows]
    short = _with_short_ids(rows)
    for gap in GAPS:
        for cells in (rows, short):
            if _fits(_widths(header, cells), gap, screen.width):
                _grid(header, cells, _widths(header, cells), gap, screen)
                return
    gap = GAPS[-1]
    caption, heads, cells = _without_constants(header, short)
    notes: dict[str, str] = {}
    while not _fits(_widths(heads, cells), gap, screen.width):
        which = _longest_notes(cells)
        if which is None:
            break
        cells = _notes_as_letters(cells, which, notes)
    least = _widths(heads, cells, str.split)
    if not _fits(least, gap, screen.width):
        _print_stacked(header, rows, screen.width)
        return
    _print_wrapped(caption, screen.width)
    room = screen.width - gap * (len(least) - 1)
    _grid(heads, cells, _share_widths(least, _widths(heads, cells), room), gap, screen)
    for text, letter in notes.items():
        _print_wrapped(f"{letter}  {text}", screen.width)


def _fits(widths: list[int], gap: int, room: int) -> bool:
    return sum(widths) + gap * (len(widths) - 1) <= room


def _without_constants(
    header: list[str], rows: list[list[str]]
) -> tuple[str, list[str], list[list[str]]]:
    """What all rows say alike as a caption, and the table without it; the first column stays."""
    same = {
        i
        for i in range(1, len(header))
        if len(rows) > 1 and rows[0][i].strip() and len({row[i] for row in rows}) == 1
    }
    caption = "; ".join(f"{header[i]}: {' '.join(rows[0][i].split())}" for i in sorted(same))
    keep = [i for i in range(len(header)) if i not in same]
    return caption, [header[i] for i in keep], [[row[i] for i in keep] for row in rows]


def _longest_notes(rows: list[list[str]]) -> int | None:
    """The column with the longest note, which is a text of several words; None without any.

    Columns in which most rows have their own note are kept: below the table it is hard to find.
    """
    most = max(FEW_NOTES if rows and len(rows[0]) >= MANY_COLUMNS else 0, len(rows) // 2)
    sizes = {
        i: max(len(row[i]) for row in rows)
        for i in range(1, len(rows[0]) if rows else 0)
        if any(len(row[i].split()) >= NOTE_WORDS for row in rows)
        and len({row[i] for row in rows} - {""}) <= most
    }
    return max(sizes, key=lambda i: sizes[i]) if sizes else None


def _notes_as_letters(rows: list[list[str]], which: int, notes: dict[str, str]) -> list[list[str]]:
    """A column's texts as letters; `notes` has the letter of each."""
    for text in dict.fromkeys(" ".join(row[which].split()) for row in rows):
        if text and text not in notes:
            count = len(notes)
            notes[text] = chr(ord("a") + count % 26) * (1 + count // 26)
    return [
        [
            notes.get(" ".join(cell.split()), cell) if i == which else cell
            for i, cell in enumerate(row)
        ]
        for row in rows
    ]


def _print_wrapped(text: str, room: int, file: TextIO | None = None) -> None:
    """A text in lines that break no word, each as far in as the first."""
    inside = text[: len(text) - len(text.lstrip())]
    how: Any = {"break_long_words": False, "break_on_hyphens": False}
    for line in wrap(text, max(room, 1), subsequent_indent=inside, **how):
        print(line, file=file)


def _with_short_ids(rows: list[list[str]]) -> list[list[str]]:
    """Ids by their beginning, which every verb takes for the whole id, if they stay different.

    Words of sixteen hexadecimal digits are ids; see `strop.spec.Spec.id`.
    """
    ids = {cell for row in rows for cell in row if ID.fullmatch(cell)}
    if len({name[:SHORT] for name in ids}) < len(ids):
        return rows
    return [[cell[:SHORT] if cell in ids else cell for cell in row] for row in rows]


def _widths(
    header: list[str], rows: list[list[str]], pieces: Callable[[str], list[str]] = str.splitlines
) -> list[int]:
    """The widest piece of every column, in places on the screen."""
    from rich.cells import cell_len

    columns = zip(header, *rows, strict=True)
    return [max(cell_len(p) for cell in column for p in [*pieces(cell), ""]) for column in columns]


def _share_widths(least: list[int], full: list[int], room: int) -> list[int]:
    """Widths between the two: columns that lack little first, the widest one with what is left."""
    left = room - sum(least)
    widths = list(least)
    for i in sorted(range(len(least)), key=lambda i: full[i] - least[i]):
        more = min(left, full[i] - least[i])
        widths[i], left = widths[i] + more, left - more
    return widths


def _grid(
    header: list[str], rows: list[list[str]], widths: list[int], gap: int, screen: Console
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    # Between two columns there is one place beside the padding.
    grid = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap - 2, 0, 1))
    for title, width in zip(header, widths, strict=True):
        grid.add_column(Text(title), overflow="fold", width=width)
    for row in rows:
        grid.add_row(*map(Text, row))  # Text: no markup is read
    screen.print(grid)


def _print_stacked(header: list[str], rows: list[list[str]], room: int) -> None:
    """Every row as lines of `title  value`; only a word that is longer than a line goes over it."""
    margin = max(map(len, header), default=0) + 2
    for number, row in enumerate(rows):
        if number:
            print()
        for title, cell in zip(header, row, strict=True):
            lines = [
                line
                for part in cell.splitlines()
                for line in wrap(
                    part, max(room - margin, 1), break_long_words=False, break_on_hyphens=False
                )
            ]
            for i, line in enumerate(lines):
                print((title if i == 0 else "").ljust(margin) + line)


def harmless(text: str) -> str:
    """Text of any origin without control characters, which a terminal would obey."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def show(part: Part) -> None:
    """One part of a result on stdout."""
    if isinstance(part, str):
        say(part)
    elif isinstance(part, Strong):
        _strong(part.text)
    elif isinstance(part, Frames):
        _play(part)
    elif isinstance(part, Facts):
        _facts(part)
    else:
        table(*part.text())


def _strong(words: str) -> None:
    """In bold in a terminal."""
    from rich.text import Text

    if sys.stdout.isatty():
        console().print(Text(harmless(words), style="bold"))
    else:
        say(words)


def _facts(part: Facts) -> None:
    from rich.table import Table
    from rich.text import Text

    values = Table(title=part.title, show_header=False, title_justify="left")
    values.add_column(style="bold")
    values.add_column(overflow="fold")
    for key, value in part.values.items():
        values.add_row(key, Text(_words(value)))  # brackets are no markup here
    console().print(values)


def _words(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, Mapping):
        return "\n".join(f"{key}: {_words(item)}" for key, item in value.items())
    if isinstance(value, list) and any(isinstance(item, (str, Mapping)) for item in value):
        return "\n".join(_words(item) for item in value)
    if isinstance(value, list):
        return "[" + ", ".join(_words(item) for item in value) + "]"
    return str(value)


def _play(part: Frames) -> None:
    """One frame after the other in a terminal; elsewhere a dozen, evenly spread, the last too."""
    frames = list(part.frames)
    if not sys.stdout.isatty():
        if len(frames) > FRAMES:
            frames = [frames[round(i * (len(frames) - 1) / (FRAMES - 1))] for i in range(FRAMES)]
        for when, text in frames:
            say(f"{when}: {text}")
        return
    from rich.live import Live
    from rich.text import Text

    pause = min(0.4, SECONDS / len(frames))
    with Live(console=console(), auto_refresh=False) as live:
        for when, text in frames:
            frame = harmless(f"{when} of {frames[-1][0].split()[-1]}\n\n{text}")
            live.update(Text(frame), refresh=True)
            time.sleep(pause)
