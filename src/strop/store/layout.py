"""Where what lies in a run directory."""

from __future__ import annotations

import re

__all__ = [
    "AUDIT",
    "CELLS",
    "CELL_ID",
    "COST",
    "EXAM",
    "FORMAT",
    "FRESH",
    "GUARD",
    "METRIC_ID",
    "OUTPUTS",
    "PARTS",
    "PLAN",
    "PROMPTS",
    "RESULT",
    "SCORES",
    "SELECTION",
    "SPEC",
    "STUDY",
    "TABLE",
    "TRAINING",
    "TUNE",
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
PROMPTS = "prompts"
"""Folder of what the outputs of a run answer, where they answer something."""
GUARD = "guard.json"
"""The entropy guard of a run, where it was made from texts that somebody brought."""
RESULT, TABLE = "result.json", "table.csv"
"""What a study leaves."""
AUDIT, SELECTION, FRESH = "audit.json", "selection.json", "fresh"
"""What the audit leaves in its run directory: result, choices, runs of fresh outputs."""
TUNE = "tune.json"
"""What a search for settings leaves in its run directory: its result."""
PLAN = "plan.json"
"""What makes a directory one of GroupEval."""
EXAM = "task.json"
"""What makes a directory one of a task."""
TRAINING = "train.json"
"""What makes a directory one of training."""
CELL_ID = METRIC_ID = re.compile(r"[0-9a-f]{16}")
