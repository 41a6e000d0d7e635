"""strop groupeval score, compare, agree and reliability: what judgments say and are worth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.disk import write
from strop.errors import UserError
from strop.groupeval.scores import (
    CEILING,
    COPIED,
    FACTOR_COLUMNS,
    LARGEST,
    NAMED,
    current_scores,
    decision,
    differences,
    judged_sentence,
    share_column,
    sides_of,
)
from strop.runtime import MOST_REPLICATES, bounded
from strop.stats.interval import value_of
from strop.table import Column, Table
from strop.verbs.parameters import argument
from strop.verbs.verb import Ask, Parameter, Result, Strong, Verb, grid, quoted

if TYPE_CHECKING:
    from strop.groupeval.judgments import Judgments
    from strop.stats.interval import Interval

JUDGED = "A run directory (RUN@SERIES for one of its judges), or a .jsonl of judgments."
SIDE = "RUN or FILE.jsonl, RUN@SERIES, and :CELL behind it for one cell."
OFFLINE = (
    "The offline judge counts words and letters. It shows how everything works; its numbers are no "
    "evidence of quality."
)
REPLICATES = Parameter.count(
    "replicates", "Draws of the Bayesian bootstrap: how GED moves.", 10_000
)


def _seed(words: str) -> Parameter:
    return Parameter("seed", words, 0, "int", least=-(2**63), most=2**63)


def _score(ask: Ask) -> Result:
    from strop.groupeval.by_prompt import write_novelty
    from strop.groupeval.judgments import load_judgments, open_series, portable_text, where_is

    bounded("`replicates`", ask["replicates"], MOST_REPLICATES, "10,000 are the default")
    names = _judges(ask)
    judged = [load_judgments(name) for name in names]
    scores = [_score_judge(ask, judgments) for judgments in judged]
    notes, extra = _worth(ask, names, judged, scores)
    remarks = _copies(names[0], scores)
    for name, judgments, result in zip(names, judged, scores, strict=True):
        if judgments.from_plan and judgments.source == name:  # all cells of a run
            remarks += _keep(name, result)
    if ask["portable"] is not None:  # as a file that others read
        write(Path(ask["portable"]), portable_text(judged[0].verdicts).encode())
        remarks.append(f"wrote {len(judged[0].verdicts)} judgments to {ask['portable']}")
    if ask["novelty"] is not None:
        if not Path(where_is(names[0])).is_dir():
            raise UserError(
                "A file of judgments has no texts.", where="`novelty`", expected="a run directory"
            )
        files = write_novelty(Path(ask["novelty"]), open_series(names[0]))
        remarks.append(f"wrote {len(files)} files of NoveltyBench's form below {ask['novelty']}")
    if any(not j.by_prompt and len({c.size for c in j.cells.values()}) > 1 for j in judged):
        remarks.append("note: the cells have different group sizes; their GED are not comparable")
    tables = [_table(judgments, result) for judgments, result in zip(judged, scores, strict=True)]
    cells = [quoted(f"{judged[0].source}:{cell}") for cell in list(scores[0]["cells"])[:2]]
    sides = " ".join(cells) if len(cells) == 2 else f"{quoted(judged[0].source)} OTHER"
    extra |= _conditional(scores[0]["conditional"]) if "conditional" in scores[0] else {}
    return Result(
        table=tables[0],
        more=dict(zip(names[1:], tables[1:], strict=True)) | extra,
        facts={"answer": [judged_sentence(table) for table in tables]},
        notes=(*_notes(judged, scores, tables), *notes),
        json=scores[0] if len(scores) == 1 else {"judges": scores},
        remarks=tuple(remarks),
        next=f"strop groupeval compare {sides}",
        value=scores[0] if len(scores) == 1 else scores,
    )


CORRECTED = (
    Column("generator"),
    Column("geq", "GEQ, corrected", digits=3),
    Column("people_alone", digits=3),
    Column("judge_alone", digits=3),
    Column("weight", digits=2),
    Column("width_over_people_alone", "width over people alone", digits=2),
    Column("n_graded", "graded"),
)


def _worth(
    ask: Ask, names: list[str], judged: list[Judgments], scores: list[dict[str, Any]]
) -> tuple[list[str], dict[str, Table]]:
    """The judges' cards, and their scores corrected by a person's grades."""
    from strop.groupeval.validation import card_of, card_words

    notes: list[str] = []
    tables: dict[str, Table] = {}
    for name, judgments, result in zip(names, judged, scores, strict=True):
        if judgments.judge is not None and judgments.judge.kind != "human" and judgments.modes:
            card = card_of(judgments.judge, ask["card"])
            result["card"] = card
            notes.append(card_words(card, judgments.judge.title, judgments.profile))
        if ask["person"] is not None:
            from strop.groupeval.judgments import open_series, where_is
            from strop.groupeval.labelled import correct_series, corrected_words

            person = open_series(where_is(name), ask["person"])
            corrected = correct_series(open_series(name), person, seed=ask["seed"])
            result["corrected"] = corrected
            rows = [{"generator": cell, **row} for cell, row in corrected["cells"].items()]
            title = f"{corrected['judge']}, corrected by {corrected['person']}"
            tables[f"corrected {name}"] = Table(title, CORRECTED, rows)
            notes += corrected_words(corrected)
    return notes, tables


def _copies(name: str, scores: list[dict[str, Any]]) -> list[str]:
    """Count a run's texts that are copies of others beside every judge's scores, and warn."""
    from strop.groupeval.judgments import open_series, where_is
    from strop.verbs.groupeval_verbs import copied_texts, copy_warnings

    if not Path(where_is(name)).is_dir():
        return []  # a file of judgments has no texts
    series = open_series(name)
    if series.profile.kind != "unconditional":
        return []  # copies among the answers to a prompt are in one group
    cells = [cell for cell in series.plan.cells if cell in scores[0]["cells"]]
    copies = {cell: copied_texts(series.texts(cell)) for cell in cells}
    for cell, (exact, near) in copies.items():
        share = (exact + near) / series.plan.cells[cell]
        for result in scores:
            counts = {"n_exact_copies": exact, "n_near_copies": near, "copied_share": share}
            result["cells"].get(cell, {}).update(counts)
    return [f"warning: {warning}" for warning in copy_warnings(copies, series.plan)]


def kept_scores(folder: Path) -> Result:
    """All tables of `strop groupeval score` for a directory, judge by judge."""
    from strop.groupeval.judgments import load_judgments
    from strop.groupeval.series import list_series

    tables: dict[str, Table] = {}
    all_series = list_series(folder)
    for series in all_series:
        judgments = load_judgments(f"{folder}@{series.id}")
        scores = current_scores(series, judgments)
        if scores is not None:
            judge_tables = {"scores": _table(judgments, scores), "differences": differences(scores)}
            judge_tables |= _conditional(scores["conditional"]) if "conditional" in scores else {}
            whose = f"-{series.id}" if len(all_series) > 1 else ""
            tables |= {f"{name}{whose}": table for name, table in judge_tables.items()}
    if not tables:
        raise UserError(
            "No judge of this directory has been scored, or not since it was judged.",
            where=folder,
            fix=f"strop groupeval score {quoted(str(folder))}",
        )
    return Result(more=tables)


def _judges(ask: Ask) -> list[str]:
    """The one that is named, or every judge of a run."""
    from strop.groupeval.series import list_series

    named, series = ask["judged"], ask["series"]
    if series is not None:
        return [f"{named}@{series}"]
    all_series = list_series(named) if Path(named).is_dir() else []
    if ask["person"] is not None and all_series:
        all_series = [judge for judge in all_series if ask["person"] not in (judge.id, judge.name)]
        return [f"{named}@{judge.id}" for judge in all_series] or [named]
    if len(all_series) < 2:
        return [named]
    alone = [name for name in ("labels", "portable", "novelty") if ask[name] is not None]
    if alone:
        raise UserError(
            "Several judges have judged this plan; name one.",
            where=f"`{alone[0]}`",
            expected=", ".join(f"{judge.name} ({judge.id})" for judge in all_series),
            fix=f"use `series={all_series[0].id}`",
        )
    return [f"{named}@{judge.id}" for judge in all_series]


def _score_judge(ask: Ask, judgments: Judgments) -> dict[str, Any]:
    from strop.groupeval.bootstrap import against_first, score

    settings = ask.some("replicates", "seed")
    total = settings["replicates"] * len(judgments.cells)
    with ask.bars.share(f"scoring {judgments.source}", total) as advance:
        scores = score(judgments, **settings, told=advance)
    scores["differences"] = against_first(judgments)
    if ask["labels"] is not None:
        from strop.groupeval.labelled import conditional, label, read_labels

        data = label(judgments, read_labels(ask["labels"]))
        scores["conditional"] = conditional(data, **settings)
    return scores


def _keep(name: str, scores: dict[str, Any]) -> list[str]:
    """The result beside the journal that it follows from."""
    from strop.groupeval.judgments import open_series

    remarks, series = [], open_series(name)
    if (warning := series.other_models()) is not None:
        remarks.append(f"warning: {series.name}: {warning}")
    try:
        series.write_result(scores)
    except UserError as error:  # a run that may only be read is scored all the same
        remarks.append(f"note: the result is not kept in the run: {error.what}")
    return remarks


def _table(judgments: Judgments, scores: dict[str, Any]) -> Table:
    """One judge's scores, a row per generator."""
    judge = judgments.judge
    who = "an unnamed judge" if judge is None else judge.title
    cells = scores["cells"]
    hidden = HIDDEN if judgments.by_prompt else ()
    columns = [
        column
        for column in COLUMNS
        if column.name not in hidden and any(_has(cell, column.name) for cell in cells.values())
    ]
    rows = [
        {
            "generator": name,
            "judged": f"{cell['n_groups']} of {cell['n_groups_asked']}",
            **{key: value for key, value in cell.items() if not isinstance(value, (dict, list))},
            "possible": _bounds(cell),
        }
        for name, cell in cells.items()
    ]
    return Table(f"Judged by {who}", tuple(columns), rows)


def _has(cell: dict[str, Any], name: str) -> bool:
    if name == "possible":
        return cell["n_groups"] < cell["n_groups_asked"]
    return name in ("generator", "judged", "geq") or cell.get(name) is not None


def _notes(judged: list[Judgments], scores: list[dict[str, Any]], tables: list[Table]) -> list[str]:
    """What the columns mean, and caveats about the numbers."""
    explained = dict.fromkeys(column for table in tables for column in table.columns if column.help)
    notes = [" ".join(f"{column.heading}: {column.help}" for column in explained)]
    if any(not judgments.modes for judgments in judged):
        notes.append("These judgments have no modes, so there is no GED.")
    if any(
        judgments.judge is not None and judgments.judge.kind == "offline" for judgments in judged
    ):
        notes.append(OFFLINE)
    if any(judgments.by_prompt for judgments in judged):
        notes.append("Each prompt counts once; the 95% intervals are over prompts.")
    return notes + [
        f"{name}: {score.upper()}, {cell[f'{score}_interval_mind']}"
        for result in scores
        for name, cell in result["cells"].items()
        for score in ("geq", "ged")
        if cell.get(f"{score}_interval_mind") and (cell["geq"].bounded or "n_prompts" in cell)
    ]


def _conditional(result: dict[str, Any]) -> dict[str, Table]:
    by_generator = zip(
        result["generators"], result["cgeq"], result["auroc_by_generator"], strict=True
    )
    rows = [
        [
            name,
            f"{result['success'][i]:.1%}",
            *(" ".join(_value_and_ends(interval)) for interval in pair),
        ]
        for i, (name, *pair) in enumerate(by_generator)
    ]
    over_both = [
        [name, *_value_and_ends(result[key]), str(result[count])]
        for name, key, count in (
            ("GEQ, second minus first", "cgeq_difference", "n_prompts"),
            ("AUROC", "auroc", "n_prompts"),
            ("passed minus failed, one of two passed", "discordant", "n_discordant"),
            ("how often the one that passed is preferred", "preferred", "n_discordant"),
        )
    ]
    each = grid(["generator", "success", "conditional GEQ", "AUROC"], rows)
    overall = grid(["over both", "value", "95% interval", "prompts"], over_both)
    return {
        "labels": replace(each, title="Against labels"),
        "labels_over_both": replace(overall, title="Against labels, over both"),
    }


UNSURE = "groups that the judge sorted without being sure."
COLUMNS = (
    Column("generator"),
    Column("judged", help="groups with a verdict, of those planned."),
    Column("geq", "GEQ", digits=3, help="quality, 0 to 10, and its 95% interval."),
    Column("ged", "GED", digits=3, help="diversity, 0 to 10."),
    Column("ged_interval", "GED", digits=3, help="diversity of a prompt's answers, 0 to 10."),
    *FACTOR_COLUMNS,
    COPIED,
    LARGEST,
    CEILING,
    share_column("non_high_confidence_rate", "unsure", UNSURE),
    Column("possible", help="where the scores may still go when the missing groups are judged."),
)


HIDDEN = ("ged", "dominant_share", "ceiling_rate", "non_high_confidence_rate")
"""Columns hidden for answers to prompts: others give them with an interval, or only JSON does."""


def _bounds(cell: dict[str, Any]) -> str:
    if cell["n_groups"] == cell["n_groups_asked"]:
        return "complete"
    bounds = {name.upper(): cell[f"{name}_bounds"] for name in ("geq", "ged")}
    ends = [f"{name} [{b[0]:.2f}, {b[1]:.2f}]" for name, b in bounds.items() if b is not None]
    return ", ".join(ends)


def _number(value: Interval | float | None) -> str:
    """Two decimals, or a dash where there is no value."""
    value = value_of(value)
    return "-" if value is None else f"{value:.2f}"


def _value_and_ends(interval: Interval | None) -> list[str]:
    """Value and ends in two decimals, or dashes."""
    return [
        _number(interval),
        "-" if interval is None or not interval.bounded else interval.span(".2f"),
    ]


def _compare(ask: Ask) -> Result:
    from strop.groupeval.bootstrap import compare
    from strop.groupeval.judgments import load_judgments, where_is

    sides = [load_judgments(ask[side]) for side in ("a", "b")]
    runs = list(dict.fromkeys(where_is(side.source) for side in sides))
    compared = compare(*sides)
    unchecked = " and ".join(compared["unchecked"])
    remark = f"note: a file of judgments does not name its {unchecked}; check that they match"
    several = len(compared["pairs"]) > 1
    rows = [
        [*([" → ".join(dict.fromkeys((row["cell_a"], row["cell_b"])))] if several else []), *line]
        for row in compared["pairs"]
        for line in _numbers(row)
    ]
    heads = ["A", "B"] if several else list(sides_of(compared["pairs"][0], compared))
    titles = [*(["A → B"] if several else []), "", *heads, "B minus A [95%]"]
    notes = [note for row in compared["pairs"] for note in _caveats(row)]
    if any(side.judge is not None and side.judge.kind == "offline" for side in sides):
        notes.append(OFFLINE)
    answer = [decision(row, compared) for row in compared["pairs"][:NAMED]]
    if len(compared["pairs"]) > NAMED:
        answer.append(f"{len(compared['pairs']) - NAMED} more pairs are in the table.")
    return Result(
        parts=(grid(titles, rows), *notes, "", *map(Strong, answer)),
        json={**compared, "answer": answer},
        remarks=(remark,) if unchecked else (),
        next=f"strop report {' '.join(map(quoted, runs))} -o {quoted(runs[0])}.html",
        value=compared,
    )


def _caveats(row: dict[str, Any]) -> list[str]:
    """Caveats about the numbers of one pair."""
    who = f"{row['cell_a']} → {row['cell_b']}"
    notes = [
        f"{who}: {name.upper()}, {row[f'{name}_interval_mind']}"
        for name in ("geq", "ged")
        if row.get(f"{name}_interval_mind")
    ]
    if "n_prompts" in row:
        apart = row["n_prompts_left_out"]
        notes.append(f"{row['n_prompts']} prompts in common; {apart} are not compared")
    return notes


def _numbers(row: dict[str, Any]) -> list[list[str]]:
    """One pair's scores, what moves GED, and what they rest on: A, B, and B minus A."""
    lines = [
        ["GEQ", *(_number(row[f"geq_{side}"]) for side in "ab"), f"{row['geq_difference']:+.2f}"]
    ]
    if row["ged_difference"] is not None:
        sides = [_number(row[f"ged_{side}"]) for side in "ab"]
        between = row.get("ged_difference_interval") or row["ged_difference"]
        lines.append(["GED", *sides, f"{between:+.2f}"])
    for column in FACTOR_COLUMNS:
        a, b = (row.get(f"{column.name}_{side}") for side in "ab")
        if a is None or b is None:
            continue
        between = row.get(f"{column.name}_difference", b - a)
        moved = replace(column, signed=True).entry({column.name: between}).line
        lines.append(
            [column.heading, column.text(a), column.text(b), moved.replace("\N{MINUS SIGN}", "-")]
        )
    judged = [f"{row[f'n_groups_{side}']} of {row[f'n_groups_asked_{side}']}" for side in "ab"]
    return [*lines, ["groups judged", *judged, ""]]


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
    counted = f"{agreement['n_groups']} of {agreement['n_groups_asked']} groups"
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
            f"{counted}, {agreement['n_outputs']} graded outputs that all judges have in common",
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
    result = reliability(open_series(ask["run"], ask["series"]), seed=ask["seed"])
    again = f"strop groupeval judge {run} ... --repeats 2"
    return Result(
        parts=(grid(["what", "value"], _reliability_rows(result)),),
        json=result,
        next=f"strop groupeval score {run}" if result["repeats"] else again,
        value=result,
    )


def _reliability_rows(result: dict[str, Any]) -> list[list[str]]:
    rows = [["groups judged", f"{result['n_groups']} of {result['n_groups_asked']}"]]
    for number, repeat in enumerate(result["repeats"], 1):
        rows += _repeat(f"repeat {number}", repeat)
    if not result["repeats"]:
        rows.append(["repeats", "none asked for: the judge's noise is unknown"])
    controls = result["controls"]
    rows.append(["controls judged", f"{controls['n_groups']} of {result['n_controls_asked']}"])
    if controls["n_groups"]:
        rows += [[name.replace("_", " "), _number(controls[name])] for name in list(controls)[1:]]
    positions = result["positions"]
    if positions:
        means = " ".join(f"{mean:.2f}" for mean in positions["mean_quality"])
        rows.append(["quality by position", means])
        rows.append(["position effect, p-value", f"{positions['p_value']:.3f}"])
    for name, length in result["lengths"].items():
        rows.append([f"length and quality, {name}", _number(length["spearman"])])
    return rows


def _repeat(name: str, repeat: dict[str, Any]) -> list[list[str]]:
    if not repeat["n_groups"]:
        return [[name, "no group judged twice"]]
    rows = [
        [f"{name}: groups judged twice", str(repeat["n_groups"])],
        [f"{name}: grades equal", _number(repeat["grades_equal"])],
        [f"{name}: mean change of quality", _number(repeat["quality_mean_abs_change"])],
        [f"{name}: alpha of quality", _number(repeat["quality_alpha"])],
    ]
    if repeat["modes"]:
        rows.append([f"{name}: modes, adjusted Rand", _number(repeat["modes"]["adjusted_rand"])])
    return rows


SCORE = Verb(
    name="score",
    help="GEQ with its interval, GED and the diagnostics of every cell, from what was judged.\n\n"
    "Reads judgments only: scoring again costs nothing. Of a run with several judges, each by "
    "itself.",
    parameters=(
        argument("judged", "RUN|FILE.jsonl", JUDGED),
        Parameter("series", "Which judge of a run, as RUN@SERIES says too."),
        Parameter(
            "labels",
            'Whether responses passed, as lines {"cell": ..., "index": ..., "success": ...}.',
        ),
        Parameter("portable", "Also write the judgments to this .jsonl file."),
        Parameter("novelty", "Also write NoveltyBench's files of answers to this directory."),
        Parameter(
            "person",
            "A person's series on groups drawn by --label-first: GEQ corrected by its grades.",
            flags=("--with", "--person"),
        ),
        Parameter("card", "The judge's card, as `strop groupeval validate -o DIR` writes it."),
        REPLICATES,
        _seed("Seed of the bootstrap's weights."),
    ),
    run=_score,
    examples=("strop groupeval score runs/ge",),
)
COMPARE = Verb(
    name="compare",
    help="B minus A: GEQ with a 95% interval; GED with one where prompts are paired.\n\n"
    "Refuses different profiles, judges and group sizes. Without :CELL it pairs cells by name.",
    parameters=(argument("a", "A", SIDE), argument("b", "B", SIDE)),
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
        _seed("Seed of the permutation test."),
    ),
    run=_reliability,
    examples=("strop groupeval reliability runs/ge",),
)
