"""Is a generator better than another, or only sharper? The rules, over plain arrays.

`compare` takes two sides, each the outputs of one generator at several temperatures, and returns
three layers (as published, tuned, at equal sharpness) and a verdict. Nothing here draws, scores or
reads files: `strop.verbs.compare` does. The rules, how often they were
right, and when not to trust them: docs/compare.md.
"""

from strop.comparing.compare import Comparison, compare
from strop.comparing.diversity import Diversity, copies
from strop.comparing.frontier import Equal
from strop.comparing.levels import Level, spent
from strop.comparing.overall import overall
from strop.comparing.scored import Scored, common_length
from strop.comparing.side import Sample, Side
from strop.comparing.verdict import DIFFERENT, KINDS, SideVerdict, mirrored

__all__ = [
    "DIFFERENT",
    "KINDS",
    "Comparison",
    "Diversity",
    "Equal",
    "Level",
    "Sample",
    "Scored",
    "Side",
    "SideVerdict",
    "common_length",
    "compare",
    "copies",
    "mirrored",
    "overall",
    "spent",
]
