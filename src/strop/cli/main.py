"""The entry point: gathers the verbs and turns every outcome into an exit code.

0 done; 1 the user's error (wrong flags included); 2 incomplete, run it again; 3 a check failed.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer

from strop.cli import output
from strop.errors import Incomplete, StropError, UserError, missing_package
from strop.version import __version__

# typer carries its own copy of click in some releases and imports it in others; the common
# ancestor of its usage errors is reached through the one class that it exports either way.
_ClickException: type[Exception] = next(
    cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException"
)

# One module per verb; each has `register(app)`. The order is that of `strop --help`.
VERBS: tuple[str, ...] = ("sample", "show", "precision", "train", "doctor")


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


def build() -> Any:
    """The whole command tree; importing it loads neither torch nor scipy nor matplotlib."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    app.callback()(_root)
    for verb in VERBS:
        import_module(f"strop.cli.{verb}").register(app)
    return typer.main.get_command(app)


def main(argv: list[str] | None = None) -> None:
    """Run one command and leave with its exit code."""
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: list[str]) -> int:
    """Run one command and return its exit code; no exception of the user's gets out."""
    as_json = "--json" in argv
    try:
        result = build().main(args=argv, prog_name="strop", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except _ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # it has printed the help
            return 0
        return output.fail(_usage(error), as_json)
    except (KeyboardInterrupt, typer.Abort):
        stopped = Incomplete("Interrupted.", fix="run the same command again to continue")
        return output.fail(stopped, as_json)
    except BrokenPipeError:
        # The reader (head, less) has gone: nothing is wrong and nobody is listening.
        sys.stderr.close()
        return 0
    except ModuleNotFoundError as error:
        remedy = missing_package(error)
        if remedy is None:
            raise
        return output.fail(remedy, as_json)
    except StropError as error:
        return output.fail(error, as_json)


def _usage(error: Any) -> UserError:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "strop"
    return UserError(error.format_message(), where=command, fix=f"{command} --help")
