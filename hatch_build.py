"""README and addresses of the package for an index, made as it is built.

GITHUB_REPOSITORY says where the sources are published, if they are.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hatchling.metadata.plugin.interface import (  # pyright: ignore[reportMissingImports]
    MetadataHookInterface,
)

PAPER = "https://arxiv.org/abs/2609.33947"


class About(MetadataHookInterface):
    """What pyproject.toml calls dynamic."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, object]) -> None:
        """Fills it in."""
        root = Path(self.root)
        sys.path.insert(0, str(root / "scripts"))
        from index_readme import absolute, published

        source, text = published(os.environ), (root / "README.md").read_text(encoding="utf-8")
        text = absolute(text, source, str(metadata["version"]))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = {"Paper": PAPER} | ({"Source": source} if source else {})
