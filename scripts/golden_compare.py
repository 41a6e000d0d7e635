"""Two captures of golden.py side by side, through the written table of changes that are meant.

Every value has an address: the command, the file it was written to (or `stdout`, `stderr`, `exit`),
and the keys that lead to it, as in `audit runs/audit/audit.json gains[0].ratio`. The rules of
golden.yaml are regular expressions over addresses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

RELATIVE, ABSOLUTE = 1e-9, 1e-12
"""How far two numbers may lie apart; the second is for differences that should be zero."""

Address = tuple[str, str, str]
"""Command, file, keys."""


@dataclass(frozen=True)
class Rule:
    """A change that is meant, and why."""

    pattern: re.Pattern[str]
    reason: str
    to: str = ""
    """What takes the place of what the pattern matches."""
    cut: str = ""
    """What is cut out of a text there."""
    within: float = 0.0
    """How far a number may move, relative; 0: anywhere."""

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Rule:
        """From golden.yaml."""
        more = {key: entry[key] for key in ("to", "cut", "within") if key in entry}
        return cls(re.compile(entry["at"]), entry["why"], **more)


@dataclass(frozen=True)
class Difference:
    """One value that is not what it was."""

    address: Address
    old: Any
    new: Any

    def __str__(self) -> str:
        command, file, keys = self.address
        return f"{command}: {file}: {keys or '(whole)'}: {_short(self.old)} -> {_short(self.new)}"


@dataclass
class Table:
    """The rules, and which of them were of use."""

    left_out: list[Rule]
    lines: list[Rule]
    words: list[Rule]
    files: list[Rule]
    keys: list[Rule]
    dropped: list[Rule]
    added: list[Rule]
    moved: list[Rule]
    used: set[Rule] = field(default_factory=set)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Table:
        """The part of golden.yaml that is about comparing."""
        names = ("left_out", "lines", "words", "files", "keys", "dropped", "added", "moved")
        rules = [[Rule.read(one) for one in document.get(name) or ()] for name in names]
        return cls(*rules)

    def unused(self) -> list[Rule]:
        """Rules about changes that did not change anything here."""
        meant = [*self.files, *self.keys, *self.dropped, *self.added, *self.moved]
        return [rule for rule in meant if rule not in self.used]

    def match(self, rules: list[Rule], text: str) -> Rule | None:
        """The first rule that speaks of an address."""
        for rule in rules:
            if rule.pattern.search(text):
                self.used.add(rule)
                return rule
        return None

    def others(self, rules: list[Rule], text: str) -> Iterator[str]:
        """What an old name or address may be called now."""
        for rule in rules:
            new, count = rule.pattern.subn(rule.to, text)
            if count:
                self.used.add(rule)
                yield new


MISSING, THERE = "(not there)", "(written)"


def values(command: str, answer: Mapping[str, Any], table: Table) -> dict[Address, Any]:
    """Every value of a command's answer by its address, without what is left out."""
    parts: dict[str, Any] = {"exit": answer["exit"], "stdout": answer["stdout"], **answer["files"]}
    if answer["exit"]:
        parts["stderr"] = answer["stderr"]
    found: dict[Address, Any] = {}
    for file, document in parts.items():
        if table.match(table.left_out, f"{command} {file} "):
            continue
        for keys, value in _leaves(document, "", table):
            address = f"{command} {file} {keys}"
            if not table.match(table.left_out, address):
                found[command, file, keys] = _cleaned(value, address, table)
    return found


def _leaves(value: Any, here: str, table: Table) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, part in value.items():
            yield from _leaves(part, f"{here}.{key}" if here else str(key), table)
    elif isinstance(value, list) and value:
        kept = (part for part in value if not (isinstance(part, str) and _goes(part, table)))
        for index, part in enumerate(kept):
            yield from _leaves(part, f"{here}[{index}]", table)
    else:
        yield here, value


def _goes(line: str, table: Table) -> bool:
    """Whether a line or a note depends on the clock, so that it may or may not be there."""
    return any(rule.pattern.search(line) for rule in table.lines)


def _cleaned(value: Any, address: str, table: Table) -> Any:
    """A text without times and the like; how wide a column is may hang on them, too."""
    if not isinstance(value, str):
        return value
    for rule in table.words:
        if rule.pattern.search(address):
            value = re.sub(rule.cut, "…", value)
    return " ".join(value.split())


def compare(
    old: Mapping[Address, Any], new: Mapping[Address, Any], table: Table
) -> list[Difference]:
    """What is not equal and not in the table; a file that is not there is one difference."""
    left = dict(new)
    files = {(command, file) for command, file, _ in new}
    differences: dict[Address, Difference] = {}

    def differs(address: Address, was: Any, now: Any) -> None:
        differences.setdefault(address, Difference(address, was, now))

    known = set[tuple[str, str]]()
    for (command, file, keys), was in old.items():
        names = [
            name for name in (file, *table.others(table.files, file)) if (command, name) in files
        ]
        known |= {(command, name) for name in names}
        place = _place((command, file, keys), names, left, table)
        text = f"{command} {file} {keys}"
        if place is not None:
            now = left.pop(place)
            if not _equal(was, now) and not _may_move(was, now, text, table):
                differs(place, was, now)
        elif not table.match(table.dropped, text):
            differs((command, file, keys if names else ""), was if names else THERE, MISSING)
    for (command, file, keys), now in left.items():
        if not table.match(table.added, f"{command} {file} {keys}"):
            seen = (command, file) in known
            differs((command, file, keys if seen else ""), MISSING, now if seen else THERE)
    return list(differences.values())


def _place(
    address: Address, names: list[str], left: Mapping[Address, Any], table: Table
) -> Address | None:
    """Where an old value is now, in one of these files: under its keys, or as the table says."""
    command, _, keys = address
    for name in names:
        if (command, name, keys) in left:
            return command, name, keys
        for other in table.others(table.keys, f"{command} {name} {keys}"):
            parts = other.split(" ", 2)
            if len(parts) == 3 and (parts[0], parts[1], parts[2]) in left:
                return parts[0], parts[1], parts[2]
    return None


def _equal(was: Any, now: Any) -> bool:
    if type(was) is not type(now) and {type(was), type(now)} != {int, float}:
        return False
    if isinstance(was, float) or isinstance(now, float):
        return math.isclose(was, now, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return was == now


def _may_move(was: Any, now: Any, text: str, table: Table) -> bool:
    """Whether the table lets a number move by so much, or a text become any other."""
    rule = table.match(table.moved, text)
    if rule is None:
        return False
    if not rule.within:
        return True
    numbers = all(isinstance(one, int | float) for one in (was, now))
    return numbers and math.isclose(was, now, rel_tol=rule.within, abs_tol=ABSOLUTE)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:297]}..."
