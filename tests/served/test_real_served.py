"""Sampling, audits, comparisons, tasks and the probe with a real server: `make test-server`.

The model has 135 million parameters: what is tested is everything around it. A proxy before it is
the negative control of the probe: each of its faults must be found (`make test-served`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faulty_proxy import (
    Spoil,
    ignores_seed,
    ignores_temperature,
    leaks_batch,
    proxy,
    stops_late,
    zero_is_one,
)

from strop.cli.main import run as command
from strop.store import Run

pytestmark = pytest.mark.server

SCORED = ("--evaluator", "embedded:tales-ar")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a server that is ready."""
    program = Path(__file__).parents[1] / "groupeval" / "smollm2_server.py"
    with subprocess.Popen(
        [sys.executable, program, "2"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            lines = (line.strip() for line in process.stdout)
            yield next(line for line in lines if line.startswith("http")) + "/v1"
        finally:
            process.kill()


def strop(capsys: pytest.CaptureFixture[str], *line: object) -> dict[str, Any]:
    capsys.readouterr()
    code = command([*map(str, line), "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out)


def test_every_verb(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = f"server:{url}#smollm2"
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"prompt": "What is bread?"}\n{"prompt": "Tell me about rivers."}\n')
    run = tmp_path / "run"
    strop(
        *(capsys, "sample", source, "--prompts", prompts, "--per-prompt", 4, "--length", 12),
        *("-o", run),
    )
    [cell] = Run.open(run).cells()
    assert len(cell.pool()) == 8
    strop(capsys, "score", run, *SCORED, "--vendi", "off")
    # This server generates nothing from an empty text, and is told what to go on from.
    refused = ["sample", source, "-n", "1", "--length", "12", "-o", str(tmp_path / "nothing")]
    assert command(refused) == 1
    assert "generates nothing from an empty text" in capsys.readouterr().err
    start = "start=<|endoftext|>"
    axes = ("--axis", "temperature=1,0.7,0.4", "--axis", start)
    strop(
        *(capsys, "audit", source, *axes, "-n", 8, "--length", 12, *SCORED),
        *("-o", tmp_path / "audit"),
    )
    strop(
        *(capsys, "compare", source, source, "--a", "temperature=0.7", "--b", "temperature=1"),
        *("--a", start, "--b", start),
        *("--temperature", "1,0.85,0.7", "-n", 8, "--length", 12, *SCORED),
        *("--budget", 48, "-o", tmp_path / "compare"),
    )
    strop(
        *(capsys, "task", "run", "gsm8k", source, "--limit", 8, "--temperature", "0"),
        *("--seeds", 1, "--length", 16, "-o", tmp_path / "task"),
    )
    strop(capsys, "groupeval", "plan", run, "--profile", "answers-v1", "-o", tmp_path / "ge")


def test_the_probe(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = strop(capsys, "probe", f"server:{url}#smollm2")["knobs"]
    for knob in ("repeat", "seed", "temperature", "temperature_0", "top_p", "top_k", "max_tokens"):
        assert told[knob] == "yes", told


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("spoil", "knob"),
    [
        (ignores_seed, "seed"),
        (zero_is_one, "temperature_0"),
        (ignores_temperature, "temperature"),
        (leaks_batch, "batch"),
        (stops_late, "max_tokens"),
    ],
)
def test_a_faulty_proxy_is_found(
    url: str, capsys: pytest.CaptureFixture[str], spoil: Spoil, knob: str
) -> None:
    with proxy(url, spoil) as address:
        told = strop(capsys, "probe", f"server:{address}#smollm2")["knobs"]
    assert told[knob] == "no", told
