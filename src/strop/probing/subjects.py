"""Who is probed: a model behind a server, or a checkpoint with its sampler here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from strop.errors import Incomplete, UserError
from strop.probing.questions import PROMPTS, RefusedRequest, Request, Said
from strop.served.address import ServerAddress
from strop.served.client import Reply
from strop.served.cost import Exhausted, Tab
from strop.served.serving import serving

NO_SUCH_PATH = (404, 405, 501)
REFUSING = (400, 422)
TOLD_ALWAYS = ("temperature", "seed")
MOST_TOKENS = 4096
"""Of one request and its reply, for a cap on cost."""


class ServedSubject:
    """A model behind a server, asked by chat, or by completions where it has no chat."""

    greedy = takes_stop = True

    def __init__(self, address: ServerAddress, knobs: Mapping[str, Any]) -> None:
        self.knobs = knobs
        self._how, self._address = serving(), address
        self._runner = asyncio.Runner()
        self._client = self._how.client(address)
        self._caps = self._how.caps(address.model, [])
        self.chat = True
        self.facts: dict[str, Any] = {}
        """The server's words about itself."""
        self.refuses: dict[str, str] = {}
        """Fields that it does not take, with its words; they are not sent."""

    def open(self) -> None:
        """Find out whether anybody is there, and in which form requests are taken."""
        self.facts["models"] = self._runner.run(self._client.models())
        first = Request("Hi.", 0, max_tokens=1)
        try:
            reply = self._runner.run(self._reply(first))
        except UserError:  # of a path or of the model: the other form knows
            self.chat = False
            reply = self._runner.run(self._reply(first))
        if self.chat and reply.trouble is not None and reply.trouble.status in NO_SUCH_PATH:
            self.chat = False
            reply = self._runner.run(self._reply(first))
        for _ in TOLD_ALWAYS:
            complaint = "" if reply.trouble is None else reply.detail.lower()
            named = [name for name in TOLD_ALWAYS if name in complaint and name not in self.refuses]
            if reply.delivered or not named:
                break
            self.refuses[named[0]] = reply.detail
            reply = self._runner.run(self._reply(first))
        if not reply.delivered:
            raise self._no_reply(reply)
        self.facts |= {
            "form": "chat" if self.chat else "completions",
            "model": reply.model,
            "fingerprint": reply.system_fingerprint,
            "counts_tokens": reply.tokens is not None,
        }

    def close(self) -> None:
        """Let the connections go."""
        self._runner.run(self._client.close())
        self._runner.close()

    @property
    def calls(self) -> int:
        """Requests that left."""
        return self._caps.calls

    def ask(self, requests: Sequence[Request], at_once: int = 1) -> list[Said]:
        """So many at a time."""
        return self._runner.run(self._all(requests, at_once))

    async def _all(self, requests: Sequence[Request], at_once: int) -> list[Said]:
        room = asyncio.Semaphore(at_once)

        async def reply_to(request: Request) -> Said:
            async with room:
                return self._reply_said(request, await self._reply(request))

        return list(await asyncio.gather(*map(reply_to, requests)))

    async def _reply(self, request: Request) -> Reply:
        text = request.prompt
        body: dict[str, Any] = (
            {"messages": [{"role": "user", "content": text}]} if self.chat else {"prompt": text}
        )
        body |= {"max_tokens": request.max_tokens, "temperature": request.temperature}
        body |= {"seed": request.seed, **request.extra}
        body = {name: value for name, value in body.items() if name not in self.refuses}
        most = {"prompt": len(text), "completion": MOST_TOKENS}
        tab = Tab(self._caps, most, lambda _: None)
        try:
            return await self._client.ask(body, tab)
        except Exhausted as error:
            raise Incomplete(
                "A cap was reached before the probe was done.",
                where=str(self._address),
                got=error,
                fix="the same command with a higher cap",
            ) from None

    def _reply_said(self, request: Request, reply: Reply) -> Said:
        if not reply.delivered:
            refused = reply.trouble is not None and reply.trouble.status in REFUSING
            if refused and request.extra:
                raise RefusedRequest(reply.detail)
            raise self._no_reply(reply)
        tokens = None if reply.tokens is None else reply.tokens["completion"]
        return Said(reply.reply or "", tokens, reply.finish_reason)

    def _no_reply(self, reply: Reply) -> UserError | Incomplete:
        passing = reply.trouble is not None and reply.trouble.passing
        kind = Incomplete if passing else UserError
        return kind(
            "The server brings no reply.",
            where=str(self._address),
            got=f"{reply.failure}: {reply.detail}",
            fix="run the same command again when it does"
            if passing
            else "ask it by hand, or correct the address: most end in /v1",
        )


class LocalSubject:
    """A checkpoint and its sampler in this process; prompts only say which seeds are used."""

    takes_stop = False

    def __init__(self, model: Any, length: int, steps: int) -> None:
        from strop.denoisers.base import usable_length
        from strop.records.record import SAMPLERS, default_sampler

        self._model, self._name = model, default_sampler(model.spec.family)
        self._length = min(length, usable_length(model, None))
        causal = SAMPLERS[self._name].causal
        self._steps = {} if causal else {"steps": steps}
        self.greedy = causal
        """Elsewhere the order in which tokens are revealed stays random."""
        self.knobs: dict[str, Any] = {"top_p": 0.01}
        if not causal:
            self.knobs["steps"] = 1
        self.facts = {"family": model.spec.family, "sampler": self._name, "length": self._length}
        self.calls = 0

    def ask(self, requests: Sequence[Request], at_once: int = 1) -> list[Said]:
        """Each as the first output of its seed; at once: beside others of a batch."""
        from strop.draw import sample
        from strop.spec.generator import SamplerSpec

        self.calls += len(requests)
        replies: list[Said] = []
        for request, group in groupby(requests, key=_setting):
            temperature, extra, prompt = request
            spec = SamplerSpec(
                name=self._name, temperature=temperature, **{**self._steps, **dict(extra)}
            )
            outputs = [member.seed % 1000 for member in group]
            if prompt not in PROMPTS:  # a neighbour: drawn beside the output that is looked at
                replies += [Said("")] * len(outputs)
                continue
            # Other outputs of a seed come in one batch; the same one again is drawn again.
            alone = len(set(outputs)) < len(outputs) or at_once > 1
            for n in [at_once] * len(outputs) if alone else [len(outputs)]:
                pool = sample(
                    self._model,
                    spec,
                    n=n,
                    batch_size=n,
                    seed=PROMPTS.index(prompt) + 1,
                    length=self._length,
                )
                texts = pool.texts or [" ".join(map(str, ids)) for ids in pool.ids.tolist()]
                replies += map(Said, texts[:1] if alone else texts)
        return replies


def _setting(request: Request) -> tuple[float, tuple[Any, ...], str]:
    return request.temperature, tuple(request.extra.items()), request.prompt
