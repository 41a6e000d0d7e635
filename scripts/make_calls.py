"""Write src/strop/verbs/calls.pyi: the types of every verb as a function, from the records.

scripts/make_calls.py            write the file
scripts/make_calls.py --check    exit code 3 if it is not what the records say
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from strop.registry import resolve
from strop.verbs.calls import MODULES, VERBS, argument_name, record_of
from strop.verbs.study import Study
from strop.verbs.verb import Parameter, Verb

FILE = Path(__file__).parents[1] / "src/strop/verbs/calls.pyi"
HEAD = '''"""Every verb as a function of its name, as type checkers and editors read it.

Made by scripts/make_calls.py from the records; change those and run it again.
"""

from collections.abc import Mapping, Sequence
from inspect import Signature
from os import PathLike
from typing import Any, Literal, Required, TypedDict, Unpack

from strop.verbs.verb import Parameter, Result, Verb

Place = str | PathLike[str]
MODULES: tuple[str, ...]
VERBS: dict[str, tuple[str, str]]

def record_of(name: str) -> Verb | None: ...
def argument_name(parameter: Parameter, verb: Verb) -> str: ...
def signature(verb: Verb) -> Signature: ...
'''
TYPES = {
    "int": "int",
    "float": "float",
    "share": "float | str",
    "text": "str",
    "flag": "bool",
    "path": "Place",
    "place": "Place",
    "batch": 'int | Literal["auto"]',
    "ints": "int | Sequence[int]",
    "floats": "float | Sequence[float]",
    "numbers": "float | Sequence[float]",
    "words": "str | Sequence[str]",
    "counts": "int | Sequence[int]",
    "masses": "str | Sequence[float]",
    "many": "str | Sequence[str]",
    "axes": "Mapping[str, Sequence[Any]]",
    "pairs": "Mapping[str, Any]",
    "options": "Mapping[str, Any]",
    "changes": "Mapping[str, Any]",
    "wheres": "Sequence[Mapping[str, Any]]",
}


def verbs() -> dict[str, Verb]:
    """The verbs by the names of their functions."""
    names = [name.replace("-", "_") for name in VERBS]
    names += [f"{group}_{one.name}" for group in MODULES for one in resolve(VERBS[group][0]).verbs]
    return {name: verb for name in names if (verb := record_of(name)) is not None}


def of(one: Parameter) -> str:
    """The type of a parameter."""
    if one.name in ("out", "run", "config", "root"):
        words = "Place"
    elif one.name in ("prompts", "shots", "spec"):
        words = "Any"  # a file, or what it would hold
    elif one.choices and one.kind == "text":
        words = f"Literal[{', '.join(repr(choice) for choice in one.choices)}]"
    else:
        words = TYPES[one.kind]
    words = f"{words} | None" if one.default is None and not one.required else words
    return f"Required[{words}]" if one.required and not one.argument else words


def argument(one: Parameter, verb: Verb) -> str:
    """How an argument without a flag is declared."""
    name = argument_name(one, verb)
    if one.kind == "many":
        return f"*{name}: Place"
    kind = "Any" if one.name in ("checkpoint", "config") else "Place"
    kind = "str" if one.name in ("task", "id", "cell") else kind
    return f"{name}: {kind}" if one.required else f"{name}: {kind} | None = None"


def field(one: Parameter) -> str:
    """How a TypedDict declares it."""
    return f"    {one.name}: {of(one)}\n    {words(one.help)}\n"


def title(name: str) -> str:
    """What the class of some arguments is called."""
    return "".join(word.capitalize() for word in name.split("_")) + "Arguments"


def shared() -> dict[str, list[str]]:
    """Fields that several verbs have in common, by the name of their class."""
    users: dict[str, list[str]] = defaultdict(list)
    for name, verb in verbs().items():
        for one in verb.takes:
            if not one.argument:
                users[field(one)].append(name)
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for text, names in users.items():
        groups[tuple(names)].append(text)
    return {
        "Common" + title(fields[0].split(":")[0].strip()): fields
        for names, fields in groups.items()
        if len(names) > 1 and len(fields) > 1
    }


def typed(name: str, fields: list[str], about: str, bases: list[str]) -> str:
    """A class of arguments."""
    body = f'    """{about}"""\n\n' + "".join(fields)
    return f"class {name}({', '.join(bases or ['TypedDict'])}, total=False):\n{body}"


def function(name: str, verb: Verb, common: dict[str, list[str]]) -> str:
    """A verb's arguments as a TypedDict, and its function."""
    fields = [field(one) for one in verb.takes if not one.argument]
    bases = [base for base, some in common.items() if set(some) <= set(fields)]
    own = [one for one in fields if not any(one in common[base] for base in bases)]
    given = [argument(one, verb) for one in verb.takes if one.argument]
    alone = ["/"] if isinstance(verb, Study) and given and not given[0].startswith("*") else []
    rest = [f"**given: Unpack[{title(name)}]"] if fields else []
    about = f"What `{name}` may be told."
    head = typed(title(name), own, about, bases) + "\n\n" if fields else ""
    first = words(verb.help.split("\n\n")[0])
    return f"{head}def {name}({', '.join([*given, *alone, *rest])}) -> Result:\n    {first}\n"


def words(text: str) -> str:
    """A docstring."""
    text = " ".join(text.split()).replace("\\", "\\\\")
    line = f'"""{text}"""'
    if len(line) <= 90:
        return line
    lines, current = [], '"""'
    for word in text.split():
        if len(current) + len(word) > 90:
            lines.append(current.rstrip())
            current = "    "
        current += word + " "
    return "\n".join([*lines, current.rstrip() + '"""']).replace('"""\n', '"""')


def text() -> str:
    """The whole file, in the house's style."""
    common = shared()
    parts = [typed(name, some, "Of several verbs.", []) for name, some in common.items()]
    parts += [function(name, verb, common) for name, verb in verbs().items()]
    source = HEAD + "\n\n" + "\n\n".join(parts)
    style = ["ruff", "format", "-", "--stdin-filename", str(FILE)]
    ruff = Path(sys.executable).parent / style[0]
    return subprocess.run(
        [str(ruff), *style[1:]], input=source, capture_output=True, text=True, check=True
    ).stdout


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if FILE.read_text(encoding="utf-8") == text() else 3)
    FILE.write_text(text(), encoding="utf-8")
