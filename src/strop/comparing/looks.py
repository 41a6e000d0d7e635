"""How often two sides were looked at in one directory: one account of looks for each pair.

A look is a verdict that was asked for: on other outputs, by another margin, seed, sweep, judge or
evaluator, at other budgets. Whoever asks in several ways until it pleases spends looks, and each
one's intervals are wider. Looks are written before a verdict is taken, so that one that was not
liked still counts. Asking again for the same is no new look.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.verbs.verb import ASIDE, Ask

if TYPE_CHECKING:
    from strop.comparing.outputs import SideOutputs

SIDES = ("a", "b", "a_space", "b_space")
"""Parameters that are said with the sides, in either order."""


def look_number(ask: Ask, sides: Sequence[SideOutputs], budgets: Sequence[int]) -> int:
    """1 for the first look at two sides, 2 for the next, ...; kept in RUN/runs/looks.json."""
    from strop.disk import write
    from strop.store.folder import as_json

    path = ask.out / "runs" / "looks.json"
    known = kept_lists(path)
    # In either order: swapping the sides asks the same.
    pair = sorted(sides, key=lambda one: json.dumps(_identity(one), sort_keys=True))
    looks = known.setdefault(_hash([_identity(one) for one in pair]), [])
    values = {k: v for k, v in ask.values.items() if k not in (*SIDES, *ASIDE)}
    spaces = [list(one.named.space) for one in pair]
    asked = int(_hash([values, spaces, list(budgets), ask.smoke]), 16)
    if asked not in looks:
        looks.append(asked)
        write(path, as_json(known))
    return 1 + looks.index(asked)


def kept_lists(path: Path) -> dict[str, list[int]]:
    """What a comparison keeps in a file of its run: lists of whole numbers by key."""
    from strop.store.folder import damaged, parsed

    try:
        found = parsed(path)
        if not all(isinstance(number, int) for some in found.values() for number in some):
            raise ValueError("something that is not a whole number")
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError, TypeError) as error:
        raise damaged(path, error, f"restore {path}, or start anew with `force`") from None
    return found


def _hash(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _identity(side: SideOutputs) -> dict[str, Any]:
    weights = None if side.model is None else side.model.spec.sha256
    said = side.named
    return {
        "kind": said.kind,
        "source": said.source if weights is None else weights,
        "sampler": {key: str(value) for key, value in said.sampler.items()},
    }
