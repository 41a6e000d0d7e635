"""What the measurements say, for people: one page for the browser, from run directories."""

from __future__ import annotations

from strop.report.gather import gather
from strop.report.page import render, write

__all__ = ["gather", "render", "write"]
