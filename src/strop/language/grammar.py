"""A grammar: what a file of the format `strop-language/1` says, checked (docs/language.md).

A law is a number: a word's own place in the vocabulary, or len(vocabulary) + the place of a class.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.assets import ROOT
from strop.disk import reading
from strop.errors import UserError, unknown_name

FORMAT = "strop-language/1"
PRESETS = ("even", "skewed", "tail")
"""The grammars that ship."""
_CLASS, _FEATURE = re.compile(r"<(.+)>"), re.compile(r"\{([^.]+)\.(.+)\}")


def _object(
    required: Mapping[str, Any], optional: Mapping[str, Any], *, others: bool = True
) -> Any:
    properties = {**required, **optional}
    kind = {"type": "object", "properties": properties, "required": list(required)}
    return {**kind, "additionalProperties": others}


_TEXT, _LIST, _COUNT = {"type": "string"}, {"type": "array"}, {"type": "integer", "minimum": 1}
_TEXTS = {"type": "array", "items": _TEXT}
_VARIANT = _object(
    {"weight": {"type": "number", "minimum": 0}, "tokens": _TEXTS},
    {"when": {"type": ["object", "null"], "additionalProperties": {"type": ["string", "array"]}}},
    others=False,  # a `when` that is misspelt would be a law without it
)
_SEGMENT = _object(
    {
        "length": _COUNT,
        "scope": {**_TEXTS, "maxItems": 3, "uniqueItems": True},
        "variants": {"type": "array", "items": _VARIANT, "minItems": 1},
    },
    {"name": _TEXT},
)
_LATENT = _object(
    {"values": {**_TEXTS, "minItems": 1, "uniqueItems": True}, "weights": _LIST},
    {
        "given": {"type": ["string", "null"]},
        "features": {"type": "object", "additionalProperties": _TEXTS},
    },
)
# Long lists have their items checked by hand: a schema takes a second for them.
SCHEMA = _object(
    {
        "format": {"const": FORMAT},
        "length": _COUNT,
        "noise": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "vocabulary": {"type": "array", "minItems": 1},
        "latents": {"type": "object", "additionalProperties": _LATENT, "minProperties": 1},
        "segments": {"type": "array", "items": _SEGMENT, "minItems": 1},
    },
    {
        "classes": {
            "type": "object",
            "additionalProperties": _object({"words": _LIST, "weights": _LIST}, {}),
        },
        "mode": {**_TEXTS, "uniqueItems": True},
    },
)


@dataclass(frozen=True, eq=False)
class Latent:
    """Something that a text is about, such as its hero."""

    name: str
    values: tuple[str, ...]
    given: int | None
    """The latent that its law depends on."""
    prior: NDArray[np.float64]
    """[values], or [values of the other latent, values]; rows sum to one."""
    features: Mapping[str, tuple[int, ...]]
    """The word of each value, by name."""


@dataclass(frozen=True)
class Slot:
    """One token of a variant."""

    latent: int | None
    """Which latent decides its law; None: the law is always the same."""
    laws: tuple[int, ...]
    """One per value of the latent, or one."""


@dataclass(frozen=True, eq=False)
class Segment:
    """A sentence of fixed length and its wordings."""

    name: str
    start: int
    """Its first position in the text."""
    length: int
    scope: tuple[int, ...]
    """The latents that it speaks of, in the grammar's order."""
    variants: tuple[tuple[Slot, ...], ...]
    share: NDArray[np.float64]
    """P(variant | values of the scope), [variants, values...]; 0 where it is not allowed."""


@dataclass(frozen=True, eq=False)
class Grammar:
    """Everything that a law of texts depends on."""

    source: str
    sha256: str
    """SHA-256 of the file."""
    length: int
    noise: float
    """Probability of a typo per token."""
    vocabulary: tuple[str, ...]
    classes: Mapping[str, NDArray[np.float64]]
    """The law of every class over the vocabulary."""
    latents: tuple[Latent, ...]
    segments: tuple[Segment, ...]
    mode: tuple[str, ...]
    """The latents whose joint value is the mode of a text."""
    content: bytes = b""
    """The content of the file."""


def read_grammar(source: str | PathLike[str]) -> Grammar:
    """A grammar that ships, by its name, or a file."""
    path = Path(source)
    if str(source) in PRESETS:
        path = ROOT / "grammars" / f"{source}.json"
    elif not path.is_file():
        if path.suffix == "":
            raise unknown_name(
                "language",
                str(source),
                PRESETS,
                fix="give a file, or the name of a built-in language",
            )
        raise UserError("There is no such grammar.", where=path, fix="check the path")
    with reading(path):
        content = path.read_bytes()
    try:
        document = json.loads(content)
    except ValueError as error:
        raise UserError("The grammar is not JSON.", where=path, got=str(error)[:200]) from None
    grammar = _Reader(str(source)).grammar(document, hashlib.sha256(content).hexdigest())
    return replace(grammar, content=content)


class _Reader:
    """Reads one document; every error names the key in it."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.ids: dict[str, int] = {}
        self.classes: dict[str, int] = {}
        self.latents: dict[str, Latent] = {}
        self.order: dict[str, int] = {}

    def bad(self, key: str, what: str, value: Any = None, expected: str | None = None) -> UserError:
        text = None if value is None else (value if isinstance(value, str) else repr(value))[:200]
        return UserError(what, where=f"{self.source}: {key}", got=text, expected=expected)

    def as_many(self, key: str, what: str, entries: Sequence[Any], n: int, unit: str) -> None:
        if len(entries) != n:
            raise self.bad(key, what, len(entries), f"{n} {unit}")

    def one_of(
        self, key: str, what: str, name: Any, names: Iterable[str], value: Any = None
    ) -> None:
        names = list(names)
        if name not in names:
            raise self.bad(key, what, value, f"one of {', '.join(names)}")

    def grammar(self, document: Any, sha256: str) -> Grammar:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import best_match

        error = best_match(Draft202012Validator(SCHEMA).iter_errors(document))
        if error is not None:
            key = error.json_path.removeprefix("$").removeprefix(".") or "the whole document"
            raise self.bad(key, "The grammar does not fit the format.", error.message)
        self.ids = self._vocabulary(document["vocabulary"])
        classes = {
            name: self._class(f"classes.{name}", entry)
            for name, entry in document.get("classes", {}).items()
        }
        self.classes = {name: len(self.ids) + k for k, name in enumerate(classes)}
        self.order = {name: k for k, name in enumerate(document["latents"])}
        sizes = {name: len(entry["values"]) for name, entry in document["latents"].items()}
        for name, entry in document["latents"].items():
            self.latents[name] = self._latent(f"latents.{name}", name, entry, sizes)
        self._no_circle()
        segments, start = [], 0
        for k, entry in enumerate(document["segments"]):
            segments.append(self._segment(f"segments[{k}]", entry, start))
            start += entry["length"]
        if start != document["length"]:
            what = "The lengths of the segments do not add up to it."
            raise self.bad("length", what, document["length"], f"{start}")
        mode = self._latent_names("mode", document.get("mode", ()))
        return Grammar(
            source=self.source,
            sha256=sha256,
            length=start,
            noise=float(document["noise"]),
            vocabulary=tuple(self.ids),
            classes=classes,
            latents=tuple(self.latents.values()),
            segments=tuple(segments),
            mode=tuple(mode),
        )

    def _vocabulary(self, words: list[Any]) -> dict[str, int]:
        ids: dict[str, int] = {}
        for k, word in enumerate(words):
            if not isinstance(word, str) or not word:
                raise self.bad(f"vocabulary[{k}]", "A word must be a text that is not empty.", word)
            if word in ids:
                twice = f"The word is listed twice, first at {ids[word]}."
                raise self.bad(f"vocabulary[{k}]", twice, word)
            ids[word] = k
        return ids

    def _word(self, key: str, word: Any) -> int:
        if not isinstance(word, str) or word not in self.ids:
            raise self.bad(key, "The word is not in the vocabulary.", word)
        return self.ids[word]

    def _law(self, key: str, weights: Any, n: int) -> NDArray[np.float64]:
        """A law from weights, normalised."""
        if not isinstance(weights, list) or len(weights) != n:
            value = len(weights) if isinstance(weights, list) else weights
            raise self.bad(
                key, "There must be one weight for each.", value, f"a list of {n} numbers"
            )
        for k, weight in enumerate(weights):
            number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
            if not number or not 0 <= weight < float("inf"):
                raise self.bad(f"{key}[{k}]", "A weight must be a number of at least 0.", weight)
        law = np.array(weights, np.float64)
        if not law.sum() > 0:
            raise self.bad(key, "All weights are zero.", expected="at least one above zero")
        return law / law.sum()

    def _class(self, key: str, entry: Mapping[str, Any]) -> NDArray[np.float64]:
        law = np.zeros(len(self.ids))
        words = [self._word(f"{key}.words[{k}]", word) for k, word in enumerate(entry["words"])]
        np.add.at(law, words, self._law(f"{key}.weights", entry["weights"], len(words)))
        return law

    def _latent_names(self, key: str, names: Iterable[str]) -> list[str]:
        """Names of latents, all of them known."""
        for name in names:
            self.one_of(key, f"There is no latent called {name!r}.", name, self.order)
        return list(names)

    def _latent(
        self, key: str, name: str, entry: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> Latent:
        values, weights, parent = tuple(entry["values"]), entry["weights"], entry.get("given")
        if parent is None:
            prior = self._law(f"{key}.weights", weights, len(values))
        else:
            self._latent_names(f"{key}.given", [parent])
            what = f"There must be one row for each value of {parent!r}."
            self.as_many(f"{key}.weights", what, weights, sizes[parent], "rows")
            rows = enumerate(weights)
            prior = np.array(
                [self._law(f"{key}.weights[{k}]", row, len(values)) for k, row in rows]
            )
        features = {}
        for feature, words in entry.get("features", {}).items():
            where = f"{key}.features.{feature}"
            what = "There must be one word for each value."
            self.as_many(where, what, words, len(values), "words")
            features[feature] = tuple(self._word(f"{where}[{k}]", w) for k, w in enumerate(words))
        return Latent(name, values, None if parent is None else self.order[parent], prior, features)

    def _no_circle(self) -> None:
        latents = list(self.latents.values())
        for latent in latents:
            above, seen = latent, {latent.name}
            while above.given is not None:
                above = latents[above.given]
                if above.name in seen:
                    raise self.bad(
                        f"latents.{latent.name}.given", "A latent depends on itself.", sorted(seen)
                    )
                seen.add(above.name)

    def _segment(self, key: str, entry: Mapping[str, Any], start: int) -> Segment:
        names = self._latent_names(f"{key}.scope", entry["scope"])
        scope = tuple(sorted(self.order[name] for name in names))
        latents = [list(self.latents.values())[k] for k in scope]
        sizes = [len(latent.values) for latent in latents]
        variants, shares = [], []
        for k, variant in enumerate(entry["variants"]):
            where = f"{key}.variants[{k}]"
            what = "A variant must be as long as its segment."
            self.as_many(f"{where}.tokens", what, variant["tokens"], entry["length"], "tokens")
            tokens = enumerate(variant["tokens"])
            variants.append(tuple(self._slot(f"{where}.tokens[{i}]", t, names) for i, t in tokens))
            allowed = self._allowed(f"{where}.when", variant.get("when") or {}, latents)
            shares.append(float(variant["weight"]) * allowed.reshape(sizes))
        share = np.stack(shares)
        if not np.isfinite(share).all():
            raise self.bad(f"{key}.variants", "A weight is not finite.")
        total = share.sum(0)
        for values in product(*map(range, sizes)):
            if not total[values] > 0:
                assignment = {
                    latent.name: latent.values[v] for latent, v in zip(latents, values, strict=True)
                }
                raise self.bad(
                    f"{key}.variants", "No variant is allowed for these values.", assignment
                )
        name = entry.get("name", key)
        return Segment(name, start, entry["length"], scope, tuple(variants), share / total)

    def _allowed(
        self, key: str, when: Mapping[str, Any], latents: Sequence[Latent]
    ) -> NDArray[np.float64]:
        """1 where a variant may be used, over the values of the scope."""
        allowed = np.ones([len(latent.values) for latent in latents])
        scope = [latent.name for latent in latents]
        for name, choice in when.items():
            where = f"{key}.{name}"
            self.one_of(where, "The latent is not in the scope.", name, scope, name)
            axis = scope.index(name)
            values = latents[axis].values
            mask = np.zeros(len(values))
            for value in [choice] if isinstance(choice, str) else choice:
                self.one_of(where, f"{name!r} has no such value.", value, values, value)
                mask[values.index(value)] = 1
            allowed = np.moveaxis(np.moveaxis(allowed, axis, -1) * mask, -1, axis)
        return allowed

    def _slot(self, key: str, token: str, scope: Sequence[str]) -> Slot:
        match = _CLASS.fullmatch(token)
        if match and (match[1] in self.classes or token not in self.ids):
            if match[1] not in self.classes:
                raise self.bad(key, f"There is no class called {match[1]!r}.", token)
            return Slot(None, (self.classes[match[1]],))
        match = _FEATURE.fullmatch(token)
        if match and (match[1] in self.latents or token not in self.ids):
            name, feature = match.groups()
            what = "The latent is not in the scope of the segment."
            self.one_of(key, what, name, scope, token)
            latent = self.latents[name]
            what = f"The latent {name!r} has no such feature."
            self.one_of(key, what, feature, latent.features, token)
            return Slot(self.order[name], latent.features[feature])
        return Slot(None, (self._word(key, token),))
