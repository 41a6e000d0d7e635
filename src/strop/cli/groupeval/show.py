"""strop groupeval show: what a plan holds, who judged it, and what failed."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strop.cli import output
from strop.cli.commands import examples

if TYPE_CHECKING:
    from strop.groupeval.series import Series

EXCERPT = 160


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("show", epilog=examples("strop groupeval show runs/ge --failures"))(show)


def show(
    run: Annotated[Path, typer.Argument(help="A directory made by `strop groupeval plan`.")],
    series: Annotated[
        str | None, typer.Option(help="A judge: its id, the beginning of it, or its name.")
    ] = None,
    failures: Annotated[
        bool, typer.Option("--failures", help="Every group without a verdict, and why.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Print whole replies.")] = False,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Say what is planned, who judged how much of it, and what went wrong."""
    from strop.groupeval.directory import open_plan
    from strop.groupeval.series import Series, list_series

    plan, profile = open_plan(run)
    chosen = list_series(run) if series is None else [Series.open(run, series)]
    documents = [_document(one) for one in chosen]
    if as_json:
        output.emit(
            {
                "run": str(run),
                "profile": profile.name,
                "profile_sha256": profile.hash,
                "cells": plan.cells,
                "groups": len(plan.groups),
                "controls": len(plan.controls),
                "series": documents,
            }
        )
        return
    output.say(
        f"{run}: {profile.name}, {len(plan.cells)} generators, {len(plan.groups)} groups"
        + (f", {len(plan.controls)} controls" if plan.controls else "")
    )
    output.table(
        ["judge", "series", "judgments", "failures", "not asked"],
        [
            [
                one["name"],
                one["series"],
                f"{one['judgments']} of {one['asked']}",
                ", ".join(f"{n} {r}" for r, n in one["reasons"].items()) or "none",
                str(one["asked"] - one["judgments"] - len(one["failures"])),
            ]
            for one in documents
        ],
    )
    if failures:
        _say_failures(documents, full)
    where = shlex.quote(str(run))
    if not documents:
        output.next_command(f"strop groupeval judge {where} --base-url URL --model NAME")
    elif any(one["failures"] for one in documents) and not failures:
        output.next_command(f"strop groupeval show {where} --failures")
    else:
        name = where if len(documents) == 1 else shlex.quote(f"{run}@{documents[0]['series']}")
        output.next_command(f"strop groupeval score {name}")


def _document(series: Series) -> dict[str, Any]:
    found = series.failures()
    return {
        "series": series.id,
        "name": series.name,
        "judge": series.judge.document(),
        "judgments": len(series.verdicts()),
        "asked": series.asked,
        "repeats": series.repeats,
        "reasons": dict(Counter(failure.reason for failure in found)),
        "failures": [asdict(failure) for failure in found],
    }


def _replies(count: int) -> str:
    return {0: "no reply", 1: "after 1 reply"}.get(count, f"after {count} replies")


def _say_failures(documents: list[dict[str, Any]], full: bool) -> None:
    for one in documents:
        if one["failures"]:
            output.say(f"\n{one['name']} ({one['series']})")
        for failure in one["failures"]:
            output.say(
                f"  {failure['cell']}, partition {failure['partition']}, group {failure['group']}: "
                f"{failure['reason']}, {_replies(failure['attempts'])}: {failure['detail']}"
            )
            if failure["raw"] is not None:
                raw = repr(failure["raw"])
                output.say(f"    {raw if full or len(raw) <= EXCERPT else raw[:EXCERPT] + ' ...'}")
