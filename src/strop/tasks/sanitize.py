"""From a model's text to a complete program, as the public evaluations of diffusion models do it.

Of the longest run of lines that is Python, the definitions that the wanted function can reach are
kept: imports, classes, functions that return something, and plain assignments, the later of two of
the same name. In one respect this is not the public rule: what the prompt itself defines stays (the
public sanitiser drops it, and so fails a correct solution of HumanEval/50).

The program is made of the text's own lines: writing it anew from its tree fails on some programs
that Python reads. It never raises.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

LINES = 100
"""How much of a text is looked at, as in the public code."""
TAB = " " * 4


@dataclass(frozen=True)
class Piece:
    """A statement of a module, and its text."""

    node: ast.stmt
    text: str


Names = dict[str, Piece]


def sanitize(text: str, prompt: str, entry_point: str) -> str | None:
    """The program in a text that begins with the prompt; None if it does not have the function."""
    try:
        tree = _longest_span(text.replace("\t", TAB).split("\n")[:LINES])
        imports, defined = _definitions(tree)
        if entry_point not in defined:
            return None
        own_imports, own = _definitions(_parsed(prompt) or [])
        everything = {**own, **defined}
        kept = _reachable(entry_point, everything) | set(own)
        body = _unique([*own_imports, *imports])
        body += [piece for name, piece in everything.items() if name in kept]
        return "\n".join(piece.text for piece in body)
    except (RecursionError, MemoryError):  # of a text that only pretends to be a program
        return None


def _parsed(text: str) -> list[Piece] | None:
    """The statements of a module; None if it is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd escapes are not our business
            tree = ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    # The parser's lines end at these three, and at no other of `str.splitlines`.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return [Piece(node, _cut(node, lines)) for node in tree.body]


def _cut(node: ast.stmt, lines: list[str]) -> str:
    """The text of a statement, from its first decorator on; columns count bytes."""
    first, start = node.lineno, node.col_offset
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    if decorators:
        first, start = decorators[0].lineno, 0  # nothing stands before an @
    last, end = node.end_lineno or first, node.end_col_offset
    taken = lines[first - 1 : last]
    taken[-1] = taken[-1].encode()[:end].decode()  # first: the start is in the same line, or above
    taken[0] = taken[0].encode()[start:].decode()
    return "\n".join(taken)


def _longest_span(lines: list[str]) -> list[Piece]:
    """The parsed run of lines with the most lines that are not blank; the first of several."""
    best: list[Piece] = []
    most = 0
    for start in range(len(lines)):
        for end in range(len(lines), start, -1):
            filled = sum(1 for line in lines[start:end] if line.strip())
            if filled <= most:
                break  # a shorter run from here has fewer still
            pieces = _parsed("\n".join(lines[start:end]))
            if pieces is not None:
                best, most = pieces, filled
                break
    return best


def _definitions(module: Iterable[Piece]) -> tuple[list[Piece], Names]:
    """The imports of a module, and what it defines by name, in order."""
    imports: list[Piece] = []
    defined: Names = {}
    for piece in module:
        node = piece.node
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(piece)
        elif isinstance(node, ast.ClassDef) or (
            isinstance(node, ast.FunctionDef) and _returns(node)
        ):
            _define(defined, node.name, piece)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            (target,) = node.targets
            if isinstance(target, ast.Name):
                _define(defined, target.id, piece)
    return imports, defined


def _define(defined: Names, name: str, piece: Piece) -> None:
    defined.pop(name, None)  # the later one counts, at its own place
    defined[name] = piece


def _returns(node: ast.FunctionDef) -> bool:
    return any(isinstance(one, ast.Return) for one in ast.walk(node))


def _reachable(start: str, defined: Names) -> set[str]:
    """The names that a definition uses, and those that they use."""
    found, open_names = {start}, [start]
    while open_names:
        for one in ast.walk(defined[open_names.pop()].node):
            if isinstance(one, ast.Name) and one.id in defined and one.id not in found:
                found.add(one.id)
                open_names.append(one.id)
    return found


def _unique(pieces: Iterable[Piece]) -> list[Piece]:
    """Each import once; the later ones of `__future__` would be errors anyway further down."""
    seen: dict[str, Piece] = {}
    for piece in pieces:
        seen.setdefault(ast.dump(piece.node), piece)
    return sorted(seen.values(), key=lambda one: getattr(one.node, "module", "") != "__future__")
