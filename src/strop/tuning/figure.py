"""The figure of a search: the objective against every numeric axis, and against outputs spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strop.verbs.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(result: Result) -> Figure:
    """A panel per axis that was varied; outputs are the size of a point, the choice has a ring."""
    from strop.figures import GREY, PALETTE, log_y, panels, tidy

    rows = list(result.more["tried"].rows)
    names = _varied(rows)
    budgets = list(dict.fromkeys(row["budget"] for row in rows))
    ratio = result.facts["objective"].startswith("perplexity")
    figure, axes = panels(len(names) + 1, 1.9 * (len(names) + 1))
    for colour, budget in zip(PALETTE * len(budgets), budgets, strict=False):
        mine = [row for row in rows if row["budget"] == budget]
        for panel, name in zip(axes, names, strict=False):
            for row in mine:
                value, level = _fields(row).get(name), row["objective"].value
                if value is None:
                    continue
                stopped = row["state"].startswith("over")
                look: dict[str, Any] = {"color": GREY if stopped else colour, "alpha": 0.8}
                panel.scatter([value], [level], s=2 + row["outputs"] / 3, lw=0, **look)
                if row["state"].startswith("leads"):
                    panel.scatter([value], [level], s=90, fc="none", ec=colour, lw=1)
            panel.set(xlabel=name)
        path = [(n, value) for n, value in result.facts["paths"][budget] if value is not None]
        if path:
            axes[-1].step(*zip(*path, strict=True), where="post", color=colour, label=budget)
    axes[-1].set(xlabel="outputs spent")
    for panel in axes:
        panel.set(ylabel=result.facts["objective"])
        if ratio and rows:
            log_y(panel)
        tidy(panel)
    if len(budgets) > 1:
        axes[-1].legend()
    return figure


def _fields(row: Any) -> dict[str, Any]:
    sampler = row["sampler"]
    return {**sampler, **sampler.get("settings", {})}


def _varied(rows: list[Any]) -> list[str]:
    """The numeric fields in which candidates of one budget differ."""
    found: dict[str, None] = {}
    for row in rows:
        like = [_fields(one) for one in rows if one["budget"] == row["budget"]]
        for name, value in _fields(row).items():
            numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
            if numeric and len({str(one[name]) for one in like if name in one}) > 1:
                found[name] = None
    return list(found)
