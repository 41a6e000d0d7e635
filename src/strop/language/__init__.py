"""A language whose law is known: texts, exact probabilities, predictive laws. No torch.

`grammar` reads a grammar, `elimination` sums over what texts are about, `law` has the law itself,
`paths` bounds a sampler's distance from it,
and `reading` what the verbs of `strop language` say of texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.registry import loader

if TYPE_CHECKING:
    from strop.language.law import Language
    from strop.language.reading import check, draw, explain, path_bounds, score

__all__ = ["Language", "check", "draw", "explain", "path_bounds", "score"]

__getattr__ = loader(__name__)
