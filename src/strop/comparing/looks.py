"""How often a comparison was looked at: a verdict on other outputs is another look.

Looks are written before a verdict is taken, so that one that was not liked still counts. Asking
again for the same outputs is no new look. What makes a question: the sides, the budgets and
everything that numbers depend on, but not how many outputs there are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strop.comparing.outputs import Outputs
from strop.verbs.verb import ASIDE, Ask

LEFT_OUT = ("n", "a", "b", "a_space", "b_space", "judge", "vendi", *ASIDE)
"""Of what was asked: other outputs of the same question, or what no number depends on."""


def look_number(ask: Ask, sides: Sequence[Outputs], budgets: Sequence[int]) -> int:
    """1 for the first look at a question, 2 for the next, ...; kept in RUN/runs/looks.json."""
    from strop.disk import write
    from strop.store.documents import as_json

    path = ask.out / "runs" / "looks.json"
    known = kept_lists(path)
    question = _question(ask, sides, budgets)
    looks = known.setdefault(question, [])
    if ask["n"] not in looks:
        looks.append(ask["n"])
        write(path, as_json(known))
    return 1 + looks.index(ask["n"])


def kept_lists(path: Path) -> dict[str, list[int]]:
    """What a comparison keeps in a file of its run: lists of whole numbers by key."""
    from strop.store.documents import damaged, parsed

    try:
        found = parsed(path)
        if not all(isinstance(number, int) for some in found.values() for number in some):
            raise ValueError("something that is not a whole number")
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError, TypeError) as error:
        raise damaged(path, error, f"restore {path}, or start anew with `force`") from None
    return found


def _question(ask: Ask, sides: Sequence[Outputs], budgets: Sequence[int]) -> str:
    said: dict[str, Any] = {k: v for k, v in ask.values.items() if k not in LEFT_OUT}
    # In either order: swapping the sides asks the same.
    said["sides"] = sorted(json.dumps(_identity(one), sort_keys=True) for one in sides)
    said["budgets"] = list(budgets)
    text = json.dumps(said, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _identity(side: Outputs) -> dict[str, Any]:
    weights = None if side.model is None else side.model.spec.sha256
    said = side.named
    return {
        "kind": said.kind,
        "source": said.source if weights is None else weights,
        "sampler": {key: str(value) for key, value in said.sampler.items()},
        "space": list(said.space),
    }
