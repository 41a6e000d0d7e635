"""What stands in the sequences of a batch before anything is drawn: masks, or a prompt's canvas.

And what all batches under way have: their start, their trace, and outputs at the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.base import Denoiser
from strop.denoisers.device import Floats, Numbers, upload, upload_rows
from strop.errors import UserError
from strop.pool import TRACED, OnStep, Output
from strop.prompts.canvas import Canvases
from strop.samplers.machinery.grid import RevealGrid
from strop.samplers.machinery.trace import Trace
from strop.spec.generator import SamplerSpec

OPEN = -1
FULLEST = 0.8
"""Sequences shorter than this share of the longest do not join its batch: padding costs as much."""


class Start:
    """Per slot [S, L]: given tokens, and the open positions, which alone are the response.

    Random numbers are addressed by `place`, the number of an open position among those of its
    sequence, so that they do not depend on how much is given before it. Without canvases every
    position is open and is its own place.
    """

    def __init__(self, slots: int, length: int, canvases: Canvases | None = None) -> None:
        self.canvases = canvases
        self.starts = np.zeros(slots, np.int64)
        """The column at which each sequence begins: rows that are shorter end with the others."""
        self.given = np.full((slots, length), OPEN, np.int64)
        self.open = np.ones((slots, length), bool)
        self.place = np.broadcast_to(np.arange(length), (slots, length)).copy()

    @property
    def held(self) -> bool:
        """Whether anything is given."""
        return self.canvases is not None

    @property
    def width(self) -> int:
        """The longest response."""
        return self.open.shape[1] if self.canvases is None else self.canvases.length

    def enter(self, slots: Numbers, outputs: Sequence[int] | Numbers) -> None:
        """Lay the canvases of these outputs into these slots."""
        if self.canvases is None:
            return
        numbers = np.asarray(outputs, np.int64) % len(self.canvases.prompts)
        distinct, which = np.unique(numbers, return_inverse=True)
        rows = [self.canvases.prompt_of(number).given for number in distinct.tolist()]
        starts = self.given.shape[1] - np.array([len(row) for row in rows], np.int64)
        given = np.zeros((len(rows), self.given.shape[1]), np.int64)
        for i, row in enumerate(rows):  # before its start any token: the network does not see it
            given[i, starts[i] :] = [OPEN if token is None else token for token in row]
        self.starts[slots], self.given[slots] = starts[which], given[which]
        self.open[slots] = self.given[slots] == OPEN
        # What is given has no place; zero is as good as any number there.
        self.place[slots] = np.maximum(self.open[slots].cumsum(1) - 1, 0)

    def ids(self, fill: int, slots: Numbers | slice = slice(None)) -> Tensor:
        """Given tokens, and `fill` at open positions."""
        return torch.from_numpy(np.where(self.open[slots], fill, self.given[slots]))

    def columns(self, slots: Numbers | slice, device: torch.device) -> Tensor | None:
        """Where these sequences begin; None if nothing is before any of them."""
        starts = self.starts[slots]
        return upload_rows(device, starts)[0] if starts.any() else None

    def hold(self, ids: Tensor) -> Tensor:
        """Given tokens in their places again, for a law that does not leave them there."""
        if not self.held:
            return ids
        return torch.where(self.opened(ids.device), ids, upload(self.given, ids.device))

    def opened(self, device: torch.device) -> Tensor:
        """The open positions as a tensor."""
        return upload(self.open, device)

    def outputs(
        self,
        slots: Numbers,
        numbers: Numbers,
        rows: Numbers,
        chance: Floats,
        trace: Trace,
        *,
        nfe: Numbers,
        seconds: Floats,
        mask: int | None,
        sampler: str,
        counts: dict[str, Numbers] | None = None,
    ) -> Iterator[Output]:
        """Outputs that are done: of every whole sequence [S, L] the response, one after another.

        With the chances of all positions [S, L], and what else the trace keeps of them.
        All arrays have an entry for each of `slots`. What can be done for all at once is: there may
        be thousands, each of a few tokens.
        """
        opened = self.open[slots]
        overwritten = ((rows != self.given[slots]) & ~opened).any(1)
        if overwritten.any():
            raise UserError(
                f"The sampler {sampler!r} has changed tokens that a prompt gives.",
                where=f"output {numbers[overwritten.argmax()]}",
                expected="a sampler that leaves visible tokens, or draws open positions only",
                fix="use another sampler, or sample without `prompts`",
            )
        ids = rows[opened].reshape(len(rows), -1)  # a batch has as many open in every sequence
        left = np.zeros(len(rows), int) if mask is None else (ids == mask).sum(1)
        columns = numbers, ids, nfe, seconds, left, trace.changed[slots, : ids.shape[1]]
        done = map(Output, *(one if one.ndim > 1 else one.tolist() for one in columns))
        chances = trace.kept(slots, rows, chance, mask)[opened].reshape(ids.shape)
        known = ~np.isnan(chances).all(1)
        for i, output in enumerate(done):
            output.chance = chances[i] if known[i] else None
            if output.index < TRACED:
                output.earlier = trace.earlier(int(slots[i]), mask)
            if counts:
                output.counts = {name: int(found[i]) for name, found in counts.items()}
            yield output


@dataclass
class BatchRun:
    """Some outputs under way together."""

    denoiser: Denoiser
    spec: SamplerSpec
    grid: RevealGrid
    outputs: Numbers
    """Their indices."""
    length: int
    on_step: OnStep | None = None
    canvases: Canvases | None = None
    """What the outputs answer; None: nothing is given."""
    counts: dict[str, Numbers] = field(default_factory=dict, init=False)
    """Per output, what else the sampler counts, as its record says."""

    def __post_init__(self) -> None:
        self.begin = Start(self.batch, self.length, self.canvases)
        self.begin.enter(np.arange(self.batch), self.outputs)
        self.trace = Trace(self.begin, self.denoiser.device, self.on_step)
        self.began = time.perf_counter()

    @property
    def batch(self) -> int:
        """How many there are."""
        return len(self.outputs)

    def start(self) -> Tensor:
        """Masks, and whatever is given."""
        return upload(self.begin.ids(self.denoiser.mask_id).numpy(), self.denoiser.device)

    def note(
        self, update: int | Numbers, slots: Numbers, position: Numbers, token: Numbers
    ) -> None:
        """These tokens changed in an update (counted from 0), or each in its own."""
        updates = np.broadcast_to(update, slots.shape)
        self.trace.note(self.outputs[slots], slots, updates, position, token)

    def know(self, slots: Numbers, position: Numbers, chance: Tensor) -> None:
        """How likely tokens were that have been noted."""
        at = upload_rows(self.trace.chance.device, slots, position)
        self.trace.chance[at] = chance.float()

    def done(self, ids: Numbers, chance: Floats, nfe: Numbers) -> Iterator[Output]:
        """The outputs, each with its network calls."""
        self.trace.end()
        seconds = (time.perf_counter() - self.began) / self.batch
        return self.begin.outputs(
            np.arange(self.batch),
            self.outputs,
            ids,
            chance,
            self.trace,
            nfe=nfe,
            seconds=np.full(self.batch, seconds),
            mask=self.denoiser.mask_id,
            sampler=self.spec.name,
            counts=self.counts,
        )


def by_shape(
    canvases: Canvases, outputs: Iterable[int], *, padding: bool = False
) -> list[tuple[int, list[int]]]:
    """What can share a batch: outputs with as many positions, and as many of them open.

    Each group with its number of positions, in the order of the groups' first outputs. With
    `padding` rows may have different numbers of positions, as long as little of a batch is padding.
    """
    longest = _longest(canvases) if padding else {}
    groups: dict[tuple[int, int], list[int]] = {}
    for output in outputs:
        canvas = canvases.prompt_of(output)
        positions = longest.get(len(canvas.given), len(canvas.given))
        groups.setdefault((positions, len(canvas.open)), []).append(output)
    return [(positions, group) for (positions, _), group in groups.items()]


def _longest(canvases: Canvases) -> dict[int, int]:
    """For every number of positions, that of the batch it goes into."""
    found: dict[int, int] = {}
    width = 0
    for positions in sorted({len(one.given) for one in canvases.prompts}, reverse=True):
        width = width if width and positions >= FULLEST * width else positions
        found[positions] = width
    return found
