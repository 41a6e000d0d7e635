"""The run directory: the only package that knows its file names, and how a run is continued.

Every directory that strop writes is a `Folder`; `strop.json` says of which kind.

    runs/x/
      strop.json                   whose it is, what was asked, the ids of the cells
      prompts/<hash>.json          what the outputs answer, where they answer prompts
      guard.json                   the entropy guard, where somebody brought texts for it
      cells/<cell id>/             one generator under one seed
        spec.json                  the cell's spec, whole
        outputs.parquet            its outputs, written whole and renamed into place
        parts/*.parquet            outputs of a session under way, merged at its end
        cost.json                  time, network calls and provenance of every session
        scores/<metric id>.parquet one metric, a row per output, the metric's spec inside

Every file is complete or absent: it is written beside its place and renamed. A session that is
killed loses at most what it had not flushed, and the next one draws exactly that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.registry import loader

if TYPE_CHECKING:
    from strop.store.cell import Cell
    from strop.store.folder import FORMAT, KINDS, Folder, Mark, read_mark
    from strop.store.run import Run, StudyFolder, study_result
    from strop.store.tables import ScoreTable

__all__ = [
    "FORMAT",
    "KINDS",
    "Cell",
    "Folder",
    "Mark",
    "Run",
    "ScoreTable",
    "StudyFolder",
    "read_mark",
    "study_result",
]

# The file names are read by commands that load nothing else.
__getattr__ = loader(__name__)
