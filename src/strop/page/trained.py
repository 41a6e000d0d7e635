"""The part of a page about a training run: its losses, as far as it is."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from strop.page.data import Look, StudyPart
from strop.store import Mark
from strop.store.documents import RESULT
from strop.table import Column, Table
from strop.training.curve import draw_losses, read_metrics
from strop.verbs.result import Result

MOST = 2000
"""Training losses that a curve on a page is made of."""
COLUMNS = (
    Column("step", digits=None),
    Column("nats_per_token", help="Held out, with a 95% interval over rows."),
    Column("perplexity"),
    Column("nats_per_character"),
)


def training_part(path: Path, mark: Mark) -> StudyPart:
    """What a training run measured: its held-out losses, the last one in words, the curve."""
    metrics = read_metrics(path)
    held = [entry for entry in metrics if entry["kind"] == "held_out"]
    steps = max((entry["step"] for entry in metrics), default=0)
    asked = mark.asked.get("steps")
    of = "" if asked is None else f" of {asked:,}"
    # A bound, where the objective is one: `held_out_losses` says of which form it is.
    said = [f"{steps:,}{of} steps are done."] if not (path / RESULT).is_file() else []
    if metrics and not held:
        said = [f"The training loss is {metrics[-1]['loss']:.4f} nats per token.", *said]
    if held:
        most = "" if held[-1].get("form") == "causal" else "at most "
        said = [
            f"After {held[-1]['step']:,} steps held-out text has {most}"
            f"{held[-1]['nats_per_token']:.4f} nats per token.",
            *said,
        ]
    result = Result(
        asked=dict(mark.asked),
        table=Table("Held-out loss", COLUMNS, held),
        facts={"answer": said, "metrics": metrics},
    )
    name = str(mark.asked.get("name") or "training")
    return StudyPart(f"training {name}", path, result, Look(f"Training of {name}", _curve))


def _curve(result: Result) -> Figure:
    """Every so many of the training losses, and all that was measured on held-out rows."""
    metrics = result.facts["metrics"]
    train = [entry for entry in metrics if entry["kind"] == "train"]
    held = [entry for entry in metrics if entry["kind"] == "held_out"]
    return draw_losses([*train[:: 1 + len(train) // MOST], *held])
