"""strop groupeval judge: ask a judge about every group that has no verdict yet."""

from __future__ import annotations

import os
import shlex
import signal
import threading
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from strop.cli import output
from strop.cli.examples import examples
from strop.errors import UserError, unknown_name

if TYPE_CHECKING:
    from strop.groupeval.cost import Price, Usage
    from strop.groupeval.directory import Journal
    from strop.groupeval.endpoint import Patience
    from strop.groupeval.series import Series
    from strop.groupeval.session import Asked, Session

__all__ = ["register"]

FEATURES = ("auto", "minilm", "ngrams")
EXCERPT = 160

T = TypeVar("T")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    commands = (
        "strop groupeval judge runs/ge --base-url URL --model NAME --dry-run",
        "strop groupeval judge runs/ge --offline",
    )
    app.command("judge", epilog=examples(*commands))(judge)


def judge(
    run: Annotated[Path, typer.Argument(help="A directory made by `strop groupeval plan`.")],
    base_url: Annotated[
        str | None, typer.Option(help="Of an OpenAI-compatible server, e.g. http://HOST:8000/v1.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="As the server names it; no default.")] = None,
    key_env: Annotated[
        str, typer.Option(help="The environment variable that holds the key, if one is needed.")
    ] = "OPENAI_API_KEY",
    offline: Annotated[
        bool, typer.Option("--offline", help="The counting judge offline-v1; no server, no model.")
    ] = False,
    features: Annotated[
        str, typer.Option(help="Of the offline judge: auto, minilm or ngrams.")
    ] = "auto",
    repeats: Annotated[
        int, typer.Option(help="Ask about each group this often, to measure the judge.")
    ] = 1,
    concurrency: Annotated[int, typer.Option(help="Requests under way at once.")] = 8,
    timeout: Annotated[float, typer.Option(help="Seconds for one request.")] = 300.0,
    max_tokens: Annotated[
        int | None, typer.Option(help="Of a reply; the profile's by default. Another judge.")
    ] = None,
    response_format: Annotated[
        str, typer.Option(help="The strictest form to try: json_schema, json_object or text.")
    ] = "json_schema",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say how many calls and tokens, and what they cost.")
    ] = False,
    max_calls: Annotated[
        int | None, typer.Option(help="Cap for the whole series, earlier sessions included.")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(help="The same in money; needs --prices.")
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(help="YAML: MODEL: {input: X, output: Y} per million tokens.")
    ] = None,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Ask about every group without a verdict; the same command continues, failures included.

    Every reply is kept as it came. Exit code 2 means that some groups have no verdict yet.
    """
    for flag, value in (("--repeats", repeats), ("--concurrency", concurrency)):
        output.positive(flag, value)
    if offline:
        _judge_offline(run, base_url, model, features, repeats, dry_run, as_json)
        return
    from strop.groupeval.cost import cost_estimate, read_price
    from strop.groupeval.directory import probes, probing
    from strop.groupeval.endpoint import Patience
    from strop.groupeval.form import settled_form
    from strop.groupeval.series import Series
    from strop.groupeval.session import pending

    who = _endpoint_judge(run, base_url, model, max_tokens, response_format)
    if not 0 < timeout < float("inf"):
        raise UserError("--timeout is out of range.", where="--timeout", got=timeout)
    price = read_price(prices, who["model"])
    _check_caps(max_calls, max_cost, price, prices, who["model"])
    if dry_run:
        known = settled_form(who, probes(run, who))
        series = Series.planned(run, known or who)
        told = {**cost_estimate(series, pending(series, repeats), price), "probe": known is None}
        _print_estimate(run, series, told, as_json)
        return
    caps = {"max_calls": max_calls, "max_cost": max_cost, "price": price}
    key, patience = os.environ.get(key_env), Patience(timeout=timeout)
    with probing(run, who) as probe:
        series = Series.create(run, _settled(run, who, key, patience, caps, probe))
    _note_form(who, series)
    with series.writing():
        session = _ask(series, probe, key, patience, concurrency, repeats, caps)
    _report(run, series, repeats, price, session, as_json, usage_of(probe, series))


def _endpoint_judge(
    run: Path, base_url: str | None, model: str | None, max_tokens: int | None, form: str
) -> dict[str, Any]:
    """Who judges: the model, where it is, and how it is asked."""
    from strop.groupeval.directory import open_plan
    from strop.groupeval.endpoint import FORMATS, check_url

    if not base_url or not model:
        raise UserError(
            "Which judge? There is no default model.",
            where="--base-url and --model",
            fix=f"strop groupeval judge {shlex.quote(str(run))} --base-url http://HOST:8000/v1 "
            "--model NAME, or --offline for the judge that only counts",
        )
    if form not in FORMATS:
        raise unknown_name("response format", form, FORMATS, where="--response-format")
    decoding = open_plan(run)[1].decoding
    if max_tokens is not None:
        output.positive("--max-tokens", max_tokens)
        decoding["max_tokens"] = max_tokens
    return {
        "kind": "endpoint",
        "model": model,
        "base_url": check_url(base_url),
        "decoding": decoding,
        "response_format": form,
    }


def _check_caps(
    max_calls: int | None,
    max_cost: float | None,
    price: Price | None,
    prices: Path | None,
    model: str,
) -> None:
    if max_calls is not None and max_calls < 0:
        raise UserError("--max-calls is out of range.", where="--max-calls", got=max_calls)
    if max_cost is not None and not 0 <= max_cost < float("inf"):
        raise UserError("--max-cost is out of range.", where="--max-cost", got=max_cost)
    if max_cost is not None and price is None:
        raise UserError(
            f"There is no price for {model!r}, so its cost cannot be capped.",
            where=prices or "--prices",
            expected=f"a line {model}: {{input: X, output: Y}} in a YAML file, per million tokens",
            fix="add it, or use --max-calls",
        )


def _settled(
    run: Path,
    who: dict[str, Any],
    key: str | None,
    patience: Patience,
    caps: dict[str, Any],
    probe: Journal,
) -> dict[str, Any]:
    """The judge as the server takes it: known from before, or found out now."""
    from strop.groupeval.cost import Budget, usage
    from strop.groupeval.form import settle_form, settled_form
    from strop.groupeval.series import Series

    known = settled_form(who, probe)
    if known is not None:
        return known
    series = Series.planned(run, who)
    spent = usage([*probe.entries(), *series.journal.entries()])

    async def work() -> dict[str, Any]:
        budget = Budget(spent, **caps)
        return await settle_form(who, series.profile, key, patience, budget, probe)

    return _run(work())


def _note_form(asked: dict[str, Any], series: Series) -> None:
    """Say how the judge is asked, and where that is not what was wanted."""
    from strop.groupeval.form import form_words

    judge = series.judge
    output.note(f"{series.name} is asked with {form_words(judge)}")
    lost = [name for name in asked["decoding"] if name not in judge["decoding"]]
    if asked["response_format"] != judge["response_format"]:
        lost.append(asked["response_format"])
    if lost:
        output.note(f"note: the server does not take {', '.join(lost)}; this is a judge of its own")
    form = {"format": judge["response_format"]}
    others = sum(entry.get("request", form) != form for entry in series.journal.entries())
    if others:
        output.note(f"warning: {others} earlier replies of this series were asked for otherwise")


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; SIGTERM ends it as Ctrl-C does, with everything closed and nothing lost."""
    import asyncio
    import logging

    # Retries are in the journal; told here they would only tear the progress bar.
    logging.getLogger("stamina").setLevel(logging.ERROR)
    before = signal.getsignal(signal.SIGTERM)

    async def ended_by_signals() -> T:
        task = asyncio.current_task()
        if task is not None and threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(ended_by_signals())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _shown(asked: Asked) -> None:
    """What came back for a group that was asked alone."""
    told = asked.outcome if not asked.detail else f"{asked.outcome}: {asked.detail}"
    raw = "no text" if asked.reply is None else " ".join(asked.reply.split())
    output.note(f"asked one group alone: {told}\n  {raw[:EXCERPT]}{' ...' * (len(raw) > EXCERPT)}")


def usage_of(probe: Journal, series: Series) -> Usage:
    """What a judge has used, the requests included that found out how to ask it."""
    from strop.groupeval.cost import usage

    return usage([*probe.entries(), *series.journal.entries()])


def _ask(
    series: Series,
    probe: Journal,
    key: str | None,
    patience: Patience,
    concurrency: int,
    repeats: int,
    caps: dict[str, Any],
) -> Session:
    from strop.cli.groupeval.progress import reporter
    from strop.groupeval.cost import Budget
    from strop.groupeval.endpoint import Endpoint
    from strop.groupeval.session import judge_series, pending

    async def work() -> Session:
        endpoint = Endpoint(series.judge, series.profile, key, patience)
        budget = Budget(usage_of(probe, series), **caps)
        options = {"concurrency": concurrency, "repeats": repeats}
        with reporter(series.name, len(pending(series, repeats))) as told:
            return await judge_series(series, endpoint, budget, **options, told=told, shown=_shown)

    return _run(work())


def _judge_offline(
    run: Path,
    base_url: str | None,
    model: str | None,
    features: str,
    repeats: int,
    dry_run: bool,
    as_json: bool,
) -> None:
    from strop.cli.groupeval.progress import reporter
    from strop.groupeval.directory import open_plan
    from strop.groupeval.offline import judge_offline, offline_judge
    from strop.groupeval.series import Series
    from strop.groupeval.session import pending
    from strop.metrics import embeddings

    if base_url or model:
        raise UserError(
            "The offline judge has neither a model nor an address.",
            where="--offline",
            fix="leave --offline out to ask a server, or leave --base-url and --model out",
        )
    if features not in FEATURES:
        raise unknown_name("kind of features", features, FEATURES, where="--features")
    open_plan(run)
    if features == "auto":
        features = "minilm" if embeddings.available() else "ngrams"
    dense = features == "minilm"
    who = offline_judge(features, embeddings.embedding_spec().sha256 if dense else None)
    if dry_run:
        series = Series.planned(run, who)
        free = {"calls": 0, "prompt_tokens": 0, "completion_tokens": 0, "cost": 0.0}
        _print_estimate(run, series, {**free, "basis": "counted here"}, as_json)
        return
    series = Series.create(run, who)
    with series.writing():
        questions = pending(series, repeats)
        with reporter(series.name, len(questions)) as told:
            judge_offline(series, questions, embeddings.embed if dense else None, told)
    _report(run, series, repeats, None, None, as_json, None)


def _print_estimate(run: Path, series: Series, document: dict[str, Any], as_json: bool) -> None:
    probe = document.get("probe")
    if as_json:
        output.emit({"run": str(run), "series": series.id, "judge": series.judge, **document})
    else:
        cost = document["cost"]
        output.say(
            f"{document['calls']} calls, about {document['prompt_tokens']:,} tokens in and "
            f"{document['completion_tokens']:,} out ({document['basis']}); "
            + ("first a short one to find out which settings are taken; " if probe else "")
            + ("no price is known: --prices FILE" if cost is None else f"about {cost:.4f}")
        )
    output.next_command("the same without --dry-run")


def _report(
    run: Path,
    series: Series,
    repeats: int,
    price: Price | None,
    session: Session | None,
    as_json: bool,
    used: Usage | None,
) -> None:
    from strop.groupeval.cost import Usage
    from strop.groupeval.series import list_series

    failures = [f for repeat in range(repeats) for f in series.failures("plan", repeat)]
    failures += series.failures("control")
    done = sum(len(series.verdicts("plan", repeat)) for repeat in range(repeats))
    asked = series.asked * repeats
    controls = len(series.verdicts("control"))
    used = used or Usage()
    tokens = {"prompt": used.prompt, "completion": used.completion}
    document = {
        "run": str(run),
        "series": series.id,
        "name": series.name,
        "judge": series.judge,
        "judgments": done,
        "asked": asked,
        "controls": {"judgments": controls, "asked": len(series.plan.controls)},
        "complete": done == asked and controls == len(series.plan.controls),
        "failures": dict(Counter(failure.reason for failure in failures)),
        "stopped": None if session is None else session.stopped,
        "calls": used.calls,
        "tokens": {**tokens, "replies_not_counted_by_the_server": used.uncounted},
        "requests_without_a_count": used.unseen,
        "cost": None if price is None else used.cost(price),
    }
    if as_json:
        output.emit(document)
    else:
        _say(document)
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


def _say(document: dict[str, Any]) -> None:
    output.say(f"{document['name']} ({document['series']})")
    planted = document["controls"]
    rows = [["judgments", f"{document['judgments']} of {document['asked']}"]]
    if planted["asked"]:
        rows.append(["controls", f"{planted['judgments']} of {planted['asked']}"])
    rows += [[f"failed: {reason}", str(n)] for reason, n in document["failures"].items()]
    if document["judge"]["kind"] == "endpoint":
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
