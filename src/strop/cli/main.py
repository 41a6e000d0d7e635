"""Commands made from records, and every outcome as an exit code.

A verb's record says its flags, its help, and what happens when it is called. Studies, those of
other packages too, are commands below `strop study`. The text behind a flag is read by its
parameter's kind: `--steps 16,64`.

0 done; 1 the user's error (wrong flags included); 2 incomplete, run it again; 3 a check failed.
"""

from __future__ import annotations

import errno
import inspect
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer
from typer.core import TyperGroup

from strop.cli import output
from strop.cli.entry import main
from strop.cli.output import Flags, in_flags, speaking
from strop.cli.progress import TERMINAL, reporter
from strop.errors import Incomplete, StropError, UserError, missing_package, out_of_memory
from strop.registry import one_line, resolve
from strop.spec.value import Cooling
from strop.verbs.calls import VERBS
from strop.verbs.study import STUDIES
from strop.verbs.verb import SAME, Ask, Kind, Parameter, Result, Verb, VerbGroup, spelled
from strop.version import __version__

T = TypeVar("T")

KINDS: dict[object, str] = {int: "whole numbers", float: "numbers"}


def parsed(kind: Kind, value: Any, flag: str) -> Any:
    """A value as the record wants it; what has another kind is as typer made it."""
    if value is None or kind not in READERS or not isinstance(value, (str, list)):
        return value
    return READERS[kind](value, flag)


def listed(text: str, kind: Callable[[str], T], flag: str) -> list[T]:
    """A comma-separated list, each entry once, in the order given."""
    words = [word.strip() for word in text.split(",")]
    values: list[T] = []
    for word in words:
        try:
            value = kind(word)
        except ValueError:
            expected = f"{KINDS.get(kind, 'values')} separated by commas"
            raise _unreadable(text, flag, expected) from None
        if value not in values:
            values.append(value)
    return values


def counts(text: str, flag: str) -> list[int]:
    """Whole numbers, one for all budgets or one for each; equal ones are kept."""
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise UserError(
            f"{flag} cannot be read.",
            where=flag,
            got=repr(text),
            expected="a whole number of at least 1, or one per number of steps",
        ) from None


def masses(text: str, flag: str) -> list[float] | str:
    """Numbers, of which some may be equal; or `uniform`."""
    if text == "uniform":
        return text
    return [listed(word, float, flag)[0] for word in text.split(",")]


def axes(texts: Sequence[str], flag: str) -> dict[str, tuple[Any, ...]]:
    """`name=value,value` of every flag; a value that is not a number stays text."""
    by_name: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, equals, values = (part.strip() for part in text.partition("="))
        words = [word.strip() for word in values.split(",")]
        if not name or not equals or not all(words) or name in by_name:
            expected = "name=value,value such as temperature=1,0.9, each name once"
            raise _unreadable(text, flag, expected)
        by_name[name] = tuple(dict.fromkeys(_number(word) for word in words))
    return by_name


def named(text: str, flag: str) -> dict[str, Any]:
    """Comma-separated `name=value` pairs; a value that is not a number stays text."""
    values: dict[str, Any] = {}
    for word in text.split(","):
        name, equals, value = (part.strip() for part in word.partition("="))
        if not name or not equals or not value or name in values:
            expected = "name=value pairs separated by commas, each name once"
            raise _unreadable(text, flag, expected)
        values[name] = _number(value)
    return values


def _unreadable(text: str, flag: str, expected: str) -> UserError:
    what = f"{flag} has an entry that cannot be read."
    return UserError(what, where=flag, got=repr(text), expected=expected)


HEAT = "--temperature"


def _temperature(word: str) -> float:
    """A number, or a schedule such as linear/0.8/0.4."""
    return Cooling.of(word) if "/" in word else float(word)


def _number(word: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def options(words: Sequence[str], flag: str) -> dict[str, Any]:
    """`key=value` words; a value that is JSON is read as such, anything else is text."""
    settings: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise UserError(
                f"{flag} names an option and its value.",
                where=flag,
                got=word,
                expected="key=value, e.g. attn_implementation=eager",
            )
        try:
            settings[name.strip()] = json.loads(value)
        except ValueError:
            settings[name.strip()] = value
    return settings


def changes(texts: Sequence[str], flag: str) -> dict[str, Any]:
    """`key=value` with a value in YAML."""
    import yaml

    from strop.store.folder import load_yaml

    changed = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise UserError(
                f"{flag} needs a key and a value.", where=flag, got=text, expected="key=value"
            )
        try:
            changed[key] = load_yaml(value)
        except yaml.YAMLError:
            raise UserError("The value cannot be read.", where=flag, got=text) from None
        if isinstance(changed[key], str):  # YAML reads 1e-3 as a word; people mean a number
            try:
                changed[key] = float(changed[key])
            except ValueError:
                continue
    return changed


def batch(text: str, flag: str) -> int | Literal["auto"]:
    """A number of sequences, or the word."""
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise UserError(
            "The batch size is not a number.",
            where=flag,
            got=text,
            expected="a whole number of at least 1, or auto",
        ) from None


READERS: dict[Kind, Callable[[Any, str], Any]] = {
    "ints": lambda text, flag: listed(text, int, flag),
    "floats": lambda text, flag: listed(text, _temperature if flag == HEAT else float, flag),
    "numbers": lambda text, flag: listed(text, float, flag),
    "words": lambda text, flag: listed(text, str, flag),
    "counts": counts,
    "masses": masses,
    "axes": axes,
    "pairs": named,
    "wheres": lambda texts, flag: [named(text, flag) for text in texts],
    "options": options,
    "changes": changes,
    "batch": batch,
}


def register(app: typer.Typer) -> None:
    """Add `strop study` with a verb per study, without those that are verbs themselves."""
    group = typer.Typer(
        no_args_is_help=True, cls=Studies, help="Studies of checkpoints and their samplers."
    )
    for _, record in sorted(STUDIES.without_plugins().items()):
        if record.kind == "study":
            add(group, record)
    app.add_typer(group, name="study")


class Studies(TyperGroup):
    """The studies. Those of other packages are loaded for a list, or for an unknown name."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Ours, then those of other packages."""
        self.commands.update(plugged())
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A study by its name; None if there is none."""
        if cmd_name not in self.commands:
            self.commands.update(plugged())
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As for any group; a study that is installed and cannot be used says why."""
        name = args[0]
        if self.get_command(ctx, name) is None and STUDIES.problem(name) is not None:
            STUDIES.find(name)
        return super().resolve_command(ctx, args)


def plugged() -> dict[str, Any]:
    """A command for every study of another package; a study that breaks is left out."""
    commands = {}
    for name, record in sorted(STUDIES.plugins().items()):
        app = typer.Typer(add_completion=False)
        try:
            add(app, record)
            commands[name] = typer.main.get_command(app)
        except Exception as error:  # the record comes from another package
            STUDIES.leave_out(name, one_line(error))
    return commands


TYPES: dict[str, Any] = {"int": int, "float": float, "path": Path, "place": Path, "flag": bool}
TYPES |= dict.fromkeys(("axes", "many", "options", "changes", "wheres"), list[str])


def examples(*commands: str) -> str | None:
    """Commands as the end of a help; a blank line between them keeps typer from joining lines."""
    title = f"Example{'s' if len(commands) > 1 else ''}:"
    return "\n\n".join([title, *commands]) if commands else None


def add(app: typer.Typer, record: Verb | VerbGroup) -> None:
    """Add the command, or the group with its commands."""
    if isinstance(record, Verb):
        text, epilog = record.help, examples(*record.examples)
        app.command(record.name, help=text, epilog=epilog)(command(record))
        return
    group = typer.Typer(
        no_args_is_help=record.own is None,
        invoke_without_command=record.own is not None,
        help=record.help,
        epilog=examples(*record.examples),
    )
    if record.own is not None:
        group.callback()(command(record.own, alone=True))
    for verb in record.verbs:
        add(group, verb)
    app.add_typer(group, name=record.name)


def command(verb: Verb, *, alone: bool = False) -> Callable[..., None]:
    """A function whose signature has the verb's flags, for typer.

    `alone`: the group's own verb, called only where no verb of the group is named.
    """

    def run(**values: Any) -> None:
        context = values.pop("context", None)
        if context is None or context.invoked_subcommand is None:
            _run(verb, values)

    parameters = [_keyword("context", typer.Context)] if alone else []
    parameters += [_flag(parameter) for parameter in verb.takes]
    if verb.json:
        parameters.append(_keyword("as_json", Annotated[bool, output.JSON_FLAG], False))
        parameters.append(_keyword("quiet", Annotated[bool, output.QUIET_FLAG], False))
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _keyword(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _flag(parameter: Parameter) -> inspect.Parameter:
    words = parameter.help
    if parameter.choices:
        words += f" One of: {', '.join(parameter.choices)}."
    kind = TYPES.get(parameter.kind, str)
    shown = parameter.shown or (None if parameter.default is None else spelled(parameter.default))
    if shown and parameter.smoke is not SAME and parameter.smoke != parameter.default:
        shown += f"; with --smoke {spelled(parameter.smoke)}"
    if parameter.argument:
        option = typer.Argument(metavar=parameter.argument, help=words, show_default=shown or False)
    elif parameter.kind == "flag":
        shown_flag = False if parameter.default is None else bool(parameter.default) or None
        option = typer.Option(
            *names(parameter),
            help=words,
            rich_help_panel=parameter.panel,
            show_default=bool(shown_flag),
        )
        return _keyword(parameter.name, Annotated[bool | None, option], parameter.default)
    else:
        option = typer.Option(
            *names(parameter),
            help=words,
            rich_help_panel=parameter.panel,
            show_default=shown or False,
        )
    if parameter.required or parameter.typed:
        return _keyword(parameter.name, Annotated[kind, option])
    return _keyword(parameter.name, Annotated[kind | None, option], None)


def names(parameter: Parameter) -> tuple[str, ...]:
    """How a flag is spelled."""
    if parameter.flags or parameter.name == "n":
        return parameter.flags or ("-n", "--n")
    long = f"--{parameter.name.replace('_', '-')}"
    single = parameter.kind != "flag" or parameter.default is False
    return (long if single else f"{long}/--no-{long[2:]}",)


def _run(verb: Verb, typed: dict[str, Any]) -> None:
    as_json, quiet = typed.pop("as_json", False), typed.pop("quiet", False)
    values = {}
    for parameter in verb.takes:
        flag = parameter.argument or names(parameter)[0]
        values[parameter.name] = parsed(parameter.kind, typed[parameter.name], flag)
    speaking: dict[str, Any] = {} if quiet else {"note": _note, "bars": TERMINAL}
    with output.warnings_noted(), reporter(quiet=quiet) as bar:
        ask = verb.asked(values, progress=bar, **speaking)
        result = verb.answer(ask)
    tell(ask, replace(result, remarks=(), next=None) if quiet else result, as_json)
    if result.then is not None and not quiet and not as_json and output.screen():
        result.then()


def _note(text: str) -> None:
    """Print a note of the library with the flags of this verb."""
    output.note(in_flags(text))


def tell(ask: Ask, result: Result, as_json: bool) -> None:
    """The result on stdout; where it is, what is missing and the next command on stderr."""
    if result.silent:
        return
    if not as_json:
        for part in result.printed():
            output.show(part)
    elif result.error is None:
        document = result.json
        if document is None:
            document = {"run": str(ask.out), **result.document()}
        output.emit(document)
    if result.error is not None:
        raise result.error
    for words in result.remarks:
        _note(words)
    if result.next is not None:
        output.note(f"next: {result.next}")
    if result.incomplete:
        raise typer.Exit(2)


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


def _version(requested: bool) -> None:
    if requested:
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
        return _cached_tree(record) if isinstance(record, (Verb, VerbGroup)) else _tree(record)
    return _tree()


_TREES: dict[int, tuple[Verb | VerbGroup, Any]] = {}


def _cached_tree(record: Verb | VerbGroup) -> Any:
    """The tree of a record, made once: in a small command it takes a good part of the time."""
    if id(record) not in _TREES:
        _TREES[id(record)] = record, _tree(record)  # a record that is held keeps its id
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
            # The reader (head, less) closed the pipe, which is not an error.
            _silence_stdout()
            return 0
        except BaseException as error:
            failure = _as_strop_error(error, verb)
            if failure is None:
                raise
            return output.fail(failure, as_json and failure.where != STDOUT)


def _as_strop_error(error: BaseException, verb: Flags) -> StropError | None:
    """A failure in words; None if it is a bug, whose traceback we want."""
    if isinstance(error, StropError):
        return verb.error(error)
    if isinstance(error, _ClickException):
        return _usage(error)
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return INTERRUPTED
    if type(error).__name__ == "PanicException":  # of a library in Rust; its class has no home
        return UserError("A library crashed.", got=str(error).splitlines()[0][:200])
    if out_of_memory(error):
        return verb.error(_memory(error))
    if isinstance(error, ModuleNotFoundError):
        return missing_package(error)
    if isinstance(error, OSError) and error.filename is None and error.errno in PRINTING:
        _silence_stdout()  # what the run directory holds is safe: only the printing failed
        return UserError("The result cannot be printed.", where=STDOUT, got=error.strerror)
    return None


def _invoke(command: Any, argv: list[str]) -> int:
    """Like typer's `main`, but interrupts and closed pipes reach the caller."""
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
    """Point stdout at the null device, so that the interpreter's last flush cannot fail."""
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
