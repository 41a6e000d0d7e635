"""How often a comparison was looked at: a verdict on other outputs is another look.

Looks are written before a verdict is taken, so that one that was not liked still counts. Asking
again for the same outputs is no new look. What makes a question: the sides, the budgets and
everything that numbers depend on, but not how many outputs there are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from strop.errors import UserError
from strop.studies.compare_sides import Outputs
from strop.studies.study import Ask

__all__ = ["look_number"]

LEFT_OUT = ("n", "device", "force", "judge", "vendi")
"""Of what was asked: other outputs of the same question, or what no number depends on."""


def look_number(ask: Ask, sides: Sequence[Outputs], budgets: Sequence[int]) -> int:
    """1 for the first look at a question, 2 for the next, ...; kept in RUN/runs/looks.json."""
    from strop.disk import write
    from strop.store.documents import as_json

    path = ask.out / "runs" / "looks.json"
    known: dict[str, list[int]] = {}
    if path.exists():
        try:
            known = json.loads(path.read_bytes())
        except ValueError as error:
            raise UserError(
                "The record of looks is damaged.",
                where=path,
                got=str(error)[:200],
                fix=f"restore {path}, or start anew with `force`",
            ) from None
    question = _question(ask, sides, budgets)
    looks = known.setdefault(question, [])
    if ask["n"] not in looks:
        looks.append(ask["n"])
        write(path, as_json(known))
    return 1 + looks.index(ask["n"])


def _question(ask: Ask, sides: Sequence[Outputs], budgets: Sequence[int]) -> str:
    said: dict[str, Any] = {k: v for k, v in ask.values.items() if k not in LEFT_OUT}
    said["weights"] = [None if one.model is None else one.model.spec.sha256 for one in sides]
    said["sides"] = [[one.named.kind, one.named.source] for one in sides]
    said["budgets"] = list(budgets)
    text = json.dumps(said, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
