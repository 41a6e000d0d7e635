"""The card of a judge: what its numbers are worth, as one document and one table.

It says how far the judge agrees with people and on which groups, whether it says the same when
asked again or in another order, whether place and length move it, what it makes of planted groups,
how many replies could not be read, and what a thousand texts cost. Cards of the offline judges
ship; `strop groupeval validate -o DIR` writes that of any other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from strop.assets import ROOT
from strop.errors import UserError
from strop.groupeval.people import RatedGroup
from strop.groupeval.profile import Profile
from strop.groupeval.scores import group_ged, quality
from strop.groupeval.session import Answer
from strop.groupeval.trust import position_effect, spearman
from strop.groupeval.validation import plain_numbers
from strop.groupeval.verdict import GroupVerdict, NoVerdict, grade_of, read_reply
from strop.spec import JudgeSpec

CARDS = ROOT / "cards"
NAME = "card.json"
SOME = 60
"""Groups that are asked about again, and planted of each kind, of a judge in this process."""


def said_of(
    groups: Sequence[RatedGroup],
    answer: Answer,
    profile: Profile,
    told: Callable[[str], None] = lambda _: None,
) -> list[GroupVerdict | None]:
    """What a judge of this process says of every group; None where it gives no verdict."""
    found: list[GroupVerdict | None] = []
    for place, group in enumerate(groups):
        labels = tuple(f"text{i:02d}" for i in range(len(group.texts)))
        try:
            document = read_reply(answer(labels, group.texts, group.context), labels, profile)
        except NoVerdict as problem:
            found.append(None)
            told(problem.reason)
            continue
        said = {one["id"]: one for one in document["outputs"]}
        grades = tuple(grade_of(i, said[label], profile) for i, label in enumerate(labels))
        prompt = group.context or ""
        found.append(GroupVerdict("people", 0, place, grades, document["confidence"], prompt))
        told("verdict")
    return found


Verdicts = Sequence[GroupVerdict | None]


def control_groups(groups: Sequence[RatedGroup], most: int = SOME) -> dict[str, list[RatedGroup]]:
    """Some of the groups again and in another order, and planted ones, by what they are for.

    What must hold whatever people think: copies are one mode, a copy shares the mode of its text,
    an empty text is invalid, texts of different contexts differ.
    """
    some = [groups[i] for i in _spread(len(groups), most)]
    size = min(len(one.texts) for one in some)
    # One text of every context, so that nothing but the task is common to them.
    mixed = [
        replace(one, texts=tuple(some[(i + k) % len(some)].texts[k] for k in range(size)))
        for i, one in enumerate(some)
    ]
    return {
        "again": some,
        "turned": [replace(one, texts=one.texts[::-1]) for one in some],
        "copies": [replace(one, texts=one.texts[:1] * len(one.texts)) for one in some],
        "twice": [replace(one, texts=(*one.texts[:-1], one.texts[0])) for one in some],
        "empty": [replace(one, texts=(*one.texts[:-1], "")) for one in some],
        "mixed": mixed,
    }


def _spread(groups: int, most: int) -> list[int]:
    return list(range(0, groups, max(1, groups // most)))[:most]


def controlled(verdicts: Verdicts, said: Mapping[str, Verdicts]) -> dict[str, Any]:
    """What a judge made of `control_groups`, beside its verdicts on all groups."""
    first = [verdicts[i] for i in _spread(len(verdicts), len(said["again"]))]

    def share(name: str, holds: Callable[[GroupVerdict], bool]) -> float | None:
        found = [one for one in said[name] if one is not None]
        return sum(map(holds, found)) / len(found) if found else None

    def mean_ged(some: Verdicts) -> float | None:
        found = [group_ged(one) for one in some if one is not None]
        return float(np.mean(found)) if found else None

    return {
        "repeatability": asked_again(first, said["again"]),
        "other_order": asked_again(first, said["turned"]),
        "planted": {
            "n_groups_of_each_kind": len(first),
            "copies_are_one_mode": share("copies", lambda v: group_ged(v) == 0),
            "a_copy_shares_its_mode": share(
                "twice", lambda v: v.outputs[0].mode == v.outputs[-1].mode
            ),
            "an_empty_text_is_invalid": share("empty", lambda v: not v.outputs[-1].valid),
            "mean_ged": mean_ged(first),
            "mean_ged_of_unrelated_texts": mean_ged(said["mixed"]),
        },
    }


def asked_again(first: Verdicts, second: Verdicts) -> dict[str, Any]:
    """How often GED stayed the same, and how far it moved."""
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    gaps = np.array([abs(group_ged(a) - group_ged(b)) for a, b in pairs])
    return {
        "n_groups": len(pairs),
        "same_ged": float((gaps < 1e-9).mean()) if len(gaps) else None,
        "mean_change_of_ged": float(gaps.mean()) if len(gaps) else None,
    }


def effects(
    groups: Sequence[RatedGroup], verdicts: Sequence[GroupVerdict | None]
) -> dict[str, Any]:
    """Whether place or length moves the quality, and length the diversity."""
    pairs = [(g, v) for g, v in zip(groups, verdicts, strict=True) if v is not None]
    rows = [[quality(one) for one in v.outputs] for _, v in pairs]
    sizes = [len(row) for row in rows]
    usual = max(set(sizes), key=sizes.count, default=0)
    lengths = [float(len(text)) for g, _ in pairs for text in g.texts]
    means = [float(np.mean([len(text) for text in g.texts])) for g, _ in pairs]
    return {
        "position": position_effect(np.array([row for row in rows if len(row) == usual], float)),
        "length_and_quality": spearman(lengths, [one for row in rows for one in row]),
        "length_and_ged": spearman(means, [group_ged(v) for _, v in pairs]),
    }


def make_card(
    judge: JudgeSpec | None,
    profile: Profile,
    validated: Mapping[str, Any],
    data: str,
    verdicts: Sequence[GroupVerdict | None],
    **more: Any,
) -> dict[str, Any]:
    """All of it; `more` is what was tried with the judge, and what it cost."""
    asked, answered = len(verdicts), sum(one is not None for one in verdicts)
    return {
        "judge": validated["name"],
        "identity": None if judge is None else judge.document(),
        "profile": profile.name,
        "profile_sha256": profile.hash,
        "data": data,
        "agreement": {name: plain_numbers(one) for name, one in validated["tasks"].items()},
        "means": {name: plain_numbers(one) for name, one in validated["means"].items()},
        "n_groups_asked": asked,
        "without_a_verdict": (asked - answered) / asked if asked else None,
        **more,
    }


def card_of(judge: JudgeSpec | None, file: str | Path | None = None) -> dict[str, Any] | None:
    """The card of a judge: one that ships, or the one in a file, if it is this judge's."""
    if judge is None:
        return None
    if file is not None:
        card = read_card(file)
        if card.get("identity") != judge.document():
            raise UserError(
                "This is the card of another judge.",
                where=file,
                got=str(card.get("judge")),
                expected=judge.title,
                fix="strop groupeval validate with this judge, -o DIR",
            )
        return card
    found = (read_card(path) for path in sorted(CARDS.glob("*.json")))
    return next((one for one in found if one["identity"] == judge.document()), None)


def read_card(file: str | Path) -> dict[str, Any]:
    """A card from a file."""
    try:
        card = json.loads(Path(file).read_bytes())
        if not isinstance(card, dict) or not {"judge", "means"} <= card.keys():
            raise ValueError("it is not what `strop groupeval validate` writes")
    except (OSError, ValueError) as error:
        raise UserError("The judge's card cannot be read.", where=file, got=error) from None
    return card


def card_words(card: Mapping[str, Any] | None, title: str, profile: str | None = None) -> str:
    """One sentence for whoever reads the judge's numbers under a profile, named by its hash."""
    if card is None:
        return (
            f"{title} has no card: nobody has compared it with people "
            "(strop groupeval validate does)."
        )
    told = [
        f"{one['spearman']:.2f}" + (f" on {name}" if name != "mean" else "")
        for name, one in card["means"].items()
        if one.get("spearman") is not None
    ]
    words = (
        f"Card of {title}: its GED has a rank correlation of {' and '.join(told) or 'nothing'} "
        f"with people's diversity scores ({card['data']})."
    )
    if profile not in (None, card.get("profile_sha256")):
        words += f" That was under {card.get('profile')}; of groups like these nothing is known."
    return words


def card_rows(card: Mapping[str, Any]) -> list[list[str]]:
    """The card as rows of a name and a value."""
    rows = [["judge", str(card["judge"])], ["data", str(card["data"])]]
    for kind in ("agreement", "means"):
        for task, found in card[kind].items():
            for name in ("spearman", "kendall_tau_b", "accuracy"):
                if found.get(name) is not None:
                    ends = f" [{found[f'{name}_low']:.2f}, {found[f'{name}_high']:.2f}]"
                    shown = f"{found[name]:.2f}{ends}"
                    mean = "mean, " if kind == "means" else ""
                    rows.append([f"{mean}{task}: {name.replace('_', ' ')}", shown])
            rows += [
                [f"{task}: {name.replace('_', ' ')}", f"{found[name]:.2f}"]
                for name in ("adjusted_rand", "v_measure", "alpha", "weighted_kappa", "mean_shift")
                if found.get(name) is not None
            ]
    rows.append(["groups without a verdict", f"{card['without_a_verdict']:.1%}"])
    for name in ("repeatability", "other_order", "planted", "effects", "per_1000_texts"):
        for key, value in (card.get(name) or {}).items():
            if isinstance(value, float | int):
                rows.append([f"{name}: {key}".replace("_", " "), f"{value:.3g}"])
            elif isinstance(value, dict) and "p_value" in value:
                rows.append([f"{key}, p-value", f"{value['p_value']:.3f}"])
    return rows
