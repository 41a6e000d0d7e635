"""Is this the checkpoint that was published? Its files, and its numbers drawn anew.

Cells whose numbers were printed are drawn with fresh seeds and scored by the stated evaluator.
Every number then agrees, differs (beyond the noise of both sides, all numbers at one level
together), or cannot be told: few outputs must not pass for agreement.
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
"""A difference in nats that must be found: 10% of a perplexity, .1 of an entropy."""
FEW = (16, 64)
"""Budgets of a paper's table that are drawn unless others are named: they are cheap."""
NUMBERS = {"perplexity": 0.05, "entropy": 0.005}
"""What is compared, and half a unit of its last printed digit."""
LEAST = {"perplexity": 1.0, "entropy": 0.0}
TOLD: dict[str, type] = dict.fromkeys(("checkpoint", "evaluator", "sha256", "weights"), str)
TOLD |= {"evaluator_sha256": str, "parameters": int, "outputs": int, "length": int}
"""What a card says for all of its rows, and what each must be."""
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
    """What is printed of one checkpoint under one evaluator."""

    source: str
    evaluator: str
    span: str
    length: int | None
    facts: Mapping[str, Any]
    """Of its files: sha256, weights, parameters; those only that are published."""
    cells: Mapping[tuple[Any, ...], Mapping[str, Any]]
    """By steps, temperature and precision: the numbers, `outputs`, and the errors if printed."""
    usual: Sequence[int] | None = None
    """The budgets that are drawn unless others are named; None: all."""
    label: str | None = None
    """What the comparison across families calls it."""


def published(name: str) -> list[Published]:
    """By a checkpoint's name, or from a file of printed numbers; one entry per evaluator."""
    card = FOLDER / f"{name.removeprefix(EMBEDDED)}.yaml"
    if name.endswith((".yaml", ".yml")) or (name.startswith(EMBEDDED) and card.exists()):
        return [_card(paper.read_table(card if name.startswith(EMBEDDED) else Path(name)))]
    source = name.partition("@")[0]
    known = {one.source: label for label, one in MODELS.items() if not one.reference}
    if source not in known:
        cards = sorted(EMBEDDED + path.stem for path in FOLDER.glob("*.yaml"))
        raise UserError(
            "No numbers of this checkpoint are published here.",
            where="`published`",
            got=name,
            expected=f"one of {', '.join([*known, *cards])}, or a file of numbers (docs/models.md)",
            fix="say `published=NAME` for whose numbers they should be",
        )
    tables = [(paper.table("cross-model"), {"model": known[source]})]
    if source == paper.PUBLIC:
        both = [(paper.table("headline"), {})]
        both += [(paper.table("headline-full"), {"checkpoint": "public"})]
        tables = [*both, *tables]
    sizes = {one.source: one.parameters for one in known_models()}
    found: dict[str, dict[tuple[Any, ...], Any]] = {}
    for one, where in tables:
        mine = found.setdefault(one.settings["evaluator"], {})
        for row in one.records(**where):
            outputs = one.settings["outputs"]
            mine.setdefault(tuple(row[k] for k in CELL), {**row, "outputs": outputs})
    facts = {"parameters": sizes[source]}
    length = tables[0][0].settings["length"]
    return [
        Published(source, evaluator, "first-document", length, facts, cells, FEW, known[source])
        for evaluator, cells in found.items()
    ]


def _card(table: paper.PaperTable) -> Published:
    """A checkpoint's own card."""
    told = table.settings
    lacking = [k for k in ("checkpoint", "evaluator", "outputs") if k not in told]
    lacking += [k for k in (*CELL, *NUMBERS) if k not in table.columns]
    if lacking:
        raise UserError(
            "The published numbers do not say enough.",
            where=table.id,
            got=f"no {', '.join(lacking)}",
            expected="settings: checkpoint, evaluator, outputs; columns: "
            + ", ".join((*CELL, *NUMBERS)),
        )
    if wrong := next(_unusable(table), None):
        raise UserError(
            "The published numbers cannot be compared with.",
            where=table.id,
            got=wrong,
            expected="rows of perplexities from 1 and entropies from 0, each cell once, errors "
            "above 0, steps from 1, temperatures from 0, float64 or float32; whole numbers above 0 "
            "for outputs, length, parameters; words for the rest",
        )
    facts = {
        k: told[k] for k in ("sha256", "weights", "parameters", "evaluator_sha256") if k in told
    }
    cells = {
        tuple(row[k] for k in CELL): {**row, "outputs": told["outputs"]} for row in table.records()
    }
    span = told.get("span", "first-document")
    return Published(told["checkpoint"], told["evaluator"], span, told.get("length"), facts, cells)


def _unusable(table: paper.PaperTable) -> Iterator[str]:
    """What on a card is no number or name of its kind."""
    for name, kind in TOLD.items():
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


def _wanted(ask: Ask) -> Published:
    """Whose numbers, under which evaluator; another evaluator than any that is stated is a fault
    that the numbers must show, not a refusal."""
    every = published(ask["published"] or ask.sources[0])
    return next((one for one in every if one.evaluator == ask["evaluator"]), every[0])


def chosen(mine: Published, steps: Sequence[int] | None) -> list[tuple[Any, ...]]:
    """The cells to draw."""
    budgets = steps or mine.usual
    found = [key for key in mine.cells if budgets is None or key[0] in budgets]
    if not found:
        raise UserError(
            "No number is published for these budgets.",
            where="`steps`",
            got=", ".join(map(str, budgets or ())),
            expected=", ".join(map(str, sorted({key[0] for key in mine.cells}))),
        )
    return found


def measure(ask: Ask, model: Model, cells: Sequence[tuple[Any, ...]], seed: int) -> list[Measured]:
    """Draw the cells under a seed and score them."""
    sampler = standard(model.spec.family).sampler.name
    wanted = [
        (m, OperatingPoint.of(SamplerSpec(name=sampler, temperature=tau, precision=precision)))
        for m, tau, precision in cells
    ]
    return list(score(ask, model, draw(ask, model, wanted, ask.out / RUNS[0], seed=seed)))


def own_numbers(one: Measured) -> dict[str, Interval]:
    """Perplexity and entropy with jackknife intervals, whose level holds for few outputs too."""
    perplexity, entropy = (one.statistic(Number.of(name)) for name in NUMBERS)
    found = (jackknife(perplexity, log=True).exp(), jackknife(entropy, cut=False))
    return dict(zip(NUMBERS, found, strict=True))


def _run(ask: Ask) -> Result:
    from strop.denoisers import load_model

    mine = _wanted(ask)
    cells = chosen(mine, ask["steps"])
    model = load_model(
        ask.sources[0],
        device=ask.engine.at_home(ask["device"]),
        **ask.some("revision", "weights", "family", "dtype"),
    )
    values = {"evaluator": mine.evaluator, "span": mine.span, "length": mine.length}
    values = {k: v for k, v in values.items() if ask.values.get(k) is None}
    ask = replace(ask, values={**ask.values, **values})
    files = _files(mine, model, ask)
    measured = measure(ask, model, cells, derive_seed(ask["seed"], "certify"))
    rows, gaps = [], []
    for key, one in zip(cells, measured, strict=True):
        told = mine.cells[key]
        for name, own in own_numbers(one).items():
            gaps.append(_gap(name, own, told))
            row = {"number": name, "steps": one.steps, "point": str(one.point)}
            row |= {"published": told[name], "of": told["outputs"], "measured": own}
            row["elsewhere"] = elsewhere(mine.label, dict(zip(CELL, key, strict=True)), name)
            rows.append(row)
    return _answer(ask, mine, files, _judged(rows, gaps), guard_notes(measured))


def _gap(name: str, own: Interval, told: Mapping[str, Any]) -> Gap | None:
    """Measured minus published; a card has its errors and all digits, a paper its outputs."""
    error = told.get(f"{name}_error")
    rounding = NUMBERS[name] if error is None else 0.0
    log = name == "perplexity"
    return gap(own, told[name], told["outputs"], error=error, rounding=rounding, log=log)


def _judged(rows: Sequence[Mapping[str, Any]], gaps: Sequence[Gap | None]) -> list[dict[str, Any]]:
    """The rows with their verdicts."""
    tested = [one for one in gaps if one is not None]
    adjusted, alpha = iter(holm([one.chance for one in tested])), (1 - LEVEL) / max(1, len(tested))
    found = []
    for row, one, verdict in zip(rows, gaps, verdicts(gaps, SIZE), strict=True):
        told: dict[str, Any] = dict.fromkeys(("gap", "chance", "detectable", "needed"))
        if one is not None:
            told = {
                "gap": one.value,
                "chance": next(adjusted),
                "detectable": one.detectable(alpha),
                "needed": one.needed(SIZE, alpha) or "no number is enough",
            }
        found.append({**row, **told, "verdict": verdict})
    return found


def _files(mine: Published, model: Any, ask: Ask) -> list[dict[str, Any]]:
    """What the files are against what they should be; exact, so no noise enters."""
    network = getattr(model, "network", None)
    size = None if network is None else sum(p.numel() for p in network.parameters())
    evaluator = ask.evaluator.spec
    folder = Path(ask["evaluator"]).expanduser()
    told = mine.facts
    said = {
        "SHA-256 of the weights": (told.get("sha256"), model.spec.sha256),
        "weights": (told.get("weights"), model.spec.weights),
        "parameters": (told.get("parameters"), size),
        "tokens": (mine.length, model.length),
        "evaluator": (mine.evaluator, folder if folder.is_dir() else evaluator.name),
        "SHA-256 of the evaluator": (told.get("evaluator_sha256"), evaluator.sha256),
    }
    rows = []
    for what, both in said.items():
        if what.startswith("SHA-256"):
            both = [digest and digest[:16] for digest in both]
        wanted, found = both
        verdict = _file_verdict(wanted, found)
        found = str(found) if isinstance(found, Path) else found
        rows.append({"what": what, "published": wanted, "found": found, "verdict": verdict})
    return rows


def _file_verdict(wanted: Any, found: Any) -> str:
    """A directory on this machine has no public name: the numbers say what it holds."""
    if wanted is None:
        return "not published"
    if found is None or isinstance(found, Path):
        return "cannot tell"
    return "agrees" if wanted == found else "differs"


def _answer(
    ask: Ask,
    mine: Published,
    files: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    notes: Sequence[str],
) -> Result:
    by = {name: [r for r in rows if r["verdict"] == name] for name in _WORDS}
    wrong = [str(row["what"]) for row in files if row["verdict"] == "differs"]
    wrong += [f"{row['number']} at {row['steps']} {row['point']}" for row in by["differs"]]
    counted = ", ".join(f"{len(some)} {_WORDS[name]}" for name, some in by.items())
    answer = f"Of {len(rows)} published numbers of {mine.source}, {counted}."
    if wrong:
        answer += f" Different: {'; '.join(wrong)}."
    title = f"{ask.sources[0]} against the published numbers of {mine.source}"
    other = [one for one in published(ask["published"] or ask.sources[0]) if one is not mine]
    unasked = [
        f"numbers under {one.evaluator} were not asked for: say `evaluator={one.evaluator}`"
        for one in other
        if one.evaluator != mine.evaluator
    ]
    facts = {
        "answer": [answer],
        "counts": {name: len(some) for name, some in by.items()},
        "certified": not wrong and not by["cannot tell"],
        "size": SIZE,
    }
    fix = f"send {quoted(ask.out)}/result.json back; the page: {report_command(ask.out)}"
    error = CheckFailed("It is not what was published.", got="; ".join(wrong), fix=fix)
    others = any(row["elsewhere"] is not None for row in rows)
    return Result(
        ask.said(published=mine.source),
        Table(title, (*COLUMNS, ELSEWHERE) if others else COLUMNS, rows),
        {"files": Table("Files and settings", FILES, files)},
        facts,
        (*NOTES, *((f"elsewhere: {SOURCE}",) if others else ()), *unasked, *notes),
        error=error if wrong else None,
    )


_WORDS = {"agrees": "agree", "differs": "differ", "cannot tell": "cannot be told"}
NOTES = (
    "A gap is measured minus published in nats; its noise is that of both sides, the published one "
    "from its number of outputs where no error is printed. p is Holm's over all numbers; `differs` "
    f"below {1 - LEVEL:.2g}.",
    f"A number agrees only where a gap of {SIZE:g} nats (10% of a perplexity) would be found four "
    "times out of five; with fewer outputs nothing can be told.",
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
            "Of the published budgets.",
            smoke=(16,),
            shown="16,64 of a paper's; all of a card's",
        ),
        parameters.outputs(512, smoke=16, least=2),
        Parameter("evaluator", "Instead of the stated one; the first that is stated by default."),
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
