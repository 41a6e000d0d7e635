"""Is this the checkpoint that was published? Its files, and its numbers drawn anew.

Cells whose numbers were printed are drawn with fresh seeds and scored by the stated evaluator.
Every number then agrees, differs (beyond the noise of both sides, all numbers at one level
together), or `cannot tell`: too few outputs must not pass for agreement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from strop.assets import EMBEDDED, ROOT, known_models
from strop.errors import CheckFailed, UserError
from strop.measure.metric import Number
from strop.records.record import Precision
from strop.rng import derive_seed
from strop.spec.generator import OperatingPoint, SamplerSpec
from strop.stats.interval import LEVEL, Interval
from strop.stats.published import Gap, gap, holm, verdicts
from strop.stats.resample import jackknife
from strop.table import Column, Table
from strop.verbs import paper, parameters
from strop.verbs.families import MODELS
from strop.verbs.frontiers_public import SOURCE, elsewhere
from strop.verbs.points import draw, guard_notes, score, standard
from strop.verbs.study import Sources, Study
from strop.verbs.verb import Ask, Parameter, Result, quoted, report_command

if TYPE_CHECKING:
    from strop.denoisers import Model
    from strop.measure.frame import Measured

FOLDER = ROOT / "published"
SIZE = 0.1
"""The difference in nats to detect: 10% of a perplexity, .1 of an entropy."""
FEW = (16, 64)
"""Budgets of a paper's table that are drawn unless others are named: they are cheap."""
NUMBERS = {"perplexity": 0.05, "entropy": 0.005}
"""The numbers that are compared, and half a unit of their last printed digit."""
LEAST = {"perplexity": 1.0, "entropy": 0.0}
CARD_FIELDS: dict[str, type] = dict.fromkeys(("checkpoint", "evaluator", "sha256", "weights"), str)
CARD_FIELDS |= {"evaluator_sha256": str, "parameters": int, "outputs": int, "length": int}
"""Settings of a card that hold for all its rows, and their types."""
CELL = ("steps", "temperature", "precision")
SMALL = EMBEDDED + "tales-tiny"
COLUMNS = (
    Column("number"),
    Column("steps", "M"),
    Column("point", "setting"),
    Column("published", digits=4),
    Column("of", "outputs", help="Behind the published number."),
    Column("measured", digits=4),
    Column("gap", "difference", digits=3, signed=True, help="Nats: of log perplexity, of entropy."),
    Column("chance", "p", digits=2, help="Of such a gap by noise of both sides; Holm over all."),
    Column("detectable", digits=2, help="The gap in nats that is found four times out of five."),
    Column("verdict"),
    Column("needed", "outputs needed", help="From which on a gap of .1 nats is found."),
)
ELSEWHERE = Column("elsewhere", digits=4, help="As others published it of the same checkpoint.")
FILES = (Column("what"), Column("published"), Column("found"), Column("verdict"))
RUNS = ("run",)


@dataclass(frozen=True)
class Published:
    """The published numbers of one checkpoint under one evaluator."""

    source: str
    evaluator: str
    span: str
    length: int | None
    facts: Mapping[str, Any]
    """Published facts of its files: sha256, weights, parameters."""
    cells: Mapping[tuple[Any, ...], Mapping[str, Any]]
    """By steps, temperature and precision: the numbers, `outputs`, and the errors if printed."""
    usual: Sequence[int] | None = None
    """The budgets that are drawn unless others are named; None: all."""
    label: str | None = None
    """Its name in the comparison across families."""


def published(name: str) -> list[Published]:
    """Numbers of a known checkpoint, or of a file; one entry per evaluator."""
    card = FOLDER / f"{name.removeprefix(EMBEDDED)}.yaml"
    if name.endswith((".yaml", ".yml")) or (name.startswith(EMBEDDED) and card.exists()):
        return [_card(paper.read_table(card if name.startswith(EMBEDDED) else Path(name)))]
    source = name.partition("@")[0]
    labels = {model.source: name for name, model in MODELS.items() if not model.reference}
    if source not in labels:
        cards = sorted(EMBEDDED + path.stem for path in FOLDER.glob("*.yaml"))
        raise UserError(
            "No published numbers of this checkpoint are known.",
            where="`published`",
            got=name,
            expected=f"one of {', '.join([*labels, *cards])}, or a file of numbers "
            "(docs/models.md)",
            fix="use `published=NAME` to say whose numbers to compare with",
        )
    tables = [(paper.table("cross-model"), {"model": labels[source]})]
    if source == paper.PUBLIC:
        headline = [(paper.table("headline"), {})]
        headline += [(paper.table("headline-full"), {"checkpoint": "public"})]
        tables = [*headline, *tables]
    sizes = {model.source: model.parameters for model in known_models()}
    by_evaluator: dict[str, dict[tuple[Any, ...], Any]] = {}
    for table, where in tables:
        cells = by_evaluator.setdefault(table.settings["evaluator"], {})
        for row in table.records(**where):
            outputs = table.settings["outputs"]
            cells.setdefault(tuple(row[k] for k in CELL), {**row, "outputs": outputs})
    facts = {"parameters": sizes[source]}
    length = tables[0][0].settings["length"]
    return [
        Published(source, evaluator, "first-document", length, facts, cells, FEW, labels[source])
        for evaluator, cells in by_evaluator.items()
    ]


def _card(table: paper.PaperTable) -> Published:
    """A checkpoint's own card."""
    settings = table.settings
    lacking = [k for k in ("checkpoint", "evaluator", "outputs") if k not in settings]
    lacking += [k for k in (*CELL, *NUMBERS) if k not in table.columns]
    if lacking:
        raise UserError(
            "The published numbers are incomplete.",
            where=table.id,
            got=f"no {', '.join(lacking)}",
            expected="settings: checkpoint, evaluator, outputs; columns: "
            + ", ".join((*CELL, *NUMBERS)),
        )
    if wrong := next(_unusable(table), None):
        raise UserError(
            "The published numbers cannot be used in a comparison.",
            where=table.id,
            got=wrong,
            expected="rows of perplexities from 1 and entropies from 0, each cell once, errors "
            "above 0, steps from 1, temperatures from 0, float64 or float32; whole numbers above 0 "
            "for outputs, length, parameters; words for the rest",
        )
    facts = {
        k: settings[k]
        for k in ("sha256", "weights", "parameters", "evaluator_sha256")
        if k in settings
    }
    cells = {
        tuple(row[k] for k in CELL): {**row, "outputs": settings["outputs"]}
        for row in table.records()
    }
    span = settings.get("span", "first-document")
    return Published(
        settings["checkpoint"], settings["evaluator"], span, settings.get("length"), facts, cells
    )


def _unusable(table: paper.PaperTable) -> Iterator[str]:
    """Entries of a card that are not valid numbers or names."""
    for name, kind in CARD_FIELDS.items():
        value = table.settings.get(name)
        unlike = type(value) is not kind or not value or (kind is int and value < 0)
        if value is not None and unlike:
            yield f"{name}: {value!r}"
    cells = [tuple(row[k] for k in CELL) for row in table.records()]
    if len(set(cells)) < max(1, len(cells)):
        yield "no rows" if not cells else "a cell twice"
    for cell, row in zip(cells, table.records(), strict=True):
        steps, tau, precision = cell
        drawn = type(steps) is int and steps > 0 and type(tau) in (int, float) and tau >= 0
        if not drawn or precision not in get_args(Precision):
            yield f"steps {steps!r}, temperature {tau!r}, precision {precision!r}"
        for name, least in LEAST.items():
            error = row.get(f"{name}_error")
            numbers = type(row[name]) in (int, float) and type(error) in (int, float, type(None))
            if not numbers or row[name] < least or (error is not None and error <= 0):
                yield f"{name} {row[name]!r}, error {error!r}, at {cell}"


def _published_numbers(ask: Ask) -> Published:
    """Whose numbers, under which evaluator; an evaluator that nobody published under is not
    refused: the numbers show the difference."""
    entries = published(ask["published"] or ask.sources[0])
    return next((entry for entry in entries if entry.evaluator == ask["evaluator"]), entries[0])


def chosen(printed: Published, steps: Sequence[int] | None) -> list[tuple[Any, ...]]:
    """The cells to draw."""
    budgets = steps or printed.usual
    keys = [key for key in printed.cells if budgets is None or key[0] in budgets]
    if not keys:
        raise UserError(
            "No number is published for these budgets.",
            where="`steps`",
            got=", ".join(map(str, budgets or ())),
            expected=", ".join(map(str, sorted({key[0] for key in printed.cells}))),
        )
    return keys


def measure(ask: Ask, model: Model, cells: Sequence[tuple[Any, ...]], seed: int) -> list[Measured]:
    """Draw the cells under a seed and score them."""
    sampler = standard(model.spec.family).sampler.name
    points = [
        (m, OperatingPoint.of(SamplerSpec(name=sampler, temperature=tau, precision=precision)))
        for m, tau, precision in cells
    ]
    return list(score(ask, model, draw(ask, model, points, ask.out / RUNS[0], seed=seed)))


def own_numbers(cell: Measured) -> dict[str, Interval]:
    """Perplexity and entropy with jackknife intervals, whose level holds for few outputs too."""
    perplexity, entropy = (cell.statistic(Number.of(name)) for name in NUMBERS)
    intervals = (jackknife(perplexity, log=True).exp(), jackknife(entropy, cut=False))
    return dict(zip(NUMBERS, intervals, strict=True))


def _run(ask: Ask) -> Result:
    from strop.denoisers import load_model

    printed = _published_numbers(ask)
    cells = chosen(printed, ask["steps"])
    model = load_model(
        ask.sources[0],
        device=ask.engine.at_home(ask["device"]),
        **ask.some("revision", "weights", "family", "dtype"),
    )
    values = {"evaluator": printed.evaluator, "span": printed.span, "length": printed.length}
    values = {k: v for k, v in values.items() if ask.values.get(k) is None}
    ask = replace(ask, values={**ask.values, **values})
    files = _files(printed, model, ask)
    measured = measure(ask, model, cells, derive_seed(ask["seed"], "certify"))
    rows, gaps = [], []
    for key, scored in zip(cells, measured, strict=True):
        numbers = printed.cells[key]
        for name, interval in own_numbers(scored).items():
            gaps.append(_gap(name, interval, numbers))
            row = {"number": name, "steps": scored.steps, "point": str(scored.point)}
            row |= {"published": numbers[name], "of": numbers["outputs"], "measured": interval}
            row["elsewhere"] = elsewhere(printed.label, dict(zip(CELL, key, strict=True)), name)
            rows.append(row)
    return _answer(ask, printed, files, _rows_with_verdicts(rows, gaps), guard_notes(measured))


def _gap(name: str, measured: Interval, printed: Mapping[str, Any]) -> Gap | None:
    """Measured minus published; a card has errors and all digits, a paper its outputs."""
    error = printed.get(f"{name}_error")
    rounding = NUMBERS[name] if error is None else 0.0
    log = name == "perplexity"
    return gap(measured, printed[name], printed["outputs"], error=error, rounding=rounding, log=log)


def _rows_with_verdicts(
    rows: Sequence[Mapping[str, Any]], gaps: Sequence[Gap | None]
) -> list[dict[str, Any]]:
    """The rows with their verdicts."""
    tested = [difference for difference in gaps if difference is not None]
    adjusted = iter(holm([difference.chance for difference in tested]))
    alpha = (1 - LEVEL) / max(1, len(tested))
    judged = []
    for row, difference, verdict in zip(rows, gaps, verdicts(gaps, SIZE), strict=True):
        facts: dict[str, Any] = dict.fromkeys(("gap", "chance", "detectable", "needed"))
        if difference is not None:
            facts = {
                "gap": difference.value,
                "chance": next(adjusted),
                "detectable": difference.detectable(alpha),
                "needed": difference.needed(SIZE, alpha) or "no number is enough",
            }
        judged.append({**row, **facts, "verdict": verdict})
    return judged


def _files(printed: Published, model: Any, ask: Ask) -> list[dict[str, Any]]:
    """The files compared with what is published; exact, without noise."""
    network = getattr(model, "network", None)
    size = None if network is None else sum(p.numel() for p in network.parameters())
    evaluator = ask.evaluator.spec
    folder = Path(ask["evaluator"]).expanduser()
    facts = printed.facts
    compared = {
        "SHA-256 of the weights": (facts.get("sha256"), model.spec.sha256),
        "weights": (facts.get("weights"), model.spec.weights),
        "parameters": (facts.get("parameters"), size),
        "tokens": (printed.length, model.length),
        "evaluator": (printed.evaluator, folder if folder.is_dir() else evaluator.name),
        "SHA-256 of the evaluator": (facts.get("evaluator_sha256"), evaluator.sha256),
    }
    rows = []
    for what, pair in compared.items():
        if what.startswith("SHA-256"):
            pair = [digest and digest[:16] for digest in pair]
        expected, actual = pair
        verdict = _file_verdict(expected, actual)
        actual = str(actual) if isinstance(actual, Path) else actual
        rows.append({"what": what, "published": expected, "found": actual, "verdict": verdict})
    return rows


def _file_verdict(expected: Any, actual: Any) -> str:
    """Compare one fact. A directory on this machine has no public name, so nothing can be said."""
    if expected is None:
        return "not published"
    if actual is None or isinstance(actual, Path):
        return "cannot tell"
    return "agrees" if expected == actual else "differs"


def _answer(
    ask: Ask,
    printed: Published,
    files: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    notes: Sequence[str],
) -> Result:
    by = {name: [r for r in rows if r["verdict"] == name] for name in _WORDS}
    wrong = [str(row["what"]) for row in files if row["verdict"] == "differs"]
    wrong += [f"{row['number']} at {row['steps']} {row['point']}" for row in by["differs"]]
    counted = ", ".join(f"{len(matching)} {_WORDS[name]}" for name, matching in by.items())
    answer = f"Of {len(rows)} published numbers of {printed.source}, {counted}."
    if wrong:
        answer += f" Different: {'; '.join(wrong)}."
    title = f"{ask.sources[0]} against the published numbers of {printed.source}"
    other = [
        entry for entry in published(ask["published"] or ask.sources[0]) if entry is not printed
    ]
    unasked = [
        f"numbers under {entry.evaluator} are published too: use `evaluator={entry.evaluator}`"
        for entry in other
        if entry.evaluator != printed.evaluator
    ]
    facts = {
        "answer": [answer],
        "counts": {name: len(matching) for name, matching in by.items()},
        "certified": not wrong and not by["cannot tell"],
        "size": SIZE,
    }
    fix = f"send {quoted(ask.out)}/result.json back; the page: {report_command(ask.out)}"
    error = CheckFailed(
        "The checkpoint differs from what was published.", got="; ".join(wrong), fix=fix
    )
    others = any(row["elsewhere"] is not None for row in rows)
    return Result(
        ask.said(published=printed.source),
        Table(title, (*COLUMNS, ELSEWHERE) if others else COLUMNS, rows),
        {"files": Table("Files and settings", FILES, files)},
        facts,
        (*NOTES, *((f"elsewhere: {SOURCE}",) if others else ()), *unasked, *notes),
        error=error if wrong else None,
    )


_WORDS = {"agrees": "agree", "differs": "differ", "cannot tell": "are undecided"}
NOTES = (
    "A gap is measured minus published in nats; its noise is that of both sides, the published one "
    "from its number of outputs where no error is printed. p is Holm's over all numbers; `differs` "
    f"below {1 - LEVEL:.2g}.",
    f"A number agrees only where a gap of {SIZE:g} nats (10% of a perplexity) would be found four "
    "times out of five; with fewer outputs the verdict is `cannot tell`.",
)

STUDY = Study(
    name="certify",
    title="Is this the checkpoint that was published?",
    about="Compare the files of CHECKPOINT with what is published of it, draw published cells with "
    "fresh seeds, score them by the stated evaluator, and say of every number: agrees, differs, "
    "cannot tell. Exit code 3 if any differs.",
    sources=Sources(default=(SMALL,)),
    parameters=(
        Parameter(
            "published",
            "Whose numbers: a known checkpoint, or a YAML file of numbers.",
            shown="those of CHECKPOINT",
        ),
        Parameter.counts(
            "steps",
            "Budgets to draw, among the published ones.",
            smoke=(16,),
            shown="16,64 of a paper's; all of a card's",
        ),
        parameters.outputs(512, smoke=16, least=2),
        Parameter("evaluator", "Another than the published one; by default the first published."),
        parameters.WEIGHTS,
        parameters.REVISION,
        parameters.FAMILY,
        *parameters.MEASURED,
    ),
    run=_run,
    kind="certificate",
    runs=RUNS,
    needs_evaluator=lambda _: False,
    examples=("strop models certify kuleshov-group/mdlm-owt --device cuda -o runs/certificate",),
)
