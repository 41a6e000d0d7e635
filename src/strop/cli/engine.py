"""The flags that say where work runs, the same for every verb that draws or scores."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from strop.engine import Engine
from strop.engine.workers import keep_workers
from strop.verbs.parameters import ENGINE


def with_engine(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags; it gets what they say as its argument `engine`.

    The one line that a verb needs: `@with_engine` over a function with `engine: Engine`. A study
    has `*parameters.ENGINE` instead.
    """

    @functools.wraps(command)
    def run(**given: Any) -> None:
        said = {one.name: given.pop(one.name) for one in ENGINE}
        with keep_workers():
            command(**given, engine=Engine.of(**said))

    hints = get_type_hints(command, include_extras=True)
    parameters = [
        one.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, one in inspect.signature(command).parameters.items()
        if name != "engine"
    ]
    parameters += [_flag(one.name, one.help) for one in ENGINE]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _flag(name: str, words: str) -> inspect.Parameter:
    option = typer.Option(f"--{name.replace('_', '-')}", help=words)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[str | None, option],
    )
