"""JSON, YAML and Parquet: names of files in a run, words for one that is damaged or too new.

`differences` says what was asked then and what now, for the messages that refuse to mix the two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.disk import reading
from strop.errors import UserError
from strop.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

FORMAT = 1
"""Version of the layout; a directory of a higher one is refused."""

MARK = "strop.json"
"""What every directory has that strop writes; see `strop.store.folder`."""
CELLS, SPEC, OUTPUTS, PARTS, COST, SCORES = (
    "cells",
    "spec.json",
    "outputs.parquet",
    "parts",
    "cost.json",
    "scores",
)
PROMPTS = "prompts"
"""Folder of what the outputs of a run answer, where they answer something."""
GUARD = "guard.json"
GRAMMAR = "grammar.json"
"""The entropy guard of a run, where it was made from texts that somebody brought."""
RESULT, TABLE = "result.json", "table.csv"
"""What came out of a study, an audit, a search or a comparison."""
SELECTION, FRESH = "selection.json", "fresh"
"""What audits and searches leave: their choices, and runs of fresh outputs."""
CELL_ID = METRIC_ID = re.compile(r"[0-9a-f]{16}")


BATCHING = ("n", "batch_size")


def told_apart(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Where two trees of settings differ, one phrase each, by dotted names."""
    then, today = _flat(was), _flat(now)
    return [
        f"{key}: {then.get(key, 'nothing')} there, {today.get(key, 'nothing')} now"
        for key in {**then, **today}
        if then.get(key) != today.get(key)
    ]


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What was asked of two runs of outputs, a few settings of it."""
    # Where the file lies is not identity; the batch and n are part of it only for dense.
    then, today = _by_setting(was), _by_setting(now)
    dense = "dense" in then.get("implementation", "")
    ignored = {"checkpoint"} if dense else {"checkpoint", *BATCHING}
    told = told_apart(
        *({k: v for k, v in one.items() if k not in ignored} for one in (then, today))
    )
    if len(told) > 4:
        told = [*told[:4], f"and {len(told) - 4} more"]
    return "; ".join(told) or "the same settings, but other cells"


def _by_setting(asked: Mapping[str, Any]) -> dict[str, Any]:
    """A setting that all samplers share, or list, under its own name."""
    found = {key: value for key, value in asked.items() if key != "samplers"}
    samplers = [one for one in asked.get("samplers") or [] if isinstance(one, Mapping)]
    for name in dict.fromkeys(key for one in samplers for key in one):
        found[name] = ", ".join(dict.fromkeys(str(one.get(name)) for one in samplers))
    return found


def _flat(tree: Mapping[str, Any], key: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tree.items():
        nested = isinstance(value, Mapping)
        found |= _flat(value, f"{key}{name}.") if nested else {f"{key}{name}": value}
    return found


HOW: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
"""Parquet checks its pages only if asked to, at both ends."""
MISSING = "it is missing"


def as_json(document: Any) -> bytes:
    """A document as the bytes of its file."""
    return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()


def load_yaml(content: str | bytes) -> Any:
    """What a YAML text holds; a yaml.YAMLError where it is none, or says a key twice."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            twice = [name for name in names if names.count(name) > 1 and name != "<<"]
            if twice:
                raise yaml.YAMLError(f"the key {twice[0]!r} is there twice")
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(content, Loader=Loader)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deep") from None


def parsed(path: Path) -> Any:
    """What is in a JSON file. A missing one is a FileNotFoundError, another text a ValueError."""
    with reading(path):
        content = path.read_bytes()
    try:
        return json.loads(content)
    except RecursionError as error:  # brackets without end
        raise ValueError(str(error)) from None


def read_json(path: Path, key: str, kind: type, fix: str | None = None) -> dict[str, Any]:
    """A JSON object of this format or an older one, with what is looked for under `key`."""
    try:
        document = parsed(path)
        if not isinstance(document, dict):
            raise ValueError("it does not hold an object")
    except FileNotFoundError:
        raise damaged(path, MISSING, fix) from None
    except ValueError as error:
        raise damaged(path, error, fix) from None
    check_format(document, path, fix)
    if not isinstance(document.get(key), kind):
        raise damaged(path, f"it has no {key!r}", fix)
    return document


def parquet(table: pa.Table) -> bytes:
    """The content of a file with checksums in its pages."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **HOW)
    return sink.getvalue().to_pybytes()


def parquet_file(source: Any, **options: Any) -> pq.ParquetFile:
    """A file to read, strop's or anybody's, whose checksums are looked at if it has any."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(source, page_checksum_verification=True, **options)


class Damaged(UserError):
    """The content of a file is not what strop wrote."""


def damaged(path: Path, why: object, fix: str | None = None) -> Damaged:
    """The message for such a file; `fix` where it is not one of a run's."""
    reason = str(why).splitlines()[0][:200] if str(why) else type(why).__name__
    fix = _fix(path, why) if fix is None else fix
    return Damaged("A file of the run is damaged.", where=path, got=reason, fix=fix)


def _fix(path: Path, why: object) -> str:
    if path.name == MARK or (path.name == SPEC and why == MISSING):
        return "run the command that made this run again: it writes the same file"
    if path.name == OUTPUTS or (
        path.parent.name == PARTS and path.parent.parent.parent.name == CELLS
    ):
        return f"delete {path} and run the command that made it again: equal seeds, equal outputs"
    if path.parent.name == SCORES:
        return f"delete {path} and score again"
    if path.name == COST:
        return f"restore {path}, or delete it: only the record of earlier sessions is lost"
    if path.name == SPEC or path.parent.name == PROMPTS:
        return f"delete {path} and run the command that made it again: it writes the same file"
    if path.name == RESULT or path.parent.name in (CELLS, PARTS):
        return f"delete {path} and run the same command again: it is measured anew"
    return "restore the file, or start the run anew with `force`"


def check_format(document: Mapping[str, Any], path: Path, fix: str | None = None) -> None:
    """Refuse a document of a newer layout."""
    made = document.get("format")
    if type(made) is not int or made < 1:
        raise damaged(path, f"its format is {made!r}", fix)
    if made > FORMAT:
        raise UserError(
            "This run was made by a newer version of strop.",
            where=path,
            got=f"format {made} (strop {document.get('strop', 'unknown')})",
            expected=f"format {FORMAT} or lower (this is strop {__version__})",
            fix="pip install --upgrade strop",
        )
