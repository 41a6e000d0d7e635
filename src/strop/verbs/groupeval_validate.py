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
from strop.measure import embeddings
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
"""Columns of the shipped data and their names in tables; its other columns are not shown."""
FIGURE = "judge-against-people"
KEPT = "embeddings.npz"


class KnownVectors:
    """Embeddings of texts, computed once for all judges and metrics; saved if a file is named."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.vectors: dict[str, Any] = {}
        if file is not None and file.exists():
            with np.load(file, allow_pickle=False) as saved:
                if str(saved["weights"]) == embeddings.embedding_spec().sha256:
                    self.vectors = dict(zip(saved["texts"].tolist(), saved["vectors"], strict=True))

    def learn(self, texts: Sequence[str], ask: Ask) -> None:
        """Embed the new texts in batches."""
        new = list(dict.fromkeys(text for text in texts if text not in self.vectors))
        new.sort(key=len)
        with ask.bars.share("embedding texts", len(new)) as advance:
            for start in range(0, len(new), 256):
                batch = new[start : start + 256]
                self.vectors |= zip(batch, embeddings.embed(batch), strict=True)
                advance(len(batch))
        if new and self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            names, vectors = list(self.vectors), np.stack(list(self.vectors.values()))
            weights = embeddings.embedding_spec().sha256
            np.savez(self.file, texts=np.array(names), vectors=vectors, weights=weights)

    def __call__(self, texts: Sequence[str]) -> Any:
        """Vectors of texts; missing ones are embedded now."""
        missing = [text for text in texts if text not in self.vectors]
        if missing:
            self.vectors |= zip(missing, embeddings.embed(missing), strict=True)
        return np.stack([self.vectors[text] for text in texts])


def validate_judge(ask: Ask) -> Result:
    """Run the verb."""
    _check(ask)
    file = ask["file"]
    groups = shipped_groups(ask["limit"]) if file is None else read_groups(file, ask["limit"])
    profile = Profile.load(PROFILE)
    embed = _embeddings(ask, groups)
    spec, verdicts, extra, incomplete = _ask_judge(ask, groups, profile, embed)
    judged = [] if spec is None else [JudgedGroups.of(spec.title, verdicts)]
    if ask["offline"]:
        judged += _other_offline(ask, groups, profile, embed, spec)
    judged += _other_series(ask, groups, spec)
    judged += _metrics(groups, embed) + _columns(groups, ask["columns"] or ())
    if not judged:
        raise UserError("There is nothing to compare with people.", fix=ASK_FIX)
    validations = [validate(judge, groups, **ask.some("replicates", "seed")) for judge in judged]
    data = DATA if file is None else f"{Path(file).name}, {len(groups)} groups"
    if file is None and ask["limit"] is not None:
        data += f", the first {len(groups)} groups"
    card = None
    if spec is not None:
        card = make_card(spec, profile, validations[0], data, verdicts, **extra)
    return _validation_result(ask, groups, judged, validations, card, data, incomplete)


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
                "A server's replies need a directory, so that no question is asked twice.",
                where="`out`",
                fix=f"{ASK_FIX.partition(',')[0]} needs no directory; a server does: -o DIR",
            )


def _embeddings(ask: Ask, groups: Sequence[RatedGroup]) -> KnownVectors | None:
    """Embeddings of all texts and contexts, if the offline judge uses them."""
    if ask["features"] == "ngrams" or not (ask["offline"] and embeddings.embedder_available()):
        return None
    embed = KnownVectors(Path(ask["out"]) / KEPT if ask["out"] else None)
    texts = [t for group in groups for t in (*group.texts, group.context or "")]
    embed.learn([piece for text in texts for piece in pieces(text)], ask)
    return embed


JudgeAnswers = tuple["JudgeSpec | None", list[Any], dict[str, Any], bool]


def _ask_judge(
    ask: Ask, groups: Sequence[RatedGroup], profile: Profile, embed: Embed | None
) -> JudgeAnswers:
    """The named judge, its verdicts, more facts for its card, and whether replies are missing."""
    if ask["offline"]:
        model = ask["model"] or "offline-v2"
        spec = offline_spec(profile, features=ask["features"], model=model)
        client = offline_client(spec, profile, embed)
        with ask.bars.questions(spec.title, len(groups)) as advance:
            verdicts = verdicts_of(groups, client, profile, advance)
        controls = control_groups(groups)
        control_verdicts = {
            name: verdicts_of(planted, client, profile) for name, planted in controls.items()
        }
        tried = control_summary(verdicts, control_verdicts)
        free = dict.fromkeys(("calls", "prompt_tokens", "completion_tokens", "cost"), 0)
        extra = {**tried, **_effects(groups, verdicts), "per_1000_texts": free}
        return spec, verdicts, extra, False
    if ask["base_url"] is None:
        return None, [], {}, False
    return _ask_server(ask, groups)


def _effects(groups: Sequence[RatedGroup], verdicts: Sequence[Any]) -> dict[str, Any]:
    return {"effects": effects(groups, verdicts)}


def _ask_server(ask: Ask, groups: Sequence[RatedGroup]) -> JudgeAnswers:
    """A server's model, asked through a plan in OUT: the same command continues."""
    from strop.groupeval.series import probes
    from strop.served.cost import read_price, usage

    caps = ask.some("max_calls", "max_cost")
    series, incomplete = _judge_in_run(ask, groups, Path(ask["out"]), caps)
    used = usage(series.journal.entries())
    price = read_price(ask["prices"], series.judge.title)
    texts = sum(len(group.texts) for group in groups) / 1000
    verdicts = _verdicts_in_order(series, groups)
    extra = _effects(groups, verdicts) | {"per_1000_texts": _cost(used, price, texts)}
    if ask["controls"] and not incomplete:
        asking = probes(ask["out"], series.judge)  # the requests that found out how to ask it
        spent = usage([*asking.entries(), *series.journal.entries()])
        if caps["max_calls"] is not None:
            caps["max_calls"] -= spent.calls
        if caps["max_cost"] is not None and price is not None:
            caps["max_cost"] -= spent.cost(price)
        control_facts, incomplete = _controls(ask, groups, verdicts, caps)
        extra |= control_facts
    if series.repeats > 1:
        again = _verdicts_in_order(series, groups, repeat=1)
        extra["repeatability"] = repeat_agreement(verdicts, again)
    return series.judge, verdicts, extra, incomplete


def _judge_in_run(
    ask: Ask, groups: Sequence[RatedGroup], run: Path, caps: Mapping[str, Any]
) -> tuple[Series, bool]:
    """A server's verdicts on groups, with the journal in `run`; and whether some are missing."""
    _plan_groups(run, groups, ask["seed"])
    server = ask.some("base_url", "model", "key_env", "prices", "repeats", "timeout")
    judged = JUDGE.answer(JUDGE.asked({"run": run, **server, **caps}, note=ask.note, bars=ask.bars))
    return judged.value, judged.incomplete


def _controls(
    ask: Ask, groups: Sequence[RatedGroup], verdicts: Sequence[Any], caps: Mapping[str, Any]
) -> tuple[dict[str, Any], bool]:
    """Judge groups again in another order, and planted ones, with what is left of the caps."""
    controls = control_groups(groups, ask["controls"])
    every_group = [group for kind in controls.values() for group in kind]
    if any(cap is not None and cap <= 0 for cap in caps.values()):
        ask.note("the caps leave nothing for planted controls, so the card has none")
        return {}, True
    series, incomplete = _judge_in_run(ask, every_group, Path(ask["out"]) / "controls", caps)
    control_verdicts = iter(_verdicts_in_order(series, every_group))
    return control_summary(
        verdicts, {k: [next(control_verdicts) for _ in v] for k, v in controls.items()}
    ), incomplete


def _cost(used: Usage, price: Any, thousands: float) -> dict[str, Any]:
    return {
        "calls": used.calls / thousands,
        "prompt_tokens": used.prompt / thousands,
        "completion_tokens": used.completion / thousands,
        "cost": None if price is None else used.cost(price) / thousands,
    }


def _cell_names(groups: Sequence[RatedGroup]) -> list[str]:
    """The plan's cell of each group: the first group of every context is in the first cell."""
    seen: dict[str, int] = {}
    names = []
    for group in groups:
        context = group.context or ""
        seen[context] = seen.get(context, 0) + 1
        names.append(f"groups {seen[context]}")
    return names


def _plan_groups(run: Path, groups: Sequence[RatedGroup], seed: int) -> None:
    from strop.groupeval import Source, make_plan, write_plan

    profile = Profile.load(PROFILE)
    cells: dict[str, list[tuple[str, str]]] = {}
    for name, group in zip(_cell_names(groups), groups, strict=True):
        cells.setdefault(name, []).extend((text, group.context or "") for text in group.texts)
    sources = [
        Source(name, tuple(t for t, _ in rows), tuple(p for _, p in rows), name)
        for name, rows in cells.items()
    ]
    plan, texts = make_plan(sources, profile, seed=seed)
    write_plan(run, plan, profile, texts)


def _verdicts_in_order(series: Series, groups: Sequence[RatedGroup], repeat: int = 0) -> list[Any]:
    """The verdicts of a plan in the order of the groups, their texts numbered within the group."""
    by_cell = {
        (verdict.cell, verdict.prompt): verdict for verdict in series.verdicts(repeat=repeat)
    }
    in_order = []
    for cell, group in zip(_cell_names(groups), groups, strict=True):
        verdict = by_cell.get((cell, group.context or ""))
        if verdict is None or len(verdict.outputs) != len(group.texts):
            in_order.append(None)
            continue
        # Answers to one prompt are together in their cell, in the order of the group.
        ordered = sorted(verdict.outputs, key=lambda output: output.index)
        numbered = tuple(replace(output, index=i) for i, output in enumerate(ordered))
        in_order.append(replace(verdict, outputs=numbered))
    return in_order


def _other_series(
    ask: Ask, groups: Sequence[RatedGroup], spec: JudgeSpec | None
) -> list[JudgedGroups]:
    """The other judges with a series in OUT: people, plug-ins, other models."""
    from strop.groupeval.series import SERIES, list_series

    if not ask["out"] or not (Path(ask["out"]) / SERIES).is_dir():
        return []
    others = [series for series in list_series(ask["out"]) if spec is None or series.judge != spec]
    return [JudgedGroups.of(series.name, _verdicts_in_order(series, groups)) for series in others]


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
    for other in specs:
        if spec is None or other.title != spec.title:
            client = offline_client(other, profile, embed)
            with ask.bars.questions(other.title, len(groups)) as advance:
                judged.append(
                    JudgedGroups.of(other.title, verdicts_of(groups, client, profile, advance))
                )
    return judged


def _metrics(groups: Sequence[RatedGroup], embed: KnownVectors | None) -> list[JudgedGroups]:
    """Numbers without a judge: the Vendi score and distinct word pairs."""
    metrics = []
    if embed is not None:
        vendi = [
            vendi_score(embed([pieces(text)[0] for text in texts])) if texts else None
            for texts in ([t for t in group.texts if t.split()] for group in groups)
        ]
        metrics.append(JudgedGroups("Vendi score, MiniLM", tuple(vendi)))
    return [*metrics, JudgedGroups("distinct-2, words", tuple(map(distinct_pairs, groups)))]


def distinct_pairs(group: RatedGroup) -> float | None:
    """Different pairs of neighbouring words over all of a group; None where there are none."""
    words: dict[str, int] = {}
    rows = [[words.setdefault(w, len(words)) for w in text.lower().split()] for text in group.texts]
    ids = np.full((len(rows), max(map(len, rows)) or 1), -1)
    for row, word_ids in zip(ids, rows, strict=True):
        row[: len(word_ids)] = word_ids
    return distinct(ids, 2) if ids.shape[1] > 1 else None


def _columns(groups: Sequence[RatedGroup], named: Sequence[str]) -> list[JudgedGroups]:
    """Columns of the rows: the ones that are named, or those that the data's authors published."""
    available = dict.fromkeys(name for group in groups for name in group.columns)
    for name in named:
        if name not in available:
            raise UserError(
                f"No group has a number {name!r}.",
                where="`columns`",
                expected=", ".join(available) or "fields that hold numbers",
            )
    chosen = named or [name for name in PUBLISHED if name in available]
    return [
        JudgedGroups(PUBLISHED.get(name, name), tuple(group.columns.get(name) for group in groups))
        for name in chosen
    ]


def _validation_result(
    ask: Ask,
    groups: Sequence[RatedGroup],
    judged: Sequence[JudgedGroups],
    validations: Sequence[Mapping[str, Any]],
    card: dict[str, Any] | None,
    data: str,
    incomplete: bool,
) -> Result:
    tasks = list(tasks_of(groups))
    table = _table(validations, tasks, data)
    first = validations[0]
    task_rows = {task: flat(row, safe=False) for task, row in first["tasks"].items()}
    document = {
        "data": data,
        "n_groups": len(groups),
        "judge": first["name"],
        "tasks": task_rows,
        "means": {name: flat(row, safe=False) for name, row in first["means"].items()},
        "judges": [
            {
                "name": validation["name"],
                "tasks": {task: flat(row, safe=False) for task, row in validation["tasks"].items()},
                "means": {name: flat(row, safe=False) for name, row in validation["means"].items()},
            }
            for validation in validations
        ],
        "card": card,
    }
    remarks = _keep(ask, groups, judged[0], card)
    more = {}
    if card is not None:
        title = f"Card of {first['name']}"
        more["card"] = replace(grid(["what", "value"], card_rows(card)), title=title)
    return Result(
        table=table,
        more=more,
        facts={"answer": [_sentence(first, data)]},
        notes=NOTES,
        json=document,
        remarks=tuple(remarks),
        incomplete=incomplete,
        next=f"strop groupeval score RUN --card {quoted(Path(ask['out']) / CARD)}"
        if ask["out"] and card is not None
        else "strop groupeval plan INPUT... --profile answers-v1 -o RUN",
        draw=lambda _: scatter(judged[0], groups),
        value=validations,
    )


NOTES = (
    "Spearman's rank correlation with people's scores, by task; in the mean columns with a 95% "
    "interval from resampling contexts. Tasks are never pooled: their scales differ.",
    "GED of groups of different sizes is not compared; every task here has one size.",
)


def _table(validations: Sequence[Mapping[str, Any]], tasks: Sequence[str], data: str) -> Table:
    means = list(dict.fromkeys(name for validation in validations for name in validation["means"]))
    several = len(tasks) > 1
    columns = [Column("judge")]
    columns += [Column(f"task {i}", name, digits=2, bare=several) for i, name in enumerate(tasks)]
    if several:
        columns += [Column(f"mean {i}", _mean(name), digits=2) for i, name in enumerate(means)]
    rows = [
        {
            "judge": validation["name"],
            **{
                f"task {i}": validation["tasks"][task].get("spearman")
                for i, task in enumerate(tasks)
            },
            **{
                f"mean {i}": validation["means"].get(name, {}).get("spearman")
                for i, name in enumerate(means)
            },
        }
        for validation in validations
    ]
    return Table(f"Rank correlation with people: {data}", tuple(columns), rows)


def _mean(name: str) -> str:
    return "mean" if name == "mean" else f"{name} mean"


def _sentence(first: Mapping[str, Any], data: str) -> str:
    means = [
        f"{row['spearman']:.2f}" + ("" if name == "mean" else f" on {name}")
        for name, row in first["means"].items()
        if row.get("spearman") is not None
    ]
    if not means:
        return f"{first['name']}: too few groups have a score for a rank correlation ({data})."
    words = " and ".join(means)
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
    remarks = []
    if any(group.score is not None for group in groups):
        files = [folder / f"{FIGURE}.{kind}" for kind in ("svg", "png")]
        write_figure(lambda: scatter(judged, groups), files)
        remarks.append(f"wrote {folder / FIGURE}.svg and .png")
    if card is not None:
        content = json.dumps(card, indent=2, allow_nan=False) + "\n"
        write(folder / CARD, content.encode())
        remarks.append(f"wrote {folder / CARD}")
    return remarks


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
            dots = [(x, y) for x, y, group_label in rows if group_label is label]
            if dots:
                name = {None: None, True: "written to differ", False: "written alike"}[label]
                style = {"ms": 2.2, "mew": 0, "alpha": 0.55, "color": colour, "label": name}
                axes.plot(*zip(*dots, strict=True), "o", **style)
        axes.set_title(task, loc="left")
        tidy(axes)
    for axes in grid_[len(tasks) :]:
        axes.set_axis_off()
    if any(group.label is not None for group in groups):
        handles, names = grid_[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=2, frameon=False)
    for axes in grid_[max(0, len(tasks) - across) : len(tasks)]:
        axes.set_xlabel("people's score")
    figure.supylabel(judged.name if judged.verdicts is None else f"GED, {judged.name}", fontsize=8)
    return figure
