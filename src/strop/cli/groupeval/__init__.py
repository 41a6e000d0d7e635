"""strop groupeval: judge texts in groups. One file per verb below it."""

from __future__ import annotations

from importlib import import_module

import typer

__all__ = ["register"]

# The order is that of `strop groupeval --help`.
VERBS: tuple[str, ...] = (
    "plan",
    "judge",
    "show",
    "score",
    "compare",
    "agree",
    "reliability",
    "export_human",
    "import_human",
)


def register(app: typer.Typer) -> None:
    """Add the verb with its own verbs."""
    group = typer.Typer(no_args_is_help=True, help="Quality and diversity of texts, in groups.")
    for verb in VERBS:
        import_module(f"strop.cli.groupeval.{verb}").register(group)
    app.add_typer(group, name="groupeval")
