"""Outputs inside the page: JSON, deflated, as base64, one block per generator.

Base64 has no character that HTML reads, so nothing an output holds can end its block.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Sequence

from strop.report.data import Output
from strop.report.plain import encodable

__all__ = ["pack"]

FIGURES = 5
"""Significant digits of the numbers of an output: more than the page shows."""


def pack(outputs: Sequence[Output]) -> str:
    """What `page.js` unpacks: [[index, text, [values]], ...]."""
    rows = [[one.index, encodable(one.text), [_short(v) for v in one.values]] for one in outputs]
    text = json.dumps(rows, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _short(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None  # JSON has no infinity; the page shows a dash
    return float(f"{value:.{FIGURES}g}")
