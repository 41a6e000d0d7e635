"""Gathers the verbs and turns every outcome into an exit code.

0 done; 1 the user's error (wrong flags included); 2 incomplete, run it again; 3 a check failed.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated, Any

import typer

from strop.cli import output
from strop.cli.commands import add, examples
from strop.cli.entry import main
from strop.cli.flags import Flags, speaking
from strop.errors import Incomplete, StropError, UserError, missing_package, out_of_memory
from strop.registry import resolve
from strop.verbs.calls import VERBS
from strop.verbs.verb import Verb, VerbGroup
from strop.version import __version__

# typer carries its own copy of click in some releases and imports it in others; the common
# ancestor of its usage errors is reached through the one class that it exports either way.
_ClickException: type[Exception] = next(
    cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException"
)

__all__ = ["INTERRUPTED", "VERBS", "build", "main", "run"]

START = examples("strop sample -n 4 -o runs/first", "strop show runs/first")
COMPLETION = "_STROP_COMPLETE"

INTERRUPTED = Incomplete("Interrupted.", fix="run the same command again to continue")

STDOUT = "stdout"
PRINTING = (errno.ENOSPC, errno.EIO)
"""What writing to a full or vanished stdout raises, without the name of a file."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"strop {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Sample, audit and compare diffusion language models."""


def build(argv: Sequence[str] | None = None) -> Any:
    """The command tree: all of it, or what a command line needs.

    That is the verb which it names; without one, the verbs by name and first line. Neither loads
    torch, scipy or matplotlib.
    """
    if argv is None or COMPLETION in os.environ:
        return _tree(*(resolve(reference) for reference, _ in VERBS.values()))
    if argv and argv[0] in VERBS:
        record = resolve(VERBS[argv[0]][0])
        return _kept(record) if isinstance(record, (Verb, VerbGroup)) else _tree(record)
    return _tree()


_TREES: dict[int, tuple[Verb | VerbGroup, Any]] = {}


def _kept(record: Verb | VerbGroup) -> Any:
    """The tree of a record, made once: in a small command it takes a good part of the time."""
    if id(record) not in _TREES:
        _TREES[id(record)] = record, _tree(record)  # who is held keeps its id
    return _TREES[id(record)][1]


def _tree(*records: Any) -> Any:
    """These commands; without any, the verbs by name and first line."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},  # of every verb
    )
    app.callback(epilog=START)(_root)
    for record in records:
        if isinstance(record, (Verb, VerbGroup)):
            add(app, record)
        else:
            record(app)
    for name, (_, line) in VERBS.items() if not records else ():
        app.command(name, help=line)(_root)
    return typer.main.get_command(app)


def run(argv: list[str]) -> int:
    """Run one command and return its exit code; no exception of the user's gets out."""
    as_json = "--json" in argv
    _accept_any_text()
    command = build(argv)
    with speaking(command, argv) as verb:
        try:
            code = _invoke(command, argv)
            sys.stdout.flush()
            return code
        except BrokenPipeError:
            # The reader (head, less) has gone: nothing is wrong and nobody is listening.
            _silence_stdout()
            return 0
        except BaseException as error:
            told = _told(error, verb)
            if told is None:
                raise
            return output.fail(told, as_json and told.where != STDOUT)


def _told(error: BaseException, verb: Flags) -> StropError | None:
    """A failure in words; None if it is a bug, whose traceback we want."""
    if isinstance(error, StropError):
        return verb.error(error)
    if isinstance(error, _ClickException):
        return _usage(error)
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return INTERRUPTED
    if type(error).__name__ == "PanicException":  # of a library in Rust; its class has no home
        return UserError("A library has given up.", got=str(error).splitlines()[0][:200])
    if out_of_memory(error):
        return verb.error(_memory(error))
    if isinstance(error, ModuleNotFoundError):
        return missing_package(error)
    if isinstance(error, OSError) and error.filename is None and error.errno in PRINTING:
        _silence_stdout()  # what the run directory holds is safe: only the printing failed
        return UserError("The result cannot be printed.", where=STDOUT, got=error.strerror)
    return None


def _invoke(command: Any, argv: list[str]) -> int:
    """What typer's own `main` does, without its opinions on interrupts and closed pipes."""
    if COMPLETION in os.environ:  # the shell asks for words, by typer's protocol
        command._main_shell_completion({}, "strop", COMPLETION)
    try:
        with command.make_context("strop", list(argv)) as context:
            command.invoke(context)
    except typer.Exit as done:  # --help and --version
        return done.exit_code
    except _ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # it has printed the help
            return 0
        raise
    return 0


def _accept_any_text() -> None:
    """Print what the terminal's encoding lacks as escapes: no character stops a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _silence_stdout() -> None:
    """Let the interpreter's own last flush go nowhere."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return  # not a file: nothing to flush
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


def _memory(error: BaseException) -> UserError:
    if isinstance(error, ImportError):
        return UserError(
            "There is not enough memory to load a library.",
            got=str(error).splitlines()[0][:200],
            fix="free some memory, or raise the limit (ulimit -v): torch needs about a gigabyte",
        )
    return UserError(
        "There is not enough memory.",
        got=str(error).splitlines()[0][:200] if str(error) else None,
        fix="use a smaller `batch_size`, or use a smaller `length`, or say `set=micro_batch=N`",
    )


def _usage(error: Any) -> UserError:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "strop"
    return UserError(error.format_message(), where=command, fix=f"{command} --help")
