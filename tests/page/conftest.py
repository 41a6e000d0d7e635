"""What the tests of the page share."""

from __future__ import annotations

import pytest


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of words: figures are put together, but no picture is made of them."""
    monkeypatch.setattr("strop.page.page.inline", lambda _, name, __: f"<svg>{name}</svg>")
    monkeypatch.setattr("strop.page.page.as_file", lambda *_: b"")
