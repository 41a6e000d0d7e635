"""The posterior loss that a sampler's own rounds see: J_N / L, measured on held-out sequences.

A position that is revealed in round k sees every other position with probability a_{k-1}, so

    J_N / L = E[-log q(X_I | X_A, a_{K-1})]

with K drawn from the reveal masses, I uniform, and A a random set without I.

Two estimates come from one such context, in nats per token:

- `target`: the loss at I alone, which is the paper's estimator;
- `masked`: the mean loss over all positions that the context hides. Given the hidden set, each of
  its members is equally likely to have been I, so this is the conditional mean of the first:
  unbiased as well, and never of higher variance.

All temperatures read one set of logits. At tau = 1 the derivative by lambda = 1/tau is the loss
minus the entropy of the prediction, the second derivative the variance of the logits. Random
numbers have addresses (seed, sequence, budget, draw), so every checkpoint and temperature sees the
same contexts.

The cells of the posterior study are losses in the contexts of one budget, kept block by block; a
block of sequences is a unit of work (`strop.engine`).

`path_scores` gives the m-path bound of a denoiser on data: how likely its finite-step sampler makes
a text. log (1/m) sum_j Q^{S_j}(x) over m reveal paths S_j is, in the mean, below log pi(x); it
rises to it as m grows. Q^S(x) is a product over the path's rounds, so one network call per round
that reveals anything gives it for every temperature. The small targets of the theory, a known
language and a trained checkpoint all come through here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from strop.denoisers.base import Denoiser
from strop.engine.plan import LOCAL, Engine
from strop.engine.sink import new_session
from strop.engine.workers import Blocks
from strop.errors import UserError
from strop.instruments.blocks import measure_with
from strop.measure.guard import HeldOutRows
from strop.rng import Stream
from strop.samplers.machinery.categorical import clean_log_probs
from strop.samplers.machinery.start import reveal_grid, sigma_of
from strop.spec.generator import CheckpointSpec, SamplerSpec
from strop.spec.value import Spec
from strop.store import StudyFolder
from strop.theory.mpath import PathScores, draw_paths

TEMPERATURES = (0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1)
"""Those of the paper's sweeps; it does not print the grid of its posterior losses."""

NETWORK_TOKENS = 8192
"""Tokens in one network call: eight sequences of 1,024."""
HEAD_ENTRIES = 2**23
"""Numbers in one block of logits: 32 MB in float32, whatever the length and the batch."""
BLOCK_TOKENS = 4 * NETWORK_TOKENS
"""Tokens of the sequences in one unit of work."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Contexts:
    """Partly hidden sequences, one per row, each with a target that is always hidden."""

    sequence: Ints
    """Which held-out sequence."""
    round: Ints
    """Which reveal round, or level, from 0."""
    level: Floats
    """The probability a with which every position but the target is visible."""
    target: Ints
    """Position of the target."""
    hidden: NDArray[np.bool_]
    """[N, L]: what the denoiser does not see."""

    def __len__(self) -> int:
        return len(self.sequence)

    def __getitem__(self, rows: slice) -> Contexts:
        return Contexts(*(column[rows] for column in vars(self).values()))


@dataclass(frozen=True, eq=False)
class Losses:
    """What a denoiser loses in some contexts, nats per token; temperatures in the last axis."""

    target: Floats
    """[N, T]: at the target."""
    masked: Floats
    """[N, T]: mean over all hidden positions."""
    target_slope: Floats
    """[N]: derivative of `target` by lambda = 1/tau at 1."""
    masked_slope: Floats
    """[N]: the same of `masked`."""
    target_curvature: Floats
    """[N]: second derivative of `target` by lambda at 1, the variance of the logits."""
    masked_curvature: Floats
    """[N]: the same of `masked`."""


def deployed_contexts(
    steps: int, *, seed: int, sequences: Ints, length: int, draw: int = 0
) -> Contexts:
    """One context per sequence with the masses of M updates and the finish behind them."""
    edges = np.cumsum(reveal_grid(SamplerSpec(steps=steps)).masses)
    u = Stream(seed, "posterior-round").uniform(sequences, steps, 0, draw)
    # The last edge may be rounded below one: the finish is the last round, whatever its edge says.
    rounds = np.minimum(np.searchsorted(edges, u, side="right"), steps)
    levels = np.append(0.0, edges)[rounds]
    return forced_contexts(
        seed, sequences, rounds, levels, length=length, address=steps, draw=draw, kind="deployed"
    )


def level_contexts(
    level: int, levels: int, *, seed: int, sequences: Ints, length: int, draw: int = 0
) -> Contexts:
    """One context per sequence at the visible probability level / levels."""
    rounds = np.full(len(sequences), level)
    where: dict[str, Any] = {"length": length, "address": level, "draw": draw}
    kind = f"profile-{levels}"
    return forced_contexts(seed, sequences, rounds, rounds / levels, kind=kind, **where)


def forced_contexts(
    seed: int,
    sequences: Ints,
    rounds: Ints,
    levels: Floats,
    *,
    length: int,
    address: int,
    draw: int,
    kind: str,
) -> Contexts:
    """Hide a uniform target, and every other position with probability 1 - level."""
    chance = Stream(seed, f"posterior-target-{kind}").uniform(sequences, address, 0, draw)
    target = np.minimum((chance * length).astype(np.int64), length - 1)
    seen = Stream(seed, f"posterior-seen-{kind}").uniform(
        sequences[:, None], address, np.arange(length), draw
    )
    hidden = seen >= levels[:, None]
    hidden[np.arange(len(sequences)), target] = True
    return Contexts(sequences, rounds, levels, target, hidden)


def measure(
    denoiser: Denoiser, ids: Ints, contexts: Contexts, temperatures: Sequence[float] = TEMPERATURES
) -> Losses:
    """Both estimates in every context; `ids[n]` is the clean sequence of context n."""
    check_temperatures(temperatures)
    batch = max(1, NETWORK_TOKENS // ids.shape[1])
    parts = [
        _batch(denoiser, ids[start : start + batch], contexts[start : start + batch], temperatures)
        for start in range(0, len(contexts), batch)
    ]
    estimates = [np.concatenate(part) for part in zip(*parts, strict=True)]
    return Losses(*(columns[:, where] for where in (slice(-2), -2, -1) for columns in estimates))


def check_temperatures(temperatures: Sequence[float]) -> None:
    """Positive ones, and 1 among them: everything is compared with it."""
    if 1.0 not in temperatures or not all(0 < tau < np.inf for tau in temperatures):
        raise UserError(
            "The temperatures of the posterior loss must be positive, and 1 must be one of them.",
            where="`temperature`",
            got=", ".join(f"{tau:g}" for tau in temperatures) or "none",
            expected="e.g. 0.9,1.0,1.1 (at 0 the loss is infinite)",
        )


@torch.no_grad()
def _batch(
    denoiser: Denoiser, ids: Ints, contexts: Contexts, temperatures: Sequence[float]
) -> tuple[Floats, Floats]:
    """Losses at all temperatures, slope and curvature as columns: at the target, in the mean."""
    clean = torch.from_numpy(np.ascontiguousarray(ids)).to(denoiser.device)
    hide = torch.from_numpy(contexts.hidden).to(denoiser.device)
    sigma = sigma_of(torch.from_numpy(1 - contexts.level)).float().to(denoiser.device)
    hidden = denoiser.hidden(torch.where(hide, denoiser.mask_id, clean), sigma)
    sequence, position = torch.nonzero(hide, as_tuple=True)
    rows = max(1, HEAD_ENTRIES // denoiser.vocab_size)
    values = torch.cat(
        [
            _rows(denoiser, hidden, clean, in_sequence, at, temperatures)
            for in_sequence, at in zip(sequence.split(rows), position.split(rows), strict=True)
        ]
    )
    total = torch.zeros((len(ids), values.shape[1]), dtype=torch.float64, device=values.device)
    total.index_add_(0, sequence, values)
    mean = total / hide.sum(1, keepdim=True)
    target = torch.from_numpy(contexts.target).to(denoiser.device)
    return values[position == target[sequence]].cpu().numpy(), mean.cpu().numpy()


def _rows(
    denoiser: Denoiser,
    hidden: Tensor,
    clean: Tensor,
    sequence: Tensor,
    position: Tensor,
    temperatures: Sequence[float],
) -> Tensor:
    """[R, T + 2] in float64: the head is asked once, for these rows only."""
    logits = denoiser.logits(hidden, sequence, position)
    truth = clean[sequence, position][:, None]
    losses: list[Tensor] = []
    slope = curvature = None
    for temperature in temperatures:
        log_probs = clean_log_probs(logits.clone(), denoiser.mask_id, temperature, 1.0)
        losses.append(-log_probs.gather(1, truth)[:, 0].double())
        if temperature == 1:
            spread = -torch.special.entr(log_probs.exp())  # p log p, 0 where p is
            entropy = -spread.sum(1, dtype=torch.float64)
            slope = losses[-1] - entropy
            squares = (spread * log_probs.clamp(min=torch.finfo(log_probs.dtype).min)).nan_to_num()
            curvature = squares.sum(1, dtype=torch.float64) - entropy**2
    assert slope is not None, "`measure` has seen to it"
    assert curvature is not None
    return torch.stack([*losses, slope, curvature], dim=1)


class LossCell(Spec):
    """What one table of losses depends on."""

    checkpoint: CheckpointSpec
    heldout: str
    """SHA-256 of the token ids."""
    sequences: int
    length: int
    kind: Literal["deployed", "profile"]
    """`deployed`: the reveal masses of `count` updates; `profile`: `count` even levels."""
    count: int
    draws: int
    """Contexts per sequence (and level)."""
    temperatures: tuple[float, ...]
    seed: int
    curvature: bool = True
    """Whether it has the curvature too; cells from before do not."""

    @property
    def label(self) -> str:
        """What messages call the cell."""
        return f"M = {self.count}" if self.kind == "deployed" else f"{self.count} levels"

    def contexts(self, sequences: Ints) -> list[Contexts]:
        """All contexts of some sequences."""
        common: dict[str, Any] = {"seed": self.seed, "sequences": sequences, "length": self.length}
        draws = [{**common, "draw": draw} for draw in range(self.draws)]
        if self.kind == "deployed":
            return [deployed_contexts(self.count, **arguments) for arguments in draws]
        return [
            level_contexts(k, self.count, **arguments)
            for k in range(self.count)
            for arguments in draws
        ]


def loss_cell(
    ids: Ints, common: Mapping[str, Any], kind: Literal["deployed", "profile"], count: int
) -> LossCell:
    """The cell of these sequences."""
    sha = HeldOutRows(ids, 0, 0).sha256
    return LossCell(**common, kind=kind, count=count, heldout=sha, sequences=len(ids))


def loss_table(
    cells: Sequence[LossCell], ids: Ints, denoiser: Denoiser, cell: int, missing: Sequence[int]
) -> Any:
    """One table: all contexts of some sequences of a cell."""
    spec, sequences = cells[cell], np.array(missing, np.int64)
    clean, taus = ids[sequences], spec.temperatures
    contexts = spec.contexts(sequences)
    return pa.concat_tables(
        [to_table(drawn, measure(denoiser, clean, drawn, taus), spec) for drawn in contexts]
    )


def measured_losses(
    folder: StudyFolder,
    denoiser: Denoiser,
    ids: Ints,
    cells: Sequence[LossCell],
    note: Callable[[str], None],
    engine: Engine = LOCAL,
) -> tuple[list[Losses], Mapping[str, Any]]:
    """Every cell, of the first so many of the sequences, from disk or measured; and where.

    With a shard as `engine`, an `Incomplete` names what other shards have not measured yet.
    """
    facts = measure_with(
        denoiser,
        partial(loss_table, cells, ids),
        [_as_blocks(cell) for cell in cells],
        folder,
        engine,
        lambda text: note(f"{denoiser.source}, {text}"),
        "losses",
    )
    return [from_table(folder.cell(cell.id), cell) for cell in cells], facts or new_session(
        denoiser
    )


def _as_blocks(cell: LossCell) -> Blocks:
    size, n = max(1, BLOCK_TOKENS // cell.length), cell.sequences
    blocks = [range(start, min(start + size, n)) for start in range(0, n, size)]
    return Blocks([cell.id], f"{cell.label}: {n} sequences", blocks, _joined)


def _joined(parts: list[Any]) -> list[Any]:
    return [pa.concat_tables(parts)]


DERIVATIVES = ("slope", "curvature")
"""By 1/tau at 1, in the order of `Losses`."""


def to_table(contexts: Contexts, losses: Losses, cell: LossCell) -> Any:
    """One line per context; a column per estimator and temperature."""
    columns: dict[str, Any] = {
        "sequence": contexts.sequence,
        "round": contexts.round,
        "level": contexts.level,
        "hidden": contexts.hidden.sum(axis=1),
        "target_position": contexts.target,
    }
    for name in ("target", "masked"):
        for k, tau in enumerate(cell.temperatures):
            columns[f"{name}_{float(tau)!r}"] = getattr(losses, name)[:, k]
        columns |= {f"{name}_{d}": getattr(losses, f"{name}_{d}") for d in DERIVATIVES}
    return pa.table(columns).replace_schema_metadata({"strop.cell": cell.canonical()})


def from_table(table: Any, cell: LossCell) -> Losses:
    """Means over the draws: [sequences, (levels,) temperatures] and [sequences, (levels)]."""
    levels = cell.count if cell.kind == "profile" else 1
    n = cell.sequences
    sequence = table["sequence"].to_numpy()
    level = table["round"].to_numpy() if cell.kind == "profile" else np.zeros_like(sequence)

    def column(name: str) -> Floats:
        sums = np.bincount(sequence * levels + level, table[name].to_numpy(), n * levels)
        return (sums / cell.draws).reshape((n, levels) if cell.kind == "profile" else n)

    def grid(name: str) -> Floats:
        return np.stack([column(f"{name}_{float(tau)!r}") for tau in cell.temperatures], axis=-1)

    derivatives = [column(f"{name}_{d}") for d in DERIVATIVES for name in ("target", "masked")]
    return Losses(grid("target"), grid("masked"), *derivatives)


@torch.no_grad()
def path_scores(
    denoiser: Denoiser,
    ids: Ints,
    masses: ArrayLike,
    *,
    paths: int,
    lams: ArrayLike,
    seed: int,
    advance: Callable[[int], None] = lambda _: None,
) -> PathScores:
    """log Q_lambda^S(x) of every sequence [n, L] along `paths` independent paths."""
    delta = np.asarray(masses, dtype=float)
    visible = np.append(0.0, np.cumsum(delta))
    scores = PathScores(lams, len(ids), paths)
    length, keep = ids.shape[1], np.arange(denoiser.vocab_size) != denoiser.mask_id
    batch = max(1, NETWORK_TOKENS // length)
    for sequence, clean in enumerate(ids):
        rng = np.random.default_rng([seed, sequence])
        all_rounds = list(_rounds(draw_paths(delta, length, paths, rng)))
        for start in range(0, len(all_rounds), batch):
            batch_rounds = all_rounds[start : start + batch]
            seen = torch.from_numpy(np.stack([rounds < k for _, k, rounds in batch_rounds]))
            tokens = torch.from_numpy(clean)[None]
            canvas = torch.where(seen, tokens, denoiser.mask_id).to(denoiser.device)
            level = torch.tensor([1 - visible[k] for _, k, _ in batch_rounds], dtype=torch.float64)
            hidden = denoiser.hidden(canvas, sigma_of(level).float().to(denoiser.device))
            for index, (path, k, rounds) in enumerate(batch_rounds):
                (at,) = np.nonzero(rounds == k)
                position = torch.from_numpy(at).to(denoiser.device)
                row = torch.full_like(position, index)
                logits = denoiser.logits(hidden, row, position).double().cpu().numpy()
                targets = clean[at] - (clean[at] > denoiser.mask_id)
                scores.add(sequence, path, logits[:, keep], targets)
        advance(1)
    return scores


def _rounds(drawn: Ints) -> Iterator[tuple[int, int, Ints]]:
    """Path, round and the path's rounds, for every round that reveals anything."""
    for path, rounds in enumerate(drawn):
        for k in np.unique(rounds):
            yield path, int(k), rounds
