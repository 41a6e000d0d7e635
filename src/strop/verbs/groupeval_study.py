"""GroupEval of standard against sharpened pools, from sampling to the paper's conclusions.

Every judge that has a series in OUT/groupeval takes part; where there is none yet, the offline
judge makes the first. Judges are never pooled, and a series is compared with another only if the
same judge made both: the paper's judges read the paper's rubric, ours read strop's own wording.

A contrast is one judge at one budget; rows of the paper's tables and of ours have one shape, so the
conclusions below are computed from either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

from strop.errors import unknown_name
from strop.groupeval.scores import DIAGNOSTICS, FACTOR_COLUMNS, share_column
from strop.table import Column, Table
from strop.verbs import paper, parameters, points
from strop.verbs.frontiers_public import elsewhere
from strop.verbs.study import SMOKE_NOTE, Study
from strop.verbs.verb import Ask, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from strop.groupeval.judgments import Judgments
    from strop.measure.frame import Measured

PRIMARY = 16
"""The least number of steps of the primary budgets; below it lies the floor case."""
PAPERS = ("groupeval-mdlm", "groupeval-didi")
RUNS = ("run", "groupeval")
SETTINGS = points.SETTINGS
RUBRIC = (
    "The judges' rubric is strop's own wording, not the paper's: their scores are on "
    "different scales. Compare standard with sharpened inside a series, never across judges."
)
COLUMNS = (
    Column("judge"),
    Column("steps", "M"),
    Column("perplexity_standard", "perplexity standard", bare=True),
    Column("perplexity_sharpened", "sharpened", bare=True),
    Column("entropy_standard", "H standard", digits=3, bare=True),
    Column("entropy_sharpened", "sharpened", digits=3, bare=True),
    Column("geq_standard", "GEQ standard", digits=3),
    Column("geq_sharpened", "GEQ sharpened", digits=3),
    Column("difference", "GEQ difference", digits=3, signed=True),
    Column("ged_standard", "GED standard", digits=3),
    Column("ged_sharpened", "GED sharpened", digits=3),
)

INVALID = share_column("invalid_rate", "invalid", "texts that fail.", 3)
BESIDE_GED = {column.name: column for column in (*FACTOR_COLUMNS, INVALID, *DIAGNOSTICS)}

Contrast = Mapping[str, Any]
"""One row: judge, steps, GEQ and GED of both samplers, difference with interval."""
Score = Literal["geq", "ged"]
SCORES: tuple[Score, ...] = ("geq", "ged")


def paper_contrasts(name: str) -> list[dict[str, Any]]:
    """`groupeval-mdlm` (ten cells of 128, five judges) or `groupeval-didi` (ten of 40, three)."""
    if name not in PAPERS:
        raise unknown_name("table of the paper", name, PAPERS)
    return [paper.with_interval(row) for row in paper.table(name).records()]


def contrast(judgments: Judgments, standard: str, sharpened: str) -> dict[str, Any]:
    """GEQ and GED of two cells of one series, the difference of GEQ, and the diagnostics of GED."""
    from strop.groupeval.bootstrap import compare
    from strop.groupeval.scores import diagnose

    beside_ged = {
        f"{key}_{setting}": value
        for setting, name in (("standard", standard), ("sharpened", sharpened))
        for key, value in diagnose(judgments.cells[name], modes=judgments.modes).items()
        if key in BESIDE_GED
    }
    pair = compare(judgments.only(standard), judgments.only(sharpened))["pairs"]
    [row] = pair
    return {
        "geq_standard": row["geq_a"],
        "geq_sharpened": row["geq_b"],
        "difference": row["geq_difference"],
        "excludes_zero": row["geq_interval_excludes_zero"],
        "ged_standard": row["ged_a"],
        "ged_sharpened": row["ged_b"],
        **beside_ged,
    }


def _run(ask: Ask) -> Result:
    model = points.load(ask, ask.sources[0])
    named, left_out = points.named_points(model.spec.family, ask["sampler"], SETTINGS)
    names = [(m, name) for m in ask["steps"] for name in named]
    drawn = points.draw(ask, model, [(m, named[name]) for m, name in names], ask.out / RUNS[0])
    texts = {
        f"{name} {m}": points.texts_of(cell, ask["n"])
        for (m, name), cell in zip(names, drawn, strict=True)
    }
    levels = _levels(ask["steps"], points.score(ask, model, drawn))
    how = ask.some("seed", "partition")
    series = points.judge_texts(texts, ask.out / RUNS[1], **how)
    rows = [
        {
            "judge": judge,
            "steps": m,
            **levels[m],
            **contrast(judgments, f"standard {m}", f"sharpened {m}"),
        }
        for judge, judgments in series.items()
        for m in ask["steps"]
    ]
    facts = {"generator": ask.sources[0], "outputs_per_cell": ask["n"], **summary(rows)}
    title = f"{ask.sources[0]}: standard against sharpened, by judge"
    notes = (
        *left_out,
        RUBRIC,
        parameters.grouping(ask["partition"]),
        _saturates(),
        *((SMOKE_NOTE,) if ask.smoke else ()),
    )
    more = {"diagnostics": _diagnostics(rows)}
    settings = ask.said(checkpoint=ask.sources[0])
    return Result(settings, Table(title, COLUMNS, rows), more, facts, notes)


def _levels(steps: Sequence[int], scored: Sequence[Measured]) -> dict[int, dict[str, Any]]:
    """Perplexity and entropy of both pools by budget; cells come standard first."""
    return {
        m: {
            f"{name}_{setting}": value
            for setting, cell in zip(SETTINGS, scored[2 * i : 2 * i + 2], strict=True)
            for name, value in (("perplexity", cell.perplexity()), ("entropy", cell.entropy))
        }
        for i, m in enumerate(steps)
    }


def _diagnostics(rows: Sequence[Contrast]) -> Table:
    """The diagnostics that belong to GED, a line per judge, budget and sampler."""
    lines = [
        {
            "judge": row["judge"],
            "steps": row["steps"],
            "sampler": setting,
            "ged": row[f"ged_{setting}"],
            **{name: row[f"{name}_{setting}"] for name in BESIDE_GED},
        }
        for row in rows
        for setting in SETTINGS
    ]
    columns = (Column("judge"), Column("steps", "M"), Column("sampler"))
    columns += (Column("ged", "GED", digits=3), *BESIDE_GED.values())
    return Table("Beside GED", columns, lines)


def _saturates() -> str:
    from strop.groupeval.scores import saturation

    size = points.GROUP
    chance, _ = saturation(size, 100)
    return (
        f"A group of {size} from 100 equal modes has GED 10 in {chance:.0%} of cases: where "
        "many groups are at the ceiling, GED does not tell more modes from fewer."
    )


# ---------------------------------------------------------------- what the paper concludes


def _gap(row: Contrast, score: Score) -> float:
    return row[f"{score}_sharpened"] - row[f"{score}_standard"]


def _judges(rows: Sequence[Contrast]) -> list[str]:
    return list(dict.fromkeys(row["judge"] for row in rows))


def sign_counts(rows: Sequence[Contrast]) -> dict[str, Any]:
    """In how many of the judge-budget pairs the sharpened sampler scores higher."""
    rows = [row for row in rows if row["steps"] >= PRIMARY]
    clear = [row["difference"].value for row in rows if row["excludes_zero"]]

    def higher(score: Score, judge: str | None = None, sign: int = 1) -> int:
        matching = [row for row in rows if judge in (None, row["judge"])]
        return sum(sign * _gap(row, score) > 0 for row in matching)

    return {
        "pairs": len(rows),
        **{f"{score}_higher": higher(score) for score in SCORES},
        **{f"{score}_lower": higher(score, sign=-1) for score in SCORES},
        "intervals_above_zero": sum(gap > 0 for gap in clear),
        "intervals_below_zero": sum(gap < 0 for gap in clear),
        "by_judge": {
            judge: {f"{score}_higher": higher(score, judge) for score in SCORES}
            | {"pairs": sum(row["judge"] == judge for row in rows)}
            for judge in _judges(rows)
        },
    }


def step_savings(rows: Sequence[Contrast], *, few: int = 256, many: int = 1024) -> dict[str, Any]:
    """Sharpened at few steps against standard at many, by judge."""
    judges = {}
    for judge in _judges(rows):
        by_steps = {row["steps"]: row for row in rows if row["judge"] == judge}
        if few in by_steps and many in by_steps:
            pairs = {
                k: (by_steps[many][f"{k}_standard"], by_steps[few][f"{k}_sharpened"])
                for k in SCORES
            }
            judges[judge] = {score: list(pair) for score, pair in pairs.items()}
            judges[judge] |= {f"{k}_higher": fast > slow for k, (slow, fast) in pairs.items()}
    higher = {
        f"{k}_higher": sum(outcome[f"{k}_higher"] for outcome in judges.values()) for k in SCORES
    }
    return {"few": few, "many": many, "judges": judges, **higher, "of": len(judges)}


def judge_correlations(
    rows: Sequence[Contrast], *, judges: Sequence[str] | None = None
) -> dict[str, Any]:
    """Spearman's correlation of two judges across the sampler-budget cells, for every pair."""
    from strop.groupeval.trust import spearman

    def cells(judge: str, score: Score) -> list[float]:
        of_judge = [row for row in rows if row["judge"] == judge]
        return [row[f"{score}_{which}"] for row in of_judge for which in SETTINGS]

    pairs = [
        {"a": first, "b": second}
        | {score: spearman(cells(first, score), cells(second, score)) for score in SCORES}
        for first, second in combinations(judges or _judges(rows), 2)
    ]
    return {"n_cells": len(cells(_judges(rows)[0], "geq")), "pairs": pairs}


def summary(rows: Sequence[Contrast]) -> dict[str, Any]:
    """All conclusions for one generator."""
    return {
        "judges": _judges(rows),
        "sign_counts": sign_counts(rows),
        "step_savings": step_savings(rows),
        "judge_correlations": judge_correlations(rows),
    }


# ---------------------------------------------------------------- the figure

ACROSS = 3


def _draw(result: Result) -> Figure:
    return quality_diversity(result.table.rows)


def quality_diversity(rows: Sequence[Contrast]) -> Figure:
    """One small plot per judge, from standard to sharpened; GED across, GEQ upwards."""
    from strop.figures import panels, shades

    judges = _judges(rows)
    budgets = sorted({row["steps"] for row in rows})
    colours = dict(zip(budgets, shades(len(budgets)), strict=True))
    across = min(ACROSS, len(judges))
    lines = math.ceil(len(judges) / across)
    wide, high = max(1, 2 * across / ACROSS), 0.9 + 2.0 * lines
    figure, grid = panels(lines, high, across, wide, sharex=True, sharey=True)
    for axes, judge in zip(grid, judges, strict=False):
        for row in (entry for entry in rows if entry["judge"] == judge):
            if row["ged_standard"] is None or row["ged_sharpened"] is None:
                continue
            ged, geq = ([row[f"{score}_{which}"] for which in SETTINGS] for score in ("ged", "geq"))
            colour = colours[row["steps"]]
            axes.plot(ged, geq, "-", lw=1.0, color=colour)
            # The open end is standard, the full end sharpened.
            axes.plot(ged[0], geq[0], "o", ms=4, mfc="white", mec=colour, mew=1.1, zorder=3)
            axes.plot(ged[1], geq[1], "o", ms=4, color=colour, zorder=3)
        axes.set_title(judge, loc="left")
        axes.set(
            xlim=(-0.6, 10.6), ylim=(-0.6, 10.6), xticks=range(0, 11, 5), yticks=range(0, 11, 2)
        )
    for axes in grid[len(judges) :]:
        axes.set_axis_off()
    for number, axes in enumerate(grid[: len(judges)]):
        # The lowest plot of each column carries the axis.
        axes.tick_params(labelbottom=number + across >= len(judges))
    figure.legend(
        *_legend(colours),
        loc="outside upper center",
        handlelength=1,
        ncols=min(1 + 2 * across, 2 + len(colours)),
    )
    figure.supxlabel("GED: do the outputs differ?", fontsize=8)
    figure.supylabel("GEQ: is each output good?", fontsize=8)
    return figure


def _legend(colours: Mapping[int, Any]) -> tuple[list[Any], list[str]]:
    from matplotlib.lines import Line2D

    def point(colour: Any, full: bool) -> Line2D:
        fill = colour if full else "white"
        return Line2D([], [], marker="o", ls="", ms=4, mec=colour, mfc=fill)

    handles = [point("black", False), point("black", True)]
    handles += [point(colour, True) for colour in colours.values()]
    return handles, [*SETTINGS, *(f"{m:,} steps" for m in colours)]


def _beside(name: str) -> Any:
    """Rows of the paper's judges, then rows of those that judged here: never both in one."""

    def table(result: Result, *_: Any) -> Table:
        rows = [
            {**_with_levels(row, f"{row['judge']} (paper)"), "paper": row["difference"]}
            for row in paper_contrasts(name)
        ]
        for row in result.table.rows:
            named = _with_levels(row, f"{row['judge']} (here)")
            rows.append({**named, "measured": row["difference"]})
        rows = [{"paper": None, "measured": None, **row} for row in rows]
        keys = (Column("judge"), Column("steps", "M"))
        return paper.beside("GEQ, sharpened minus standard; each judge by itself", keys, rows)

    return table


def _beside_main(result: Result, *_: Any) -> Table:
    """Table 2A: four numbers of two samplers at every budget, and what the text prints beside GED.

    The paper's judge and ours have different scales; both are shown as they are.
    """
    printed = paper.table("groupeval-main").by("steps")
    beside_ged = paper.table("groupeval-diagnostics").by(
        "what", "sampler", "steps", generator="MDLM-Small", judge="GPT-OSS"
    )
    rows = []
    for row in result.table.rows:
        printed_row = printed.get((row["steps"],), {})
        for name, label in MAIN.items():
            for setting in SETTINGS:
                at = (name, setting, row["steps"])
                published = printed_row.get(f"{name}_{setting}")
                published = beside_ged.get(at, {}).get("low") if published is None else published
                measured = row[f"{name}_{setting}"]
                if published is None and name in BESIDE_GED:
                    continue
                keys = {"judge": row["judge"], "steps": row["steps"], "number": label}
                row_ = {**keys, "sampler": setting, "paper": published, "measured": measured}
                if name in JUDGED:  # another judge and another rubric: no noise to compare by
                    row_["within"] = None
                else:
                    cell = {"temperature": 1.0, "precision": "float64", **SETTINGS[setting]}
                    cell["steps"] = row["steps"]
                    row_["elsewhere"] = elsewhere("MDLM-Small", cell, name)
                rows.append(row_)
    keys = (Column("judge"), Column("steps", "M"), Column("number"), Column("sampler"))
    title = "the same pools; the paper's judge is gpt-oss-120b"
    return paper.beside(title, keys, rows, outputs=128, log=True)


MAIN = {"perplexity": "perplexity", "entropy": "H", "geq": "GEQ", "ged": "GED"}
MAIN |= {"invalid_rate": "invalid share", "effective_modes": "effective modes"}
"""The numbers of table 2A and of the sentences below it."""
JUDGED = ("geq", "ged", *BESIDE_GED)


def _with_levels(row: Contrast, judge: str) -> dict[str, Any]:
    """A judge's row with its levels in words; judges are never compared, so no noise is given."""
    ged_column = next(column for column in COLUMNS if column.name == "ged_sharpened")
    levels = {}
    for name in ("geq", "ged"):
        pair = (row[f"{name}_standard"], row[f"{name}_sharpened"])
        levels[name] = " to ".join(ged_column.text(value) for value in pair)
    return {"judge": judge, "steps": row["steps"], **levels, "within": None}


STUDY = Study(
    name="groupeval",
    title="Judged quality and diversity, standard against sharpened",
    about="Sample CHECKPOINT by a standard and a sharpened sampler, judge both in groups of eight, "
    "and compare, budget by budget.",
    parameters=(
        parameters.steps(4, 16, 64, 256, 1024, smoke=(4, 16, 64)),
        parameters.outputs(128, smoke=32, words="Outputs per cell; a multiple of 8."),
        parameters.evaluator(),
        parameters.PARTITION,
        parameters.SAMPLER,
        parameters.LENGTH,
        *parameters.SCORED,
    ),
    run=_run,
    check=points.check_groups,
    draw=_draw,
    runs=RUNS,
    next=points.judge_command,
    examples=("strop study groupeval --steps 16 -n 32 -o runs/judged",),
    items=(
        paper.item("groupeval-main", _beside_main),
        *(paper.item(name, _beside(name)) for name in ("groupeval-mdlm", "groupeval-didi")),
    ),
)
