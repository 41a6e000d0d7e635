"""Where units of work run: here, on several devices, on Ray, as shards.

The work of a call is one plan (`plan`): every cell is cut into units, each a batch's worth of
outputs, in the same way whoever runs it, and no batch spans two units, because its shape changes
how matrix products round. So all engines give the same outputs.

A `Job` is what a worker needs to begin: it travels to the worker and opens there, loading a model.
What it opens is a `Hand`, which does one order after the other. Workers (`Crew`) stay from job to
job inside `keeping()` (`hire`), as every command and study is. A `Desk` stays with the process
that was called: it hands out the orders, and keeps what comes back. One process writes a cell's
files at a time, and whoever works on a unit has claimed it (`strop.store.Cell.claim`), so that any
number of commands on one run share its units.

A verb takes the choice of engine by one line: `@with_engine` (`strop.cli.engine`) over a command,
or `*parameters.ENGINE` in a study's parameters; `Ask.engine` is the value then. One whose next
step depends on the results of the last begins with `engine.refuse_shard("A search")`.
"""

from __future__ import annotations

from strop.engine.choice import LOCAL, Engine
from strop.engine.plan import Shard, Unit, cut, spelled

__all__ = ["LOCAL", "Engine", "Shard", "Unit", "cut", "spelled"]
