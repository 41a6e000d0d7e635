"""How each table or figure of the paper is measured and put beside the paper's numbers.

Every function here takes a `Setup` and returns an `Outcome`, or makes such a function. What is
heavy is imported when it runs: listing the items loads none of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strop.studies import paper
from strop.studies.item import Outcome, Setup

__all__ = [
    "cells",
    "cost",
    "cross_model",
    "didi_grids",
    "exact_output",
    "exact_repair",
    "frontier",
    "groupeval",
    "less",
    "posterior",
]


def _sampling(setup: Setup) -> Any:
    from strop.metrics.evaluator import load_evaluator
    from strop.metrics.heldout import read_texts
    from strop.studies.sampled import Sampling

    return Sampling(
        evaluator=load_evaluator(setup.evaluator, device=setup.device),
        n=setup.n,
        seed=setup.seed,
        held_out=read_texts(),
        device=setup.device,
        progress=setup.progress,
    )


def cells(table: str, full: bool, **where: Any) -> Callable[[Setup], Outcome]:
    """A table of perplexities by steps, temperature and precision."""

    def run(setup: Setup) -> Outcome:
        from strop.denoisers import load_denoiser
        from strop.studies.audit import CORNERS, GRID, audit

        how = _sampling(setup)
        result = audit(
            load_denoiser(setup.checkpoints[0], device=setup.device),
            [how.evaluator],
            out=setup.out,
            steps=setup.steps,
            settings=GRID if full else CORNERS,
            n=[setup.n] * len(setup.steps),
            fresh=False,
            seed=setup.seed,
            held_out=how.held_out,
            progress=setup.progress,
        )
        keys = ("steps", "temperature", "precision")
        printed = {tuple(row[k] for k in keys): row for row in paper.table(table).records(**where)}
        rows = []
        for cell in result.document()["cells"]:
            key = tuple(cell[k] for k in keys)
            row = printed.get(key)
            rows.append(
                {
                    **dict(zip(keys, key, strict=True)),
                    "paper": row and row["perplexity"],
                    "paper_entropy": row and row["entropy"],
                    "measured": cell["perplexity"][0]["value"],
                    "low": cell["perplexity"][0]["low"],
                    "high": cell["perplexity"][0]["high"],
                    "measured_entropy": cell["entropy"]["value"],
                    "below_guard": cell["below_guard"],
                }
            )
        return Outcome(keys, rows, "perplexity", result.document())

    return run


def less(comparison: str) -> Callable[[Setup], Outcome]:
    """The ratio of two checkpoints' perplexities."""

    def run(setup: Setup) -> Outcome:
        from strop.studies.less_is_more import run_less_is_more

        more, less = setup.checkpoints
        result = run_less_is_more(more, less, _sampling(setup), out=setup.out, steps=setup.steps)
        keys = ("sampler", "steps")
        printed = {
            tuple(row[k] for k in keys): row["ratio"]
            for row in paper.table("less-is-more").records(comparison=comparison)
        }
        rows = [
            {
                **{k: row[k] for k in keys},
                "paper": printed.get(tuple(row[k] for k in keys)),
                "measured": row["ratio"],
                "low": row["low"],
                "high": row["high"],
            }
            for row in result["rows"]
        ]
        return Outcome(keys, rows, "perplexity, more over less", result)

    return run


def frontier(setup: Setup) -> Outcome:
    """Perplexity and entropy against temperature."""
    from strop.studies.frontier import run_frontier

    result = run_frontier(
        setup.checkpoints[0],
        _sampling(setup),
        out=setup.out,
        steps=setup.steps,
        precisions=("float32",),
    )
    keys = ("steps", "temperature", "precision")
    rows = [
        {
            **{k: row[k] for k in keys},
            "paper": None,
            "measured": row["perplexity"],
            "low": row["low"],
            "high": row["high"],
            "measured_entropy": row["entropy"],
            "below_guard": row["below_guard"],
        }
        for row in result["rows"]
    ]
    return Outcome(keys, rows, "perplexity", result)


def posterior(setup: Setup) -> Outcome:
    """What sharpening adds to the posterior loss."""
    from strop.studies.posterior import run_posterior

    result = run_posterior(
        setup.checkpoints,
        out=setup.out,
        steps=setup.steps,
        n=setup.n,
        profile_n=min(setup.n, 128),
        seed=setup.seed,
        device=setup.device,
    )
    names = [one["name"] for one in result["checkpoints"]]
    roles = dict(zip(names, ("early", "late"), strict=False))
    sharpened = result["asked"]["sharpened"]
    rows = []
    for one in result["losses"]:
        if one["estimator"] != "target":
            continue
        at = next(t for t in one["temperatures"] if t["temperature"] == sharpened)
        found = paper.table("posterior").records(
            checkpoint=roles.get(one["checkpoint"], "public"), steps=one["steps"]
        )
        rows.append(
            {
                "checkpoint": one["checkpoint"],
                "steps": one["steps"],
                "paper": found[0]["difference"] if found else None,
                "measured": at["minus_one"]["mean"],
                "low": at["minus_one"]["low"],
                "high": at["minus_one"]["high"],
            }
        )
    unit = f"nats per token, tau = {sharpened:g} minus tau = 1"
    return Outcome(("checkpoint", "steps"), rows, unit, result)


def cost(setup: Setup) -> Outcome:
    """Seconds per sequence."""
    from strop.studies.cost import run_cost

    result = run_cost(
        setup.checkpoints[0],
        out=setup.out,
        steps=setup.steps,
        batch_size=setup.n,
        seed=setup.seed,
        device=setup.device,
    )
    printed = {
        (row["setting"], row["steps"]): row["seconds"] for row in paper.table("cost").records()
    }
    rows = [
        {
            "setting": row["setting"],
            "steps": row["updates"],
            "implementation": row["implementation"],
            "paper": printed.get((row["setting"], row["updates"]))
            if row["implementation"] == "dense"
            else None,
            "measured": row["seconds"],
            "low": row["seconds_low"],
            "high": row["seconds_high"],
        }
        for row in result["rows"]
    ]
    return Outcome(("setting", "steps", "implementation"), rows, "seconds per sequence", result)


def groupeval(name: str) -> Callable[[Setup], Outcome]:
    """Judged quality, standard against sharpened."""

    def run(setup: Setup) -> Outcome:
        from strop.studies.groupeval_cells import run_groupeval

        panel, document = run_groupeval(setup, name)
        from strop.studies.groupeval_panel import paper_panel

        printed = {
            row.steps: row.difference
            for row in paper_panel(name).of(paper_panel(name).default_judge)
        }
        rows = [
            {
                "judge": row.judge,
                "steps": row.steps,
                "paper": printed.get(row.steps),
                "measured": row.difference,
                "low": row.interval[0],
                "high": row.interval[1],
                "GED": f"{row.ged[0]:.2f} -> {row.ged[1]:.2f}",
            }
            for row in panel.rows
        ]
        return Outcome(("judge", "steps"), rows, "GEQ, sharpened minus standard", document)

    return run


def cross_model(setup: Setup) -> Outcome:
    """Every family by its own sampler."""
    from strop.studies.contenders import MODELS
    from strop.studies.cross_model import run_cross_model

    sources = dict(zip(MODELS, setup.checkpoints, strict=True)) if setup.checkpoints else None
    result = run_cross_model(sources, _sampling(setup), out=setup.out, steps=setup.steps)
    keys = ("model", "steps", "temperature", "precision", "finish")
    return Outcome(keys, _measured(result["rows"], keys), "perplexity", result, result["protocol"])


def didi_grids(setup: Setup) -> Outcome:
    """DiDi-Instruct's two grids."""
    from strop.studies.didi_grids import run_didi_grids

    source = setup.checkpoints[0] if setup.checkpoints else None
    result = run_didi_grids(source, _sampling(setup), out=setup.out, steps=setup.steps)
    keys = ("sampler", "steps", "temperature", "precision")
    return Outcome(keys, _measured(result["rows"], keys), "perplexity", result, result["protocol"])


def _measured(rows: list[dict[str, Any]], keys: tuple[str, ...]) -> list[dict[str, Any]]:
    """A study's rows in the words of an outcome."""
    return [
        {
            **{key: row[key] for key in keys},
            "paper": row["paper"],
            "paper_entropy": row["paper_entropy"],
            "measured": row["perplexity"],
            "low": row["low"],
            "high": row["high"],
            "measured_entropy": row["entropy"],
            "below_guard": row["below_guard"],
        }
        for row in rows
    ]


def exact_output(setup: Setup) -> Outcome:
    """Likelihood and judged quality on the same outputs; the rows are the ratios."""
    from strop.studies import exact_output as study

    def find() -> study.Pools:
        sources: dict[str, str] = dict(zip(study.NAMES, setup.checkpoints, strict=False))
        if not setup.checkpoints:
            sources = study.two_sources([], smoke=True, out=setup.out)
        return study.drawn_pools(
            sources,
            out=setup.out,
            steps=setup.steps,
            n=setup.n,
            seed=setup.seed,
            device=setup.device,
            progress=setup.progress,
        )

    result = study.run_exact_output(
        find,
        out=setup.out,
        evaluators=study.EVALUATORS if setup.checkpoints else study.SMOKE_EVALUATORS,
        seed=setup.seed,
        device=setup.device,
        progress=setup.progress,
    )
    rows = []
    for row in result["comparisons"]:
        where = {"steps": row["steps"], "setting": row["setting"]}
        for name, one in row["ratios"].items():
            rows.append({**where, "by": name, **_with_paper(one, one["paper"])})
        for judge, one in row["judged"].items():
            said = row["paper"] and row["paper"]["difference"]
            value = {**one, "value": one["difference"]}
            rows.append({**where, "by": f"GEQ {judge}", **_with_paper(value, said)})
    unit = "perplexity, MDLM over DiDi-Instruct; GEQ, MDLM minus DiDi-Instruct"
    return Outcome(("steps", "setting", "by"), rows, unit, result)


def _with_paper(one: dict[str, Any], said: Any) -> dict[str, Any]:
    return {"paper": said, "measured": one["value"], "low": one["low"], "high": one["high"]}


def exact_repair(setup: Setup) -> Outcome:
    """Two bits, and 280 random targets with a perfect model; nothing is sampled."""
    from strop.theory.pair import pair
    from strop.theory.study import run_study

    summary = run_study(setup.seed).summary()
    agreement = float(paper.table("exact-repair").value("value", what="agreement s"))  # type: ignore[arg-type]
    found = {
        "agreement s": agreement,
        "best inverse temperature of the pair": pair(agreement, 0.5).lambda_star,
        "random targets": summary["targets"],
        "random targets best above 1": summary["lambda_star_above_1"],
    }
    rows = [
        {
            "what": row["what"],
            "paper": row["value"],
            "measured": found[str(row["what"])],
            "low": None,
            "high": None,
        }
        for row in paper.table("exact-repair").records()
    ]
    told = ("the paper does not say how its 280 targets and grids were drawn; other seeds differ",)
    return Outcome(("what",), rows, "exact numbers, nothing sampled", summary, told)
