"""Which requests a probe makes, and what follows from the replies.

Prompts are few and fixed. Requests go one by one, so that each is alone at the server, but for
those that ask about company and concurrency. Every setting gets the same seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from strop.probing.evidence import LEVEL, Answer, Pairs, Texts, Word, more_often, spread

PROMPTS = (
    "Tell me a short story about a river.",
    "What do you see when you look out of the window?",
    "Write one sentence about the sea.",
    "Name some things that people keep in a kitchen.",
)
LONG = "Please read all of this and then answer in one sentence: " + "it was a long day. " * 40
TOKENS = 16
"""The most tokens of a reply."""
SEEDS = 8
"""Per prompt and setting."""
REPEATS = 5
"""Of one request, per prompt."""
GREEDY = 6
"""Seeds at temperature 0, per prompt."""
LOW, HIGH = 0.25, 2.0
NEIGHBOURS = 5
LONGER = 64
"""Tokens of a long neighbour."""
ROUNDS = 3
"""How often company is tried while the answer is open."""
TOGETHER = 4
"""Copies of one request at once."""
SHORTER = (4, 8)
"""Limits on tokens that are tried beside the usual one."""


@dataclass(frozen=True)
class Request:
    """What is asked for."""

    prompt: str
    seed: int
    temperature: float = 1.0
    max_tokens: int = TOKENS
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Said:
    """What came back."""

    text: str
    tokens: int | None = None
    """As the server counts them."""
    why: str | None = None
    """Why it ended, as the server says."""


class RefusedRequest(Exception):
    """The subject does not take a field of the request."""


class Subject(Protocol):
    """Something with knobs."""

    @property
    def greedy(self) -> bool:
        """Whether temperature 0 is to leave nothing to chance."""
        ...

    @property
    def takes_stop(self) -> bool:
        """Whether it takes a limit on tokens and words to stop at, as servers do."""
        ...

    @property
    def knobs(self) -> Mapping[str, Any]:
        """Fields that only change the law, each with an extreme value to try."""
        ...

    def ask(self, requests: Sequence[Request], at_once: int = 1) -> list[Said]:
        """The replies, in the order of the requests."""
        ...


def seed_of(prompt: int, k: int) -> int:
    """Fixed, and different for every prompt."""
    return 1000 * (prompt + 1) + k


def _requests(**changes: Any) -> list[list[Request]]:
    """Every prompt with every seed."""
    plain = [[Request(text, seed_of(p, k)) for k in range(SEEDS)] for p, text in enumerate(PROMPTS)]
    return [[replace(request, **changes) for request in requests] for requests in plain]


def budget(knobs: int, *, served: bool, greedy: bool) -> int:
    """How many requests a probe makes, at most."""
    prompts = len(PROMPTS)
    count = prompts * (REPEATS - 1 + SEEDS * (3 + knobs) + GREEDY * greedy)
    count += ROUNDS * prompts * 2 * (NEIGHBOURS + 2)
    return count + served * prompts * (ROUNDS * TOGETHER + len(SHORTER) * 2 + 4)


class Probe:
    """One subject, asked once."""

    def __init__(self, subject: Subject, report: Callable[[int], None] = lambda _: None) -> None:
        self._subject, self._told = subject, report
        self.said: list[Said] = []
        self._requests: list[Request] = []
        self._questions = 8 + len(subject.knobs)
        self.level = LEVEL / self._questions
        """Of one test, so that all together are wrong in `LEVEL` of the probes at most."""

    def run(self) -> list[Answer]:
        """All answers, in the order of the table."""
        base = self._ask(_requests())
        again = [requests[:1] * (REPEATS - 1) for requests in _requests()]
        self.base = _texts(base)
        self.repeats = Pairs.of(
            [[replies[0].text] * (REPEATS - 1) for replies in base], _texts(self._ask(again))
        )
        self.varied = Pairs.within(self.base)
        answers = [self._repeat(), self._seed()]
        cold = None
        if self._subject.greedy:
            colder = [requests[:GREEDY] for requests in _requests(temperature=0.0)]
            cold = self._ask(colder)
        answers += self._temperature(None if cold is None else _texts(cold))
        answers += [self._knob(name, value) for name, value in self._subject.knobs.items()]
        answers += self._load_answers(base, cold)
        if self._subject.takes_stop:
            answers += self._ends(base, cold)
            answers += self._reply_answers()
        return answers

    def _ask(self, requests: Sequence[Sequence[Request]], at_once: int = 1) -> list[list[Said]]:
        flat = [request for group in requests for request in group]
        replies = iter(self._subject.ask(flat, at_once))
        self._told(len(flat))
        by_group = [[next(replies) for _ in group] for group in requests]
        self.said += [reply for group in by_group for reply in group]
        self._requests += flat
        return by_group

    # ------------------------------------------------------------ (a), (b)

    def _repeat(self) -> Answer:
        word: Word = "no" if self.repeats.differ else "yes"
        question = "Does the same request bring the same text?"
        return Answer("repeat", question, word, f"repeats: {self.repeats}")

    def _seed(self) -> Answer:
        question = "Does the same seed bring the same text, and another seed another one?"
        why = f"same seed: {self.repeats}; other seeds: {self.varied}"
        same, other = self.repeats, self.varied
        if not other.differ:
            return Answer("seed", question, "no", why, idle=True)
        if not same.differ:
            return Answer("seed", question, "yes", why)
        agree = Pairs(same.pairs - same.differ, same.pairs)
        chance = Pairs(other.pairs - other.differ, other.pairs)
        if agree.differ == 0 or (same.surely_some and more_often(agree, chance) > self.level):
            bound = f"; a seed makes texts equal in under {3 / same.pairs:.0%} of repeats"
            return Answer("seed", question, "no", why + bound * (agree.differ == 0), idle=True)
        return Answer("seed", question, "cannot tell", why)

    # ------------------------------------------------------------ (c)

    def _temperature(self, cold: Texts | None) -> list[Answer]:
        question = "Does temperature change the law?"
        low = _texts(self._ask(_requests(temperature=LOW)))
        high = _texts(self._ask(_requests(temperature=HIGH)))
        effect = self._effect("temperature", question, low, high, f"{LOW:g} against {HIGH:g}")
        answers = [effect]
        if cold is not None:
            within = Pairs.within(cold)
            word: Word = "yes" if not within.differ else "cannot tell"
            if within.surely_some:
                word = "no"
            evidence = f"at 0, other seeds: {within}"
            question = "Is temperature 0 greedy?"
            answers.append(Answer("temperature_0", question, word, evidence))
        return [*answers, self._monotone(effect, low, high)]

    def _monotone(self, effect: Answer, low: Texts, high: Texts) -> Answer:
        question = "Do texts spread more as temperature rises?"
        if effect.word != "yes":
            why = "temperature is not known to do anything"
            return Answer("temperature_monotone", question, "cannot tell", why)
        outer, first, second = spread(low, high), spread(low, self.base), spread(self.base, high)
        evidence = (
            f"mean distance at {LOW:g}, 1, {HIGH:g}: "
            f"{first.first:.2f}, {first.second:.2f}, {second.second:.2f}"
        )
        falls = any(step.second < step.first and step.p < self.level for step in (first, second))
        word: Word = "no" if falls else "cannot tell"
        if not falls and outer.second > outer.first and outer.p < self.level:
            word = "yes"
        return Answer("temperature_monotone", question, word, evidence)

    # ------------------------------------------------------------ (d)

    def _knob(self, name: str, value: Any) -> Answer:
        question = f"Does {name} change anything?"
        against = value.get("against") if isinstance(value, dict) else None
        extreme = value["value"] if isinstance(value, dict) else value
        try:
            changed = _texts(self._ask(_requests(extra={name: extreme})))
            base = self.base
            if against is not None:
                base = _texts(self._ask(_requests(extra={name: against})))
        except RefusedRequest as refusal:
            return Answer(name, question, "no", f"it is refused: {refusal}")
        return self._effect(name, question, base, changed, f"{name} {extreme}")

    def _effect(
        self, knob: str, question: str, base: Texts, changed: Texts, setting: str
    ) -> Answer:
        """Whether two settings bring other texts, by the strongest test that there is."""
        pairs = Pairs.of(base, changed)
        if not self.repeats.differ:
            why = f"{setting}, same seeds: {pairs}; plain repeats: {self.repeats}"
            if not pairs.differ:
                if not self.varied.differ and knob != "temperature":
                    return Answer(knob, question, "cannot tell", "nothing varies: " + why)
                return Answer(knob, question, "no", why, idle=True)
            p = more_often(pairs, self.repeats)
            word: Word = "yes" if p < self.level else "cannot tell"
            return Answer(knob, question, word, f"{why}; p {p:.2g}")
        distances = spread(base, changed)
        p = min(1.0, 2 * min(distances.p, distances.p_other))
        why = (
            f"{setting}: mean distance {distances.first:.2f} and {distances.second:.2f}; "
            f"permutation p {p:.2g}"
        )
        return Answer(knob, question, "yes" if p < self.level else "cannot tell", why)

    # ------------------------------------------------------------ (e), (f)

    def _load_answers(self, base: list[list[Said]], cold: list[list[Said]] | None) -> list[Answer]:
        """Requests whose text alone is known, beside others and beside copies of themselves."""
        references = self._references(base, cold)
        question = "Is a text the same in the company of short and long requests as alone?"
        looks = [("batch", question, lambda: self._beside_others(references), "in company")]
        if self._subject.takes_stop:
            question = "Is a text the same among copies of its request as alone?"
            load = f"{TOGETHER} at once"
            looks.append(("concurrency", question, lambda: self._among_copies(references), load))
        if references:
            return [self._same_texts(*look) for look in looks]
        why = "no request brings the same text twice, so nothing can be compared"
        return [Answer(knob, question, "cannot tell", why) for knob, question, *_ in looks]

    def _beside_others(self, references: Sequence[tuple[int, Request, str]]) -> Pairs:
        """Every reference once among short requests and once among long ones."""
        seen = Pairs(0, 0)
        for p in range(len(PROMPTS)):
            targets = [reference for reference in references if reference[0] == p]
            for kind, most in (("Hi.", SHORTER[0]), (LONG, LONGER)):
                neighbours = [Request(kind, 7 + k, max_tokens=most) for k in range(NEIGHBOURS)]
                half = NEIGHBOURS // 2
                group = [
                    *neighbours[:half],
                    *(request for _, request, _ in targets),
                    *neighbours[half:],
                ]
                [replies] = self._ask([group], len(group))
                of_targets = replies[half : half + len(targets)]
                seen += Pairs.of(
                    [[item.text for item in of_targets]], [[item[2] for item in targets]]
                )
        return seen

    def _among_copies(self, references: Sequence[tuple[int, Request, str]]) -> Pairs:
        seen = Pairs(0, 0)
        for _, request, alone in references[:: max(1, len(references) // len(PROMPTS))]:
            [replies] = self._ask([[request] * TOGETHER], TOGETHER)
            seen += Pairs.of([[reply.text for reply in replies]], [[alone] * TOGETHER])
        return seen

    def _references(
        self, base: list[list[Said]], cold: list[list[Said]] | None
    ) -> list[tuple[int, Request, str]]:
        """Prompt, request and text of what can be asked again."""
        references = []
        self.alone = Pairs(0, 0) if self.repeats.differ else self.repeats
        for p, text in enumerate(PROMPTS):
            if cold is not None and len({reply.text for reply in cold[p]}) == 1:
                self.alone += Pairs(0, len(cold[p]) - 1)
                references.append((p, Request(text, seed_of(p, 0), 0.0), cold[p][0].text))
            if not self.repeats.differ:
                references.append((p, Request(text, seed_of(p, 0)), base[p][0].text))
        return references

    def _same_texts(self, knob: str, question: str, look: Callable[[], Pairs], load: str) -> Answer:
        """Look again while some texts differ and it is open whether by chance."""
        pairs, p = Pairs(0, 0), 1.0
        for _ in range(ROUNDS):
            pairs += look()
            p = more_often(pairs, self.alone)
            if not pairs.differ or p < self.level / ROUNDS:
                break
        word: Word = "cannot tell"
        if not pairs.differ or p < self.level / ROUNDS:
            word = "no" if pairs.differ else "yes"
        return Answer(knob, question, word, f"{load}: {pairs}; alone: {self.alone}; p {p:.2g}")

    # ------------------------------------------------------------ (g), (h)

    def _ends(self, base: list[list[Said]], cold: list[list[Said]] | None) -> list[Answer]:
        references = self._references(base, cold)
        limit = "Does max_tokens cut a text at so many tokens and change nothing else?"
        stop = "Does a stop word end a text just before it?"
        if not references:
            why = "no request brings the same text twice, so nothing can be compared"
            return [self._counts(limit, [], why), Answer("stop", stop, "cannot tell", why)]
        cut = []
        for _, request, full_text in references:
            shorter = [replace(request, max_tokens=most) for most in SHORTER]
            [replies] = self._ask([shorter])
            cut.append((full_text, replies))
        return [self._counts(limit, cut), self._stop(stop, references)]

    def _counts(
        self, question: str, cut: Sequence[tuple[str, list[Said]]], why: str = ""
    ) -> Answer:
        """Whether limits are kept: by the server's own count, by words, and by the text."""
        wrong = early = 0
        for full_text, replies in cut:
            for most, reply in zip(SHORTER, replies, strict=True):
                wrong += not full_text.strip().startswith(reply.text.strip())
                short = reply.why == "length" and reply.tokens is not None and reply.tokens < most
                early += short
        excess = [
            reply.tokens - request.max_tokens
            for request, reply in zip(self._requests, self.said, strict=True)
            if reply.tokens is not None
        ]
        more = sum(tokens > 0 for tokens in excess)
        extra = _more_words(cut)
        evidence = (
            f"{wrong} of {2 * len(cut)} shorter texts are no beginnings; {more} of {len(excess)} "
            f"counts are above the limit, {early} below it though cut"
        )
        evidence += f"; {extra:+d} words at every limit" if extra else ""
        bad = max(wrong, more, early) >= 2 or bool(extra)
        countable = bool(excess) or extra is not None
        if bad:
            return Answer("max_tokens", question, "no", evidence)
        word: Word = "yes" if cut and countable else "cannot tell"
        return Answer("max_tokens", question, word, f"{evidence}{'; ' if why else ''}{why}")

    def _stop(self, question: str, references: Sequence[tuple[int, Request, str]]) -> Answer:
        right = wrong = 0
        example = ""
        tried = [
            (request, full_text, word)
            for _, request, full_text in references
            for word in _stop_words(full_text)
        ]
        for request, full_text, word in tried[: 4 * len(PROMPTS)]:
            try:
                [[reply]] = self._ask([[replace(request, extra={"stop": [word]})]])
            except RefusedRequest as refusal:
                return Answer("stop", question, "no", f"it is refused: {refusal}")
            expected = full_text[: full_text.find(word)].strip()
            if reply.text.strip() == expected:
                right += 1
            else:
                wrong, example = wrong + 1, f"; e.g. {reply.text.strip()[-40:]!r} before {word!r}"
        evidence = f"{right} of {right + wrong} end where they should{example}"
        word_: Word = "yes" if right >= 2 and not wrong else "no" if wrong >= 2 else "cannot tell"
        return Answer("stop", question, word_, evidence)

    def _reply_answers(self) -> list[Answer]:
        """Of everything that was said: is the prompt in it, is there anything?"""
        pairs = list(zip(self._requests, self.said, strict=True))
        echo = Pairs(sum(s.text.strip().startswith(r.prompt) for r, s in pairs), len(pairs))
        empty = Pairs(sum(not reply.text.strip() for _, reply in pairs), len(pairs))
        answers = []
        for knob, question, seen in (
            ("no_echo", "Is the prompt left out of the reply?", echo),
            ("not_empty", "Do replies hold a text?", empty),
        ):
            word: Word = "yes" if not seen.differ else "no" if seen.surely_some else "cannot tell"
            evidence = f"{seen.differ} of {seen.pairs} replies do not"
            answers.append(Answer(knob, question, word, evidence))
        return answers


def _texts(replies: Sequence[Sequence[Said]]) -> list[list[str]]:
    return [[reply.text for reply in group] for group in replies]


def _more_words(cut: Sequence[tuple[str, list[Said]]]) -> int | None:
    """How many words more than the limit every cut text has, where tokens are words; else None.

    They are where a limit that is larger by so many tokens brings as many words more, every time.
    """
    counts = [[len(reply.text.split()) for reply in replies] for _, replies in cut]
    step = SHORTER[1] - SHORTER[0]
    if len(counts) < 2 or any(more - fewer != step for fewer, more in counts):
        return None
    over = {words - SHORTER[0] for words, _ in counts}
    return over.pop() if len(over) == 1 else None


def _stop_words(text: str) -> list[str]:
    """Two words of a text that stand nowhere in it before, not even inside another."""
    words, fit = text.split(), []
    for k, word in enumerate(words):
        at = text.find(word)
        between_spaces = f"{text} "[at - 1].isspace() and f"{text} "[at + len(word)].isspace()
        first = word not in words[:k] and at > 0 and between_spaces
        if k and first and len(word) > 1 and word.isalpha():
            fit.append(word)
    return fit[len(fit) // 2 :][:2]
