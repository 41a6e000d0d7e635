"""strop groupeval validate: a judge against people, before anybody trusts its numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strop.errors import UserError
from strop.groupeval.human import RatedGroup, read_groups, shipped_groups, tasks_of
from strop.groupeval.offline import Embed, offline_client, offline_spec, pieces
from strop.groupeval.profile import Profile
from strop.groupeval.validation import NAME as CARD
from strop.groupeval.validation import (
    JudgedGroups,
    card_rows,
    control_groups,
    control_summary,
    effects,
    make_card,
    repeat_agreement,
    validate,
    verdicts_of,
)
from strop.measure import evaluator
from strop.measure.entropy import distinct, vendi_score
from strop.table import Column, Table, flat
from strop.verbs.groupeval_judge import JUDGE
from strop.verbs.verb import Ask, Result, grid, quoted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from strop.groupeval.series import Series
    from strop.served.cost import Usage
    from strop.spec.value import JudgeSpec

PROFILE = "answers-v1"
DATA = "conTest and decTest of Tevet and Berant 2021, MIT licence"
PUBLISHED = {
    "SentBert": "published: sentence embeddings",
    "AveragedDistinctNgrams": "published: distinct n-grams",
    "AveragedCosineSimilarity": "published: cosine of n-grams",
    "BertScore": "published: BertScore",
    "temperature": "temperature of sampling",
}
"""Columns of the data that ships, and what they are called here; others of it are not shown."""
FIGURE = "judge-against-people"
KEPT = "embeddings.npz"


class KnownVectors:
    """Texts that are embedded once, for every judge and metric; kept in a directory if asked."""

    def __init__(self, place: Path | None) -> None:
        self.place = place
        self.known: dict[str, Any] = {}
        if place is not None and place.exists():
            with np.load(place, allow_pickle=False) as kept:
                if str(kept["weights"]) == evaluator.embedding_spec().sha256:
                    self.known = dict(zip(kept["texts"].tolist(), kept["vectors"], strict=True))

    def learn(self, texts: Sequence[str], ask: Ask) -> None:
        """Embed what is new, many at a time."""
        new = list(dict.fromkeys(one for one in texts if one not in self.known))
        new.sort(key=len)
        with ask.bars.share("embedding texts", len(new)) as told:
            for start in range(0, len(new), 256):
                some = new[start : start + 256]
                self.known |= zip(some, evaluator.embed(some), strict=True)
                told(len(some))
        if new and self.place is not None:
            self.place.parent.mkdir(parents=True, exist_ok=True)
            names, vectors = list(self.known), np.stack(list(self.known.values()))
            weights = evaluator.embedding_spec().sha256
            np.savez(self.place, texts=np.array(names), vectors=vectors, weights=weights)

    def __call__(self, texts: Sequence[str]) -> Any:
        """Vectors of texts; what is not known yet is embedded now."""
        missing = [one for one in texts if one not in self.known]
        if missing:
            self.known |= zip(missing, evaluator.embed(missing), strict=True)
        return np.stack([self.known[one] for one in texts])


def validate_judge(ask: Ask) -> Result:
    """What the verb does."""
    _check(ask)
    file = ask["file"]
    groups = shipped_groups(ask["limit"]) if file is None else read_groups(file, ask["limit"])
    profile = Profile.load(PROFILE)
    embed = _embedded(ask, groups)
    spec, verdicts, extra, incomplete = _judge_asked(ask, groups, profile, embed)
    judged = [] if spec is None else [JudgedGroups.of(spec.title, verdicts)]
    if ask["offline"]:
        judged += _other_offline(ask, groups, profile, embed, spec)
    judged += _series_there(ask, groups, spec)
    judged += _metrics(groups, embed) + _columns(groups, ask["columns"] or ())
    if not judged:
        raise UserError("There is nothing to compare with people.", fix=ASK_FIX)
    found = [validate(one, groups, **ask.some("replicates", "seed")) for one in judged]
    data = DATA if file is None else f"{Path(file).name}, {len(groups)} groups"
    if file is None and ask["limit"] is not None:
        data += f", the first {len(groups)} groups"
    card = None
    if spec is not None:
        card = make_card(spec, profile, found[0], data, verdicts, **extra)
    return _told(ask, groups, judged, found, card, data, incomplete)


ASK_FIX = (
    "strop groupeval validate --offline, or --base-url URL --model NAME -o DIR, "
    "or --columns NAME for a column of your file"
)


def _check(ask: Ask) -> None:
    served = ask["base_url"] is not None or ask["model"] is not None
    if ask["offline"] and ask["base_url"] is not None:
        raise UserError("Two judges are named.", where="`offline`", fix="leave one out")
    if served and not ask["offline"]:
        if not (ask["base_url"] and ask["model"]):
            raise UserError(
                "Which judge? A server needs an address and a model.",
                where="`base_url`",
                fix=ASK_FIX,
            )
        if not ask["out"]:
            raise UserError(
                "A server's replies are kept, so that nothing is asked twice.",
                where="`out`",
                fix=f"{ASK_FIX.partition(',')[0]} needs no directory; a server does: -o DIR",
            )


def _embedded(ask: Ask, groups: Sequence[RatedGroup]) -> KnownVectors | None:
    """Every text and context, where anything needs them."""
    if ask["features"] == "ngrams" or not (ask["offline"] and evaluator.embedder_available()):
        return None
    embed = KnownVectors(Path(ask["out"]) / KEPT if ask["out"] else None)
    texts = [t for one in groups for t in (*one.texts, one.context or "")]
    embed.learn([piece for text in texts for piece in pieces(text)], ask)
    return embed


Asked = tuple["JudgeSpec | None", list[Any], dict[str, Any], bool]


def _judge_asked(
    ask: Ask, groups: Sequence[RatedGroup], profile: Profile, embed: Embed | None
) -> Asked:
    """Who was named, what it said, what else was tried, and whether something is missing."""
    if ask["offline"]:
        model = ask["model"] or "offline-v2"
        spec = offline_spec(profile, features=ask["features"], model=model)
        client = offline_client(spec, profile, embed)
        with ask.bars.questions(spec.title, len(groups)) as told:
            verdicts = verdicts_of(groups, client, profile, told)
        controls = control_groups(groups)
        said = {name: verdicts_of(some, client, profile) for name, some in controls.items()}
        tried = control_summary(verdicts, said)
        free = dict.fromkeys(("calls", "prompt_tokens", "completion_tokens", "cost"), 0)
        return spec, verdicts, {**tried, **_moved(groups, verdicts), "per_1000_texts": free}, False
    if ask["base_url"] is None:
        return None, [], {}, False
    return _served(ask, groups)


def _moved(groups: Sequence[RatedGroup], verdicts: Sequence[Any]) -> dict[str, Any]:
    return {"effects": effects(groups, verdicts)}


def _served(ask: Ask, groups: Sequence[RatedGroup]) -> Asked:
    """A server's model, asked through a plan in OUT: the same command continues."""
    from strop.groupeval.series import probes
    from strop.served.cost import read_price, usage

    series, incomplete = _asked_in(ask, groups, Path(ask["out"]), ask.some("max_calls", "max_cost"))
    used = usage(series.journal.entries())
    price = read_price(ask["prices"], series.judge.title)
    texts = sum(len(one.texts) for one in groups) / 1000
    verdicts = _by_place(series, groups)
    extra = _moved(groups, verdicts) | {"per_1000_texts": _cost(used, price, texts)}
    if ask["controls"] and not incomplete:
        caps = ask.some("max_calls", "max_cost")
        asking = probes(ask["out"], series.judge)  # the requests that found out how to ask it
        spent = usage([*asking.entries(), *series.journal.entries()])
        if caps["max_calls"] is not None:
            caps["max_calls"] -= spent.calls
        if caps["max_cost"] is not None and price is not None:
            caps["max_cost"] -= spent.cost(price)
        found, incomplete = _controls(ask, groups, verdicts, caps)
        extra |= found
    if series.repeats > 1:
        again = _by_place(series, groups, repeat=1)
        extra["repeatability"] = repeat_agreement(verdicts, again)
    return series.judge, verdicts, extra, incomplete


def _asked_in(
    ask: Ask, groups: Sequence[RatedGroup], run: Path, caps: Mapping[str, Any]
) -> tuple[Series, bool]:
    """What a server says of groups, with its journal in `run`; whether something is missing."""
    _planned(run, groups, ask["seed"])
    own = ask.some("base_url", "model", "key_env", "prices", "repeats", "timeout")
    judged = JUDGE.answer(JUDGE.asked({"run": run, **own, **caps}, note=ask.note, bars=ask.bars))
    return judged.value, judged.incomplete


def _controls(
    ask: Ask, groups: Sequence[RatedGroup], verdicts: Sequence[Any], caps: Mapping[str, Any]
) -> tuple[dict[str, Any], bool]:
    """Groups again, in another order and planted; what is left of the caps is for them."""
    controls = control_groups(groups, ask["controls"])
    every = [one for some in controls.values() for one in some]
    if any(cap is not None and cap <= 0 for cap in caps.values()):
        ask.note("the caps leave nothing for planted controls: the card has none")
        return {}, True
    series, incomplete = _asked_in(ask, every, Path(ask["out"]) / "controls", caps)
    said = iter(_by_place(series, every))
    return control_summary(
        verdicts, {k: [next(said) for _ in v] for k, v in controls.items()}
    ), incomplete


def _cost(used: Usage, price: Any, thousands: float) -> dict[str, Any]:
    return {
        "calls": used.calls / thousands,
        "prompt_tokens": used.prompt / thousands,
        "completion_tokens": used.completion / thousands,
        "cost": None if price is None else used.cost(price) / thousands,
    }


def _cells(groups: Sequence[RatedGroup]) -> list[str]:
    """Which cell of a plan holds each group: of groups with one context, the first, the second."""
    seen: dict[str, int] = {}
    names = []
    for one in groups:
        context = one.context or ""
        seen[context] = seen.get(context, 0) + 1
        names.append(f"groups {seen[context]}")
    return names


def _planned(run: Path, groups: Sequence[RatedGroup], seed: int) -> None:
    from strop.groupeval import Source, make_plan, write_plan

    profile = Profile.load(PROFILE)
    cells: dict[str, list[tuple[str, str]]] = {}
    for name, one in zip(_cells(groups), groups, strict=True):
        cells.setdefault(name, []).extend((text, one.context or "") for text in one.texts)
    sources = [
        Source(name, tuple(t for t, _ in rows), tuple(p for _, p in rows), name)
        for name, rows in cells.items()
    ]
    plan, texts = make_plan(sources, profile, seed=seed)
    write_plan(run, plan, profile, texts)


def _by_place(series: Series, groups: Sequence[RatedGroup], repeat: int = 0) -> list[Any]:
    """The verdicts of a plan in the order of the groups, texts by their place in the group."""
    said = {(one.cell, one.prompt): one for one in series.verdicts(repeat=repeat)}
    found = []
    for cell, group in zip(_cells(groups), groups, strict=True):
        one = said.get((cell, group.context or ""))
        if one is None or len(one.outputs) != len(group.texts):
            found.append(None)
            continue
        # Answers to one prompt stand together in their cell, in the order of the group.
        ordered = sorted(one.outputs, key=lambda output: output.index)
        numbered = tuple(replace(output, index=i) for i, output in enumerate(ordered))
        found.append(replace(one, outputs=numbered))
    return found


def _series_there(
    ask: Ask, groups: Sequence[RatedGroup], spec: JudgeSpec | None
) -> list[JudgedGroups]:
    """Every other judge that has a series in OUT: a person, a plug-in, another model."""
    from strop.groupeval.series import SERIES, list_series

    if not ask["out"] or not (Path(ask["out"]) / SERIES).is_dir():
        return []
    others = [one for one in list_series(ask["out"]) if spec is None or one.judge != spec]
    return [JudgedGroups.of(one.name, _by_place(one, groups)) for one in others]


def _other_offline(
    ask: Ask,
    groups: Sequence[RatedGroup],
    profile: Profile,
    embed: Embed | None,
    spec: JudgeSpec | None,
) -> list[JudgedGroups]:
    kinds = ("minilm", "ngrams") if embed is not None else ("ngrams",)
    specs = [
        offline_spec(profile, features=features, model=model)
        for model in ("offline-v2", "offline-v1")
        for features in kinds
    ]
    judged = []
    for one in specs:
        if spec is None or one.title != spec.title:
            client = offline_client(one, profile, embed)
            with ask.bars.questions(one.title, len(groups)) as told:
                judged.append(
                    JudgedGroups.of(one.title, verdicts_of(groups, client, profile, told))
                )
    return judged


def _metrics(groups: Sequence[RatedGroup], embed: KnownVectors | None) -> list[JudgedGroups]:
    """Numbers without a judge: the Vendi score and distinct word pairs."""
    found = []
    if embed is not None:
        vendi = [
            vendi_score(embed([pieces(text)[0] for text in texts])) if texts else None
            for texts in ([t for t in one.texts if t.split()] for one in groups)
        ]
        found.append(JudgedGroups("Vendi score, MiniLM", tuple(vendi)))
    return [*found, JudgedGroups("distinct-2, words", tuple(map(distinct_pairs, groups)))]


def distinct_pairs(group: RatedGroup) -> float | None:
    """Different pairs of neighbouring words over all of a group; None where there are none."""
    words: dict[str, int] = {}
    rows = [[words.setdefault(w, len(words)) for w in text.lower().split()] for text in group.texts]
    ids = np.full((len(rows), max(map(len, rows)) or 1), -1)
    for row, mine in zip(ids, rows, strict=True):
        row[: len(mine)] = mine
    return distinct(ids, 2) if ids.shape[1] > 1 else None


def _columns(groups: Sequence[RatedGroup], named: Sequence[str]) -> list[JudgedGroups]:
    """Columns of the rows: the ones that are named, or those that the data's authors published."""
    there = dict.fromkeys(name for one in groups for name in one.columns)
    for name in named:
        if name not in there:
            raise UserError(
                f"No group has a number {name!r}.",
                where="`columns`",
                expected=", ".join(there) or "fields that hold numbers",
            )
    shown = named or [name for name in PUBLISHED if name in there]
    return [
        JudgedGroups(PUBLISHED.get(name, name), tuple(one.columns.get(name) for one in groups))
        for name in shown
    ]


def _told(
    ask: Ask,
    groups: Sequence[RatedGroup],
    judged: Sequence[JudgedGroups],
    found: Sequence[Mapping[str, Any]],
    card: dict[str, Any] | None,
    data: str,
    incomplete: bool,
) -> Result:
    tasks = list(tasks_of(groups))
    table = _table(found, tasks, data)
    first = found[0]
    said = {task: flat(one, safe=False) for task, one in first["tasks"].items()}
    document = {
        "data": data,
        "n_groups": len(groups),
        "judge": first["name"],
        "tasks": said,
        "means": {name: flat(one, safe=False) for name, one in first["means"].items()},
        "judges": [
            {
                "name": one["name"],
                "tasks": {task: flat(row, safe=False) for task, row in one["tasks"].items()},
                "means": {name: flat(row, safe=False) for name, row in one["means"].items()},
            }
            for one in found
        ],
        "card": card,
    }
    kept = _keep(ask, groups, judged[0], card)
    own = {}
    if card is not None:
        title = f"Card of {first['name']}"
        own["card"] = replace(grid(["what", "value"], card_rows(card)), title=title)
    return Result(
        table=table,
        more=own,
        facts={"answer": [_sentence(first, data)]},
        notes=NOTES,
        json=document,
        remarks=tuple(kept),
        incomplete=incomplete,
        next=f"strop groupeval score RUN --card {quoted(Path(ask['out']) / CARD)}"
        if ask["out"] and card is not None
        else "strop groupeval plan INPUT... --profile answers-v1 -o RUN",
        draw=lambda _: scatter(judged[0], groups),
        value=found,
    )


NOTES = (
    "Spearman's rank correlation with people's scores, by task; in the mean columns with a 95% "
    "interval from resampling contexts. Tasks are never pooled: their scales differ.",
    "GED of groups of different sizes is not compared; every task here has one size.",
)


def _table(found: Sequence[Mapping[str, Any]], tasks: Sequence[str], data: str) -> Table:
    means = list(dict.fromkeys(name for one in found for name in one["means"]))
    several = len(tasks) > 1
    columns = [Column("judge")]
    columns += [Column(f"task {i}", name, digits=2, bare=several) for i, name in enumerate(tasks)]
    if several:
        columns += [Column(f"mean {i}", _mean(name), digits=2) for i, name in enumerate(means)]
    rows = [
        {
            "judge": one["name"],
            **{f"task {i}": one["tasks"][task].get("spearman") for i, task in enumerate(tasks)},
            **{
                f"mean {i}": one["means"].get(name, {}).get("spearman")
                for i, name in enumerate(means)
            },
        }
        for one in found
    ]
    return Table(f"Rank correlation with people: {data}", tuple(columns), rows)


def _mean(name: str) -> str:
    return "mean" if name == "mean" else f"{name} mean"


def _sentence(first: Mapping[str, Any], data: str) -> str:
    told = [
        f"{one['spearman']:.2f}" + ("" if name == "mean" else f" on {name}")
        for name, one in first["means"].items()
        if one.get("spearman") is not None
    ]
    if not told:
        return f"{first['name']}: too few groups have a score for a rank correlation ({data})."
    words = " and ".join(told)
    return f"{first['name']} has a mean rank correlation with people of {words}."


def _keep(
    ask: Ask, groups: Sequence[RatedGroup], judged: JudgedGroups, card: dict[str, Any] | None
) -> list[str]:
    """The card and the plot, where a directory was named."""
    if not ask["out"]:
        return []
    from strop.disk import write
    from strop.figures import write_figure

    folder = Path(ask["out"])
    folder.mkdir(parents=True, exist_ok=True)
    kept = []
    if any(one.score is not None for one in groups):
        files = [folder / f"{FIGURE}.{kind}" for kind in ("svg", "png")]
        write_figure(lambda: scatter(judged, groups), files)
        kept.append(f"wrote {folder / FIGURE}.svg and .png")
    if card is not None:
        content = json.dumps(card, indent=2, allow_nan=False) + "\n"
        write(folder / CARD, content.encode())
        kept.append(f"wrote {folder / CARD}")
    return kept


def scatter(judged: JudgedGroups, groups: Sequence[RatedGroup]) -> Figure:
    """The judge's value against people's score, one small plot per task."""
    from matplotlib.figure import Figure

    from strop.figures import BLUE, COLUMN, ORANGE, tidy

    tasks = tasks_of(groups)
    across = min(3, len(tasks))
    lines = -(-len(tasks) // across)
    figure = Figure(figsize=(2 * COLUMN * across / 3, 0.5 + 1.9 * lines), layout="constrained")
    grid_ = figure.subplots(lines, across, squeeze=False).reshape(-1)
    for axes, (task, places) in zip(grid_, tasks.items(), strict=False):
        rows = [
            (groups[i].score, judged.values[i], groups[i].label)
            for i in places
            if groups[i].score is not None and judged.values[i] is not None
        ]
        for label, colour in ((None, BLUE), (True, BLUE), (False, ORANGE)):
            mine = [(x, y) for x, y, one in rows if one is label]
            if mine:
                name = {None: None, True: "written to differ", False: "written alike"}[label]
                style = {"ms": 2.2, "mew": 0, "alpha": 0.55, "color": colour, "label": name}
                axes.plot(*zip(*mine, strict=True), "o", **style)
        axes.set_title(task, loc="left")
        tidy(axes)
    for axes in grid_[len(tasks) :]:
        axes.set_axis_off()
    if any(one.label is not None for one in groups):
        handles, names = grid_[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=2, frameon=False)
    for axes in grid_[max(0, len(tasks) - across) : len(tasks)]:
        axes.set_xlabel("people's score")
    figure.supylabel(judged.name if judged.verdicts is None else f"GED, {judged.name}", fontsize=8)
    return figure
