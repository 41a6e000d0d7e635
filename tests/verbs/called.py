"""What the fixture `call` gives: a command that was run, as its tests read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Called = Callable[..., tuple[int, Any, str]]
"""From a command's words to its exit code, its document, and what it said on stderr."""
