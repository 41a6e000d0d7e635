"""The one loop behind the decoders of block models: finished blocks on the left, one open block.

A block model reads from left to right by blocks, so that what is finished never changes and is read
once (`BlockReader`). `fill_blocks` is the loop for users: a sequence takes part in a call while its
block has masks, or while its last look still edited; neither its tokens nor its number of calls
depend on its neighbours, and given tokens stay. The call that opens a block also reads what was
finished before it, so that nothing is called for storing alone. The public codes' loops are in
`public_blocks`; they use the same reader, and store as they do.

Blocks count from the first column of the text, prompt included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.base import BlockDenoiser, Denoiser
from strop.denoisers.device import Numbers, Truths, upload, upload_rows
from strop.samplers.machinery.blocks import BlockState
from strop.samplers.machinery.categorical import log_share
from strop.samplers.machinery.committing import NetworkReader, Rows, Turn, View, best
from strop.samplers.machinery.drawing import NOT_OPEN, AddressedDraws, Confidence, rule_out

Stop = Literal["never", "block", "early"]
"""What an end of text does: nothing; end the sequence after its block; or as soon as everything
before it is known."""
DRAWN = Confidence("confidence", tempered=True)
BLIND = ("left", "random")


class BlockReader:
    """A network over a batch of texts of which the first `kept` columns are remembered."""

    def __init__(self, denoiser: BlockDenoiser, block: int, seen: Tensor | None = None) -> None:
        self.denoiser, self.block = denoiser, block
        self.seen = seen
        """[B, L], the keys that may be seen; None: all."""
        self.calls = 0
        self._memory: Any = None

    @property
    def kept(self) -> int:
        """The number of remembered columns."""
        return 0 if self._memory is None else self._memory.columns

    def read(self, ids: Tensor, end: int, *, keep: int, block: int | None = None) -> Tensor:
        """One call: states of the columns from `kept` to `end`; then `keep` are remembered."""
        states, memory = self._call(ids, end, self._memory, keep, block)
        if keep != self.kept:
            self._memory = memory
        return states

    def read_some(self, ids: Tensor, rows: Tensor, end: int) -> Tensor:
        """The same for some of the sequences, of which nothing more is remembered."""
        memory = None if self._memory is None else self._memory.of(rows)
        return self._call(ids, end, memory, self.kept, None)[0]

    def narrow(self, rows: Tensor) -> None:
        """Forget all sequences but some."""
        if self._memory is not None:
            self._memory = self._memory.of(rows)

    def logits(self, states: Tensor) -> Tensor:
        """Float32 scores [B, n, V] of all columns of a call."""
        rows = np.divmod(np.arange(states.shape[0] * states.shape[1]), states.shape[1])
        scores = self.denoiser.logits(states, *upload_rows(states.device, *rows))
        return scores.unflatten(0, (states.shape[0], states.shape[1]))

    def _call(
        self, ids: Tensor, end: int, memory: Any, keep: int, block: int | None
    ) -> tuple[Tensor, Any]:
        self.calls += 1
        first = 0 if memory is None else memory.columns
        seen = None if self.seen is None else self.seen[:, :end]
        return self.denoiser.advance(
            ids[:, first:end], memory, block=block or self.block, keep=keep, seen=seen
        )


@dataclass(frozen=True)
class BlockRules:
    """One block decoder, for users."""

    block: int
    steps: int | Numbers = 1
    """Calls over which a block's quota is spread, for all or of each sequence."""
    quota: int | None = None
    """Positions that a call commits at least; None: the block's length over `steps`."""
    threshold: float = np.inf
    """All positions with a higher score are committed, if they are no fewer than the quota."""
    order: str = "confidence"
    """Who comes first: the likeliest draws, or, chosen before anything is drawn, left or random."""
    sub: int = 0
    """Positions of a block that may be committed at a time, from left to right; 0: all."""
    editing: float = np.inf
    """Committed tokens become the drawn one if it differs and has a higher probability."""
    post_steps: int = 0
    """Calls after a block is full, as long as they edit; none without editing."""
    first: str = "argmax"
    """Of a shifted network: how the first token of a block is made of the text before it."""
    top_k: int = 0
    stop: Stop = "never"

    @property
    def edits(self) -> bool:
        """Whether tokens are taken back."""
        return self.editing < 1

    def due(self, call: Numbers) -> Numbers:
        """The quota of a block's call, by its number from 0."""
        if self.quota is not None:
            return np.full_like(call, self.quota)
        return quota_at(self.block, self.steps, call)


def quota_at(block: int, steps: int | Numbers, call: Numbers) -> Numbers:
    """A block's positions over the calls, the earlier ones first: the public codes' schedule."""
    return block // steps + (call < block % steps)


def block_quota(block: int, steps: int) -> list[int]:
    """All of it."""
    return quota_at(block, steps, np.arange(steps)).tolist()


class OpenBlockReader(NetworkReader):
    """A network of blocks, for loops over masks: what is before the open block is kept."""

    def __init__(self, denoiser: BlockDenoiser, given: Truths, size: int) -> None:
        super().__init__(denoiser, given)
        self.blocks, self._open = BlockReader(denoiser, size), -1
        self.held = np.arange(len(given))
        """The sequences that are remembered."""

    def windowed(self, turn: Turn) -> bool:  # noqa: ARG002
        """Every call shows the open block alone."""
        return True

    def narrow(self, alive: Numbers) -> None:
        """Forget all sequences but these."""
        if len(alive) < len(self.held):
            self.blocks.narrow(upload(np.searchsorted(self.held, alive), self.denoiser.device))
            self.held = alive

    def _window(self, canvas: BlockState, rows: Numbers, inside: Truths) -> tuple[int, int, Rows]:
        """One call; the first of a block reads those before it as well, and is for everyone:
        whoever has no mask here may have one in the next block."""
        size, ids = self.blocks.block, canvas.ids
        start = int(np.flatnonzero(inside.any(0))[0]) // size * size
        stop, before = min(start + size, ids.shape[1]), self.blocks.kept
        read_rows = rows if self._open == start else self.held
        self._open = start
        row_ids = ids[upload(read_rows, ids.device)]
        if len(read_rows) == len(self.held):
            states = self.blocks.read(row_ids, stop, keep=start)
        else:
            at_device = upload(np.searchsorted(self.held, rows), ids.device)
            states = self.blocks.read_some(row_ids, at_device, stop)
        index = np.searchsorted(read_rows, rows)

        def scores(sequence: Numbers, column: Numbers) -> Tensor:
            return self._scores(states, index[sequence], column + start - before)

        return start, stop, scores


def reader_of(denoiser: Denoiser, given: Truths, block: int) -> NetworkReader:
    """Block by block where the network reads so; else all of the canvas, masks behind included."""
    if isinstance(denoiser, BlockDenoiser):
        return OpenBlockReader(denoiser, given, block)
    return NetworkReader(denoiser, given)


@dataclass
class _Filling:
    """The state of the loop."""

    reader: NetworkReader
    canvas: BlockState
    rules: BlockRules
    draws: AddressedDraws
    opened: Truths
    """[B, L], what was not given."""
    stops: Sequence[int]
    counts: dict[str, Numbers]
    """[B] each: `blocks` that were opened, and `edits`, tokens taken back."""
    alive: Numbers
    """The sequences that have not ended."""

    def block(self, start: int, end: int) -> None:
        """All rounds of a block."""
        rules, canvas, alive = self.rules, self.canvas, self.alive
        if isinstance(self.reader, OpenBlockReader):
            self.reader.narrow(alive)
        self.counts["blocks"][alive] += canvas.masked[alive, start:end].any(1)
        if getattr(self.reader.denoiser, "shifted", False):
            self._first(start, end)
        for first in range(start, end, rules.sub or rules.block):
            inside = np.zeros_like(self.opened)
            inside[:, first : min(first + (rules.sub or rules.block), end)] = True
            call, post = np.zeros((2, len(canvas.ids)), np.int64)
            looking = np.zeros(len(canvas.ids), bool)
            while len(rows := self._needy(inside, looking)):
                full = np.asarray(~(canvas.masked & inside).any(1))
                edited = self._round(rows, end, inside, rules.due(call))
                post[rows] += full[rows]
                call[rows] += 1
                if rules.edits:
                    settled = full[rows] & ~edited
                    looking[rows] = ~settled & (post[rows] < rules.post_steps)
                if rules.stop == "early":
                    self._stop(end)
        if rules.stop == "block":
            self._stop(end)

    def _needy(self, inside: Truths, looking: Truths) -> Numbers:
        return self.alive[((self.canvas.masked & inside).any(1) | looking)[self.alive]]

    def _look(self, rows: Numbers, end: int, where: Truths) -> View:
        """One call; scores at the cells of `where` [B, L]."""
        canvas, read = self.canvas, self.canvas.ids.shape[1]
        if isinstance(self.reader, OpenBlockReader):
            read = end - self.reader.blocks.kept
        canvas.total += 1
        canvas.calls[rows] += 1
        canvas.positions[rows] += read
        view = self.reader.read(canvas, rows, where, where, Turn(rows, 1, where.sum(1)))
        return self._cut(view)

    def _first(self, start: int, end: int) -> None:
        """A shifted network scores a block's first position from what is before the block."""
        canvas, rules = self.canvas, self.rules
        rows = self.alive[canvas.masked[self.alive, start]]
        if not len(rows):
            return
        where = np.zeros_like(self.opened)
        where[:, start] = True
        view = self._look(rows, end, where)
        if rules.first == "argmax":
            logits = view.logits(view.open)
            rule_out(logits, [canvas.mask_id])
            tokens = torch.zeros(view.open.shape, dtype=torch.long, device=view.device)
            tokens[:, 0] = logits.argmax(-1)
            view.chance = log_share(logits, tokens[:, 0])[:, None].expand(tokens.shape)
        else:
            tokens = self.draws.tokens(view, view.open)
        self._put(view, view.opened, tokens)
        if rules.stop == "early":
            self._stop(end)

    def _round(self, rows: Numbers, end: int, inside: Truths, due: Numbers) -> Truths:
        """One call for `rows`; returns which of them edited a token."""
        canvas, rules = self.canvas, self.rules
        masks = canvas.masked & inside
        editable = self.opened & inside & ~masks if rules.edits else np.zeros_like(masks)
        view = self._look(rows, end, masks | editable)
        columns = slice(view.start, view.start + view.open.shape[1])
        open_ = upload(masks[rows, columns], view.device)
        quota = np.minimum(due[rows], masks[rows].sum(1))
        if rules.order in BLIND:
            moved = best(self._blind(view, open_), quota, "leftmost") & open_
            drawn_at = moved.cpu().numpy() | editable[rows, columns]  # waits
            tokens = self.draws.tokens(view, drawn_at & view.open)
        else:
            tokens, value = self.draws.propose(view, DRAWN)
            value_here = torch.where(open_, value, NOT_OPEN)
            high = value_here > rules.threshold
            enough = high.sum(1) >= upload(quota, view.device)
            top = best(value_here, quota, "leftmost") & open_
            moved = torch.where(enough[:, None], high, top)
            if rules.edits:
                now = upload(canvas.tokens[rows, columns], view.device)
                taken = upload(editable[rows, columns], view.device) & (value > rules.editing)
                taken &= tokens != now
                self._put(view, moved | taken, tokens)
                many = taken.sum(1).cpu().numpy()  # waits
                self.counts["edits"][rows] += many
                return many > 0
        self._put(view, moved, tokens)
        return np.zeros(len(rows), bool)

    def _blind(self, view: View, open_: Tensor) -> Tensor:
        if self.rules.order == "left":
            position = torch.arange(open_.shape[1], device=view.device)
            return torch.where(open_, -position.double(), NOT_OPEN)
        return torch.where(open_, self.draws.numbers(view), NOT_OPEN)

    def _cut(self, view: View) -> View:
        """The public codes keep the best k tokens before they cut by mass."""
        scores, k, mask_id = view.scores, self.rules.top_k, self.canvas.mask_id
        if scores is None or not k:
            return view

        def top_scores(sequence: Numbers, column: Numbers) -> Tensor:
            logits = scores(sequence, column)
            rule_out(logits, [mask_id])
            least = logits.topk(min(k, logits.shape[-1])).values[:, -1:]
            return logits.masked_fill(logits < least, -torch.inf)

        view.scores = top_scores
        return view

    def _put(self, view: View, moved: Tensor, tokens: Tensor) -> None:
        self.canvas.put(view, moved, tokens)
        self.canvas.rounds[view.rows] += 1

    def _stop(self, end: int) -> None:
        """Leave the sequences that have ended."""
        if len(self.stops):
            self.alive = self.alive[~self._ended(end)[self.alive]]

    def _ended(self, end: int) -> Truths:
        stops_at = np.isin(self.canvas.tokens, self.stops) & self.opened
        stops_at[:, end:] = False
        masks = self.canvas.masked & self.opened
        before = masks.cumsum(1) == 0
        return np.asarray((stops_at & before).any(1))


def fill_blocks(
    denoiser: Denoiser,
    canvas: BlockState,
    rules: BlockRules,
    draws: AddressedDraws,
    stops: Sequence[int] = (),
) -> dict[str, Numbers]:
    """Fill every mask of the canvas, block by block; what was counted (`_Filling.counts`).

    Behind the first end of a sequence everything that was not given becomes that token, whether it
    was decoded or not: a public code cuts there.
    """
    opened = canvas.masked
    counts = {name: np.zeros(len(canvas.ids), np.int64) for name in ("blocks", "edits")}
    reader, everyone = reader_of(denoiser, ~opened, rules.block), np.arange(len(canvas.ids))
    filling = _Filling(reader, canvas, rules, draws, opened, stops, counts, everyone)
    for start in range(0, canvas.ids.shape[1], rules.block):
        if not len(filling.alive):
            break
        filling.block(start, min(start + rules.block, canvas.ids.shape[1]))
    end_rows(canvas, opened, stops)
    draws.confirm.refuse_infinite()
    return counts


def end_rows(canvas: BlockState, opened: Truths, stops: Sequence[int]) -> None:
    """Repeat the first end of every sequence to its last open column."""
    ends = np.logical_and(np.isin(canvas.tokens, stops), opened)
    first = ends.argmax(1)
    behind = (
        ends.any(axis=1, keepdims=True) & (np.arange(opened.shape[1]) > first[:, None]) & opened
    )
    token = canvas.tokens[np.arange(len(first)), first]
    canvas.tokens = np.where(behind, token[:, None], canvas.tokens)
    canvas.ids = upload(canvas.tokens, canvas.ids.device)
