"""What the measurements say, for people: one page for the browser, from run directories.

The names load on first use: importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.registry import loader

if TYPE_CHECKING:
    from strop.page.collect import gather
    from strop.page.data import Report
    from strop.page.page import render, write

__all__ = [
    "Report",
    "gather",
    "render",
    "write",
]

__getattr__ = loader(__name__)
