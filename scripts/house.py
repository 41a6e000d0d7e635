"""How large the house is: files, lines, functions, import chains, names that occur twice.

    scripts/house.py             the figures of src/strop
    scripts/house.py --ways      and the way of every verb, by running small commands (minutes)
    scripts/house.py --check     exit code 3 if a figure is above its limit; limits only fall

A line of code has a token that is neither a comment nor part of a docstring (a string that stands
alone, also below a field). A chain of imports follows imports wherever they stand, inside functions
too, those for type checkers aside; importing `a.b.c` imports the package `a.b`; modules that import
each other count once. The way of a verb is the number of files in which the body of a function
ran, by `sys.setprofile` in one thread of one process; what runs when a module is imported does not
count.
"""

from __future__ import annotations

import argparse
import ast
import io
import shlex
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import networkx
import yaml

from golden import HERE, select, serving

SOURCE = HERE.parent / "src"
LONG, MANY = 80, 12
"""Lines and parameters above which a function is too large."""
MOST = 8
"""Entries of a list that are printed."""

LIMITS = {
    "files": 299,
    "modules at the top": 11,
    f"functions over {LONG} lines": 0,
    f"functions over {MANY} parameters": 0,
    "public class names defined more than once": 0,
    "longest chain of imports": 16,
    "the same without imports in functions": 14,
    "lines of __all__ in plain modules": 1,
}
"""What `--check` allows. Lower one when its figure has fallen."""

WAYS = {
    "sample": "sample-fast",
    "score": "score",
    "audit": "audit",
    "tune": "tune",
    "compare": "compare",
    "task run": "task-run",
    "groupeval plan": "groupeval-plan",
    "groupeval judge": "groupeval-judge",
    "groupeval score": "groupeval-score",
    "report": "report",
    "show": "show",
    "ls": "ls",
    "merge": "merge",
    "train": "train",
    "theory account": "theory-account",
    "study frontier": "study-frontier",
    "study cost": "study-cost",
    "reproduce": "reproduce-headline",
}
"""Verbs, and the command of golden.yaml by which their way is counted."""


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    name: str
    file: Path

    @cached_property
    def text(self) -> str:
        """Its source."""
        return self.file.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax."""
        return ast.parse(self.text)

    @property
    def room(self) -> str:
        """The package below strop that it is in."""
        parts = self.file.relative_to(SOURCE / "strop").parts
        return parts[0] if len(parts) > 1 else "(top)"

    @cached_property
    def code_lines(self) -> frozenset[int]:
        """Numbers of the lines with code."""
        silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER}
        silent |= {tokenize.INDENT, tokenize.DEDENT}
        lines = set[int]()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in silent:
                lines |= set(range(token.start[0], token.end[0] + 1))
        for node in ast.walk(self.tree):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return frozenset(lines)

    @property
    def all_lines(self) -> int:
        """Lines of `__all__`, where the file is no package."""
        if self.file.name == "__init__.py":
            return 0
        return sum(
            (node.end_lineno or node.lineno) - node.lineno + 1
            for node in self.tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        )


@dataclass(frozen=True)
class Function:
    """How large one function is."""

    where: str
    lines: int
    parameters: int


def modules() -> dict[str, Module]:
    """All files of the package by the names of their modules."""
    found = {}
    for file in sorted((SOURCE / "strop").rglob("*.py")):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, file)
    return found


def functions(house: dict[str, Module]) -> list[Function]:
    """All functions, the longest first; all lines from `def` to the end."""
    found = []
    for module in house.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                asked = node.args
                count = len(asked.posonlyargs) + len(asked.args) + len(asked.kwonlyargs)
                where = f"{module.file.relative_to(SOURCE / 'strop')}:{node.lineno} {node.name}"
                found.append(Function(where, lines, count))
    return sorted(found, key=lambda one: (-one.lines, one.where))


def class_names(house: dict[str, Module]) -> dict[str, list[str]]:
    """Public classes that are defined at the top of more than one file."""
    homes: dict[str, list[str]] = {}
    for module in house.values():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module.name.removeprefix("strop."))
    return {name: places for name, places in sorted(homes.items()) if len(places) > 1}


# ------------------------------------------------------------------------------- imports


def imports(tree: ast.AST, inside: bool = False) -> Iterator[tuple[ast.stmt, bool]]:
    """The import statements of a module, and whether they stand in a function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, inside
        yield from imports(
            node, inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        )


def chain(house: dict[str, Module], lazy: bool) -> list[str]:
    """The longest chain of modules that import each other, with or without those in functions."""
    graph = networkx.DiGraph()
    graph.add_nodes_from(house)
    for module in house.values():
        for node, inside in imports(module.tree):
            if inside and not lazy:
                continue
            for target in _targets(node, house):
                graph.add_edges_from((module.name, name) for name in _with_packages(target, house))
    graph.remove_edges_from([(name, name) for name in house])
    graph.remove_edges_from(
        [(one, other) for one, other in graph.edges if one.startswith(f"{other}.")]
    )
    knots = networkx.condensation(graph)
    longest = networkx.dag_longest_path(knots)
    return [min(knots.nodes[knot]["members"]).removeprefix("strop.") for knot in longest]


def _targets(node: ast.stmt, house: dict[str, Module]) -> list[str]:
    if isinstance(node, ast.Import):
        return [one.name for one in node.names if one.name in house]
    assert isinstance(node, ast.ImportFrom)
    if node.module not in house:
        return []
    names = (f"{node.module}.{one.name}" for one in node.names)
    return [name if name in house else str(node.module) for name in names]


def _with_packages(name: str, house: dict[str, Module]) -> list[str]:
    """A module and the packages it lies in, strop itself aside."""
    parts = name.split(".")
    packages = [".".join(parts[:count]) for count in range(2, len(parts) + 1)]
    return [one for one in packages if one in house] or [name]


# ------------------------------------------------------------------------------- ways


def ways() -> dict[str, list[str]]:
    """The files that every verb passes."""
    table = yaml.safe_load((HERE / "golden.yaml").read_text(encoding="utf-8"))
    commands = table["commands"]
    needed = {name for command in WAYS.values() for name in select(commands, command)}
    found = dict[str, list[str]]()
    with (
        tempfile.TemporaryDirectory(prefix="house-") as scratch,
        serving(SOURCE.resolve(), Path(scratch) / "root", table["inputs"]) as server,
    ):
        verbs = {command: verb for verb, command in WAYS.items()}
        for name in (name for name in commands if name in needed):
            spelled = commands[name]
            words = spelled if isinstance(spelled, str) else spelled["new"]
            called = Path(scratch) / "called" if name in verbs else None
            ended = server.run(shlex.split(words), Path(scratch), called)
            if ended["exit"]:
                said = (Path(scratch) / "stderr").read_text(encoding="utf-8")
                raise SystemExit(f"{name} ended with {ended['exit']}: {said}")
            if called is not None:
                found[verbs[name]] = called.read_text(encoding="utf-8").split()
                print(f"{len(found[verbs[name]]):4}  {verbs[name]}", file=sys.stderr)
    return {verb: found[verb] for verb in WAYS}


# ------------------------------------------------------------------------------- printing


def figures(house: dict[str, Module]) -> dict[str, int]:
    """What `--check` looks at."""
    every = functions(house)
    return {
        "files": len(house),
        "code lines": sum(len(one.code_lines) for one in house.values()),
        "modules at the top": sum(one.room == "(top)" for one in house.values()),
        f"functions over {LONG} lines": sum(one.lines > LONG for one in every),
        f"functions over {MANY} parameters": sum(one.parameters > MANY for one in every),
        "public class names defined more than once": len(class_names(house)),
        "longest chain of imports": len(chain(house, lazy=True)),
        "the same without imports in functions": len(chain(house, lazy=False)),
        "lines of __all__ in plain modules": sum(one.all_lines for one in house.values()),
    }


def print_house(house: dict[str, Module]) -> None:
    """Everything but the ways."""
    rooms = Counter[str]()
    files = Counter[str]()
    for one in house.values():
        rooms[one.room] += len(one.code_lines)
        files[one.room] += 1
    for name, count in figures(house).items():
        print(f"{count:7,}  {name}")
    _title("rooms: code lines, files")
    for room, lines in rooms.most_common():
        print(f"{lines:7,} {files[room]:4}  {room}")
    _title("longest files")
    for one in sorted(house.values(), key=lambda one: -len(one.code_lines))[:MOST]:
        print(f"{len(one.code_lines):7,}  {one.file.relative_to(SOURCE / 'strop')}")
    every = functions(house)
    _title("longest functions: lines from def to the end, parameters")
    for function in every[:MOST]:
        print(f"{function.lines:7} {function.parameters:4}  {function.where}")
    _title("most parameters")
    for function in sorted(every, key=lambda one: -one.parameters)[:MOST]:
        print(f"{function.parameters:7}  {function.where}")
    _title("longest chain of imports")
    print("  " + " > ".join(chain(house, lazy=True)))
    _title("public class names defined more than once")
    for name, places in class_names(house).items():
        print(f"  {name}: {', '.join(places)}")


def _title(text: str) -> None:
    print(f"\n{text}")


def check(found: dict[str, int]) -> int:
    """Compare with the limits; the exit code."""
    above = {name: count for name, count in found.items() if count > LIMITS.get(name, count)}
    for name, count in above.items():
        print(f"{name}: {count:,}, at most {LIMITS[name]:,} allowed")
    for name, limit in LIMITS.items():
        if found[name] < limit:
            print(f"{name}: {found[name]:,}; its limit can fall from {limit:,}", file=sys.stderr)
    return 3 if above else 0


def main() -> int:
    """Print, or check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ways", action="store_true", help="the way of every verb, too")
    parser.add_argument("--files", metavar="VERB", help="only the files of one verb's way")
    parser.add_argument("--check", action="store_true", help="exit 3 if a limit is exceeded")
    asked = parser.parse_args()
    if asked.files:
        print("\n".join(ways()[asked.files]))
        return 0
    house = modules()
    if asked.check:
        return check(figures(house))
    print_house(house)
    if asked.ways:
        passed = ways()
        _title("the way of each verb: files")
        for verb, files in passed.items():
            print(f"{len(files):7}  {verb}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
