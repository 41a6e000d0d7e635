"""Sampling from a server: what is sent, what is kept, and what a bad server leads to."""

from __future__ import annotations

import functools
import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from word_law import WordLaw
from word_server import word_server

from strop.cli.main import run as command
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError
from strop.measure.entropy import entropy
from strop.rng import derive_seed
from strop.served import serving as served_how
from strop.served.address import ServerAddress
from strop.served.cost import Journal
from strop.spec import OperatingPoint, SamplerSpec, label
from strop.store import Run
from strop.tuning.space import Space
from strop.verbs.points import points

Called = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Called:
    """`strop sample SOURCE ...` with a client that waits for milliseconds between attempts."""
    quick = {"attempts": 2, "first_wait": 0.001, "longest_wait": 0.002, "jitter": 0.001}
    monkeypatch.setattr(served_how, "Patience", functools.partial(served_how.Patience, **quick))

    def called(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = command([*map(str, arguments)])
        return code, *capsys.readouterr()

    return called


def sent_seed(seed: int, index: int) -> int:
    return derive_seed(seed, "served", index) >> 32


def test_what_is_sent_and_what_is_kept(call: Called, tmp_path: Path) -> None:
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"prompt": "Hé there"}\n{"prompt": "what now"}\n')
    with word_server() as server:
        code, out, err = call(
            *("sample", server.source, "--prompts", prompts, "--per-prompt", 2, "--length", 9),
            *("--temperature", "0.5", "--top-p", "0.8", "--seed", 3, "-o", tmp_path / "run"),
            *("--settings", "top_k=7,mode=fine,think=false", "--json"),
        )
    assert code == 0, err
    sent = {body["seed"]: body for body in server.bodies}
    expected = {
        "model": "m",
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.8,
        "top_k": 7,
        "mode": "fine",
        "think": False,
    }
    texts = ["Hé there", "what now"] * 2
    for index, text in enumerate(texts):
        asked = {"messages": [{"role": "user", "content": text}], "seed": sent_seed(3, index)}
        assert sent[sent_seed(3, index)] == {**expected, **asked}
    assert len(server.bodies) == 4
    assert set(server.paths) == {"/v1/chat/completions"}

    [cell] = Run.open(tmp_path / "run").cells()
    pool = cell.pool()
    law, codec = WordLaw(), TextCodec.gpt2()
    for index, text in enumerate(texts):
        said, tokens, _ = law.reply(text, sent[sent_seed(3, index)])
        assert tokens == 9
        assert pool[index].text == said
        assert pool[index].ids.tolist() == codec.encode(said)[:9]
        assert pool[index].nfe == 1
    assert pool.prompts == ["0", "1", "0", "1"]
    assert pool.provenance[0]["served"] == {"model": "m", "models": ["m"]}
    assert pool.provenance[0]["concurrency"] == 8
    told = [e for e in Journal(cell.path / "calls.jsonl").entries() if e["outcome"] == "reply"]
    assert {e["request"]["seed"] for e in told} == set(sent)
    assert {e["system_fingerprint"] for e in told} == {"fp-1"}
    assert all(0 < e["first_byte"] <= e["last_byte"] for e in told)
    assert json.loads(out)["cells"][0]["n"] == 4


def test_without_prompts_nothing_is_completed_and_entropy_is_of_gpt2_tokens(
    call: Called, tmp_path: Path
) -> None:
    with word_server(apis=("completions",)) as server:
        code, _, err = call(
            *("sample", server.source, "-n", 5, "--length", 40, "-o", tmp_path / "run")
        )
        assert code == 0, err
        assert "completions of no prompt" in err
        assert [body["prompt"] for body in server.bodies] == [""] * 5
        code, out, err = call("score", tmp_path / "run", "--evaluator", "none", "--json")
    assert code == 0, err
    [cell] = Run.open(tmp_path / "run").cells()
    texts = cell.pool().texts
    assert texts is not None
    rows = [TextCodec.gpt2().encode(text)[:40] for text in texts]
    expected = np.mean([entropy(np.array([row]))[0] for row in rows])
    [told] = json.loads(out)["cells"]
    assert told["entropy"]["value"] == pytest.approx(expected, abs=1e-12)


def test_a_cap_stops_and_a_higher_one_continues(call: Called, tmp_path: Path) -> None:
    """No reply that arrived is asked for again, also where only the journal has it."""
    with word_server() as server:
        asked = ("sample", server.source, "-n", 12, "--length", 4, "-o", tmp_path / "run")
        code, _, err = call(*asked, "--max-calls", 5, "--concurrency", 2)
        assert code == 2
        assert "7 outputs have no reply" in err
        assert "the cap of 5 calls is reached" in err
        assert len(server.bodies) == 5
        assert server.most_at_once <= 2
        [cell] = Run.open(tmp_path / "run").cells()
        for path in cell.files():  # as after a kill before anything else was written
            path.unlink()
        code, _, err = call(*asked)
        assert code == 0, err
    assert set(Counter(body["seed"] for body in server.bodies).values()) == {1}
    assert {body["seed"] for body in server.bodies} == {sent_seed(0, i) for i in range(12)}
    assert len(cell.pool()) == 12


def test_a_server_that_changes_ends_the_run(call: Called, tmp_path: Path) -> None:
    with word_server() as server:
        asked = ("sample", server.source, "-n", 2, "--length", 4, "-o", tmp_path / "run")
        assert call(*asked)[0] == 0
        server.fingerprint = "fp-2"
        code, _, err = call(*asked[:3], 3, *asked[4:])
        assert code == 1
        assert "The server has changed" in err
        assert "fp-1" in err
        assert "fp-2" in err
        [cell] = Run.open(tmp_path / "run").cells()
        assert len(cell.indices()) == 2
        server.fingerprint = "fp-1"
        assert call(*asked[:3], 3, *asked[4:])[0] == 0


@pytest.mark.parametrize(
    ("server", "told", "code"),
    [
        ({"key": "sesame-open"}, "does not accept the key", 1),
        ({"raw": b"<html><title>Gateway</title></html>"}, "but an HTML page: Gateway", 2),
        ({"raw": b"[1]"}, "the body is not a completion", 2),
        ({"raw": b'{"choices": [{"text": "\xff\xfe"}]}'}, "the body cannot be read", 2),
        ({"raw": b'{"choices": [{"text": "' + b"a" * 10_000_000 + b'"}]}'}, "more than 8 MiB", 2),
        ({"raw": b'{"choices"', "stall": 0.05}, "no end within 1 s", 2),
        ({"raw": b'{"error": {"message": "bad top_k"}}', "status": 400}, "bad top_k", 1),
    ],
)
def test_bad_servers(
    call: Called, tmp_path: Path, server: dict[str, Any], told: str, code: int
) -> None:
    with word_server(**server) as bad:
        options = ("-n", 2, "--length", 4, "--timeout", 1 if "stall" in server else 20)
        found, _, err = call("sample", bad.source, *options, "-o", tmp_path / "run")
    assert found == code, err
    assert told in err
    assert "Traceback" not in err
    for_good = any(words in told for words in ("HTML", "8 MiB", "no end"))
    assert len(bad.bodies) == 2 if for_good else len(bad.bodies) <= 4


def test_nobody_there_and_no_such_model(call: Called, tmp_path: Path) -> None:
    with word_server() as server:
        code, _, err = call(
            "sample", f"server:{server.url}#other", "-n", 1, "-o", tmp_path / "other"
        )
        assert code == 1
        assert "does not know this model" in err
    code, _, err = call("sample", server.source, "-n", 1, "-o", tmp_path / "dead")
    assert code == 1
    assert "cannot be reached" in err


def test_another_model_than_asked_is_told(call: Called, tmp_path: Path) -> None:
    with word_server() as server:
        server.model = "another"
        code, _, err = call("sample", server.source, "-n", 1, "-o", tmp_path / "run")
    assert code == 0
    assert "another" in err


@pytest.mark.parametrize(
    "source",
    ["server:", "server:http://h/v1", "server:#m", "server:ftp://h#m", "server:http://u:p@h/v1#m"],
)
def test_addresses_that_are_none(source: str) -> None:
    with pytest.raises(UserError) as error:
        ServerAddress.parse(source)
    assert "u:p" not in str(error.value)


def test_fields_of_a_request_are_settings_by_any_name() -> None:
    one = SamplerSpec(name="served", threshold=0.5)
    assert one.settings == {"api": "auto", "start": "", "threshold": 0.5}
    assert one == SamplerSpec(name="served", settings={"threshold": 0.5})
    assert one.id != SamplerSpec(name="served", threshold=0.6).id
    assert "threshold=0.5" in label(one)
    assert "threshold 0.5" in str(OperatingPoint.of(one))
    with pytest.raises(UserError, match="not a setting"):
        SamplerSpec(name="served", settings={"max_tokens": 3})
    with pytest.raises(UserError):
        SamplerSpec(name="ancestral", settings={"threshold": 0.5})


def test_fields_of_a_request_are_axes() -> None:
    found, _ = points("served", None, {"threshold": (0.5, 0.9)}, {"temperature": (1.0, 0.5)})
    told = {(p.sampler.temperature, p.sampler.settings["threshold"]) for p in found}
    assert told == {(1.0, 0.5), (1.0, 0.9), (0.5, 0.5), (0.5, 0.9)}
    space = Space.of(["threshold=0.5:0.9", "temperature=0.5,1"], "served")
    assert [axis.name for axis in space.axes_of("served")] == ["threshold", "temperature"]
    with pytest.raises(UserError):
        Space.of(["threshold=0.5:0.9"], "ancestral")
    with pytest.raises(UserError):
        points("mdlm", None, {"threshold": (0.5, 0.9)}, {})


@pytest.mark.slow
def test_kill_and_continue(tmp_path: Path) -> None:
    """After kill -9 only what was on its way is asked again."""
    concurrency, n = 2, 12
    with word_server(delay=0.3) as server:
        words = ("sample", server.source, "-n", n, "--length", 4, "-o", tmp_path / "run")
        line = [sys.executable, "-m", "strop", *map(str, words), "--concurrency", str(concurrency)]
        with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as one:
            end = time.monotonic() + 120
            while time.monotonic() < end and len(server.bodies) < 6:
                time.sleep(0.02)
            one.send_signal(signal.SIGKILL)
        [journal] = (tmp_path / "run").glob("cells/*/calls.jsonl")
        arrived = {
            e["request"]["seed"] for e in Journal(journal).entries() if e["outcome"] == "reply"
        }
        before = len(server.bodies)
        assert 0 < len(arrived) < n
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        again = [body["seed"] for body in server.bodies[before:]]
    assert not arrived & set(again)
    assert len(server.bodies) <= n + concurrency
    [cell] = Run.open(tmp_path / "run").cells()
    assert sorted(cell.indices()) == list(range(n))
    shutil.rmtree(tmp_path / "run")
