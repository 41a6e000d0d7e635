"""How many positions a decoder commits in a round, and which: the best by score, mostly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.device import Numbers, upload

if TYPE_CHECKING:
    from strop.samplers.machinery.drawing import Draws
    from strop.samplers.machinery.reading import View

Rank = Literal["leftmost", "topk", "sort"]
"""Who wins ties: the leftmost, or whoever torch's `topk` or `sort` puts first."""


@dataclass
class Turn:
    """Where a block stands."""

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
        """Those above, and the leftmost best."""
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
        """The surest positions."""
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
        """Chance decides."""
        return

    def choose(self, value: Tensor, view: View, turn: Turn, draws: Draws) -> Tensor:  # noqa: ARG002
        """Where the coin says so."""
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
        """Nothing carried yet."""
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
