"""strop study less-is-more: do more training and more weights help few-step generation?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from strop.assets import CHECKPOINT, EMBEDDED, EVALUATOR
from strop.cli import output
from strop.cli.progress import reporter
from strop.cli.study import common
from strop.cli.values import listed

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the study."""
    app.command("less-is-more")(less_is_more)


@common.drawing(n=128, evaluator=EVALUATOR)
def less_is_more(
    shared: common.Drawing,
    more: Annotated[str, typer.Argument(help="The longer trained, or larger, checkpoint.")] = (
        CHECKPOINT
    ),
    less: Annotated[str, typer.Argument(help="The other one.")] = EMBEDDED + "tales-early",
    steps: Annotated[str, typer.Option(help="Updates M, e.g. 2,4,8.")] = "2,4,8,16,64",
) -> None:
    """Compare MORE with LESS at equal steps, under a standard and two sharper samplers."""
    counts = listed(steps, int, "--steps")
    from strop.studies.less_is_more import run_less_is_more

    with reporter() as bar:
        how = shared.sampling(bar)
        result = run_less_is_more(more, less, how, out=Path(shared.out), steps=counts)
    shared.tell(result, _print)
    output.next_command(f"strop report {shared.folder} -o {shared.folder}/report.html")


def _print(result: dict[str, Any]) -> None:
    asked = result["asked"]
    output.say(f"perplexity of {asked['more']} over that of {asked['less']}, 95% intervals")
    rows = result["rows"]
    steps = list(dict.fromkeys(row["steps"] for row in rows))
    names = list(dict.fromkeys(row["sampler"] for row in rows))
    cells = {(row["sampler"], row["steps"]): row for row in rows}
    output.table(
        ["M", *names], [[str(m), *(_entry(cells[name, m]) for name in names)] for m in steps]
    )
    found = [f"{row['sampler']} at {row['steps']}" for row in rows if row["inverted"]]
    output.say(
        "Less is more (the interval lies above 1): " + ", ".join(found)
        if found
        else "No interval lies above 1: here more training or more weights never hurt."
    )


def _entry(row: dict[str, Any]) -> str:
    return f"{row['ratio']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
