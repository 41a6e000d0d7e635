"""A headless Chromium for tests of pages; Debian's package, which `.ci/run` installs."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LAPTOP, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}


def executable() -> str:
    """Where Chromium is, or a skip that says how to get it."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not found:
        pytest.skip("no Chromium: apt-get install chromium, or set CHROMIUM=/path/to/chromium")
    pytest.importorskip("playwright", reason="no playwright: pip install playwright")
    return found


@contextmanager
def chromium() -> Iterator[BrowserContext]:
    """One browser; a page of its own for each test costs little."""
    path = executable()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as profile, sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=path, headless=True, args=ARGUMENTS
        )
        yield context
        context.close()


class Watched:
    """A page opened from disk or an address; what went wrong on it, and what it asked for."""

    def __init__(
        self, context: BrowserContext, place: Path | str, size: dict[str, int] = LAPTOP
    ) -> None:
        self.wrong: list[str] = []
        self.asked: list[str] = []
        self.page: Page = context.new_page()
        self.page.set_viewport_size(size)  # type: ignore[arg-type]
        self.page.on("console", lambda message: self.wrong.append(message.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", self._dialog)
        self.page.on("request", lambda request: self.asked.append(request.url))
        address = place if isinstance(place, str) else place.as_uri()
        self.page.goto(address)
        self.asked.remove(address)

    def _dialog(self, dialog: object) -> None:
        self.wrong.append("a dialog opened")
        dialog.dismiss()  # type: ignore[attr-defined]

    def settled(self, status: str) -> None:
        """Wait until the line under the controls says this."""
        self.page.wait_for_function(
            "words => document.getElementById('status').textContent.includes(words)", arg=status
        )

    def texts(self, side: str) -> list[str]:
        """The outputs shown on one side."""
        return self.page.locator(f"article.{side} .text").all_inner_texts()
