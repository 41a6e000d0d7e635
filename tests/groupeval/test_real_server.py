"""Plan, judge, resume after kill -9 and score against a real server. Run by `make test-server`.

The model has 135 million parameters: its grades mean nothing, and not every reply is a verdict.
What is tested is everything around it.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pools import SUBJECTS, jsonl

from strop.groupeval.human import shipped_groups
from strop.groupeval.profile import FILES, MANIFEST, PROFILES
from strop.groupeval.series import Series
from strop.served.cost import SENT, SETTLED

pytestmark = pytest.mark.server

SESSIONS = 10
"""How often the same command is run; each asks for what has no verdict up to four times, and after
five groups in a row without one for a single group."""

SYSTEM = "You grade texts. Answer in JSON.\n"
USER = """$data

Code $code. Grade the $count texts. Write one entry for each id. The ids, in order: $ids
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a server that is ready."""
    program = Path(__file__).with_name("smollm2_server.py")
    with subprocess.Popen(
        [sys.executable, program, "2"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            lines = (line.strip() for line in process.stdout)
            yield next(line for line in lines if line.startswith("http")) + "/v1"
        finally:
            process.kill()


def small_profile(path: Path) -> Path:
    """Pairs and few words, so that a small model is quick; a new version as anybody makes one."""
    shutil.copytree(PROFILES / "webtext-v1", path)
    schema = json.loads((path / "schema.json").read_text())
    outputs = schema["properties"]["outputs"]
    outputs["minItems"] = outputs["maxItems"] = 2
    outputs["items"]["properties"]["valid"] = {"type": "boolean", "enum": [True]}
    outputs["items"]["properties"]["mode"] = {"type": "string", "enum": ["A", "B"]}
    outputs["items"]["properties"]["id"] = {"type": "string", "pattern": "^[a-z][0-9][a-z]{2}$"}
    (path / "schema.json").write_text(json.dumps(schema))
    settings = (path / "profile.yaml").read_text()
    for old, new in {
        "name: webtext-v1": "name: small-v1",
        "group_size: 8": "group_size: 2",
        "temperature: 0.0": "temperature: 0.5",  # else a failed reply would come again
        "max_tokens: 8192": "max_tokens: 300",
    }.items():
        assert old in settings
        settings = settings.replace(old, new)
    (path / "profile.yaml").write_text(settings)
    (path / "system.md").write_text(SYSTEM)
    (path / "rubric.md").write_text("Each grade is 0, 1 or 2.\n")
    (path / "user.md").write_text(USER)
    (path / MANIFEST).write_bytes(subprocess.check_output(["sha256sum", *FILES], cwd=path))
    return path


def replies(series: Series) -> list[dict[str, Any]]:
    """The lines of the journal that are no announcements of requests."""
    return [e for e in series.journal.entries() if e["outcome"] not in (SENT, SETTLED)]


def strop(*line: object, seconds: float = 600) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "strop", *map(str, line)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)


def test_a_whole_study_with_a_kill_in_it(tmp_path: Path, url: str) -> None:
    texts = [{"text": f"The {subject} is old and everybody likes it."} for subject in SUBJECTS[:4]]
    pool = jsonl(tmp_path / "pool.jsonl", texts)
    run, profile = tmp_path / "run", small_profile(tmp_path / "small")
    planned = strop("groupeval", "plan", pool, "-o", run, "--profile", profile)
    assert planned.returncode == 0, planned.stderr
    judge = ["groupeval", "judge", run, "--base-url", url, "--model", "smollm2", "--json"]

    killed = subprocess.Popen(
        [sys.executable, "-m", "strop", *map(str, judge), "--concurrency", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    journals, end = [], time.monotonic() + 300
    while time.monotonic() < end and not any(b'"reply"' in path.read_bytes() for path in journals):
        journals = list(run.glob("series/*/calls.jsonl"))
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    before = len(replies(Series.open(run)))
    assert before >= 1

    for _ in range(SESSIONS):
        done = strop(*judge, "--concurrency", "2")
        assert done.returncode in (0, 2), done.stderr
        if done.returncode == 0:
            break
    document = json.loads(done.stdout)
    series = Series.open(run)
    entries = replies(series)
    assert len(entries) > before
    # Every reply is in the schema's form, because the server was asked for it and honours it.
    validator = Draft202012Validator(series.profile.schema)
    for entry in entries:
        assert entry["request"] == {"format": "json_schema"}
        assert entry["outcome"] in ("verdict", "rule_violation"), entry
        assert validator.is_valid(json.loads(entry["reply"]))
        assert entry["tokens"]["completion"] > 0
    # No group is judged twice, and each has a verdict or a reason.
    judgments = Counter(entry["sheet"] for entry in entries if entry["outcome"] == "verdict")
    assert judgments
    assert set(judgments.values()) == {1}
    assert document["judgments"] == len(series.verdicts()) == len(judgments)
    assert len(series.verdicts()) + len(series.failures()) == series.asked == 4

    scored = strop("groupeval", "score", run, "--json")
    assert scored.returncode == 0, scored.stderr
    cell = json.loads(scored.stdout)["cells"]["pool"]
    assert 0 <= cell["geq"]["value"] <= 10
    assert 0 <= cell["ged"] <= 10


def test_validate_goes_through(tmp_path: Path, url: str) -> None:
    """Eight groups that people rated, cut to two texts each so that replies are short; few of them
    are verdicts, and the card says so."""
    groups = shipped_groups(12)
    rows = [
        {"texts": g.texts[:2], "context": g.context, "task": g.task, "score": g.score}
        for g in groups
    ]
    file = jsonl(tmp_path / "rated.jsonl", rows)
    done = strop(
        *("groupeval", "validate", file, "--limit", 8, "--controls", 1, "--max-calls", 16),
        *("--base-url", url, "--model", "smollm2", "-o", tmp_path / "out", "--json"),
        seconds=1500,  # sixteen replies of a thousand tokens
    )
    assert done.returncode in (0, 2), done.stderr
    document = json.loads(done.stdout)
    assert document["n_groups"] == 8
    assert sum(one["n_groups_asked"] for one in document["tasks"].values()) == 8
    card = document["card"]
    assert 0 <= card["without_a_verdict"] <= 1
    assert 0 < card["per_1000_texts"]["calls"] <= 1000
    journals = list((tmp_path / "out").rglob("calls.jsonl"))
    entries = [json.loads(line) for one in journals for line in one.read_text().splitlines()]
    assert sum(entry["outcome"] == SENT for entry in entries) <= 16
