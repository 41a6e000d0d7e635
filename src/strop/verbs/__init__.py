"""Studies: what is measured on which cells, one file each; the paper's tables are among them.

The names load on first use: importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.registry import loader

if TYPE_CHECKING:
    from strop.table import Column, Table
    from strop.verbs.points import cell_table, guard_notes, judge_texts, measure_cells, texts_of
    from strop.verbs.study import Sources, Study, find, run, studies
    from strop.verbs.verb import Ask, Parameter, Result

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
    "run",
    "studies",
    "texts_of",
]

__getattr__ = loader(__name__)
