"""GEQ and GED: what the decisions of verdicts add up to. The two are never combined.

    q_ir  = 10 / (2 * 4) * sum of the four grades of output i in partition r (an invalid one: 0)
    GEQ   = mean over outputs i of the mean over i's verdicts r of q_ir
    GED_g = 10 * V/n * H(mode shares among the V valid outputs) / log n
    GED   = mean of GED_g over the groups g

Both run from 0 to 10. A group with fewer than two valid outputs, or one mode, has GED 0.

Beside them stand the diagnostics: how a cell fails, how its groups fall into modes, how sure it is.
A *context* is one output in one partition: an output that is judged twice counts twice here. Rates
without a denominator are None, never zero. docs/groupeval-scores.md says what each may be read for.

The bounds are GEQ and GED if all missing verdicts were worst, or best. A number from 300 of 320
groups is a number about 300 groups. They say what it may become when the rest is judged: a missing
context has quality 0 or 10, a missing group GED 0 or 10.

Judged scores as they are told: what stands beside GED, and what follows from two generators.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strop.groupeval.verdict import Grade, GroupVerdict
from strop.table import Column, Table

if TYPE_CHECKING:
    from strop.groupeval.judgments import Judgments
    from strop.groupeval.series import Series
    from strop.stats.interval import Interval


# ------------------------------------------------------------------------------------------ words


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
    stored = series.read_result()
    judged = 0 if stored is None else sum(cell["n_groups"] for cell in stored["cells"].values())
    return stored if judged == len(judgments.verdicts) else None


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
    return Table("B minus A", tuple(column for column in DIFFERENCES if column.name in names), rows)


def judged_sentence(table: Table) -> str:
    """What one judge found, in words."""
    score_columns = {
        column.heading: column for column in table.columns if column.heading in ("GEQ", "GED")
    }
    clauses = [
        f"{row[table.columns[0].name]} has "
        + " and ".join(f"{name} {column.entry(row).line}" for name, column in score_columns.items())
        for row in table.rows[:NAMED]
        if row.get("geq") is not None
    ]
    remainder = f"; {len(table.rows) - NAMED} more in the table" if len(table.rows) > NAMED else ""
    return f"{table.title}: {'; '.join(clauses) or 'nothing has a verdict yet'}{remainder}."


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
    sentence = "; ".join(clauses) + "."
    return f"I{sentence[1:]}" if sentence.startswith("it is not known") else sentence


def _told_apart(
    names: tuple[str, str], score: str, between: Interval, words: tuple[str, str, str]
) -> str:
    """B against A by one score: more, less, or not known."""
    a, b = names
    estimate = f"{score} {between.value:+.2f}"
    if not between.bounded:
        return (
            f"it is not known whether {b} differs from {a} in {words[2]}: {estimate}, no interval"
        )
    estimate += f" {between.span('+.2f')}, {between.level:.0%}"
    if between.excludes(0):
        return f"{b} is {words[0 if between.value > 0 else 1]} than {a} ({estimate})"
    return f"{b} and {a} are not told apart in {words[2]} ({estimate})"


def sides_of(row: dict[str, Any], compared: dict[str, Any]) -> tuple[str, str]:
    """What the two sides are called."""
    names = row["cell_a"], row["cell_b"]
    return names if names[0] != names[1] else (compared["a"], compared["b"])


# ----------------------------------------------------------------------------------------- scores

TOP = 10.0
"""The best GEQ and the best GED."""


def quality(grade: Grade) -> float:
    """The rubric total of one judged output, rescaled to 0 .. 10."""
    return TOP * sum(grade.scores) / (2 * len(grade.scores))


def mode_counts(outputs: Iterable[Grade]) -> list[int]:
    """How many valid outputs each mode holds, largest first."""
    modes = Counter(output.mode for output in outputs if output.valid)
    return sorted(modes.values(), reverse=True)


def entropy(counts: Sequence[float]) -> float:
    """Entropy of shares in proportion to the counts, in nats; 0 for no count at all."""
    total = math.fsum(counts)
    return math.fsum(-c / total * math.log(c / total) for c in counts if c > 0)


def group_ged(verdict: GroupVerdict) -> float:
    """GED of one judged group, by its definition."""
    counts, size = mode_counts(verdict.outputs), len(verdict.outputs)
    if at_ceiling(counts, size):
        return TOP
    return TOP * sum(counts) / size * entropy(counts) / math.log(size)


def at_ceiling(counts: Sequence[int], size: int) -> bool:
    """Whether the group cannot score higher: all outputs are valid and all modes differ."""
    return len(counts) == size


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class JudgedCell:
    """All verdicts on one generator. A *context* is one output in one partition."""

    name: str
    verdicts: tuple[GroupVerdict, ...]
    outputs: tuple[int, ...]
    """The indices that were judged at least once, ascending."""
    partitions: tuple[int, ...]
    """The partitions that have at least one verdict, ascending."""
    q: Floats
    """Quality, `[outputs, partitions]`; 0 where there is no verdict."""
    judged: NDArray[np.bool_]
    """Which contexts have a verdict, `[outputs, partitions]`."""

    row: dict[int, int]
    """Where each output's index stands in the arrays."""

    @property
    def size(self) -> int:
        """Outputs per group."""
        return len(self.verdicts[0].outputs)

    @property
    def groups(self) -> NDArray[np.int64]:
        """In which verdict a context was judged, `[outputs, partitions]`; 0 where in none."""
        numbers = np.zeros(self.q.shape, np.int64)
        column = {partition: r for r, partition in enumerate(self.partitions)}
        for number, verdict in enumerate(self.verdicts):
            rows = [self.row[output.index] for output in verdict.outputs]
            numbers[rows, column[verdict.partition]] = number
        return numbers

    @property
    def per_output(self) -> Floats:
        """Each output's mean quality over its verdicts."""
        return self.q.sum(axis=1) / self.judged.sum(axis=1)

    @property
    def nonzero(self) -> int:
        """Outputs with a quality above 0 in any verdict."""
        return int((self.q > 0).any(axis=1).sum())

    def geq(self) -> float:
        """The mean over outputs; every output counts once, however often it was judged."""
        return float(self.per_output.mean())


def by_cell(verdicts: Iterable[GroupVerdict]) -> dict[str, JudgedCell]:
    """The cells of a set of verdicts, in order of first appearance."""
    grouped: dict[str, list[GroupVerdict]] = {}
    for verdict in verdicts:
        grouped.setdefault(verdict.cell, []).append(verdict)
    return {name: _cell(name, of_cell) for name, of_cell in grouped.items()}


def _cell(name: str, verdicts: list[GroupVerdict]) -> JudgedCell:
    outputs = sorted({output.index for verdict in verdicts for output in verdict.outputs})
    partitions = sorted({verdict.partition for verdict in verdicts})
    row = {index: i for i, index in enumerate(outputs)}
    column = {partition: r for r, partition in enumerate(partitions)}
    q = np.zeros((len(outputs), len(partitions)))
    judged = np.zeros(q.shape, dtype=bool)
    for verdict in verdicts:
        for output in verdict.outputs:
            at = row[output.index], column[verdict.partition]
            q[at], judged[at] = quality(output), True
    return JudgedCell(name, tuple(verdicts), tuple(outputs), tuple(partitions), q, judged, row)


NON_DEGENERATION = 3
"""Which dimension says whether a text repeats or falls apart."""


def ged(cell: JudgedCell) -> float:
    """The mean GED of the cell's groups."""
    return _mean([group_ged(verdict) for verdict in cell.verdicts])


FACTORS = ("valid_share", "mode_entropy", "different_pairs")
"""What moves GED: how many outputs are valid, and how the valid ones differ."""


def factors(verdicts: Sequence[GroupVerdict], *, modes: bool = True) -> dict[str, float | None]:
    """Of some verdicts, the share of valid outputs, and of these alone two measures of modes.

    The entropy of modes, in nats, is the mean over groups with a valid output. The share of pairs
    of a group's valid outputs that are in different modes does not depend on how many are valid.
    """
    counts = [mode_counts(verdict.outputs) for verdict in verdicts]
    valid = [sum(sizes) for sizes in counts]
    pairs = sum(v * (v - 1) for v in valid)
    apart = sum(v * v - sum(c * c for c in sizes) for v, sizes in zip(valid, counts, strict=True))
    values: tuple[float | None, ...] = (
        share([output.valid for verdict in verdicts for output in verdict.outputs]),
        _mean([entropy(sizes) for sizes in counts if sizes]) if modes and any(counts) else None,
        apart / pairs if modes and pairs else None,
    )
    return dict(zip(FACTORS, values, strict=True))


def diagnose(cell: JudgedCell, *, modes: bool) -> dict[str, Any]:
    """All diagnostics of one cell; those about modes are None where the profile has none."""
    grades = [grade for verdict in cell.verdicts for grade in verdict.outputs]
    scores = np.array([grade.scores for grade in grades], dtype=float)
    quality = np.sort(cell.per_output)
    lowest = quality[: math.ceil(len(quality) / 4)]
    return {
        **factors(cell.verdicts, modes=modes),
        **(_of_modes(cell) if modes else dict.fromkeys(_MODE_KEYS)),
        "invalid_rate": share([not grade.valid for grade in grades]),
        "severe_degeneration_rate": float((scores[:, NON_DEGENERATION] == 0).mean()),
        "dimension_means": [float(mean) for mean in scores.mean(axis=0)],
        "quality_p10": float(np.quantile(quality, 0.1)),
        "bottom_quartile_quality": float(lowest.mean()),
        "non_high_confidence_rate": share(
            [verdict.confidence != "high" for verdict in cell.verdicts]
        ),
    }


def saturation(size: int, modes: int) -> tuple[float, float]:
    """How often a group of valid outputs from so many equal modes is at the ceiling, at least.

    The chance that all of them differ, and the union bound below it. Many modes nearly always fill
    a small group, so a high GED does not say that all modes were seen.
    """
    chance = math.prod(max(0.0, 1 - j / modes) for j in range(size))
    return chance, max(0.0, 1 - math.comb(size, 2) / modes)


_MODE_KEYS = ("effective_modes", "dominant_share", "hybrid_rate", "singleton_rate", "ceiling_rate")


def _of_modes(cell: JudgedCell) -> dict[str, Any]:
    counts = [mode_counts(verdict.outputs) for verdict in cell.verdicts]
    valid = [output for verdict in cell.verdicts for output in verdict.outputs if output.valid]
    return {
        # No valid output is no mode: 0. (exp of an empty sum would claim one.)
        "effective_modes": _mean([math.exp(entropy(c)) if c else 0.0 for c in counts]),
        "dominant_share": _mean([c[0] / sum(c) for c in counts if c]) if any(counts) else None,
        "hybrid_rate": share([output.hybrid for output in valid]),
        "singleton_rate": share([len(c) == sum(c) >= 2 for c in counts]),
        "ceiling_rate": share(
            [at_ceiling(c, len(v.outputs)) for c, v in zip(counts, cell.verdicts, strict=True)]
        ),
    }


def share(facts: Sequence[bool]) -> float | None:
    """Of facts that hold; None of none."""
    return sum(facts) / len(facts) if facts else None


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


@dataclass(frozen=True)
class PlannedGroups:
    """What was asked about one cell."""

    outputs: int
    groups: int
    partitions: int


def counted(cell: JudgedCell | None, planned: PlannedGroups) -> dict[str, int]:
    """How much was judged of what was asked."""
    asked = {"n_outputs_asked": planned.outputs, "n_groups_asked": planned.groups}
    if cell is None:
        return {"n_outputs": 0, "n_groups": 0, **asked}
    judged = {"n_outputs": len(cell.outputs), "n_groups": len(cell.verdicts)}
    more = {"n_outputs_above_0": cell.nonzero, "n_partitions": len(cell.partitions)}
    return judged | more | asked


def geq_bounds(cell: JudgedCell | None, planned: PlannedGroups) -> list[float]:
    """The least and the greatest GEQ that the whole plan can still have."""
    if cell is None:
        return [0.0, TOP]
    total = float(np.sum(cell.q))
    contexts = planned.outputs * planned.partitions
    missing = contexts - int(cell.judged.sum())
    return [total / contexts, (total + TOP * missing) / contexts]


def ged_bounds(ged: float | None, accepted: int, planned: PlannedGroups) -> list[float]:
    """The least and the greatest GED that the whole plan can still have."""
    total = (ged or 0.0) * accepted
    return [total / planned.groups, (total + TOP * (planned.groups - accepted)) / planned.groups]
