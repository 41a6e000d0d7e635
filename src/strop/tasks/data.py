"""The problems that ship with the package."""

from __future__ import annotations

import gzip
import json
from typing import Any

from strop.assets import ROOT


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of one of the shipped files."""
    with gzip.open(ROOT / "tasks" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
