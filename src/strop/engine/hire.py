"""From a choice of engine to a crew, which several calls may share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

from strop.engine.choice import Engine
from strop.engine.workers import Crew

__all__ = ["hired", "keeping"]

_KEPT: ContextVar[dict[Engine, Crew] | None] = ContextVar("kept", default=None)
"""The crews that nobody uses now, by engine; None: a crew ends with the call that hired it."""


@contextmanager
def keeping() -> Iterator[None]:
    """Crews that are hired inside, and what they have loaded, stay until its end.

    For whoever draws or scores several times: starting workers and loading models take seconds.
    """
    if _KEPT.get() is not None:  # whoever is outside keeps them longer
        yield
        return
    crews: dict[Engine, Crew] = {}
    token = _KEPT.set(crews)
    try:
        yield
    finally:
        _KEPT.reset(token)
        with ExitStack() as stack:
            for crew in crews.values():
                stack.push(crew)


@contextmanager
def hired(engine: Engine) -> Iterator[Crew]:
    """The workers of an engine that is not local. After an error they end: some may be busy."""
    kept = _KEPT.get()
    with ExitStack() as stack:
        there = None if kept is None else kept.pop(engine, None)
        crew = stack.enter_context(_crew(engine) if there is None else there)
        yield crew
        if kept is not None:
            kept[engine] = crew
            stack.pop_all()


def _crew(engine: Engine) -> Crew:
    if engine.kind == "ray":
        from strop.engine.rays import Actors

        return Actors(engine)
    from strop.engine.devices import Processes, counted

    return Processes(counted(engine.places()))
