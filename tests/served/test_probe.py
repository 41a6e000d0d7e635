"""The probe: its tests by themselves, its error rates on simulated servers, and over HTTP."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binom
from word_law import Faults
from word_server import word_server

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import probe_errors
from strop.cli.main import run as command
from strop.probing.evidence import Pairs, distances, more_often, spread
from strop.probing.questions import PROMPTS, Probe, Request, Said, budget

SMALL = 12
"""Servers of a kind. A fault that is missed in a tenth of servers goes unseen here with probability
0.28, one that is missed in half of them with 0.0002; a false alarm in a tenth the same."""


@pytest.mark.parametrize("fault", probe_errors.FAULTS)
def test_simulated_servers(fault: str) -> None:
    knobs = probe_errors.FAULTS[fault][1]
    for server in range(SMALL):
        said = probe_errors.answers(fault, server)
        wrong = {knob for knob, word in said.items() if word == "no"}
        if not knobs:
            assert set(said.values()) == {"yes"}, (server, said)
        else:
            assert wrong & set(knobs), (server, said)
    if fault == "leaks the batch":
        assert wrong == {"batch", "concurrency"}
    if fault == "ignores the seed":
        assert wrong == {"repeat", "seed"}


@pytest.mark.parametrize(
    ("faults", "no", "open_"),
    [
        (Faults(ignores_top_p=True), {"top_p"}, set()),
        (Faults(ignores_top_k=True), {"top_k"}, set()),
        (Faults(echoes=True), {"no_echo"}, set()),
        (
            Faults(always_greedy=True),
            {"seed", "temperature"},
            {"temperature_monotone", "top_p", "top_k"},
        ),
    ],
)
def test_other_faults(faults: Faults, no: set[str], open_: set[str]) -> None:
    law = probe_errors.WordLaw(faults)
    said = {a.knob: a.word for a in Probe(probe_errors.Simulated(law, counts=True)).run()}
    assert {knob for knob, word in said.items() if word == "no"} - {"max_tokens", "stop"} == no
    assert {knob for knob, word in said.items() if word == "cannot tell"} == open_


def test_a_server_without_a_count_is_counted_in_words() -> None:
    for late, word in ((False, "yes"), (True, "no")):
        law = probe_errors.WordLaw(Faults(stop_late=late))
        said = {a.knob: a.word for a in Probe(probe_errors.Simulated(law, counts=False)).run()}
        assert said["max_tokens"] == word


class Joined(probe_errors.Simulated):
    """Its tokens are no words, so that only its own count tells of a limit."""

    def _one(self, request: Request, company: int) -> Said:
        said = super()._one(request, company)
        return Said(said.text.replace(" ", "-"), said.tokens, said.why)


def test_a_limit_by_the_count_alone() -> None:
    for late, word in ((False, "yes"), (True, "no")):
        law = probe_errors.WordLaw(Faults(stop_late=late))
        said = {a.knob: a.word for a in Probe(Joined(law, counts=True)).run()}
        assert said["max_tokens"] == word
        assert said["stop"] == "cannot tell"  # no words to stop at


class Wavering(probe_errors.Simulated):
    """Differs now and then, however it is asked: arithmetic that depends on nothing told."""

    def __init__(self, every: int) -> None:
        super().__init__(probe_errors.WordLaw(), counts=True)
        self.every, self.count = every, 0

    def _one(self, request: Request, company: int) -> Said:
        self.count += 1
        said = super()._one(request, company)
        wavers = self.count % self.every == 0
        return Said(said.text[::-1], said.tokens, said.why) if wavers else said


def test_what_differs_now_and_then_is_no_leak() -> None:
    said = {a.knob: a.word for a in Probe(Wavering(11)).run()}
    assert said["batch"] != "no"
    assert said["concurrency"] != "no"


def test_as_many_here_and_as_few_before() -> None:
    """Against the plain formula at its largest, over a fine grid."""
    here, before = Pairs(4, 16), Pairs(0, 36)
    rates = [k / 10_000 for k in range(10_001)]
    plain = max(binom.sf(3, 16, p) * (1 - p) ** 36 for p in rates)
    assert more_often(here, before) == pytest.approx(plain, rel=1e-3)
    assert more_often(Pairs(0, 16), before) == 1.0
    assert more_often(Pairs(5, 16), before) < more_often(here, before) < 0.002


def test_pairs() -> None:
    assert Pairs.of([["a", "b"], ["c"]], [["a", "x"], ["c"]]) == Pairs(1, 3)
    assert Pairs.within([["a", "a", "b"], ["c", "d"]]) == Pairs(2, 3)
    assert str(Pairs(0, 20)) == "0 of 20 differ (under 15%)"
    assert not Pairs(3, 20).surely_some  # P(3 or more of 20 at 5%) is 0.075
    assert Pairs(4, 20).surely_some  # 0.016


def test_distances_and_their_permutations() -> None:
    found = distances(["a b", "a b", "c d"])
    assert found.tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]
    near, far = ["a b"] * 6, [f"w{k} v{k}" for k in range(6)]
    told = spread([near, near], [far, far])
    assert (told.first, told.second) == (0.0, 1.0)
    # Of two prompts with 924 labellings each, the observed one and its mirror are the furthest.
    assert told.p <= 0.001
    same = spread([far, far], [far, far])
    assert same.p == 1.0
    assert same.p_other > 0.5


def test_where_no_text_comes_twice_company_is_not_told() -> None:
    answers = {a.knob: a for a in Probe(Wavering(2)).run()}
    for knob in ("batch", "concurrency"):
        assert answers[knob].word == "cannot tell"
        assert "no request brings the same text twice" in answers[knob].why


class Crowded(probe_errors.Simulated):
    """In company one reply in thirteen is another one: too few to tell, so that all is asked."""

    asked = 0

    def ask(self, requests: Sequence[Request], at_once: int = 1) -> list[Said]:
        found = super().ask(requests, at_once)
        for place in range(len(found)) if at_once > 1 else ():
            self.asked += 1
            if self.asked % 13 == 4:
                found[place] = Said(found[place].text[::-1])
        return found


def test_the_budget_is_kept() -> None:
    for fault in probe_errors.FAULTS.values():
        subject = probe_errors.Simulated(probe_errors.WordLaw(fault[0]), counts=True)
        probe = Probe(subject)
        probe.run()
        assert len(probe.said) <= budget(len(subject.knobs), served=True, greedy=True)
    assert len(set(PROMPTS)) == 4
    subject = Crowded(probe_errors.WordLaw(), counts=True)
    probe = Probe(subject)
    probe.run()
    most = budget(len(subject.knobs), served=True, greedy=True)
    assert 0.9 * most < len(probe.said) <= most


def probed(capsys: pytest.CaptureFixture[str], *line: object) -> dict[str, Any]:
    capsys.readouterr()
    assert command(["probe", *map(str, line), "--json"]) == 0
    out, err = capsys.readouterr()
    assert "requests" in err
    return json.loads(out)


@pytest.mark.slow
@pytest.mark.parametrize("api", ["chat", "completions"])
def test_over_http(capsys: pytest.CaptureFixture[str], api: str) -> None:
    with word_server(apis=(api,), lists=api == "chat") as server:
        server.fingerprint = None
        told = probed(capsys, server.source)
    assert set(told["knobs"].values()) == {"yes"}
    assert told["server"]["form"] == api
    assert told["requests"] == len(server.bodies)
    with word_server(Faults(ignores_seed=True), apis=(api,)) as server:
        told = probed(capsys, server.source)
    assert told["knobs"]["seed"] == told["knobs"]["repeat"] == "no"
    assert told["idle"] == ["seed"]


@pytest.mark.slow
@pytest.mark.parametrize("source", ["embedded:tales", "embedded:tales-ar"])
def test_local_checkpoints_come_out_right(capsys: pytest.CaptureFixture[str], source: str) -> None:
    told = probed(capsys, source, "--length", 16, "--steps", 4)
    assert set(told["knobs"].values()) == {"yes"}
    assert ("temperature_0" in told["knobs"]) == (source == "embedded:tales-ar")
