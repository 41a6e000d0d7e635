"""How a judge is asked is settled once, by a harmless question, and never changes in a series."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pools import planned
from quick_judge import Called, quick_judge
from scripted_server import Action, agree, serving

from strop.groupeval.series import Series, list_series
from strop.spec import JudgeSpec
from strop.verbs import groupeval_judge

__all__ = ["quick_judge"]  # the fixture `call`


def refusing(body: dict[str, Any], _: int) -> Action:
    """A server that knows neither schemas nor temperature, and calls the limit otherwise."""
    form = body.get("response_format", {}).get("type", "text")
    if form != "text":
        return Action(status=400, error={"message": f"response_format {form} is unknown"})
    if "max_tokens" in body:
        return Action(status=400, error={"message": "use 'max_completion_tokens' instead"})
    if "temperature" in body:
        return Action(status=500, error={"message": "temperature is not supported"})
    return Action("{}")


def test_the_form_is_settled_once_printed_and_part_of_the_judge(
    call: Called, tmp_path: Path
) -> None:
    run = planned(tmp_path / "run", {"a": 40})
    with serving(lambda body, _: agree(body), refusing) as served:
        code, out, err = call(run, "--base-url", served.url, "--json", "--max-calls", 10)
        assert code == 2
        settled = json.loads(out)["judge"]
        assert settled["response_format"] == "text"
        assert settled["decoding"] == {"top_p": 1.0, "max_completion_tokens": 8192}
        assert "asked with text, top_p 1, max_completion_tokens 8192" in err
        assert "does not take temperature, max_tokens, json_schema" in err
        assert (len(served.probes), len(served.requests)) == (5, 5)
        assert call(run, "--base-url", served.url)[0] == 0
    assert (len(served.probes), len(served.requests)) == (5, 10)  # it is found out once
    forms = [{k: v for k, v in r.items() if k != "messages"} for r in served.requests]
    assert forms == [{"model": "m", "top_p": 1.0, "max_completion_tokens": 8192}] * 10
    (series,) = list_series(run)
    assert series.judge.document() == settled
    assert {e["request"]["format"] for e in series.journal.entries() if "reply" in e} == {"text"}


def test_a_server_that_takes_everything_leaves_the_judge_as_it_was_asked_for(
    call: Called, tmp_path: Path
) -> None:
    """So a series that was begun before there was a probe goes on."""
    run = planned(tmp_path / "run", {"a": 16})
    with serving(lambda body, _: agree(body)) as served:
        decoding = {"temperature": 0.0, "top_p": 1.0, "max_tokens": 8192}
        form = {"decoding": decoding, "response_format": "json_schema"}
        old = Series.create(run, JudgeSpec(kind="endpoint", model="m", base_url=served.url, **form))
        assert call(run, "--base-url", served.url)[0] == 0
    assert [series.id for series in list_series(run)] == [old.id]
    assert len(Series.open(run).verdicts()) == 4


def test_the_first_question_is_short_and_said(call: Called, tmp_path: Path) -> None:
    """A slow server that fills strings without end is cut off soon, and that is an answer."""
    run = planned(tmp_path / "run", {"a": 8})
    cut = Action('{"outputs": [{"id": "aaaaaaaa', finish_reason="length")
    with serving(lambda body, _: agree(body), lambda *_: cut) as served:
        code, _, err = call(run, "--base-url", served.url)
        assert code == 0
    assert f"asking {served.url} which settings it takes" in err
    assert "at most 32 tokens and 60 s" in err
    assert [probe["max_tokens"] for probe in served.probes] == [32]
    assert [request["max_tokens"] for request in served.requests] == [8192, 8192]
    (path,) = run.glob("probes/*/calls.jsonl")
    sent, settled = (json.loads(line) for line in path.read_text().splitlines())
    assert sent["reserve"]["completion"] == 32
    assert settled["judge"]["decoding"]["max_tokens"] == 8192


@pytest.mark.parametrize(
    "told",
    [
        "Could not finish the message because max_tokens or model output limit was reached.",
        "The output token limit was reached.",
    ],
)
def test_an_error_about_the_length_is_an_answer(call: Called, tmp_path: Path, told: str) -> None:
    run = planned(tmp_path / "run", {"a": 8})
    cut = Action(status=400, error={"message": told})
    with serving(lambda body, _: agree(body), lambda *_: cut) as served:
        assert call(run, "--base-url", served.url)[0] == 0
        assert call(run, "--base-url", served.url)[0] == 0
    assert (len(served.probes), len(served.requests)) == (1, 2)


def test_a_silent_server_is_given_up_soon(
    call: Called, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groupeval_judge, "PROBE_SECONDS", 0.1)
    run = planned(tmp_path / "run", {"a": 8})
    with serving(lambda body, _: agree(body), lambda *_: Action("{}", delay=0.6)) as served:
        code, _, err = call(run, "--base-url", served.url, "--timeout", 0.5)
    assert (code, len(served.probes)) == (2, groupeval_judge.PROBE_TRIES)
    assert "does not answer a plain question" in err
    assert "0.1 s for the reply" in err


QUOTES = "the text 'a schema of temperature and top_p, in grammar' cannot be taken"


@pytest.mark.parametrize("status", [400, 422, 500, 501])
def test_a_refusal_that_quotes_a_text_changes_nothing(
    call: Called, tmp_path: Path, status: int
) -> None:
    run = planned(tmp_path / "run", {"a": 64})
    refused = Action(status=status, error={"message": QUOTES})
    with serving(lambda body, _: refused if len(served.requests) == 3 else agree(body)) as served:
        code, _, _ = call(run, "--base-url", served.url, "--concurrency", 1)
    assert code == (2 if status < 500 else 0)
    assert len(Series.open(run).verdicts()) == (15 if status < 500 else 16)
    for request in served.requests:
        assert request["response_format"]["type"] == "json_schema"
        assert (request["temperature"], request["top_p"]) == (0.0, 1.0)


def test_a_server_that_refuses_a_plain_question_ends_it(call: Called, tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 16})
    no = Action(status=400, error={"message": "the account is closed"})
    with serving(lambda body, _: agree(body), lambda *_: no) as served:
        code, _, err = call(run, "--base-url", served.url)
    assert (code, served.received) == (1, 1)
    assert "refuses a plain question" in err
    assert "the account is closed" in err
    assert list_series(run) == []


def test_the_dry_run_says_that_a_probe_comes_first(call: Called, tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 16})
    with serving(lambda body, _: agree(body)) as served:
        line = [run, "--base-url", served.url, "--dry-run", "--json"]
        assert json.loads(call(*line)[1])["probe"] is True
        assert served.received == 0
        assert call(run, "--base-url", served.url)[0] == 0
        assert json.loads(call(*line)[1])["probe"] is False


@pytest.mark.parametrize(
    "change",
    [
        {"judge": 3},
        {"judge": {"model": "other"}},
        {"judge": {"decoding": {"max_tokens": 1}}},
        {"judge": {"decoding": 3}},
        {"judge": {"response_format": "xml"}},
    ],
)
def test_an_edited_form_is_found_out_anew(
    call: Called, tmp_path: Path, change: dict[str, Any]
) -> None:
    run = planned(tmp_path / "run", {"a": 16})
    with serving(lambda body, _: agree(body)) as served:
        assert call(run, "--base-url", served.url)[0] == 0
        (path,) = run.glob("probes/*/calls.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        new = change["judge"]
        lines[-1]["judge"] = {**lines[-1]["judge"], **new} if isinstance(new, dict) else new
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert call(run, "--base-url", served.url)[0] == 0
    assert len(served.probes) == 2
    assert len(served.requests) == 4
