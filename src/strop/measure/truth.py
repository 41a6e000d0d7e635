"""Outputs of a known language against its law: violations, excess surprise, modes.

The language is found by the hash that the checkpoint's spec has: it ships, or the run kept its
grammar.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from strop.measure.metric import MODES, VIOLATIONS, Columns, Ids
from strop.measure.score import score_cell
from strop.spec import MetricSpec
from strop.store import Run

if TYPE_CHECKING:
    from strop.language import Language
    from strop.store import Cell

NAMES = (VIOLATIONS.name, MODES.name)


def score_truth(cell: Cell, name: str) -> MetricSpec | None:
    """Score what a cell lacks of one of the two metrics; None where its law is not known."""
    from strop.language.reading import known_language

    checkpoint = cell.spec.generator.checkpoint
    if checkpoint.family != VIOLATIONS.family:
        return None
    found = known_language(checkpoint.sha256, Run(cell.path.parents[1]).grammar)
    if found is None:
        return None
    language, measure = found, _wrong if name == VIOLATIONS.name else _modes
    spec = MetricSpec(name=name, settings={"language": checkpoint.sha256})
    score_cell(cell, spec, lambda _, ids: measure(ids, language), needs_text=False)
    return spec


@lru_cache(maxsize=4)
def _entropy(language: Language) -> float:
    from strop.language.reading import DRAWS

    return language.entropy(DRAWS).value


def _wrong(ids: Ids, language: Language) -> Columns:
    rows = np.where(ids < 0, language.mask_id, ids)
    excess = -language.log_p(rows) - _entropy(language)
    return {"violations": language.violations(rows), "excess": excess}


def _modes(ids: Ids, language: Language) -> Columns:
    rows = np.where(ids < 0, language.mask_id, ids)
    law = language.posterior([]).reshape(-1)
    modes = language.posterior(rows).reshape(len(rows), -1).argmax(1)
    valid = (language.violations(rows) == 0).astype(np.int64)
    return {"mode": modes, "probability": law[modes], "valid": valid}
