"""A judge against people: is what it calls diverse what people call diverse?

A judge has one value for every group (GED, or any other number), people have a score, a label, a
sorting or grades. Everything is computed task by task and then averaged over tasks, because a rank
correlation over several tasks would mix their scales.

- Spearman's rank correlation and Kendall's tau-b with the score.
- Accuracy of telling groups that were written to be diverse from those that were not: the
  threshold for a group is the best one on the other contexts of its task.
- Modes: the adjusted Rand index of all groups together, and the mean V-measure.
- Grades: Krippendorff's alpha, Cohen's kappa with quadratic weights, and the mean shift.

Intervals are percentiles of a bootstrap over contexts: groups of one context belong together.

The card of a judge is all of it as one document and one table: how far the judge agrees with people
and on which groups, whether it says the same when asked again or in another order, whether place
and length move it, what it makes of planted groups, how many replies could not be read, and what a
thousand texts cost. Cards of the offline judges ship; `strop groupeval validate -o DIR` writes that
of any other.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.assets import ROOT
from strop.errors import UserError
from strop.groupeval.human import RatedGroup, tasks_of
from strop.groupeval.profile import Profile
from strop.groupeval.scores import entropy, group_ged, quality, share
from strop.groupeval.session import Answer
from strop.groupeval.trust import adjusted_rand, alpha, position_effect, spearman
from strop.groupeval.verdict import GroupVerdict, NoVerdict, grade_of, read_reply
from strop.rng import derive_seed
from strop.spec.value import JudgeSpec
from strop.stats.resample import of_replicates, resamples
from strop.table import flat

Floats = NDArray[np.float64]
REPLICATES = 2000
LEAST = 3
"""Groups from which there is a rank correlation."""
RANKED = ("spearman", "kendall_tau_b", "accuracy")
"""What is averaged over tasks."""


@dataclass(frozen=True)
class JudgedGroups:
    """One value for each group, None where the judge gave none; verdicts where it is a judge."""

    name: str
    values: tuple[float | None, ...]
    verdicts: tuple[GroupVerdict | None, ...] | None = None

    @classmethod
    def of(cls, name: str, verdicts: Sequence[GroupVerdict | None]) -> JudgedGroups:
        """A judge's GED of every group."""
        values = [None if verdict is None else group_ged(verdict) for verdict in verdicts]
        return cls(name, tuple(values), tuple(verdicts))


def validate(
    judged: JudgedGroups,
    groups: Sequence[RatedGroup],
    *,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> dict[str, Any]:
    """Agreement with people, task by task and averaged."""
    tasks, drawn = {}, {}
    for task, places in tasks_of(groups).items():
        judged_places = [i for i in places if judged.values[i] is not None]
        tasks[task], drawn[task] = _task(judged, groups, judged_places, replicates, seed)
        tasks[task]["n_groups_asked"] = len(places)
    collections: dict[str, list[str]] = {}
    for group in groups:
        task_names = collections.setdefault(group.collection, [])
        task_names += [] if group.task in task_names else [group.task]
    means = {name: _mean(tasks, drawn, task_names) for name, task_names in collections.items()}
    return {"name": judged.name, "tasks": tasks, "means": means}


def _task(
    judged: JudgedGroups,
    groups: Sequence[RatedGroup],
    places: list[int],
    replicates: int,
    seed: int,
) -> tuple[dict[str, Any], dict[str, Floats]]:
    values = np.array([judged.values[i] for i in places], float)
    units = [groups[i].unit(i) for i in places]
    agreement: dict[str, Any] = {"n_groups": len(places), "n_contexts": len(set(units))}
    agreement["spearman"] = None  # there is always one to read, if only to see that there is none
    drawn: dict[str, Floats] = {}

    def enter(name: str, value: float | None, replicated: Floats | None, n: int) -> None:
        if value is None or replicated is None:
            agreement[name] = None
            return
        agreement[name], drawn[name] = of_replicates(value, replicated, n), replicated

    scored = [k for k, i in enumerate(places) if groups[i].score is not None]
    if scored:
        x, y = values[scored], np.array([groups[places[k]].score for k in scored], float)
        weights = _weights([units[k] for k in scored], replicates, seed)
        fine = len(x) >= LEAST and len(set(x)) > 1 and len(set(y)) > 1
        for name, statistic in (("spearman", spearmans), ("kendall_tau_b", taus)):
            estimate = float(statistic(x, y, np.ones((1, len(x))))[0]) if fine else None
            n = len({units[k] for k in scored})
            enter(name, estimate, statistic(x, y, weights) if fine else None, n)
    labelled = [k for k, i in enumerate(places) if groups[i].label is not None]
    if labelled:
        contexts = [units[k] for k in labelled]
        high = np.array([groups[places[k]].label for k in labelled], bool)
        right = right_by_threshold(values[labelled], high, contexts)
        weights = _weights(contexts, replicates, seed)
        shares = None if right is None else (weights @ right) / weights.sum(1)
        enter(
            "accuracy", None if right is None else float(right.mean()), shares, len(set(contexts))
        )
    if judged.verdicts is not None:
        pairs = [(groups[i], judged.verdicts[i]) for i in places]
        agreement |= _sorting_agreement(
            [(g, v) for g, v in pairs if v is not None and g.modes is not None]
        )
        agreement |= _grading_agreement(
            [(g, v) for g, v in pairs if v is not None and g.grades is not None]
        )
    return agreement, drawn


def _weights(units: Sequence[Hashable], replicates: int, seed: int) -> Floats:
    """How often each group is in a resample of whole contexts, [replicates, groups]."""
    names = list(dict.fromkeys(units))
    column = {name: k for k, name in enumerate(names)}
    counts = resamples(len(names), replicates, derive_seed(seed, "groupeval-people"))
    return counts[:, [column[unit] for unit in units]]


def _mean(
    tasks: Mapping[str, Mapping[str, Any]],
    drawn: Mapping[str, Mapping[str, Floats]],
    names: Sequence[str],
) -> dict[str, Any]:
    """Over those of some tasks that have a value."""
    row: dict[str, Any] = {}
    for what in RANKED:
        have = [task for task in names if what in drawn[task]]
        if have:
            value = float(np.mean([tasks[task][what].value for task in have]))
            # Tasks share no context, so each takes the draws in an order of its own.
            shifted = [np.roll(drawn[task][what], k) for k, task in enumerate(have)]
            units = min(tasks[task]["n_contexts"] for task in have)
            row[what] = of_replicates(value, np.mean(shifted, 0), units)
            row["n_tasks"] = len(have)
    return row


def spearmans(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Spearman's correlation of weighted points, one for each row of whole-number weights."""
    a, b = _ranks(x, weights), _ranks(y, weights)
    total = weights.sum(1, keepdims=True)
    a -= (weights * a).sum(1, keepdims=True) / total
    b -= (weights * b).sum(1, keepdims=True) / total
    with np.errstate(divide="ignore", invalid="ignore"):
        return (weights * a * b).sum(1) / np.sqrt(
            (weights * a * a).sum(1) * (weights * b * b).sum(1)
        )


def _ranks(x: Floats, weights: Floats) -> Floats:
    """The mean rank of each value among all copies, ties sharing theirs, [replicates, points]."""
    below = (x[None, :] < x[:, None]) + 0.5 * (x[None, :] == x[:, None])
    return weights @ below.T


def taus(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Kendall's tau-b in the same way; copies of a point are ties."""
    a, b = (np.sign(v[:, None] - v[None, :]) for v in (x, y))

    def pairs(table: Floats) -> Floats:
        return ((weights @ table) * weights).sum(1)

    with np.errstate(divide="ignore", invalid="ignore"):
        return pairs(a * b) / np.sqrt(pairs(a * a) * pairs(b * b))


def right_by_threshold(x: Floats, high: NDArray[np.bool_], units: Sequence[str]) -> Floats | None:
    """Whether each group is on its side of the threshold that is best on all other contexts."""
    names = np.array(units)
    right = np.zeros(len(x))
    for unit in dict.fromkeys(units):
        in_unit = names == unit
        if not (high[~in_unit].any() and (~high[~in_unit]).any()):
            return None
        threshold = best_threshold(x[~in_unit], high[~in_unit])
        right[in_unit] = (x[in_unit] > threshold) == high[in_unit]
    return right


def best_threshold(x: Floats, high: NDArray[np.bool_]) -> float:
    """Above which most are high and below which most are low; in the middle of equally good."""
    steps = np.unique(x)
    thresholds = np.concatenate([[-np.inf], (steps[1:] + steps[:-1]) / 2, [np.inf]])
    right = np.array([((x > threshold) == high).sum() for threshold in thresholds])
    best = thresholds[right == right.max()]
    return float(best[(len(best) - 1) // 2])


Pair = tuple[RatedGroup, GroupVerdict]


def _sorting_agreement(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Modes of the texts that both sorted."""
    if not pairs:
        return {}
    labels = []
    for group, verdict in pairs:
        mode_of = {output.index: output.mode for output in verdict.outputs}
        labelled_texts = [
            (a, mode_of[i]) for i, a in enumerate(group.modes or ()) if a and mode_of[i] is not None
        ]
        labels.append(([a for a, _ in labelled_texts], [b for _, b in labelled_texts]))
    usable = [pair for pair in labels if len(pair[0]) > 1]
    return {
        "adjusted_rand": adjusted_rand(usable),
        "v_measure": float(np.mean([v_measure(*pair) for pair in usable])) if usable else None,
        "n_groups_with_modes": len(usable),
    }


def v_measure(a: Sequence[Hashable], b: Sequence[Hashable]) -> float:
    """The harmonic mean of homogeneity and completeness of one sorting against another."""
    ha, hb = (entropy(list(Counter(labels).values())) for labels in (a, b))
    joint = entropy(list(Counter(zip(a, b, strict=True)).values()))
    homogeneity = 1.0 if ha == 0 else 1 - (joint - hb) / ha
    completeness = 1.0 if hb == 0 else 1 - (joint - ha) / hb
    total = homogeneity + completeness
    return 0.0 if math.isclose(total, 0, abs_tol=1e-12) else 2 * homogeneity * completeness / total


def _grading_agreement(pairs: Sequence[Pair]) -> dict[str, Any]:
    """The quality of every text, 0 to 10, by people and by the judge."""
    if not pairs:
        return {}
    graded = ((group.grades or (), output) for group, v in pairs for output in v.outputs)
    grades_of_both = np.array(
        [(grades[output.index], quality(output)) for grades, output in graded]
    )
    return {
        "alpha": alpha(grades_of_both, "interval"),
        "weighted_kappa": weighted_kappa(grades_of_both[:, 0], grades_of_both[:, 1]),
        "mean_shift": float((grades_of_both[:, 1] - grades_of_both[:, 0]).mean()),
        "n_texts_with_grades": len(grades_of_both),
    }


def weighted_kappa(a: Floats, b: Floats) -> float | None:
    """Cohen's kappa with quadratic weights: 1 less what is apart over what chance would have."""
    chance = float(((a[:, None] - b[None, :]) ** 2).mean())
    return None if chance == 0 else 1 - float(((a - b) ** 2).mean()) / chance


# ---------------------------------------------------------------- the card

CARDS = ROOT / "cards"
NAME = "card.json"
SOME = 60
"""Groups that are asked about again, and planted of each kind, of a judge in this process."""


def verdicts_of(
    groups: Sequence[RatedGroup],
    answer: Answer,
    profile: Profile,
    report: Callable[[str], None] = lambda _: None,
) -> list[GroupVerdict | None]:
    """What a judge of this process says of every group; None where it gives no verdict."""
    verdicts: list[GroupVerdict | None] = []
    for position, group in enumerate(groups):
        labels = tuple(f"text{i:02d}" for i in range(len(group.texts)))
        try:
            document = read_reply(answer(labels, group.texts, group.context), labels, profile)
        except NoVerdict as problem:
            verdicts.append(None)
            report(problem.reason)
            continue
        by_label = {output["id"]: output for output in document["outputs"]}
        grades = tuple(grade_of(i, by_label[label], profile) for i, label in enumerate(labels))
        prompt = group.context or ""
        verdicts.append(GroupVerdict("people", 0, position, grades, document["confidence"], prompt))
        report("verdict")
    return verdicts


Verdicts = Sequence[GroupVerdict | None]


def control_groups(groups: Sequence[RatedGroup], most: int = SOME) -> dict[str, list[RatedGroup]]:
    """Some of the groups again and in another order, and planted ones, by what they are for.

    What must hold whatever people think: copies are one mode, a copy shares the mode of its text,
    an empty text is invalid, texts of different contexts differ.
    """
    chosen = [groups[i] for i in _spread(len(groups), most)]
    size = min(len(group.texts) for group in chosen)
    # One text of every context, so that nothing but the task is common to them.
    mixed = [
        replace(group, texts=tuple(chosen[(i + k) % len(chosen)].texts[k] for k in range(size)))
        for i, group in enumerate(chosen)
    ]
    return {
        "again": chosen,
        "turned": [replace(group, texts=group.texts[::-1]) for group in chosen],
        "copies": [replace(group, texts=group.texts[:1] * len(group.texts)) for group in chosen],
        "twice": [replace(group, texts=(*group.texts[:-1], group.texts[0])) for group in chosen],
        "empty": [replace(group, texts=(*group.texts[:-1], "")) for group in chosen],
        "mixed": mixed,
    }


def _spread(groups: int, most: int) -> list[int]:
    return list(range(0, groups, max(1, groups // most)))[:most]


def control_summary(verdicts: Verdicts, of_controls: Mapping[str, Verdicts]) -> dict[str, Any]:
    """What a judge made of `control_groups`, beside its verdicts on all groups."""
    first = [verdicts[i] for i in _spread(len(verdicts), len(of_controls["again"]))]

    def holds_in(name: str, holds: Callable[[GroupVerdict], bool]) -> float | None:
        return share([holds(verdict) for verdict in of_controls[name] if verdict is not None])

    def mean_ged(group_verdicts: Verdicts) -> float | None:
        diversities = [group_ged(verdict) for verdict in group_verdicts if verdict is not None]
        return float(np.mean(diversities)) if diversities else None

    return {
        "repeatability": repeat_agreement(first, of_controls["again"]),
        "other_order": repeat_agreement(first, of_controls["turned"]),
        "planted": {
            "n_groups_of_each_kind": len(first),
            "copies_are_one_mode": holds_in("copies", lambda v: group_ged(v) == 0),
            "a_copy_shares_its_mode": holds_in(
                "twice", lambda v: v.outputs[0].mode == v.outputs[-1].mode
            ),
            "an_empty_text_is_invalid": holds_in("empty", lambda v: not v.outputs[-1].valid),
            "mean_ged": mean_ged(first),
            "mean_ged_of_unrelated_texts": mean_ged(of_controls["mixed"]),
        },
    }


def repeat_agreement(first: Verdicts, second: Verdicts) -> dict[str, Any]:
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
    rows = [[quality(output) for output in v.outputs] for _, v in pairs]
    sizes = [len(row) for row in rows]
    usual = max(set(sizes), key=sizes.count, default=0)
    lengths = [float(len(text)) for g, _ in pairs for text in g.texts]
    means = [float(np.mean([len(text) for text in g.texts])) for g, _ in pairs]
    return {
        "position": position_effect(np.array([row for row in rows if len(row) == usual], float)),
        "length_and_quality": spearman(lengths, [value for row in rows for value in row]),
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
    asked, answered = len(verdicts), sum(verdict is not None for verdict in verdicts)
    return {
        "judge": validated["name"],
        "identity": None if judge is None else judge.document(),
        "profile": profile.name,
        "profile_sha256": profile.hash,
        "data": data,
        "agreement": {name: flat(row, safe=False) for name, row in validated["tasks"].items()},
        "means": {name: flat(row, safe=False) for name, row in validated["means"].items()},
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
    shipped = (read_card(path) for path in sorted(CARDS.glob("*.json")))
    return next((card for card in shipped if card["identity"] == judge.document()), None)


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
    correlations = [
        f"{agreement['spearman']:.2f}" + (f" on {name}" if name != "mean" else "")
        for name, agreement in card["means"].items()
        if agreement.get("spearman") is not None
    ]
    words = (
        f"Card of {title}: its GED has a rank correlation of "
        f"{' and '.join(correlations) or 'nothing'} with people's diversity scores "
        f"({card['data']})."
    )
    if profile not in (None, card.get("profile_sha256")):
        words += f" That was under {card.get('profile')}; of groups like these nothing is known."
    return words


def card_rows(card: Mapping[str, Any]) -> list[list[str]]:
    """The card as rows of a name and a value."""
    rows = [["judge", str(card["judge"])], ["data", str(card["data"])]]
    for kind in ("agreement", "means"):
        for task, agreement in card[kind].items():
            for name in ("spearman", "kendall_tau_b", "accuracy"):
                if agreement.get(name) is not None:
                    ends = f" [{agreement[f'{name}_low']:.2f}, {agreement[f'{name}_high']:.2f}]"
                    value_text = f"{agreement[name]:.2f}{ends}"
                    mean = "mean, " if kind == "means" else ""
                    rows.append([f"{mean}{task}: {name.replace('_', ' ')}", value_text])
            rows += [
                [f"{task}: {name.replace('_', ' ')}", f"{agreement[name]:.2f}"]
                for name in ("adjusted_rand", "v_measure", "alpha", "weighted_kappa", "mean_shift")
                if agreement.get(name) is not None
            ]
    rows.append(["groups without a verdict", f"{card['without_a_verdict']:.1%}"])
    for name in ("repeatability", "other_order", "planted", "effects", "per_1000_texts"):
        for key, value in (card.get(name) or {}).items():
            if isinstance(value, float | int):
                rows.append([f"{name}: {key}".replace("_", " "), f"{value:.3g}"])
            elif isinstance(value, dict) and "p_value" in value:
                rows.append([f"{key}, p-value", f"{value['p_value']:.3f}"])
    return rows
