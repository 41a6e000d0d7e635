"""One verdict over several budgets."""

from __future__ import annotations

from collections.abc import Mapping

from strop.comparing.verdict import SideVerdict


def overall(verdicts: Mapping[int, SideVerdict]) -> SideVerdict:
    """What holds at every budget; `mixed` where it depends on it, else `cannot tell`."""
    kinds = {one.kind for one in verdicts.values()}
    if len(kinds) == 1:
        found = list(verdicts.values())
        wanted = [one.outputs for one in found]
        most = None if None in wanted else max(w for w in wanted if w is not None)
        return SideVerdict(found[0].kind, found[0].why, most)
    decided = kinds - {"cannot tell"}
    said = "; ".join(f"{one.kind} at M = {steps}" for steps, one in sorted(verdicts.items()))
    if len(decided) > 1:
        return SideVerdict("mixed", f"it depends on the budget: {said}")
    wanted = [one.outputs for one in verdicts.values() if one.kind == "cannot tell"]
    most = None if None in wanted else max(w for w in wanted if w is not None)
    return SideVerdict("cannot tell", said, most)
