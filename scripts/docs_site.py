"""A hook of mkdocs: the pages beside docs/ join the site, README as its first page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files  # pyright: ignore[reportMissingImports]

ROOT = Path(__file__).parents[1]
BESIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CITATION.cff": "CITATION.cff",
}
"""Files at the top of the tree, and their names in the site."""


def on_files(files: Files, config: Any) -> Files:
    """Adds them."""
    for name, there in BESIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, there, content=moved_up(text)))
    return files


def moved_up(text: str) -> str:
    """Links of a page that stands beside docs/, as they are inside it."""
    return re.sub(r"\]\(docs/", "](", text).replace("](LICENSE)", "](CONTRIBUTING.md)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that lead out of docs/ lead to where those pages are in the site."""
    up = "../" * (page.file.src_uri.count("/"))
    for name, there in BESIDE.items():
        markdown = markdown.replace(f"]({up}../{name}", f"]({up}{there}")
    return markdown
