"""Studies: what is measured on which cells, one file each; the paper's tables are among them.

The names load on first use: importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.lazy import loader

if TYPE_CHECKING:
    from strop.studies.measure import cell_table, guard_notes, judge_texts, measure_cells, texts_of
    from strop.studies.paper import reproduce
    from strop.studies.study import Ask, Parameter, Result, Sources, Study, find, run, studies
    from strop.table import Column, Table

__all__ = [
    "Ask",
    "Column",
    "Parameter",
    "Result",
    "Sources",
    "Study",
    "Table",
    "cell_table",
    "find",
    "guard_notes",
    "judge_texts",
    "measure_cells",
    "reproduce",
    "run",
    "studies",
    "texts_of",
]

__getattr__ = loader(
    __name__,
    {
        "Ask": "strop.studies.study",
        "Column": "strop.table",
        "Parameter": "strop.studies.study",
        "Result": "strop.studies.study",
        "Sources": "strop.studies.study",
        "Study": "strop.studies.study",
        "Table": "strop.table",
        "cell_table": "strop.studies.measure",
        "find": "strop.studies.study",
        "guard_notes": "strop.studies.measure",
        "judge_texts": "strop.studies.measure",
        "measure_cells": "strop.studies.measure",
        "reproduce": "strop.studies.paper",
        "run": "strop.studies.study",
        "studies": "strop.studies.study",
        "texts_of": "strop.studies.measure",
    },
)
