"""Where units of work run: here, on several devices, on Ray, as shards.

The work of a call is one plan (`plan`): every cell is cut into units, each a batch's worth of
outputs, in the same way whoever runs it, and no batch spans two units, because its shape changes
how matrix products round. So all engines give the same outputs.

A `Job` is what a `Worker` needs to begin: it travels to where the worker is and opens there, with
a model loaded. Workers stay from job to job inside `keep_workers()`, as every command and study is.
A `Sink` stays with the process that was called: it hands out what is missing of units, and keeps
the rows that come back. One process writes a cell's files at a time, and whoever works on a unit
has claimed it, so that any number of commands on one run share its units. `run_units` brings a
sink and an engine together.

A verb takes the choice of engine by one line: `*parameters.ENGINE` (`strop.verbs`) in its record,
or `*parameters.ENGINE` in a study's parameters; `Ask.engine` is the value then. One whose next
step depends on the results of the last begins with `engine.refuse_shard("A search")`.

The names load on first use: importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.registry import loader

if TYPE_CHECKING:
    from strop.engine.plan import LOCAL, Engine, Shard, Unit, cut, spelled

__all__ = ["LOCAL", "Engine", "Shard", "Unit", "cut", "spelled"]

__getattr__ = loader(__name__)
