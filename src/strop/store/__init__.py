"""The run directory: the only package that knows its file names, and how a run is continued.

    runs/<study>/
      study.yaml                   what was asked
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

from strop.store.cell import Cell
from strop.store.layout import FORMAT
from strop.store.run import Run
from strop.store.scores import ScoreTable
from strop.store.tables import Row

__all__ = ["FORMAT", "Cell", "Row", "Run", "ScoreTable"]
