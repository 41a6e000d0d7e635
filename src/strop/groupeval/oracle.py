"""The oracle: a judge of texts of a known language, who knows their law.

A text is valid if at most `valid` of its words must be wrong. Its grades fall with every wrong
word, from full marks at none to nothing beyond `valid`, spread evenly over the profile's
dimensions. Its mode is the likeliest one. What is no text of the language is not valid; a group
in which that is true of more than half is refused: the language is then most likely another.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from strop.errors import UserError, unknown_name, whole_number
from strop.groupeval.profile import Profile
from strop.groupeval.session import Answer
from strop.spec.value import JudgeSpec

NAME = "oracle-v1"
BEST = 2
"""The highest grade of a dimension."""
LETTERS = "ABCDEFGH"


def oracle_spec(
    profile: Profile, *, language: str = "even", valid: int = 8, **others: Any
) -> JudgeSpec:
    """Who judges: the language, by the hash of its grammar too, and what it takes for valid."""
    from strop.language.grammar import read_grammar

    for name in others:
        raise unknown_name("setting of the oracle", name, ("language", "valid"), where="`settings`")
    if not profile.modes:
        raise UserError(
            f"The oracle cannot use the profile {profile.name}.",
            expected="one in which every valid text has a mode, such as webtext-v1",
        )
    settings: dict[str, Any] = {
        "language": language,
        "grammar_sha256": read_grammar(language).sha256,
        "valid": whole_number("valid", valid, 0, 2**31),
    }
    name = f"{NAME}/{language}, valid up to {valid} violations"
    return JudgeSpec(kind="oracle", model=NAME, name=name, settings=settings)


def oracle_client(spec: JudgeSpec, profile: Profile) -> Answer:
    """What answers a sheet."""
    from strop.language import Language

    language, most = Language.load(str(spec.settings["language"])), spec.settings["valid"]
    assert isinstance(most, int)

    def judged(text: str) -> tuple[int | None, int]:
        """Violations (None: no text of the language), and the mode's number."""
        try:
            ids = language.encode(text)
        except UserError:
            return None, 0
        return int(language.violations(ids)), int(language.posterior(ids).argmax())

    def answer(labels: Sequence[str], texts: Sequence[str], task: str | None) -> str:  # noqa: ARG001
        found = [judged(text) for text in texts]
        foreign = [text for text, (wrong, _) in zip(texts, found, strict=True) if wrong is None]
        if len(foreign) > len(texts) / 2:
            raise UserError(
                f"Most texts of a group have words that the language "
                f"{spec.settings['language']} has not.",
                got=repr(foreign[0][:60]),
                fix="name the language that they are of: settings `language=tail`, or a "
                "grammar's file",
            )
        good = [wrong is not None and wrong <= most for wrong, _ in found]
        seen = dict.fromkeys(mode for (_, mode), valid in zip(found, good, strict=True) if valid)
        letters = dict(zip(seen, LETTERS, strict=False))
        outputs = []
        for label, (wrong, mode), valid in zip(labels, found, good, strict=True):
            grades = _grades(wrong if valid else None, most, profile.dimensions)
            letter = letters[mode] if valid else None
            outputs.append({"id": label, "valid": valid, **grades, "mode": letter, "hybrid": False})
        return json.dumps({"outputs": outputs, "confidence": "high"})

    return answer


def _grades(wrong: int | None, most: int, dimensions: Sequence[str]) -> dict[str, int]:
    """All points at no violation, none beyond the limit; the first dimensions get the odd ones."""
    points = BEST * len(dimensions)
    points = 0 if wrong is None else int(np.ceil(points * (1 - wrong / (most + 1))))
    each, odd = divmod(points, len(dimensions))
    return {name: each + (k < odd) for k, name in enumerate(dimensions)}
