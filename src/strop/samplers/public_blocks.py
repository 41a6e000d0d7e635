"""The block decoders as published, under their own option names.

SDAR's, LLaDA 2.0's and 2.1's, that of diffusers' pipeline for LLaDA 2, and Fast-dLLM v2's. Each
takes a prompt and a generator that was seeded as a user of the public code would seed torch; ids,
network calls and the numbers drawn are those of the public code, with masks that it leaves and
prompt tokens that SDAR's writes over. What comes back is what the public code returns. The forms
for users are in `block_decoders`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import torch
from torch import Tensor
from torch.nn.functional import pad

from strop.denoisers.base import BlockDenoiser
from strop.errors import UserError
from strop.samplers.machinery.block_loop import BlockReader, block_quota

ROUNDS = 10_000
"""Calls in a block after which it will never be full."""


@dataclass
class PublicText:
    """The input of every public decoder."""

    denoiser: BlockDenoiser
    prompt: Tensor
    """[B, P]; all but the pipeline take one row."""
    generator: torch.Generator
    seen: Tensor | None = None
    """[B, P], zero at padding; the pipeline's alone."""
    on_call: Callable[[Tensor], None] | None = None
    """Called with the text after every call that drew."""
    reader: BlockReader | None = None
    opened: set[int] = field(default_factory=set)
    """First columns of the blocks in which something was drawn."""
    edits: Tensor | int = 0
    """[B], tokens taken back."""
    chance: tuple[int, Tensor] | None = None
    """Of the last draw: its first column, and how likely each token [B, n] was."""

    @property
    def calls(self) -> int:
        """Network calls made."""
        return 0 if self.reader is None else self.reader.calls

    def reading(self, block: int, seen: Tensor | None = None) -> BlockReader:
        """The network, remembering what is finished."""
        self.reader = BlockReader(self.denoiser, block, seen)
        return self.reader

    @property
    def size(self) -> int:
        """The number of tokens of the prompt."""
        return self.prompt.shape[1]

    def laid_out(self, block: int, length: int) -> Tensor:
        """The prompt, and masks to the end of the block in which a response of `length` ends."""
        return self.masked(self.prompt, -(-(self.size + length) // block) * block)

    def masked(self, x: Tensor, columns: int) -> Tensor:
        """Masks behind a text, up to `columns`."""
        if columns > self.denoiser.length:
            raise beyond_positions(self.denoiser, columns)
        return pad(x, (0, columns - x.shape[1]), value=self.denoiser.mask_id)

    def tell(self, x: Tensor) -> None:
        """After a call that drew."""
        if self.on_call is not None:
            self.on_call(x)

    def race(self, probs: Tensor) -> Tensor:
        """torch's own draw, [n, V] to [n]."""
        source = self.generator
        drawn = torch.multinomial(probs.to(source.device), 1, generator=source)
        return drawn[:, 0].to(probs.device)

    def draw(
        self,
        reader: BlockReader,
        x: Tensor,
        start: int,
        options: SDAROptions | LLaDA2Options | PipelineOptions,
    ) -> tuple[Tensor, Tensor]:
        """One call; at every position of the block at `start` a token [B, b], and its probability
        in the law it came from."""
        self.opened.add(start)
        states = reader.read(x, start + options.block_length, keep=start)
        logits = reader.logits(states)[:, -options.block_length :]
        rows, temperature = logits.flatten(0, 1), options.temperature
        if temperature == 0:
            probs = rows.softmax(-1)
            token = rows.argmax(-1)
            self.chance = start, torch.ones(logits.shape[:2], device=token.device)
        else:
            rows = rows / temperature if temperature != 1 else rows
            probs = _cut(rows, options.top_k, options.top_p).softmax(-1)
            token = self.race(probs)
        chance = probs.gather(-1, token[:, None])[:, 0].view(logits.shape[:2])
        if temperature:
            self.chance = start, chance
        return token.view(logits.shape[:2]), chance


def beyond_positions(denoiser: BlockDenoiser, columns: int) -> UserError:
    """The error for whole blocks that do not fit the network's positions."""
    return UserError(
        "The blocks reach beyond the positions that the network knows.",
        where=denoiser.source,
        got=f"{columns} columns, in whole blocks",
        expected=f"at most {denoiser.length}",
        fix="use a smaller `length` or a smaller `block_length`",
    )


def _cut(logits: Tensor, top_k: int | None, top_p: float | None) -> Tensor:
    """First the best k, then the ranks whose predecessors have not exceeded the mass."""
    if top_k:
        least = torch.topk(logits, min(top_k, logits.shape[-1])).values[..., -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if top_p is None or top_p >= 1:
        return logits
    ordered, order = torch.sort(logits, descending=True)
    dropped = _beyond(ordered.softmax(-1), order, top_p)
    return logits.masked_fill(dropped, -torch.inf)


def _beyond(ordered: Tensor, order: Tensor, top_p: float) -> Tensor:
    """Which tokens a nucleus drops, from sorted probabilities and their order."""
    over = (ordered.cumsum(-1) > top_p).roll(1, -1)
    over[..., 0] = False
    return torch.zeros_like(over).scatter(-1, order, over)


def _best(confidence: Tensor, count: int) -> Tensor:
    """The `count` best of one row, as torch's own `topk` breaks ties."""
    chosen = torch.zeros_like(confidence, dtype=torch.bool)
    chosen[torch.topk(confidence, count).indices] = True
    return chosen


def _moved(confidence: Tensor, masked: Tensor, quota: int, threshold: float) -> Tensor:
    """LLaDA 2's rule for one row: all above the threshold, if no fewer than the quota."""
    open_ = torch.where(masked, confidence, -torch.inf)
    high = open_ > threshold
    if int(high.sum()) >= quota:  # waits
        return high
    return _best(open_, min(quota, int(masked.sum())))  # waits


@dataclass(frozen=True)
class SDAROptions:
    """The options of SDAR's `block_diffusion_generate`."""

    gen_length: int = 128
    block_length: int = 8
    denoising_steps: int = 8
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    remasking_strategy: str = "low_confidence_dynamic"
    confidence_threshold: float = 0.85
    stopping_criteria_idx: Sequence[int] | None = None


def sdar(text: PublicText, options: SDAROptions) -> Tensor:
    """SDAR's `block_diffusion_generate`: the whole text, masks behind a stop included."""
    if options.temperature == 0:
        raise UserError(
            "The public code of SDAR divides by the temperature.",
            got="temperature=0",
            fix="use `top_k=1`, or `implementation=fast`",
        )
    b, steps, mask_id = options.block_length, options.denoising_steps, text.denoiser.mask_id
    x, reader = text.laid_out(b, options.gen_length), text.reading(b)
    if text.size >= b:
        reader.read(x, text.size // b * b, keep=text.size // b * b)
    quota = block_quota(b, steps)
    for start in range(text.size // b * b, x.shape[1], b):
        block_ids = x[:, start : start + b]
        for step in range(steps + 1):
            masked = block_ids[0] == mask_id
            if not masked.any():  # waits
                reader.read(x, start + b, keep=start + b)
                break
            if step == steps:
                raise _endless("it has drawn the mask and has no step left")
            token, chance = text.draw(reader, x, start, options)
            moved = _sdar_moved(options, chance[0], masked, quota[step])
            block_ids[0, moved] = token[0, moved]
            text.tell(x)
        response = x[:, text.size :]
        stops = options.stopping_criteria_idx or ()
        if any(bool((response == stop).any()) for stop in stops):  # waits
            break
    return x


def _sdar_moved(options: SDAROptions, chance: Tensor, masked: Tensor, quota: int) -> Tensor:
    """Where SDAR writes: the quota may reach beyond the masks, into known tokens."""
    if options.remasking_strategy == "sequential":
        first = int(masked.long().argmax())  # waits
        moved = torch.zeros_like(masked)
        moved[first : first + quota] = True
        return moved
    confidence = torch.where(masked, chance, -torch.inf)
    high = confidence > options.confidence_threshold
    dynamic = options.remasking_strategy == "low_confidence_dynamic"
    if dynamic and int(high.sum()) >= quota:  # waits
        return high
    return _best(confidence, quota)


def _endless(why: str) -> UserError:
    return UserError(
        f"The public code cannot finish a block: {why}.",
        fix="use `implementation=fast`, which never draws the mask",
    )


def _prompted(text: PublicText, start: int, block: int) -> Tensor:
    """Which columns of a block the prompt gives."""
    return torch.arange(start, start + block, device=text.prompt.device) < text.size


def _answer(text: PublicText, x: Tensor, gen_length: int, eos_id: int) -> Tensor:
    """The response up to its first end."""
    response = x[:, text.size : text.size + gen_length]
    ends = (response[0] == eos_id).nonzero()
    return response[:, : int(ends[0]) + 1] if len(ends) else response  # waits


@dataclass(frozen=True)
class LLaDA2Options:
    """The options of LLaDA 2.0's `generate`."""

    gen_length: int = 2048
    block_length: int = 32
    steps: int = 32
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    threshold: float = 0.95
    minimal_topk: int = 1
    eos_early_stop: bool = False
    eos_id: int = 156892


def llada2(text: PublicText, options: LLaDA2Options) -> Tensor:
    """LLaDA 2.0's `generate`: the response up to its first end."""
    b, mask_id, eos_id = options.block_length, text.denoiser.mask_id, options.eos_id
    quota = block_quota(b, _steps(options.steps, options.gen_length, options.minimal_topk))
    x, reader = text.laid_out(b, options.gen_length), text.reading(b)
    for start in range(text.size // b * b, x.shape[1], b):
        block_ids = x[:, start : start + b]
        for due in quota:
            masked = block_ids[0] == mask_id
            if not masked.any():  # waits
                break
            token, chance = text.draw(reader, x, start, options)
            moved = _moved(chance[0], masked, due, options.threshold)
            block_ids[0, moved] = token[0, moved]
            text.tell(x)
            if options.eos_early_stop and bool((token[0, moved] == eos_id).any()):  # waits
                first = int((x[0] == eos_id).nonzero()[0])  # waits; it may be the prompt's
                if not (x[0, text.size : first] == mask_id).any():  # waits
                    return x[:, text.size : max(first + 1, text.size)]
        if bool((x[:, text.size :] == eos_id).any()):  # waits
            break
    return _answer(text, x, options.gen_length, eos_id)


def _steps(steps: int, gen_length: int, minimal_topk: int) -> int:
    usable = min(steps, gen_length // minimal_topk)
    if usable < 1:
        raise UserError(
            "No step is left: a step commits more tokens than there are.",
            got=f"minimal_topk={minimal_topk}, {gen_length} tokens",
            fix="use a smaller `minimal_topk`",
        )
    return usable


@dataclass(frozen=True)
class LLaDA2EditOptions(LLaDA2Options):
    """Of LLaDA 2.1's `generate`, where `steps` and `minimal_topk` have no effect."""

    editing_threshold: float = 0.9
    max_post_steps: int = 16
    num_to_transfer: int = 1


def llada2_edit(text: PublicText, options: LLaDA2EditOptions) -> Tensor:
    """LLaDA 2.1's `generate`: the response up to its first end."""
    b, mask_id = options.block_length, text.denoiser.mask_id
    x, reader = text.laid_out(b, options.gen_length), text.reading(b)
    for start in range(text.size // b * b, x.shape[1], b):
        block_ids, in_prompt, post = x[:, start : start + b], _prompted(text, start, b), 0
        for call in count():
            if call == ROUNDS:
                raise _endless("it commits masks")
            masked = block_ids[0] == mask_id
            full = not masked.any()  # waits
            post += full
            if post > options.max_post_steps:
                break
            token, chance = text.draw(reader, x, start, options)
            moved = torch.zeros_like(masked)
            if not full:
                moved = _moved(chance[0], masked, options.num_to_transfer, options.threshold)
            sure = chance[0] > options.editing_threshold
            edits = ~masked & ~in_prompt & sure & (token[0] != block_ids[0])
            block_ids[0] = torch.where(moved | edits, token[0], block_ids[0])
            text.edits = text.edits + edits[None].sum(1)
            text.tell(x)
            if full and not edits.any():  # waits
                break
        response = x[0, text.size : start + b]
        complete = not (response == mask_id).any()  # waits
        if (
            options.eos_early_stop and complete and bool((response == options.eos_id).any())
        ):  # waits
            break
    return _answer(text, x, options.gen_length, options.eos_id)


@dataclass(frozen=True)
class PipelineOptions:
    """The options of diffusers' `LLaDA2Pipeline`."""

    gen_length: int = 2048
    block_length: int = 32
    num_inference_steps: int = 32
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    sampling_method: str = "multinomial"
    threshold: float = 0.7
    editing_threshold: float | None = 0.5
    max_post_steps: int = 16
    minimal_topk: int = 1
    eos_early_stop: bool = True
    eos_token_id: int | None = None


def llada2_pipeline(text: PublicText, options: PipelineOptions) -> Tensor:
    """diffusers' `LLaDA2Pipeline`: all `gen_length` positions, whatever ends in them."""
    b, mask_id, size = options.block_length, text.denoiser.mask_id, text.size
    quota = block_quota(
        b, _steps(options.num_inference_steps, options.gen_length, options.minimal_topk)
    )
    x = text.laid_out(b, options.gen_length)
    reader = text.reading(b, _seen(text, options.gen_length, x))
    if options.sampling_method == "greedy":
        options = replace(options, temperature=0.0)
    done = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    level = options.editing_threshold
    editing = level if level and level > 0 else torch.inf
    for start in range(size // b * b, x.shape[1], b):
        in_prompt, step, post, goes_on = _prompted(text, start, b), 0, 0, True
        while goes_on:
            block_ids = x[:, start : start + b]
            masked = block_ids == mask_id
            full = not masked.any()  # waits
            post += full
            token, chance = text.draw(reader, x, start, options)
            moved = torch.zeros_like(masked)
            for row in range(0 if full else len(x)):
                due = quota[min(step, len(quota) - 1)]
                moved[row] = _moved(chance[row], masked[row], due, options.threshold)
            edits = ~masked & ~in_prompt & (chance > editing) & (token != block_ids)
            final = (moved | edits) & ~done[:, None]
            x[:, start : start + b] = torch.where(final, token, block_ids)
            text.edits = text.edits + (edits & final).sum(1)
            text.tell(x)
            if options.eos_early_stop and options.eos_token_id is not None:
                ended = torch.where(final, token, mask_id) == options.eos_token_id
                _finish(done, x[:, : start + b], ended.any(1), options.eos_token_id, mask_id, size)
            step += not full
            goes_on = not done.all() and (  # waits
                step < len(quota)
                if not full
                else editing < torch.inf
                and bool(edits.any())  # waits
                and post <= options.max_post_steps
            )
        if done.all():  # waits
            break
    return x[:, size : size + options.gen_length]


def _seen(text: PublicText, gen_length: int, x: Tensor) -> Tensor:
    """The pipeline's mask on keys: padding and the tail behind the response are not seen."""
    seen = torch.zeros_like(x, dtype=torch.bool)
    seen[:, : text.size + gen_length] = True
    if text.seen is not None:
        seen[:, : text.size] = text.seen.bool()
    return seen


def _finish(done: Tensor, x: Tensor, ended: Tensor, eos_id: int, mask_id: int, size: int) -> None:
    """Rows that have just committed an end, and no mask before their first; in place."""
    for row in (ended & ~done).nonzero()[:, 0].tolist():  # waits
        first = int((x[row] == eos_id).nonzero()[0])  # waits
        done[row] = first >= size and not (x[row, size:first] == mask_id).any()


@dataclass(frozen=True)
class FastV2Options:
    """The options of Fast-dLLM v2's `generate`."""

    max_new_tokens: int
    block_size: int = 32
    small_block_size: int = 8
    temperature: float = 0.0
    top_p: float = 0.95
    threshold: float = 1.0
    stop_token: int = -1


def fast_dllm_v2(text: PublicText, options: FastV2Options) -> Tensor:
    """Fast-dLLM v2's `generate` without its sub-block cache: the text, cut after its first stop."""
    b, small, stop = options.block_size, options.small_block_size, options.stop_token
    mask_id, denoiser = text.denoiser.mask_id, text.denoiser
    if b % small:
        raise _endless(f"sub-blocks of {small} do not fill a block of {b}")
    reader, x = text.reading(b), text.prompt
    if text.size > b:
        states = reader.read(x, text.size // b * b, keep=text.size // b * b)
        if text.size % b == 0:
            x = torch.cat([x, _next(denoiser, states)], 1)
    unseen = b if text.size == b else 0  # a prompt of one block is neither stored nor open
    for _ in range(options.max_new_tokens // b):
        if bool((x[:, text.size :] == stop).any()):  # waits
            break
        before = x.shape[1]
        x = text.masked(x, (before // b + 1) * b)
        start, end = x.shape[1] - b - unseen, x.shape[1] - unseen
        visible = x[:, unseen:]
        text.opened.add(start)
        for first in range(0, b, small):
            small_ids = visible[:, start + first : start + first + small]
            for call in count():
                if not (small_ids == mask_id).any() or _stopped(x, before, stop, mask_id):  # waits
                    break
                if call == ROUNDS:
                    raise _endless("it commits masks")
                # The public call forgets its block length here and masks in blocks as trained.
                states = reader.read(visible, end, keep=start, block=denoiser.block_length)
                logits = reader.logits(states)[:, first : first + small]
                chance = _commit_small(text, small_ids, logits, options)
                text.chance = unseen + start + first, chance[None]
                text.tell(x)
        if _stopped(x, before, stop, mask_id):
            continue
        states = reader.read(visible, end, keep=end)
        x = torch.cat([x, _next(denoiser, states)], 1)
        text.chance = None
        text.tell(x)
    ends = (x[0, text.size :] == stop).nonzero()
    return x[:, : text.size + int(ends[0]) + 1] if len(ends) else x  # waits


def _next(denoiser: BlockDenoiser, states: Tensor) -> Tensor:
    """The best token behind what was read, [1, 1]: whatever the temperature."""
    row = torch.zeros(1, dtype=torch.long, device=states.device)
    return denoiser.logits(states, row, row + states.shape[1]).argmax(-1)[None]


def _stopped(x: Tensor, before: int, stop: int, mask_id: int) -> bool:
    """Whether a stop stands behind column `before`, with everything between known."""
    ends = (x[0, before:] == stop).nonzero()
    return len(ends) > 0 and not (x[0, before : before + int(ends[0])] == mask_id).any()  # waits


def _commit_small(
    text: PublicText, small_ids: Tensor, logits: Tensor, options: FastV2Options
) -> Tensor:
    """Masks above the threshold, and the best one; in place. How likely each draw was."""
    masked = small_ids[0] == text.denoiser.mask_id
    if options.temperature > 0:
        probs = (logits[0] / options.temperature).softmax(-1)
        ordered, order = torch.sort(probs, descending=True)
        probs = probs.masked_fill(_beyond(ordered, order, options.top_p), 0.0)
        probs = probs / probs.sum(-1, keepdim=True)
        token = text.race(probs)
    else:
        probs = logits[0].softmax(-1)
        token = probs.argmax(-1)
    token_chance = probs.gather(-1, token[:, None])[:, 0]
    chance = torch.where(masked, token_chance, -torch.inf)
    moved = chance > options.threshold
    moved[chance.argmax()] = True
    moved &= masked
    small_ids[0, moved] = token[moved]
    return token_chance if options.temperature > 0 else torch.ones_like(token_chance)
