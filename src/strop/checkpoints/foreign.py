"""Everything that transformers loads is loaded here, so that no call can break our promises.

No code of a checkpoint runs, nobody is asked anything, nothing comes from a network, and what the
library prints is no part of a command's answer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from strop.checkpoints.files import read_json_object
from strop.errors import UserError, missing_package

FIXED = {"trust_remote_code": False, "local_files_only": True}
"""Options of every loading, whatever a caller passes."""
ASKS = "auto_map"
"""Where a configuration names classes of its own, in files beside it."""


def library() -> Any:
    """transformers, if it is installed."""
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise (missing_package(error) or error) from None
    return transformers


def load_foreign(kind: str, directory: str | os.PathLike[str], **options: Any) -> Any:
    """The object that the class `kind` of transformers loads from a directory.

    A checkpoint whose architecture the library has itself is read by the library's own class, also
    if it brings another; one that cannot do without its own code is refused.
    """
    folder = Path(directory)
    try:
        with quiet():
            return getattr(library(), kind).from_pretrained(str(folder), **{**options, **FIXED})
    except ValueError as error:
        claims = _own_code(folder) if "trust_remote_code" in str(error) else []
        if not claims:
            raise
        raise UserError(
            "This checkpoint needs code of its own, and strop runs no code from checkpoints.",
            where=folder,
            got="; ".join(claims)[:300],
            expected="an architecture and a tokenizer that transformers has itself",
            fix="upgrade transformers, which may know the architecture by now, "
            "or choose another checkpoint",
        ) from error


def empty_foreign(kind: str, config: Any) -> Any:
    """The network that the class `kind` of transformers makes of a configuration, untrained."""
    with quiet():
        return getattr(library(), kind).from_config(config, trust_remote_code=False)


def _own_code(folder: Path) -> list[str]:
    """The code that a checkpoint would have run, by the files that name it."""
    claims = []
    for name in ("config.json", "tokenizer_config.json"):
        named = read_json_object(folder / name).get(ASKS) if (folder / name).is_file() else None
        if named:
            classes = named.values() if isinstance(named, dict) else [named]
            claims.append(f"{name}: {ASKS} names {', '.join(map(str, classes))}")
    return claims


@contextmanager
def without_questions() -> Iterator[None]:
    """Let a library neither ask on standard input nor print on standard output."""
    stdin = sys.stdin
    with open(os.devnull) as nothing, redirect_stdout(sys.stderr):
        sys.stdin = nothing
        try:
            yield
        finally:
            sys.stdin = stdin


@contextmanager
def quiet() -> Iterator[None]:
    """No questions, progress bars or warnings of transformers: what matters is checked here."""
    logging = library().utils.logging
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with without_questions():
            yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
