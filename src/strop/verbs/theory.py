"""strop theory: the finite-step theory on your own target; numpy loads when a verb runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.spec.generator import SamplerSpec
from strop.spec.value import OUTPUT_LIMIT, SEED_LIMIT
from strop.verbs.parameters import argument, budgets
from strop.verbs.verb import Ask, Facts, Parameter, Result, Verb, VerbGroup

if TYPE_CHECKING:
    from strop.theory.sampler import LawProblem


def _problem(ask: Ask) -> LawProblem:
    from strop.theory.document import read_problem

    problem, ignored = read_problem(ask["target"])
    if ignored:
        ask.note("note: keys without a meaning here were ignored: " + ", ".join(ignored))
    return problem


def _result(
    title: str, values: Mapping[str, Any], following: str, *, shown: Mapping[str, Any] | None = None
) -> Result:
    facts = Facts(title, values if shown is None else shown)
    return Result(parts=(facts,), json=_finite(values), next=following, value=values)


def _finite(value: Any) -> Any:
    """JSON has no infinity; it becomes the string that `float` reads back."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "Infinity" if value > 0 else "-Infinity" if value < 0 else None
    return value


def _account(ask: Ask) -> Result:
    from strop.theory.accounting import account

    problem = _problem(ask)
    values = asdict(account(problem))
    if problem.target.size > 4096:
        del values["pi"]  # too long to print; the library has it
    title = "Theorem 1: training integrates, sampling sums"
    return _result(title, values, f"strop theory derivative {ask['target']}")


def _derivative(ask: Ask) -> Result:
    from strop.theory.temperature import best_temperature, direction, kl_at

    problem = _problem(ask)
    if (problem.lam != 1).any():
        ask.note("note: the file's lam is not used; one common lambda is varied around 1")
    slope, best = direction(problem), best_temperature(problem)
    values = {
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
    title = "Theorem 2: the output error against temperature"
    return _result(title, values, f"strop theory account {ask['target']}")


def _pair(ask: Ask) -> Result:
    from strop.theory.temperature import pair

    s, c, lam = ask["s"], ask["c"], ask["lam"]
    values = pair(s, c, lam).as_dict()
    best = values.get("lambda_star")
    again = f"strop theory pair --s {s} --c {c} --lam {best}"
    following = "strop theory study" if best is None or best == lam else again
    return _result("Proposition 2: exact repair", values, following)


def _collisions(ask: Ask) -> Result:
    from strop.theory.sampler import cleanup_tv, clipped_masses, collisions, equal_masses

    length, rounds = ask["length"], ask["rounds"]
    masses = clipped_masses(rounds) if ask["clipped"] else equal_masses(rounds)
    values = asdict(collisions(length, masses))
    if ask["clipped"]:
        values["cleanup_tv"] = cleanup_tv(length)
    again = f"strop theory collisions --length {length} --rounds {rounds} --clipped"
    return _result("Reveal-round occupancy (expected values)", values, again)


def _study(ask: Ask) -> Result:
    from strop.theory.schedules import run_study

    values = run_study(ask["seed"], ask["grid_law"]).summary()
    return _result("280 random targets", values, "strop theory figure -o figures")


def _verify(ask: Ask) -> Result:
    from dataclasses import replace

    from strop.theory.verification import verify_all, verify_case

    out = Path(ask["out"])
    report = verify_case(ask["case"]) if ask["case"] is not None else verify_all(ask["seed"])
    error = None
    if report.failures:
        report.write_failure(out)
        error = report.error(out)
    result = _result("Verification", report.summary(), "strop theory study")
    return replace(result, error=error)


def _figure(ask: Ask) -> Result:
    from strop.theory.figures import draw_all

    files = draw_all(Path(ask["out"]), ask["seed"])
    return _result("Figures", {"files": [str(file) for file in files]}, "strop theory verify")


def _markov(ask: Ask) -> Result:
    import json

    from strop.errors import UserError

    for m in ask["steps"] or ():
        SamplerSpec(steps=m)
    from strop.verbs.markov import STEPS, run_markov_study, save

    out = Path(ask["out"])
    try:
        out.mkdir(parents=True, exist_ok=True)
        study = run_markov_study(
            steps=ask["steps"] or STEPS, note=ask.note, **ask.some("outputs", "length", "seed")
        )
        values = study.as_dict()
        (out / "markov.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        files = {"files": [str(file) for file in save(study, out)]}
    except OSError as error:
        raise UserError("The study cannot be written.", where=out, got=error.strerror) from None
    printed = {**values, "rows": len(study.rows), **files}
    following = "strop theory figure -o figures"
    return _result("Markov chain", {**values, **files}, following, shown=printed)


TARGET = argument(
    "target",
    "TARGET.json",
    '{"P": nested array, "grid": [0, ..., 1], "lam": 1, "denoiser": "bayes"}, or example:NAME.',
)


def _seed(words: str) -> Parameter:
    return Parameter("seed", words, 0, "int", most=SEED_LIMIT)


def _out(words: str) -> Parameter:
    return Parameter("out", words, flags=("--out", "-o"), required=True)


ACCOUNT = Verb(
    name="account",
    help="Theorem 1 on one problem: J_N, B_N, C_N, R_N, both KLs and the bounds.",
    parameters=(TARGET,),
    run=_account,
    examples=("strop theory account example:pair", "strop theory account my.json --json"),
)
DERIVATIVE = Verb(
    name="derivative",
    help="Theorem 2 on one problem: the slope of the output error at lambda = 1, and lambda*.",
    parameters=(TARGET,),
    run=_derivative,
    examples=("strop theory derivative example:pair",),
)
PAIR = Verb(
    name="pair",
    help="Proposition 2: two bits, in closed form, and the temperature that repairs them.",
    parameters=(
        Parameter.real("s", "Agreement of the two bits, 1/2 < s < 1.", required=True),
        Parameter.real("c", "Chance that both share a round, 0 < c < 1.", required=True),
        Parameter.real("lam", "Inverse temperature.", 1.0),
    ),
    run=_pair,
    examples=("strop theory pair --s 0.9 --c 0.25", "strop theory pair --s 0.9 --c 0.25 --lam 1.3"),
)
COLLISIONS = Verb(
    name="collisions",
    help="How often tokens share their reveal round.",
    parameters=(
        Parameter.count("length", "Tokens per output.", 1024, most=2**63),
        Parameter.count("rounds", "Reveal rounds of equal mass.", 1024, most=2**63),
        Parameter.flag(
            "clipped",
            "The public schedule: --rounds updates and a cleanup round.",
            flags=("--clipped/--no-clipped",),
        ),
    ),
    run=_collisions,
    examples=("strop theory collisions --length 1024 --rounds 64",),
)
STUDY_280 = Verb(
    name="study",
    help="280 random targets with the exact denoiser: the best inverse temperature of each.",
    parameters=(
        _seed("Seed of targets and grids."),
        Parameter(
            "grid_law",
            "sorted-uniform, inner-uniform, dirichlet-2, weights or equal.",
            "sorted-uniform",
        ),
    ),
    run=_study,
    examples=("strop theory study", "strop theory study --grid-law equal"),
)
VERIFY = Verb(
    name="verify",
    help="Check every identity, bound, derivative and proposition; exit 3 if one fails.",
    parameters=(
        _seed("Seed of the random cases."),
        Parameter("case", "Check again only the case in this file.", kind="place"),
        Parameter(
            "out", "Where a failing case is written.", "theory-failure.json", flags=("--out", "-o")
        ),
    ),
    run=_verify,
    examples=("strop theory verify", "strop theory verify --case theory-failure.json"),
)
FIGURE = Verb(
    name="figure",
    help="Draw the theory figures, each as SVG and PNG.",
    parameters=(_out("Directory for SVG and PNG files."), _seed("Seed of the random targets.")),
    run=_figure,
    examples=("strop theory figure -o figures",),
)
MARKOV = Verb(
    name="markov",
    help="The real samplers on an exact Markov-chain denoiser at full length (needs torch).",
    parameters=(
        _out("Directory for the data and figure."),
        Parameter(
            "outputs",
            "Per generator.",
            128,
            "int",
            least=2,
            most=OUTPUT_LIMIT,
            flags=("-n", "--outputs"),
        ),
        Parameter("length", "Tokens per output.", 1024, "int", least=2),
        budgets("Numbers of updates, comma-separated."),
        _seed("Seed of the chain and of the outputs."),
    ),
    run=_markov,
    examples=("strop theory markov -n 32 --steps 4,64 -o runs/markov",),
)
GROUP = VerbGroup(
    name="theory",
    help="The paper's mathematics, exact on any small target.",
    verbs=(ACCOUNT, DERIVATIVE, PAIR, COLLISIONS, STUDY_280, VERIFY, FIGURE, MARKOV),
    examples=("strop theory account example:pair", "strop theory verify"),
)
