"""Pools of texts from wherever they are: strop runs, JSONL, Parquet, folders of text files.

Every cell of a run is a generator; any other input is one generator. Empty texts stay: a
generator that wrote nothing is judged for it. One function reads each kind of file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from strop.disk import reading
from strop.errors import UserError
from strop.groupeval.profile import Profile
from strop.store import Cell, Run
from strop.store.documents import MARK
from strop.store.tables import parquet_file


@dataclass(frozen=True)
class Source:
    """The texts of one generator, in the order of their index."""

    name: str
    """What the generator is called in tables; never shown to a judge."""
    texts: tuple[str, ...]
    prompts: tuple[str, ...] | None
    """What each text answers, where the input has a `prompt` field."""
    origin: str
    """Where they were read."""


def read_inputs(
    inputs: Sequence[str],
    *,
    first: int | None = None,
    where: Sequence[Mapping[str, object]] = (),
) -> list[Source]:
    """Every generator of the inputs (`PATH` or `NAME=PATH`), cut to the first few if asked.

    `where` keeps those cells of strop's runs whose sampler has all settings of one of its entries.
    """
    sources: list[Source] = []
    for given in inputs:
        name, path = _named(given)
        found = _read(path, where)
        for source in found:
            if name is not None:
                own = name if len(found) == 1 else f"{name} {source.name}"
                source = replace(source, name=own)
            sources.append(source if first is None else _cut(source, first))
    return _told_apart(sources)


def holds_texts(path: Path) -> bool:
    """Whether this is no run directory but something that holds texts."""
    if path.is_file():
        return path.suffix.lower() in READERS
    return path.is_dir() and not (path / MARK).exists() and any(path.glob("*.txt"))


def check(sources: Sequence[Source], profile: Profile, *, mixed_sizes: bool = False) -> None:
    """Refuse what cannot be planned, with the ways out."""
    if profile.kind == "conditional":
        _check_pair(sources, profile)
        return
    sizes = {source.name: len(source.texts) for source in sources}
    for source in sources:
        _check_divides(source, profile.group_size)
    if len(set(sizes.values())) > 1 and not mixed_sizes:
        least = min(sizes.values())
        raise UserError(
            "The generators have different numbers of outputs.",
            got="; ".join(f"{name}: {n}" for name, n in sizes.items()),
            expected="the same number each, so that their scores have the same precision",
            fix=f"take the first of each with `first={least}`, or accept it with `mixed_sizes`",
        )


def _check_divides(source: Source, size: int) -> None:
    n = len(source.texts)
    down, up = n - n % size, n + (-n) % size
    if n % size == 0:
        return
    fewer = f"leave out the last {n % size} with `first={down}`" if down else None
    more = f"generate {up - n} more (n = {up})"
    raise UserError(
        f"{n} outputs do not divide into groups of {size}.",
        where=source.origin,
        got=f"{source.name}: {n} outputs",
        expected=f"a multiple of {size}",
        fix=f"{fewer}, or {more}" if fewer else more,
    )


def _check_pair(sources: Sequence[Source], profile: Profile) -> None:
    if len(sources) != profile.group_size:
        raise UserError(
            f"The profile {profile.name} compares the responses of {profile.group_size} "
            "generators to the same prompts.",
            got=f"{len(sources)} generators: " + ", ".join(s.name for s in sources),
            expected=f"{profile.group_size}",
        )
    for source in sources:
        if source.prompts is None:
            raise UserError(
                "The responses come without their prompts.",
                where=source.origin,
                expected=f"the fields {PROMPT!r} and {TEXT!r} in every row",
            )
    for index, prompts in enumerate(_side_by_side([s.prompts or () for s in sources])):
        if len(set(prompts)) > 1:
            raise UserError(
                "The generators did not answer the same prompts in the same order.",
                where=f"row {index + 1}",
                got=" against ".join(repr(p)[:60] for p in prompts),
                fix="sort both inputs by prompt",
            )


def _side_by_side(columns: Sequence[Sequence[str]]) -> Iterable[tuple[str | None, ...]]:
    length = max(map(len, columns))
    for i in range(length):
        yield tuple(column[i] if i < len(column) else None for column in columns)


def _named(given: str) -> tuple[str | None, Path]:
    name, equals, path = given.partition("=")
    if equals and name and not Path(given).exists():
        return name, Path(path)
    return None, Path(given)


def _cut(source: Source, first: int) -> Source:
    if len(source.texts) < first:
        raise UserError(
            f"There are fewer than {first} outputs.",
            where=source.origin,
            got=f"{source.name}: {len(source.texts)}",
            fix=f"`first={len(source.texts)}` or less",
        )
    prompts = None if source.prompts is None else source.prompts[:first]
    return replace(source, texts=source.texts[:first], prompts=prompts)


def _told_apart(sources: list[Source]) -> list[Source]:
    names = [source.name for source in sources]
    for source in sources:
        if names.count(source.name) > 1:
            raise UserError(
                "Two generators have the same name.",
                where=source.origin,
                got=source.name,
                fix="name the inputs: NAME=PATH",
            )
    return sources


def _read(path: Path, where: Sequence[Mapping[str, object]]) -> list[Source]:
    with reading(path):
        if not path.exists():
            raise UserError(
                "There is no such input.",
                where=path,
                expected="a run of strop, a .jsonl, a .parquet, or a folder of .txt files",
            )
        if (path / MARK).is_file():
            return _run(path, where)
        if path.is_dir():
            texts, prompts = read_folder(path)
            return [_source(path.resolve().name, texts, prompts, path)]
        reader = READERS.get(path.suffix.lower())
        if reader is None:
            raise UserError(
                "The kind of input cannot be told from its name.",
                where=path,
                got=f"the ending {path.suffix!r}",
                expected=", ".join(READERS) + ", a folder of .txt files, or a run of strop",
            )
        texts, prompts = reader(path)
        return [_source(path.stem, texts, prompts, path)]


def _source(name: str, texts: list[str], prompts: list[str] | None, path: Path) -> Source:
    if not texts:
        raise UserError("The input holds no texts.", where=path, got="0 rows")
    return Source(name, tuple(texts), None if prompts is None else tuple(prompts), str(path))


def _run(path: Path, where: Sequence[Mapping[str, object]]) -> list[Source]:
    run = Run.open(path)
    wanted = run.wanted()
    cells = [cell for cell in run.cells() if _is_wanted(cell, where)]
    if not cells:
        raise UserError(
            "No cell of the run has these settings.",
            where=path,
            got="; ".join(_spelled(one) for one in where) or "a run without cells",
            expected="one of " + "; ".join(_spelled(_knobs(cell)) for cell in run.cells()[:6]),
        )
    samplers = [dict(cell.spec.generator.sampler) for cell in cells]
    differ = [key for key in samplers[0] if len({str(s[key]) for s in samplers}) > 1]
    sources = []
    for cell, sampler in zip(cells, samplers, strict=True):
        texts = cell.pool(wanted[cell.id]).texts
        if texts is None:
            raise UserError(
                "The run holds token ids without texts.",
                where=cell.path,
                expected="a checkpoint that comes with its tokenizer",
            )
        words = [f"{key}={sampler[key]}" for key in differ]
        name = " ".join([path.resolve().name, *words])
        sources.append(_source(name, texts, None, path))
    return sources


def _is_wanted(cell: Cell, where: Sequence[Mapping[str, object]]) -> bool:
    have = dict(cell.spec.generator.sampler)
    return not where or any(
        all(name in have and have[name] == value for name, value in one.items()) for one in where
    )


def _knobs(cell: Cell) -> dict[str, object]:
    sampler = cell.spec.generator.sampler
    return {name: getattr(sampler, name) for name in ("steps", "temperature", "precision")}


def _spelled(settings: Mapping[str, object]) -> str:
    return ",".join(f"{name}={value}" for name, value in settings.items())


TEXT, PROMPT = "text", "prompt"

Columns = tuple[list[str], list[str] | None]
"""Texts and, where the input has them, what each one answers."""


def read_folder(path: Path) -> Columns:
    """The files of a folder, 2.txt before 10.txt."""
    files = sorted((p for p in path.glob("*.txt") if p.is_file()), key=_natural)
    if not files:
        raise UserError(
            "The folder holds neither a run nor text files.",
            where=path,
            expected="files whose names end in .txt",
        )
    return [_decoded(file.read_bytes(), file) for file in files], None


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """2.txt before 10.txt."""
    words = re.findall(r"\d+|\D+", path.name)
    return [(0, int(word), "") if word.isdecimal() else (1, 0, word) for word in words]


def _decoded(content: bytes, where: object) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            "The text is not UTF-8.",
            where=where,
            got=f"byte 0x{content[error.start]:02x} at position {error.start}",
            fix="convert it, e.g. iconv -f latin1 -t utf-8",
        ) from None


def _jsonl(path: Path) -> Columns:
    rows = []
    # bytes.splitlines knows \n, \r\n and \r only; str.splitlines would cut inside JSON strings.
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        where = f"{path}, line {number}"
        if not line.strip():
            continue
        try:
            row = json.loads(_decoded(line, where))
        except (ValueError, RecursionError) as error:
            raise UserError("The line is not JSON.", where=where, got=error) from None
        if not isinstance(row, dict) or TEXT not in row:
            fields = ", ".join(map(repr, row)) if isinstance(row, dict) else type(row).__name__
            raise UserError(
                f"The row has no field {TEXT!r}.",
                where=where,
                got=fields[:120] or "an empty object",
                expected='{"text": "..."}',
            )
        rows.append({key: as_text(row[key], key, where) for key in (TEXT, PROMPT) if key in row})
    return _columns(rows, path)


def as_text(value: Any, field: str, where: str) -> str:
    """A value that is a text which can be written down; else a `UserError`."""
    if not isinstance(value, str):
        raise UserError(
            f"The field {field!r} is not a text.", where=where, got=repr(value)[:80], expected="str"
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"The field {field!r} holds half of a surrogate pair, which is no character.",
            where=where,
            got=f"\\u{ord(value[error.start]):04x} at position {error.start}",
        ) from None
    return value


def _columns(rows: list[dict[str, str]], path: Path) -> Columns:
    prompted = [PROMPT in row for row in rows]
    if any(prompted) and not all(prompted):
        raise UserError(
            f"Some rows have a {PROMPT!r} and some have none.",
            where=path,
            got=f"{sum(prompted)} of {len(rows)} rows have one",
        )
    prompts = [row[PROMPT] for row in rows] if any(prompted) else None
    return [row[TEXT] for row in rows], prompts


def _parquet(path: Path) -> Columns:
    import pyarrow as pa

    try:
        file = parquet_file(path)
        names = file.schema_arrow.names
        if TEXT not in names:
            raise UserError(
                f"The table has no column {TEXT!r}.", where=path, got=", ".join(names)[:120]
            )
        wanted = [name for name in (TEXT, PROMPT) if name in names]
        # No threads: arrow's pool can abort the interpreter when it ends right after a read.
        rows = file.read(wanted, use_threads=False).to_pylist()
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise UserError(
            "The Parquet file cannot be read.", where=path, got=str(error).splitlines()[0][:160]
        ) from None
    checked = [
        {key: as_text(value, key, f"{path}, row {i + 1}") for key, value in row.items()}
        for i, row in enumerate(rows)
    ]
    return _columns(checked, path)


READERS: dict[str, Callable[[Path], Columns]] = {
    ".jsonl": _jsonl,
    ".parquet": _parquet,
}
"""By the file's ending: texts and, where there are any, prompts."""
