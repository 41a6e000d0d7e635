"""What every batch under way has: its grid, its start, its trace, and outputs at the end.

The reveal grid says which share of the positions is still hidden before and after every update. A
position is revealed in round k with mass m_k. Before that round the hidden share is
t_k = m_k + m_{k+1} + ..., after it s_k = t_k - m_k. The last mass belongs to the finish.

The start is what stands in the sequences before anything is drawn: masks, or a prompt's canvas. The
trace says when each token last changed, and reports to a watcher.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.denoisers.base import Denoiser
from strop.denoisers.device import Floats, Numbers, upload, upload_rows
from strop.errors import UserError
from strop.pool import EARLIER, TRACED, OnStep, Output
from strop.prompts.canvas import Canvases
from strop.spec.generator import EPSILON, SamplerSpec
from strop.spec.value import Cooling

NOISE_EPSILON = 1e-3
"""The log-linear noise of the public code stops short of masking everything."""


@dataclass(frozen=True)
class RevealGrid:
    """Times in float32, as the public code has them, and the exact masses beside them."""

    t: Tensor
    """Hidden share before each update, [K]."""
    s: Tensor
    """Hidden share after each update, [K]."""
    last: Tensor
    """Hidden share at the finish: the last mass, a scalar."""
    masses: np.ndarray
    """Probability of being revealed in each update, and in the finish: K + 1 numbers."""

    @property
    def updates(self) -> int:
        """The number of updates before the finish."""
        return len(self.t)

    def sigmas(self) -> Tensor:
        """The noise level at each update and at the finish: K + 1 numbers."""
        return sigma_of(torch.cat([self.t, self.last[None]]))


def sigma_of(t: Tensor) -> Tensor:
    """Log-linear noise: sigma = -log(1 - (1 - 1e-3) t)."""
    return -torch.log1p(-(1 - NOISE_EPSILON) * t)


def alpha_of(t: Tensor) -> Tensor:
    """The share of the signal that noise leaves: alpha = 1 - (1 - 1e-3) t = e^-sigma."""
    return 1 - (1 - NOISE_EPSILON) * t


def reveal_grid(spec: SamplerSpec) -> RevealGrid:
    """The grid that a spec asks for."""
    if spec.grid == "uniform":
        steps = spec.steps
        times = torch.linspace(1, EPSILON, steps + 1)
        # The public code subtracts a constant instead of reading the next time from the grid, so
        # the two differ in the last bits; bit parity needs the same.
        width = (1 - EPSILON) / steps
        masses = np.array([width] * steps + [EPSILON])
        return RevealGrid(times[:-1], times[:-1] - width, times[-1], masses)
    masses = np.asarray(spec.grid, dtype=np.float64)
    masses = masses / masses.sum()
    hidden = torch.from_numpy(np.cumsum(masses[::-1])[::-1].copy()).float()
    return RevealGrid(hidden[:-1], hidden[1:], hidden[-1], masses)


def temperatures(spec: SamplerSpec, grid: RevealGrid) -> np.ndarray | None:
    """The temperature of each update and of the finish, K + 1 numbers; None where it is one number.

    An update goes by the share revealed before it, the finish has the schedule's last value.
    """
    if not isinstance(spec.temperature, Cooling):
        return None
    revealed = np.append(0.0, np.cumsum(grid.masses)[: grid.updates - 1])[: grid.updates]
    return np.array([*map(spec.temperature.at, revealed), spec.temperature.last])


def neighbouring(grid: RevealGrid) -> RevealGrid:
    """The same times as the DUO code has them: steps are differences of neighbours, no constant."""
    times = torch.cat([grid.t, grid.last[None]])
    return replace(grid, s=grid.t - (times[:-1] - times[1:]))


MANTISSA = 6
"""Bits of a chance that are kept beside its exponent: it is within 0.8%, and packs well."""
UNSEEN = -1
"""Nothing was told of a position, or a token that only the device knows."""


class Replaced(NamedTuple):
    """Values of a sequence that others took the place of; chances are still on the device."""

    place: Numbers
    round: NDArray[np.int32]
    token: Numbers
    chance: Tensor


class Trace:
    """The sequences of a batch, by slot.

    A round is reported when the next one has something to report, or at `end`: a sampler may reveal
    some tokens and take back others at different moments of one round.
    """

    def __init__(self, begin: Start, device: torch.device, on_step: OnStep | None) -> None:
        self.changed = np.zeros((len(begin.open), begin.width), np.int32)
        """Per slot and place, the round after which it last changed; 0: never."""
        self.chance = torch.full(begin.open.shape, torch.nan, device=device)
        """Per slot and column, the chance of the token there; of a mask, anything."""
        self._begin, self._on_step = begin, on_step
        self._last = np.full(begin.open.shape, UNSEEN)
        self._replaced: dict[int, list[Replaced]] = {}
        self._untold: dict[int, tuple[int, int, list[Numbers], list[Numbers]]] = {}

    @property
    def watched(self) -> bool:
        """Whether anything asks for the tokens."""
        return self._on_step is not None

    def forget(self, slots: Numbers) -> None:
        """Other sequences begin in these, or the same ones anew."""
        self.changed[slots], self._last[slots] = 0, UNSEEN
        for slot in slots.tolist():
            self._replaced.pop(slot, None)

    def begin(self, cells: tuple[Numbers, ...], token: Numbers) -> None:
        """What stands at slots and columns before the first round, where that is no mask."""
        self._last[cells] = token

    def note(
        self,
        output: Numbers,
        slot: Numbers,
        round_: Numbers,
        column: Numbers,
        token: Numbers | None,
    ) -> None:
        """These tokens changed, one entry each; `round_` counts updates from 0.

        Without a watcher, the tokens need not be known.
        """
        position = self._begin.place[slot, column]
        self._keep(output, slot, column, position)
        self._last[slot, column] = UNSEEN if token is None else token
        self.changed[slot, position] = round_ + 1
        if self._on_step is None or token is None:
            return
        for changed_slot in np.unique(slot).tolist():
            at_slot = slot == changed_slot
            number = int(round_[at_slot][0]) + 1
            if changed_slot in self._untold and self._untold[changed_slot][1] != number:
                self._tell(changed_slot)
            _, _, positions, tokens = self._untold.setdefault(
                changed_slot, (int(output[at_slot][0]), number, [], [])
            )
            positions.append(position[at_slot])
            tokens.append(token[at_slot])

    def _keep(self, output: Numbers, slot: Numbers, column: Numbers, position: Numbers) -> None:
        """Keep the values that are about to be replaced, of the outputs that are traced."""
        traced = (output < TRACED) & (self._last[slot, column] != UNSEEN)
        for changed_slot in np.unique(slot[traced]).tolist():
            at_slot = traced & (slot == changed_slot)
            at = upload_rows(self.chance.device, slot[at_slot], column[at_slot])
            before = (
                self.changed[changed_slot, position[at_slot]],
                self._last[changed_slot, column[at_slot]],
            )
            replaced = Replaced(position[at_slot], *before, self.chance[at])
            self._replaced.setdefault(changed_slot, []).append(replaced)

    def kept(
        self, slots: Numbers, rows: Numbers, chance: NDArray[np.float64], mask: int | None
    ) -> NDArray[np.float32]:
        """Chances of finished sequences [S, L]: none where another token stands than was told of,
        such as padding behind an end, and none of a mask."""
        last = self._last[slots]
        other = ((last != UNSEEN) & (last != rows)) | (rows == (UNSEEN if mask is None else mask))
        return _rounded(np.where(other, np.nan, chance))

    def earlier(self, slot: int, mask: int | None) -> NDArray[np.void]:
        """What stood in a sequence before, by round and place."""
        parts = self._replaced.pop(slot, [])
        entries = np.zeros(sum(len(part.place) for part in parts), EARLIER)
        if not parts:
            return entries
        for name in ("place", "round", "token"):
            entries[name] = np.concatenate([getattr(part, name) for part in parts])
        chance = torch.cat([part.chance for part in parts]).cpu().numpy()  # waits
        entries["chance"] = _rounded(np.where(entries["token"] == mask, np.nan, chance))
        return entries[np.lexsort((entries["place"], entries["round"]))]

    def end(self) -> None:
        """Report the last round of every sequence."""
        for slot in list(self._untold):
            self._tell(slot)

    def end_of(self, slots: Numbers) -> None:
        """Nothing more happens to these; other sequences take their places."""
        for slot in slots.tolist():
            if slot in self._untold:
                self._tell(slot)

    def _tell(self, slot: int) -> None:
        output, number, positions, tokens = self._untold.pop(slot)
        if self._on_step is not None:
            self._on_step(output, number, np.concatenate(positions), np.concatenate(tokens))


def _rounded(chance: NDArray[np.floating]) -> NDArray[np.float32]:
    drop = np.uint32(23 - MANTISSA)
    bits = chance.astype(np.float32).view(np.uint32) + (np.uint32(1) << (drop - np.uint32(1)))
    rounded = (bits >> drop << drop).view(np.float32)
    return np.where(np.isnan(chance), np.float32(np.nan), rounded)


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
        """Whether any token is given."""
        return self.canvases is not None

    @property
    def width(self) -> int:
        """The length of the longest response."""
        return self.open.shape[1] if self.canvases is None else self.canvases.length

    def enter(self, slots: Numbers, outputs: Sequence[int] | Numbers) -> None:
        """Lay the canvases of these outputs into these slots."""
        if self.canvases is None:
            return
        numbers = np.asarray(outputs, np.int64) % len(self.canvases.prompts)
        distinct, which = np.unique(numbers, return_inverse=True)
        rows = [self.canvases.prompt_of(number).given for number in distinct.tolist()]
        starts = self.given.shape[1] - np.array([len(row) for row in rows], np.int64)
        tokens = np.zeros((len(rows), self.given.shape[1]), np.int64)
        for i, row in enumerate(rows):  # before its start any token: the network does not see it
            tokens[i, starts[i] :] = [OPEN if token is None else token for token in row]
        self.starts[slots], self.given[slots] = starts[which], tokens[which]
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
        done = map(Output, *(column if column.ndim > 1 else column.tolist() for column in columns))
        chances = trace.kept(slots, rows, chance, mask)[opened].reshape(ids.shape)
        has_chances = np.asarray(~np.isnan(chances).all(1))
        for i, output in enumerate(done):
            output.chance = chances[i] if has_chances[i] else None
            if output.index < TRACED:
                output.earlier = trace.earlier(int(slots[i]), mask)
            if counts:
                output.counts = {name: int(values[i]) for name, values in counts.items()}
            yield output


@dataclass
class BatchRun:
    """Some outputs under way together."""

    denoiser: Denoiser
    spec: SamplerSpec
    grid: RevealGrid
    outputs: Numbers
    """The indices of the outputs."""
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
        """The number of outputs under way."""
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
    width_of: dict[int, int] = {}
    width = 0
    for positions in sorted({len(canvas.given) for canvas in canvases.prompts}, reverse=True):
        width = width if width and positions >= FULLEST * width else positions
        width_of[positions] = width
    return width_of
