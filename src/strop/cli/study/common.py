"""What the studies of sampled outputs share on the command line."""

from __future__ import annotations

import copy
import functools
import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from strop.assets import EVALUATOR
from strop.cli import output
from strop.errors import UserError

if TYPE_CHECKING:
    from strop.progress import Progress
    from strop.studies.sampled import Sampling

__all__ = [
    "DEVICE",
    "FORCE",
    "OUT",
    "SEED",
    "SMOKE",
    "SMOKE_NOTE",
    "Drawing",
    "alone",
    "beside",
    "drawing",
    "number",
]

OUT = Annotated[str, typer.Option("-o", "--out", help="The directory; continued if it exists.")]
SEED = Annotated[int, typer.Option("--seed", help="Root seed.")]
DEVICE = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:i.")]
FORCE = Annotated[bool, typer.Option("--force", help="Draw and measure everything anew.")]

PAPER_N, PAPER_EVALUATOR = 40, "gpt2-large"
"""What studies across families take unless they are told otherwise."""
_OPEN = {
    "n": f"{PAPER_N}; with --smoke fewer",
    "evaluator": f"{PAPER_EVALUATOR}; with --smoke {EVALUATOR}",
}
"""What the help says of defaults that --smoke changes."""
SMOKE = Annotated[bool, typer.Option("--smoke", help="On the embedded models, within minutes.")]
SMOKE_NOTE = (
    "Measured on the embedded models: other data, another vocabulary, 128 tokens, a small "
    "evaluator and a judge that counts. Compare the shape of the columns, not the numbers."
)


def alone(flag: str, given: bool, models: Sequence[str] | None) -> None:
    """Refuse models beside a flag that brings its own, instead of ignoring them."""
    if given and models:
        raise UserError(
            f"{flag} brings its own models.",
            where=flag,
            got=", ".join(models),
            fix=f"leave out {flag}, or the models",
        )


def beside(keys: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """The paper's numbers and the measured ones, one line per row."""
    extra = [k for k in ("measured_entropy", "GED") if any(k in row for row in rows)]
    output.table(
        [*keys, "paper", "measured", "95% interval", *extra],
        [
            [
                *(str(row[key]) for key in keys),
                number(row["paper"]),
                number(row["measured"]) + ("†" if row.get("below_guard") else ""),
                f"{number(row['low'])} to {number(row['high'])}",
                *(number(row[k]) if k in row else "" for k in extra),
            ]
            for row in rows
        ],
    )


def number(value: Any) -> str:
    """Four digits, or a dash where there is none."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Drawing:
    """The flags of every study that draws outputs and scores them."""

    out: OUT
    n: Annotated[int | None, typer.Option("-n", "--n", help="Outputs per cell.")] = None
    evaluator: Annotated[
        str | None, typer.Option("--evaluator", help="The language model that scores.")
    ] = None
    span: Annotated[
        str, typer.Option("--span", help="first-document, full-stream or public-code.")
    ] = "first-document"
    held_out: Annotated[
        Path | None,
        typer.Option("--held-out", help="JSON lines with text and ids, for the entropy guard."),
    ] = None
    seed: SEED = 0
    device: DEVICE = "auto"
    dtype: Annotated[str, typer.Option("--dtype", help="Of the generator's network.")] = "auto"
    force: FORCE = False
    as_json: Annotated[bool, output.JSON_FLAG] = False

    def sampling(self, progress: Progress, smoke_n: int | None = None) -> Sampling:
        """How outputs are drawn and scored, with the evaluator loaded; `smoke_n` in --smoke."""
        n = self.n if self.n is not None else PAPER_N if smoke_n is None else smoke_n
        output.positive("-n", n)
        from strop.metrics.evaluator import load_evaluator
        from strop.metrics.heldout import read_texts
        from strop.studies.sampled import Sampling

        usual = PAPER_EVALUATOR if smoke_n is None else EVALUATOR
        with output.warnings_noted():
            evaluator = load_evaluator(self.evaluator or usual, device=self.device)
        return Sampling(
            evaluator=evaluator,
            n=n,
            seed=self.seed,
            span=self.span,  # type: ignore[arg-type]  # the metric refuses what it does not know
            held_out=read_texts(self.held_out),
            device=self.device,
            dtype=self.dtype,
            force=self.force,
            progress=progress,
        )

    @property
    def folder(self) -> str:
        """The directory as a shell reads it."""
        return shlex.quote(self.out)

    def tell(self, result: dict[str, Any], show: Callable[[dict[str, Any]], None]) -> None:
        """The result as JSON, or as `show` prints it."""
        if self.as_json:
            output.emit(result)
        else:
            show(result)


def drawing(**defaults: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function of a `Drawing` and flags of its own: all flags side by side.

    `defaults` replaces those of `Drawing`, for this command and in its help.
    """
    kinds = get_type_hints(Drawing, include_extras=True)
    shared = []
    for one in fields(Drawing):
        default, kind = defaults.get(one.name, one.default), kinds[one.name]
        if default is None and one.name in _OPEN:
            flag = copy.copy(kind.__metadata__[0])
            flag.show_default = _OPEN[one.name]
            kind = Annotated[kind.__origin__, flag]
        if default is MISSING:
            default = inspect.Parameter.empty
        keyword = inspect.Parameter.KEYWORD_ONLY
        shared.append(inspect.Parameter(one.name, keyword, default=default, annotation=kind))

    def command_of(study: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in list(inspect.signature(study, eval_str=True).parameters.values())[1:]
        ]

        @functools.wraps(study)
        def command(**given: Any) -> None:
            mine = {one.name: given.pop(one.name) for one in own}
            study(Drawing(**given), **mine)

        parameters = [shared[0], *own, *shared[1:]]
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return command

    return command_of
