"""The mutants of a module: what mutmut's operators change in it, one thing at a time."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

SKIPPED_CALLS = {"len", "isinstance", "cast", "UserError", "TypeVar", "field_names"}
TYPES = {"Literal", "Callable", "Union", "NDArray", "dict", "list", "tuple"}
SKIPPED_ARGUMENTS = {"strict", "encoding"}
"""zip(strict=...) guards against bugs; encoding=None is utf-8 on the machines that run this."""


@dataclass(frozen=True)
class Mutant:
    """One change of a module: the text that results, and what it is known by."""

    id: str
    function: str
    constant: str
    line: int
    change: str
    source: str

    @property
    def inside(self) -> bool:
        """Whether new code for a function or a new constant is all it takes."""
        return bool(self.function or self.constant)


def mutants_of(source: str) -> list[Mutant]:
    """All changes of a module, in the order of their ids."""
    import libcst as cst
    from libcst.metadata import MetadataWrapper, PositionProvider
    from mutmut.mutation.mutators import mutation_operators

    found: dict[str, Mutant] = {}
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    tree = ast.parse(source)
    bodies, constants = _bodies(tree), _constants(tree)
    whole = [(min(_lines(node)), max(_lines(node))) for node in tree.body]
    wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)

    class Finder(cst.CSTVisitor):
        METADATA_DEPENDENCIES = (PositionProvider,)

        def on_visit(self, node: cst.CSTNode) -> bool:
            if _skipped(node):
                return False
            for kind, operator in mutation_operators:
                if isinstance(node, kind):
                    new = list(operator(node))
                    # "XX" around a string says all that other cases of its letters say
                    for changed in new[:1] if isinstance(node, cst.BaseString) else new:
                        self.add(node, changed)
            return True

        def add(self, node: cst.CSTNode, changed: cst.CSTNode) -> None:
            place = self.get_metadata(PositionProvider, node, None)
            if place is None or _is_noise(node, changed):
                return
            begin = starts[place.start.line - 1] + place.start.column
            end = starts[place.end.line - 1] + place.end.column
            text = wrapper.module.code_for_node(changed)
            mutated = source[:begin] + text + source[end:]
            # The statement of the module that it is in: the whole module would take long.
            inside = ((a, b) for a, b in whole if a <= place.start.line and place.end.line <= b)
            first, last = next(inside, (1, len(lines)))
            before, after = source[starts[first - 1] : begin], source[end : starts[last]]
            with contextlib.suppress(SyntaxError):
                if _tree(before + text + after) == _tree(before + source[begin:end] + after):
                    return
                function = next((n for n, a, b in bodies if a <= place.start.line <= b), "")
                constant = next((n for n, a, b in constants if a <= place.start.line <= b), "")
                where = function or constant or "(definitions)"
                old, new = _one_line(source[begin:end]), _one_line(text)
                around = _one_line("".join(lines[place.start.line - 1 : place.end.line]))
                turn = 0
                while (key := short_hash(where, around, old, new, turn)) in found:
                    turn += 1
                change = f"{where}: {old} -> {new}"
                found[key] = Mutant(key, function, constant, place.start.line, change, mutated)

    wrapper.visit(Finder())
    return [found[key] for key in sorted(found)]


def _lines(node: ast.stmt) -> tuple[int, ...]:
    """First and last line, decorators included."""
    above = [one.lineno for one in getattr(node, "decorator_list", [])]
    return (*above, node.lineno, node.end_lineno or node.lineno)


@lru_cache(maxsize=4)
def _tree(text: str) -> str:
    return ast.dump(ast.parse(text))


def _bodies(tree: ast.Module) -> list[tuple[str, int, int]]:
    """Functions that are not inside others: name, first and last line of the body."""
    result: list[tuple[str, int, int]] = []

    def look(body: Sequence[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                last = node.end_lineno or node.lineno
                result.append((prefix + node.name, node.body[0].lineno, last))
            elif isinstance(node, ast.ClassDef):
                look(node.body, f"{prefix}{node.name}.")

    look(tree.body, "")
    return result


def _constants(tree: ast.Module) -> list[tuple[str, int, int]]:
    """Names with values that only functions read: name, first and last line."""
    result: list[tuple[str, int, int]] = []
    inside = {line for _, first, last in _bodies(tree) for line in range(first, last + 1)}
    names = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    needed = {node.id for node in names if node.lineno not in inside}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id not in needed:
            result.append((targets[0].id, node.lineno, node.end_lineno or node.lineno))
    return result


def _skipped(node: Any) -> bool:
    """What is no number: types, decorators, docstrings, imports, errors and their words."""
    import libcst as cst

    if isinstance(node, cst.Annotation | cst.Decorator | cst.Import | cst.ImportFrom | cst.Raise):
        return True
    if isinstance(node, cst.Expr):
        return isinstance(node.value, cst.SimpleString | cst.ConcatenatedString)
    if isinstance(node, cst.Arg) and node.keyword is not None:
        return node.keyword.value in SKIPPED_ARGUMENTS
    if isinstance(node, cst.Assign):  # X = Literal["a", "b"]; __all__ = [...]
        target = node.targets[0].target
        typed = isinstance(node.value, cst.Subscript) and isinstance(node.value.value, cst.Name)
        named = isinstance(target, cst.Name) and target.value == "__all__"
        return named or (typed and node.value.value.value in TYPES)  # type: ignore[union-attr]
    if isinstance(node, cst.Call):
        return isinstance(node.func, cst.Name) and node.func.value in SKIPPED_CALLS
    return False


def _is_noise(node: Any, changed: Any) -> bool:
    """Whether all that a call lost or changed is an argument that no test can tell."""
    import libcst as cst

    if not isinstance(node, cst.Call) or not isinstance(changed, cst.Call):
        return False
    kept = {id(arg) for arg in changed.args}
    gone = [arg for arg in node.args if id(arg) not in kept]
    return bool(gone) and all(a.keyword and a.keyword.value in SKIPPED_ARGUMENTS for a in gone)


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def short_hash(*parts: object) -> str:
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:8]
