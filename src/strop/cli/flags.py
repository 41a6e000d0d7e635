"""Messages in the words of who typed the command.

The library names fields: with their owner (`SamplerSpec.steps`), or, in backquotes, arguments and
what to set them to (`out`, `weights=raw`). Here they become the flags that the invoked verb has. A
piece of advice that needs a flag which the verb lacks is left out; alternatives are told apart by
", or ".
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from importlib import resources
from typing import Any

from strop.errors import StropError

OWNERS = {
    "SamplerSpec": "",
    "GeneratorSpec": "",
    "CellSpec": "",
    "DenseBatch": "",
    "TrainSpec": "",
    "DataSpec": "data.",
    "ModelSpec": "model.",
    "SourceSpec": "data.sources.",
}
"""Whose fields a user sets, and where those of a training configuration stand in it."""

RENAMED = {"SamplerSpec.name": "sampler", "DenseBatch.size": "batch_size"}

KEYS = {"name", "model"}
"""Flags of one verb that elsewhere are keys of files: messages mean those."""

OWNED = re.compile(rf"\b({'|'.join(OWNERS)})\.([a-z_]+(?:\.\w+)*)")
ARGUMENT = re.compile(r"`([a-z_]+)(?:=([^`]*))?`")
ALTERNATIVE = ", or "


class Flags:
    """The flags of the verb that a command line invokes."""

    def __init__(self, root: Any, argv: Sequence[str]) -> None:
        command = root
        for word in argv:
            if not word.startswith("-") and hasattr(command, "get_command"):
                command = command.get_command(None, word) or command
        self._argv = argv
        self._flags = {
            name: _spelled(parameter, argv)
            for parameter in command.params
            for name in _names(parameter)
        }
        self._root = root

    @cached_property
    def _anywhere(self) -> set[str]:
        """Whatever some verb has as a flag."""
        return (_all_names(self._root) | _all_fields()) - KEYS

    def error(self, error: StropError) -> StropError:
        """The same error as this verb's user should read it."""
        told = copy.copy(error)
        told.what = self.text(error.what)
        told.where = self._where(error.where)
        told.expected = None if error.expected is None else self.text(error.expected)
        told.fix = None if error.fix is None else self._fix(error.fix)
        return told

    def text(self, text: str) -> str:
        """A sentence with flags for fields; a field without a flag in plain words."""
        return OWNED.sub(self._owned, ARGUMENT.sub(self._argument, text))

    def _where(self, where: str | None) -> str | None:
        if where in OWNERS:  # a configuration as a whole, or flags that do not go together
            return self._flags.get("config")
        named = where is not None and (OWNED.match(where) or ARGUMENT.fullmatch(where))
        return self.text(where) if where is not None and named else where

    def _fix(self, fix: str) -> str | None:
        kept = [part for part in fix.split(ALTERNATIVE) if not self._lacks(part)]
        return self.text(ALTERNATIVE.join(kept)) if kept else None

    def _lacks(self, advice: str) -> bool:
        fields = {found[1] for found in ARGUMENT.finditer(advice)}
        return any(field in self._anywhere and field not in self._flags for field in fields)

    def _argument(self, found: re.Match[str]) -> str:
        field, value = found[1], found[2]
        if field not in self._anywhere:
            return found[0]
        flag = self._flags.get(field, field.replace("_", " "))
        return flag if value is None else f"{flag} {value}"

    def _owned(self, found: re.Match[str]) -> str:
        owner, path = found[1], OWNERS[found[1]] + found[2]
        if "config" in self._flags:  # of a file, or changed on the command line
            changed = any(word.startswith(f"{path}=") for word in self._argv)
            return f"{self._flags['set']} {path}" if changed else path
        field, _, rest = path.partition(".")
        field = RENAMED.get(f"{owner}.{field}", field)
        return " ".join([self._flags.get(field, field), *rest.split()])


_verb: ContextVar[Flags | None] = ContextVar("verb", default=None)


@contextmanager
def speaking(root: Any, argv: Sequence[str]) -> Iterator[Flags]:
    """Let everything that is told inside name the flags of the verb that `argv` invokes."""
    verb = Flags(root, argv)
    token = _verb.set(verb)
    try:
        yield verb
    finally:
        _verb.reset(token)


def in_flags(text: str) -> str:
    """A sentence of the library for the user of the verb at work."""
    verb = _verb.get()
    return text if verb is None else verb.text(text)


def _names(parameter: Any) -> set[str]:
    """What the library may call a parameter: as the function does, or as the flag does."""
    return {parameter.name, *(opt.lstrip("-").replace("-", "_") for opt in parameter.opts)}


def _spelled(parameter: Any, argv: Sequence[str]) -> str:
    """A flag as it was typed, else as it is declared first; an argument as the help shows it."""
    if parameter.param_type_name == "argument":
        return parameter.metavar or parameter.name.upper()
    typed = [opt for opt in parameter.opts if opt in argv]
    return (typed or parameter.opts)[0]


def _all_fields() -> set[str]:
    """What any verb may be told, from the stub that lists it: no record is loaded for it."""
    stub = ast.parse(resources.files("strop.verbs").joinpath("calls.pyi").read_text("utf-8"))
    fields = [field for one in stub.body if isinstance(one, ast.ClassDef) for field in one.body]
    return {ast.unparse(field.target) for field in fields if isinstance(field, ast.AnnAssign)}


def _all_names(command: Any) -> set[str]:
    mine = {name for parameter in command.params for name in _names(parameter)}
    return mine.union(*map(_all_names, getattr(command, "commands", {}).values()))
