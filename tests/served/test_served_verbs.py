"""Served models in the other verbs: caps over a whole study, programs, footnotes of a probe."""

from __future__ import annotations

import functools
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from word_law import WordLaw
from word_server import word_server

from strop.cli import output
from strop.cli.main import run as command
from strop.errors import UserError
from strop.served import serving as served_how
from strop.served.address import keep_probe
from strop.served.cost import Journal, MemoryJournal
from strop.served.serving import Serving
from strop.spec import Cooling
from strop.tasks import TASKS
from strop.verbs import likelihood, paper, posterior, tune
from strop.verbs.language import BOUND
from strop.verbs.points import standard
from strop.verbs.verb import Ask, Verb

Called = Callable[..., tuple[int, str, str]]
AUDIT = ("--axis", "temperature=1,0.5", "-n", 8, "--length", 6, "--evaluator", "embedded:tales-ar")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Called:
    """A command whose client waits for milliseconds between attempts."""
    quick = {"attempts": 2, "first_wait": 0.001, "longest_wait": 0.002, "jitter": 0.001}
    monkeypatch.setattr(served_how, "Patience", functools.partial(served_how.Patience, **quick))

    def called(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = command([*map(str, arguments)])
        return code, *capsys.readouterr()

    return called


def test_a_cap_is_on_a_whole_study(call: Called, tmp_path: Path) -> None:
    with word_server(delay=0.01) as server:
        asked = ("audit", server.source, *AUDIT, "-o", tmp_path / "audit", "--concurrency", 2)
        for cap in (5, 11):
            code, _, err = call(*asked, "--max-calls", cap)
            assert code == 2, err
            assert f"the cap of {cap} calls is reached" in err
            assert len(server.bodies) == cap
        assert server.most_at_once == 2
        code, _, err = call(*asked)
        assert code == 0, err
        once = {json.dumps(body, sort_keys=True) for body in server.bodies}
    assert len(once) == len(server.bodies) == 16


def test_a_cap_is_on_all_that_lies_in_the_directory(call: Called, tmp_path: Path) -> None:
    """A task draws seed by seed: the requests of the first seed count when the second is drawn."""
    with word_server() as server:
        code, _, err = call(
            *("task", "run", "gsm8k", server.source, "--limit", 3, "--temperature", 0.5),
            *("--seeds", 2, "--length", 4, "--max-calls", 5, "-o", tmp_path / "run"),
        )
    assert code == 2, err
    assert "1 outputs have no reply" in err
    assert len(server.bodies) == 5


def sent(asked: str, sheet: int, prompt: int, completion: int) -> list[dict[str, Any]]:
    line = {"sheet": str(sheet), "repeat": 0, "attempt": 1, "session": "s", "asked": asked}
    counts = {"prompt": prompt, "completion": completion}
    done = {"outcome": "reply", "calls": 1, "unsent": 0, "tokens": counts, "reply": None}
    return [{**line, "outcome": "sent", "reserve": counts}, {**line, **done}]


def test_caps_count_every_model_at_its_own_price(tmp_path: Path) -> None:
    """Tokens of a were 1,000 and 100 at 2 and 10 a million, those of b 500 and 50 at 4 and 20."""
    for name, model, counts in (("a", "a", (1000, 100)), ("b", "b", (500, 50))):
        journal = Journal(tmp_path / name / "calls.jsonl")
        journal.path.parent.mkdir()
        for entry in sent(model, 0, *counts):
            journal.append(entry)
    prices = tmp_path / "prices.yaml"
    prices.write_text("a: {input: 2, output: 10}\nb: {input: 4, output: 20}\n")
    memory = MemoryJournal()
    for entry in sent("a", 7, 10, 1):
        memory.append(entry)
    how = Serving(max_cost=1.0, prices=prices, directory=tmp_path)
    caps = how.caps("a", [Journal(tmp_path / "a" / "calls.jsonl"), memory])
    assert caps.calls == 3
    assert caps.cost == pytest.approx((3000 + 30 + 3000) / 1e6, rel=1e-12)
    assert how.caps("b", []).of({"prompt": 1, "completion": 0}) == pytest.approx(4e-6)
    prices.write_text("a: {input: 2, output: 10}\n")
    with pytest.raises(UserError, match="no price for 'b'"):
        how.caps("a", [])
    assert Serving().caps("a", []).calls == 0


class Programmer(WordLaw):
    """Writes the reference program of every second problem, as chat models do; else a wrong one."""

    def reply(self, prompt: str, *_: Any) -> tuple[str, int, str]:
        items = TASKS.find("humaneval", where="").all_items()
        [(place, item)] = [(i, one) for i, one in enumerate(items) if one.prompt == prompt]
        body_of = item.reference if place % 2 == 0 else "    return None\n"
        text = f"Here is the function:\n\n```python\n{prompt}{body_of}\n```\nIt works like this."
        return text, 40, "stop"


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is missing")
def test_programs_of_a_served_model_run_in_the_sandbox(call: Called, tmp_path: Path) -> None:
    with word_server() as server:
        server.law = Programmer()
        code, out, err = call(
            *("task", "run", "humaneval", server.source, "--limit", 4, "--temperature", 0),
            *("-o", tmp_path / "run", "--json"),
        )
    assert code == 0, err
    [setting] = json.loads(out)["settings"]
    [share] = [value for name, value in setting.items() if name.startswith("accuracy")]
    assert share["value"] == 0.5, setting


def test_what_a_probe_found_is_said_with_every_later_result(
    call: Called, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    told = "by the last `strop probe` of this server: temperature does nothing; stop: no"
    with word_server() as server:
        keep_probe(
            server.source, {"temperature": "no", "stop": "no", "seed": "yes"}, ["temperature"]
        )
        code, out, err = call("audit", server.source, *AUDIT, "-o", tmp_path / "a", "--json")
        assert code == 0, err
        assert json.loads(out)["notes"].count(told) == 1
        code, out, err = call(
            *("compare", server.source, server.source, "--a", "temperature=0.5"),
            *("--temperature", "1,0.8,0.5", "-n", 8, "--length", 6, "--budget", 48),
            *("--evaluator", "embedded:tales-ar", "-o", tmp_path / "c", "--json"),
        )
        assert code == 0, err
        assert json.loads(out)["notes"].count(told) == 1
        code, out, err = call(
            *("task", "run", "gsm8k", server.source, "--limit", 2, "--temperature", 0),
            *("--length", 4, "-o", tmp_path / "t"),
        )
        assert code == 0, err
        assert told in out
        assert told in json.loads((tmp_path / "t" / "result.json").read_text())["notes"]
        run = tmp_path / "r"
        code, out, err = call("sample", server.source, "-n", 2, "--length", 4, "-o", run)
        assert code == 0, err
        assert told in out + err
    code, out, err = call("score", run, "--evaluator", "none")
    assert code == 0, err
    assert told in " ".join(out.split())
    code, _, err = call("report", run, "-o", tmp_path / "page.html")
    assert code == 0, err
    shown = (tmp_path / "page.html").read_text()
    assert "temperature does nothing; stop: no" in shown


def test_a_server_that_completes_nothing_says_what_to_start_from(
    call: Called, tmp_path: Path
) -> None:
    """llama.cpp answers an empty text with nothing; an audit's baseline starts like its points."""
    with word_server() as server:
        server.law = OnlyFromText()
        code, _, err = call("sample", server.source, "-n", 2, "--length", 6, "-o", tmp_path / "s")
        assert code == 1
        assert "generates nothing from an empty text" in err
        assert "start=<s>" in err
        code, out, err = call(
            *("audit", server.source, *AUDIT, "--axis", "start=<s>"),
            *("-o", tmp_path / "a", "--json"),
        )
        assert code == 0, err
        assert {body["prompt"] for body in server.bodies[2:]} == {"<s>"}
    assert json.loads(out)["standard"] == "(1, float64, start <s>)"
    two = {"start": ("<s>", "<t>"), "threshold": (0.5,)}
    assert str(standard("served", two)) == "(1, float64)"
    assert str(standard("ar", {"start": ("<s>",)})) == "(1, float64)"


class OnlyFromText(WordLaw):
    """Completes texts, and nothing of none."""

    def reply(self, prompt: str, *rest: Any) -> tuple[str, int, str]:
        return super().reply(prompt, *rest) if prompt else ("", 0, "length")


def test_a_search_can_be_counted_before_it_begins(call: Called, tmp_path: Path) -> None:
    """Also of its own axes, which for a server are without precisions, and without a budget."""
    with word_server() as server:
        for more in ((), ("--space", "temperature=0.6:1.1"), ("--calls", 3)):
            code, out, err = call(
                *("tune", server.source, "--dry-run", "--evaluator", "embedded:tales-ar"),
                *("-o", tmp_path / "tune", *more),
            )
            assert code == 0, err
            assert "Drawing makes 64 requests" in " ".join(out.split())
        assert not server.bodies
    for asked, searches in (({}, 1), ({"steps": (4, 8)}, 2), ({"calls": (4, 8, 9)}, 3)):
        ask = Ask(tune.STUDY, tmp_path, ("x",), tune.STUDY.values(asked))
        assert tune.STUDY.most is not None
        assert tune.STUDY.most(ask) == searches * (512 + 2 * 128)


@pytest.mark.parametrize(
    ("verb", "heat"),
    [
        (BOUND, "linear/1/0.5"),
        (likelihood.STUDY, "1,linear/1/0.5"),
        (posterior.STUDY, "1,late/1/0"),
    ],
)
def test_what_is_computed_at_one_temperature_takes_no_schedule(
    call: Called, tmp_path: Path, verb: Verb, heat: str
) -> None:
    """It took the mean of both ends and said nothing."""
    words = {"bound": ("language", "bound")}.get(verb.name, ("study", verb.name))
    out = () if verb.name == "bound" else ("-o", tmp_path / "o")
    code, _, err = call(*words, *out, "--temperature", heat)
    assert code == 1
    assert "expected: numbers separated by commas" in err
    with pytest.raises(UserError, match="no schedule"):
        verb.values({"temperature": [1.0, Cooling.of("linear/1/0.5")]})
    assert verb.values({"temperature": 0.5})["temperature"] == (0.5,)
    with pytest.raises(UserError, match="number here"):
        verb.values({"temperature": ["linear/1/0.5"]})


def test_a_warning_is_red_in_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    output.note("warning: top_k: accepted, and without any effect")
    assert capsys.readouterr().err == "warning: top_k: accepted, and without any effect\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    output.note("warning: top_k")
    output.note("written: here")
    assert capsys.readouterr().err == "\033[31mwarning: top_k\033[0m\nwritten: here\n"
    monkeypatch.setenv("NO_COLOR", "1")
    output.note("warning: top_k")
    assert capsys.readouterr().err == "warning: top_k\n"


def test_the_papers_control_can_be_served(call: Called, tmp_path: Path) -> None:
    """`strop reproduce` says how, and a server stands in for one of the paper's models."""
    item = paper.items()["large-models-control"][1]
    assert "server:URL#MODEL" in item.needs
    with word_server() as server:
        code, out, err = call(
            *("reproduce", "large-models-control", "--smoke", "--limit", 2, "-o", tmp_path / "r"),
            *("--checkpoint", f"Llama-3.1-8B-Instruct={server.source}", "--json"),
        )
    assert code == 0, err
    rows = json.loads(out)["result"]["rows"]
    assert {row["model"] for row in rows} == {"m"}
