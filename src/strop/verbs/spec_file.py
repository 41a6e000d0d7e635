"""Samplers from a YAML file, such as the audit writes."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

from strop.errors import UserError
from strop.spec import SamplerSpec


def read_samplers(path: Path) -> list[SamplerSpec]:
    """The samplers of a file: a list under `samplers`, or one sampler's fields."""
    import yaml

    from strop.disk import reading
    from strop.store.documents import load_yaml

    try:
        with reading(path):
            document: Any = load_yaml(path.read_bytes())
    except FileNotFoundError:
        raise UserError("There is no such file of samplers.", where=path) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        told = str(error).splitlines()[0]
        raise UserError("The file of samplers is not YAML.", where=path, got=told) from None
    listed = document.get("samplers", [document]) if isinstance(document, dict) else None
    if not isinstance(listed, list) or not listed or not all(isinstance(s, dict) for s in listed):
        raise UserError(
            "The file holds no samplers.",
            where=path,
            expected="`samplers:` with a list of settings such as {steps: 64, temperature: 0.9}",
        )
    try:
        return [SamplerSpec(**{str(key): value for key, value in one.items()}) for one in listed]
    except UserError as error:
        raise _of_file(error, path) from None


def _of_file(error: UserError, path: Path) -> UserError:
    """The same error for who wrote the fields into a file, not behind flags."""
    told = copy.copy(error)
    told.what = as_keys(error.what)
    told.where = f"{path}: {as_keys(error.where or '')}".removesuffix(": ")
    told.fix = None if error.fix is None else as_keys(error.fix)
    return told


def as_keys(text: str) -> str:
    """A sentence of the library for who wrote the fields into a file: `steps`, `steps: 64`."""
    text = re.sub(r"\bSamplerSpec(\.|$)", "", text)
    return re.sub(r"`([a-z_]+)(?:=([^`]*))?`", lambda m: m[1] + (f": {m[2]}" if m[2] else ""), text)
