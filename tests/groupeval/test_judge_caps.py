"""Caps hold over failures, timeouts, restarts and kills; a judge without verdicts is given up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pools import planned
from quick_judge import Called, quick_judge
from scripted_server import Action, agree, serving

import warm_processes
from strop.cli.main import run as command
from strop.groupeval.series import Series, list_series
from strop.groupeval.session import IN_A_ROW
from strop.served.cost import Price, usage

__all__ = ["quick_judge"]  # the fixture `call`


BROKEN = Action(status=500, error={"message": "out of order"})


def test_a_cap_on_calls_holds_over_runs_that_all_fail(call: Called, tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 128})
    with serving(lambda *_: BROKEN) as served:
        for _ in range(4):
            code, out, _ = call(run, "--base-url", served.url, "--max-calls", 10, "--json")
            assert code == 2
        assert served.received == 10
        assert json.loads(out)["calls"] == 10
        # What a server said is not forgotten because a cap came later.
        failures = Series.open(run).failures()
        told = {f.detail for f in failures if f.reason == "server_error"}
        assert told == {"HTTP 500: out of order"}
        assert {f.reason for f in failures} == {"server_error", "budget_exhausted"}
        before = [f for f in failures if f.reason == "server_error"]
        call(run, "--base-url", served.url, "--max-calls", 10)
        again = Series.open(run).failures()
        assert [f for f in again if f.reason == "server_error"] == before


def test_the_cap_counts_the_probe(call: Called, tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 16})
    with serving(lambda body, _: agree(body), lambda *_: BROKEN) as served:
        for _ in range(4):
            code, _, err = call(run, "--base-url", served.url, "--max-calls", 4)
            assert code == 2
        assert served.received == 4
        assert "cap" in err


def test_a_timeout_is_charged_its_reserve(call: Called, tmp_path: Path) -> None:
    """Each request may cost 0.0859 (its bytes and 8,192 tokens): a cap of 0.4 lets four out."""
    run = planned(tmp_path / "run", {"a": 128})
    prices = tmp_path / "prices.yaml"
    prices.write_text("m: {input: 1.0, output: 10.0}\n")
    with serving(lambda *_: Action(delay=1.0)) as served:
        options = ["--timeout", 0.2, "--prices", prices, "--max-cost", 0.4, "--json"]
        costs = []
        for _ in range(3):
            code, out, _ = call(run, "--base-url", served.url, *options)
            assert code == 2
            costs.append(json.loads(out)["cost"])
        assert len(served.requests) <= 4
    assert 0.3 < costs[0] == costs[1] == costs[2] <= 0.4
    assert json.loads(out)["requests_without_a_count"] == 4


def test_requests_under_way_at_a_kill_are_counted(tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 128})
    first = threading.Event()

    def script(body: dict[str, Any], _: int) -> Action:
        if not first.is_set():
            first.set()
            return agree(body)
        return agree(body, delay=30.0)

    with serving(script) as served:
        line = ["groupeval", "judge", str(run), "--base-url", served.url, "--model", "m"]
        line += ["--max-calls", "10", "--concurrency", "3"]
        for wanted in (5, 8, 10, 10):
            process = warm_processes.Popen(
                [sys.executable, "-m", "strop", *line],
                env=dict(os.environ),
                stderr=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            end = time.monotonic() + 120
            while served.received < wanted and time.monotonic() < end and process.poll() is None:
                time.sleep(0.02)
            time.sleep(0.3)  # for one more than may be, if it comes
            process.send_signal(signal.SIGKILL)
            process.wait()
            first.clear()
        assert served.received <= 10
    (series,) = [Series.open(run)]
    used = usage(series.journal.entries())
    assert used.calls + 1 >= len(served.requests)
    assert used.unseen >= 2
    assert used.cost(Price(0.0, 1e6 / 8192)) >= 2  # the reserve of each, at least


def test_a_judge_that_never_gives_a_verdict_is_not_paid_to_the_end(
    call: Called, tmp_path: Path
) -> None:
    run = planned(tmp_path / "run", {"a": 448, "b": 448})  # 224 groups
    with serving(lambda *_: Action("```json\n{}\n```")) as served:
        code, _, err = call(run, "--base-url", served.url)
        assert code == 2
        assert len(served.requests) == 4 * IN_A_ROW == 20
        assert served.most_at_once == 1  # alone, until there is a verdict
        assert "asked one group alone: not_json" in err
        assert "```json {} ```" in err
        assert "5 groups in a row have no verdict" in err
        # Counted across restarts: one more group, another one, and it ends.
        assert call(run, "--base-url", served.url)[0] == 2
        assert len(served.requests) == 24
        assert call(run, "--base-url", served.url)[0] == 2
        assert len(served.requests) == 28
    assert len({f.group for f in Series.open(run).failures()}) >= 6


def test_one_group_is_asked_alone_and_then_all_at_once(call: Called, tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 128})
    together = threading.Barrier(4, timeout=60)

    def script(body: dict[str, Any], _: int) -> Action:
        number = len(served.requests)
        if number == 1:
            time.sleep(0.3)
            assert len(served.requests) == 1
        elif number <= 5:
            together.wait()
        return agree(body)

    with serving(script) as served:
        code, _, err = call(run, "--base-url", served.url, "--concurrency", 4)
    assert code == 0
    assert served.most_at_once == 4
    assert 'asked one group alone: verdict\n  {"outputs": [' in err


def test_a_wrong_port_is_told_at_once_in_its_own_words(call: Called, tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 128})
    start = time.monotonic()
    code, _, err = call(run, "--base-url", "http://127.0.0.1:9/v1", "--max-calls", 3)
    assert code == 1
    assert time.monotonic() - start < 10
    assert "cannot be reached" in err
    assert "ConnectionRefusedError" in err
    for _ in range(5):  # what never left is not counted
        assert (
            "cannot be reached"
            in call(run, "--base-url", "http://127.0.0.1:9/v1", "--max-calls", 3)[2]
        )


def test_a_server_that_goes_away_stops_the_session_in_its_own_words(
    call: Called, tmp_path: Path
) -> None:
    run = planned(tmp_path / "run", {"a": 128})
    with serving(lambda body, _: agree(body)) as served:
        url = served.url
        assert call(run, "--base-url", url, "--max-calls", 4)[0] == 2
    code, _, err = call(run, "--base-url", url)
    assert code == 1
    assert "cannot be reached" in err
    assert len(Series.open(run).verdicts()) == 3


def test_a_dripping_reply_ends_at_the_time_limit(call: Called, tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 8})
    with serving(lambda body, _: agree(body, drip=0.05)) as served:  # more than a minute each
        start = time.monotonic()
        assert call(run, "--base-url", served.url, "--timeout", 2)[0] == 2
        assert time.monotonic() - start < 30
        assert len(served.requests) == 2  # a group each: another try would drip, too
    failures = {(f.reason, f.detail) for f in Series.open(run).failures()}
    assert failures == {("timeout", "the reply has no end within 2 s")}


def test_a_server_that_brings_nothing_in_time_is_asked_again(call: Called, tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 8})

    def script(body: dict[str, Any], time_of_this: int) -> Action:
        time.sleep(3.0 if time_of_this == 1 else 0.0)
        return agree(body)

    with serving(script) as served:
        assert call(run, "--base-url", served.url, "--timeout", 2)[0] == 0
        assert set(served.seen.values()) == {2}


KEY = "sk-sesame-open"


@pytest.mark.parametrize(
    "echo",
    [
        Action(f"Your key is {KEY}."),
        Action(refusal=f"No, {KEY}."),
        Action(status=400, error={"message": "x" * 290 + KEY}),
        Action(status=401, error={"message": f"Incorrect key: {KEY}"}),
    ],
)
def test_a_key_that_the_server_echoes_is_written_nowhere(
    call: Called, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, echo: Action
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    run = planned(tmp_path / "run", {"a": 8})
    for probe in (lambda *_: Action("{}"), lambda *_: echo):
        with serving(lambda *_: echo, probe) as served:
            _, out, err = call(run, "--base-url", served.url)
        assert served.keys <= {f"Bearer {KEY}"}
        assert "sesame" not in out + err
    for path in run.rglob("*"):
        assert not path.is_file() or b"sesame" not in path.read_bytes()


HEARS = """
import signal, sys
from strop.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main(sys.argv[1:])
"""
"""The command. Who runs in the background is born deaf to Ctrl-C, and so are the children."""


def test_sigterm_ends_like_ctrl_c(tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 128})

    def script(body: dict[str, Any], _: int) -> Action:
        return agree(body, delay=30.0 if len(served.requests) > 3 else 0.0)

    for sign in (signal.SIGINT, signal.SIGTERM):
        with serving(script) as served:
            line = ["groupeval", "judge", str(run), "--base-url", served.url, "--model", "m"]
            process = warm_processes.Popen(
                [sys.executable, "-c", HEARS, *line],
                stderr=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                text=True,
            )
            end = time.monotonic() + 120
            while len(served.requests) < 6 and time.monotonic() < end:
                time.sleep(0.02)
            process.send_signal(sign)
            _, err = process.communicate(timeout=60)
        assert process.returncode == 2, err
        assert "Interrupted." in err
        assert "Traceback" not in err
        assert "never retrieved" not in err


def test_an_error_page_is_told_in_words(call: Called, tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 8})
    page = b"<!DOCTYPE html>\n<html><head><title>502 Bad&nbsp;Gateway</title></head><body>x</body>"
    with serving(lambda *_: Action(status=502, body=page)) as served:
        assert call(run, "--base-url", served.url)[0] == 2
    assert {f.detail for f in Series.open(run).failures()} == {
        "HTTP 502: an HTML page: 502 Bad Gateway"
    }


def test_the_next_command_scores_every_judge_of_the_run(
    call: Called, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = planned(tmp_path / "run", {"a": 8})
    with serving(lambda body, _: agree(body)) as served:
        assert f"next: strop groupeval score {run}\n" in call(run, "--base-url", served.url)[2]
        err = call(run, "--base-url", served.url, "--max-tokens", 99)[2]
    named = [line for line in err.splitlines() if "next:" in line]
    (judged,) = [s for s in list_series(run) if (s.judge.decoding or {})["max_tokens"] == 99]
    assert named == [f"next: strop groupeval score {run}"], "it prints every judge that is there"
    assert command(["groupeval", "score", f"{run}@{judged.id}"]) == 0
    command(["groupeval", "show", str(run)])
    assert f"score {run}\n" in capsys.readouterr().err
