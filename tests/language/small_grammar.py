"""A grammar small enough to enumerate, and everything about it by plain sums over explanations."""

from __future__ import annotations

import json
from functools import cached_property
from itertools import product
from math import prod
from pathlib import Path

GRAMMAR = {
    "format": "strop-language/1",
    "length": 5,
    "noise": 0.15,
    "vocabulary": ["a", "b", "c", ",", "."],
    "classes": {
        "any": {"words": ["a", "b"], "weights": [1, 3]},
        "rest": {"words": ["b", "c", "a"], "weights": [2, 1, 0]},
    },
    "latents": {
        # given a latent that comes later, and one value that is impossible there
        "kind": {
            "values": ["x", "y", "z"],
            "given": "who",
            "weights": [[2, 1, 1], [0, 5, 3]],
            "features": {"w": ["a", "b", "c"]},
        },
        "who": {"values": ["p", "q"], "weights": [3, 2], "features": {"w": ["b", "c"]}},
        "odd": {"values": ["r", "s"], "weights": [1, 4], "features": {"w": ["c", "a"]}},
    },
    "mode": ["who", "kind"],
    "segments": [
        {
            "name": "first",
            "length": 3,
            "scope": ["who", "kind", "odd"],
            "variants": [
                {"weight": 1, "tokens": ["{kind.w}", "{odd.w}", "{who.w}"]},
                {"weight": 2, "when": {"kind": ["x", "z"]}, "tokens": ["{who.w}", ",", "<any>"]},
                {"weight": 3, "when": {"who": "q", "odd": "s"}, "tokens": ["c", "<rest>", "a"]},
            ],
        },
        {
            "name": "last",
            "length": 2,
            "scope": ["kind"],
            "variants": [
                {"weight": 1, "tokens": ["{kind.w}", "."]},
                {"weight": 4, "when": {"kind": ["y", "z"]}, "tokens": ["<rest>", "{kind.w}"]},
            ],
        },
    ],
}

ODD = {
    "format": "strop-language/1",
    "length": 7,
    "noise": 0.04,
    "vocabulary": ["<a>", "{who.w}", "Über", ".", "it's", "b", "c", "d", "e", ",", "lone"],
    "classes": {
        "one": {"words": ["b"], "weights": [0.2]},
        "twice there": {"words": ["c", "{who.w}", "c", "b"], "weights": [1e-7, 2, 5, 0]},
    },
    "latents": {
        # a chain whose ends stand the wrong way round, zeros, one value alone, one in no sentence
        "end": {
            "values": ["e0", "e1", "e2"],
            "given": "mid",
            "weights": [[1, 0, 2], [0, 0, 3]],
            "features": {"W": ["b", "c", "b"]},
        },
        "mid": {"values": ["m0", "m1"], "given": "top", "weights": [[1, 1], [0, 4], [5, 1e-6]]},
        "top": {
            "values": ["t0", "t1", "t2"],
            "given": None,
            "weights": [3, 2, 1],
            "features": {"w.x": ["d", "e", "d"]},
        },
        "single": {"values": ["s"], "weights": [0.1], "features": {"w": ["Über"]}},
        "unsaid": {"values": ["u0", "u1", "u2"], "given": "end", "weights": [[1, 2, 3]] * 3},
    },
    "mode": ["mid", "end"],
    "segments": [
        {
            "length": 1,
            "scope": ["single"],
            "variants": [{"weight": 7, "tokens": ["{single.w}"]}],
        },
        {
            "name": "long",
            "length": 5,
            "scope": ["top", "end", "mid"],
            "variants": [
                {"weight": 0.1, "tokens": ["{end.W}", "<twice there>", "<a>", ",", "{top.w.x}"]},
                {
                    "weight": 3,
                    "when": {"top": ["t0", "t2"], "end": ["e2"]},
                    "tokens": ["{top.w.x}", "{top.w.x}", "{who.w}", "<one>", "{end.W}"],
                },
                {"weight": 2, "when": {"mid": []}, "tokens": ["lone"] * 5},
                {
                    "weight": 0,
                    "when": None,
                    "tokens": ["e", "it's", "it's", "it's", "it's"],
                },
            ],
        },
        {"length": 1, "scope": ["mid"], "variants": [{"weight": 1, "tokens": ["<twice there>"]}]},
    ],
}
"""Whatever the format allows and nobody writes."""


def write(path: Path, grammar: dict) -> Path:
    path.write_text(json.dumps(grammar))
    return path


class Enumerated:
    """The law by the sums that define it: no tables, no order, no numpy."""

    def __init__(self, grammar: dict) -> None:
        self.grammar = grammar
        self.words, self.noise = grammar["vocabulary"], grammar["noise"]
        self.size = len(self.words)

    def law(self, token: str, values: dict[str, int]) -> dict[str, float]:
        if token[0] == "<" and token[1:-1] in self.grammar["classes"]:
            entry = self.grammar["classes"][token[1:-1]]
            total = sum(entry["weights"])
            found: dict[str, float] = {}
            for word, weight in zip(entry["words"], entry["weights"], strict=True):
                found[word] = found.get(word, 0.0) + weight / total
            return found
        if token[0] == "{" and token[1:].split(".")[0] in self.grammar["latents"]:
            name, feature = token[1:-1].split(".", 1)
            return {self.grammar["latents"][name]["features"][feature][values[name]]: 1.0}
        return {token: 1.0}

    def prior(self, values: dict[str, int]) -> float:
        found = 1.0
        for name, latent in self.grammar["latents"].items():
            weights = latent["weights"]
            weights = weights[values[latent["given"]]] if latent.get("given") else weights
            found *= weights[values[name]] / sum(weights)
        return found

    @cached_property
    def explanations(self) -> list[tuple[float, dict[str, int], list[tuple[str, dict]]]]:
        """Probability, values, and per token what it is and its law; the possible ones."""
        latents = self.grammar["latents"]
        found = []
        for numbers in product(*(range(len(one["values"])) for one in latents.values())):
            values = dict(zip(latents, numbers, strict=True))
            rows = []
            for segment in self.grammar["segments"]:
                allowed = [v for v in segment["variants"] if self.allowed(v, values)]
                total = sum(v["weight"] for v in allowed)
                rows.append([(v["weight"] / total, v["tokens"]) for v in allowed])
            for choice in product(*rows):
                tokens = [token for _, words in choice for token in words]
                chance = self.prior(values) * prod(share for share, _ in choice)
                if chance > 0:
                    found.append((chance, values, [(t, self.law(t, values)) for t in tokens]))
        return found

    def allowed(self, variant: dict, values: dict[str, int]) -> bool:
        for name, said in (variant.get("when") or {}).items():
            said = [said] if isinstance(said, str) else said
            if self.grammar["latents"][name]["values"][values[name]] not in said:
                return False
        return True

    def emission(self, word: int, law: dict[str, float]) -> float:
        if word == self.size:
            return 1.0
        return (1 - self.noise) * law.get(self.words[word], 0.0) + self.noise / self.size

    def joint(self, ids: tuple[int, ...]) -> list[float]:
        """Of each explanation and what is visible."""
        return [
            chance * prod(self.emission(x, law) for x, (_, law) in zip(ids, tokens, strict=True))
            for chance, _, tokens in self.explanations
        ]

    def p(self, ids: tuple[int, ...]) -> float:
        return sum(self.joint(ids))

    def wrong(self, ids: tuple[int, ...]) -> list[int]:
        return [
            sum(
                x != self.size and not law.get(self.words[x], 0.0) > 0
                for x, (_, law) in zip(ids, tokens, strict=True)
            )
            for _, _, tokens in self.explanations
        ]

    def violations(self, ids: tuple[int, ...]) -> int:
        return min(self.wrong(ids))

    def typos(self, ids: tuple[int, ...]) -> dict[str, float]:
        found = dict.fromkeys(("word", "class", *self.grammar["latents"]), 0.0)
        joint = self.joint(ids)
        for share, (_, _, tokens) in zip(joint, self.explanations, strict=True):
            for x, (token, law) in zip(ids, tokens, strict=True):
                kind = {"<": "class", "{": token[1:-1].split(".")[0]}.get(token[0], "word")
                kind = "word" if token in self.words else kind
                if x != self.size:
                    chance = self.noise / self.size / self.emission(x, law)
                    found[kind] += share / sum(joint) * chance
        return found
