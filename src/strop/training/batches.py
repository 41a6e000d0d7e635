"""The batch of step k as a pure function of (seed, k), over the global batch.

Nothing is carried from step to step, so a run can stop anywhere; and every process computes the
whole batch's row numbers and noise and takes its part, so their number changes nothing.

Rows of prompt and response: how they are made, and what noise means in them.

A row is the prompt's tokens, then the response's with end-of-texts after it up to a fixed number,
which count like any other token, as LLaDA counts them: a model learns from them where to end. What
is left of the row's length is filling, and nothing looks at it.

Rows of text, without prompts. `wrapped` is the public code's way: the documents of a group of 1,000
are joined, each with end-of-text after it, cut into pieces of length - 2, the remainder dropped,
and every piece put between two end-of-texts. `packed` joins everything end to end and cuts.
`sentences` starts every row where a sentence starts: the next row begins at the last start that the
previous one reached, so that an unfinished sentence is read again, whole.

Held-out numbers: the negative ELBO per token, what it bounds, and how sure that is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError
from strop.rng import derive_seed
from strop.stats.interval import Interval
from strop.stats.resample import bootstrap, mean
from strop.training.documents import ShardRows, sentences
from strop.training.objective import NOISES, Noise, block_noise, placed

Ids = NDArray[np.int64]

GROUP = 1_000
"""Documents that the public code joins at a time."""


def make_rows(
    documents: Iterable[str], how: str, codec: TextCodec, end_of_text: int, length: int
) -> Iterator[Ids]:
    """Blocks of rows [n, length]."""
    carry = np.zeros(0, np.int64)
    documents = iter(documents)
    while group := list(islice(documents, GROUP)):
        if how == "sentences":
            for text in group:
                yield _from_sentences(sentences(text), codec, end_of_text, length)
            continue
        ids = [[*encoded, end_of_text] for encoded in codec.encode_all(group)]
        stream = np.concatenate([np.asarray(encoded, np.int64) for encoded in ids])
        if how == "wrapped":
            yield _wrapped(stream, end_of_text, length)
        else:
            stream = np.concatenate([carry, stream])
            whole = len(stream) // length * length
            yield stream[:whole].reshape(-1, length)
            carry = stream[whole:]


def _wrapped(stream: Ids, end_of_text: int, length: int) -> Ids:
    inner = length - 2
    pieces = stream[: len(stream) // inner * inner].reshape(-1, inner)
    edge = np.full((len(pieces), 1), end_of_text)
    return np.concatenate([edge, pieces, edge], axis=1)


def _from_sentences(pieces: list[str], codec: TextCodec, end_of_text: int, length: int) -> Ids:
    encoded = [np.asarray(piece, np.int64) for piece in codec.encode_all(pieces)]
    starts = np.cumsum([0] + [len(piece) for piece in encoded])
    stream = np.concatenate([*encoded, np.array([end_of_text])])
    rows, begin = [], 0
    while begin + length <= len(stream):
        rows.append(stream[begin : begin + length])
        reached = int(starts[np.searchsorted(starts, begin + length, side="right") - 1])
        # A sentence longer than a row is cut: nothing in it is a start.
        begin = reached if reached > begin else begin + length
    return np.stack(rows) if rows else np.zeros((0, length), np.int64)


def make_pairs(
    documents: Iterable[str], codec: TextCodec, end_of_text: int, length: int, response: int
) -> Iterator[tuple[Ids, Ids]]:
    """Blocks of rows [n, length] with the lengths of their prompts [n].

    A document is a JSON object with the texts `prompt` and `response`. The two are tokenised apart,
    as they are when a model is given a prompt.
    """
    documents = iter(documents)
    while group := list(islice(documents, GROUP)):
        pairs = [_pair(text) for text in group]
        prompts = codec.encode_all([prompt for prompt, _ in pairs])
        answers = codec.encode_all([answer for _, answer in pairs])
        rows = np.full((len(group), length), end_of_text, np.int64)
        for row, prompt, answer, text in zip(rows, prompts, answers, group, strict=True):
            if len(prompt) + response > length or not 0 < len(answer) <= response:
                raise _unfit(text, len(prompt), len(answer), length, response)
            row[: len(prompt) + len(answer)] = [*prompt, *answer]
        yield rows, np.array([len(prompt) for prompt in prompts], np.int64)


def row_noise(
    rows: ShardRows,
    numbers: Callable[[], Ids],
    count: int,
    form: str,
    generator: torch.Generator,
    block: int | None = None,
) -> Noise | None:
    """Which tokens of `count` rows are hidden; `numbers` says which rows, if their prompts matter.

    A causal model hides none. After a prompt, what it is to predict stands in their place: the
    whole response.
    """
    if block is not None:
        return block_noise(form, count, rows.length, block, generator)
    if rows.response is None:
        return None if form == "causal" else NOISES[form](count, rows.length, generator)
    if form == "causal":
        noise = Noise(torch.ones(count, rows.response, dtype=torch.bool), torch.ones(count))
    else:
        noise = NOISES[form](count, rows.response, generator)
    return placed(noise, torch.from_numpy(rows.prompts(numbers())), rows.length)


def _pair(text: str) -> tuple[str, str]:
    try:
        row = json.loads(text)
    except json.JSONDecodeError:
        row = None
    match row:
        case {"prompt": str(prompt), "response": str(response)}:
            return prompt, response
    raise UserError(
        "A document is no pair of a prompt and a response.",
        where="data.rows: pairs",
        got=text.strip()[:80],
        expected='one JSON object per line: {"prompt": "...", "response": "..."}',
        fix="write the sources so, with `separator` a line break, or choose other rows",
    )


def _unfit(text: str, prompt: int, answer: int, length: int, response: int) -> UserError:
    return UserError(
        "A pair does not fit its row.",
        where="data.length, data.response",
        got=f"a prompt of {prompt} and a response of {answer} tokens: {text.strip()[:60]}",
        expected=f"prompts of at most {length - response} tokens, responses of 1 to {response}",
        fix="raise `length` or `response`, or leave the pair out",
    )


class Batches:
    """Every row once per epoch, in an order drawn anew for each."""

    def __init__(
        self, rows: ShardRows, *, batch: int, seed: int, objective: str, block: int | None = None
    ) -> None:
        self.rows, self.batch, self.seed = rows, batch, seed
        self.objective, self.block = objective, block
        self._order: tuple[int, Ids] | None = None

    def numbers(self, step: int) -> Ids:
        """Which rows make the global batch of a step (counted from 0)."""
        place = np.arange(step * self.batch, (step + 1) * self.batch)
        epoch, within = np.divmod(place, len(self.rows))
        out = np.empty(self.batch, np.int64)
        for number in np.unique(epoch):
            out[epoch == number] = self._epoch(int(number))[within[epoch == number]]
        return out

    def ids(self, numbers: Ids) -> Tensor:
        """The tokens of some rows, [n, length]."""
        return torch.from_numpy(self.rows[numbers])

    def noise(self, step: int) -> Noise | None:
        """Which tokens of the global batch are hidden; see `row_noise`."""
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "noise", step))
        return row_noise(
            self.rows, lambda: self.numbers(step), self.batch, self.objective, generator, self.block
        )

    def _epoch(self, epoch: int) -> Ids:
        if self._order is None or self._order[0] != epoch:
            seed = derive_seed(self.seed, "epoch", epoch)
            self._order = (epoch, np.random.default_rng(seed).permutation(len(self.rows)))
        return self._order[1]


@dataclass(frozen=True)
class HeldOutLoss:
    """Nats per token with a 95% interval from resampled rows, and what follows from it.

    Rows of one document are resampled apart, so the interval says how much another draw of rows
    would change the number, not another set of books. A loss that is not finite has no ends.
    """

    form: str
    """`any-order` (unbiased for the bound), `public` (clipped), or `causal` (exact)."""
    rows: int
    nats_per_token: Interval
    perplexity: Interval
    """exp of it: an upper bound for the diffusion forms."""
    nats_per_character: float | None


@torch.no_grad()
def held_out_losses(
    losses: Callable[[Tensor, Noise | None], Tensor],
    rows: ShardRows,
    *,
    count: int,
    form: str,
    seed: int,
    batch: int,
    block: int | None = None,
    share: tuple[int, int] = (0, 1),
) -> NDArray[np.float64]:
    """Loss per token of `count` held-out rows, each under noise that depends on seed and form.

    The rows are spread evenly over the held-out split, the noise is stratified over all of them:
    measurements of one run differ by the weights alone. `share` is (this process, of how many);
    rows of the others come back as zeros.
    """
    count = min(count, len(rows))
    numbers = np.linspace(0, len(rows) - 1, count).round().astype(np.int64)
    generator = torch.Generator().manual_seed(derive_seed(seed, "held-out"))
    # Strata follow each other along the rows; shuffled, no part of the corpus is favoured.
    order = torch.randperm(count, generator=generator)
    # Row i of the noise is for the row whose place in the order is i.
    back = order.argsort().numpy()
    noise = row_noise(rows, lambda: numbers[back], count, form, generator, block)
    noise = None if noise is None else noise.part(order)
    out = np.zeros(count)
    for first in range(share[0] * batch, count, share[1] * batch):
        part = slice(first, min(first + batch, count))
        ids = torch.from_numpy(rows[numbers[part]])
        out[part] = losses(ids, None if noise is None else noise.part(part)).double().cpu().numpy()
    return out


def summary(
    losses: NDArray[np.float64], rows: ShardRows, form: str, codec: TextCodec | None = None
) -> HeldOutLoss:
    """Mean, interval, perplexity, and nats per character where a tokenizer is given."""
    n, value = len(losses), float(losses.mean())
    interval = bootstrap(mean(losses), seed=derive_seed(0, "bootstrap")) or Interval(value, n=n)
    per_character = None
    if codec is not None and rows.response is None:
        numbers = np.linspace(0, len(rows) - 1, n).round().astype(np.int64)
        characters = sum(len(codec.decode(row)) for row in rows[numbers])
        per_character = value * n * rows.length / characters
    return HeldOutLoss(form, n, interval, interval.exp(), per_character)
