"""Pools of texts from wherever they are: strop runs, JSONL, CSV, Parquet, folders of text files.

Every cell of a run is a generator; any other input is one generator. Empty texts stay: a
generator that wrote nothing is judged for it. One function reads each kind of file.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from strop.disk import decoded, reading
from strop.errors import UserError, refuse_half_characters
from strop.groupeval.plan import Source
from strop.groupeval.profile import JsonLine, Profile, read_lines
from strop.store import Cell, Run
from strop.store.folder import MARK, parquet_file

PROMPT_FIELD = "prompt"
"""Of a file: what a text answers, unless another name is given. Files need not have it."""


def read_inputs(
    inputs: Sequence[str],
    *,
    first: int | None = None,
    where: Sequence[Mapping[str, object]] = (),
    field: str = "text",
    prompt_field: str = PROMPT_FIELD,
    prompted: bool = False,
) -> list[Source]:
    """Every generator of the inputs (`PATH` or `NAME=PATH`), cut to the first few if asked.

    `where` keeps those cells of strop's runs whose sampler has all settings of one of its entries.
    `field` and `prompt_field` are what files call a text and what it answers; `prompted` reads
    what the outputs of strop's runs answer.
    """
    sources: list[Source] = []
    if field == prompt_field != PROMPT_FIELD:
        raise UserError(
            "The text and its prompt cannot be the same field.",
            where="`prompt_field`",
            got=f"{field!r} for both",
        )
    if where and not any((_name_and_path(named_path)[1] / MARK).is_file() for named_path in inputs):
        raise UserError(
            "No input is a run of strop, so there are no cells to choose from.",
            where="`where`",
            fix="leave `where` out",
        )
    for named_path in inputs:
        name, path = _name_and_path(named_path)
        generators = _read_source(path, where, Names(field, prompt_field), prompted)
        for source in generators:
            if name is not None:
                full_name = name if len(generators) == 1 else f"{name} {source.name}"
                source = replace(source, name=full_name)
            sources.append(source if first is None else _first_outputs(source, first))
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


def holds_texts(path: Path) -> bool:
    """Whether this is no run directory but something that holds texts."""
    if path.is_file():
        return path.suffix.lower() in READERS
    return path.is_dir() and not (path / MARK).exists() and any(path.glob("*.txt"))


def fitted(
    sources: Sequence[Source], profile: Profile, *, mixed_sizes: bool = False
) -> tuple[list[Source], list[str]]:
    """The outputs that can be planned, and what is left out, in words; else a `UserError`."""
    if profile.kind == "conditional":
        _check_pair(sources, profile)
        return list(sources), []
    if profile.kind == "answers":
        return _answers(sources, profile.group_size, mixed_sizes)
    used = [_whole_groups(source, profile.group_size) for source in sources]
    _check_sizes(used, mixed_sizes)
    left_out = [
        f"{new.name}: {len(new.texts)} of {len(old.texts)} outputs are used, in groups of "
        f"{profile.group_size}; the last {len(old.texts) - len(new.texts)} are left out"
        for old, new in zip(sources, used, strict=True)
        if len(new.texts) < len(old.texts)
    ]
    return used, left_out


def _whole_groups(source: Source, size: int) -> Source:
    n = len(source.texts)
    if n < size:
        raise UserError(
            f"{n} outputs are fewer than one group.",
            where=source.origin,
            got=f"{source.name}: {n} outputs",
            expected=f"at least {size}",
            fix=f"generate {size - n} more (n = {size})",
        )
    return _first_outputs(source, n - n % size)


def _check_sizes(sources: Sequence[Source], mixed_sizes: bool) -> None:
    sizes = {source.name: len(source.texts) for source in sources}
    if len(set(sizes.values())) > 1 and not mixed_sizes:
        least = min(sizes.values())
        raise UserError(
            "The generators have different numbers of outputs.",
            got="; ".join(f"{name}: {n}" for name, n in sizes.items()),
            expected="the same number each, so that their scores have the same precision",
            fix=f"take the first of each with `first={least}`, or accept it with `mixed_sizes`",
        )


def _answers(
    sources: Sequence[Source], most: int, mixed_sizes: bool
) -> tuple[list[Source], list[str]]:
    """Of every prompt with at least two answers the first few; what that leaves out, in words."""
    used, left_out = [], []
    for source in sources:
        if source.prompts is None:
            raise _without_prompts(source)
        rows: dict[str, list[int]] = {}
        for index, prompt in enumerate(source.prompts):
            rows.setdefault(prompt, []).append(index)
        used_rows = {i for answers in rows.values() if len(answers) > 1 for i in answers[:most]}
        if not used_rows:
            raise UserError(
                "No prompt has two answers, so there is nothing to say about their diversity.",
                where=source.origin,
                got=f"{source.name}: {len(rows)} prompts, one answer each",
                expected=f"2 to {most} answers to every prompt, in rows with the same prompt",
                fix="`profile=webtext-v1` for texts without prompts, `profile=task-v1` for one "
                "answer of each of two generators",
            )
        alone = sum(len(answers) == 1 for answers in rows.values())
        beyond = len(source.texts) - alone - len(used_rows)
        reasons = [f"{alone} prompts have one answer alone"] if alone else []
        reasons += [f"{beyond} answers are beyond {most} to a prompt"] if beyond else []
        if reasons:
            left_out.append(
                f"{source.name}: {len(used_rows)} of {len(source.texts)} answers are used; "
                + "; ".join(reasons)
            )
        used.append(_with_rows(source, sorted(used_rows)))
    if not mixed_sizes:
        _check_same_prompts(used)
    return used, left_out


def _with_rows(source: Source, rows: Sequence[int]) -> Source:
    prompts = None if source.prompts is None else tuple(source.prompts[i] for i in rows)
    return replace(source, texts=tuple(source.texts[i] for i in rows), prompts=prompts)


def _check_same_prompts(sources: Sequence[Source]) -> None:
    counts = [Counter(source.prompts or ()) for source in sources]
    for source, count in zip(sources[1:], counts[1:], strict=True):
        other = (count - counts[0]) + (counts[0] - count)
        if other:
            prompt = next(iter(other))
            raise UserError(
                "The generators did not answer the same prompts equally often.",
                where=source.origin,
                got=f"{counts[0][prompt]} answers of {sources[0].name} and {count[prompt]} of "
                f"{source.name} to {prompt[:60]!r}; {len(other)} prompts differ",
                expected="as many answers to every prompt on both sides: diversity depends on it",
                fix="add the missing answers, or accept it with `mixed_sizes`: only prompts with "
                "as many answers on both sides are then compared",
            )


def _without_prompts(source: Source) -> UserError:
    return UserError(
        "The responses come without their prompts.",
        where=source.origin,
        expected="a prompt and a text in every row",
        fix="name their fields, e.g. `prompt_field=question`, `field=response`",
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
            raise _without_prompts(source)
    for index, prompts in enumerate(zip_longest(*(s.prompts or () for s in sources))):
        if len(set(prompts)) > 1:
            raise UserError(
                "The generators did not answer the same prompts in the same order.",
                where=f"row {index + 1}",
                got=" against ".join(repr(p)[:60] for p in prompts),
                fix="sort both inputs by prompt",
            )


def _name_and_path(text: str) -> tuple[str | None, Path]:
    name, equals, path = text.partition("=")
    if equals and name and not Path(text).exists():
        return name, Path(path)
    return None, Path(text)


def _first_outputs(source: Source, first: int) -> Source:
    if len(source.texts) < first:
        raise UserError(
            f"There are fewer than {first} outputs.",
            where=source.origin,
            got=f"{source.name}: {len(source.texts)}",
            fix=f"`first={len(source.texts)}` or less",
        )
    return _with_rows(source, range(first))


def _read_source(
    path: Path, where: Sequence[Mapping[str, object]], names: Names, prompted: bool
) -> list[Source]:
    with reading(path):
        if not path.exists():
            raise UserError(
                "There is no such input.",
                where=path,
                expected="a run of strop, a .jsonl, .csv or .parquet, or a folder of .txt files",
            )
        if (path / MARK).is_file():
            return _run(path, where, prompted)
        if path.is_dir():
            texts, prompts = read_folder(path)
            return [_source(path.resolve().name, texts, prompts, path)]
        reader = READERS.get(path.suffix.lower())
        if reader is None:
            raise UserError(
                "The file type cannot be told from the name.",
                where=path,
                got=f"the ending {path.suffix!r}",
                expected=", ".join(READERS) + ", a folder of .txt files, or a run of strop",
            )
        texts, prompts = _columns(reader(path, names), path, names)
        return [_source(path.stem, texts, prompts, path)]


def _source(name: str, texts: list[str], prompts: list[str] | None, path: Path) -> Source:
    if not texts:
        raise UserError("The input holds no texts.", where=path, got="0 rows")
    return Source(name, tuple(texts), None if prompts is None else tuple(prompts), str(path))


def _run(path: Path, where: Sequence[Mapping[str, object]], prompted: bool) -> list[Source]:
    run = Run.open(path)
    wanted = run.wanted()
    settings = {cell.id: dict(cell.spec.generator.sampler) for cell in run.cells()}
    cells = [
        cell
        for cell in run.cells()
        if not where or any(entry.items() <= settings[cell.id].items() for entry in where)
    ]
    if not cells:
        columns = ("steps", "temperature", "precision")
        settings_there = [{name: have[name] for name in columns} for have in settings.values()]
        raise UserError(
            "No cell of the run has these settings.",
            where=path,
            got="; ".join(map(_settings_text, where)) or "a run without cells",
            expected="one of " + "; ".join(map(_settings_text, settings_there[:6])),
        )
    sources = []
    for cell, name in zip(cells, cell_names(path, cells), strict=True):
        texts = cell.pool(wanted[cell.id]).texts
        if texts is None:
            raise UserError(
                "The run holds token ids without texts.",
                where=cell.path,
                expected="a checkpoint that comes with its tokenizer",
            )
        prompts = _prompts(cell, len(texts)) if prompted else None
        sources.append(_source(name, texts, prompts, path))
    return sources


def cell_names(path: Path, cells: Sequence[Cell]) -> list[str]:
    """What the cells of a run are called: the run, and those settings in which they differ."""
    samplers = [dict(cell.spec.generator.sampler) for cell in cells]
    differ = [key for key in samplers[0] if len({str(s[key]) for s in samplers}) > 1]
    run = path.resolve().name
    return [" ".join([run, *(f"{key}={sampler[key]}" for key in differ)]) for sampler in samplers]


def _prompts(cell: Cell, outputs: int) -> list[str] | None:
    """What each output of a cell answers; None without prompts, or where they have no text."""
    stored = cell.prompts()
    if stored is None or None in stored.pieces:
        return None
    prompts = []
    for pieces in (stored.pieces_of(i) or () for i in range(outputs)):
        # In words: gaps as `[[12]]`, but not the one behind it, where the answer is.
        visible = pieces[:-1] if pieces and isinstance(pieces[-1], int) else pieces
        prompts.append("".join(p if isinstance(p, str) else f"[[{p}]]" for p in visible))
    return prompts


def _settings_text(settings: Mapping[str, object]) -> str:
    return ",".join(f"{name}={value}" for name, value in settings.items())


@dataclass(frozen=True)
class Names:
    """What a file calls its fields."""

    text: str
    prompt: str


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
    return [decoded(file.read_bytes(), file) for file in files], None


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """2.txt before 10.txt."""
    words = re.findall(r"\d+|\D+", path.name)
    return [(0, int(word), "") if word.isdecimal() else (1, 0, word) for word in words]


def _csv(path: Path, _: Names) -> list[JsonLine]:
    """With a header, as spreadsheets and pandas write it; a field may hold line breaks."""
    lines = io.StringIO(decoded(path.read_bytes(), path), newline="")
    usual = csv.field_size_limit(2**31 - 1)  # 128 KiB: a long text has more
    try:
        table = list(csv.reader(lines, strict=True))
    except csv.Error as error:
        raise UserError("The CSV file cannot be read.", where=path, got=error) from None
    finally:
        csv.field_size_limit(usual)
    header, *rows = [row for row in table if row] or [[]]
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice:
        raise UserError("Two columns have the same name.", where=path, got=repr(twice[0])[:80])
    places = _places(path, rows)
    for row, where in zip(rows, places, strict=True):
        if len(row) != len(header):
            raise UserError(
                "A row has other columns than the header.",
                where=where,
                got=f"{len(row)} values",
                expected=f"{len(header)}: {', '.join(header)}"[:120],
                fix="quote texts that hold commas or line breaks",
            )
    fields = (dict(zip(header, row, strict=True)) for row in rows)
    return list(zip(fields, places, strict=True))


def _places(path: Path, rows: Sequence[Any]) -> list[str]:
    return [f"{path}, row {number}" for number in range(1, len(rows) + 1)]


def as_text(value: Any, field: str, where: str) -> str:
    """A value that is a text which can be written down; else a `UserError`."""
    if not isinstance(value, str):
        raise UserError(
            f"The field {field!r} is not a text.", where=where, got=repr(value)[:80], expected="str"
        )
    refuse_half_characters(value, field, where)
    return value


GENERATIONS = "generations"
"""The field of NoveltyBench's files that holds all answers to a prompt."""


def _columns(rows: list[JsonLine], path: Path, names: Names) -> Columns:
    """The texts, and the prompts where every row has one; a row of generations is several."""
    rows = [
        ({**row, names.text: generation} if spread else row, where)
        for row, where in rows
        for spread in [names.text not in row and isinstance(row.get(GENERATIONS), list)]
        for generation in (row[GENERATIONS] if spread else [None])
    ]
    for row, where in rows:
        if names.text not in row:
            raise UserError(
                f"The row has no field {names.text!r}.",
                where=where,
                got=", ".join(map(repr, row))[:120] or "an empty object",
                expected=f'{{"{names.text}": "..."}}',
                fix=_other_field(row),
            )
    prompted = [(row, where) for row, where in rows if names.prompt in row]
    if rows and not prompted and names.prompt != PROMPT_FIELD:
        raise UserError(
            f"No row has a field {names.prompt!r}.",
            where=path,
            got=", ".join(map(repr, rows[0][0]))[:120],
            fix="correct `prompt_field`, or leave it out",
        )
    if prompted and len(prompted) < len(rows):
        raise UserError(
            f"Some rows have a {names.prompt!r} and some have none.",
            where=path,
            got=f"{len(prompted)} of {len(rows)} rows have one",
        )
    texts = [as_text(row[names.text], names.text, where) for row, where in rows]
    prompts = [as_text(row[names.prompt], names.prompt, where) for row, where in prompted]
    return texts, prompts or None


def _other_field(row: Mapping[str, Any]) -> str | None:
    """How to name the field that holds the texts, where there are texts."""
    long = [name for name, value in row.items() if isinstance(value, str)]
    usual = [name for name in USUAL if name in long]
    return f"`field={(usual or long)[0]}`" if long else None


USUAL = ("response", "completion", "output", "answer", "content", "generation", "generated_text")
"""What others call a text that a model wrote."""


def _parquet(path: Path, names: Names) -> list[JsonLine]:
    import pyarrow as pa

    try:
        file = parquet_file(path)
        have = file.schema_arrow.names
        if names.text not in have:
            texts = ("string", "large_string", "string_view")
            strings = {column.name: "" for column in file.schema_arrow if str(column.type) in texts}
            raise UserError(
                f"The table has no column {names.text!r}.",
                where=path,
                got=", ".join(have)[:120],
                fix=_other_field(strings),
            )
        wanted = [name for name in (names.text, names.prompt) if name in have]
        # No threads: arrow's pool can abort the interpreter when it ends right after a read.
        rows = file.read(wanted, use_threads=False).to_pylist()
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise UserError(
            "The Parquet file cannot be read.", where=path, got=str(error).splitlines()[0][:160]
        ) from None
    return list(zip(rows, _places(path, rows), strict=True))


READERS: dict[str, Callable[[Path, Names], list[JsonLine]]] = {
    ".jsonl": lambda path, _: read_lines(path, '{"text": "..."}'),
    ".csv": _csv,
    ".parquet": _parquet,
}
"""By the file's ending: its rows."""
