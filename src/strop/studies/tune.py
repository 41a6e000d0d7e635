"""The search for a sampler's settings: spend few outputs, report the gain on fresh ones.

1. At every budget candidates race for the best objective inside the limits (`strop.tuning`).
2. The choices and their hash are written.
3. The standard sampler and the choices are drawn anew, under another seed; the gain is reported
   from there, and every limit is held against the fresh outputs again.
4. The choices are written as YAML that `strop sample --spec` reads.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.assets import CHECKPOINT
from strop.errors import UserError
from strop.spec import SEED_LIMIT, OperatingPoint, SamplerSpec
from strop.studies import parameters
from strop.studies.audit import write_selection
from strop.studies.goals import Goal, Reader, limit
from strop.studies.measure import budgets, canvases_of_ask, load, standard
from strop.studies.study import Ask, Parameter, Result, Sources, Study, quoted
from strop.studies.tune_figure import draw as draw_figure
from strop.studies.tuned import BUDGET, USUAL, Bench, Search, Tuned, side_space, tuned
from strop.table import Column, Table
from strop.tuning.race import Bounds, bounds
from strop.tuning.space import parse

if TYPE_CHECKING:
    from strop.denoisers import Model
    from strop.metrics.guard import Guard
    from strop.prompts import Canvases
    from strop.store import Cell

__all__ = ["STUDY", "Gain"]

LEVEL = 0.95
YAML = "sampler-tuned.yaml"
MORE_STEPS = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
"""Steps that are tried for a budget of network calls, as multiples of it: a step may need none."""


@dataclass(frozen=True)
class Gain:
    """What the choice of one budget is worth on outputs that it was not chosen on."""

    budget: str
    """In words: `M = 16`, or `16 calls`."""
    chosen: Tuned
    outputs: int
    fresh: Bounds
    """The choice's objective."""
    plain: Bounds
    """That of the standard sampler."""
    gain: Bounds | None
    """Of ratios: standard over choice; else choice minus standard. None: they are the same."""
    limits: tuple[tuple[str, Bounds, bool | None], ...]
    """Every limit on the fresh outputs: its words, the value, whether it holds for sure."""
    ratio: bool
    calls: float

    @property
    def shown(self) -> bool:
        """Whether the interval excludes that nothing was gained."""
        none = 1.0 if self.ratio else 0.0
        return self.gain is not None and not self.gain.low <= none <= self.gain.high

    @property
    def recommended(self) -> bool:
        """Whether every limit holds for sure, when searched and on fresh outputs."""
        return self.chosen.holds and all(holds for _, _, holds in self.limits)

    def mind(self) -> list[str]:
        """What a reader must know of it."""
        told = [] if self.chosen.holds else ["no setting held every limit for sure"]
        told += [
            f"fresh outputs {'break' if holds is False else 'do not surely hold'} {words}"
            for words, _, holds in self.limits
            if not holds
        ]
        told = [f"{one}: no recommendation" for one in told[:1]] + told[1:]
        told += (
            ["the interval includes no gain"] if self.gain is not None and not self.shown else []
        )
        told += ["it is the standard sampler"] if self.gain is None else []
        return [*told, *self.chosen.edges]

    def row(self) -> dict[str, Any]:
        """One line of the table."""
        spec, gain = self.chosen.sampler, self.gain
        point = OperatingPoint.of(spec)
        return {
            "budget": self.budget,
            "steps": spec.steps,
            "point": str(point),
            "sampler": spec.model_dump(mode="json"),
            "objective": self.fresh.value,
            "low": _finite(self.fresh.low),
            "high": _finite(self.fresh.high),
            "standard": self.plain.value,
            "gain": None if gain is None else gain.value,
            "gain_low": None if gain is None else _finite(gain.low),
            "gain_high": None if gain is None else _finite(gain.high),
            "limits": {words: _ends(found) | {"holds": h} for words, found, h in self.limits},
            "held": all(holds for _, _, holds in self.limits),
            "outputs": self.outputs,
            "calls": self.calls,
            "spent": self.chosen.spent,
            "settings": len(self.chosen.tried),
            "shown": self.shown,
            "recommended": self.recommended,
            "mind": "; ".join(self.mind()),
        }

    def sentence(self, plain: str, goal: Goal) -> str:
        """What a reader wants to know first."""
        words = f"{self.budget}: {OperatingPoint.of(self.chosen.sampler)}"
        if self.gain is None:
            words += ", the standard sampler itself"
        elif self.ratio:
            words += f", {_told(self.gain)} times less {goal.heading} than {plain}"
        else:
            words += f", {goal.heading} {_told(self.gain, '+')} against {plain}"
        words += f" on {self.outputs} fresh outputs"
        words += f"; searched with {self.chosen.spent} outputs of {len(self.chosen.tried)} settings"
        told = self.mind()
        return words + (". " + "; ".join(told) + "." if told else ".")


# ---------------------------------------------------------------- running it


def _check(ask: Ask) -> None:
    goal = Goal.of(ask["objective"])
    for one in ask["constraint"] or ():
        limit(one)
    axes = parse(ask["space"] or USUAL)
    if ask["steps"] and ask["calls"]:
        raise UserError(
            "A budget is one of steps or one of network calls.",
            where="`calls`",
            fix="leave out `steps`, or `calls`",
        )
    if ask["budget"] < 2 * ask["first"] or ask["n"] < ask["first"]:
        raise UserError(
            "There are fewer outputs than two candidates start with.",
            where="`budget`" if ask["budget"] < 2 * ask["first"] else "`n`",
            got=f"{ask['budget']} in all, {ask['n']} a candidate, {ask['first']} to start with",
        )
    if not 0 <= ask["tolerance"] < 1:
        raise UserError("`tolerance` is a share.", where="`tolerance`", got=ask["tolerance"])
    if goal.record is None and not ask["constraint"] and not ask["guard"]:
        raise UserError("The cheapest sampler is no goal.", where="`objective`", got=goal.name)
    if ask["steps"] and len(ask["steps"]) > 1 and any(one.name == "steps" for one in axes):
        raise UserError(
            "Steps are both an axis and several budgets.", where="`space`", fix="leave one out"
        )


def _run(ask: Ask) -> Result:
    done = _answered(ask)
    if done is not None:
        return done
    model = load(ask, ask.sources[0])
    canvases = canvases_of_ask(ask, model)
    if ask["force"]:
        _start_anew(ask, model, canvases)
    guard = _guard(ask, model, canvases)
    reader = Reader(lambda: ask.evaluator, ask["span"], ask.progress)
    chosen = _search(ask, model, canvases, guard, reader)
    now = {words: _selected(one) for words, (_, one) in chosen.items()}
    digest = write_selection(ask.out, now)
    gains = _gains(ask, model, canvases, reader, chosen, digest)
    result = _result(ask, model, guard, gains)
    _write(ask, gains, result)
    return result


def _search(
    ask: Ask, model: Model, canvases: Canvases | None, guard: Guard, reader: Reader
) -> dict[str, tuple[SamplerSpec, Tuned]]:
    """By budget: the standard sampler there, and what was found."""
    family = model.spec.family
    plain, axes = standard(family), tuple(ask["space"] or USUAL)
    found = {}
    for words, number, limits in _budgets(ask, model):
        own = [*axes]
        if ask["calls"] and not any(one.name == "steps" for one in parse(axes)):
            own.append("steps=" + ",".join(str(math.floor(k * number)) for k in MORE_STEPS))
        space = side_space(family, own, number, sampler=ask["sampler"])
        for one in space.told:
            ask.note(one)
        search = Search(
            ask["objective"],
            ask["best"],
            (*(ask["constraint"] or ()), *limits),
            ask["guard"],
            ask["budget"],
            ask["first"],
            ask["n"],
            ask["tolerance"],
        )
        result = tuned(
            model,
            None,
            space,
            out=ask.out,
            budget=ask["budget"],
            search=search,
            guard=guard,
            seed=ask["seed"],
            length=ask["length"],
            canvases=canvases,
            reader=reader,
            progress=ask.progress,
        )
        found[words] = (plain.at(number), result)
    return found


def _budgets(ask: Ask, model: Model) -> list[tuple[str, int, tuple[str, ...]]]:
    """Every budget in words, its number of steps, and the limit that it sets."""
    if ask["calls"]:
        return [(f"{one} calls", one, (f"calls<={one}",)) for one in ask["calls"]]
    found = budgets(model, ask["steps"] or (64,))
    return [(f"M = {one}" if one else "all tokens", one, ()) for one in found]


def _guard(ask: Ask, model: Model, canvases: Canvases | None) -> Guard:
    """Of the texts that were given, of the run, or the default."""
    from dataclasses import asdict

    from strop.metrics.guard import held_out_guard, run_guard
    from strop.store import Run
    from strop.studies.tuned import plain_generator

    generator = plain_generator(model, ask["length"], canvases)
    given = ask["held_out"]
    if given is None:
        return run_guard(Run(ask.out), generator)
    found = held_out_guard(Path(given), generator.length, model)
    Bench(model, ask.out, Reader(None), length=ask["length"], canvases=canvases).cells(())
    Run(ask.out).keep_guard(asdict(found))
    return found


def _start_anew(ask: Ask, model: Model, canvases: Canvases | None) -> None:
    """Remove what an earlier search left, outputs included."""
    import shutil

    from strop.generate import sample_cells
    from strop.store.layout import FRESH, SELECTION, TUNE
    from strop.studies.tuned import FOLDER

    sample_cells(model, [], n=[], out=ask.out, canvases=canvases, force=True)
    for name in (TUNE, SELECTION, YAML, "tune.svg", "tune.png"):
        (ask.out / name).unlink(missing_ok=True)
    for name in (FOLDER, FRESH):
        shutil.rmtree(ask.out / name, ignore_errors=True)


# ---------------------------------------------------------------- fresh outputs


def _gains(
    ask: Ask,
    model: Model,
    canvases: Canvases | None,
    reader: Reader,
    chosen: Mapping[str, tuple[SamplerSpec, Tuned]],
    digest: str,
) -> list[Gain]:
    """The standard sampler and every choice, drawn again under the next seed."""
    from strop.store.layout import FRESH

    n = ask["fresh_n"]
    bench = Bench(
        model,
        ask.out / FRESH / digest[:16],
        reader,
        seed=(ask["seed"] + 1) % SEED_LIMIT,
        length=ask["length"],
        canvases=canvases,
        batch=ask["first"],
        progress=ask.progress,
    )
    both = [spec for plain, one in chosen.values() for spec in (plain, one.sampler)]
    specs = list(dict.fromkeys(both))
    cells = dict(zip(specs, bench.cells([(spec, n) for spec in specs]), strict=True))
    return [
        _gain(ask, reader, words, one, (cells[plain], cells[one.sampler]), n)
        for words, (plain, one) in chosen.items()
    ]


def _gain(
    ask: Ask, reader: Reader, words: str, chosen: Tuned, cells: tuple[Cell, Cell], n: int
) -> Gain:
    goal = Goal.of(ask["objective"])
    plain, mine = (reader.statistic(goal, cell, n) for cell in cells)
    limits = []
    for one in chosen.limits:
        found = bounds(reader.statistic(Goal.of(one.name), cells[1], n), LEVEL)
        limits.append((str(one), found, one.side_of(found)))
    gain = None
    if cells[0].id != cells[1].id:
        gain = bounds(plain, LEVEL, mine, log=True) if goal.log else bounds(mine, LEVEL, plain)
    calls = reader.statistic(Goal.of("calls"), cells[1], n).value
    return Gain(
        words,
        chosen,
        n,
        _raised(bounds(mine, LEVEL, log=goal.log), goal.log),
        _raised(bounds(plain, LEVEL, log=goal.log), goal.log),
        None if gain is None else _raised(gain, goal.log),
        tuple(limits),
        goal.log,
        calls,
    )


def _raised(found: Bounds, log: bool) -> Bounds:
    """What was compared by logarithms, as it is."""
    if not log:
        return found
    return Bounds(*(math.exp(min(end, 700.0)) for end in (found.value, found.low, found.high)))


# ---------------------------------------------------------------- what came out


def _result(ask: Ask, model: Model, guard: Guard, gains: Sequence[Gain]) -> Result:
    goal, plain = Goal.of(ask["objective"]), str(standard(model.spec.family))
    over = "gain" if goal.log else "difference"
    value = Column("objective", goal.heading, ends=("low", "high"))
    columns = (
        Column("budget"),
        Column("point", "setting"),
        value,
        Column("standard", f"of {plain}"),
        Column("gain", over, digits=3, ends=("gain_low", "gain_high"), signed=not goal.log),
        Column("held", "limits hold"),
        Column("calls", "network calls", digits=3),
        Column("spent", "outputs searched"),
        Column("mind"),
    )
    title = f"{ask.sources[0]}: the choice, on {ask['fresh_n']} fresh outputs, with 95% intervals"
    table = Table(title, columns, [one.row() for one in gains])
    tried = Table(
        "What was tried, the best first",
        (
            Column("budget"),
            Column("point", "setting"),
            Column("outputs", "n"),
            value,
            Column("limits"),
            Column("state"),
        ),
        [row for gain in gains for row in _tried(gain)],
    )
    limits = list(dict.fromkeys(str(one) for gain in gains for one in gain.chosen.limits))
    facts = {
        "checkpoint": ask.sources[0],
        "family": model.spec.family,
        "standard": plain,
        "objective": goal.name,
        "best": ask["best"] or goal.best,
        "limits": limits,
        "guard": {"threshold": guard.threshold, "source": guard.source},
        "answer": [one.sentence(plain, goal) for one in gains],
        "paths": {gain.budget: _path(gain.chosen) for gain in gains},
    }
    notes = [*dict.fromkeys(one for gain in gains for one in gain.chosen.told)]
    notes.append("limits: " + (", ".join(limits) or "none"))
    if ask["guard"] and guard.threshold is None:
        notes.append(f"without a usable guard ({guard.source}) sharpness had no bound")
    elif not ask["guard"]:
        notes.append("without the entropy guard sharpness had no bound")
    return Result(ask.said(), table, {"tried": tried}, facts, tuple(notes))


def _tried(gain: Gain) -> list[dict[str, Any]]:
    names = [str(one) for one in gain.chosen.limits]
    return [
        {
            "budget": gain.budget,
            "point": str(OperatingPoint.of(one.sampler)),
            "sampler": one.sampler.model_dump(mode="json"),
            "outputs": one.outputs,
            "objective": one.objective.value,
            "low": _finite(one.objective.low),
            "high": _finite(one.objective.high),
            "limits": "; ".join(
                f"{name.partition('=')[0].rstrip('<>')} {found.value:.3f}"
                for name, found in zip(names, one.limits, strict=True)
            ),
            "state": one.state + (f" ({one.why})" if one.why else ""),
        }
        for one in gain.chosen.tried
    ]


def _path(chosen: Tuned) -> list[list[Any]]:
    """After how many outputs which setting led, with its objective in the end."""
    value = {one.sampler: one.objective.value for one in chosen.tried}
    return [[n, None if spec is None else value[spec]] for n, spec in chosen.path]


def _selected(one: Tuned) -> dict[str, Any]:
    document = {
        "sampler": one.sampler.model_dump(mode="json"),
        "holds": one.holds,
        "limits": [str(limit) for limit in one.limits],
        "settings": len(one.tried),
        "outputs": one.spent,
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return {"sha256": hashlib.sha256(text.encode()).hexdigest(), **document}


def _ends(found: Bounds) -> dict[str, Any]:
    return {"value": found.value, "low": _finite(found.low), "high": _finite(found.high)}


def _finite(end: float) -> float | None:
    return end if math.isfinite(end) else None


def _told(found: Bounds, sign: str = "") -> str:
    return f"{found.value:{sign}.3g} [{found.low:{sign}.3g}, {found.high:{sign}.3g}]"


# ---------------------------------------------------------------- writing it


def _command(ask: Ask) -> dict[str, Any]:
    """What was asked, as far as the answer depends on it, without loading anything."""
    values = {k: v for k, v in ask.values.items() if k not in ("force", "device")}
    place = Path(ask.sources[0])
    stamps = []
    if place.exists():
        files = sorted(place.rglob("*")) if place.is_dir() else [place]
        stamps = [[f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in files if f.is_file()]
    asked = {"values": values, "sources": ask.sources, "smoke": ask.smoke, "stamps": stamps}
    return json.loads(json.dumps(asked, default=str))


def _answered(ask: Ask) -> Result | None:
    """What the same command found, if it came to an end."""
    from strop.store.documents import parsed
    from strop.store.layout import TUNE

    if ask["force"]:
        return None
    try:
        document = parsed(ask.out / TUNE)
        if document["command"] != _command(ask):
            return None
        return Result.read(document)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None  # the outputs are there, and the answer follows from them


def _write(ask: Ask, gains: Sequence[Gain], result: Result) -> None:
    from strop.disk import write
    from strop.figures import write_figure
    from strop.store import FORMAT
    from strop.store.documents import as_json
    from strop.store.layout import TUNE

    write(ask.out / YAML, _yaml(gains))
    write_figure(lambda: draw_figure(result), [ask.out / f"tune.{kind}" for kind in ("svg", "png")])
    # Last: it says that the search is complete.
    document = {
        "format": FORMAT,
        "study": STUDY.name,
        **result.document(),
        "command": _command(ask),
    }
    write(ask.out / TUNE, as_json(document))


def _yaml(gains: Sequence[Gain]) -> bytes:
    import yaml

    lines = [
        "# The samplers that `strop tune` chose, one per budget.",
        "# Use: strop sample CHECKPOINT --spec THIS_FILE -o RUN",
    ]
    lines += [
        f"# Not a recommendation at {gain.budget}: {gain.mind()[0]}."
        for gain in gains
        if not gain.recommended
    ]
    specs = {
        gain.chosen.sampler.id: {"steps": gain.chosen.sampler.steps}
        | gain.chosen.sampler.model_dump(mode="json", exclude_defaults=True)
        for gain in gains
    }
    body = yaml.safe_dump({"samplers": list(specs.values())}, sort_keys=False)
    return ("\n".join(lines) + "\n" + body).encode()


STUDY = Study(
    name="tune",
    title="Which setting of its samplers suits a checkpoint best?",
    about="Search the settings of CHECKPOINT's samplers with few outputs: candidates race on "
    "common outputs, the clearly worse stop early. The gain is reported on fresh outputs.",
    sources=Sources(("CHECKPOINT",), "As for `strop sample`.", (CHECKPOINT,)),
    parameters=(
        Parameter(
            "space",
            "What may be tried: temperature=0.6:1.1, eta=0.005:0.1:log, name=ancestral,remdm-cap; "
            "may be repeated.",
            kind="many",
            shown=" and ".join(USUAL),
        ),
        Parameter(
            "steps",
            "Budgets of updates M, each searched on its own.",
            kind="ints",
            smoke=(8,),
            least=1,
            most=2**20 + 1,
            shown="64",
        ),
        Parameter(
            "calls",
            "Budgets of network calls per output instead.",
            kind="ints",
            least=1,
            most=2**20,
        ),
        Parameter("objective", "A metric, or one of its numbers.", "perplexity"),
        Parameter("best", "Which way is better.", choices=("min", "max"), shown="the metric's own"),
        Parameter(
            "constraint",
            "What a setting must hold, e.g. repetition<=0.2; may be repeated.",
            kind="many",
        ),
        Parameter("guard", "Hold the entropy guard, where there is one.", True, "flag"),
        Parameter("budget", "Outputs per search.", BUDGET, "int", smoke=128, least=4, most=2**31),
        Parameter(
            "n", "The most outputs of one candidate.", 128, "int", smoke=32, least=2, most=2**31
        ),
        Parameter(
            "first", "Outputs that a candidate starts with.", 8, "int", smoke=4, least=2, most=2**31
        ),
        Parameter("tolerance", "A share that is not worth more outputs.", 0.01, "float"),
        Parameter(
            "fresh_n", "Fresh outputs of the choice.", 128, "int", smoke=32, least=2, most=2**31
        ),
        parameters.evaluator(),
        parameters.SAMPLER,
        parameters.LENGTH,
        *parameters.ANSWERING,
        *parameters.SCORED,
    ),
    run=_run,
    check=_check,
    own_folder=False,
    next=lambda ask: (
        f"strop sample {quoted(Path(ask.sources[0]))} --spec {quoted(ask.out / YAML)} "
        f"-n 128 -o {quoted(ask.out)}-outputs"
    ),
    examples=(
        "strop tune --smoke -o runs/tune",
        "strop tune --space temperature=0.6:1.1 --space top_p=0.8:1 --steps 16,64 -o runs/tuned",
        "strop tune --space name=ancestral,remdm-cap --space eta=0.005:0.1:log -o runs/revised",
    ),
)
