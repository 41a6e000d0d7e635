"""Who is compared with whom: the checkpoints of the studies across families. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strop.errors import UserError, unknown_name
from strop.studies.selection import STANDARD, Setting

__all__ = ["CHECKPOINTS", "MODELS", "PROTOCOL", "SHARPENED", "named_sources", "run_folder"]

SHARPENED = Setting(0.9, "float32")
CHECKPOINTS = "checkpoints"
"""Where a smoke run keeps the checkpoints that it makes."""


@dataclass(frozen=True)
class Contender:
    """One checkpoint of the comparison."""

    source: str
    """The public release."""
    settings: tuple[Setting, ...] = (STANDARD,)
    """The paper sharpens MDLM and DiDi-Instruct only."""
    reference: bool = False
    """A causal model: one row that does not depend on the number of updates."""


MODELS: dict[str, Contender] = {
    "MDLM-Small": Contender("kuleshov-group/mdlm-owt", (STANDARD, SHARPENED)),
    "DUO": Contender("s-sahoo/duo"),
    "DUO-DCD": Contender("s-sahoo/duo-distilled"),
    "SEDD": Contender("louaaron/sedd-small"),
    "DiDi-Instruct": Contender("haoyangzheng/didi-instruct-small", (STANDARD, SHARPENED)),
    "GPT-2": Contender("openai-community/gpt2", reference=True),
}
"""In the order of the paper's table; the last is the reference."""

PROTOCOL = (
    "tokens: every output has as many as the model was trained on (the paper's: 1,024)",
    "random numbers: one stream per output, so the paper's very outputs cannot recur",
    "implementation: fast where there is one (the same law as the public code), dense elsewhere",
    "spans: content after the first non-leading end-of-text is not scored, as in the paper's sweep",
    "intervals: over outputs, which the paper does not give; 40 outputs leave wide ones",
)
"""What differs from the paper's protocol, or may."""


def run_folder(name: str) -> str:
    """The run directory of a row inside the study's."""
    return name.lower()


def named_sources(words: Sequence[str]) -> dict[str, str]:
    """Checkpoints as NAME=SOURCE; without any, the public ones. Only the named take part."""
    if not words:
        return {name: one.source for name, one in MODELS.items()}
    sources = {}
    for word in words:
        name, equals, source = word.partition("=")
        if not equals or not source:
            raise UserError(
                "A model of the comparison is named and placed.",
                got=word,
                expected="NAME=SOURCE, with a name among " + ", ".join(MODELS),
                fix="for example DUO=runs/duo",
            )
        if name not in MODELS:
            raise unknown_name("model of the comparison", name, MODELS)
        sources[name] = source
    return {name: sources[name] for name in MODELS if name in sources}
