"""How a decoder reads the network, and how many positions it commits in a round, and which.

`LockstepRun` is the fast loop for laws that need the network in nearly every update.
Time-conditioned networks cannot skip ahead, so the sequences of a batch go through the updates
together. What is saved: the head runs only at rows whose outcome is open, a bounded number at a
time; random numbers have an address (output, update, position), so that nothing depends on which
sequences share a batch, except the last bits of a matrix product.

A `NetworkReader` reads the whole canvas, guided, or through a cache. A cache is an approximation:
the keys and values outside the window are those of the call that opened the block. `prefix` keeps
what lies left of the block and reads the block and all after it; `dual` keeps everything and reads
the block alone.

A `Commit` says how many positions are committed; mostly the best by score are chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.base import CachingDenoiser, Denoiser, PaddingDenoiser
from strop.denoisers.device import Numbers, Truths, head_rows, upload, upload_rows
from strop.errors import UserError
from strop.pool import Output
from strop.rng import Stream
from strop.samplers.machinery.categorical import Normalisers
from strop.samplers.machinery.lattice import Address
from strop.samplers.machinery.packed import FastDraw, FastSampler
from strop.samplers.machinery.start import BatchRun, reveal_grid, sigma_of

if TYPE_CHECKING:
    from strop.samplers.machinery.blocks import BlockState
    from strop.samplers.machinery.drawing import Draws


# --------------------------------------------------------------------------------------- lockstep


@dataclass
class LockstepRun(BatchRun):
    """Some outputs under way together; their numbers have addresses."""

    seed: int = field(kw_only=True)
    calls: Numbers = field(init=False)
    """Per output, the network calls it took part in."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.calls = np.zeros(self.batch, np.int64)
        self.stream, self.confirm = Stream(self.seed, self.spec.name), Normalisers()
        self._rows = head_rows(self.denoiser.vocab_size, self.denoiser.device)

    def upload(self, array: np.ndarray) -> Tensor:
        """The array where the sequences are."""
        return upload(array, self.denoiser.device)

    def address(self, slots: Numbers, update: int, position: Numbers) -> Address:
        """Where the random numbers of these positions lie in an update."""
        open_index = self.begin.place[slots, position]
        return Address(self.outputs[slots], np.full(len(slots), update), open_index)

    def hidden(self, ids: Tensor, slots: Numbers, sigma: Tensor, *, blank: bool = False) -> Tensor:
        """States of the sequences `slots` at one noise level; `blank` ones share a pass."""
        self.calls[slots] += 1
        slot_ids = ids[self.upload(slots)]
        if len(slots) > 1 and blank:
            state = self._network(slot_ids[:1], sigma)
            return state.expand(len(slots), *state.shape[1:])
        starts = self.begin.columns(slots, ids.device)
        if starts is not None:
            return cast(PaddingDenoiser, self.denoiser).padded(slot_ids, starts)
        return self._network(slot_ids, sigma)

    def _network(self, ids: Tensor, sigma: Tensor) -> Tensor:
        return self.denoiser.hidden(ids, self.upload(np.full(len(ids), sigma.numpy())))

    def rows(
        self, hidden: Tensor, where: Numbers, position: Numbers
    ) -> Iterator[tuple[slice, Tensor]]:
        """Logits at the rows (where, position) of a state, a bounded number at a time."""
        for start in range(0, len(where), self._rows):
            part = slice(start, min(start + self._rows, len(where)))
            rows = upload_rows(self.denoiser.device, where[part], position[part])
            yield part, self.denoiser.logits(hidden, *rows)

    def uniform(self, slots: Numbers, update: int, position: Numbers, number: int) -> np.ndarray:
        """Random number `number` of a position in an update."""
        return self.stream.uniform(*self.address(slots, update, position), number)

    def put(self, ids: Tensor, slots: Numbers, position: Numbers, token: Numbers) -> None:
        """Write tokens at some positions."""
        at = upload_rows(ids.device, slots, position, token)
        ids[at[0], at[1]] = at[2]


LockstepSampler = Callable[[LockstepRun], Tensor]
"""Ids [B, L] from a run."""


def lockstep(sampler: LockstepSampler) -> FastSampler:
    """The fast sampler that goes through the outputs batch by batch."""

    def run(draw: FastDraw) -> Iterator[Output]:
        waiting = iter(draw.outputs)
        denoiser, grid = cast(Denoiser, draw.model), reveal_grid(draw.spec)
        while len(numbers := np.fromiter(islice(waiting, draw.slots), np.int64)):
            batch = LockstepRun(
                denoiser,
                draw.spec,
                grid,
                numbers,
                draw.length,
                draw.on_step,
                draw.canvases,
                seed=draw.seed,
            )
            ids = sampler(batch)
            yield from batch.done(*batch.confirm.fetched(ids, batch.trace.chance), batch.calls)

    return run


# ---------------------------------------------------------------------------------------- reading

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
        row_candidates = candidates[rows]
        rounds = canvas.rounds[rows]
        return cls(
            rows, 0, row_candidates, canvas.masked[rows], row_candidates, False, rounds, None, 0
        )

    @cached_property
    def opened(self) -> Tensor:
        """The table `open` on the device."""
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
            scores = self._canvas_scores(canvas, rows)
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

    def _canvas_scores(self, canvas: BlockState, rows: Numbers) -> Rows:
        ids = canvas.ids[upload(rows, canvas.ids.device)]
        if self.cached and isinstance(self.denoiser, CachingDenoiser):
            hidden, self._memory = self.denoiser.remember(ids, self._starts(rows))
            self._kept = rows
            return partial(self._scores, hidden)
        if self.guidance == 0:
            hidden = self._hidden(ids, rows, self._sigma(canvas, rows))
            return partial(self._scores, hidden)
        plain = torch.where(upload(self.given[rows], ids.device), canvas.mask_id, ids)
        doubled, sigma = torch.cat([ids, plain]), self._sigma(canvas, rows)
        sigma = None if sigma is None else sigma.repeat(2)
        state = self._hidden(doubled, np.tile(rows, 2), sigma)

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
        kept_index = np.full(len(canvas.ids), -1)
        kept_index[self._kept] = np.arange(len(self._kept))
        row_index = kept_index[rows]
        return start, stop, lambda s, column: self._scores(hidden, row_index[s], column)

    def _sigma(self, canvas: BlockState, rows: Numbers) -> Tensor | None:
        """For a network that asks for the time: the share of the sequence that is hidden."""
        if not self.denoiser.time_conditioned:
            return None
        hidden_share = torch.from_numpy(canvas.masked[rows]).float().mean(1)
        return upload(sigma_of(hidden_share).numpy(), self.denoiser.device)


# ------------------------------------------------------------------------------------- committing

Rank = Literal["leftmost", "topk", "sort"]
"""Which position wins ties: the leftmost, or the one that torch's `topk` or `sort` puts first."""


@dataclass
class Turn:
    """A block's progress: its sequences, rounds and masks."""

    rows: Numbers
    """The sequences that take part, [R]."""
    steps: int
    """Rounds that the block was given."""
    started: Numbers
    """Masks in the block when it began, [R]."""
    round: int = 0

    def of(self, rows: Numbers, started: Numbers) -> Turn:
        """The same moment for some of the sequences."""
        return replace(self, rows=rows, started=started)


class Commit:
    """A rule; most have nothing to remember, and know nothing before the scores."""

    def begin(self, turn: Turn) -> Commit:  # noqa: ARG002
        """The rule at the beginning of a block."""
        return self

    def quota(self, turn: Turn, left: Numbers) -> Numbers | None:  # noqa: ARG002
        """How many it will commit in each sequence, where that does not depend on scores."""
        return None

    def extended(self, turn: Turn) -> int:
        """The rounds of the block as things stand."""
        return turn.steps

    def ends_after_call(self, turn: Turn) -> bool:  # noqa: ARG002
        """Whether a public code stops here with the network's answer unused."""
        return False

    def choose(self, value: Tensor, view: View, turn: Turn, draws: Draws) -> Tensor:
        """Where to commit [R, W], from the scores [R, W]."""
        raise NotImplementedError


def best(value: Tensor, count: Numbers | Tensor, rank: Rank) -> Tensor:
    """The `count` [R] highest of every row of `value` [R, W], as a table of truth values."""
    if rank == "topk":
        chosen = torch.zeros_like(value, dtype=torch.bool)
        for row, many in enumerate(count.tolist()):  # waits, where scores made the count
            chosen[row].scatter_(0, torch.topk(value[row], many).indices, True)
        return chosen
    if not isinstance(count, Tensor):
        count = upload(count, value.device)
    order = torch.sort(value, dim=1, descending=True, stable=rank == "leftmost").indices
    first = torch.arange(value.shape[1], device=value.device) < count[:, None]
    return torch.zeros_like(first).scatter(1, order, first)


@dataclass(frozen=True)
class Quota(Commit):
    """LLaDA's: the block's masks shared out evenly among its rounds, the earlier ones first."""

    rank: Rank = "leftmost"

    def quota(self, turn: Turn, left: Numbers) -> Numbers:
        """Masks // rounds, and one more in the first masks % rounds of them."""
        share = turn.started // turn.steps + (turn.round < turn.started % turn.steps)
        return np.minimum(share, left)

    def choose(self, value: Tensor, view: View, turn: Turn, draws: Draws) -> Tensor:  # noqa: ARG002
        """The best, as many as it is their turn."""
        return best(value, self.quota(turn, view.open.sum(1)), self.rank)


@dataclass(frozen=True)
class Threshold(Commit):
    """Fast-dLLM's: every position that scores at least this, and the best one anyway."""

    level: float

    def choose(self, value: Tensor, view: View, turn: Turn, draws: Draws) -> Tensor:  # noqa: ARG002
        """The positions above the threshold, and the leftmost best."""
        first = torch.zeros_like(view.opened).scatter(1, value.argmax(1, keepdim=True), True)
        return view.opened & (first | (value >= self.level))


@dataclass(frozen=True)
class Factor(Commit):
    """Fast-dLLM's other rule: rank n is committed while c_n >= 1 - factor / (n + 1).

    The first rank always is. As in the public code, the count goes up by one where it would stop at
    the first or at the last rank, so that the last one is committed even if it fails.
    """

    factor: float
    rank: Rank = "leftmost"

    def choose(self, value: Tensor, view: View, turn: Turn, draws: Draws) -> Tensor:  # noqa: ARG002
        """The best, as many as pass."""
        many = upload(view.open.sum(1), value.device)
        ordered = torch.sort(value, dim=1, descending=True).values
        rank = torch.arange(1, value.shape[1] + 1, device=value.device, dtype=torch.float64)
        needed = 1 - self.factor / (rank + 1)
        needed[0] = -1
        fails = (ordered < needed.to(value.dtype)) & (rank <= many[:, None])
        at = torch.where(fails.any(1), fails.long().argmax(1), many - 1)
        at = at + ((at == 0) | (at == many - 1)).long()
        return best(value, torch.where(many > 0, at, 0), self.rank) & view.opened


@dataclass(frozen=True)
class EntropyBound(Commit):
    """The longest run of least entropies whose sum without its largest stays within a bound.

    At least one position; it reads scores that are minus an entropy.
    """

    bound: float

    def choose(self, value: Tensor, view: View, turn: Turn, draws: Draws) -> Tensor:  # noqa: ARG002
        """Choose the surest positions."""
        ordered = torch.sort(-value, dim=1, stable=True).values  # ascending: the last is largest
        before = ordered.cumsum(1) - ordered
        fits = (before <= self.bound) & ordered.isfinite()
        count = fits.long().cumprod(1).sum(1).clamp(min=1)
        return best(value, count, "leftmost") & view.opened


@dataclass(frozen=True)
class Schedule(Commit):
    """Dream's: times from 1 down to eps, and in each round floor(masks (1 - s / t)); then the rest.

    With `spread` above zero the positions are not the best ones but drawn without replacement with
    weights softmax(score / spread) (Dream's `alg_temp`).
    """

    eps: float = 1e-3
    spread: float = 0.0
    rank: Rank = "leftmost"
    shared: bool = False
    """Whether, as in the public code, all sequences get one number: of their mean."""
    late: bool = False
    """Fast-dLLM's cached sampler only opens the block in round 0 and ends with a call in vain."""

    def times(self, turn: Turn) -> tuple[Tensor, Tensor]:
        """Before and after the round."""
        grid = torch.linspace(1, self.eps, turn.steps + 1)
        return grid[turn.round], grid[turn.round + 1]

    def last(self, turn: Turn) -> bool:
        """Whether all that is left is taken."""
        return turn.round >= turn.steps - 1

    def quota(self, turn: Turn, left: Numbers) -> Numbers | None:
        """A share of what is left."""
        return self.share(turn, left)

    def share(self, turn: Turn, left: Numbers) -> Numbers:
        """In float32, as the public code rounds it."""
        masks = torch.from_numpy(left)
        count = masks.float()
        if self.shared:
            count = (masks.sum() / len(masks)).expand(len(masks))
        if not self.last(turn):
            before, after = self.times(turn)
            count = count * (1 - after / before)
        return count.long().numpy()

    def ends_after_call(self, turn: Turn) -> bool:
        """Fast-dLLM's cached sampler asks once more before it notices."""
        return self.late and turn.round == turn.steps

    def choose(self, value: Tensor, view: View, turn: Turn, draws: Draws) -> Tensor:
        """The best, or some drawn by their scores."""
        count = self.share(turn, view.open.sum(1))
        if not (count > 0).any():
            return torch.zeros_like(view.opened)
        if self.spread > 0:
            return draws.pick(view, torch.softmax(value / self.spread, -1), count)
        return best(value, count, self.rank)


@dataclass(frozen=True)
class Coins(Schedule):
    """Dream's `origin`: each position by itself with chance 1 - s / t, in the last round all.

    It reads scores that are uniform random numbers.
    """

    def quota(self, turn: Turn, left: Numbers) -> None:  # noqa: ARG002
        """None: chance decides how many."""
        return

    def choose(self, value: Tensor, view: View, turn: Turn, draws: Draws) -> Tensor:  # noqa: ARG002
        """The positions whose coin falls below the chance."""
        if self.last(turn):
            return view.opened.clone()
        before, after = self.times(turn)
        return view.opened & (value < 1 - after / before)


@dataclass(frozen=True)
class Carried(Commit):
    """Fast-dLLM's threshold for Dream without blocks: `masks / rounds` candidates a round.

    The best is committed, the others if they score at least `level`; the rejected are added to the
    next round's candidates, and a rejection in the last round adds a round.
    """

    level: float
    rank: Rank = "leftmost"

    def begin(self, turn: Turn) -> Carrying:
        """The rule at the beginning of a block, with nothing carried over."""
        return Carrying(self, turn)


class Carrying(Commit):
    """A block under `Carried`; every sequence has a number of rounds and a carry of its own."""

    def __init__(self, rule: Carried, turn: Turn) -> None:
        self.rule = rule
        base = np.zeros(turn.rows.max(initial=-1) + 1, np.int64)
        base[turn.rows] = -(-turn.started // turn.steps)
        self._start(torch.from_numpy(base), turn.steps)

    def _start(self, base: Tensor, steps: int) -> None:
        self.base, self.carry = base, torch.zeros_like(base)
        self.steps = torch.full_like(base, steps)

    def extended(self, turn: Turn) -> int:  # noqa: ARG002
        """The rounds asked for so far."""
        return int(self.steps.max())  # waits

    def choose(self, value: Tensor, view: View, turn: Turn, draws: Draws) -> Tensor:  # noqa: ARG002
        """The best, and those of the candidates that pass."""
        if self.base.device != value.device:
            self._start(upload(self.base.numpy(), value.device), turn.steps)
        rows, many = upload(view.rows, value.device), upload(view.open.sum(1), value.device)
        count = torch.minimum(self.base[rows] + self.carry[rows], many)
        candidates = best(value, count, self.rule.rank) & view.opened
        first = torch.zeros_like(view.opened).scatter(1, value.argmax(1, keepdim=True), True)
        passed = candidates & (first | (value >= self.rule.level))
        rejected = candidates.sum(1) - passed.sum(1)
        more = (turn.round >= self.steps[rows] - 1) & (rejected > 0)
        self.carry[rows] = rejected
        self.steps[rows] += more.long()
        self.base[rows] = torch.where(more, 0, self.base[rows])
        return passed
