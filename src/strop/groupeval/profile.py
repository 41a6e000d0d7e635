"""The frozen profile: prompt, rubric, schema, group size and preprocessing, with one hash.

A profile is a directory whose MANIFEST lists the SHA-256 of every other file, as `sha256sum`
prints it. Numbers of different profiles are different quantities, so nothing in it may drift:
a changed file is refused, and a change that is meant gets a name of its own.

`messages` is what the judge reads: texts as JSON strings under opaque ids, between markers that
they cannot hold. Texts are untrusted. A text can hold anything: the markers, the boundary, chat
control tokens, a reply that looks like ours, orders to the judge. None of it can change the
structure:

- each text is one JSON string on one line; quotes, line breaks and all unprintable characters are
  escaped, so no text ends its own string or line;
- `<` is escaped, so no control token of a chat template (`<|im_end|>`, `</s>`) stands there
  literally, and neither do `[INST]`, `[SYSTEM_PROMPT]` or any capitals in brackets;
- a boundary that the text itself spells is escaped, so every literal one is ours;
- the markers carry a code that is the hash of the texts, checked to be in none of them.

Files of one JSON object a line, and what an object must hold: all are refused in one way.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from io import BytesIO
from pathlib import Path
from string import Template
from typing import IO, Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from strop.assets import ROOT
from strop.disk import disk, json_lines, reading, write
from strop.errors import UserError, unknown_name
from strop.store.folder import load_yaml

# ------------------------------------------------------------------------------------------ lines

JsonLine = tuple[dict[str, Any], str]
"""The fields of a row, and where it stands."""
EXACT = ConfigDict(strict=True, allow_inf_nan=False)
"""For forms in which 1 is not true, "1" is no number, and NaN is none either."""
SHOWN = 160

F = TypeVar("F")


def read_lines(path: str | Path, expected: str) -> list[JsonLine]:
    """Every object of a file; `expected` is what a line may look like."""
    try:
        with reading(Path(path)), open(path, "rb") as file:
            return _objects(file, str(path), expected)
    except FileNotFoundError:
        raise UserError("There is no such file.", where=path, expected=expected) from None


def parse_lines(content: bytes, source: str, expected: str) -> list[JsonLine]:
    """The same of what a file holds; `source` is what the complaints call it."""
    return _objects(BytesIO(content), source, expected)


def _objects(file: IO[bytes], source: str, expected: str) -> list[JsonLine]:
    rows: list[JsonLine] = []
    for where, row in json_lines(file, source, expected):
        if not isinstance(row, dict):
            got = json.dumps(row)[:SHOWN]
            raise UserError(
                "The line is not a JSON object.", where=where, got=got, expected=expected
            )
        rows.append((row, where))
    return rows


def formed(
    form: Callable[..., F],
    row: Mapping[str, Any],
    where: str,
    what: str,
    expected: str | None = None,
) -> F:
    """A row in its form, a class of pydantic; the message names the field that is wrong."""
    try:
        return form(**row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        names = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        field = "".join(names).removeprefix(".")
        raise UserError(
            f"{what}: {first['msg'].removeprefix('Value error, ')}.",
            where=f"{where}, {field}" if field else where,
            got=repr(first["input"])[:SHOWN],
            expected=expected,
        ) from None


# ---------------------------------------------------------------------------------------- profile

PROFILES = ROOT / "profiles"
MANIFEST = "MANIFEST"
SETTINGS, RUBRIC, SCHEMA, SYSTEM, USER = (
    "profile.yaml",
    "rubric.md",
    "schema.json",
    "system.md",
    "user.md",
)
FILES = (SETTINGS, RUBRIC, SCHEMA, SYSTEM, USER)

PLACES = {"count", "code", "data", "ids"}
"""What the user prompt must leave open."""

Kind = Literal["unconditional", "conditional", "answers"]


def sha256(content: bytes | str) -> str:
    """As `sha256sum` prints it."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def canonical(value: Any) -> str:
    """JSON with sorted keys and no blanks: the text that is hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def profile_names() -> list[str]:
    """The profiles that ship with the package."""
    return sorted(p.name for p in PROFILES.iterdir() if (p / MANIFEST).is_file())


@dataclass(frozen=True)
class Profile:
    """One way to judge, as one value: its files, and what `profile.yaml` says."""

    files: dict[str, bytes]
    """Every file of the directory but the manifest, by name."""
    name: str
    """What the profile is called, e.g. `webtext-v1`."""
    kind: Kind
    """What a group holds.

    `unconditional`: texts of one generator; `conditional`: two generators' responses to one
    prompt; `answers`: one generator's answers to one prompt.
    """
    group_size: Annotated[int, Field(ge=2)]
    """Texts that the judge reads at once; of answers to a prompt, at most."""
    partitions: Annotated[int, Field(ge=1, le=2)]
    """How often every output is judged."""
    dimensions: tuple[str, ...]
    """The names of the grades, in the order in which `Grade.scores` holds them."""
    modes: bool
    """Whether valid outputs get modes; without them there is no GED."""
    preprocessing: dict[str, Any]
    decoding: dict[str, Any]
    """Temperature, top_p and max_tokens of the judge."""

    @classmethod
    def of_files(cls, files: Mapping[str, bytes], where: Path) -> Profile:
        """The profile of some files, its prompt and its settings checked."""
        import yaml

        _check_template(where / USER, files[USER])
        try:
            settings = load_yaml(files[SETTINGS])
        except (yaml.YAMLError, ValueError) as error:
            raise UserError(
                "The profile's settings are not YAML.", where=where / SETTINGS, got=error
            ) from None
        what = "The profile's settings cannot be used"
        named_settings = settings if isinstance(settings, dict) else {}
        return formed(cls, {**named_settings, "files": files}, str(where / SETTINGS), what)

    @classmethod
    def load(cls, source: str | os.PathLike[str]) -> Profile:
        """A profile by its shipped name, or from a directory."""
        if str(source) in profile_names():
            return cls.read(PROFILES / str(source))
        if not Path(source).is_dir():
            raise unknown_name("profile", str(source), profile_names(), where="`profile`")
        profile = cls.read(Path(source))
        shipped = PROFILES / profile.name
        if profile.name in profile_names() and cls.read(shipped).hash != profile.hash:
            raise UserError(
                f"This profile is not {profile.name!r}, though it says so.",
                where=source,
                got=f"hash {profile.hash[:16]}",
                expected=f"hash {cls.read(shipped).hash[:16]}, or a name of its own",
                fix=_new_version(Path(source)),
            )
        return profile

    @classmethod
    def read(cls, path: Path) -> Profile:
        """The profile in a directory, every file checked against the manifest."""
        listed = _manifest(path)
        files = {name: _content(path, name) for name in FILES}
        for name, content in files.items():
            if sha256(content) != listed.get(name):
                raise UserError(
                    "A file of the frozen profile was changed.",
                    where=path / name,
                    got=f"SHA-256 {sha256(content)[:16]}...",
                    expected=f"SHA-256 {listed.get(name, 'none')[:16]}..., as {MANIFEST} says",
                    fix=_new_version(path),
                )
        return cls.of_files(files, path)

    @cached_property
    def hash(self) -> str:
        """SHA-256 over the hashes of all files: the profile's identity."""
        return sha256(self.manifest)

    @property
    def manifest(self) -> str:
        """The manifest's text, sorted by file name."""
        return "".join(f"{sha256(self.files[name])}  {name}\n" for name in FILES)

    @property
    def sentinel(self) -> str:
        """What ends a document in the raw texts."""
        return self.preprocessing["sentinel"]

    @property
    def boundary(self) -> str:
        """What the judge reads in its place."""
        return self.preprocessing["boundary"]

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of a reply."""
        return json.loads(self.files[SCHEMA])

    @property
    def system(self) -> str:
        """The system prompt: how to treat the data, then the rubric."""
        return f"{self._text(SYSTEM)}\n{self._text(RUBRIC)}"

    @property
    def user(self) -> str:
        """The template of the user prompt."""
        return self._text(USER)

    def _text(self, name: str) -> str:
        return self.files[name].decode()


def import_profile(
    out: Path, settings: dict[str, Any], texts: dict[str, bytes], schema: bytes
) -> Profile:
    """Freeze somebody's own prompt, rubric and schema as a profile in a new directory.

    `texts` has `system.md`, `rubric.md` and `user.md`. Whatever is wrong is told before anything is
    written.
    """
    import yaml

    if settings["name"] in profile_names():
        raise UserError("A profile that ships has this name.", where="`name`", got=settings["name"])
    if out.exists() and any(out.iterdir()):
        raise UserError("The directory is not empty.", where=out, fix="name a new one")
    files = {**texts, SCHEMA: schema, SETTINGS: yaml.safe_dump(settings, sort_keys=False).encode()}
    _check_schema(schema, settings)
    profile = Profile.of_files(files, Path())
    with disk(out):
        out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write(out / name, content)
    write(out / MANIFEST, profile.manifest.encode())
    return Profile.load(out)


def _check_schema(content: bytes, settings: dict[str, Any]) -> None:
    """A reply must say of every output what scores are made of."""
    wanted = {"id", "valid", *settings["dimensions"]} | ({"mode"} if settings["modes"] else set())
    try:
        schema = json.loads(content)
        has = set(schema["properties"]["outputs"]["items"]["properties"])
        fine = wanted <= has and "confidence" in schema["properties"]
    except (ValueError, KeyError, TypeError):
        has, fine = set(), False
    if not fine:
        raise UserError(
            "The JSON schema does not ask for what scores are made of.",
            where="`schema`",
            got=", ".join(sorted(has)) or "no outputs with properties",
            expected=f"`confidence`, and in every one of `outputs` {', '.join(sorted(wanted))}",
            fix="start from the schema.json of webtext-v1 and change the names of the grades",
        )


def _manifest(path: Path) -> dict[str, str]:
    lines = _content(path, MANIFEST).decode(errors="replace").splitlines()
    pairs = [line.split(maxsplit=1) for line in lines if line.strip()]
    if not all(len(pair) == 2 for pair in pairs):
        raise UserError(
            "The profile's manifest cannot be read.",
            where=path / MANIFEST,
            expected="lines of a SHA-256 and a file name, as `sha256sum` prints them",
            fix=_new_version(path),
        )
    listed = {name.lstrip("*"): digest for digest, name in pairs}
    if strangers := set(listed) - set(FILES):
        raise UserError(
            "The profile's manifest lists files that no profile has.",
            where=path / MANIFEST,
            got=", ".join(sorted(strangers)),
            expected=", ".join(FILES),
        )
    return listed


def _content(path: Path, name: str) -> bytes:
    try:
        with reading(path / name):
            return (path / name).read_bytes()
    except FileNotFoundError:
        raise UserError(
            "This directory is not a complete profile.",
            where=path,
            got=f"no file {name}",
            expected=f"{MANIFEST}, " + ", ".join(FILES),
        ) from None


def _check_template(path: Path, content: bytes) -> None:
    """A prompt that leaves the texts out would be judged all the same."""
    template = Template(content.decode(errors="replace"))
    if not template.is_valid() or set(template.get_identifiers()) != PLACES:
        raise UserError(
            "The user prompt does not have the right places to fill in.",
            where=path,
            got=", ".join(f"${name}" for name in sorted(template.get_identifiers())) or "none",
            expected=", ".join(f"${name}" for name in sorted(PLACES)) + "; a plain $ is $$",
        )


def _new_version(path: Path) -> str:
    return (
        f"restore the file; or, to change the protocol on purpose, make a new version: copy {path}"
        " to a new directory, edit it there, change `name` in profile.yaml, run `sha256sum "
        + " ".join(FILES)
        + f" > {MANIFEST}` in it, and plan with --profile NEW_DIRECTORY"
    )


# ---------------------------------------------------------------- what the judge reads

Messages = list[dict[str, str]]

CODE_DIGITS = 12
CONTROL = re.compile(r"\[(?=/?[A-Z][A-Z_]*\])")
"""The bracket of `[INST]`, `[/INST]`, `[SYSTEM_PROMPT]`, `[TOOL_CALLS]` and whatever else chat
templates make of capitals in brackets."""


def preprocess(text: str, profile: Profile) -> str:
    """The text as it is judged: one leading sentinel goes, later ones become boundaries."""
    return profile.boundary.join(documents(text, profile))


def documents(text: str, profile: Profile) -> list[str]:
    """The parts of a text between its sentinels, one leading sentinel left out."""
    return text.removeprefix(profile.sentinel).split(profile.sentinel)


def encode(text: str, profile: Profile) -> str:
    """The preprocessed text as a JSON string; decoded, it is `preprocess(text)` exactly."""
    boundary, parts = profile.boundary, []
    for document in documents(text, profile):
        part = json.dumps(document, ensure_ascii=False)[1:-1]
        # After json.dumps a backslash in the text is doubled, so these escapes cannot be confused
        # with anything that the text holds.
        part = part.replace(boundary, _code_point(boundary[:1]) + boundary[1:])
        part = CONTROL.sub(lambda match: _code_point(match[0]), part)
        parts.append("".join(c if c.isprintable() and c != "<" else _code_point(c) for c in part))
    return '"' + boundary.join(parts) + '"'


def _code_point(character: str) -> str:
    r"""`\uXXXX`, twice for what lies beyond 16 bits."""
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def messages(
    profile: Profile, ids: Sequence[str], texts: Sequence[str], task: str | None = None
) -> Messages:
    """The whole conversation that is sent: nothing but the profile, the ids and the texts."""
    lines = [
        f'{{"id": {json.dumps(name)}, "text": {encode(text, profile)}}}'
        for name, text in zip(ids, texts, strict=True)
    ]
    if task is not None:
        lines.insert(0, f'{{"task": {encode(task, profile)}}}')
    data = "\n".join(lines)
    # A code that is not in the data: a text would have to hold a hash of itself.
    code = sha256(data)[:CODE_DIGITS]
    while code in data:
        code = sha256(code + data)[:CODE_DIGITS]
    user = Template(profile.user).substitute(
        count=len(texts), code=code, data=data, ids=", ".join(ids)
    )
    return [{"role": "system", "content": profile.system}, {"role": "user", "content": user}]


def prompt_hash(conversation: Messages) -> str:
    """SHA-256 of what is sent."""
    return sha256(canonical(conversation))
