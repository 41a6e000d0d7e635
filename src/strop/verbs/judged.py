"""strop groupeval score, compare, agree and reliability: what judgments say and are worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.bounds import MOST_REPLICATES, bounded
from strop.errors import UserError
from strop.verbs.parameters import argument
from strop.verbs.result import Part, Result, grid
from strop.verbs.verb import Ask, Parameter, Verb, quoted

if TYPE_CHECKING:
    from strop.groupeval.judgments import Judgments
    from strop.stats.interval import Interval

JUDGED = "A run directory (RUN@SERIES if it has several series), or a .jsonl of judgments."
SIDE = "RUN or FILE.jsonl, RUN@SERIES, and :CELL behind it for one cell."
REPLICATES = Parameter(
    "replicates", "Draws of the Bayesian bootstrap: how GED moves.", 10_000, "int", least=1
)


def _seed(words: str) -> Parameter:
    return Parameter("seed", words, 0, "int", least=-(2**63), most=2**63)


def _score(ask: Ask) -> Result:
    from strop.groupeval.bootstrap import score
    from strop.groupeval.judgments import load_judgments

    settings = ask.some("replicates", "seed")
    bounded("`replicates`", settings["replicates"], MOST_REPLICATES, "10,000 are the default")
    judged = ask["judged"] if ask["series"] is None else f"{ask['judged']}@{ask['series']}"
    judgments = load_judgments(judged)
    total = settings["replicates"] * len(judgments.cells)
    with ask.bars.share(f"scoring {judged}", total) as told:
        scores = score(judgments, **settings, told=told)
    if ask["labels"] is not None:
        from strop.groupeval.labelled import conditional, label, read_labels

        data = label(judgments, read_labels(ask["labels"]))
        scores["conditional"] = conditional(data, **settings)
    remarks = _keep(judged, judgments, scores, ask["portable"])
    if not judgments.modes:
        remarks.append("note: these judgments have no modes, so there is no GED")
    if len({cell.size for cell in judgments.cells.values()}) > 1:
        remarks.append("note: the cells have different group sizes; their GED are not comparable")
    cells = [quoted(f"{judged}:{cell}") for cell in list(scores["cells"])[:2]]
    both = " ".join(cells) if len(cells) == 2 else f"{quoted(judged)} OTHER"
    return Result(
        parts=_score_parts(scores),
        json=scores,
        remarks=tuple(remarks),
        next=f"strop groupeval compare {both}",
        value=scores,
    )


def _keep(
    judged: str, judgments: Judgments, scores: dict[str, Any], portable: str | None
) -> list[str]:
    """The result beside the journal that it follows from; the judgments where they are wanted."""
    from strop.disk import write
    from strop.groupeval.judgments import open_series
    from strop.groupeval.portable import text

    remarks = []
    if portable is not None:
        write(Path(portable), text(judgments.verdicts).encode())
        remarks.append(f"wrote {len(judgments.verdicts)} judgments to {portable}")
    if judgments.from_plan and judgments.source == judged:  # all cells of a run
        series = open_series(judged)
        if (warning := series.other_models()) is not None:
            remarks.append(f"warning: {warning}")
        try:
            series.write_result(scores)
        except UserError as error:  # a run that may only be read is scored all the same
            remarks.append(f"note: the result is not kept in the run: {error.what}")
    return remarks


def _score_parts(scores: dict[str, Any]) -> tuple[Part, ...]:
    rows = [
        [
            name,
            f"{cell['n_groups']} of {cell['n_groups_asked']}",
            _value(cell["geq"]),
            _beside(cell),
            _number(cell["ged"]),
            *(_number(cell.get(key)) for key in _COLUMNS),
            _bounds(cell),
        ]
        for name, cell in scores["cells"].items()
    ]
    titles = ["cell", "groups judged", "GEQ", "95% interval", "GED", *_COLUMNS.values(), "possible"]
    words = (
        "GEQ intervals hold for other outputs and other groups of this judge. GED has no interval. "
        '"possible": where GEQ and GED may still go when the missing groups are judged.'
    )
    more = _conditional(scores["conditional"]) if "conditional" in scores else []
    return (grid(titles, rows), words, *more)


def _conditional(told: dict[str, Any]) -> list[Part]:
    by_generator = zip(told["generators"], told["cgeq"], told["auroc_by_generator"], strict=True)
    rows = [
        [name, f"{told['success'][i]:.1%}", *(f"{_value(one)} {_interval(one)}" for one in pair)]
        for i, (name, *pair) in enumerate(by_generator)
    ]
    over_both = [
        [name, _value(told[key]), _interval(told[key]), str(told[count])]
        for name, key, count in (
            ("GEQ, second minus first", "cgeq_difference", "n_prompts"),
            ("AUROC", "auroc", "n_prompts"),
            ("passed minus failed, one of two passed", "discordant", "n_discordant"),
            ("how often the one that passed is preferred", "preferred", "n_discordant"),
        )
    ]
    return [
        grid(["generator", "success", "conditional GEQ", "AUROC"], rows),
        grid(["over both", "value", "95% interval", "prompts"], over_both),
    ]


_COLUMNS = {
    "invalid_rate": "invalid",
    "effective_modes": "modes",
    "dominant_share": "dominant",
    "singleton_rate": "singleton",
    "ceiling_rate": "ceiling",
    "hybrid_rate": "hybrid",
    "non_high_confidence_rate": "not sure",
}


def _bounds(cell: dict[str, Any]) -> str:
    if cell["n_groups"] == cell["n_groups_asked"]:
        return "complete"
    told = f"GEQ {_range(cell['geq_bounds'])}"
    return told if cell["ged_bounds"] is None else f"{told}, GED {_range(cell['ged_bounds'])}"


def _number(value: float | None) -> str:
    """Two decimals, or a dash where there is no value."""
    return "-" if value is None else f"{value:.2f}"


def _beside(row: dict[str, Any], key: str = "geq") -> str:
    """The interval of a GEQ or of a difference, with what must be minded about it."""
    shown, told = _interval(row[key]), row.get("geq_interval_mind")
    return shown if shown == "-" or told is None else f"{shown} ({told})"


def _interval(found: Interval | None) -> str:
    """Its ends in two decimals, or a dash."""
    return "-" if found is None or not found.bounded else found.span(".2f")


def _value(found: Interval | None) -> str:
    return _number(None if found is None else found.value)


def _range(pair: list[float]) -> str:
    return f"[{pair[0]:.2f}, {pair[1]:.2f}]"


def _compare(ask: Ask) -> Result:
    from strop.groupeval.comparison import compare
    from strop.groupeval.judgments import load_judgments

    sides = [load_judgments(ask[side]) for side in ("a", "b")]
    compared = compare(*sides)
    unchecked = " and ".join(compared["unchecked"])
    remark = f"note: a file of judgments does not name its {unchecked}; check that they match"
    rows = [
        [
            row["cell_a"]
            if row["cell_a"] == row["cell_b"]
            else f"{row['cell_a']} → {row['cell_b']}",
            f"{row['n_groups_a']} of {row['n_groups_asked_a']}, "
            f"{row['n_groups_b']} of {row['n_groups_asked_b']}",
            f"{_number(row['geq_a'])} → {_number(row['geq_b'])}",
            f"{row['geq_difference'].value:+.2f} {_beside(row, 'geq_difference')}",
            f"{_number(row['ged_a'])} → {_number(row['ged_b'])}",
            "-" if row["ged_difference"] is None else f"{row['ged_difference']:+.2f}",
        ]
        for row in compared["pairs"]
    ]
    titles = ["A → B", "groups judged", "GEQ", "B minus A [95%]", "GED", "B minus A"]
    return Result(
        parts=(grid(titles, rows),),
        json=compared,
        remarks=(remark,) if unchecked else (),
        next=f"strop groupeval agree {quoted(ask['a'])} OTHER-JUDGE",
        value=compared,
    )


def _agree(ask: Ask) -> Result:
    judges = ask["judges"]
    if len(judges) < 2:
        raise UserError(
            "Agreement needs two judges.",
            where="strop groupeval agree",
            got=judges[0],
            expected="two or more, such as RUN@gpt-oss RUN@human or two files",
        )
    from strop.groupeval.judgments import load_judgments
    from strop.groupeval.trust import agree

    agreement = agree([load_judgments(name) for name in judges])
    asked = f"{agreement['n_groups']} of {agreement['n_groups_asked']} groups"
    modes = {(row["a"], row["b"]): row for row in agreement["modes"] or []}
    rows = []
    for row in agreement["rank_correlations"]:
        mode = modes.get((row["a"], row["b"]), {})
        rand, pairs = _number(mode.get("adjusted_rand")), str(mode.get("n_pairs", "-"))
        ranks = [_number(row["geq"]), _number(row["ged"]), str(row["n_cells"])]
        rows.append([row["a"], row["b"], rand, pairs, *ranks])
    titles = ["A", "B", "modes: adjusted Rand", "pairs", "rank of GEQ", "rank of GED", "cells"]
    alphas = [[name, _number(alpha)] for name, alpha in agreement["alpha"].items()]
    return Result(
        parts=(
            f"{asked}, {agreement['n_outputs']} graded outputs that all judges have in common",
            grid(["grade", "Krippendorff's alpha"], alphas),
            grid(titles, rows),
        ),
        json=agreement,
        next=f"strop groupeval score {judges[0]}",
        value=agreement,
    )


def _reliability(ask: Ask) -> Result:
    from strop.groupeval.judgments import open_series
    from strop.groupeval.trust import reliability

    run = quoted(ask["run"])
    found = reliability(open_series(ask["run"], ask["series"]), seed=ask["seed"])
    again = f"strop groupeval judge {run} ... --repeats 2"
    return Result(
        parts=(grid(["what", "value"], _reliability_rows(found)),),
        json=found,
        next=f"strop groupeval score {run}" if found["repeats"] else again,
        value=found,
    )


def _reliability_rows(found: dict[str, Any]) -> list[list[str]]:
    rows = [["groups judged", f"{found['n_groups']} of {found['n_groups_asked']}"]]
    for number, repeat in enumerate(found["repeats"], 1):
        rows += _repeat(f"repeat {number}", repeat)
    if not found["repeats"]:
        rows.append(["repeats", "none asked for: the judge's noise is unknown"])
    controls = found["controls"]
    rows.append(["controls judged", f"{controls['n_groups']} of {found['n_controls_asked']}"])
    if controls["n_groups"]:
        rows += [[name.replace("_", " "), _number(controls[name])] for name in list(controls)[1:]]
    positions = found["positions"]
    if positions:
        means = " ".join(f"{mean:.2f}" for mean in positions["mean_quality"])
        rows.append(["quality by position", means])
        rows.append(["position effect, p-value", f"{positions['p_value']:.3f}"])
    for name, length in found["lengths"].items():
        rows.append([f"length and quality, {name}", _number(length["spearman"])])
    return rows


def _repeat(name: str, told: dict[str, Any]) -> list[list[str]]:
    if not told["n_groups"]:
        return [[name, "no group judged twice"]]
    rows = [
        [f"{name}: groups judged twice", str(told["n_groups"])],
        [f"{name}: grades equal", _number(told["grades_equal"])],
        [f"{name}: mean change of quality", _number(told["quality_mean_abs_change"])],
        [f"{name}: alpha of quality", _number(told["quality_alpha"])],
    ]
    if told["modes"]:
        rows.append([f"{name}: modes, adjusted Rand", _number(told["modes"]["adjusted_rand"])])
    return rows


SCORE = Verb(
    name="score",
    help="GEQ with its interval, GED and the diagnostics of every cell, from what was judged.\n\n"
    "Reads judgments only: scoring again costs nothing.",
    parameters=(
        argument("judged", "RUN|FILE.jsonl", JUDGED),
        Parameter("series", "Which judge of a run, as RUN@SERIES says too."),
        Parameter(
            "labels",
            'Whether responses passed, as lines {"cell": ..., "index": ..., "success": ...}.',
        ),
        Parameter("portable", "Also write the judgments to this .jsonl file."),
        REPLICATES,
        _seed("Of the bootstrap's weights."),
    ),
    run=_score,
    examples=("strop groupeval score runs/ge",),
)
COMPARE = Verb(
    name="compare",
    help="B minus A: GEQ with a 95% interval, GED without one.\n\n"
    "Refuses different profiles, judges and group sizes. Without :CELL it pairs cells by name.",
    parameters=(
        argument("a", "A", SIDE),
        argument("b", "B", SIDE),
    ),
    run=_compare,
    examples=("strop groupeval compare RUN:standard RUN:sharpened",),
)
AGREE = Verb(
    name="agree",
    help="Agreement of judges of one plan: alpha on grades, adjusted Rand on modes, ranks of "
    "cells.",
    parameters=(argument("judges", "A B...", "Two or more: " + JUDGED, kind="many"),),
    run=_agree,
    examples=("strop groupeval agree RUN@gpt-oss RUN@anna",),
)
RELIABILITY = Verb(
    name="reliability",
    help="Repeated judgments, planted controls, position effects and length, from the journal "
    "alone.",
    parameters=(
        argument("run", "RUN", "A run directory that was judged."),
        Parameter("series", "Which judge, if several have judged the plan."),
        _seed("Of the permutation test."),
    ),
    run=_reliability,
    examples=("strop groupeval reliability runs/ge",),
)
