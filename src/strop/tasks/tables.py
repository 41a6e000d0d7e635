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


def setting_table(results: Results, against: int | None = None) -> Table:
    """A row per checkpoint and setting; `against` is the number of the row to compare with.

    Without it every row is compared with the same checkpoint and sampler at its lowest
    temperature.
    """
    kinds = {setting.label: set() for setting in results.settings}
    rows = []
    for number, setting in enumerate(results.settings, 1):
        kinds[setting.label].add(_sampler_words(setting))
        same = [
            s
            for s in results.settings
            if (s.label, _sampler_words(s)) == (setting.label, _sampler_words(setting))
        ]
        coldest = min(same, key=lambda s: s.temperature)
        other = results.settings[against - 1] if against else coldest
        rows.append(
            {"number": number, **_row(results, setting), **_against(results, setting, other)}
        )
    several = any(len(names) > 1 for names in kinds.values())
    counts = sorted({row["problems"] for row in rows})
    problems = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    title = f"{results.task.name}: {problems} problems, response of {results.run.length} tokens"
    return Table(title, tuple(_columns(results, rows, several=several)), rows)


def checkpoint_table(results: Results) -> Table | None:
    """Every other checkpoint minus the first one, at the same temperature over the same problems.

    None where there is nothing to compare.
    """
    name, rows = results.filters[0], []
    first = [setting for setting in results.settings if setting.label == results.settings[0].label]
    for setting in results.settings:
        other = next((f for f in first if f.temperature == setting.temperature), None)
        if other is None or setting.label == other.label:
            continue
        difference = paired(setting, other, name)
        if difference is not None:
            row = {"checkpoint": setting.label, "sampler": _sampler_words(setting)}
            row |= {"minus": other.label, "temperature": setting.temperature}
            rows.append({**row, "difference": difference, "p": paired_p(setting, other, name)})
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


def _columns(results: Results, rows: list[dict[str, Any]], *, several: bool) -> list[Column]:
    first, *others = results.filters
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
    columns += [Column(k, v) for k, v in counted.items() if k != "failed" or results.task.sandboxed]
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


def _row(results: Results, setting: TaskSetting) -> dict[str, Any]:
    first = results.filters[0]
    row: dict[str, Any] = {
        "checkpoint": setting.label,
        "source": setting.entrant.source,
        "sampler": _sampler_words(setting),
        "steps": setting.sampler.steps,
        "temperature": setting.temperature,
        "problems": len(setting.index),
        "seeds": len(setting.seeds),
    }
    for name in results.filters:
        row[f"accuracy_{name}"] = setting.accuracy(name)
        row[f"standard_error_{name}"] = setting.standard_error(name)
        row[f"by_seed_{name}"] = setting.by_seed(name).tolist()
        row[f"outcomes_{name}"] = dict(setting.counts(name))
    if len(setting.seeds) > 1:
        row["pass_at"] = {
            str(k): setting.pass_at(k, first) for k in range(1, len(setting.seeds) + 1)
        }
    counts = setting.counts(first)
    row |= {name: counts[name] for name in NOT_RUN}
    row["failed"] = sum(n for k, n in counts.items() if k not in (*ANSWERED, *NOT_RUN))
    row["ungraded"] = setting.ungraded
    row |= {
        "tokens_per_call": setting.tokens_per_call,
        "tokens": setting.tokens,
        "calls": setting.calls,
    }
    return row | {"seconds": setting.seconds, "truncated": setting.truncated}


def _against(results: Results, setting: TaskSetting, other: TaskSetting) -> dict[str, Any]:
    difference = None if other is setting else paired(setting, other, results.filters[0])
    if difference is None:
        return {"difference": None, "p": None, "against": None}
    p = paired_p(setting, other, results.filters[0])
    return {"difference": difference, "p": p, "against": results.settings.index(other) + 1}


def _sampler_words(setting: TaskSetting) -> str:
    """A setting without its temperature, in words."""
    point = OperatingPoint.of(setting.sampler.model_copy(update={"temperature": 1.0}))
    inner = str(point).replace("(1, ", "(", 1)
    return f"{setting.sampler.name} {inner[inner.index('(') :]}, {setting.sampler.steps} steps"


def answer(results: Results) -> str:
    """Which setting is right most often, and how many others may be as good.

    The best is found on the same problems, so that every pair of settings counts as a comparison:
    a p-value must be below 5% over their number (Bonferroni).
    """
    name = results.filters[0]
    ranked = sorted(results.settings, key=lambda setting: -setting.accuracy(name).value)
    best, others = ranked[0], ranked[1:]
    accuracy = best.accuracy(name).mapped(lambda share: 100 * share)
    words = (
        f"{_setting_words(best)} is right in {accuracy.value:.1f}% {accuracy.span('.1f')} of "
        f"{len(best.index)} problems, with {best.calls:,.3g} calls an answer"
    )
    if not others:
        return f"{words}."
    bound = ALPHA / (len(ranked) * (len(ranked) - 1) / 2)
    chances = [paired_p(best, setting, name) for setting in others]
    near = [setting for setting, p in zip(others, chances, strict=True) if p is None or p >= bound]
    if not near:
        return f"{words}: surely more often than each of the {len(others)} other settings."
    cheapest = min(near, key=lambda setting: setting.calls)
    words += f": the most of {len(ranked)} settings, but {len(near)} of the others cannot be told "
    words += "from it"
    if cheapest.calls < best.calls:
        words += (
            f", the cheapest of them {_setting_words(cheapest)} with {cheapest.calls:,.3g} calls"
        )
    return f"{words}."


def _setting_words(setting: TaskSetting) -> str:
    return f"{setting.label} with {_sampler_words(setting)} at temperature {setting.temperature:g}"


def notes(results: Results) -> list[str]:
    """What a reader of the tables must know."""
    lines = [
        "accuracy: mean over seeds and problems; [..]: 95%, Wilson's interval over problems, the "
        "seeds of a problem together; differences over the same problems: bootstrap (10,000 "
        "replicates) and the exact p of no difference (McNemar's test; with seeds, sign test)",
        "tokens per call: up to the end token, over the network calls of the whole response",
    ]
    if results.task.sandboxed and any(
        not grades.walled for setting in results.settings for grades in setting.grades
    ):
        lines.append("some programs ran without a sandbox")
    if any(
        len(s.index) > len(setting.index) for setting in results.settings for s in setting.grades
    ):
        lines.append("some seeds have answered more problems: only those of all seeds count")
    lines += notes_of(entrant.source for entrant in results.run.entrants)
    lost = sum(setting.ungraded for setting in results.settings)
    if lost:
        lines.append(f"{lost} responses have no verdict: `strop task score` tries again")
    return lines


def document(results: Results, against: int | None = None) -> dict[str, Any]:
    """For JSON: every number of the tables, and more."""
    between = checkpoint_table(results) if results.settings else None
    return {
        "run": str(results.run.path),
        "task": results.task.name,
        "fingerprint": results.task.fingerprint,
        "length": results.run.length,
        "filters": list(results.filters),
        "checkpoints": [entrant.document() for entrant in results.run.entrants],
        "answer": [answer(results)] if results.settings else [],
        "settings": plain(setting_table(results, against).rows),
        "differences": [] if between is None else plain(between.rows),
    }


def write_result(results: Results) -> None:
    """Write `result.json` and `table.csv` into the run, in the form of every other verb."""
    if not results.settings:
        return
    table, between = setting_table(results), checkpoint_table(results)
    folder = StudyFolder(results.run.path, "task", OWNER)
    asked = {
        "checkpoints": [entrant.source for entrant in results.run.entrants],
        "task": results.task.name,
        "fingerprint": results.task.fingerprint,
        "length": results.run.length,
    }
    result = {
        "asked": asked,
        "answer": [answer(results)],
        "filters": list(results.filters),
        **table.document(),
        "tables": {} if between is None else {"between": between.document()},
        "notes": notes(results),
        "missing": None,
    }
    folder.finish(result, table.csv())


# ---------------------------------------------------------------- the figure


def write_picture(results: Results) -> list[Path]:
    """Draw accuracy against temperature into the run, as PNG and SVG."""
    from strop.figures import write_figure

    files = [results.run.path / f"{FIGURE}.{kind}" for kind in ("png", "svg")]
    write_figure(lambda: draw(setting_table(results)), files)
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
    for panel, name in zip(axes, names, strict=True):
        for number, ((label, sampler), rows) in enumerate(lines.items()):
            points = [r[name].mapped(lambda share: 100 * share) for r in rows]
            words = f"{label}, {sampler}" if labels.count(label) > 1 else label
            panel.errorbar(
                [r["temperature"] for r in rows],
                [point.value for point in points],
                yerr=errors(points),
                color=PALETTE[number % len(PALETTE)],
                marker="osD^v"[number % 5],
                ms=3.5,
                capsize=2,
                elinewidth=0.8,
                label=words,
            )
        which = f" ({name.removeprefix('accuracy_')})" if len(names) > 1 else ""
        panel.set(ylabel=f"accuracy{which}, %", ylim=(-3, 103))
        tidy(panel)
    axes[-1].set(xlabel="temperature")
    columns = 1 if len(set(labels)) < len(labels) else 2
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncol=columns)
    return figure
