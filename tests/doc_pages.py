"""What the pages for people hold: blocks, commands, names and links, and what is wrong with them.

Every function here yields faults in words, with the page and the line where a reader finds them.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer
import yaml

import strop
from strop.cli.main import build
from strop.records import SAMPLERS

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^ *(`{3,}|~{3,})(\w*)")
INLINE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
OUTSIDE = re.compile(r"^[a-z]+:")
PLACEHOLDER = re.compile(r"(?<![\w.-])(?!README)[A-Z]{2,}(?![\w=-])")
"""RUN, FILE.jsonl, http://HOST:8000; not DUO=files/duo, which names something."""
FLAG = re.compile(r"^--?[a-zA-Z][\w-]*")
DOTTED = re.compile(r"^strop(\.\w+)+")
OUR_PATH = re.compile(r"^(src|tests|scripts|benchmarks|docs)/[\w./-]*$")
SHELL = ("sh", "bash", "shell")
PROGRAMS = ("strop", "make", "pip", "python", "torchrun", "echo")
PIP_FLAGS = {"--no-deps", "--upgrade", "--editable"}
PRECISIONS = ("float64", "float32")


@dataclass(frozen=True)
class Piece:
    """A fenced block, or a span in backquotes (`kind` is "inline")."""

    page: str
    line: int
    kind: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """One command as it stands on a page, with what the page says that it prints."""

    page: str
    line: int
    text: str
    inline: bool
    printed: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def program(self) -> str:
        return self.text.split()[0]

    @property
    def shortened(self) -> bool:
        """Whether the page leaves something out: then nothing that is missing is missed."""
        return "..." in self.text.split()

    @property
    def is_name(self) -> bool:
        """Whether prose names a verb, such as `strop groupeval plan`, and does not use it."""
        return self.inline and all(
            re.fullmatch(r"[a-z][a-z-]*", word) for word in self.text.split()
        )

    def words(self, optional: bool = False) -> list[str]:
        """As the shell splits it; what stands in square brackets is taken or left."""
        text = self.text
        if self.program != "pip":
            text = re.sub(r"[][]", " ", text) if optional else re.sub(r"\[[^]]*\]", " ", text)
        words = shlex.split(text, comments=True)
        return [word.removesuffix("...") for word in words if word != "..."]


# Reading a page


def pages() -> list[str]:
    """README, CONTRIBUTING and everything under docs."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path.relative_to(ROOT).as_posix() for path in found]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def pieces(page: str, text: str) -> list[Piece]:
    """Blocks and spans in the order in which they are read."""
    found: list[Piece] = []
    block: list[str] | None = None
    mark, kind, start = "", "", 0
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if block is not None:
            if fence and fence[1] == mark:
                found.append(Piece(page, start, kind, "\n".join(block)))
                block = None
            else:
                block.append(line)
        elif fence:
            block, mark, kind, start = [], fence[1], fence[2], number
        else:
            spans = (span[2].strip() for span in INLINE.finditer(line))
            found += [Piece(page, number, "inline", span.replace("\\|", "|")) for span in spans]
    if block is not None:
        raise AssertionError(f"{page}:{start}: the block has no end")
    return found


def commands(piece: Piece) -> Iterator[Command]:
    """Every command of a block or span, one for each side of `&&`."""
    for command in _whole_commands(piece):
        for part in command.text.split(" && "):
            yield replace(command, text=part.strip())


def _whole_commands(piece: Piece) -> Iterator[Command]:
    if piece.kind == "inline":
        if piece.text.split()[0] in PROGRAMS or OUR_PATH.match(piece.text.split()[0]):
            yield Command(piece.page, piece.line, piece.text, inline=True)
    elif piece.kind == "console" or (piece.kind == "" and piece.text.startswith("$ ")):
        yield from _session(piece)
    elif is_shell(piece):
        text = piece.text.replace("\\\n", "  ")
        for number, line in enumerate(text.splitlines(), piece.line + 1):
            if line.strip() and not line.strip().startswith("#"):
                yield Command(piece.page, number, line.strip(), inline=False)


def _session(piece: Piece) -> Iterator[Command]:
    """Lines after `$ `, each with what it prints below it."""
    lines = piece.text.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("$ ")]
    for i, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        printed = tuple(lines[i + 1 : end])
        yield Command(piece.page, piece.line + 1 + i, lines[i][2:], inline=False, printed=printed)


def is_shell(piece: Piece) -> bool:
    """Whether a block is made of commands; one without a language, if any line is one."""
    first = [line.split()[0] for line in piece.text.splitlines() if line.strip()]
    return piece.kind in SHELL or (piece.kind == "" and any(word in PROGRAMS for word in first))


# Commands


@functools.cache
def tree() -> Any:
    """The command tree, once."""
    return build()


def command_faults(command: Command) -> Iterator[str]:
    """What the real programs would not understand."""
    for optional in (False, True):
        for fault in _faults_of(command, optional):
            yield f"{command.place}: `{command.text}`: {fault}"


def _faults_of(command: Command, optional: bool) -> Iterator[str]:
    try:
        words = command.words(optional)
    except ValueError as error:  # an open quotation mark
        yield str(error)
        return
    if "strop" in words and words[words.index("strop") - 1] == "-m":
        words = words[words.index("strop") :]
    program, *rest = words
    if program == "strop":
        yield from strop_faults(rest, command)
    elif program == "make":
        named = [word for word in rest if "=" not in word]  # others set a variable
        yield from (f"no target {word}" for word in named if word not in targets())
    elif program == "pip":
        yield from pip_faults(rest)
    elif PLACEHOLDER.search(program):
        return
    elif program == "python" or "/" in program:
        yield from script_faults(rest if program == "python" else words)
    elif program not in PROGRAMS:
        yield f"nobody checks what {program} does"


def strop_faults(words: list[str], command: Command) -> Iterator[str]:
    """Verbs, flags, required arguments and the values that have names."""
    verb, rest = tree(), list(words)
    while rest and hasattr(verb, "commands") and not rest[0].startswith("-"):
        if rest[0] not in verb.commands:
            yield f"no command {rest[0]!r}"
            return
        verb = verb.commands[rest.pop(0)]
    if hasattr(verb, "commands"):  # its flags act as soon as they are parsed: look at names only
        yield from (f"no flag {word}" for word in rest if word not in flags_of(verb))
        if not rest and not command.inline and not verb.invoke_without_command:
            yield "a verb is missing"
    elif not command.is_name:
        yield from _parsing_faults(verb, rest, command.shortened)


def _parsing_faults(verb: Any, words: list[str], shortened: bool) -> Iterator[str]:
    if shortened:  # nothing can be parsed where something is left out; flags must exist
        flags = (word for word in words if FLAG.match(word))
        yield from (f"no flag {word}" for word in flags if word not in flags_of(verb))
        return
    try:
        with verb.make_context(verb.name, words) as context:
            yield from _value_faults(context.params)
    except typer.Exit:  # --help
        return
    except Exception as error:
        if not hasattr(error, "format_message"):  # a usage error of click, whichever copy it is
            raise
        yield error.format_message()


def _value_faults(given: dict[str, Any]) -> Iterator[str]:
    for name, known in (("sampler", SAMPLERS), ("precision", PRECISIONS)):
        if isinstance(given.get(name), str):
            values = given[name].split(",")
            yield from (f"no {name} {value!r}" for value in values if value not in known)


def flags_of(command: Any) -> set[str]:
    """Every spelling of every flag of one command."""
    found = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    return found | {"-h", "--help"}


def page_flags(found: list[Piece]) -> set[str]:
    """The flags that prose of a page may speak of: those of the commands that the page names.

    A page without commands, such as one about a sampler, speaks of `strop sample`.
    """
    flags = set(PIP_FLAGS)
    named = [command.words() for piece in found for command in commands(piece)]
    verbs = [_verb(words[words.index("strop") + 1 :]) for words in named if "strop" in words]
    for verb in [verb for verb in verbs if verb is not tree()] or [tree().commands["sample"]]:
        flags |= _flags_below(verb)
    scripts = {word for words in named for word in words if word.endswith(".py")}
    for path in (ROOT / word for word in scripts):
        if path.is_file():
            flags |= set(re.findall(r"\"(--[a-z-]+)\"", path.read_text(encoding="utf-8")))
    return flags


def _verb(words: list[str]) -> Any:
    verb, rest = tree(), list(words)
    while rest and rest[0] in getattr(verb, "commands", {}):
        verb = verb.commands[rest.pop(0)]
    return verb


def _flags_below(verb: Any) -> set[str]:
    below = getattr(verb, "commands", {}).values()
    return flags_of(verb).union(*map(_flags_below, below))


@functools.cache
def targets() -> frozenset[str]:
    """Those of the Makefile that have a name."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^([a-z][a-z-]*):(?!=)", text, re.MULTILINE))


@functools.cache
def extras() -> frozenset[str]:
    """The optional dependencies that the package offers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return frozenset(project["optional-dependencies"])


def pip_faults(words: list[str]) -> Iterator[str]:
    """Extras that the package lacks, and files that are not there."""
    for word in words:
        inside = re.fullmatch(r"(?:strop|\.)\[([\w,]+)\]", word)
        for extra in inside[1].split(",") if inside else ():
            if extra not in extras():
                yield f"no extra {extra!r}"
        if word.endswith(".txt") and not (ROOT / word).exists():
            yield f"no file {word}"


def script_faults(words: list[str]) -> Iterator[str]:
    """A script that is not there, or that does not name the flag it is given."""
    path = ROOT / words[0]
    if not path.exists():
        yield f"no file {words[0]}"
        return
    source = path.read_text(encoding="utf-8") if path.is_file() else ""
    for word in words[1:]:
        flag = FLAG.match(word)
        if flag and f'"{flag[0]}"' not in source:
            yield f"no flag {flag[0]} in {words[0]}"


# Python


def python_faults(piece: Piece) -> Iterator[str]:
    """Syntax, imports with every name, and arguments of calls, without running anything."""
    try:
        module = ast.parse(piece.text)
    except SyntaxError as error:
        yield f"{piece.place}: {error}"
        return
    known: dict[str, Any] = {}
    for node in ast.walk(module):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (f"{piece.place}: {fault}" for fault in _bind(node, known))
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            yield from (f"{piece.place}: {fault}" for fault in call_faults(node, known))


def _bind(node: ast.Import | ast.ImportFrom, known: dict[str, Any]) -> Iterator[str]:
    for alias in node.names:
        try:
            if isinstance(node, ast.Import):
                whole = importlib.import_module(alias.name)
                top = importlib.import_module(alias.name.split(".")[0])
                known[alias.asname or top.__name__] = whole if alias.asname else top
            else:
                known[alias.asname or alias.name] = resolve(f"{node.module}.{alias.name}")
        except (ImportError, AttributeError) as error:
            yield str(error)


def call_faults(node: ast.Call, known: dict[str, Any]) -> Iterator[str]:
    """Whether a function of strop takes these arguments; others are not looked at."""
    name = ast.unparse(node.func)
    first, *rest = name.split(".")
    if first not in known or not re.fullmatch(r"[\w.]+", name):
        return
    try:
        called = functools.reduce(getattr, rest, known[first])
    except AttributeError as error:
        yield str(error)
        return
    if not (getattr(called, "__module__", None) or "").startswith("strop"):
        return
    if hasattr(called, "model_fields"):  # its signature does not tell all that it takes
        yield from _value_of(node, called)
        return
    unpacked = any(isinstance(one, ast.Starred) for one in node.args)
    named = {one.arg: None for one in node.keywords if one.arg}
    try:
        signature = inspect.signature(called)
        open_ended = unpacked or len(named) < len(node.keywords)  # *rows, **settings
        bind = signature.bind_partial if open_ended else signature.bind
        bind(*([] if unpacked else node.args), **named)
    except TypeError as error:
        yield f"{name}: {error}"
        return
    yield from (f"{name}: {fault}" for fault in _named_faults(called, signature, named))


def _named_faults(called: Any, signature: inspect.Signature, named: Any) -> Iterator[str]:
    """The named arguments of a verb, which stand in a TypedDict behind its `**given`."""
    given = signature.parameters.get("given")
    unpacked = re.fullmatch(r"Unpack\[(\w+)\]", str(given.annotation)) if given else None
    if unpacked is None:
        return
    known = getattr(importlib.import_module(called.__module__), unpacked[1]).__annotations__
    for one in named:
        if one not in known and one not in signature.parameters:
            yield f"got an unexpected argument: {one!r}"
    for one, kind in known.items():
        if kind.__forward_arg__.startswith("Required") and one not in named:
            yield f"missing a required argument: {one!r}"


def _value_of(node: ast.Call, called: Any) -> Iterator[str]:
    try:
        given = {one.arg or "": ast.literal_eval(one.value) for one in node.keywords}
    except ValueError:  # names that have a value only when the page runs
        return
    if [...] in given.values():  # left out
        return
    try:
        called(**given)
    except (strop.UserError, TypeError, ValueError) as error:
        yield f"{called.__name__}: {error}"


def resolve(name: str) -> Any:
    """The object that a dotted name means; ImportError or AttributeError if there is none."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        module = ".".join(parts[:end])
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise  # the module is there, and something that it needs is not
            continue
        return functools.reduce(getattr, parts[end:], found)
    raise ModuleNotFoundError(f"No module named {parts[0]!r}", name=parts[0])


# Spans, data, layouts and links


def span_faults(piece: Piece, flags: set[str]) -> Iterator[str]:
    """Names, calls, flags, extras and paths that prose puts in backquotes."""
    text = piece.text
    dotted, extra = DOTTED.match(text), re.match(r"strop\[(\w+)\]$", text)
    if dotted and not text.endswith((".md", ".py", ".json")):
        try:
            resolve(dotted[0])
        except (ImportError, AttributeError) as error:
            yield f"{piece.place}: `{text}`: {error}"
            return
    if re.match(r"[\w.]+\(", text):
        yield from (f"{piece.place}: `{text}`: {fault}" for fault in _written_call_faults(text))
    for word in re.split(r"[\s/]+", text) if text.startswith("--") else ():
        flag = FLAG.match(word)
        if flag and flag[0] not in flags:
            yield f"{piece.place}: `{text}`: no command that this page names has {flag[0]}"
    if extra and extra[1] not in extras():
        yield f"{piece.place}: `{text}`: no such extra"


def _written_call_faults(text: str) -> Iterator[str]:
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:  # `f(x) = y`: a formula
        return
    public = {name: getattr(strop, name) for name in strop.__all__ if name != "__version__"}
    for one in ast.walk(node):
        # `run(...)`: what stands between the parentheses is left out.
        if isinstance(one, ast.Call) and "..." not in [ast.unparse(given) for given in one.args]:
            yield from call_faults(one, {"strop": strop, **public})


def data_faults(piece: Piece) -> Iterator[str]:
    """JSON and YAML that do not parse; a tree of our own files with one that is not there."""
    try:
        if piece.kind == "json":
            json.loads(piece.text)
        elif piece.kind == "yaml":
            yaml.safe_load(piece.text)
        elif piece.kind == "toml":
            tomllib.loads(piece.text)
    except (ValueError, yaml.YAMLError) as error:
        yield f"{piece.place}: {error}"
    if piece.kind == "" and not is_shell(piece):
        yield from (f"{piece.place}: no {path}" for path in _listed(piece) if not path.exists())


def _listed(piece: Piece) -> Iterator[Path]:
    """The paths of a block that starts with a folder of ours and indents what lies in it."""
    lines = [line for line in piece.text.splitlines() if line.strip()]
    if not lines or not lines[0].endswith("/") or not (ROOT / lines[0]).is_dir():
        return
    parent = ROOT
    for line in lines:
        name = line.split()[0]
        if line.startswith(" "):
            yield parent / name
        else:
            parent = ROOT / name
            yield parent


def link_faults(page: str, text: str, root: Path = ROOT) -> Iterator[str]:
    """Links and images that lead to no file, or to no heading."""
    for number, line in enumerate(_prose(text), 1):
        for link in LINK.findall(INLINE.sub("", line)):
            if OUTSIDE.match(link):
                continue
            path, _, anchor = link.partition("#")
            target = (root / page).parent / path if path else root / page
            if path and not target.exists():
                yield f"{page}:{number}: no file {link}"
            elif anchor and anchor not in anchors(target.read_text("utf-8") if path else text):
                yield f"{page}:{number}: no heading {link}"


def _prose(text: str) -> Iterator[str]:
    """The lines of a page; those of its blocks are empty."""
    inside = ""
    for line in text.splitlines():
        fence = FENCE.match(line)
        if fence and inside in ("", fence[1]):
            inside = "" if inside else fence[1]
            yield ""
        else:
            yield "" if inside else line


def anchors(text: str) -> set[str]:
    """What headings are called in links, by the rule of the common renderers."""
    titles = (line.lstrip("#").strip() for line in _prose(text) if line.startswith("#"))
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles)
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


def page_faults(page: str, text: str) -> list[str]:
    """Everything that can be found without running what a page says."""
    found = list(link_faults(page, text))
    whole = pieces(page, text)
    flags = page_flags(whole)
    for piece in whole:
        for command in commands(piece):
            found += command_faults(command)
        if piece.kind == "python":
            found += python_faults(piece)
        elif piece.kind == "inline":
            found += span_faults(piece, flags)
        else:
            found += data_faults(piece)
    return list(dict.fromkeys(found))
