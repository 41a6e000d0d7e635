"""JSON documents of a run, and the words for a file that is damaged or too new."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strop.disk import reading
from strop.errors import UserError
from strop.store.layout import COST, FORMAT, OUTPUTS, PARTS, PROMPTS, SCORES, SPEC, STUDY
from strop.version import __version__

__all__ = ["MISSING", "as_json", "check_format", "damaged", "parsed", "read_json"]

MISSING = "it is missing"


def as_json(document: Any) -> bytes:
    """A document as the bytes of its file."""
    return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()


def parsed(path: Path) -> Any:
    """What is in a JSON file. A missing one is a FileNotFoundError, another text a ValueError."""
    with reading(path):
        content = path.read_bytes()
    try:
        return json.loads(content)
    except RecursionError as error:  # brackets without end
        raise ValueError(str(error)) from None


def read_json(path: Path, key: str, kind: type) -> dict[str, Any]:
    """A JSON object of this format or an older one, with what is looked for under `key`."""
    try:
        document = parsed(path)
    except FileNotFoundError:
        raise damaged(path, MISSING) from None
    except ValueError as error:
        raise damaged(path, error) from None
    if not isinstance(document, dict):
        raise damaged(path, "it does not hold an object")
    check_format(document, path)
    if not isinstance(document.get(key), kind):
        raise damaged(path, f"it has no {key!r}")
    return document


def damaged(path: Path, why: object) -> UserError:
    """The message for a file whose content is not what strop wrote."""
    if path.name == OUTPUTS or path.parent.name == PARTS:
        fix = f"delete {path} and run the command that made it again: equal seeds, equal outputs"
    elif path.parent.name == SCORES:
        fix = f"delete {path} and score again"
    elif path.name == COST:
        fix = f"restore {path}, or delete it: only the record of earlier sessions is lost"
    elif path.name == STUDY or (path.name == SPEC and why == MISSING):
        fix = "run the command that made this run again: it writes the same file"
    elif path.name == SPEC or path.parent.name == PROMPTS:
        fix = f"delete {path} and run the command that made it again: it writes the same file"
    else:
        fix = "restore the file, or start the run anew with `force`"
    reason = str(why).splitlines()[0][:200] if str(why) else type(why).__name__
    return UserError("A file of the run is damaged.", where=path, got=reason, fix=fix)


def check_format(document: Mapping[str, Any], path: Path) -> None:
    """Refuse a document of a newer layout."""
    made = document.get("format")
    if type(made) is not int or made < 1:
        raise damaged(path, f"its format is {made!r}")
    if made > FORMAT:
        raise UserError(
            "This run was made by a newer version of strop.",
            where=path,
            got=f"format {made} (strop {document.get('strop', 'unknown')})",
            expected=f"format {FORMAT} or lower (this is strop {__version__})",
            fix="pip install --upgrade strop",
        )
