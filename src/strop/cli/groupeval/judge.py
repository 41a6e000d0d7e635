"""strop groupeval judge: ask a judge about every group that has no verdict yet."""

from __future__ import annotations

import os
import shlex
import signal
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from strop.cli import output
from strop.cli.commands import examples
from strop.cli.groupeval.outcome import print_estimate, report
from strop.errors import UserError

if TYPE_CHECKING:
    from strop.groupeval.cost import Price, Usage
    from strop.groupeval.directory import Journal
    from strop.groupeval.endpoint import Endpoint, Patience
    from strop.groupeval.judges import Judge
    from strop.groupeval.series import Series
    from strop.groupeval.session import Asked, Session
    from strop.spec import JudgeSpec

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
    judge: Annotated[
        str | None,
        typer.Option(help="Who judges: endpoint (the default), offline, or a plug-in's name."),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="The counting judge offline-v1; no server, no model.")
    ] = False,
    settings: Annotated[
        str | None, typer.Option(help="Of a plug-in's judge, e.g. least=40,strict=1.")
    ] = None,
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
    record = _chosen(judge, offline)
    own = _own_settings(record, settings)
    if not record.served:
        given = {"base_url": base_url, "model": model, **own}
        if record.name == "offline":
            given = {"features": features, **_nothing_served(base_url, model)}
        _judge_here(run, record, given, repeats, dry_run, as_json)
        return
    from strop.groupeval.cost import cost_estimate, read_price
    from strop.groupeval.directory import probes, probing
    from strop.groupeval.endpoint import Patience
    from strop.groupeval.form import settled_form
    from strop.groupeval.series import Series
    from strop.groupeval.session import pending

    who = _served_judge(run, record, base_url, model, max_tokens, response_format, own)
    if not 0 < timeout < float("inf"):
        raise UserError("--timeout is out of range.", where="--timeout", got=timeout)
    price = read_price(prices, who.title)
    _check_caps(max_calls, max_cost, price, prices, who.title)
    if dry_run:
        known = settled_form(who, probes(run, who))
        series = Series.planned(run, known or who)
        told = {**cost_estimate(series, pending(series, repeats), price), "probe": known is None}
        print_estimate(run, series, told, as_json)
        return
    caps = {"max_calls": max_calls, "max_cost": max_cost, "price": price}
    connect = _connection(run, record, os.environ.get(key_env), Patience(timeout=timeout))
    with probing(run, who) as probe:
        series = Series.create(run, _settled(run, who, connect, caps, probe))
    _note_form(who, series)
    with series.writing():
        session = _ask(series, probe, connect, concurrency, repeats, caps)
    report(run, series, repeats, price, session, as_json, usage_of(probe, series))


def _chosen(judge: str | None, offline: bool) -> Judge:
    from strop.groupeval import JUDGES

    if offline and judge not in (None, "offline"):
        raise UserError("Two judges are named.", where="--judge and --offline", fix="leave one out")
    return JUDGES.find("offline" if offline else judge or "endpoint", where="--judge")


def _own_settings(record: Judge, settings: str | None) -> dict[str, Any]:
    from strop.cli.values import named
    from strop.groupeval import JUDGES

    if settings is not None and record.name in JUDGES.builtin:
        raise UserError(
            f"The judge {record.name!r} has flags of its own.",
            where="--settings",
            got=settings,
            fix="strop groupeval judge --help",
        )
    return named(settings, "--settings") if settings else {}


def _nothing_served(base_url: str | None, model: str | None) -> dict[str, Any]:
    if base_url or model:
        raise UserError(
            "The offline judge has neither a model nor an address.",
            where="--offline",
            fix="leave --offline out to ask a server, or leave --base-url and --model out",
        )
    return {}


def _served_judge(
    run: Path,
    record: Judge,
    base_url: str | None,
    model: str | None,
    max_tokens: int | None,
    form: str,
    own: dict[str, Any],
) -> JudgeSpec:
    """Who judges: the model, where it is, and how it is asked."""
    from strop.groupeval import judge_spec, open_plan

    if record.name == "endpoint" and not (base_url and model):
        raise UserError(
            "Which judge? There is no default model.",
            where="--base-url and --model",
            fix=f"strop groupeval judge {shlex.quote(str(run))} --base-url http://HOST:8000/v1 "
            "--model NAME, or --offline for the judge that only counts",
        )
    if max_tokens is not None:
        output.positive("--max-tokens", max_tokens)
    asked = {"base_url": base_url, "model": model, "max_tokens": max_tokens, **own}
    _, profile = open_plan(run)
    return judge_spec(record.name, profile, **asked, response_format=form)


def _connection(
    run: Path, record: Judge, key: str | None, patience: Patience
) -> Callable[[JudgeSpec], Endpoint]:
    """How the judge's server is reached."""
    from strop.groupeval import open_plan
    from strop.registry import resolve

    client = resolve(record.client or "")
    _, profile = open_plan(run)
    return lambda judge: client(judge, profile, key, patience)


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
    who: JudgeSpec,
    connect: Callable[[JudgeSpec], Endpoint],
    caps: dict[str, Any],
    probe: Journal,
) -> JudgeSpec:
    """The judge as the server takes it: known from before, or found out now."""
    from strop.groupeval.cost import Budget, usage
    from strop.groupeval.form import settle_form, settled_form
    from strop.groupeval.series import Series

    known = settled_form(who, probe)
    if known is not None:
        return known
    series = Series.planned(run, who)
    spent = usage([*probe.entries(), *series.journal.entries()])

    async def work() -> JudgeSpec:
        return await settle_form(who, connect, Budget(spent, **caps), probe)

    return _run(work())


def _note_form(asked: JudgeSpec, series: Series) -> None:
    """Say how the judge is asked, and where that is not what was wanted."""
    from strop.groupeval.form import form_words

    judge = series.judge
    output.note(f"{series.name} is asked with {form_words(judge)}")
    lost = [name for name in asked.decoding or {} if name not in (judge.decoding or {})]
    if asked.response_format != judge.response_format:
        lost.append(str(asked.response_format))
    if lost:
        output.note(f"note: the server does not take {', '.join(lost)}; this is a judge of its own")
    form = {"format": judge.response_format}
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
    connect: Callable[[JudgeSpec], Endpoint],
    concurrency: int,
    repeats: int,
    caps: dict[str, Any],
) -> Session:
    from strop.cli.progress import questions as reporter
    from strop.groupeval.cost import Budget
    from strop.groupeval.session import judge_series, pending

    async def work() -> Session:
        endpoint = connect(series.judge)
        budget = Budget(usage_of(probe, series), **caps)
        options = {"concurrency": concurrency, "repeats": repeats}
        with reporter(series.name, len(pending(series, repeats))) as told:
            return await judge_series(series, endpoint, budget, **options, told=told, shown=_shown)

    return _run(work())


def _judge_here(
    run: Path,
    record: Judge,
    settings: dict[str, Any],
    repeats: int,
    dry_run: bool,
    as_json: bool,
) -> None:
    """A judge that answers in this process: no requests, no cost."""
    from strop.cli.progress import questions as reporter
    from strop.groupeval import Series, judge_client, judge_spec, open_plan
    from strop.groupeval.session import answer_series, pending

    _, profile = open_plan(run)
    who = judge_spec(record.name, profile, **settings)
    client = judge_client(who, profile)
    if dry_run:
        series = Series.planned(run, who)
        free = {"calls": 0, "prompt_tokens": 0, "completion_tokens": 0, "cost": 0.0}
        print_estimate(run, series, {**free, "basis": "counted here"}, as_json)
        return
    series = Series.create(run, who)
    with series.writing():
        questions = pending(series, repeats)
        with reporter(series.name, len(questions)) as told:
            session = answer_series(series, questions, client, told)
    report(run, series, repeats, None, session, as_json, None)
