"""What `strop groupeval judge` prints at its end, or before it begins."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from strop.cli import output

if TYPE_CHECKING:
    from strop.groupeval.cost import Price, Usage
    from strop.groupeval.series import Series
    from strop.groupeval.session import Session


def print_estimate(run: Path, series: Series, document: dict[str, Any], as_json: bool) -> None:
    """What the questions that are left would cost."""
    probe = document.get("probe")
    if as_json:
        output.emit(
            {"run": str(run), "series": series.id, "judge": series.judge.document(), **document}
        )
    else:
        cost = document["cost"]
        output.say(
            f"{document['calls']} calls, about {document['prompt_tokens']:,} tokens in and "
            f"{document['completion_tokens']:,} out ({document['basis']}); "
            + ("first a short one to find out which settings are taken; " if probe else "")
            + ("no price is known: --prices FILE" if cost is None else f"about {cost:.4f}")
        )
    output.next_command("the same without --dry-run")


def report(
    run: Path,
    series: Series,
    repeats: int,
    price: Price | None,
    session: Session | None,
    as_json: bool,
    used: Usage | None,
) -> None:
    """What there is now; `used` is None where no server was asked. Exit code 2: some is missing."""
    from strop.groupeval.cost import Usage
    from strop.groupeval.series import list_series

    failures = [f for repeat in range(repeats) for f in series.failures("plan", repeat)]
    failures += series.failures("control")
    done = sum(len(series.verdicts("plan", repeat)) for repeat in range(repeats))
    asked = series.asked * repeats
    controls = len(series.verdicts("control"))
    spent = used or Usage()
    tokens = {"prompt": spent.prompt, "completion": spent.completion}
    document = {
        "run": str(run),
        "series": series.id,
        "name": series.name,
        "judge": series.judge.document(),
        "judgments": done,
        "asked": asked,
        "controls": {"judgments": controls, "asked": len(series.plan.controls)},
        "complete": done == asked and controls == len(series.plan.controls),
        "failures": dict(Counter(failure.reason for failure in failures)),
        "served": series.served(),
        "stopped": None if session is None else session.stopped,
        "calls": spent.calls,
        "tokens": {**tokens, "replies_not_counted_by_the_server": spent.uncounted},
        "requests_without_a_count": spent.unseen,
        "cost": None if price is None else spent.cost(price),
    }
    if as_json:
        output.emit(document)
    else:
        _say(document, served=used is not None)
    if (warning := series.other_models()) is not None:
        output.note(f"warning: {warning}")
    where = shlex.quote(str(run))
    if document["complete"]:
        alone = len(list_series(run)) == 1
        named = where if alone else shlex.quote(f"{run}@{series.id}")
        output.next_command(f"strop groupeval score {named}")
        return
    if document["stopped"]:
        output.note(f"stopped: {document['stopped']}")
    output.note("incomplete: run the same command again to ask for what is missing")
    output.next_command(f"strop groupeval show {where} --series {series.id} --failures")
    raise typer.Exit(2)


def _say(document: dict[str, Any], *, served: bool) -> None:
    output.say(f"{document['name']} ({document['series']})")
    planted = document["controls"]
    rows = [["judgments", f"{document['judgments']} of {document['asked']}"]]
    if planted["asked"]:
        rows.append(["controls", f"{planted['judgments']} of {planted['asked']}"])
    rows += [[f"failed: {reason}", str(n)] for reason, n in document["failures"].items()]
    if served:
        tokens = document["tokens"]
        rows.append(["calls", f"{document['calls']:,}"])
        rows.append(["tokens in, out", f"{tokens['prompt']:,}, {tokens['completion']:,}"])
        if tokens["replies_not_counted_by_the_server"]:
            rows.append(["replies not counted", str(tokens["replies_not_counted_by_the_server"])])
        cost, unseen = document["cost"], document["requests_without_a_count"]
        if unseen:
            rows.append(["requests that nobody counted", f"{unseen:,}"])
        most = "at most " if unseen else ""
        rows.append(["cost", "no price known" if cost is None else f"{most}{cost:.4f}"])
    output.table(["what", "how much"], rows)
