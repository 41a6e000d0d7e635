"""From a choice of engine to a crew."""

from __future__ import annotations

from strop.engine.choice import Engine
from strop.engine.crew import Crew, Job

__all__ = ["hire"]


def hire(engine: Engine, job: Job) -> Crew:
    """The workers of an engine that is not local; they start when the crew is entered."""
    if engine.kind == "ray":
        from strop.engine.rays import Actors

        return Actors(job, engine)
    from strop.engine.devices import Processes

    return Processes(job, engine.places())
