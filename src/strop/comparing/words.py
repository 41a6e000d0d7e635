"""One comparison in one honest sentence."""

from __future__ import annotations

from collections.abc import Sequence

from strop.comparing.compare import Comparison
from strop.comparing.verdict import BENT, SHORTER, SMOKE, Kind, Layer
from strop.stats.interval import Interval

SAID: dict[Kind, str] = {
    "better": "{a} is better than {b} at equal sharpness",
    "worse": "{a} is worse than {b} at equal sharpness",
    "only sharper": "{a} is only sharper than {b}",
    "only smoother": "{a} is only smoother than {b}",
    "the same": "{a} and {b} are the same",
    "mixed": "{a} and {b} are mixed",
    "cannot tell": "Cannot tell",
}


def sentence(found: Comparison, names: Sequence[str] = ("A", "B")) -> str:
    """The verdict, what it rests on, and what it takes to decide where nothing is."""
    verdict, equal = found.verdict, found.equal
    a, b = names
    words = SAID[verdict.kind].format(a=a, b=b)
    if verdict.kind in ("mixed", "cannot tell"):
        words += f" ({verdict.why})"
    elif "diverse" in verdict.why:
        words += f": {verdict.why}"
    if equal is None:
        return f"{words}: no verdict.{_as_published(found.published)}"
    words += (
        f": at equal entropy, {equal.low:.2f} to {equal.high:.2f} nats, {a} has "
        f"{ratio(equal.mean)} times the perplexity of {b}"
    )
    if verdict.kind in ("the same", "only sharper", "only smoother"):
        words += f", inside the margin of {found.margin:.0%} everywhere in that range"
    words += f".{_as_published(found.published)}"
    if verdict.kind != "cannot tell" or verdict.why in (BENT, SHORTER, SMOKE):
        return words
    if verdict.outputs is None:
        return f"{words} More outputs would hardly decide."
    return f"{words} About {verdict.outputs:,} outputs per temperature and side would decide."


def _as_published(layer: Layer | None) -> str:
    if layer is None:
        return ""
    return (
        f" As published it is {ratio(layer.gap)} times, at {layer.sharper.value:+.2f} nats of "
        "entropy."
    )


def ratio(gap: Interval) -> str:
    """A gap in log-perplexity as a ratio with its interval."""
    one = gap.exp()
    found = (one.value, *one.ends)
    value, low, high = (f"{one:.3f}" if one >= 0.001 else f"{one:.2g}" for one in found)
    return f"{value} [{low}, {high}]"
