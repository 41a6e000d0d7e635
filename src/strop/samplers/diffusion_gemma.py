"""DiffusionGemma's decoder: canvas after canvas of noise, accepted by entropy and renoised.

Every call draws a token at every position, accepts those of the least entropy as long as their
entropies together stay within a bound, and puts new noise everywhere else; nothing is kept from the
call before but its predictions, which the network reads (self-conditioning). A canvas ends when its
best tokens have stayed the same and the mean entropy is low, or with the last step. What comes out
is the best token of the last call at every position: the temperature acts on the path only, and no
number of steps makes it the model's own law. `emit` asks for drawn tokens instead.

The temperature falls from call to call: `linear/0.8/0.4` is the public schedule. `dense` draws as
the public code does, all sequences of a batch from one generator, ended ones too; `fast` has the
same law from numbers with an address, and asks the network only for those that are under way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.base import NEG_INFINITY, refuse_infinite
from strop.denoisers.device import Numbers, brought, upload
from strop.denoisers.diffusion_gemma import CanvasMemory, DiffusionGemma
from strop.errors import UserError
from strop.records.record import Precision
from strop.rng import Stream
from strop.samplers.machinery.categorical import log_share
from strop.samplers.machinery.committing import LockstepRun, lockstep
from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.lattice import Address, ExactDraw, Weights, addressed
from strop.spec.generator import SamplerSpec
from strop.spec.value import Cooling

Watch = Callable[["OpenCanvas", Tensor, Tensor], None]
"""Called after every decoder call: the canvas, what was read and where draws were accepted, both
[R, C]."""
OnCall = Callable[[Numbers, int, "OpenCanvas"], None]
"""Called after every decoder call: the sequences of a canvas, its number, and what became of it."""


@dataclass(frozen=True)
class CanvasRule:
    """One way to fill a canvas."""

    steps: int = 48
    temperature: Cooling = field(default_factory=lambda: Cooling(0.8, 0.4))
    entropy_bound: float = 0.1
    stability: int = 1
    """How many calls before the last must have had the same best tokens."""
    confidence: float = 0.005
    """The mean entropy below which a canvas may end, in nats."""
    emit: str = "best"
    """What comes out of the last call: `best` tokens, `drawn` ones, or the next `canvas`, in which
    noise stands where no draw was accepted."""
    ends: tuple[int, ...] = ()
    """Tokens that end a text."""
    pad_id: int | None = None
    """What stands after the end; None leaves what is there."""
    most: int | None = None
    """The length at which every text ends."""

    @classmethod
    def of(cls, spec: SamplerSpec, denoiser: DiffusionGemma) -> CanvasRule:
        """The rule of a sampler's settings."""
        chosen = spec.settings
        return cls(
            steps=spec.steps,
            temperature=Cooling.of(spec.temperature),
            entropy_bound=float(chosen["entropy_bound"]),
            stability=int(chosen["stability"]),
            confidence=float(chosen["confidence"]),
            emit=str(chosen["emit"]),
            ends=denoiser.stop_ids,
            pad_id=denoiser.pad_id,
        )


class CanvasDraws(Protocol):
    """Random numbers of the sequences `rows` in a call (from 0: the noise that a canvas begins
    with) of a canvas."""

    def noise(self, rows: Numbers, canvas: int, call: int, size: int) -> Tensor:
        """Uniform ids [R, C]."""
        ...

    def tokens(self, logits: Tensor, rows: Numbers, canvas: int, call: int) -> Tensor:
        """An id [R, C] from each law [R, C, V]."""
        ...


@dataclass
class GeneratorDraws:
    """The public code's: one generator for all, whose rows are always drawn together."""

    generator: torch.Generator
    vocab_size: int
    device: torch.device

    def noise(self, rows: Numbers, canvas: int, call: int, size: int) -> Tensor:  # noqa: ARG002
        """Whole numbers of the generator."""
        source, shape = self.generator, (len(rows), size)
        drawn = torch.randint(0, self.vocab_size, shape, generator=source, device=source.device)
        return brought(drawn, self.device)

    def tokens(self, logits: Tensor, rows: Numbers, canvas: int, call: int) -> Tensor:  # noqa: ARG002
        """torch's own draw on float32 probabilities."""
        probs = torch.softmax(logits, -1, dtype=torch.float32).to(self.generator.device)
        drawn = torch.multinomial(probs.flatten(0, 1), 1, generator=self.generator)
        return brought(drawn.view(logits.shape[:2]), self.device)


class AddressedCanvasDraws:
    """For users: numbers by output, call and position."""

    def __init__(
        self, seed: int, spec: SamplerSpec, outputs: Numbers, vocab_size: int, precision: Precision
    ) -> None:
        self.outputs, self.vocab_size, self.steps = outputs, vocab_size, spec.steps
        self.again = spec.settings["numbers"] == "same"
        """Whether every canvas has the numbers of the first."""
        noise, token = (Stream(seed, f"{spec.name}/{purpose}") for purpose in ("noise", "token"))
        self._noise, self._draws = noise, addressed(precision, token)

    def noise(self, rows: Numbers, canvas: int, call: int, size: int) -> Tensor:
        """The number of an address, scaled."""
        u = self._noise.uniform(*self._where(rows, canvas, call, size), 0)
        return torch.from_numpy((u * self.vocab_size).astype(np.int64)).view(len(rows), size)

    def tokens(self, logits: Tensor, rows: Numbers, canvas: int, call: int) -> Tensor:
        """The law inverted at the number of an address, or the float32 race on its lattice."""
        law = logits.flatten(0, 1).log_softmax(-1)
        where = self._where(rows, canvas, call, logits.shape[1])
        if isinstance(self._draws, ExactDraw):
            return self._draws.tokens(law, where)[0].view(logits.shape[:2])
        empty = torch.nn.functional.pad(law, (0, 1), value=NEG_INFINITY)  # a mask that never wins
        certain = Weights.certain(len(law))
        drawn, _ = self._draws.draw(empty, where, certain, self.vocab_size)
        return upload(drawn, logits.device).view(logits.shape[:2])

    def _where(self, rows: Numbers, canvas: int, call: int, size: int) -> Address:
        number = np.repeat(self.outputs[rows], size)
        first = 0 if self.again else canvas
        position = np.tile(first * size + np.arange(size), len(rows))
        return Address(number, np.full(len(number), call), position)


@dataclass
class OpenCanvas:
    """The open canvas of some sequences. All tensors have a row for each."""

    ids: Tensor
    """What the network reads next."""
    best: Tensor
    out: Tensor
    """What would come out now."""
    done: Tensor
    history: Tensor
    """[k, B, C], the best tokens of the last calls; -1: none yet."""
    chance: Tensor
    """How likely the last call made what would come out, at its temperature."""
    before: Tensor | None = None
    """The tempered scores of the last call."""

    @classmethod
    def start(cls, ids: Tensor, stability: int) -> OpenCanvas:
        """A canvas of noise without predictions."""
        history = torch.full((stability, *ids.shape), -1, device=ids.device)
        done = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
        return cls(
            ids, ids, ids, done, history, torch.full(ids.shape, torch.nan, device=ids.device)
        )


@dataclass
class Writing:
    """Texts under way, canvas by canvas."""

    denoiser: DiffusionGemma
    rule: CanvasRule
    draws: CanvasDraws
    text: Tensor
    """[B, n], prompts and finished canvases."""
    canvas_length: int
    together: bool = False
    """Whether all sequences take part in every call, as in the public code."""
    seen: Tensor | None = None
    """[B, prompt], where a token is text."""
    first: Tensor | None = None
    """The canvas to begin with instead of noise."""
    watch: Watch | None = None
    on_call: OnCall | None = None
    calls: Numbers = field(init=False)
    """[B], the network calls that each took part in."""
    decodings: Numbers = field(init=False)
    """[B], the decoder calls while it was neither done nor ended."""
    canvases: Numbers = field(init=False)
    """[B], canvases that were begun before it ended."""
    total: int = field(default=0, init=False)
    """Network calls."""

    def __post_init__(self) -> None:
        batch, device = len(self.text), self.text.device
        self.calls, self.decodings, self.canvases = np.zeros((3, batch), np.int64)
        self.ended = torch.zeros(batch, dtype=torch.bool, device=device)
        self.prompt = self.text.shape[1]

    def run(self, canvases: int) -> Tensor:
        """Up to so many canvases behind the prompts, [B, prompt + n C]; fewer if all have ended."""
        memory: CanvasMemory | None = None
        rows = np.arange(len(self.text))  # those whose canvas is written
        for number in range(canvases):
            if not self.together:
                going = np.flatnonzero(~self.ended.cpu().numpy())  # waits
                if memory is not None and len(going) < len(rows):
                    memory = memory.of(self._up(np.searchsorted(rows, going)))
                rows = going
            if not len(rows):
                break
            memory = self._encode(memory, rows)
            self.canvases[~self.ended.cpu().numpy()] += 1  # waits
            written = self._fill(memory, rows, number)
            self._append(written, rows)
            if self.together and bool(self.ended.all()):  # waits
                break
        return self.text

    def _encode(self, memory: CanvasMemory | None, rows: Numbers) -> CanvasMemory:
        self._count(rows)
        at = self._up(rows)
        if memory is None:
            return self.denoiser.encode(self.text[at], None, self.seen)
        return self.denoiser.encode(self.text[at, memory.length :], memory)

    def _count(self, rows: Numbers) -> None:
        self.calls[rows] += 1
        self.total += 1

    def _up(self, rows: Numbers) -> Tensor:
        return upload(rows, self.text.device)

    def _fill(self, memory: CanvasMemory, rows: Numbers, number: int) -> Tensor:
        """One canvas of the sequences `rows` from noise to tokens [R, C]."""
        noise = self.draws.noise(rows, number, 0, self.canvas_length).to(self.text.device)
        if number == 0 and self.first is not None:
            noise = self.first
        state = OpenCanvas.start(noise, self.rule.stability)
        reading = np.arange(len(rows))  # those that are read
        for step in range(self.rule.steps):
            done = (state.done | self.ended[self._up(rows)]).cpu().numpy()  # waits
            self.decodings[rows[~done]] += 1
            if not self.together and (len(going := np.flatnonzero(~done)) < len(reading)):
                memory = memory.of(self._up(np.searchsorted(reading, going)))
                reading = going
            self._count(rows[reading])
            self._call(state, memory, rows[reading], self._up(reading), number, step)
            if self.on_call is not None:
                self.on_call(rows, number, state)
            if bool(state.done.all()):  # waits
                break
        return state.out

    def _call(
        self,
        state: OpenCanvas,
        memory: CanvasMemory,
        rows: Numbers,
        sequences: Tensor,
        number: int,
        step: int,
    ) -> None:
        """One decoder call of the sequences `sequences`; those that are done stay as they are."""
        rule, read = self.rule, state.ids[sequences]
        before = None if state.before is None else state.before[sequences]
        scores = self.denoiser.denoise(read, memory, before)
        logits = tempered(scores, temperature_at(rule.temperature, step, rule.steps))
        drawn = self.draws.tokens(logits, rows, number, step + 1)
        entropy = torch.distributions.Categorical(logits=logits, validate_args=False).entropy()
        refuse_infinite(entropy)
        accepted = within_bound(entropy, rule.entropy_bound)
        noise = self.draws.noise(rows, number, step + 1, self.canvas_length).to(drawn.device)
        following = torch.where(accepted, drawn, noise)
        going = ~state.done[sequences]
        at, best = sequences[going], logits.argmax(-1)[going]
        state.ids = state.ids.index_put((at,), following[going])
        out = {"best": best, "drawn": drawn[going], "canvas": following[going]}[rule.emit]
        state.out = state.out.index_put((at,), out)
        chance = log_share(logits[going], out)
        state.chance = state.chance.index_put((at,), chance.to(state.chance.dtype))
        state.best = state.best.index_put((at,), best)
        logits = logits.to(self.denoiser.dtype)
        if state.before is None:
            state.before = logits
        else:
            state.before[at] = logits[going]
        sure = entropy.mean(-1)[going] < rule.confidence
        stable = (state.history[:, at] == best).all(-1).all(0)
        if rule.stability:
            state.history = state.history.roll(-1, 0)
            state.history[-1] = state.best
        state.done = state.done.index_put((at,), stable & sure)
        if self.watch is not None:
            self.watch(state, read, accepted)

    def _append(self, written: Tensor, rows: Numbers) -> None:
        """A canvas behind each text; tokens after an end become padding."""
        size, ends = self.canvas_length, self.text.new_tensor(self.rule.ends)
        room = self.text.new_full((len(self.text), size), self.filler)
        room[self._up(rows)] = written
        before = self.ended
        is_end = torch.isin(room, ends)
        self.text = torch.cat([self.text, room], 1)
        now = is_end.any(1)
        if self.rule.most is not None and self.text.shape[1] >= self.rule.most:
            now = torch.ones_like(now)
        self.ended = before | now
        if self.rule.pad_id is None:
            return
        tail = self.text[:, -size:]
        tail[before] = self.rule.pad_id
        count = torch.isin(tail, ends).cumsum(1)
        over = (count > 0) & ~((count == 1) & torch.isin(tail, ends))
        tail[over] = self.rule.pad_id

    @property
    def filler(self) -> int:
        """What stands behind a text that has ended."""
        if self.rule.pad_id is not None:
            return self.rule.pad_id
        return self.rule.ends[0] if self.rule.ends else 0


def temperature_at(cooling: Cooling, call: int, calls: int) -> Tensor:
    """The temperature of a call (from 0), in float32 as the public code computes it."""
    share = torch.tensor(calls - call, dtype=torch.int32, device="cpu") / calls
    return cooling.last + (cooling.first - cooling.last) * share


def tempered(scores: Tensor, temperature: Tensor) -> Tensor:
    """Scores over a temperature; at 0 the best token takes everything."""
    if float(temperature) == 0:  # on the host
        best = scores.argmax(-1, keepdim=True)
        return torch.full_like(scores, -torch.inf).scatter_(-1, best, 0.0)
    return scores / temperature.to(scores.device)


def within_bound(entropy: Tensor, bound: float) -> Tensor:
    """Where draws are accepted [R, C]: by entropy, while the sum of the lower ones is in bound."""
    ordered, order = torch.sort(entropy, dim=-1)
    lower = torch.cumsum(ordered, -1) - ordered
    return torch.zeros_like(entropy, dtype=torch.bool).scatter(-1, order, lower <= bound)


def dense(run: DenseRun) -> Tensor:
    """The public code to the bit, as a sampler; precisions of the draw are its own."""
    denoiser = cast(DiffusionGemma, run.denoiser)
    draws = GeneratorDraws(run.generator, denoiser.vocab_size, denoiser.device)
    writing = _begin(run, draws, together=True)
    ids = _write_canvases(run, writing)
    run.calls += writing.total
    run.counts = {"canvases": writing.canvases}
    return ids


@lockstep
def fast(run: LockstepRun) -> Tensor:
    """The same law from numbers with an address; sequences do not wait for each other."""
    vocabulary = run.denoiser.vocab_size
    draws = AddressedCanvasDraws(run.seed, run.spec, run.outputs, vocabulary, run.spec.precision)
    writing = _begin(run, draws, together=False)
    ids = _write_canvases(run, writing)
    run.calls[:] = writing.calls
    run.counts = {"canvases": writing.canvases}
    return ids


def _begin(run: DenseRun | LockstepRun, draws: CanvasDraws, *, together: bool) -> Writing:
    """Texts after their prompts, or after the token that a text begins with."""
    denoiser, spec = cast(DiffusionGemma, run.denoiser), run.spec
    if spec.top_p != 1:
        raise UserError(
            "DiffusionGemma's decoder cuts no tokens off: it has no top_p.",
            where="SamplerSpec.top_p",
            got=spec.top_p,
            fix="leave it out; a lower `temperature` or `entropy_bound` sharpens",
        )
    prompts = run.begin.given[:, : _prompt(run)]
    if not prompts.shape[1]:
        prompts = np.full((len(prompts), 1), denoiser.start_id, np.int64)
    text = upload(prompts, denoiser.device)
    return Writing(
        denoiser, CanvasRule.of(spec, denoiser), draws, text, denoiser.block_length, together
    )


def _prompt(run: DenseRun | LockstepRun) -> int:
    """Positions of the prompts, the same for all of a batch."""
    return int((~run.begin.open[0]).sum()) if run.begin.held else 0


def _write_canvases(run: DenseRun | LockstepRun, writing: Writing) -> Tensor:
    """Whole canvases, cut to the length that was asked for, the prompt before them."""
    prompt, size = _prompt(run), writing.canvas_length
    length = run.begin.open.shape[1] - prompt
    canvases = -(-length // size)
    longest = writing.text.shape[1] + canvases * size
    if longest > writing.denoiser.length:
        raise UserError(
            "The canvases reach beyond the positions that the network knows.",
            where=writing.denoiser.source,
            got=f"{writing.text.shape[1]} given and {canvases} canvases of {size}",
            expected=f"at most {writing.denoiser.length} positions",
            fix="ask for a smaller `length`",
        )
    writing.on_call = _trace_calls(run, writing, prompt, length)
    text = writing.run(canvases)[:, writing.prompt :]
    missing = canvases * size - text.shape[1]  # of texts that ended early
    ids = torch.nn.functional.pad(text, (0, missing), value=writing.filler)[:, :length]
    return torch.cat([upload(run.begin.given[:, :prompt], ids.device), ids], 1)


def _trace_calls(run: DenseRun | LockstepRun, writing: Writing, prompt: int, length: int) -> OnCall:
    """Rounds are network calls: a pool keeps after which of them each token last changed."""
    size = writing.canvas_length
    last = np.full((len(writing.text), length), -1)

    def note_call(rows: Numbers, number: int, state: OpenCanvas) -> None:
        columns = np.arange(number * size, min((number + 1) * size, length))
        now = state.out.cpu().numpy()[:, : len(columns)]  # waits
        row, column = np.nonzero(last[rows][:, columns] != now)
        slot, token, position = rows[row], now[row, column], columns[column]
        last[slot, position] = token
        run.note(writing.calls[slot] - 1, slot, position + prompt, token)
        at = upload(rows, state.out.device)[:, None], upload(columns + prompt, state.out.device)
        run.trace.chance[at] = state.chance[:, : len(columns)]

    return note_call
