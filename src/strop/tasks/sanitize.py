"""From a model's text to a complete program, as the public evaluations of diffusion models do it.

Of the longest run of lines that is Python, the definitions that the wanted function can reach are
kept: imports, classes, functions that return something, and plain assignments, the later of two of
the same name. In one respect this is not the public rule: what the prompt itself defines stays (the
public sanitiser drops it, and so fails a correct solution of HumanEval/50). It never raises.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable

__all__ = ["sanitize"]

LINES = 100
"""How much of a text is looked at, as in the public code."""
TAB = " " * 4

Names = dict[str, ast.stmt]


def sanitize(text: str, prompt: str, entry_point: str) -> str | None:
    """The program in a text that begins with the prompt; None if it does not have the function."""
    try:
        tree = _longest_span(text.replace("\t", TAB).split("\n")[:LINES])
        imports, defined = _definitions(tree)
        if entry_point not in defined:
            return None
        own_imports, own = _definitions(_parsed(prompt) or ast.Module([], []))
        everything = {**own, **defined}
        kept = _reachable(entry_point, everything) | set(own)
        body = _unique([*own_imports, *imports])
        body += [node for name, node in everything.items() if name in kept]
        return ast.unparse(ast.fix_missing_locations(ast.Module(body, [])))
    except (RecursionError, MemoryError):  # of a text that only pretends to be a program
        return None


def _parsed(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd escapes are not our business
            return ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _longest_span(lines: list[str]) -> ast.Module:
    """The parsed run of lines with the most lines that are not blank; the first of several."""
    best, most = ast.Module([], []), 0
    for start in range(len(lines)):
        for end in range(len(lines), start, -1):
            filled = sum(1 for line in lines[start:end] if line.strip())
            if filled <= most:
                break  # a shorter run from here has fewer still
            tree = _parsed("\n".join(lines[start:end]))
            if tree is not None:
                best, most = tree, filled
                break
    return best


def _definitions(tree: ast.Module) -> tuple[list[ast.stmt], Names]:
    """The imports of a module, and what it defines by name, in order."""
    imports: list[ast.stmt] = []
    defined: Names = {}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
        elif isinstance(node, ast.ClassDef) or (
            isinstance(node, ast.FunctionDef) and _returns(node)
        ):
            _define(defined, node.name, node)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            (target,) = node.targets
            if isinstance(target, ast.Name):
                _define(defined, target.id, node)
    return imports, defined


def _define(defined: Names, name: str, node: ast.stmt) -> None:
    defined.pop(name, None)  # the later one counts, at its own place
    defined[name] = node


def _returns(node: ast.FunctionDef) -> bool:
    return any(isinstance(one, ast.Return) for one in ast.walk(node))


def _reachable(start: str, defined: Names) -> set[str]:
    """The names that a definition uses, and those that they use."""
    found, open_names = {start}, [start]
    while open_names:
        for one in ast.walk(defined[open_names.pop()]):
            if isinstance(one, ast.Name) and one.id in defined and one.id not in found:
                found.add(one.id)
                open_names.append(one.id)
    return found


def _unique(nodes: Iterable[ast.stmt]) -> list[ast.stmt]:
    """Each import once; the later ones of `__future__` would be errors anyway further down."""
    seen: dict[str, ast.stmt] = {}
    for node in nodes:
        seen.setdefault(ast.unparse(node), node)
    return sorted(seen.values(), key=lambda node: getattr(node, "module", "") != "__future__")
