"""What both sides of a comparison have alike: their length, and what a budget is.

With `equal` steps both sides make M updates. With network calls or seconds the side that needs
fewer of them for M updates gets more updates, until it needs what the other does, as near as the
tried multiples come. What was found is kept in the run: seconds are never measured twice alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from strop.comparing.looks import kept_lists
from strop.comparing.outputs import NEAR, Named, SideOutputs, is_causal
from strop.spec.value import MOST_STEPS
from strop.verbs.verb import Ask

if TYPE_CHECKING:
    from strop.denoisers import Model
    from strop.spec.generator import SamplerSpec

TRIED = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
"""Multiples of the steps."""
OUTPUTS = 8
"""From which costs are measured."""
COLUMN = {"calls": "nfe", "seconds": "seconds"}


def same_length(ask: Ask, sides: Sequence[Named], models: Mapping[str, Model]) -> Ask:
    """With the length that both sides have, where nothing else is said.

    That is the shorter one of two checkpoints, and a pool's own if the checkpoint can write it.
    """
    from strop.comparing.outputs import pool_cell
    from strop.denoisers.base import usable_length

    pools = [pool_cell(one.source).spec.generator.length for one in sides if one.kind == "pool"]
    if ask["length"] is not None or not models or len(models) + len(pools) < 2:
        return ask
    own = [one.length if pools else usable_length(one, None) for one in models.values()]
    return replace(ask, values={**ask.values, "length": min([*pools, *own])})


def equal_steps(ask: Ask, sides: Sequence[SideOutputs], number: int) -> list[int]:
    """How many updates each side makes at a budget."""
    what = ask["equal"]
    fixed = [not one.named.tunable or is_causal(one) for one in sides]
    if what == "steps" or any(fixed):
        return [number, number]
    kept = _Kept(ask)
    key = json.dumps([what, number, *(one.spec(number).id for one in sides)])
    if key not in kept.known:
        kept.keep(key, _fitted(ask, sides, number, what))
    return kept.known[key]


def _fitted(ask: Ask, sides: Sequence[SideOutputs], number: int, what: str) -> list[int]:
    cost = [_cost(ask, one, one.spec(number), what) for one in sides]
    steps = [number, number]
    cheaper = 0 if cost[0] < cost[1] else 1
    target, side = max(cost), sides[cheaper]
    tried = {number: cost[cheaper]}
    for times in TRIED:
        many = min(round(number * times), MOST_STEPS)
        if max(tried.values()) >= target * (1 - NEAR[what]):
            break
        tried[many] = _cost(ask, side, side.spec(many), what)
    steps[cheaper] = min(tried, key=lambda many: (abs(tried[many] - target), many))
    return steps


def _cost(ask: Ask, side: SideOutputs, spec: SamplerSpec, what: str) -> float:
    cell = side.cell(spec, OUTPUTS, ask["seed"])
    return float(cell.table()[COLUMN[what]].to_numpy()[:OUTPUTS].mean())


class _Kept:
    """The numbers of updates that were found, in RUN/runs/equal.json."""

    def __init__(self, ask: Ask) -> None:
        self._path = ask.out / "runs" / "equal.json"
        self.known = kept_lists(self._path)

    def keep(self, key: str, steps: list[int]) -> None:
        from strop.disk import write
        from strop.store.folder import as_json

        self.known[key] = steps
        write(self._path, as_json(self.known))
