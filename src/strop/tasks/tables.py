"""A task run in tables and one figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from strop.served.address import notes_of
from strop.spec.generator import OperatingPoint
from strop.store import StudyFolder
from strop.table import Column, Table, plain
from strop.tasks.outcome import FIGURE, OWNER, Results, TaskSetting, paired, paired_p

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

ANSWERED = ("passed", "wrong")
NOT_RUN = ("empty", "invalid")
ALPHA = 0.05
"""Outcomes with a column of their own; what is left is a program that failed."""


def setting_table(found: Results, against: int | None = None) -> Table:
    """A row per checkpoint and setting; `against` is the number of the row to compare with.

    Without it every row is compared with the same checkpoint and sampler at its lowest
    temperature.
    """
    kinds = {one.label: set() for one in found.settings}
    rows = []
    for number, one in enumerate(found.settings, 1):
        kinds[one.label].add(_sampler(one))
        same = [s for s in found.settings if (s.label, _sampler(s)) == (one.label, _sampler(one))]
        coldest = min(same, key=lambda setting: setting.temperature)
        other = found.settings[against - 1] if against else coldest
        rows.append({"number": number, **_row(found, one), **_against(found, one, other)})
    several = any(len(names) > 1 for names in kinds.values())
    counts = sorted({row["problems"] for row in rows})
    problems = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    title = f"{found.task.name}: {problems} problems, response of {found.run.length} tokens"
    return Table(title, tuple(_columns(found, rows, several=several)), rows)


def checkpoint_table(found: Results) -> Table | None:
    """Every other checkpoint minus the first one, at the same temperature over the same problems.

    None where there is nothing to compare.
    """
    name, rows = found.filters[0], []
    first = [one for one in found.settings if one.label == found.settings[0].label]
    for one in found.settings:
        other = next((f for f in first if f.temperature == one.temperature), None)
        if other is None or one.label == other.label:
            continue
        difference = paired(one, other, name)
        if difference is not None:
            named = {"checkpoint": one.label, "sampler": _sampler(one)}
            named |= {"minus": other.label, "temperature": one.temperature}
            rows.append({**named, "difference": difference, "p": paired_p(one, other, name)})
    columns = (
        Column("checkpoint"),
        Column("minus"),
        TEMPERATURE,
        _share("difference", f"difference in accuracy ({name})", signed=True),
        EXACT_P,
    )
    return Table("Between checkpoints", columns, rows) if rows else None


TEMPERATURE = Column("temperature", digits=None)
EXACT_P = Column("p", "exact p", digits=2, help="Of no difference: McNemar's test, or sign test.")


def _columns(found: Results, rows: list[dict[str, Any]], *, several: bool) -> list[Column]:
    first, *others = found.filters
    columns = [Column("number", "#"), Column("checkpoint")]
    columns += [Column("sampler")] if several else []
    columns += [TEMPERATURE]
    columns += [Column("problems")] if len({row["problems"] for row in rows}) > 1 else []
    columns += [Column("seeds")]
    label = f"accuracy, {first}" if others else "accuracy"
    columns.append(_share(f"accuracy_{first}", label, help="Mean over seeds and problems."))
    columns.append(
        Column(
            f"standard_error_{first}",
            "SE over seeds",
            help="Of the mean over seeds, the problems held fixed.",
            digits=3,
            percent=True,
        )
    )
    columns += [_share(f"accuracy_{name}", f"accuracy, {name}") for name in others]
    if any(row["against"] is not None for row in rows):
        columns.append(_share("difference", "difference", signed=True))
        columns.append(EXACT_P)
        columns.append(Column("against", "against #"))
    counted = {"empty": "empty", "invalid": "no answer", "failed": "program failed"}
    columns += [Column(k, v) for k, v in counted.items() if k != "failed" or found.task.sandboxed]
    columns += [Column("ungraded")] if any(row["ungraded"] for row in rows) else []
    columns += [
        Column("tokens_per_call", digits=3, help="Up to the end of a response."),
        Column("calls", digits=4, help="Network calls per response."),
        Column("seconds", digits=2, help="Per response."),
        Column("truncated", "never ends", digits=3, percent=True),
    ]
    return columns


def _share(name: str, label: str, *, help: str = "", signed: bool = False) -> Column:
    return Column(name, label, digits=3, percent=True, help=help, signed=signed)


def _row(found: Results, one: TaskSetting) -> dict[str, Any]:
    first = found.filters[0]
    row: dict[str, Any] = {
        "checkpoint": one.label,
        "source": one.entrant.source,
        "sampler": _sampler(one),
        "steps": one.sampler.steps,
        "temperature": one.temperature,
        "problems": len(one.index),
        "seeds": len(one.seeds),
    }
    for name in found.filters:
        row[f"accuracy_{name}"] = one.accuracy(name)
        row[f"standard_error_{name}"] = one.standard_error(name)
        row[f"by_seed_{name}"] = one.by_seed(name).tolist()
        row[f"outcomes_{name}"] = dict(one.counts(name))
    if len(one.seeds) > 1:
        row["pass_at"] = {str(k): one.pass_at(k, first) for k in range(1, len(one.seeds) + 1)}
    counts = one.counts(first)
    row |= {name: counts[name] for name in NOT_RUN}
    row["failed"] = sum(n for k, n in counts.items() if k not in (*ANSWERED, *NOT_RUN))
    row["ungraded"] = one.ungraded
    row |= {"tokens_per_call": one.tokens_per_call, "tokens": one.tokens, "calls": one.calls}
    return row | {"seconds": one.seconds, "truncated": one.truncated}


def _against(found: Results, one: TaskSetting, other: TaskSetting) -> dict[str, Any]:
    difference = None if other is one else paired(one, other, found.filters[0])
    if difference is None:
        return {"difference": None, "p": None, "against": None}
    p = paired_p(one, other, found.filters[0])
    return {"difference": difference, "p": p, "against": found.settings.index(other) + 1}


def _sampler(one: TaskSetting) -> str:
    """A setting without its temperature, in words."""
    point = OperatingPoint.of(one.sampler.model_copy(update={"temperature": 1.0}))
    inner = str(point).replace("(1, ", "(", 1)
    return f"{one.sampler.name} {inner[inner.index('(') :]}, {one.sampler.steps} steps"


def answer(found: Results) -> str:
    """Which setting is right most often, and how many others may be as good.

    The best is found on the same problems, so that every pair of settings counts as a comparison:
    a p-value must be below 5% over their number (Bonferroni).
    """
    name = found.filters[0]
    ranked = sorted(found.settings, key=lambda one: -one.accuracy(name).value)
    best, others = ranked[0], ranked[1:]
    accuracy = best.accuracy(name).mapped(lambda share: 100 * share)
    words = (
        f"{_called(best)} is right in {accuracy.value:.1f}% {accuracy.span('.1f')} of "
        f"{len(best.index)} problems, with {best.calls:,.3g} calls an answer"
    )
    if not others:
        return f"{words}."
    bound = ALPHA / (len(ranked) * (len(ranked) - 1) / 2)
    chances = [paired_p(best, one, name) for one in others]
    near = [one for one, p in zip(others, chances, strict=True) if p is None or p >= bound]
    if not near:
        return f"{words}: surely more often than each of the {len(others)} other settings."
    cheapest = min(near, key=lambda one: one.calls)
    words += f": the most of {len(ranked)} settings, but {len(near)} of the others cannot be told "
    words += "from it"
    if cheapest.calls < best.calls:
        words += f", the cheapest of them {_called(cheapest)} with {cheapest.calls:,.3g} calls"
    return f"{words}."


def _called(one: TaskSetting) -> str:
    return f"{one.label} with {_sampler(one)} at temperature {one.temperature:g}"


def notes(found: Results) -> list[str]:
    """What a reader of the tables must know."""
    told = [
        "accuracy: mean over seeds and problems; [..]: 95%, Wilson's interval over problems, the "
        "seeds of a problem together; differences over the same problems: bootstrap (10,000 "
        "replicates) and the exact p of no difference (McNemar's test; with seeds, sign test)",
        "tokens per call: up to the end token, over the network calls of the whole response",
    ]
    if found.task.sandboxed and any(
        not grades.walled for setting in found.settings for grades in setting.grades
    ):
        told.append("some programs ran without a sandbox")
    if any(len(s.index) > len(one.index) for one in found.settings for s in one.grades):
        told.append("some seeds have answered more problems: only those of all seeds count")
    told += notes_of(entrant.source for entrant in found.run.entrants)
    lost = sum(one.ungraded for one in found.settings)
    if lost:
        told.append(f"{lost} responses have no verdict: `strop task score` tries again")
    return told


def document(found: Results, against: int | None = None) -> dict[str, Any]:
    """For JSON: every number of the tables, and more."""
    between = checkpoint_table(found) if found.settings else None
    return {
        "run": str(found.run.path),
        "task": found.task.name,
        "fingerprint": found.task.fingerprint,
        "length": found.run.length,
        "filters": list(found.filters),
        "checkpoints": [one.document() for one in found.run.entrants],
        "answer": [answer(found)] if found.settings else [],
        "settings": plain(setting_table(found, against).rows),
        "differences": [] if between is None else plain(between.rows),
    }


def write_result(found: Results) -> None:
    """Write `result.json` and `table.csv` into the run, in the form of every other verb."""
    if not found.settings:
        return
    table, between = setting_table(found), checkpoint_table(found)
    folder = StudyFolder(found.run.path, "task", OWNER)
    asked = {
        "checkpoints": [one.source for one in found.run.entrants],
        "task": found.task.name,
        "fingerprint": found.task.fingerprint,
        "length": found.run.length,
    }
    result = {
        "asked": asked,
        "answer": [answer(found)],
        "filters": list(found.filters),
        **table.document(),
        "tables": {} if between is None else {"between": between.document()},
        "notes": notes(found),
        "missing": None,
    }
    folder.finish(result, table.csv())


# ---------------------------------------------------------------- the figure


def write_picture(found: Results) -> list[Path]:
    """Draw accuracy against temperature into the run, as PNG and SVG."""
    from strop.figures import write_figure

    files = [found.run.path / f"{FIGURE}.{kind}" for kind in ("png", "svg")]
    write_figure(lambda: draw(setting_table(found)), files)
    return files


def draw(table: Table) -> Figure:
    """A panel per filter, a line per checkpoint and sampler; bars are the intervals."""
    from strop.figures import PALETTE, errors, panels, tidy

    names = [c.name for c in table.columns if c.name.startswith("accuracy_")]
    lines: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in table.rows:
        lines.setdefault((row["checkpoint"], row["sampler"]), []).append(row)
    labels = [label for label, _ in lines]
    figure, axes = panels(len(names), 2.1 * len(names) + 0.5)
    for one, name in zip(axes, names, strict=True):
        for place, ((label, sampler), rows) in enumerate(lines.items()):
            points = [r[name].mapped(lambda share: 100 * share) for r in rows]
            words = f"{label}, {sampler}" if labels.count(label) > 1 else label
            one.errorbar(
                [r["temperature"] for r in rows],
                [point.value for point in points],
                yerr=errors(points),
                color=PALETTE[place % len(PALETTE)],
                marker="osD^v"[place % 5],
                ms=3.5,
                capsize=2,
                elinewidth=0.8,
                label=words,
            )
        which = f" ({name.removeprefix('accuracy_')})" if len(names) > 1 else ""
        one.set(ylabel=f"accuracy{which}, %", ylim=(-3, 103))
        tidy(one)
    axes[-1].set(xlabel="temperature")
    columns = 1 if len(set(labels)) < len(labels) else 2
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncol=columns)
    return figure
