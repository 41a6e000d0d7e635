"""README as a package index shows it, where links into the tree lead nowhere."""

from __future__ import annotations

import re
from collections.abc import Mapping

RELATIVE = r"\((?!https?:|#)([^)\s]+)\)"
"""An address inside the tree, as Markdown writes it."""


def published(environment: Mapping[str, str]) -> str | None:
    """Where the sources are, if the machine that builds says so."""
    name = environment.get("GITHUB_REPOSITORY")
    return f"{environment.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}" if name else None


def absolute(text: str, source: str | None, version: str) -> str:
    """Links and pictures of a page at the top of the tree, for readers elsewhere.

    Where nobody says where the sources are, links become plain words and pictures go with their
    captions, so that nothing is dead.
    """
    if source is None:
        text = re.sub(rf"!\[[^\]]*\]{RELATIVE}\n+(?:\*[^*\n]*\*\n+)?", "", text)
        return re.sub(rf"\[([^\]]+)\]{RELATIVE}", r"\1", text)
    text = re.sub(rf"(!\[[^\]]*\]){RELATIVE}", rf"\1({source}/raw/v{version}/\2)", text)
    return re.sub(rf"(?<!!)(\[[^\]]*\]){RELATIVE}", rf"\1({source}/blob/v{version}/\2)", text)
