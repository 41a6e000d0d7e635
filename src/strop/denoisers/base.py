"""The contract between checkpoints and samplers.

Every model is a `Denoiser` or a `CausalModel`; some can do more. A `CachingDenoiser` keeps keys and
values of an earlier pass, an approximation that saves most of the network. In a bidirectional
network every state depends on every token, so keys and values that were computed before some tokens
changed are stale. Fast-dLLM uses them all the same, and refreshes them once per block. A
`PaddingDenoiser` can tell padding from text, so a batch may have rows of different lengths.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.device import on_host, upload_rows
from strop.errors import UserError, whole_number
from strop.runtime import MOST_LENGTH
from strop.spec.generator import CheckpointSpec

if TYPE_CHECKING:
    from strop.denoisers.tokenizer import TextCodec


Keep = Literal["prefix", "dual"]
"""What a window may still read: what lies left of it, or everything around it."""


NEG_INFINITY = -1_000_000.0
"""The public code's stand-in for log 0; its exponential is exactly zero."""


@runtime_checkable
class Model(Protocol):
    """What every generator is made from, whatever its sampler asks of it."""

    spec: CheckpointSpec
    """What this model computes; part of the generator's identity."""
    source: str
    """Where it came from, as the user wrote it; provenance, not identity."""
    vocab_size: int
    """Classes of the output, the mask included where there is one."""
    length: int
    """The longest sequence it knows, and the default one of a denoiser."""
    device: torch.device
    """Where ids and states live."""

    @property
    def mask_id(self) -> int | None:
        """The class that means "not yet revealed"; None where nothing is ever masked."""
        ...

    @property
    def codec(self) -> TextCodec | None:
        """Tokens to text, where a tokenizer is known."""
        ...


def in_one_line(self: Any) -> str:
    """A model's repr."""
    return (
        f"{type(self).__name__}({self.source}, {self.vocab_size:,} tokens, length "
        f"{self.length:,}, {self.spec.network_dtype} on {self.device})"
    )


@runtime_checkable
class CausalModel(Model, Protocol):
    """log p(next token | tokens before it), with a memory of what it has read."""

    start_id: int
    """The token that every sequence begins with."""
    default_length: int
    """The length of an output when none is asked for."""

    def read(self, ids: Tensor, memory: Any) -> tuple[Tensor, Any]:
        """Read `ids` [B, n] after what `memory` holds (None: nothing).

        Returns raw float32 scores [B, V] of the token that follows, a new tensor, and the memory
        for the next call; the old one is spent.
        """
        ...


@runtime_checkable
class Denoiser(Model, Protocol):
    """log p(clean token | visible tokens), split so that a sampler pays for the rows it draws.

    `hidden` is the expensive part and sees the whole sequence; `logits` turns some of its rows into
    scores over the vocabulary. What a hidden state holds is the denoiser's own business, except
    that it is a tensor whose first two axes are the sequence and the position.
    """

    @property
    def mask_id(self) -> int:
        """The class that means "not yet revealed"; `vocab_size` where the family has none.

        One past the last class: no token equals it, and indexing with it fails loudly.
        """
        ...

    time_conditioned: bool
    """Whether `hidden` depends on sigma; if not, sigma may be None."""

    def hidden(self, ids: Tensor, sigma: Tensor | None) -> Tensor:
        """States [B, L, ...] of the sequences `ids` [B, L] at noise levels `sigma` [B]."""
        ...

    def logits(self, hidden: Tensor, sequence: Tensor, position: Tensor) -> Tensor:
        """Raw scores [R, V] at the rows (sequence[r], position[r]) of a hidden state.

        A new tensor, which the caller may overwrite.
        """
        ...

    def log_probs(self, ids: Tensor, sigma: Tensor | None = None) -> Tensor:
        """Normalised log-probabilities [B, L, V] with visible tokens carried over, on the CPU."""
        ...


def checked_ids(ids: Any, denoiser: Denoiser) -> Tensor:
    """Token ids from outside as a [B, L] tensor on the denoiser's device."""
    ids = torch.as_tensor(ids, device=denoiser.device)
    is_integer_matrix = not (ids.is_floating_point() or ids.is_complex()) and ids.ndim == 2
    if not is_integer_matrix or not 1 <= ids.shape[1] <= denoiser.length:
        raise UserError(
            "These are not token ids that the denoiser can read.",
            where=denoiser.source,
            got=f"{ids.dtype} of shape {tuple(ids.shape)}",
            expected=f"integers of shape [B, L] with L from 1 to {denoiser.length}",
        )
    least, most = (int(ids.min()), int(ids.max())) if ids.numel() else (0, 0)  # waits
    if not 0 <= least <= most < denoiser.vocab_size:
        raise UserError(
            "A token id lies outside the vocabulary.",
            where=denoiser.source,
            got=f"ids from {least} to {most}",
            expected=f"0 to {denoiser.vocab_size - 1} (the mask is {denoiser.mask_id})",
        )
    return ids.long()


def refuse_infinite(normaliser: Tensor) -> None:
    """Refuse scores whose normaliser is not finite; waits for the device."""
    if not torch.isfinite(normaliser).all():  # waits
        raise UserError(
            "The network returned scores that are not finite.",
            expected="finite logits",
            fix="use `dtype=float32`; if that does not help, the weights are damaged",
        )


def subs(
    logits: Tensor, mask_id: int, confirm: Callable[[Tensor], None] = refuse_infinite
) -> Tensor:
    """Normalise after ruling the mask out as a clean token (the SUBS parameterisation).

    Overwrites `logits`: at [B, L, V] a copy would cost as much as the arithmetic. `confirm` sees
    the normalisers; who must not wait for the device looks at them later.
    """
    logits[..., mask_id].add_(NEG_INFINITY)
    normaliser = torch.logsumexp(logits, dim=-1, keepdim=True)
    confirm(normaliser)
    return logits.sub_(normaliser)


def carry_over(log_probs: Tensor, ids: Tensor, mask_id: int) -> Tensor:
    """Make every visible token certain: log 1 at itself, log 0 elsewhere. In place."""
    visible, token = (ids != mask_id)[..., None], ids[..., None]
    own_log_prob = torch.where(visible, 0.0, log_probs.gather(-1, token))
    log_probs.masked_fill_(visible, NEG_INFINITY)
    return log_probs.scatter_(-1, token, own_log_prob.to(log_probs.dtype))


def all_log_probs(denoiser: Denoiser, ids: Tensor, sigma: Tensor | None) -> Tensor:
    """The whole [B, L, V] table of a denoiser, on its own device."""
    logits = all_logits(denoiser, ids, sigma)
    return carry_over(subs(logits, denoiser.mask_id), ids, denoiser.mask_id)


def all_logits(denoiser: Denoiser, ids: Tensor, sigma: Tensor | None) -> Tensor:
    """Raw scores at every position, [B, L, V]."""
    batch, length = ids.shape
    rows = np.divmod(np.arange(batch * length), length)
    sequence, position = upload_rows(ids.device, *rows)
    return denoiser.logits(denoiser.hidden(ids, sigma), sequence, position).unflatten(
        0, (batch, length)
    )


def exact_spec(
    family: str, sha256: str, length: int, mask_id: int, **more: float
) -> CheckpointSpec:
    """The spec of an exact law, which has no weights; the mask is the token after its last."""
    return CheckpointSpec(
        family=family,
        sha256=sha256,
        weights="exact",
        shape={"vocab_size": mask_id + 1, "length": length, "mask_id": mask_id, **more},
        network_dtype="float64",
        normalisation_dtype="float64",
    )


class Timeless:
    """The common part of denoisers that predict tokens at masks and do not see the noise level."""

    time_conditioned = False
    __repr__ = in_one_line

    @torch.no_grad()
    def log_probs(self: Denoiser, ids: Tensor, sigma: Tensor | None = None) -> Tensor:
        """Log-probabilities [B, L, V] on the CPU: mask ruled out, visible tokens carried over."""
        return all_log_probs(self, checked_ids(ids, self), sigma).cpu()  # waits


def usable_length(denoiser: Model, length: int | None) -> int:
    """The length asked for, or the model's own; never a longer one."""
    if length is None:
        # A long context's end is no length to begin with: models that have one say another.
        return getattr(denoiser, "default_length", denoiser.length)
    length = whole_number("length", length, 1, MOST_LENGTH + 1)
    if length > denoiser.length:
        raise UserError(
            "The length exceeds what the model was made for.",
            where=denoiser.source,
            got=length,
            expected=f"1 to {denoiser.length}",
        )
    return length


@runtime_checkable
class CachingDenoiser(Denoiser, Protocol):
    """A denoiser that can read a part of a canvas against its memory of the rest."""

    def remember(self, ids: Tensor, starts: Tensor | None = None) -> tuple[Tensor, Any]:
        """The states of a whole canvas [B, L], and the memory of its keys and values.

        `starts` are the columns at which left-padded rows begin; windows heed them too.
        """
        ...

    def window(self, ids: Tensor, start: int, memory: Any, keep: Keep) -> Tensor:
        """States [B, w, ...] of `ids` = canvas[:, start : start + w], the rest being remembered.

        `prefix`: only the memory of [0, start) is read, and the window reaches to the canvas' end.
        `dual`: the window's slots of the memory are overwritten, in place; all others stay as
        they were remembered. `logits` take positions within the window.
        """
        ...


@runtime_checkable
class PaddingDenoiser(Denoiser, Protocol):
    """A denoiser whose rows may begin at different columns."""

    def padded(self, ids: Tensor, starts: Tensor) -> Tensor:
        """States [B, L, ...] of left-padded rows: row b's text is ids[b, starts[b]:].

        What stands before it has no part in anything. `logits` of these states at
        (b, starts[b] + i) are those of the row alone at i, up to rounding; at the padding itself
        they mean nothing.
        """
        ...


@runtime_checkable
class BlockDenoiser(Denoiser, Protocol):
    """A denoiser whose finished blocks can be remembered exactly."""

    @property
    def block_length(self) -> int:
        """The block that it was trained with."""
        ...

    shifted: bool
    """Whether the state before a position scores it; else its own does."""

    def advance(
        self, ids: Tensor, memory: Any, *, block: int, keep: int, seen: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """States [B, n, ...] of the columns `ids` [B, n] that follow what `memory` holds.

        `memory` is None before the first call; `memory.columns` says how many it holds, and
        `memory.of(rows)` is that of some of the sequences. Column q sees column k if
        q // block >= k // block. The memory that comes back holds the first `keep` columns; the
        old one is not changed. `seen` [B, columns] rules keys out. `logits` take positions within
        `ids`.
        """
        ...


def checked_starts(ids: Tensor, starts: Tensor) -> Tensor:
    """The columns where rows begin, on the ids' device, if every row has a token left."""
    columns = on_host(starts := torch.as_tensor(starts))
    starts = starts.to(ids.device).long()
    good = starts.shape == ids.shape[:1]
    if not good or bool(((columns < 0) | (columns >= ids.shape[1])).any()):
        raise UserError(
            "The rows' first columns do not fit the batch.",
            where="`starts`",
            got=str(columns.tolist())[:120],
            expected=f"{len(ids)} columns from 0 to {ids.shape[1] - 1}",
        )
    return starts
