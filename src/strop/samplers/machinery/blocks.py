"""The one loop behind all blockwise decoders.

A decoder commits tokens at masked positions, block by block and a few at a time, and never takes
one back. Four parts make it one decoder and not another:

- how positions are scored (`drawing`): confidence, margin, entropy, at random, left to right;
- how many are committed (`committing`): a quota, a threshold, a factor, a bound on entropy;
- which block is open (`block_numbers`, here);
- how the draw is made (`drawing`): from a public code's generator, or from addressed numbers.

A `Decoder` is a record over the first two and over the way the network is read (`reading`); the
third is in the `BlockState`, the fourth is handed to `decode`. Given tokens never change.

The same loop has two manners. For users (`public=None`) a sequence takes part in a call only while
its block has masks and something may be committed, so that neither its tokens nor its number of
calls depend on its neighbours, and no mask is left. With `public` the loop keeps the calls, the
candidates and the ends of a public code, leftover masks included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.device import Numbers, Truths, upload
from strop.errors import UserError
from strop.samplers.machinery.committing import Commit, NetworkReader, Turn, View
from strop.samplers.machinery.drawing import NOT_OPEN, Confidence, Draws

PATIENCE = 10
"""Rounds of a block, in multiples of its steps and positions, after which it will never be full."""

Watch = Callable[["BlockState", Truths], None]
"""Called after every round: the canvas, and where a token was committed [B, L]."""


@dataclass
class BlockState:
    """Sequences under way. All but `ids` is on the host."""

    ids: Tensor
    """[B, L] on the device, changed in place; every mask is to be filled."""
    block: Numbers
    """[B, L], the block of each position; -1 belongs to none (a given token)."""
    mask_id: int
    watch: Watch | None = None
    tokens: Numbers = field(init=False)
    """[B, L], `ids` as the host knows them."""
    calls: Numbers = field(init=False)
    """[B], the network calls that each sequence took part in."""
    positions: Numbers = field(init=False)
    """[B], the positions that the network computed for each, all calls together."""
    rounds: Numbers = field(init=False)
    """[B], the rounds that each has seen, calls or not: the address of its random numbers."""
    total: int = field(default=0, init=False)
    """The number of network calls so far."""
    chance: Tensor = field(init=False)
    """[B, L] on the device, how likely each token was when it was committed."""
    order: Numbers = field(init=False)
    """[B, L], the call (from 1) after which the token stood there; 0 was given, -1 is a mask."""

    def __post_init__(self) -> None:
        self.tokens = self.ids.cpu().numpy().copy()  # waits
        self.calls, self.rounds, self.positions = np.zeros((3, len(self.ids)), np.int64)
        self.order = np.where(self.masked, -1, 0)
        self.chance = torch.full(self.ids.shape, torch.nan, device=self.ids.device)

    @property
    def masked(self) -> Truths:
        """[B, L], where a token is missing."""
        return self.tokens == self.mask_id

    @property
    def blocks(self) -> int:
        """The number of blocks of the longest sequence."""
        return int(self.block.max(initial=-1)) + 1

    def put(self, view: View, moved: Tensor, tokens: Tensor) -> None:
        """Commit `tokens` [R, W] where `moved` [R, W] says so; the host waits to learn of it."""
        rows = upload(view.rows, self.ids.device)
        columns = slice(view.start, view.start + moved.shape[1])
        after = torch.where(moved, tokens, self.ids[rows, columns])
        self.ids[rows, columns] = after
        if view.chance is not None:
            now = torch.where(moved, view.chance, self.chance[rows, columns])
            self.chance[rows, columns] = now
        before = self.tokens.copy()
        self.tokens[view.rows, columns] = after.cpu().numpy()  # waits
        changed = self.tokens != before
        self.order[changed] = np.where(self.masked, -1, self.calls[:, None])[changed]
        if self.watch is not None:
            self.watch(self, changed)


@dataclass(frozen=True)
class Public:
    """The habits of a public code, for its literal form."""

    until: Literal["steps", "full", "capped", "twice"] = "full"
    """When a block ends: after its steps; once it is full, after at least one call; the same, or
    after its steps; once it is full, after at least two calls."""
    erases: bool = False
    """Whether a position chosen where there was nothing to fill becomes a mask."""


@dataclass(frozen=True)
class Decoder:
    """One decoder: a record over the parts."""

    score: Confidence
    commit: Commit
    opening: bool = False
    """Whether the call that refreshes the cache commits the block's first position, and only it."""
    public: Public | None = None


def block_numbers(open_: Truths, length: int) -> Numbers:
    """Blocks of `length` open positions each, counted in every sequence by itself; [B, L].

    After a prompt they are runs of neighbours, as in the public codes. Gaps are counted through.
    """
    rank = open_.cumsum(-1) - 1
    return np.where(open_, rank // length, -1)


def spans(batch: int, prompt: int, total: int, length: int) -> Numbers:
    """The public codes' blocks: runs of `length` after `prompt` positions; [B, L]."""
    position = np.arange(total) - prompt
    return np.tile(np.maximum(position // length, -1), (batch, 1))


def block_steps(steps: int, blocks: int) -> list[int]:
    """`steps` shared out among the blocks, the earlier ones first, each at least one."""
    return [max(1, steps // blocks + (b < steps % blocks)) for b in range(blocks)]


def decode(
    decoder: Decoder, canvas: BlockState, reader: NetworkReader, draws: Draws, steps: int
) -> Tensor:
    """Fill the canvas; its ids, which are changed in place."""
    shares = block_steps(steps, max(1, canvas.blocks))
    for block in range(canvas.blocks):
        if decoder.public is None:
            for rows in _groups(canvas.block == block, apart=reader.cached):
                _for_users(decoder, canvas, reader, draws, block, shares[block], rows)
        else:
            _as_published(decoder, decoder.public, canvas, reader, draws, block, shares[block])
    return canvas.ids


def _as_published(
    decoder: Decoder,
    public: Public,
    canvas: BlockState,
    reader: NetworkReader,
    draws: Draws,
    block: int,
    steps: int,
) -> None:
    """All sequences take part in every call of a block."""
    rows = np.arange(len(canvas.ids))
    inside = canvas.block == block
    turn = Turn(rows, steps, (canvas.masked & inside).sum(1))
    commit = decoder.commit.begin(turn)
    while _goes_on(public, commit, turn, int((canvas.masked & inside).sum())):
        # Reading the whole canvas, masks left of the block compete as well.
        candidates = canvas.masked & (inside if reader.windowed(turn) else canvas.block <= block)
        view = reader.read(canvas, rows, inside, candidates, turn)
        _count(canvas, reader, view)
        if commit.ends_after_call(turn):
            break
        moved, tokens = _settle(decoder, commit, view, draws, turn)
        if public.erases:
            tokens = torch.where(view.opened, tokens, canvas.mask_id)
        else:
            moved = moved & view.opened
        canvas.put(view, moved, tokens)
        turn.round += 1
        if turn.round > PATIENCE * (steps + canvas.ids.shape[1]):
            raise UserError(
                "The public code would never end: it commits masks.",
                got=f"{turn.round} rounds in a block",
                fix="use `implementation=fast`, which never draws the mask",
            )


def _goes_on(public: Public, commit: Commit, turn: Turn, left: int) -> bool:
    steps = commit.extended(turn)
    if public.until == "steps":
        return turn.round < steps
    if turn.round < (2 if public.until == "twice" else 1):
        return True
    return left > 0 and (public.until != "capped" or turn.round < steps)


def _groups(inside: Truths, *, apart: bool) -> list[Numbers]:
    """The sequences that have the block; `apart`, those whose blocks span the same columns.

    A cache is read through one window for all, which must not depend on who else is there.
    """
    rows = np.flatnonzero(inside.any(1))
    if not apart or not len(rows):
        return [rows]
    block = inside[rows]
    ends = np.stack([block.argmax(1), block[:, ::-1].argmax(1)], 1)
    kinds, number = np.unique(ends, axis=0, return_inverse=True)
    return [rows[number.ravel() == kind] for kind in range(len(kinds))]


def _for_users(
    decoder: Decoder,
    canvas: BlockState,
    reader: NetworkReader,
    draws: Draws,
    block: int,
    steps: int,
    everyone: Numbers,
) -> None:
    """A sequence takes part while there is something to commit; the block ends full."""
    inside = canvas.block == block
    started = (canvas.masked & inside).sum(1)
    turn = Turn(everyone, steps, started[everyone])
    commit = decoder.commit.begin(turn)
    while (canvas.masked & inside)[everyone].any():
        # The cache is filled for all, needed or not; so is the block's first position.
        opens = (reader.cached or decoder.opening) and turn.round == 0
        left = (canvas.masked & inside).sum(1)
        rows = everyone if opens else everyone[left[everyone] > 0]
        row_turn = turn.of(rows, started[rows])
        candidates = canvas.masked & inside
        chosen = None
        if decoder.score.blind and not (opens and decoder.opening):
            blank = View.blank(canvas, rows, candidates)
            value = _value(decoder.score, blank, draws)
            chosen = commit.choose(value, blank, row_turn, draws).numpy()
            keep = chosen.any(1) | opens
        else:
            quota = commit.quota(row_turn, left[rows])
            keep = np.ones(len(rows), bool) if quota is None else (quota > 0) | opens
        read_rows = rows[keep]
        if len(read_rows):
            row_turn = turn.of(read_rows, started[read_rows])
            view = reader.read(canvas, read_rows, inside, candidates, row_turn)
            _count(canvas, reader, view)
            if chosen is None:
                moved, tokens = _settle(decoder, commit, view, draws, row_turn)
            else:
                columns = slice(view.start, view.start + view.open.shape[1])
                now = chosen[keep][:, columns]
                moved, tokens = upload(now, view.device), draws.tokens(view, now)
            canvas.put(view, moved & view.opened, tokens)
        canvas.rounds[rows] += 1
        turn.round += 1


def _count(canvas: BlockState, reader: NetworkReader, view: View) -> None:
    canvas.total += 1
    canvas.calls[view.rows] += 1
    canvas.positions[view.rows] += view.open.shape[1] * (2 if reader.guidance else 1)


def _settle(
    decoder: Decoder, commit: Commit, view: View, draws: Draws, turn: Turn
) -> tuple[Tensor, Tensor]:
    """Where to commit, and what: two tables [R, W]."""
    if decoder.opening and turn.round == 0:
        in_block = view.open & view.inside
        first = in_block & (in_block.cumsum(1) == 1)
        view.extent = np.ones_like(view.open)
        return upload(first, view.device), draws.tokens(view, first)
    if decoder.score.blind and not decoder.score.late:
        moved = commit.choose(_value(decoder.score, view, draws), view, turn, draws)
        return moved, draws.tokens(view, moved.cpu().numpy() & view.open)  # waits
    tokens, value = draws.propose(view, decoder.score)
    if decoder.score.blind:
        value = _value(decoder.score, view, draws)
    return commit.choose(value, view, turn, draws), tokens


def _value(score: Confidence, view: View, draws: Draws) -> Tensor:
    """Scores that need no network, `NOT_OPEN` where nothing is open."""
    if score.kind == "left":
        position = torch.arange(view.open.shape[1], device=view.device)
        value = -position.double().expand_as(view.opened)
    else:
        value = draws.numbers(view)
    return torch.where(view.opened, value, NOT_OPEN)
