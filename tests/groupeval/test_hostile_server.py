"""Servers that mean harm: floods, bombs, redirects, deep JSON, false times, counts and names."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import math
import time
import zlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from openai import DefaultAsyncHttpxClient
from pools import planned, verdict
from quick_judge import Called, quick_judge
from scripted_server import Action, Script, agree, labels_of, serving

from strop.groupeval.series import Series
from strop.served import transport
from strop.served.client import (
    LEAST_KEY,
    Client,
    Patience,
    Trouble,
    _message,
    _retry_after,
    spellings,
)

__all__ = ["quick_judge"]  # the fixture `call`

CAP = 20_000
KEY = "sk-sesame-open/now?!"


def completion(body: dict[str, Any], **changes: Any) -> bytes:
    message = {"role": "assistant", "content": json.dumps(verdict(labels_of(body)))}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1000, "completion_tokens": 100}
    return json.dumps({"model": "m", "choices": [choice], "usage": usage, **changes}).encode()


PACKED = {
    "plain": (lambda body: body, {}),
    "gzip": (gzip.compress, {"content-encoding": " GZip "}),
    "deflate": (zlib.compress, {"content-encoding": "deflate"}),
}


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("too_many", [0, 1])
def test_a_reply_is_read_up_to_a_size_and_not_one_byte_further(
    call: Called, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: str, too_many: int
) -> None:
    monkeypatch.setattr(transport, "MOST_BYTES", CAP)
    pack, headers = PACKED[packed]
    run = planned(tmp_path / "run", {"a": 8})

    def script(body: dict[str, Any], _: int) -> Action:
        return Action(body=pack(completion(body).ljust(CAP + too_many)), headers=headers)

    with serving(script) as served:
        code, _, _ = call(run, "--base-url", served.url)
    series = Series.open(run)
    assert (code, len(series.verdicts())) == ((2, 0) if too_many else (0, 2))
    assert {f.reason for f in series.failures()} == ({"server_error"} if too_many else set())
    assert all("the reply has more than" in f.detail for f in series.failures())
    assert len(served.requests) == 2  # asked once each: another try would bring the same


@pytest.mark.parametrize(
    ("pieces", "packed", "told"), [(4, "", None), (5, "", "more than"), (1, "br", "packed as")]
)
def test_a_reply_in_many_pieces_is_counted_as_one(
    monkeypatch: pytest.MonkeyPatch, pieces: int, packed: str, told: str | None
) -> None:
    """And the connection is given back, read to its end or not; nothing is followed."""
    [parent] = [one for one in DefaultAsyncHttpxClient.__mro__ if one.__name__ == "AsyncClient"]
    http = import_module(parent.__module__.partition(".")[0])  # whichever the SDK's release has
    monkeypatch.setattr(transport, "MOST_BYTES", 12)

    async def body() -> AsyncIterator[bytes]:
        for _ in range(pieces):
            yield b"abc"

    request = http.Request("POST", "http://127.0.0.1")
    headers = {"content-encoding": packed}
    response = http.Response(200, headers=headers, content=body(), request=request)

    async def send(_: object, asked: Any, **options: Any) -> Any:
        assert (asked, options) == (request, {"stream": True, "follow_redirects": False})
        return response

    monkeypatch.setattr(DefaultAsyncHttpxClient, "send", send, raising=False)
    client = transport.bounded_client(60)
    assert not client.follow_redirects
    if told is None:
        assert asyncio.run(client.send(request)).content == b"abc" * 4
    else:
        with pytest.raises(transport.Unreadable, match=told):
            asyncio.run(client.send(request, stream=False, follow_redirects=True))
    assert response.is_closed


def test_the_size_is_the_one_that_is_promised() -> None:
    promised = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")
    assert f"A reply is read up to {transport.MOST_BYTES / 2**20:g} MiB." in promised


def test_layers_of_packing_are_not_unpacked(call: Called, tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 8})
    headers = {"content-encoding": "gzip, gzip"}

    def script(body: dict[str, Any], _: int) -> Action:
        return Action(body=gzip.compress(gzip.compress(completion(body))), headers=headers)

    with serving(script) as served:
        assert call(run, "--base-url", served.url)[0] == 2
    assert {"packed as 'gzip, gzip'" in f.detail for f in Series.open(run).failures()} == {True}


@pytest.mark.parametrize("status", [302, 307])
def test_texts_and_key_reach_no_host_that_was_not_named(
    call: Called, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    run = planned(tmp_path / "run", {"a": 8})
    with serving(lambda body, _: agree(body), lambda *_: Action("{}")) as other:
        target = other.url.replace("127.0.0.1", "localhost") + f"/{KEY}"
        away = Action(status=status, headers={"location": target})
        for probe in (lambda *_: Action("{}"), lambda *_: away):
            with serving(lambda *_: away, probe) as served:
                code, _, err = call(run, "--base-url", served.url)
            assert code == 1
            assert "which is not followed" in err
            assert "localhost" in err
            assert "sesame" not in err
        assert other.received == 0
    assert not Series.open(run).verdicts()


@pytest.mark.parametrize(
    ("where", "depth"),
    [(where, depth) for where in ("body", "content", "error", "model") for depth in (990, 200_000)]
    + [("model", 50)],
)
def test_json_of_any_depth_is_a_failure_with_a_reason(
    call: Called, tmp_path: Path, where: str, depth: int
) -> None:
    deep = b"[" * depth + b"]" * depth

    def script(body: dict[str, Any], _: int) -> Action:
        if where == "content":
            return Action(deep.decode())
        if where == "error":
            return Action(status=500, body=b'{"error": {"code": %b, "message": %b}}' % (deep, deep))
        if where == "model":
            return Action(body=completion(body).replace(b'"model": "m"', b'"model": ' + deep))
        return Action(body=deep)

    run = planned(tmp_path / "run", {"a": 8})
    with serving(script) as served:
        code, _, err = call(run, "--base-url", served.url)
    assert "Traceback" not in err
    series = Series.open(run)
    if depth == 50:  # read without trouble, and no name
        assert code == 0
        answers = [e for e in series.journal.entries() if e["outcome"] == "verdict"]
        assert [e["model"] for e in answers] == [None, None]
    else:
        assert code == 2
        assert len(series.failures()) == 2
        assert {bool(f.detail) for f in series.failures()} == {True}


@pytest.mark.parametrize(
    "choice",
    [
        "x",
        None,
        {},
        {"message": "\ud800"},
        {"message": ["x"]},
        {"message": {"content": 5}},
        {"message": {"content": "x", "refusal": {"a": 1}}, "finish_reason": ["x"]},
    ],
)
def test_a_completion_of_any_shape_is_a_failure_with_a_reason(
    call: Called, tmp_path: Path, choice: Any
) -> None:
    run = planned(tmp_path / "run", {"a": 8})
    odd = {"choices": [choice], "usage": "x"}
    with serving(lambda body, _: Action(body=completion(body, **odd))) as served:
        assert call(run, "--base-url", served.url)[0] == 2
    assert {f.reason for f in Series.open(run).failures()} <= {"empty", "refused", "server_error"}


def test_an_error_too_deep_to_be_shown_is_told() -> None:
    body: list[Any] = []
    for _ in range(5000):
        body = [body]
    error = SimpleNamespace(status_code=500, body=body, message="")
    assert _message(error, str) == "HTTP 500: a body that is nested too deep to be shown"


def after(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("name", "value", "seconds"),
    [
        ("retry-after", "nan", None),
        ("retry-after", "-5", None),
        ("retry-after", "0", None),
        ("retry-after", "-inf", None),
        ("retry-after", "2.5", 2.5),
        ("retry-after", "1e999", math.inf),
        ("retry-after", "9" * 5000, math.inf),
        ("retry-after", "soon", None),
        ("retry-after", "Fri, 31 Dec 99999999999999999999 23:59:59 GMT", None),
        ("retry-after-ms", "1500", 1.5),
        ("retry-after-ms", "²", None),
        ("retry-after-ms", "-1", None),
        ("retry-after-ms", "0", None),
        ("retry-after-ms", "nan", None),
    ],
)
def test_a_pause_is_a_time_to_come(name: str, value: str, seconds: float | None) -> None:
    assert _retry_after({name: value}) == seconds


def test_a_pause_may_be_a_date_but_none_that_has_passed() -> None:
    assert _retry_after({"retry-after": after(-60)}) is None
    assert _retry_after({"retry-after": after(60)}) == pytest.approx(60, abs=30)


@pytest.mark.parametrize(
    ("after", "pause"), [(None, True), (0.5, 2.0), (600.0, 600.0), (600.1, False)]
)
def test_a_server_that_asks_for_a_long_pause_is_left_alone(
    after: float | None, pause: bool | float
) -> None:
    """A shorter one holds for all requests."""
    endpoint = Client.__new__(Client)
    endpoint._patience, endpoint._open_at, endpoint._heard = Patience(first_wait=2.0), 0.0, True
    trouble = Trouble("rate_limited", "", passing=True, retry_after=after, status=429)
    before = time.monotonic()
    assert endpoint._pause(trouble, lambda _: False) == pause
    waits = endpoint._open_at - before
    assert waits == pytest.approx(pause, abs=1.0) if isinstance(pause, float) else waits < 0


@pytest.mark.parametrize("value", ["nan", "-5", "0", "1e-9"])
def test_no_retry_after_switches_the_waits_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    from test_judge import ask, who

    run = planned(tmp_path / "run", {"a": 8})
    patience = Patience(60.0, attempts=2, first_wait=0.3, longest_wait=0.3, jitter=0.0)
    with serving(lambda *_: Action(status=429, headers={"retry-after": value})) as served:
        ask(Series.create(run, who(served.url)), patience, concurrency=1)
    first, second = served.times[:2]
    assert second - first >= 0.3


@pytest.mark.parametrize(
    ("answered", "told"),
    [
        (["m"], None),
        (["org/M-2026-01-31"], None),
        (["tiny"], "m was asked, and the verdicts come from another model: tiny (16)"),
    ],
)
def test_a_judge_that_answers_under_another_name_is_told(
    call: Called, tmp_path: Path, answered: list[str], told: str | None
) -> None:
    run = planned(tmp_path / "run", {"a": 64})
    with serving(lambda body, _: Action(body=completion(body, model=answered[0]))) as served:
        code, _, err = call(run, "--base-url", served.url)
    assert code == 0
    assert Series.open(run).served() == {answered[0]: 16}
    assert (f"warning: {told}" in err) if told else ("warning" not in err)


def test_two_names_in_one_series_are_told(call: Called, tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 64})

    def script(body: dict[str, Any], _: int) -> Action:
        name = "m" if len(served.requests) <= 5 else "m-2"
        return Action(body=completion(body, model=name))

    with serving(script) as served:
        err = call(run, "--base-url", served.url, "--concurrency", 1)[2]
    assert "several models, which are several judges: m (5), m-2 (11)" in err


@pytest.mark.parametrize("usage", [-1, True, "9", 1.5])
def test_a_count_that_is_none_is_no_count(call: Called, tmp_path: Path, usage: Any) -> None:
    run = planned(tmp_path / "run", {"a": 8})
    counts = {"prompt_tokens": usage, "completion_tokens": 5}
    with serving(lambda body, _: Action(body=completion(body, usage=counts))) as served:
        code, out, _ = call(run, "--base-url", served.url, "--json")
    assert code == 0
    assert json.loads(out)["tokens"]["replies_not_counted_by_the_server"] == 2


ECHOES = {
    "whole": KEY,
    "backwards": KEY[::-1],
    "hexadecimal": KEY.encode().hex(),
    "HEXADECIMAL": KEY.encode().hex().upper(),
    "URL": "sk-sesame-open%2Fnow%3F%21",
    **{
        f"base64 after {n}": base64.b64encode(b"Bearer  "[: 5 + n] + KEY.encode() + b"~").decode()
        for n in range(3)
    },
    "URL base64": base64.urlsafe_b64encode(KEY.encode()).decode(),
}


@pytest.mark.parametrize("echo", ECHOES)
def test_a_key_is_hidden_in_every_spelling(echo: str) -> None:
    text = ECHOES[echo]
    for spelling in spellings(KEY):
        text = text.replace(spelling, "[]")
    left = max(text.split("[]"), key=len)
    assert "[]" in text
    assert len(left) < (12 if "base64" in echo else 1)  # what stands before the key itself


def test_pieces_of_a_key_are_hidden_and_other_words_are_not() -> None:
    known = spellings(KEY)
    assert KEY[3 : 3 + LEAST_KEY] in known
    assert KEY[-LEAST_KEY:] in known
    assert min(map(len, known)) == LEAST_KEY
    assert not any(spelling in "open sesame, said the judge" for spelling in known)


@pytest.mark.parametrize("echo", ["base64 after 0"])
@pytest.mark.parametrize("where", ["reply", "refusal", "error", "code", "model"])
def test_an_encoded_key_is_written_nowhere(
    call: Called, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, echo: str, where: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    text = ECHOES[echo]
    script: dict[str, Script] = {
        "reply": lambda *_: Action(text),
        "refusal": lambda *_: Action(refusal="x" * 195 + text),
        "error": lambda *_: Action(status=400, error={"message": "x" * 290 + text}),
        "code": lambda *_: Action(status=400, error={"message": "no", "code": text}),
        "model": lambda body, _: Action(body=completion(body, model=text)),
    }
    run = planned(tmp_path / "run", {"a": 8})
    with serving(script[where]) as served:
        _, out, err = call(run, "--base-url", served.url)
    piece = text[-14:-4]
    assert piece not in out + err
    for path in run.rglob("*"):
        assert not path.is_file() or piece.encode() not in path.read_bytes()


def test_a_server_without_tls_is_told_from_one_that_is_away(call: Called, tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 8})
    with serving(lambda body, _: agree(body)) as served:
        code, _, err = call(run, "--base-url", served.url.replace("http:", "https:"))
    assert code == 1
    assert "does not speak TLS" in err
    assert "SSL_CERT_FILE" in err
    assert served.received == 0
