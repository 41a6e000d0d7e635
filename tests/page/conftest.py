"""What the tests of the page share."""

from __future__ import annotations

import pytest

from strop.page.marks import Chart


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of words: figures are put together, but no picture is made of them."""
    empty = Chart((), ())
    monkeypatch.setattr(
        "strop.page.page.inline", lambda _, name, *__, **___: (f"<svg>{name}</svg>", empty)
    )
    monkeypatch.setattr("strop.page.page.as_file", lambda *_: b"")
