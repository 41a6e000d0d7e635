"""Commands made from records: a verb's flags, its help, and what happens when it is called.

Studies, those of other packages too, are commands below `strop study`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from strop.cli import output
from strop.cli.flags import in_flags
from strop.cli.progress import TERMINAL, reporter
from strop.cli.values import parsed
from strop.registry import one_line
from strop.verbs.result import Result
from strop.verbs.study import STUDIES
from strop.verbs.verb import SAME, Ask, Parameter, Verb, VerbGroup, spelled


def register(app: typer.Typer) -> None:
    """Add `strop study` with a verb per study; those that are verbs of their own are not here."""
    group = typer.Typer(
        no_args_is_help=True, cls=Studies, help="Studies of checkpoints and their samplers."
    )
    for _, record in sorted(STUDIES.here().items()):
        if record.kind == "study":
            add(group, record)
    app.add_typer(group, name="study")


class Studies(TyperGroup):
    """The studies; those of other packages are loaded when all are listed, or for a new name."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Ours, then those of other packages."""
        self.commands.update(plugged())
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One by its name; None where nobody has it."""
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
    """A command for every study of another package; one that cannot have one is left out."""
    found = {}
    for name, record in sorted(STUDIES.plugins().items()):
        app = typer.Typer(add_completion=False)
        try:
            add(app, record)
            found[name] = typer.main.get_command(app)
        except Exception as error:  # what is in the record is somebody else's
            STUDIES.leave_out(name, one_line(error))
    return found


TYPES: dict[str, Any] = {"int": int, "float": float, "path": Path, "place": Path, "flag": bool}
TYPES |= dict.fromkeys(("axes", "many", "options", "changes", "wheres"), list[str])


def examples(*commands: str) -> str | None:
    """Commands as the end of a help; a blank line between them keeps typer from joining lines."""
    title = f"Example{'s' if len(commands) > 1 else ''}:"
    return "\n\n".join([title, *commands]) if commands else None


def add(app: typer.Typer, record: Verb | VerbGroup) -> None:
    """Add the command, or the group with its commands."""
    if isinstance(record, Verb):
        text, shown = record.help, examples(*record.examples)
        app.command(record.name, help=text, epilog=shown)(command(record))
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

    `alone`: the verb of a group, called only where none of the group's is named.
    """

    def run(**given: Any) -> None:
        context = given.pop("context", None)
        if context is None or context.invoked_subcommand is None:
            _run(verb, given)

    parameters = [_keyword("context", typer.Context)] if alone else []
    parameters += [_flag(one) for one in verb.takes]
    if verb.json:
        parameters.append(_keyword("as_json", Annotated[bool, output.JSON_FLAG], False))
        parameters.append(_keyword("quiet", Annotated[bool, output.QUIET_FLAG], False))
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _keyword(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _flag(one: Parameter) -> inspect.Parameter:
    words = one.help + (f" One of: {', '.join(one.choices)}." if one.choices else "")
    kind = TYPES.get(one.kind, str)
    shown = one.shown or (None if one.default is None else spelled(one.default))
    if shown and one.smoke is not SAME and one.smoke != one.default:
        shown += f"; with --smoke {spelled(one.smoke)}"
    if one.argument:
        option = typer.Argument(metavar=one.argument, help=words, show_default=shown or False)
    elif one.kind == "flag":
        shown_flag = False if one.default is None else bool(one.default) or None
        option = typer.Option(
            *names(one), help=words, rich_help_panel=one.panel, show_default=bool(shown_flag)
        )
        return _keyword(one.name, Annotated[bool | None, option], one.default)
    else:
        option = typer.Option(
            *names(one), help=words, rich_help_panel=one.panel, show_default=shown or False
        )
    if one.required or one.typed:
        return _keyword(one.name, Annotated[kind, option])
    return _keyword(one.name, Annotated[kind | None, option], None)


def names(one: Parameter) -> tuple[str, ...]:
    """How a flag is spelled."""
    if one.flags or one.name == "n":
        return one.flags or ("-n", "--n")
    long = f"--{one.name.replace('_', '-')}"
    return (long if one.kind != "flag" or one.default is False else f"{long}/--no-{long[2:]}",)


def _run(verb: Verb, given: dict[str, Any]) -> None:
    as_json, quiet = given.pop("as_json", False), given.pop("quiet", False)
    values = {one.name: _typed(one, given[one.name]) for one in verb.takes}
    speaking: dict[str, Any] = {} if quiet else {"note": _note, "bars": TERMINAL}
    with output.warnings_noted(), reporter(quiet=quiet) as bar:
        ask = verb.asked(values, progress=bar, **speaking)
        result = verb.answer(ask)
    tell(ask, replace(result, remarks=(), next=None) if quiet else result, as_json)


def _typed(one: Parameter, value: Any) -> Any:
    return parsed(one.kind, value, one.argument or names(one)[0])


def _note(text: str) -> None:
    """What the library says on the way, in the words of this verb's flags."""
    output.note(in_flags(text))


def tell(ask: Ask, result: Result, as_json: bool) -> None:
    """The result on stdout; where it lies, what is missing and what comes next on stderr."""
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
