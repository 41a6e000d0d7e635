"""Studies: what is measured on which cells, one file each; the paper's tables are among them."""

from __future__ import annotations

from strop.studies.study import (
    Ask,
    Parameter,
    Result,
    Sources,
    Study,
    find,
    register,
    run,
    studies,
)

__all__ = [
    "Ask",
    "Parameter",
    "Result",
    "Sources",
    "Study",
    "find",
    "register",
    "run",
    "studies",
]
