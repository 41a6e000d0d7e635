"""What the audit recommends, in words, from the files that it left in the run directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from strop.disk import reading
from strop.errors import UserError
from strop.report.data import Recommendation

__all__ = ["recommendation"]

AUDIT = "audit.json"


def recommendation(run: Path) -> Recommendation | None:
    """By the rule `frozen` if it could choose, else `per-budget`; None where nobody audited."""
    path = run / AUDIT
    try:
        with reading(path):
            audit = json.loads(path.read_bytes())
        selections = audit["selections"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            "The audit's result cannot be read.",
            where=path,
            got=str(error)[:200],
            fix="run the same `strop audit` again: it answers from the outputs that are there",
        ) from None
    if not selections:
        return Recommendation("none", tuple(audit["refusals"].values()))
    rule = "frozen" if "frozen" in selections else next(iter(selections))
    chosen = selections[rule]
    gains = [gain for gain in audit["gains"] if gain["rule"] == rule]
    settings = list(dict.fromkeys(_setting(pick["setting"]) for pick in chosen["picks"]))
    text = [
        f"The rule {rule} chose {', '.join(settings)} from {chosen['candidates']} settings at "
        f"{len(chosen['picks'])} budgets ({chosen['cells']} cells), hash {chosen['sha256'][:16]}.",
        _gains(gains),
    ]
    edges = list(dict.fromkeys(edge for pick in chosen["picks"] for edge in pick["at_edge"]))
    if edges:
        text.append(
            f"At the edge of the grid: {'; '.join(edges)}. A wider grid may choose otherwise."
        )
    below = [str(pick["steps"]) for pick in chosen["picks"] if not pick["passes"]]
    if below:
        text.append(f"Below the entropy guard at M = {', '.join(below)}.")
    file = run / f"sampler-{rule}.yaml"
    return Recommendation(rule, tuple(text), file.read_text() if file.is_file() else "")


def _setting(one: dict[str, Any]) -> str:
    return f"({one['temperature']:g}, {one['precision']})"


def _gains(gains: list[dict[str, Any]]) -> str:
    if not gains:
        return "Its gain was not measured on fresh outputs."
    told = []
    for gain in gains:
        ratio = gain["ratio"]
        if ratio is None:
            told.append(f"none at M = {gain['steps']}, where it is the standard sampler")
            continue
        words = f"{ratio['value']:.2f}x [{ratio['low']:.2f}, {ratio['high']:.2f}]"
        shown = "" if gain["shown"] else ", not shown"
        told.append(f"{words} at M = {gain['steps']} under {gain['evaluator']}{shown}")
    return "Perplexity gain over (1, float64) on fresh outputs: " + "; ".join(told) + "."
