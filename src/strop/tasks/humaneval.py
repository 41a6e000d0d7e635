"""HumanEval: 164 functions to be written, each checked by its tests in a sandbox.

Bodies of functions that try to pass without solving anything; `strop task check` sends them.

From a model's text to a complete program, as the public evaluations of diffusion models do it.

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from strop.errors import UserError
from strop.tasks.grade import rows
from strop.tasks.sandbox import Box, trial
from strop.tasks.task import Filter, Item, Task, Verdict

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
        own_imports, given_names = _definitions(_pieces(prompt) or [])
        everything = {**given_names, **defined}
        used = _reachable(entry_point, everything) | set(given_names)
        body = _unique([*own_imports, *imports])
        body += [piece for name, piece in everything.items() if name in used]
        return "\n".join(piece.text for piece in body)
    except (RecursionError, MemoryError):  # of a text that only pretends to be a program
        return None


def _pieces(text: str) -> list[Piece] | None:
    """The statements of a module; None if it is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd escapes are not our business
            tree = ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    # The parser's lines end at these three, and at no other of `str.splitlines`.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return [Piece(node, _piece_text(node, lines)) for node in tree.body]


def _piece_text(node: ast.stmt, lines: list[str]) -> str:
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
            pieces = _pieces("\n".join(lines[start:end]))
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
            isinstance(node, ast.FunctionDef)
            and any(isinstance(part, ast.Return) for part in ast.walk(node))
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


def _reachable(start: str, defined: Names) -> set[str]:
    """The names that a definition uses, and those that they use."""
    names, open_names = {start}, [start]
    while open_names:
        for node in ast.walk(defined[open_names.pop()].node):
            if isinstance(node, ast.Name) and node.id in defined and node.id not in names:
                names.add(node.id)
                open_names.append(node.id)
    return names


def _unique(pieces: Iterable[Piece]) -> list[Piece]:
    """Each import once; the later ones of `__future__` would be errors anyway further down."""
    seen: dict[str, Piece] = {}
    for piece in pieces:
        seen.setdefault(ast.dump(piece.node), piece)
    return sorted(
        seen.values(), key=lambda piece: getattr(piece.node, "module", "") != "__future__"
    )


PRINTS = """\
    import os, sys
    print("passed")
    sys.stderr.write("passed")
    print('{"outcome": "passed", "detail": "", "calls": 1}', flush=True)
    os._exit(0)
    return True
"""

EXITS = """\
    import sys
    sys.exit(0)
    return True
"""

EQUALS_ALL = """\
    class Everything(int):
        __eq__ = __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: True
        __ne__ = lambda self, other: False
        __sub__ = __rsub__ = __add__ = __abs__ = __getitem__ = lambda self, *other: self
        __hash__ = int.__hash__
        __len__ = lambda self: 1
        __iter__ = lambda self: iter(())
    return Everything(123456789)
"""

PATCHES = """\
    import builtins, json, math, sys
    always = lambda *args, **kwargs: True
    for module in (builtins, math):
        for name in ("abs", "all", "any", "fabs", "isinstance", "len", "sorted", "tuple"):
            if hasattr(module, name):
                setattr(module, name, always)
    builtins.AssertionError = type("Quiet", (Exception,), {})
    for module in list(sys.modules.values()):
        if hasattr(module, "check"):
            module.check = always
    json.dumps = lambda value: '{"outcome": "passed", "detail": "", "calls": 1}'
    return True
"""

WRITES_EVERYWHERE = """\
    import os
    verdict = b'{"outcome": "passed", "detail": "", "calls": 1}\\n'
    for descriptor in range(64):
        try:
            os.write(descriptor, verdict)
        except OSError:
            pass
    return ["no such value"]
"""

BODIES = (PRINTS, EXITS, EQUALS_ALL, PATCHES, WRITES_EVERYWHERE)


FENCE = "```"
OPENING = FENCE + "python"


def items() -> Sequence[Item]:
    """The problems in their order."""
    return [
        Item(
            row["task_id"],
            row["prompt"],
            row["canonical_solution"],
            case={name: row[name] for name in ("prompt", "entry_point", "test")},
        )
        for row in rows("humaneval/problems")
    ]


def program(item: Item, response: str) -> str | None:
    """The complete program of a response: what is fenced, or what stands before a fence."""
    _, opened, fenced = response.partition(OPENING)
    code = (fenced if opened else response).partition(FENCE)[0]
    return sanitize(item.question + "\n" + code, item.question, item.case["entry_point"])


def check(item: Item, answer: str, box: Box | None) -> Verdict:
    """Run a program against the problem's tests."""
    if box is None:
        raise UserError("Programs of a model run in a sandbox only.", expected="a `Box`")
    return trial(box, answer, item.case)


def wrong(item: Item, other: Item) -> Mapping[str, str]:
    """Another problem's solution, one that does nothing, and one that forges its verdict."""
    forged = BODIES[int(item.id.rpartition("/")[2]) % len(BODIES)]
    return {"swapped": other.reference, "emptied": "    return None\n", "forged": forged}


HUMANEVAL = Task(
    name="humaneval",
    summary="164 Python functions from their descriptions, run against tests in a sandbox",
    source="openai/human-eval, MIT",
    items=items,
    filters=(Filter("program", program),),
    check=check,
    wrong=wrong,
    sandboxed=True,
    version="1",
)
