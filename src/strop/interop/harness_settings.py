"""The settings of one generation, from the harness's request and the user's arguments.

There are two sources. *Model arguments* are the user's for this run. *Generation arguments* come
with every request: what the task's file says, updated by `--gen-kwargs`. A model argument holds
where both speak, and a difference is shown once per task: the task's file cannot know of a sweep.
Whatever neither says is greedy, 256 tokens, seed 0. Nothing is dropped: what a sampler does not
have is refused by name.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from strop.errors import UserError, whole_number
from strop.runtime import MOST_LENGTH
from strop.spec.generator import SamplerSpec, swept
from strop.spec.value import SEED_LIMIT

LENGTH = 256
"""Tokens of a response by default: the harness's own number."""
LENGTHS = (
    "length",
    "gen_length",
    "max_gen_toks",
    "max_new_tokens",
    "max_tokens",
    "max_completion_tokens",
)
"""What the number of tokens of a response is called here and elsewhere."""
# Values that mean "nothing of the kind": they hold whatever the sampler has.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "top_k": (0, -1),
    "min_p": (0,),
    "num_beams": (1,),
    "repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
}


@dataclass(frozen=True)
class Generation:
    """What one request asks for, resolved."""

    spec: SamplerSpec
    seed: int
    length: int
    until: tuple[str, ...]

    @property
    def key(self) -> str:
        """A text that is equal for equal settings."""
        return repr((self.spec.canonical(), self.seed, self.length, self.until))

    def cut(self, text: str) -> str:
        """A text up to the first stop string, without it."""
        ends = [text.find(stop) for stop in self.until if stop in text]
        return text[: min(ends)] if ends else text


@dataclass
class Settings:
    """The user's settings for one sampler."""

    sampler: str
    overrides: Mapping[str, Any]
    """Model arguments about generation: `seed`, `length`, and those of the sampler."""
    _warned: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.overrides = _without_neutral(in_one_name(self.overrides, "model arguments"))
        self.of({}, "")  # report what is impossible before a task is read

    def of(self, arguments: Mapping[str, Any], task: str) -> Generation:
        """The settings of a request of `task` with these generation arguments."""
        arguments = _without_neutral(in_one_name(arguments, f"generation arguments of {task}"))
        until = arguments.pop("until", ())
        texts = [until] if isinstance(until, str) else list(until)
        if not all(isinstance(stop, str) for stop in texts):
            raise _wrong("until", until, "texts", task)
        _settle_sampling(arguments, self.overrides, task)
        for name in self.overrides.keys() & arguments.keys():
            self._warn_once(name, arguments[name], task)
        held = {"temperature": 0.0, "seed": 0, "length": LENGTH, **arguments, **self.overrides}
        seed = whole_number("seed", held.pop("seed"), 0, SEED_LIMIT)
        length = whole_number("length", held.pop("length"), 1, MOST_LENGTH + 1)
        held["temperature"] = swept(self.sampler, held["temperature"])
        spec = SamplerSpec(**{"name": self.sampler, **held})
        return Generation(spec, seed, length, tuple(stop for stop in texts if stop))

    def _warn_once(self, name: str, value: Any, task: str) -> None:
        if value == self.overrides[name] or (task, name) in self._warned:
            return
        self._warned.add((task, name))
        warnings.warn(
            f"{task}: the task asks for {name}={value}, but the model argument "
            f"{name}={self.overrides[name]} holds",
            UserWarning,
            stacklevel=4,
        )


def in_one_name(arguments: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The number of tokens under one name; two different numbers are refused."""
    lengths = {name: arguments[name] for name in LENGTHS if arguments.get(name) is not None}
    if len(set(lengths.values())) > 1:
        raise UserError(
            "The length of a response is given twice.",
            where=where,
            got=", ".join(f"{name}={value}" for name, value in lengths.items()),
            fix="give one of them",
        )
    others = {name: value for name, value in arguments.items() if name not in LENGTHS}
    return others | ({"length": next(iter(lengths.values()))} if lengths else {})


def _without_neutral(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that ask for something: not None, and not the neutral value of a filter."""
    return {
        name: value
        for name, value in arguments.items()
        if value is not None and value not in NEUTRAL.get(name, ())
    }


def _settle_sampling(arguments: dict[str, Any], overrides: Mapping[str, Any], task: str) -> None:
    """Read `do_sample` as a temperature, which is what it means here."""
    if "do_sample" not in arguments:
        return
    drawn, temperature = arguments.pop("do_sample"), arguments.get("temperature")
    if not isinstance(drawn, bool):
        raise _wrong("do_sample", drawn, "true or false", task)
    if temperature is None:
        arguments["temperature"] = 1.0 if drawn else 0.0
    elif drawn == (float(temperature) > 0):
        return
    elif "temperature" not in overrides:
        raise UserError(
            "The generation arguments contradict each other.",
            where=task,
            got=f"do_sample={str(drawn).lower()} and temperature={temperature}",
            expected="do_sample=false with temperature 0, or do_sample=true with one above 0",
            fix="give both as generation arguments, or give temperature as a model argument",
        )


def _wrong(name: str, got: Any, expected: str, task: str) -> UserError:
    return UserError(
        f"The generation argument {name!r} has the wrong type.",
        where=task,
        got=repr(got)[:80],
        expected=expected,
    )
