"""The judge against a server that fails in every way: nothing lost, nothing twice, all named."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pools import planned
from scripted_server import Action, Script, Served, agree, labels_of, serving

import warm_processes
from strop.cli.main import run as strop
from strop.errors import UserError
from strop.groupeval.endpoint import Endpoint
from strop.groupeval.profile import sha256
from strop.groupeval.series import Series
from strop.groupeval.session import CONTENT_RETRIES, Session, judge_series
from strop.served.client import Patience
from strop.served.cost import SENT, SETTLED, Caps, Price, usage
from strop.spec import JudgeSpec

QUICK = Patience(timeout=60.0, attempts=3, first_wait=0.001, longest_wait=0.002, jitter=0.001)


def who(url: str) -> JudgeSpec:
    decoding = {"temperature": 0.0, "top_p": 1.0, "max_tokens": 500}
    form = {"decoding": decoding, "response_format": "json_schema"}
    return JudgeSpec(kind="endpoint", model="m", base_url=url, **form)


def ask(series: Series, patience: Patience = QUICK, **options: Any) -> Session:
    caps = {key: options.pop(key) for key in ("max_calls", "max_cost", "price") if key in options}

    async def work() -> Session:
        endpoint = Endpoint(series.judge, series.profile, "key", patience)
        budget = Caps(usage(series.journal.entries()), **caps)
        return await judge_series(series, endpoint, budget, **options)

    with series.writing():
        return asyncio.run(work())


def judged(
    tmp_path: Path, script: Script, outputs: int = 8, **options: Any
) -> tuple[Series, Served]:
    run = planned(tmp_path / "run", {"a": outputs})
    with serving(script) as served:
        series = Series.create(run, who(served.url))
        ask(series, **options)
    return series, served


def ended(series: Series) -> list[dict[str, Any]]:
    """The lines of the journal that say how a question ended."""
    return [e for e in series.journal.entries() if e["outcome"] not in (SENT, SETTLED)]


def reasons(series: Series) -> Counter[str]:
    return Counter(failure.reason for failure in series.failures())


def test_every_group_gets_its_verdict_and_the_journal_says_how(tmp_path: Path) -> None:
    series, served = judged(tmp_path, lambda body, _: agree(body), 40)
    assert len(series.verdicts()) == series.asked == 10
    assert len(served.requests) == 10
    assert served.keys == {"Bearer key"}
    assert all(r["response_format"]["json_schema"]["strict"] for r in served.requests)
    assert all(r["temperature"] == 0 and r["max_tokens"] == 500 for r in served.requests)
    for entry in ended(series):
        assert (entry["model"], entry["system_fingerprint"]) == ("m-served", "fp-1")
        assert entry["tokens"] == {"prompt": 1000, "completion": 100}
        assert (entry["attempt"], entry["calls"], entry["transport_retries"]) == (1, 1, 0)
        assert entry["started"] <= entry["finished"] <= entry["written"]
        for name in ("prompt_sha256", "schema_sha256", "profile_sha256", "reply_sha256"):
            assert len(entry[name]) == 64
    assert "key" not in (series.path / "judge.json").read_text().replace('"kind"', "")
    assert "Bearer" not in series.journal.path.read_text()


CONTENT = {
    "refused": Action(refusal="I cannot help with that."),
    "empty": Action("  "),
    "truncated": Action('{"outputs": [', finish_reason="length"),
    "not_json": Action("```json\n{}\n```"),
    "schema_mismatch": Action('{"outputs": [], "confidence": "high"}'),
}


@pytest.mark.parametrize("reason", CONTENT)
def test_a_reply_that_is_no_verdict_is_asked_again_and_named(tmp_path: Path, reason: str) -> None:
    series, served = judged(tmp_path, lambda *_: CONTENT[reason])
    assert reasons(series) == {reason: 2}
    assert series.verdicts() == []
    # The same request, not one byte changed.
    assert set(served.seen.values()) == {1 + CONTENT_RETRIES}
    assert len({json.dumps(r, sort_keys=True) for r in served.requests}) == 2
    assert {f.attempts for f in series.failures()} == {1 + CONTENT_RETRIES}
    assert {f.raw for f in series.failures()} == {CONTENT[reason].content}
    assert [e["transport_retries"] for e in ended(series)] == [0] * 8


def test_a_broken_rule_is_named(tmp_path: Path) -> None:
    def twice(body: dict[str, Any], n: int) -> Action:
        action = agree(body)
        labels = labels_of(body)
        return Action(str(action.content).replace(labels[0], labels[1]))

    series, _ = judged(tmp_path, twice)
    assert reasons(series) == {"rule_violation": 2}
    assert "missing" in series.failures()[0].detail


TRANSPORT = {
    "rate_limited": Action(status=429),
    "server_error": Action(status=503),
    "broken connection": Action(drop=True),
    "half a body": Action("{}", cut=40),
    "no JSON": Action(body=b'{"id": "c", "cho'),
    "no completion": Action(body=b"[1, 2]"),
    "timeout": Action(delay=1.2),
}


@pytest.mark.parametrize("trouble", TRANSPORT)
def test_trouble_on_the_way_is_tried_again_and_named(tmp_path: Path, trouble: str) -> None:
    patience = Patience(0.4, 3, 0.001, 0.002, 0.001) if trouble == "timeout" else QUICK
    series, served = judged(tmp_path, lambda *_: TRANSPORT[trouble], patience=patience)
    named = trouble if trouble in ("rate_limited", "timeout") else "server_error"
    assert reasons(series) == {named: 2}
    if trouble != "timeout":  # on a busy machine a question may time out before it is sent
        assert set(served.seen.values()) == {3}
    assert [e["calls"] for e in ended(series)] == [3, 3]
    assert usage(series.journal.entries()).calls == 6
    assert {f.attempts for f in series.failures()} == {0}
    assert all(failure.raw is None and failure.detail for failure in series.failures())


def test_what_passes_is_not_a_failure(tmp_path: Path) -> None:
    faults = [TRANSPORT["half a body"], CONTENT["not_json"], TRANSPORT["rate_limited"]]
    series, _ = judged(tmp_path, lambda body, n: faults[n - 1] if n <= 3 else agree(body))
    assert len(series.verdicts()) == 2
    assert series.failures() == []
    assert Counter(e["outcome"] for e in ended(series)) == {"not_json": 2, "verdict": 2}
    assert [e["transport_retries"] for e in ended(series)] == [1] * 4
    assert usage(series.journal.entries()).calls == 8


def test_retry_after_is_honoured_by_all(tmp_path: Path) -> None:
    first = iter([Action(status=429, headers={"retry-after": "0.6"})])
    script: Script = lambda body, _: next(first, None) or agree(body)  # noqa: E731
    series, served = judged(tmp_path, script, concurrency=1)
    assert len(series.verdicts()) == 2
    assert served.times[1] - served.times[0] >= 0.6


def test_a_pause_longer_than_our_patience_ends_the_question(tmp_path: Path) -> None:
    action = Action(status=429, headers={"retry-after": "86400"})
    series, served = judged(tmp_path, lambda *_: action)
    assert reasons(series) == {"rate_limited": 2}
    assert set(served.seen.values()) == {1}


@pytest.mark.parametrize(("status", "told"), [(401, "the key"), (404, "this model")])
def test_what_no_retry_can_put_right_ends_the_command(
    tmp_path: Path, status: int, told: str
) -> None:
    run = planned(tmp_path / "run", {"a": 40})
    with serving(lambda *_: Action(status=status)) as served:
        series = Series.create(run, who(served.url))
        with pytest.raises(UserError, match=told):
            ask(series, concurrency=2)
    assert len(served.requests) <= 2
    assert series.failures() == []


def test_a_question_that_the_server_refuses_is_a_failure_of_its_own(tmp_path: Path) -> None:
    error = {"message": "maximum context length is 10 tokens"}
    series, served = judged(tmp_path, lambda *_: Action(status=400, error=error))
    assert reasons(series) == {"refused": 2}
    assert set(served.seen.values()) == {1}
    assert "context length" in series.failures()[0].detail


def test_a_cap_on_calls_stops_cleanly_and_the_same_command_goes_on(tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 40})
    with serving(lambda body, _: agree(body)) as served:
        series = Series.create(run, who(served.url))
        session = ask(series, max_calls=4, concurrency=3)
        assert len(served.requests) == 4
        assert len(series.verdicts()) == 4
        assert reasons(series) == {"budget_exhausted": 6}
        assert str(session.stopped).startswith("budget_exhausted")
        ask(series, max_calls=4)  # the cap is the series', not the session's
        assert len(served.requests) == 4
        ask(series)
    assert len(served.requests) == 10 == len(series.verdicts())
    assert series.failures() == []


def test_a_cap_on_cost_is_never_passed(tmp_path: Path) -> None:
    price = Price(input=1.0, output=10.0)  # a reply costs 0.002, and 0.0087 at most
    run = planned(tmp_path / "run", {"a": 40})
    with serving(lambda body, _: agree(body)) as served:
        series = Series.create(run, who(served.url))
        ask(series, max_cost=0.018, price=price, concurrency=8)
    used = usage(series.journal.entries())
    cost = price.of({"prompt": used.prompt, "completion": used.completion})
    assert 0 < cost <= 0.018
    assert 1 <= len(series.verdicts()) < 10
    assert reasons(series) == {"budget_exhausted": 10 - len(series.verdicts())}


def test_a_server_that_does_not_count_is_charged_the_most(tmp_path: Path) -> None:
    price = Price(input=1.0, output=10.0)
    run = planned(tmp_path / "run", {"a": 40})

    def script(body: dict[str, Any], _: int) -> Action:
        choice = {"index": 0, "message": {"content": agree(body).content}, "finish_reason": "stop"}
        return Action(body=json.dumps({"choices": [choice]}).encode())

    with serving(script) as served:
        series = Series.create(run, who(served.url))
        ask(series, max_cost=0.018, price=price)
        assert len(served.requests) == 2  # each may have cost 0.0087
        with pytest.raises(UserError, match="does not count tokens"):
            ask(series, max_cost=1.0, price=price)
    assert usage(series.journal.entries()).uncounted == 2


def test_repeats_are_kept_apart(tmp_path: Path) -> None:
    series, served = judged(tmp_path, lambda body, _: agree(body), 16, repeats=3)
    assert len(served.requests) == 12
    assert series.repeats == 3
    assert [len(series.verdicts("plan", r)) for r in range(3)] == [4, 4, 4]
    assert len(series.verdicts()) == 4


@pytest.mark.slow
def test_200_groups_at_32_through_all_kinds_of_trouble(tmp_path: Path) -> None:
    """Each question meets one fault, chosen by its ids; every one ends in exactly one verdict."""
    faults = [*CONTENT.values(), *(TRANSPORT[k] for k in TRANSPORT if k != "timeout")]

    together, order = threading.Barrier(32, timeout=120), itertools.count()

    def script(body: dict[str, Any], n: int) -> Action:
        if 2 <= next(order) < 34:  # the first group, asked twice, is asked alone
            together.wait()  # passes only if 32 questions are under way at once
        fault = faults[int(sha256(labels_of(body)[0]), 16) % len(faults)]
        return fault if n == 1 else agree(body)

    run = planned(tmp_path / "run", {"a": 400, "b": 400})
    with serving(script) as served:
        series = Series.create(run, who(served.url))
        ask(series, Patience(120.0, 3, 0.001, 0.002, 0.001), concurrency=32)
    assert len(series.verdicts()) == series.asked == 200
    assert series.failures() == []
    judgments = Counter(e["sheet"] for e in series.journal.entries() if e["outcome"] == "verdict")
    assert len(judgments) == 200
    assert set(judgments.values()) == {1}
    assert set(served.seen.values()) == {2}
    assert served.most_at_once == 32
    assert usage(series.journal.entries()).calls == len(served.requests) == 400
    seen = Counter((j.cell, j.partition, g.index) for j in series.verdicts() for g in j.outputs)
    assert len(seen) == 1600
    assert set(seen.values()) == {1}


def test_killed_at_once_and_continued_nothing_is_lost_or_judged_twice(tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 128})
    with serving(lambda body, _: agree(body, delay=0.05)) as served:
        line = ["groupeval", "judge", str(run), "--base-url", served.url, "--model", "m"]
        process = warm_processes.Popen(
            [sys.executable, "-m", "strop", *line, "--concurrency", "4"],
            env=dict(os.environ),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        end = time.monotonic() + 300
        while len(served.requests) < 9 and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        (series,) = [Series.open(run)]
        before = {(j.partition, j.group) for j in series.verdicts()}
        assert 0 < len(before) < 32
        with open(series.journal.path, "ab") as file:
            file.write(b'{"sheet": "00003", "outco')  # what a kill in a write leaves
        sent = len(served.requests)
        assert strop([*line, "--concurrency", "4"]) == 0
        assert len(served.requests) - sent == 32 - len(before)
    series = Series.open(run)
    assert len(series.verdicts()) == 32
    entries = series.journal.entries()
    assert Counter(e["sheet"] for e in entries if "reply" in e).most_common(1)[0][1] == 1


def test_two_sessions_of_one_judge_cannot_run_at_once(tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 8})
    series = Series.create(run, JudgeSpec(kind="test"))
    with series.writing(), pytest.raises(UserError, match="Another process"), series.writing():
        pass
