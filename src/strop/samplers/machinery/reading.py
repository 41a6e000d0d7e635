"""How a decoder reads the network: the whole canvas, guided, or through a cache.

A cache is an approximation: the keys and values outside the window are those of the call that
opened the block. `prefix` keeps what lies left of the block and reads the block and all after it;
`dual` keeps everything and reads the block alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from strop.denoisers.base import CachingDenoiser, Denoiser
from strop.denoisers.padding import PaddingDenoiser
from strop.errors import UserError
from strop.samplers.machinery.grid import sigma_of
from strop.samplers.machinery.packed import HEAD_ENTRIES

if TYPE_CHECKING:
    from strop.samplers.machinery.blocks import BlockState
    from strop.samplers.machinery.committing import Turn

Cache = Literal["none", "prefix", "dual"]


Rows = Callable[[Tensor, Tensor], Tensor]
"""Scores [n, V] at (sequence, column) of what was read."""


@dataclass
class View:
    """What one network call showed: some sequences, and the columns from `start` on."""

    rows: Tensor
    """The sequences of the canvas, [R]."""
    start: int
    open: Tensor
    """Where a token may be committed, [R, W]."""
    masked: Tensor
    """Where there is none, [R, W]."""
    inside: Tensor
    """What belongs to the block, [R, W]."""
    windowed: bool
    rounds: Tensor
    """The round of each sequence, from 0: the address of its random numbers, [R]."""
    scores: Rows | None
    vocab_size: int
    extent: Tensor | None = None
    """Where a public code draws though it needs fewer, [R, W]."""

    @classmethod
    def blank(cls, canvas: BlockState, rows: Tensor, candidates: Tensor, turn: Turn) -> View:  # noqa: ARG003
        """Before the network has been asked."""
        here = candidates[rows]
        rounds = canvas.rounds[rows]
        return cls(rows, 0, here, canvas.masked[rows], here, False, rounds, None, 0)

    def logits(self, where: Tensor) -> Tensor:
        """Scores [n, V] at the true cells of `where` [R, W], row by row."""
        return self.at(*torch.nonzero(where, as_tuple=True))

    def at(self, sequence: Tensor, column: Tensor) -> Tensor:
        """Scores [n, V] at some cells: a tensor that the caller may overwrite."""
        if self.scores is None:
            raise RuntimeError("the network has not been asked yet")
        return self.scores(sequence, column)

    def chunks(self, where: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The true cells of `where` and their scores, a bounded number at a time."""
        sequence, column = torch.nonzero(where, as_tuple=True)
        size = max(1, HEAD_ENTRIES // max(1, self.vocab_size))
        for first in range(0, len(sequence), size):
            cells = sequence[first : first + size], column[first : first + size]
            yield *cells, self.at(*cells)


class NetworkReader:
    """The network, as one decoder asks it."""

    def __init__(
        self,
        denoiser: Denoiser,
        given: Tensor,
        *,
        cache: Cache = "none",
        guidance: float = 0.0,
        starts: Tensor | None = None,
    ) -> None:
        self.denoiser, self.cache, self.guidance = denoiser, cache, guidance
        self.starts = None if starts is None or not bool(starts.any()) else starts
        """[B], the columns at which sequences begin that are padded on the left."""
        self.given = given
        """[B, L], the tokens that guidance hides from its second copy."""
        self._memory: Any = None
        self._kept: Tensor | None = None
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
        self, canvas: BlockState, rows: Tensor, inside: Tensor, candidates: Tensor, turn: Turn
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
        )

    def _whole(self, canvas: BlockState, rows: Tensor) -> Rows:
        ids = canvas.ids[rows]
        if self.cached and isinstance(self.denoiser, CachingDenoiser):
            starts = None if self.starts is None else self.starts[rows]
            hidden, self._memory = self.denoiser.remember(ids, starts)
            self._kept = rows
            return lambda sequence, column: self.denoiser.logits(hidden, sequence, column)
        if self.guidance == 0:
            hidden = self._hidden(ids, rows, self._sigma(canvas, rows))
            return lambda sequence, column: self.denoiser.logits(hidden, sequence, column)
        plain = torch.where(self.given[rows], canvas.mask_id, ids)
        both, sigma = torch.cat([ids, plain]), self._sigma(canvas, rows)
        sigma = None if sigma is None else sigma.repeat(2)
        state = self._hidden(both, rows.repeat(2), sigma)

        def guided(sequence: Tensor, column: Tensor) -> Tensor:
            with_prompt = self.denoiser.logits(state, sequence, column)
            without = self.denoiser.logits(state, sequence + len(ids), column)
            return without + (1 + self.guidance) * (with_prompt - without)

        return guided

    def _hidden(self, ids: Tensor, rows: Tensor, sigma: Tensor | None) -> Tensor:
        if self.starts is None:
            return self.denoiser.hidden(ids, sigma)
        if not isinstance(self.denoiser, PaddingDenoiser):
            raise UserError(
                "This model cannot read sequences of different lengths in one batch.",
                where=self.denoiser.source,
                fix="use batches of one length",
            )
        return self.denoiser.padded(ids, self.starts[rows])

    def _window(self, canvas: BlockState, rows: Tensor, inside: Tensor) -> tuple[int, int, Rows]:
        """The window spans the block of all sequences that opened it, and reads them all."""
        denoiser = self.denoiser
        if self._kept is None or self.cache == "none" or not isinstance(denoiser, CachingDenoiser):
            raise RuntimeError("no call has opened this block")
        columns = torch.nonzero(inside[self._kept].any(0))[:, 0]
        start = int(columns[0])
        stop = int(columns[-1]) + 1 if self.cache == "dual" else canvas.ids.shape[1]
        ids = canvas.ids[self._kept, start:stop]
        keep = "dual" if self.cache == "dual" else "prefix"
        hidden = denoiser.window(ids, start, self._memory, keep)
        place = torch.full((len(canvas.ids),), -1, dtype=torch.long, device=rows.device)
        place[self._kept] = torch.arange(len(self._kept), device=rows.device)
        mine = place[rows]
        return start, stop, lambda s, column: self.denoiser.logits(hidden, mine[s], column)

    def _sigma(self, canvas: BlockState, rows: Tensor) -> Tensor | None:
        """For a network that asks for the time: the share of the sequence that is hidden."""
        if not self.denoiser.time_conditioned:
            return None
        return sigma_of(canvas.masked[rows].float().mean(1))
