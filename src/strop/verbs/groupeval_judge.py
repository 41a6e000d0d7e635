"""strop groupeval judge: ask a judge about every group that has no verdict yet."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strop.errors import UserError
from strop.verbs.parameters import argument
from strop.verbs.verb import Ask, Parameter, Part, Result, Verb, grid, quoted

if TYPE_CHECKING:
    from strop.groupeval.endpoint import Endpoint
    from strop.groupeval.judges import Judge
    from strop.groupeval.series import Series
    from strop.groupeval.session import Asked, Session
    from strop.served.cost import Journal, Price, Usage
    from strop.spec.value import JudgeSpec

EXCERPT = 160
PROBE_SECONDS, PROBE_TRIES = 60.0, 3
"""For the first question: a server that loads its model now may need a minute."""
FREE = {"calls": 0, "prompt_tokens": 0, "completion_tokens": 0, "cost": 0.0}


def _judge(ask: Ask) -> Result:
    record = _chosen(ask)
    own_settings = _own_settings(ask, record)
    if not record.served:
        return _judge_in_process(ask, record, own_settings)
    from strop.groupeval.endpoint import cost_estimate, settled_form
    from strop.groupeval.series import Series, probes, probing
    from strop.groupeval.session import pending
    from strop.served.cost import read_price

    run, repeats = ask["run"], ask["repeats"]
    who = _served_judge(ask, record, own_settings)
    if not 0 < ask["timeout"] < float("inf"):
        raise UserError("`timeout` is out of range.", where="`timeout`", got=ask["timeout"])
    price = read_price(ask["prices"], who.title)
    _check_caps(ask, price, who.title)
    if ask["dry_run"]:
        settled = settled_form(who, probes(run, who))
        series = Series.planned(run, settled or who)
        estimate = {
            **cost_estimate(series, pending(series, repeats), price),
            "probe": settled is None,
        }
        return _estimate(ask, series, estimate)
    caps = {**ask.some("max_calls", "max_cost"), "price": price}
    connect = _connection(ask, record)
    with probing(run, who) as probe:
        series = Series.create(run, _settle(ask, record, who, caps, probe))
    _note_form(ask, who, series)
    with series.writing():
        session = _ask_server(ask, series, probe, connect, caps)
    return _outcome(ask, series, session, price, _usage(probe, series))


def _chosen(ask: Ask) -> Judge:
    from strop.groupeval import JUDGES

    named = {name for name in ("offline", "oracle") if ask[name]} | {ask["judge"]} - {None}
    if len(named) > 1:
        raise UserError("Two judges are named.", where="`judge`", fix="leave one out")
    name = named.pop() if named else "endpoint"
    return JUDGES.find(name, where="`judge`")


def _own_settings(ask: Ask, record: Judge) -> dict[str, Any]:
    from strop.groupeval import JUDGES

    if ask["settings"] is not None and record.name in JUDGES.builtin and record.name != "oracle":
        raise UserError(
            f"The judge {record.name!r} has flags of its own.",
            where="`settings`",
            got=", ".join(ask["settings"]),
            fix="strop groupeval judge --help",
        )
    return ask["settings"] or {}


def _served_judge(ask: Ask, record: Judge, own_settings: dict[str, Any]) -> JudgeSpec:
    """The judge: its model, address and settings."""
    from strop.groupeval import judge_spec, open_plan

    if record.name == "endpoint" and not (ask["base_url"] and ask["model"]):
        raise UserError(
            "Which judge? There is no default model.",
            where="`base_url`",
            fix="strop groupeval judge {} --base-url http://HOST:8000/v1 --model NAME, or "
            "--offline for the judge that only counts".format(quoted(ask["run"])),
        )
    settings = {**ask.some("base_url", "model", "max_tokens"), **own_settings}
    _, profile = open_plan(ask["run"])
    return judge_spec(record.name, profile, **settings, response_format=ask["response_format"])


def _connection(
    ask: Ask, record: Judge, timeout: float | None = None
) -> Callable[[JudgeSpec], Endpoint]:
    """A connection to the judge's server; with its own `timeout` there are fewer attempts."""
    from strop.groupeval import open_plan
    from strop.registry import resolve
    from strop.served.client import Patience

    client = resolve(record.client or "")
    _, profile = open_plan(ask["run"])
    key, patience = os.environ.get(ask["key_env"]), Patience(timeout=ask["timeout"])
    if timeout is not None:
        patience = replace(patience, timeout=timeout, attempts=PROBE_TRIES)
    return lambda judge: client(judge, profile, key, patience)


def _check_caps(ask: Ask, price: Price | None, model: str) -> None:
    most = ask["max_cost"]
    if most is not None and not 0 <= most < float("inf"):
        raise UserError("`max_cost` is out of range.", where="`max_cost`", got=most)
    if most is not None and price is None:
        raise UserError(
            f"There is no price for {model!r}, so its cost cannot be capped.",
            where=ask["prices"] or "`prices`",
            expected=f"a line {model}: {{input: X, output: Y}} in a YAML file, per million tokens",
            fix="add it, or use `max_calls`",
        )


def _settle(
    ask: Ask, record: Judge, who: JudgeSpec, caps: dict[str, Any], probe: Journal
) -> JudgeSpec:
    """The judge in a form that the server accepts: known already, or found out now."""
    from strop.groupeval.endpoint import PROBE_TOKENS, settle_form, settled_form
    from strop.groupeval.series import Series
    from strop.served.cost import Caps, usage
    from strop.served.serving import to_the_end

    settled = settled_form(who, probe)
    if settled is not None:
        return settled
    series = Series.planned(ask["run"], who)
    spent = usage([*probe.entries(), *series.journal.entries()])
    timeout = min(ask["timeout"], max(PROBE_SECONDS, ask["timeout"] / 5))
    ask.note(
        f"asking {who.base_url or who.title} which settings it takes: one short question without "
        f"your texts, at most {PROBE_TOKENS} tokens and {timeout:g} s for the reply"
    )
    connect = _connection(ask, record, timeout)

    async def work() -> JudgeSpec:
        return await settle_form(who, connect, Caps(spent, **caps), probe)

    return to_the_end(work())


def _note_form(ask: Ask, requested: JudgeSpec, series: Series) -> None:
    """Say how the judge is asked, and where that differs from what was requested."""
    from strop.groupeval.endpoint import form_words

    judge = series.judge
    ask.note(f"{series.name} is asked with {form_words(judge)}")
    lost = [name for name in requested.decoding or {} if name not in (judge.decoding or {})]
    if requested.response_format != judge.response_format:
        lost.append(str(requested.response_format))
    if lost:
        ask.note(f"note: the server does not take {', '.join(lost)}; this is a different judge")
    form = {"format": judge.response_format}
    others = sum(entry.get("request", form) != form for entry in series.journal.entries())
    if others:
        ask.note(f"warning: {others} earlier replies of this series were requested in another form")


def _note_reply(ask: Ask, answer: Asked) -> None:
    """Note the reply for a group that was asked alone."""
    outcome = answer.outcome if not answer.detail else f"{answer.outcome}: {answer.detail}"
    raw = "no text" if answer.reply is None else " ".join(answer.reply.split())
    ask.note(f"asked one group alone: {outcome}\n  {raw[:EXCERPT]}{' ...' * (len(raw) > EXCERPT)}")


def _usage(probe: Journal, series: Series) -> Usage:
    """A judge's usage, including the requests that settled its form."""
    from strop.served.cost import usage

    return usage([*probe.entries(), *series.journal.entries()])


def _ask_server(
    ask: Ask,
    series: Series,
    probe: Journal,
    connect: Callable[[JudgeSpec], Endpoint],
    caps: dict[str, Any],
) -> Session:
    from strop.groupeval.session import judge_series, pending
    from strop.served.cost import Caps
    from strop.served.serving import to_the_end

    options = ask.some("concurrency", "repeats")

    async def work() -> Session:
        endpoint = connect(series.judge)
        budget = Caps(_usage(probe, series), **caps)
        total = len(pending(series, ask["repeats"]))
        with ask.bars.questions(series.name, total) as advance:
            return await judge_series(
                series,
                endpoint,
                budget,
                **options,
                told=advance,
                shown=lambda answer: _note_reply(ask, answer),
            )

    return to_the_end(work())


def _judge_in_process(ask: Ask, record: Judge, own_settings: dict[str, Any]) -> Result:
    """A judge that answers in this process: no requests, no cost."""
    from strop.groupeval import Series, judge_client, judge_spec, open_plan
    from strop.groupeval.session import answer_series, pending

    run, served = ask["run"], ask.some("base_url", "model")
    if record.name in ("offline", "oracle"):
        if served["base_url"] or (served["model"] and not _version(record, served["model"])):
            raise UserError(
                f"The {record.name} judge has neither a model nor an address.",
                where=f"`{record.name}`",
                fix=f"leave `{record.name}` out to ask a server, "
                "or leave `base_url` and `model` out",
            )
        served = {}
    settings = {**served, **own_settings}
    if record.name == "offline":
        settings = ask.some("features", "model")
    _, profile = open_plan(run)
    who = judge_spec(record.name, profile, **settings)
    client = judge_client(who, profile)
    if ask["dry_run"]:
        return _estimate(ask, Series.planned(run, who), {**FREE, "basis": "counted here"})
    series = Series.create(run, who)
    with series.writing():
        questions = pending(series, ask["repeats"])
        with ask.bars.questions(series.name, len(questions)) as advance:
            session = answer_series(series, questions, client, advance)
    return _outcome(ask, series, session, None, None)


def _version(record: Judge, model: str) -> bool:
    """Whether it names one of the offline judges."""
    from strop.groupeval.offline import VERSIONS

    return record.name == "offline" and model in VERSIONS


def _estimate(ask: Ask, series: Series, estimate: dict[str, Any]) -> Result:
    """What the questions that are left would cost."""
    cost = estimate["cost"]
    probe = "first a short one to find out which settings are taken; " * bool(estimate.get("probe"))
    words = (
        f"{estimate['calls']} calls, about {estimate['prompt_tokens']:,} tokens in and "
        f"{estimate['completion_tokens']:,} out ({estimate['basis']}); {probe}"
        + ("no price is known: --prices FILE" if cost is None else f"about {cost:.4f}")
    )
    if not estimate["calls"]:
        words = "no calls to a server, so it costs nothing"
    who = {"run": str(ask["run"]), "series": series.id, "judge": series.judge.document()}
    return Result(
        parts=(words,), json={**who, **estimate}, next="the same without --dry-run", value=estimate
    )


def _outcome(
    ask: Ask, series: Series, session: Session, price: Price | None, used: Usage | None
) -> Result:
    """How far the series is; `used` is None where no server was asked."""
    run = ask["run"]
    document = _document(ask, series, session, price, used)
    where = quoted(run)
    if document["complete"]:
        remarks, following = [], f"strop groupeval score {where}"
    else:
        stopped = [f"stopped: {document['stopped']}"] if document["stopped"] else []
        again = "incomplete: run the same command again to ask for what is missing"
        remarks = [*stopped, again]
        following = f"strop groupeval show {where} --series {series.id} --failures"
    if (warning := series.other_models()) is not None:
        remarks.insert(0, f"warning: {warning}")
    return Result(
        parts=_parts(document, served=used is not None),
        json=document,
        remarks=tuple(remarks),
        next=following,
        incomplete=not document["complete"],
        value=series,
    )


def _document(
    ask: Ask, series: Series, session: Session, price: Price | None, used: Usage | None
) -> dict[str, Any]:
    from strop.served.cost import Usage

    repeats = range(ask["repeats"])
    failures = [f for repeat in repeats for f in series.failures("plan", repeat)]
    failures += series.failures("control")
    done = sum(len(series.verdicts("plan", repeat)) for repeat in repeats)
    expected, controls = series.asked * len(repeats), len(series.verdicts("control"))
    spent = used or Usage()
    tokens = {"prompt": spent.prompt, "completion": spent.completion}
    return {
        "run": str(ask["run"]),
        "series": series.id,
        "name": series.name,
        "judge": series.judge.document(),
        "judgments": done,
        "asked": expected,
        "controls": {"judgments": controls, "asked": len(series.plan.controls)},
        "complete": done == expected and controls == len(series.plan.controls),
        "failures": dict(Counter(failure.reason for failure in failures)),
        "served": series.served(),
        "stopped": session.stopped,
        "calls": spent.calls,
        "tokens": {**tokens, "replies_not_counted_by_the_server": spent.uncounted},
        "requests_without_a_count": spent.unseen,
        "cost": None if price is None else spent.cost(price),
    }


def _parts(document: Mapping[str, Any], *, served: bool) -> tuple[Part, ...]:
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
            rows.append(["requests without a token count", f"{unseen:,}"])
        most = "at most " if unseen else ""
        rows.append(["cost", "no price known" if cost is None else f"{most}{cost:.4f}"])
    title = f"{document['name']} ({document['series']})"
    return (title, grid(["what", "how much"], rows))


JUDGE = Verb(
    name="judge",
    own_dry_run=True,
    help="Ask about every group without a verdict; the same command continues, failures "
    "included.\n\n"
    "Every reply is kept as it came. Exit code 2 means that some groups have no verdict yet.",
    parameters=(
        argument("run", "RUN", "A directory made by `strop groupeval plan`."),
        Parameter("base_url", "Address of an OpenAI-compatible server, e.g. http://HOST:8000/v1."),
        Parameter("model", "Its name on the server; with --offline, offline-v1 or offline-v2."),
        Parameter(
            "key_env",
            "The environment variable that holds the key, if one is needed.",
            "OPENAI_API_KEY",
        ),
        Parameter(
            "judge", "Who judges: endpoint (the default), offline, oracle, a plug-in's name."
        ),
        Parameter.flag(
            "offline",
            "The counting judge; no server.",
        ),
        Parameter.flag(
            "oracle", "The judge oracle-v1 of a known language; --settings language=skewed,valid=8."
        ),
        Parameter(
            "settings",
            "Of the oracle or a plug-in's judge, e.g. least=40,strict=1.",
            kind="pairs",
        ),
        Parameter("features", "Features of the offline judge: auto, minilm or ngrams.", "auto"),
        Parameter.count("repeats", "Ask about each group this often, to measure the judge.", 1),
        Parameter.count("concurrency", "Requests under way at once.", 8),
        Parameter.real("timeout", "Seconds for one request.", 300.0),
        Parameter.count(
            "max_tokens",
            "Longest reply; the profile's by default. Another number: another judge.",
        ),
        Parameter(
            "response_format",
            "The strictest form to try: json_schema, json_object or text.",
            "json_schema",
        ),
        Parameter.flag("dry_run", "Say how many calls and tokens, and what they cost."),
        Parameter("max_calls", "Cap for the whole series, earlier sessions included.", kind="int"),
        Parameter.real("max_cost", "Cap for the cost; needs --prices."),
        Parameter("prices", "YAML: MODEL: {input: X, output: Y} per million tokens.", kind="place"),
    ),
    run=_judge,
    examples=(
        "strop groupeval judge runs/ge --base-url URL --model NAME --dry-run",
        "strop groupeval judge runs/ge --offline",
    ),
)
