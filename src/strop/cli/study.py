"""strop study and strop audit: the commands of the studies, made from their records."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from strop.cli import output
from strop.cli.examples import examples
from strop.cli.flags import in_flags
from strop.cli.progress import reporter
from strop.cli.values import axes, counts, listed
from strop.registry import one_line
from strop.verbs.study import SAME, STUDIES, Ask, Parameter, Result, Study, carry_out, quoted

if TYPE_CHECKING:
    from strop.table import Table

OUT = Annotated[str, typer.Option("-o", "--out", help="The directory; continued if it exists.")]
SMOKE = Annotated[bool, typer.Option("--smoke", help="On the embedded models, within minutes.")]
LISTS: dict[str, Callable[[str], Any]] = {"ints": int, "floats": float, "words": str}


def register(app: typer.Typer) -> None:
    """Add `strop study` with a verb per study; some are verbs of their own."""
    group = typer.Typer(
        no_args_is_help=True, cls=Studies, help="Studies of checkpoints and their samplers."
    )
    for _, record in sorted(STUDIES.here().items()):
        _add(group if record.kind == "study" else app, record)
    app.add_typer(group, name="study")


def _add(app: typer.Typer, record: Study) -> None:
    text = f"{record.title}\n\n{record.about} The same command continues, or answers from disk."
    epilog = examples(*record.examples) if record.examples else None
    app.command(record.name, help=text, epilog=epilog)(command(record))


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
            _add(app, record)
            found[name] = typer.main.get_command(app)
        except Exception as error:  # what is in the record is somebody else's
            STUDIES.leave_out(name, one_line(error))
    return found


def command(record: Study) -> Callable[..., None]:
    """A function whose signature has the study's flags, for typer."""

    def run(**given: Any) -> None:
        _run(record, given)

    parameters = [_keyword("out", OUT)]
    parameters += _arguments(record)
    parameters += [_flag(one) for one in record.parameters]
    if record.has_smoke:
        parameters.append(_keyword("smoke", SMOKE, False))
    parameters.append(_keyword("as_json", Annotated[bool, output.JSON_FLAG], False))
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _keyword(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _arguments(record: Study) -> list[inspect.Parameter]:
    mine = record.sources
    if mine.many:
        usual = ", ".join(mine.default) or None
        flag = typer.Argument(metavar=mine.names[0], help=mine.help, show_default=usual or False)
        return [_keyword("source_0", Annotated[list[str] | None, flag], None)]
    found = []
    for i, name in enumerate(mine.names):
        usual = mine.default[i] if i < len(mine.default) else False
        flag = typer.Argument(metavar=name, help=mine.help, show_default=usual)
        found.append(_keyword(f"source_{i}", Annotated[str | None, flag], None))
    return found


def _flag(one: Parameter) -> inspect.Parameter:
    names = ["-n", "--n"] if one.name == "n" else [f"--{one.name.replace('_', '-')}"]
    words = one.help + (f" One of: {', '.join(one.choices)}." if one.choices else "")
    if one.kind == "flag":
        if one.default:
            names = [f"{names[0]}/--no-{names[0][2:]}"]
        option = typer.Option(*names, help=words)
        return _keyword(one.name, Annotated[bool, option], one.default)
    shown = one.shown or (None if one.default is None else _spelled(one.default))
    if shown and one.smoke is not SAME and one.smoke != one.default:
        shown += f"; with --smoke {_spelled(one.smoke)}"
    option = typer.Option(*names, help=words, show_default=shown or False)
    kinds: dict[str, Any] = {"int": int, "float": float, "path": Path, "axes": list[str]}
    kinds["many"] = list[str]
    return _keyword(one.name, Annotated[kinds.get(one.kind, str) | None, option], None)


def _spelled(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def parsed(one: Parameter, value: Any) -> Any:
    """What was typed, as the study wants it."""
    flag = "-n" if one.name == "n" else f"--{one.name.replace('_', '-')}"
    if value is None or not isinstance(value, (str, list)):
        return value
    if one.kind == "axes" and isinstance(value, list):
        return axes(value, flag)
    if not isinstance(value, str):
        return value
    if one.kind in LISTS:
        return listed(value, LISTS[one.kind], flag)
    return counts(value, flag) if one.kind == "counts" else value


def _run(record: Study, given: dict[str, Any]) -> None:
    out, as_json = given.pop("out"), given.pop("as_json")
    smoke = given.pop("smoke", False)
    places = [given.pop(key) for key in [k for k in given if k.startswith("source_")]]
    sources = [one for place in places if place for one in _each(place)]
    values = {one.name: parsed(one, given[one.name]) for one in record.parameters}
    with output.warnings_noted(), reporter() as bar:
        ask = record.ask(Path(out), sources, smoke=smoke, progress=bar, note=_note, **values)
        result = carry_out(ask)
    tell(ask, result, as_json)


def _note(text: str) -> None:
    """What the library says on the way, in the words of this verb's flags."""
    output.note(in_flags(text))


def _each(place: str | list[str]) -> list[str]:
    return [place] if isinstance(place, str) else place


def tell(ask: Ask, result: Result, as_json: bool) -> None:
    """The result on stdout; where it lies, what is missing and what comes next on stderr."""
    if as_json:
        output.emit({"run": str(ask.out), **result.document()})
    else:
        _print(result)
    names = ["result.json", "table.csv"]
    names += [f"{ask.study.name}.{kind}" for kind in ("svg", "png")] if ask.study.draw else []
    output.note(f"written: {', '.join(names)} in {quoted(ask.out)}")
    if result.missing is not None:
        output.note(f"strop: {result.missing}; run the same command again")
        raise typer.Exit(2)
    output.next_command(ask.study.next(ask))


def _print(result: Result) -> None:
    for number, table in enumerate(result.tables):
        print_table(table, first=number == 0)
    notes = [*result.facts.get("answer", ()), *result.notes]
    if notes:
        output.say("")
    for note in notes:
        output.say(note)


def print_table(table: Table, *, first: bool = True) -> None:
    """A typed table with its title."""
    output.say(("" if first else "\n") + table.title)
    output.table(*table.text())
