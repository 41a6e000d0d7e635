"""`strop theory`: the finite-step theory on your own target.

Every verb parses, calls the library and prints; numpy and scipy load only when a verb runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from strop.cli import output
from strop.cli.commands import examples
from strop.cli.values import listed

Json = Annotated[bool, output.JSON_FLAG]
Problem = Annotated[
    str,
    typer.Argument(
        metavar="TARGET.json",
        help='{"P": nested array, "grid": [0, ..., 1], "lam": 1, "denoiser": "bayes"}, '
        "or example:NAME.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the sub-commands of `strop theory`."""
    theory = typer.Typer(
        no_args_is_help=True,
        help="The paper's mathematics, exact on any small target.",
        epilog=examples("strop theory account example:pair", "strop theory verify"),
    )
    for verb, shown in EXAMPLES.items():
        theory.command(epilog=examples(*shown))(verb)
    app.add_typer(theory, name="theory")


def account(target: Problem, as_json: Json = False) -> None:
    """Theorem 1 on one problem: J_N, B_N, C_N, R_N, both KLs and the bounds."""
    from strop.theory.accounting import account as evaluate
    from strop.theory.document import read_problem

    problem, ignored = read_problem(target)
    _note_extra(ignored)
    result = evaluate(problem).as_dict()
    if problem.target.size > 4096:
        del result["pi"]  # too long to print; the library has it
    _show(result, as_json, title="Theorem 1: training integrates, sampling sums")
    output.next_command(f"strop theory derivative {target}")


def derivative(target: Problem, as_json: Json = False) -> None:
    """Theorem 2 on one problem: the slope of the output error at lambda = 1, and lambda*."""
    from strop.theory.document import read_problem
    from strop.theory.temperature import best_temperature, direction, kl_at

    problem, ignored = read_problem(target)
    _note_extra(ignored)
    if (problem.lam != 1).any():
        output.note("note: the file's lam is not used; one common lambda is varied around 1")
    slope, best = direction(problem), best_temperature(problem)
    result = {
        "g": slope.g,
        "sharpening_term": slope.sharpening_term,
        "cov_w_eta": slope.cov_w_eta,
        "loss_slope": slope.loss_slope,
        "direction": "sharpen" if slope.g < 0 else "smooth" if slope.g > 0 else "stationary",
        "KL_at_1": kl_at(problem, 1.0),
        "lambda_star": best.lambda_star,
        "KL_at_star": best.KL_at_star,
        "at_limit": best.at_limit,
    }
    _show(result, as_json, title="Theorem 2: the output error against temperature")
    output.next_command(f"strop theory account {target}")


def pair(
    s: Annotated[float, typer.Option(help="Agreement of the two bits, 1/2 < s < 1.")],
    c: Annotated[float, typer.Option(help="Chance that both share a round, 0 < c < 1.")],
    lam: Annotated[float, typer.Option(help="Inverse temperature.")] = 1.0,
    as_json: Json = False,
) -> None:
    """Proposition 2: two bits, in closed form, and the temperature that repairs them."""
    from strop.theory.pair import pair as evaluate

    result = evaluate(s, c, lam).as_dict()
    _show(result, as_json, title="Proposition 2: exact repair")
    best = result.get("lambda_star")
    hint = lam if best is None or best == lam else best
    output.next_command(
        f"strop theory pair --s {s} --c {c} --lam {hint}" if hint != lam else "strop theory study"
    )


def collisions(
    length: Annotated[int, typer.Option(min=1, help="Tokens per output.")] = 1024,
    rounds: Annotated[int, typer.Option(min=1, help="Reveal rounds of equal mass.")] = 1024,
    clipped: Annotated[
        bool, typer.Option(help="The public schedule: --rounds updates and a cleanup round.")
    ] = False,
    as_json: Json = False,
) -> None:
    """How often tokens share their reveal round."""
    from strop.theory.collisions import (
        cleanup_tv,
        clipped_masses,
        equal_masses,
    )
    from strop.theory.collisions import collisions as evaluate

    masses = clipped_masses(rounds) if clipped else equal_masses(rounds)
    result = evaluate(length, masses).as_dict()
    if clipped:
        result["cleanup_tv"] = cleanup_tv(length)
    _show(result, as_json, title="Reveal-round occupancy (expected values)")
    output.next_command(f"strop theory collisions --length {length} --rounds {rounds} --clipped")


def study(
    seed: Annotated[int, typer.Option(min=0, help="Seed of targets and grids.")] = 0,
    grid_law: Annotated[
        str,
        typer.Option(help="sorted-uniform, inner-uniform, dirichlet-2, weights or equal."),
    ] = "sorted-uniform",
    as_json: Json = False,
) -> None:
    """280 random targets with the exact denoiser: the best inverse temperature of each."""
    from strop.theory.random_targets import run_study

    result = run_study(seed, grid_law).summary()
    _show(result, as_json, title="280 random targets")
    output.next_command("strop theory figure -o figures")


def verify(
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random cases.")] = 0,
    case: Annotated[
        Path | None, typer.Option(help="Check again only the case in this file.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Where a failing case is written.")
    ] = Path("theory-failure.json"),
    as_json: Json = False,
) -> None:
    """Check every identity, bound, derivative and proposition; exit 3 if one fails."""
    from strop.theory.verify import verify_all, verify_case

    report = verify_case(case) if case is not None else verify_all(seed)
    result = report.summary()
    if report.failures:
        report.write_failure(out)
    if not (as_json and report.failures):  # a failure is the one JSON document then
        _show(result, as_json, title="Verification")
    if report.failures:
        raise report.error(out)
    output.next_command("strop theory study")


def figure(
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for SVG and PNG files.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random targets.")] = 0,
    as_json: Json = False,
) -> None:
    """Draw the theory figures, each as SVG and PNG."""
    from strop.theory.figures import draw_all

    files = draw_all(out, seed)
    _show({"files": [str(f) for f in files]}, as_json, title="Figures")
    output.next_command("strop theory verify")


def markov(
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the data and figure.")],
    outputs: Annotated[int, typer.Option("-n", "--outputs", min=2, help="Per generator.")] = 128,
    length: Annotated[int, typer.Option(min=2, help="Tokens per output.")] = 1024,
    steps: Annotated[str, typer.Option(help="Numbers of updates, comma-separated.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the chain and of the outputs.")] = 0,
    as_json: Json = False,
) -> None:
    """The real samplers on an exact Markov-chain denoiser at full length (needs torch)."""
    import json

    from strop.errors import UserError, whole_number
    from strop.spec import OUTPUT_LIMIT, SEED_LIMIT

    whole_number("n", outputs, 2, OUTPUT_LIMIT)
    whole_number("seed", seed, 0, SEED_LIMIT)
    counts = _steps(steps) if steps else None
    from strop.verbs.markov import STEPS, run_markov_study, save

    try:
        out.mkdir(parents=True, exist_ok=True)
        study = run_markov_study(
            outputs=outputs, length=length, steps=counts or STEPS, seed=seed, note=output.note
        )
        result = study.as_dict()
        (out / "markov.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        files = save(study, out)
    except OSError as error:
        raise UserError("The study cannot be written.", where=out, got=error.strerror) from None
    shown = result if as_json else {**result, "rows": len(study.rows)}
    _show({**shown, "files": [str(f) for f in files]}, as_json, title="Markov chain")
    output.next_command("strop theory figure -o figures")


def _steps(text: str) -> tuple[int, ...]:
    from strop.spec import SamplerSpec

    return tuple(SamplerSpec(steps=count).steps for count in listed(text, int, "--steps"))


def _note_extra(keys: list[str]) -> None:
    if keys:
        output.note("note: keys without a meaning here were ignored: " + ", ".join(keys))


def _show(result: Mapping[str, Any], as_json: bool, title: str) -> None:
    """One JSON document, or a table with a row per value."""
    if as_json:
        output.emit(_finite(result))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in result.items():
        table.add_row(key, Text(_text(value)))  # brackets are no markup here
    output.console().print(table)


def _finite(value: Any) -> Any:
    """JSON has no infinity; it becomes the string that `float` reads back."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "Infinity" if value > 0 else "-Infinity" if value < 0 else None
    return value


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, Mapping):
        return "\n".join(f"{key}: {_text(item)}" for key, item in value.items())
    if isinstance(value, list) and any(isinstance(item, str | Mapping) for item in value):
        return "\n".join(_text(item) for item in value)
    if isinstance(value, list):
        return "[" + ", ".join(_text(item) for item in value) + "]"
    return str(value)


EXAMPLES = {
    account: ["strop theory account example:pair", "strop theory account my.json --json"],
    derivative: ["strop theory derivative example:pair"],
    pair: ["strop theory pair --s 0.9 --c 0.25", "strop theory pair --s 0.9 --c 0.25 --lam 1.3"],
    collisions: ["strop theory collisions --length 1024 --rounds 64"],
    study: ["strop theory study", "strop theory study --grid-law equal"],
    verify: ["strop theory verify", "strop theory verify --case theory-failure.json"],
    figure: ["strop theory figure -o figures"],
    markov: ["strop theory markov -n 32 --steps 4,64 -o runs/markov"],
}
"""The verbs in their order, with what their help shows."""
