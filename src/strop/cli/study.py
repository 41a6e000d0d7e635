"""strop study: the studies of this package, and those of others."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from strop.cli.commands import add
from strop.registry import one_line
from strop.verbs.study import STUDIES


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
