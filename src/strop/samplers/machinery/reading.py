"""How a decoder reads the network: the whole canvas, guided, or through a cache.

A cache is an approximation: the keys and values outside the window are those of the call that
opened the block. `prefix` keeps what lies left of the block and reads the block and all after it;
`dual` keeps everything and reads the block alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.base import CachingDenoiser, Denoiser, PaddingDenoiser
from strop.denoisers.device import Numbers, Truths, head_rows, upload, upload_rows
from strop.errors import UserError
from strop.samplers.machinery.start import sigma_of

if TYPE_CHECKING:
    from strop.samplers.machinery.blocks import BlockState
    from strop.samplers.machinery.committing import Turn

Cache = Literal["none", "prefix", "dual"]


HOST = torch.device("cpu")
Rows = Callable[[Numbers, Numbers], Tensor]
"""Scores [n, V] at (sequence, column) of what was read."""


@dataclass
class View:
    """What one network call showed: some sequences, and the columns from `start` on.

    What the host knows stays there; only scores are on the device.
    """

    rows: Numbers
    """The sequences of the canvas, [R]."""
    start: int
    open: Truths
    """Where a token may be committed, [R, W]."""
    masked: Truths
    """Where there is none, [R, W]."""
    inside: Truths
    """What belongs to the block, [R, W]."""
    windowed: bool
    rounds: Numbers
    """The round of each sequence, from 0: the address of its random numbers, [R]."""
    scores: Rows | None
    vocab_size: int
    device: torch.device = HOST
    """Where the scores are, and the tables made of them."""
    at_once: int = 4096
    """Rows of scores that are computed at a time."""
    extent: Truths | None = None
    """Where a public code draws though it needs fewer, [R, W]."""
    chance: Tensor | None = None
    """How likely the law that they are drawn from makes the tokens drawn here, [R, W]."""

    @classmethod
    def blank(cls, canvas: BlockState, rows: Numbers, candidates: Truths) -> View:
        """Before the network has been asked: all of it is on the host."""
        here = candidates[rows]
        rounds = canvas.rounds[rows]
        return cls(rows, 0, here, canvas.masked[rows], here, False, rounds, None, 0)

    @cached_property
    def opened(self) -> Tensor:
        """`open` on the device."""
        return upload(self.open, self.device)

    def logits(self, where: Truths) -> Tensor:
        """Scores [n, V] at the true cells of `where` [R, W], row by row."""
        return self.at(*np.nonzero(where))

    def at(self, sequence: Numbers, column: Numbers) -> Tensor:
        """Scores [n, V] at some cells: a tensor that the caller may overwrite."""
        if self.scores is None:
            raise RuntimeError("the network has not been asked yet")
        return self.scores(sequence, column)

    def chunks(self, where: Truths) -> Iterator[tuple[Numbers, Numbers, Tensor]]:
        """The true cells of `where` and their scores, a bounded number at a time."""
        sequence, column = np.nonzero(where)
        for first in range(0, len(sequence), self.at_once):
            part = slice(first, first + self.at_once)
            yield sequence[part], column[part], self.at(sequence[part], column[part])


class NetworkReader:
    """The network, as one decoder asks it."""

    def __init__(
        self,
        denoiser: Denoiser,
        given: Truths,
        *,
        cache: Cache = "none",
        guidance: float = 0.0,
        starts: Numbers | None = None,
    ) -> None:
        self.denoiser, self.cache, self.guidance = denoiser, cache, guidance
        self.starts = None if starts is None or not starts.any() else starts
        """[B], the columns at which sequences begin that are padded on the left."""
        self.given = given
        """[B, L], the tokens that guidance hides from its second copy."""
        self._memory: Any = None
        self._kept: Numbers | None = None
        self._at_once = head_rows(denoiser.vocab_size, denoiser.device)
        if cache != "none" and not isinstance(denoiser, CachingDenoiser):
            raise UserError(
                "This model cannot read through a cache.",
                where=denoiser.source,
                got=f"cache={cache!r}",
                fix="use `cache=none`",
            )
        if cache != "none" and guidance:
            raise UserError(
                "Guidance and a cache do not go together.",
                got=f"cfg_scale={guidance:g}, cache={cache!r}",
                fix="use `cache=none`, or leave `cfg_scale` at 0",
            )

    @property
    def cached(self) -> bool:
        """Whether the first call of a block fills a cache."""
        return self.cache != "none"

    def windowed(self, turn: Turn) -> bool:
        """Whether the call of this round reads a window."""
        return self.cached and turn.round > 0

    def read(
        self, canvas: BlockState, rows: Numbers, inside: Truths, candidates: Truths, turn: Turn
    ) -> View:
        """One call of the network for the sequences `rows`."""
        start, stop = 0, canvas.ids.shape[1]
        if self.windowed(turn):
            start, stop, scores = self._window(canvas, rows, inside)
        else:
            scores = self._whole(canvas, rows)
        columns = slice(start, stop)
        return View(
            rows,
            start,
            candidates[rows, columns],
            canvas.masked[rows, columns],
            inside[rows, columns],
            self.windowed(turn),
            canvas.rounds[rows],
            scores,
            self.denoiser.vocab_size,
            self.denoiser.device,
            self._at_once,
        )

    def _scores(self, hidden: Tensor, sequence: Numbers, column: Numbers) -> Tensor:
        rows = upload_rows(self.denoiser.device, sequence, column)
        return self.denoiser.logits(hidden, *rows)

    def _whole(self, canvas: BlockState, rows: Numbers) -> Rows:
        ids = canvas.ids[upload(rows, canvas.ids.device)]
        if self.cached and isinstance(self.denoiser, CachingDenoiser):
            hidden, self._memory = self.denoiser.remember(ids, self._starts(rows))
            self._kept = rows
            return partial(self._scores, hidden)
        if self.guidance == 0:
            hidden = self._hidden(ids, rows, self._sigma(canvas, rows))
            return partial(self._scores, hidden)
        plain = torch.where(upload(self.given[rows], ids.device), canvas.mask_id, ids)
        both, sigma = torch.cat([ids, plain]), self._sigma(canvas, rows)
        sigma = None if sigma is None else sigma.repeat(2)
        state = self._hidden(both, np.tile(rows, 2), sigma)

        def guided(sequence: Numbers, column: Numbers) -> Tensor:
            with_prompt = self._scores(state, sequence, column)
            without = self._scores(state, sequence + len(ids), column)
            return without + (1 + self.guidance) * (with_prompt - without)

        return guided

    def _starts(self, rows: Numbers) -> Tensor | None:
        if self.starts is None or not self.starts[rows].any():
            return None  # without a mask the network keeps its fast attention kernel
        return upload_rows(self.denoiser.device, self.starts[rows])[0]

    def _hidden(self, ids: Tensor, rows: Numbers, sigma: Tensor | None) -> Tensor:
        starts = self._starts(rows)
        if starts is None:
            return self.denoiser.hidden(ids, sigma)
        if not isinstance(self.denoiser, PaddingDenoiser):
            raise UserError(
                "This model cannot read sequences of different lengths in one batch.",
                where=self.denoiser.source,
                fix="use batches of one length",
            )
        return self.denoiser.padded(ids, starts)

    def _window(self, canvas: BlockState, rows: Numbers, inside: Truths) -> tuple[int, int, Rows]:
        """The window spans the block of all sequences that opened it, and reads them all."""
        denoiser = self.denoiser
        if self._kept is None or self.cache == "none" or not isinstance(denoiser, CachingDenoiser):
            raise RuntimeError("no call has opened this block")
        columns = np.flatnonzero(inside[self._kept].any(0))
        start = int(columns[0])
        stop = int(columns[-1]) + 1 if self.cache == "dual" else canvas.ids.shape[1]
        ids = canvas.ids[upload(self._kept, canvas.ids.device), start:stop]
        keep = "dual" if self.cache == "dual" else "prefix"
        hidden = denoiser.window(ids, start, self._memory, keep)
        place = np.full(len(canvas.ids), -1)
        place[self._kept] = np.arange(len(self._kept))
        mine = place[rows]
        return start, stop, lambda s, column: self._scores(hidden, mine[s], column)

    def _sigma(self, canvas: BlockState, rows: Numbers) -> Tensor | None:
        """For a network that asks for the time: the share of the sequence that is hidden."""
        if not self.denoiser.time_conditioned:
            return None
        hidden_share = torch.from_numpy(canvas.masked[rows]).float().mean(1)
        return upload(sigma_of(hidden_share).numpy(), self.denoiser.device)
