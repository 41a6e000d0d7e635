"""Where what lies in a run directory."""

from __future__ import annotations

import re

__all__ = [
    "CELLS",
    "CELL_ID",
    "COST",
    "FORMAT",
    "METRIC_ID",
    "OUTPUTS",
    "PARTS",
    "SCORES",
    "SPEC",
    "STUDY",
]

FORMAT = 1
"""Version of the layout; a directory of a higher one is refused."""

STUDY, CELLS, SPEC, OUTPUTS, PARTS, COST, SCORES = (
    "study.yaml",
    "cells",
    "spec.json",
    "outputs.parquet",
    "parts",
    "cost.json",
    "scores",
)
CELL_ID = METRIC_ID = re.compile(r"[0-9a-f]{16}")
