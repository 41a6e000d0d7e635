"""Judged scores as they are told: what stands beside GED, and what follows from two generators."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strop.table import Column, Table

if TYPE_CHECKING:
    from strop.groupeval.judgments import Judgments
    from strop.groupeval.series import Series
    from strop.stats.interval import Interval


def share_column(name: str, label: str, help: str, digits: int = 2) -> Column:
    """A column of percentages."""
    return Column(name, label, digits=digits, percent=True, help=help)


APART = "pairs of valid texts of a group that are of different kinds."
FACTOR_COLUMNS = (
    share_column("valid_share", "valid", "texts that do not fail.", 3),
    Column("mode_entropy", digits=3, help="of the kinds of the valid texts of a group, in nats."),
    share_column("different_pairs", "pairs apart", APART, 3),
)
"""What stands beside GED, which moves with both: the share of valid texts, and how these differ."""
NAMED = 4
"""Generators that a sentence names."""
COPY = "texts with an exact or near copy in the whole pool, which groups seldom show."
COPIED = share_column("copied_share", "copied", COPY)
LARGEST = share_column("dominant_share", "largest", "share of the commonest kind.")
CEILING = share_column(
    "ceiling_rate", "ceiling", "groups with GED 10: all valid, all of different kinds."
)
SINGLE = "groups whose valid texts, two or more, are all of different kinds."
DIAGNOSTICS = (
    Column("effective_modes", "modes", digits=3, help="kinds of a group, by their entropy."),
    replace(LARGEST, digits=3),
    share_column("singleton_rate", "all single", SINGLE, 3),
    replace(CEILING, digits=3),
)
"""What the protocol demands beside GED and the share of valid texts."""
DIFFERENCES = (
    Column("pair", "B minus A"),
    Column("geq_difference", "GEQ", digits=3, signed=True, help="Quality; 95% interval."),
    Column("ged_difference", "GED", digits=3, signed=True, help="Diversity."),
    Column("decision", "what follows"),
)


def current_scores(series: Series, judgments: Judgments) -> dict[str, Any] | None:
    """What was scored of a judge and kept; None where there is none, or more was judged since."""
    found = series.read_result()
    judged = 0 if found is None else sum(one["n_groups"] for one in found["cells"].values())
    return found if judged == len(judgments.verdicts) else None


def differences(scores: dict[str, Any]) -> Table:
    """Every other generator minus the first one, from what was kept with the scores."""
    rows = [
        {
            **row,
            "pair": f"{row['cell_b']} minus {row['cell_a']}",
            "ged_difference": row.get("ged_difference_interval") or row["ged_difference"],
            "decision": decision(row, scores),
        }
        for row in scores.get("differences", ())
    ]
    names = {name for row in rows for name, value in row.items() if value is not None}
    return Table("B minus A", tuple(one for one in DIFFERENCES if one.name in names), rows)


def judged_sentence(table: Table) -> str:
    """What one judge found, in words."""
    shown = {one.heading: one for one in table.columns if one.heading in ("GEQ", "GED")}
    found = [
        f"{row[table.columns[0].name]} has "
        + " and ".join(f"{name} {one.entry(row).line}" for name, one in shown.items())
        for row in table.rows[:NAMED]
        if row.get("geq") is not None
    ]
    rest = f"; {len(table.rows) - NAMED} more in the table" if len(table.rows) > NAMED else ""
    return f"{table.title}: {'; '.join(found) or 'nothing has a verdict yet'}{rest}."


def decision(row: dict[str, Any], compared: dict[str, Any]) -> str:
    """What the judge says about one pair: quality, then diversity, each with its level."""
    names = sides_of(row, compared)
    geq, ged = row["geq_difference"], row.get("ged_difference_interval")
    clauses = [
        _told_apart(names, "GEQ", geq, ("better", "worse", "quality"))
        if row["geq_interval_excludes_zero"] or not geq.excludes(0)
        else f"GEQ {geq.value:+.2f} of {names[1]} over {names[0]} decides nothing "
        f"({row['geq_interval_mind']})"
    ]
    if ged is not None:
        clauses.append(_told_apart(names, "GED", ged, ("more diverse", "less diverse", "content")))
    elif row["ged_difference"] is not None:
        words = f"of diversity nothing is said: GED {row['ged_difference']:+.2f} has no interval"
        clauses.append(words)
    told = "; ".join(clauses) + "."
    return f"I{told[1:]}" if told.startswith("it is not known") else told


def _told_apart(
    names: tuple[str, str], score: str, between: Interval, words: tuple[str, str, str]
) -> str:
    """B against A by one score: more, less, or not known."""
    a, b = names
    told = f"{score} {between.value:+.2f}"
    if not between.bounded:
        return f"it is not known whether {b} differs from {a} in {words[2]}: {told}, no interval"
    told += f" {between.span('+.2f')}, {between.level:.0%}"
    if between.excludes(0):
        return f"{b} is {words[0 if between.value > 0 else 1]} than {a} ({told})"
    return f"{b} and {a} are not told apart in {words[2]} ({told})"


def sides_of(row: dict[str, Any], compared: dict[str, Any]) -> tuple[str, str]:
    """What the two sides are called."""
    names = row["cell_a"], row["cell_b"]
    return names if names[0] != names[1] else (compared["a"], compared["b"])
