"""BD3-LM's sampler: block after block, each filled one token a call or on a grid of times.

`first-hitting` reveals one position a call, chosen without its token: with a perfect denoiser the
output has the exact law, whatever the block. On the grid several positions come at once, each drawn
by itself. The public code also throws tries away: after a block, a text of more than 256 tokens
whose last 256 are too uniform is begun anew. That rejection is a setting of its own (`redraw`).

`semi_ar` is the public code to the bit, its last step on the grid included, which divides by zero
and writes the lowest token into what is still masked. `fast` has the same law but there: its grid
ends at zero, and nothing is left over.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.base import Denoiser, carry_over
from strop.denoisers.bd3lm import BD3LM, KeptBlocks
from strop.denoisers.device import Numbers, Truths, upload
from strop.errors import UserError
from strop.samplers.machinery.block_loop import reader_of
from strop.samplers.machinery.blocks import BlockState, Decoder, Watch, decode
from strop.samplers.machinery.categorical import clean_log_probs, race
from strop.samplers.machinery.committing import Coins, LockstepRun, Quota, lockstep
from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.drawing import AddressedDraws, Confidence
from strop.spec.generator import SamplerSpec

TAIL = 256
"""Tokens at the end of a text that the redraw rule looks at."""
LEAST_ENTROPY = 4.0
"""In nats, of how often each token stands there: below it a try is thrown away."""
MOST_TRIES = 10
"""The public code makes one more try, and raises whatever its result."""


@dataclass(frozen=True)
class SemiAR:
    """The public options, under their names."""

    block_size: int
    num_steps: int = 5000
    first_hitting: bool = True
    nucleus_p: float = 1.0
    kv_cache: bool = False
    var_length: bool = False
    eos_id: int | None = None
    """With `var_length`: the token whose second occurrence ends a text."""
    context: int = 1024
    temperature: float = 1.0
    """Ours; the public code has none."""


@dataclass
class Try:
    """One try at a batch: what was written, and what it cost."""

    ids: Tensor
    options: SemiAR
    denoiser: BD3LM
    generator: torch.Generator
    clock: np.random.RandomState
    """The public code draws its times from numpy; without time conditioning nothing sees them."""
    refuse: bool = True
    """Whether a tail of low entropy ends the try."""
    text: Tensor = field(init=False)
    """[B, n], the blocks so far."""
    calls: int = field(default=0, init=False)
    changes: int = field(default=0, init=False)
    """Updates that changed something: the public code's own count of its steps."""
    given_up: bool = field(default=False, init=False)

    def run(self) -> Tensor | None:
        """The text; None where the tail's entropy is too low."""
        size = self.options.block_size
        self.text = self.ids[:, :0]
        self.memory = KeptBlocks()
        for end in range(size, self.ids.shape[1] + 1, size):
            self.text = torch.cat([self.text, self.ids[:, end - size : end]], 1)
            self._fill()
            if self.text.shape[1] > TAIL and self._stops():
                # With blocks of one the public code gives up here even where it should only stop.
                self.given_up = not self.options.var_length or size == 1
                break
        return None if self.given_up else self.text

    def _fill(self) -> None:
        """Update the last block until no mask is left anywhere, or the steps are spent."""
        options, mask = self.options, self.denoiser.mask_id
        grid, law = torch.linspace(1, 0, options.num_steps, device="cpu"), None
        for time in grid:
            if not bool((self.text == mask).any()):  # waits
                return
            before = self.text[:, -options.block_size :]
            if options.first_hitting:
                self.clock.rand()
            if law is None:
                law = self._law()
            if options.first_hitting:
                drawn = self._one_position(law, before)
            else:
                stay = (time - 1 / options.num_steps) / time  # float32, as the public code has it
                weights = law * (1 - stay.to(law.device))
                weights[..., mask] = stay.to(law)
                drawn = self._race(weights)
            after = torch.where(before == mask, drawn, before)
            self.text = torch.cat([self.text[:, : -options.block_size], after], 1)
            if options.kv_cache and not bool((after == mask).any()):  # waits
                self._states(store=True)
                self.calls += 1
            if not torch.equal(after, before):  # waits
                law, self.changes = None, self.changes + 1

    def _one_position(self, law: Tensor, block: Tensor) -> Tensor:
        """A token at every position, of which one of the masks gets its own."""
        drawn, masked = self._race(law), block == self.denoiser.mask_id
        pick = torch.randint(0, int(masked.sum()), (1,), generator=self.generator)  # waits
        chosen = masked & (masked.cumsum(1) == pick.to(masked.device) + 1)
        return torch.where(chosen, drawn, block)

    def _race(self, weights: Tensor) -> Tensor:
        shape, device = weights.shape, self.generator.device
        u = torch.rand(shape, dtype=torch.float64, generator=self.generator, device=device)
        return race(weights, u.to(weights.device))

    def _law(self) -> Tensor:
        """Probabilities [B, b, V] in float64 at the last block, one-hot where a token stands."""
        options, mask = self.options, self.denoiser.mask_id
        self.calls += 1
        block = self.text[:, -options.block_size :]
        hidden = self._states()
        columns = torch.arange(
            hidden.shape[1] - options.block_size, hidden.shape[1], device=block.device
        )
        row = torch.arange(len(block), device=block.device).repeat_interleave(len(columns))
        logits = self.denoiser.logits(hidden, row, columns.repeat(len(block)))
        logits = logits.unflatten(0, block.shape)
        clean = carry_over(clean_log_probs(logits, mask, options.temperature, 1.0), block, mask)
        return within(clean.double().exp(), options.nucleus_p)

    def _states(self, *, store: bool = False) -> Tensor:
        options, size, memory = self.options, self.options.block_size, self.memory
        if not options.kv_cache:
            window = self.text[:, -options.context :]
            return self.denoiser.advance(window, None, block=size, keep=0)[0]
        keep = memory.columns + size if store else 0
        states, read_blocks = self.denoiser.advance(
            self.text[:, -size:], memory, block=size, keep=keep
        )
        if store:  # keys move with the window; they have seen what it has since lost
            self.memory = read_blocks.last(options.context - size)
        return states

    def _stops(self) -> bool:
        """Whether the text ends here; with `var_length` it is cut as well."""
        low = self.refuse and tail_entropy(self.text) < LEAST_ENTROPY
        stops, cut = low, None
        if self.options.var_length:
            ends = (self.text == self.options.eos_id).nonzero()
            if len(ends) > 1:
                stops, cut = True, int(ends[1, 1]) + 1  # waits
            cut = self.text.shape[1] - TAIL if low else cut
        self.text = self.text if cut is None else self.text[:, :cut]
        return stops


def tail_entropy(text: Tensor) -> float:
    """Of how often each token stands among the last 256 of a text [B, n], in nats."""
    counts = torch.unique(text[:, -TAIL:], return_counts=True)[1]
    return float(torch.special.entr(counts.float() / counts.sum()).sum())


def within(probs: Tensor, top_p: float) -> Tensor:
    """Keep the most probable tokens whose masses do not exceed top_p together, and the best."""
    if top_p == 1:
        return probs
    ordered, order = probs.sort(dim=-1, descending=True)
    is_kept = ordered.cumsum(-1) <= top_p
    is_kept[..., 0] = True
    cut = torch.zeros_like(probs).scatter_(-1, order, ordered * is_kept)
    return cut / cut.sum(-1, keepdim=True)


def dense(run: DenseRun) -> Tensor:
    """The public code to the bit, as a sampler: whole blocks, tries that are thrown away."""
    denoiser, spec = run.denoiser, run.spec
    if not isinstance(denoiser, BD3LM):
        raise UserError(
            "The public code of BD3-LM needs a network that reads block by block.",
            where=denoiser.source,
            got=f"a checkpoint of the family {denoiser.spec.family!r}",
            fix="use `implementation=fast`, which hides what comes later behind masks",
        )
    ids, size = _begin(run), block_of(spec, denoiser)
    if ids.shape[1] % size:
        raise UserError(
            "The public code writes whole blocks.",
            where="`length`",
            got=f"{ids.shape[1]} positions in blocks of {size}",
            fix="use another `length`, or `implementation=fast`",
        )
    options = SemiAR(
        block_size=size,
        num_steps=spec.steps,
        first_hitting=spec.settings["update"] == "first-hitting",
        nucleus_p=spec.top_p,
        kv_cache=spec.settings["cache"] == "blocks",
        context=denoiser.length,
        temperature=spec.temperature,
    )
    clock = np.random.RandomState(run.generator.initial_seed() % 2**32)
    # One position a call is for one sequence at a time; a grid's sequences go together.
    together = 1 if options.first_hitting else len(ids)
    run.counts = {"redraws": np.zeros(len(ids), np.int64)}
    run.row_calls = np.zeros(len(ids), np.int64)
    done = []
    for first in range(0, len(ids), together):
        rows = slice(first, first + together)
        while True:
            attempt = Try(ids[rows], options, denoiser, run.generator, clock, _refuses(spec))
            text = attempt.run()
            run.row_calls[rows] += attempt.calls
            if text is not None:
                break
            run.counts["redraws"][rows] += 1
            if run.counts["redraws"][first] == MOST_TRIES:
                raise gave_up(denoiser.source)
        done.append(text)
    return run.step(ids, torch.cat(done))


@lockstep
def fast(run: LockstepRun) -> Tensor:
    """The same law by address; a try that is thrown away costs all of its calls."""
    ids = _begin(run)
    waiting, tries = np.arange(len(ids)), 0
    redraws = run.counts["redraws"] = np.zeros(len(ids), np.int64)
    while len(waiting):
        if tries == MOST_TRIES:
            raise gave_up(run.denoiser.source)
        run.trace.forget(waiting)
        canvas = _decode_once(run, ids, waiting, tries)
        run.calls[waiting] += canvas.calls
        ids[upload(waiting, ids.device)] = canvas.ids
        low = _refused(run, canvas.tokens) if _refuses(run.spec) else np.zeros(len(waiting), bool)
        waiting, tries = waiting[low], tries + 1
        redraws[waiting] += 1
        ids[upload(waiting, ids.device)] = _begin(run)[upload(waiting, ids.device)]
    return ids


def _decode_once(run: LockstepRun, ids: Tensor, rows: Numbers, tries: int) -> BlockState:
    """One try at some sequences, each with the numbers of its output and of the try."""
    spec, denoiser = run.spec, run.denoiser
    texts = ids[upload(rows, ids.device)].clone()
    size = block_of(spec, denoiser)
    open_ = (texts == denoiser.mask_id).cpu().numpy()  # waits
    block = np.where(open_, np.arange(texts.shape[1]) // size, -1)
    canvas = BlockState(texts, block, denoiser.mask_id, _trace_calls(run, rows))
    name, places = f"{spec.name}/{tries}" if tries else spec.name, run.begin.place[rows]
    numbers = run.outputs[rows]
    draws = AddressedDraws(run.seed, spec, numbers, places, denoiser.mask_id, name=name)
    first_hitting = spec.settings["update"] == "first-hitting"
    commit = Quota() if first_hitting else Coins(0.0)
    reader = reader_of(denoiser, ~open_, size)
    steps = max(1, canvas.blocks) * (size if first_hitting else spec.steps)
    decode(Decoder(Confidence("random"), commit), canvas, reader, draws, steps)
    draws.confirm.refuse_infinite()
    return canvas


def _trace_calls(run: LockstepRun, rows: Numbers) -> Watch:
    """Rounds are network calls of a try."""

    def watch(canvas: BlockState, changed: Truths) -> None:
        row, position = np.nonzero(changed)
        run.note(canvas.calls[row] - 1, rows[row], position, canvas.tokens[row, position])
        run.trace.chance[upload(rows, canvas.ids.device)] = canvas.chance

    return watch


def block_of(spec: SamplerSpec, denoiser: Denoiser) -> int:
    """Positions per block: the requested ones, else those that the network was trained with."""
    trained = getattr(denoiser, "block_length", None)
    requested = int(spec.settings["block_length"])
    if not requested and trained is None:
        raise UserError(
            "This model was not trained in blocks, so there is no default block length.",
            where="SamplerSpec.settings.block_length",
            got=requested,
            expected="positions per block",
            fix="use, for example, `block_length=4`",
        )
    if requested and trained not in (None, requested):
        warnings.warn(
            f"{denoiser.source} was trained with blocks of {trained}, not of {requested}.",
            stacklevel=2,
        )
    return requested or int(trained or 0)


def _begin(run: DenseRun | LockstepRun) -> Tensor:
    """Masks behind what is given; without a prompt a text begins with the token that ends one."""
    ids, begin = run.start(), getattr(run.denoiser, "start_id", None)
    if not run.begin.held and begin is not None:
        ids[:, 0] = begin
    return ids


def _refuses(spec: SamplerSpec) -> bool:
    return spec.settings["redraw"] == "low-entropy-tail"


def _refused(run: LockstepRun, tokens: Numbers) -> Truths:
    """Which texts [R, L] the public code would have thrown away after one of their blocks."""
    size, length = block_of(run.spec, run.denoiser), tokens.shape[1]
    ends = [end for end in range(size, length + size, size) if min(end, length) > TAIL]
    texts = torch.from_numpy(tokens)
    low = [
        any(tail_entropy(texts[row : row + 1, :end]) < LEAST_ENTROPY for end in ends)
        for row in range(len(tokens))
    ]
    return np.array(low, bool)


def gave_up(source: str) -> UserError:
    """The error for a case in which the public code raises."""
    return UserError(
        f"Every one of {MOST_TRIES} tries was thrown away: the last {TAIL} tokens had an "
        f"entropy below {LEAST_ENTROPY:g} nats.",
        where=source,
        fix="use `redraw=never`, or a higher temperature",
    )
