"""Text of any origin as text that can be written and that stays where it is put."""

from __future__ import annotations

import unicodedata

__all__ = ["encodable", "visible"]

INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's categories of controls, formats, half surrogates and separators of lines."""


def encodable(text: str) -> str:
    """Lone halves of surrogate pairs become U+FFFD; everything else stays."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def visible(text: str) -> str:
    """For labels: what would reorder, hide or break a line becomes U+FFFD; line breaks stay."""
    return "".join(
        c if c == "\n" or unicodedata.category(c) not in INVISIBLE else "\ufffd" for c in text
    )
