"""Names of a package that load on first use, so that importing it costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from strop.errors import missing_package


def loader(package: str, home: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names live in the modules that `home` says.

    Where a module needs an optional package that is not installed, the error names the remedy.
    """

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(home[name]), name)
        except ModuleNotFoundError as error:
            remedy = missing_package(error)
            if remedy is None:
                raise
            raise remedy from error
        setattr(sys.modules[package], name, value)
        return value

    return load
