"""Where what lies in a run directory."""

from __future__ import annotations

import re

FORMAT = 1
"""Version of the layout; a directory of a higher one is refused."""

MARK = "strop.json"
"""What every directory has that strop writes; see `strop.store.folder`."""
CELLS, SPEC, OUTPUTS, PARTS, COST, SCORES = (
    "cells",
    "spec.json",
    "outputs.parquet",
    "parts",
    "cost.json",
    "scores",
)
PROMPTS = "prompts"
"""Folder of what the outputs of a run answer, where they answer something."""
GUARD = "guard.json"
"""The entropy guard of a run, where it was made from texts that somebody brought."""
RESULT, TABLE = "result.json", "table.csv"
"""What came out of a study, an audit, a search or a comparison."""
SELECTION, FRESH = "selection.json", "fresh"
"""What audits and searches leave: their choices, and runs of fresh outputs."""
CELL_ID = METRIC_ID = re.compile(r"[0-9a-f]{16}")
