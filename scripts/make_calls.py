"""Write src/strop/verbs/calls.py: every verb as a typed function, from the records.

scripts/make_calls.py            write the file
scripts/make_calls.py --check    exit code 3 if it is not what the records say
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from importlib import import_module
from pathlib import Path

from strop.cli.main import VERBS
from strop.registry import resolve
from strop.verbs.study import Study
from strop.verbs.verb import Parameter, Verb, VerbGroup

FILE = Path(__file__).parents[1] / "src/strop/verbs/calls.py"
OF_GROUP = {"task": "strop.verbs.task:VERB"}
"""Groups that have a function of their name, and the verb that it is."""
MODULES = ("theory",)
"""Groups whose verbs are functions of the module that bears the group's name."""
HEAD = '''"""Every verb as a function of its name, with the parameters of its record as arguments.

Made by scripts/make_calls.py from the records; change those and run it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict, Unpack

from strop.registry import resolve

if TYPE_CHECKING:
    from strop.verbs.result import Result

Place = str | PathLike[str]


def _call(reference: str, arguments: Sequence[Any], given: Mapping[str, Any]) -> Result:
    return resolve(reference)(*arguments, **given)
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


def verbs() -> dict[str, tuple[str, Verb]]:
    """Functions by name, with where their records are."""
    found = {}
    for name, (reference, _) in VERBS.items():
        record = resolve(OF_GROUP.get(name, reference))
        if isinstance(record, Verb) and not isinstance(record, VerbGroup):
            found[name.replace("-", "_")] = (OF_GROUP.get(name, reference), record)
    return found | {
        f"{group}_{verb.name}": (f"{module}:{name}", verb)
        for group in MODULES
        for module in [VERBS[group][0].partition(":")[0]]
        for name, verb in vars(import_module(module)).items()
        if isinstance(verb, Verb) and verb in resolve(VERBS[group][0]).verbs
    }


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


def argument(one: Parameter, study: bool) -> tuple[str, str]:
    """How an argument without a flag is declared and handed on."""
    name = re.sub(r"\W", "", one.argument.lower()) if study else one.name
    name = f"side_{name}" if len(name) == 1 else name  # compare's A, beside its parameter `a`
    if one.kind == "many":
        return f"*{name}: Place", f"*{name}"
    kind = "Any" if one.name in ("checkpoint", "config") else "Place"
    kind = "str" if one.name in ("task", "id", "cell") else kind
    return (f"{name}: {kind}" if one.required else f"{name}: {kind} | None = None"), name


def field(one: Parameter) -> str:
    """How a TypedDict declares it."""
    return f"    {one.name}: {of(one)}\n    {words(one.help)}\n"


def title(name: str) -> str:
    """What the class of some arguments is called."""
    return "".join(word.capitalize() for word in name.split("_")) + "Arguments"


def shared() -> dict[str, list[str]]:
    """Fields that several verbs have in common, by the name of their class."""
    users: dict[str, list[str]] = defaultdict(list)
    for name, (_, verb) in verbs().items():
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


def function(name: str, reference: str, verb: Verb, common: dict[str, list[str]]) -> str:
    """A verb's arguments as a TypedDict, and its function."""
    study = isinstance(verb, Study)
    named = [one for one in verb.takes if not one.argument]
    fields = [field(one) for one in named]
    bases = [base for base, some in common.items() if set(some) <= set(fields)]
    own = [one for one in fields if not any(one in common[base] for base in bases)]
    given = [argument(one, study) for one in verb.takes if one.argument]
    rest = f"**given: Unpack[{title(name)}]" if named else ""
    first = verb.help.split("\n\n")[0]
    handed = ", ".join(one for _, one in given)
    optional = [one for one in verb.takes if one.argument and not one.required]
    values = f"({handed},)" if handed else "()"
    if optional and not any(one.kind == "many" for one in optional):
        values = f"[one for one in {values} if one is not None]"
    # a study's checkpoints have no names: one of its parameters may be called like them
    alone = ["/"] if study and not any(one.startswith("*") for _, one in given) and given else []
    declared = ", ".join([*(one for one, _ in given), *alone, *([rest] if rest else [])])
    about = f"What `{name}` may be told."
    head = typed(title(name), own, about, bases) + "\n\n" if named else ""
    return (
        f"{head}def {name}({declared}) -> Result:\n    {words(first)}\n"
        f"    return _call({reference!r}, {values}, {'given' if named else '{}'})\n"
    )


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
    parts += [function(name, *found, common) for name, found in verbs().items()]
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
