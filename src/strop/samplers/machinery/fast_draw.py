"""What a fast sampler is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from strop.denoisers.base import Model
from strop.pool import OnStep, Output
from strop.prompts import Canvases
from strop.spec import SamplerSpec


@dataclass(frozen=True)
class FastDraw:
    """Some outputs of one generator under one seed, and who watches."""

    model: Model
    spec: SamplerSpec
    seed: int
    outputs: Iterable[int]
    """Their indices; each is a function of the seed and its index."""
    slots: int
    """How many may be under way at once."""
    length: int
    """Positions of every sequence; with canvases, given and open."""
    on_step: OnStep | None = None
    canvases: Canvases | None = None
    """What the outputs answer, all of one number of positions here; None: nothing is given."""


FastSampler = Callable[[FastDraw], Iterator[Output]]
"""The outputs of a draw, in the order in which they are finished."""
