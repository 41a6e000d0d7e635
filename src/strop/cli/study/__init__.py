"""strop study: measurements over checkpoints and samplers. One file per study."""

from __future__ import annotations

from importlib import import_module

import typer

__all__ = ["register"]

# The order is that of `strop study --help`.
VERBS: tuple[str, ...] = (
    "less_is_more",
    "frontier",
    "collapse",
    "posterior",
    "cost",
    "cross_model",
    "didi_grids",
    "exact_output",
)


def register(app: typer.Typer) -> None:
    """Add the verb with its own verbs."""
    group = typer.Typer(no_args_is_help=True, help="Studies of checkpoints and their samplers.")
    for verb in VERBS:
        import_module(f"strop.cli.study.{verb}").register(group)
    app.add_typer(group, name="study")
