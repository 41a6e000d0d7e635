"""Who judges is a value that names its series, made through one record per kind of judge."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pools import planned, verdict

import strop
import warm_processes
from strop.cli.main import run as command
from strop.errors import UserError
from strop.groupeval import (
    JUDGES,
    Judge,
    JudgeSpec,
    NoVerdict,
    Profile,
    Series,
    judge_client,
    judge_run,
    judge_spec,
    list_series,
    load_judgments,
    score,
)
from strop.groupeval.session import IN_A_ROW
from strop.registry import register

DECODING = {"temperature": 0.0, "top_p": 1.0, "max_tokens": 8192}
OLD: dict[str, dict[str, Any]] = {
    "02f8f67e67a2ad6c": {
        "kind": "endpoint",
        "model": "gpt-oss-120b",
        "base_url": "http://localhost:8000/v1",
        "decoding": DECODING,
        "response_format": "json_schema",
    },
    "625c55a99dfd78b4": {
        "kind": "endpoint",
        "model": "m",
        "base_url": "http://h/v1",
        "decoding": {"top_p": 1, "max_completion_tokens": 8192},
        "response_format": "text",
    },
    "a6ab8a3a8ed89706": {
        "kind": "offline",
        "model": "offline-v1",
        "name": "offline-v1/ngrams",
        "features": "ngrams",
    },
    "8d9b971b1ca016e9": {
        "kind": "offline",
        "model": "offline-v1",
        "name": "offline-v1/minilm",
        "features": "minilm",
        "weights_sha256": "ab" * 32,
    },
    "e2c5651f7b3da172": {"kind": "human", "name": "Änne"},
    "fea7bf4c360d5884": {"kind": "mine", "model": "my-judge-v1"},
    "80ec642552c72ebf": {
        "kind": "mine",
        "temperature": 0.5,
        "tools": ["a", None],
        "model": None,
        "settings": {"b": 1},
    },
}
"""Judges as series of the plan below were made when a judge was a dictionary, by their ids."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return planned(tmp_path / "run", {"a": 8})


@pytest.mark.parametrize("name", OLD)
def test_a_series_keeps_its_id(run: Path, name: str) -> None:
    spec = JudgeSpec.from_document(OLD[name])
    assert spec.document() == OLD[name]
    series = Series.create(run, spec)
    assert series.id == name
    stored = json.loads((run / "series" / name / "judge.json").read_text())["judge"]
    assert stored == OLD[name]
    assert Series.open(run).judge == spec


@pytest.mark.parametrize("name", OLD)
def test_a_directory_of_an_older_strop_is_read(run: Path, name: str) -> None:
    folder = run / "series" / name
    folder.mkdir(parents=True)
    document = {"format": 1, "strop": "0.1.0", "id": name, "judge": OLD[name]}
    (folder / "judge.json").write_text(json.dumps(document, indent=1))
    (series,) = list_series(run)
    assert (series.id, series.judge.document()) == (name, OLD[name])


def test_a_damaged_judge_is_told(run: Path) -> None:
    series = Series.create(run, JudgeSpec(kind="test"))
    path = series.path / "judge.json"
    path.write_text(path.read_text().replace('"kind"', '"kin"'))
    with pytest.raises(UserError, match="damaged") as caught:
        list_series(run)
    assert "'kind'" in str(caught.value)


def test_the_canonical_text_holds_what_is_set_and_a_version_only_where_there_is_one() -> None:
    assert JudgeSpec(kind="human", name="anna").canonical() == '{"kind":"human","name":"anna"}'
    plugin = JudgeSpec(kind="length", version="1", settings={"least": 40})
    assert plugin.canonical() == '{"kind":"length","least":40,"version":"1"}'
    assert JudgeSpec.from_document(plugin.document()) == plugin
    assert JudgeSpec(kind="length", version="2").id != JudgeSpec(kind="length", version="1").id


def test_a_setting_cannot_pass_for_a_field() -> None:
    with pytest.raises(UserError, match="name of a field"):
        JudgeSpec(kind="a", settings={"model": "b"})
    with pytest.raises(UserError, match="did you mean 'model'"):
        JudgeSpec(kind="a", modle="b")


# Plug-ins


def steady(spec: JudgeSpec, profile: Profile) -> Any:
    def answer(labels: Sequence[str], texts: Sequence[str], task: str | None) -> str:
        assert (len(texts), task, profile.name) == (8, None, "webtext-v1")
        return json.dumps(verdict(list(labels), readability=spec.settings.get("grade", 1)))

    return answer


@pytest.fixture
def registered() -> Iterator[Any]:
    names: list[str] = []

    def add(name: str, client: Any, version: str = "1") -> None:
        names.append(name)
        register(Judge(name, "For a test.", client=client, version=version), replace=True)

    yield add
    for name in names:
        JUDGES.forget(name)


def test_a_registered_judge_is_asked_scored_and_told_apart_by_version(
    run: Path, registered: Any
) -> None:
    registered("steady", steady)
    series = judge_run(run, "steady", grade=2)
    assert series.judge == JudgeSpec(kind="steady", version="1", settings={"grade": 2})
    assert len(series.verdicts()) == series.asked == 2
    assert score(load_judgments(f"{run}@{series.id}"), replicates=8)["judge"] == {
        "kind": "steady",
        "version": "1",
        "grade": 2,
    }
    assert judge_run(run, "steady", grade=2).id == series.id  # nothing is asked twice
    assert len(Series.open(run).journal.entries()) == 2
    registered("steady", steady, version="2")
    assert judge_run(run, "steady", grade=2).id != series.id
    JUDGES.forget("steady")
    assert len(load_judgments(f"{run}@{series.id}").verdicts) == 2  # readable without its record


def test_the_command_asks_it_too(
    run: Path, registered: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    registered("steady", steady)
    line = ["groupeval", "judge", str(run), "--judge", "steady", "--settings", "grade=2", "--json"]
    assert command([*line, "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["calls"] == 0
    assert list_series(run) == []
    assert command(line) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["judge"] == {"kind": "steady", "version": "1", "grade": 2}
    assert (told["complete"], told["judgments"], told["calls"]) == (True, 2, 0)


def test_what_is_no_verdict_is_kept_as_a_failure_and_ends_it(
    tmp_path: Path, registered: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run = planned(tmp_path / "run", {"a": 40})

    def client(*_: Any) -> Any:
        replies = iter(["{}", "no"])

        def answer(labels: Sequence[str], *_: Any) -> str:
            reply = next(replies, None)
            if reply is None:
                raise NoVerdict("timeout", "nobody came")
            return reply

        return answer

    registered("absent", client)
    assert command(["groupeval", "judge", str(run), "--judge", "absent"]) == 2
    assert "nobody came" in capsys.readouterr().err
    reasons = [failure.reason for failure in Series.open(run).failures()]
    assert reasons == ["schema_mismatch", "not_json", *["timeout"] * (IN_A_ROW - 2)]


def test_an_answer_that_is_no_text_is_the_plugins_error(run: Path, registered: Any) -> None:
    registered("numb", lambda *_: lambda *_: 7)
    with pytest.raises(UserError, match="did not answer with a text"):
        judge_run(run, "numb")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--judge", "ofline"], "did you mean 'offline'"),
        (["--judge", "human"], "export-human"),
        (["--judge", "endpoint", "--offline"], "Two judges are named"),
        (["--offline", "--settings", "a=1"], "flags of its own"),
        (["--judge", "endpoint"], "no default model"),
    ],
)
def test_a_wrong_choice_is_told(
    run: Path, flags: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["groupeval", "judge", str(run), *flags]) == 1
    assert told in capsys.readouterr().err
    assert list_series(run) == []


def test_the_builtin_records_make_the_specs_that_they_always_made() -> None:
    profile = Profile.load("webtext-v1")
    where = {"model": "gpt-oss-120b", "base_url": "http://localhost:8000/v1/"}
    assert judge_spec("endpoint", profile, **where).document() == OLD["02f8f67e67a2ad6c"]
    first = {"features": "ngrams", "model": "offline-v1"}
    assert judge_spec("offline", profile, **first).document() == OLD["a6ab8a3a8ed89706"]
    assert judge_spec("human", profile, name="Änne").document() == OLD["e2c5651f7b3da172"]
    assert set(JUDGES.builtin) == {"endpoint", "offline", "oracle", "human"}
    with pytest.raises(UserError, match="does not answer in this process"):
        judge_client(JudgeSpec(kind="endpoint"), profile)


def test_the_judge_of_the_docs_comes_from_a_package(run: Path, tmp_path: Path) -> None:
    """Its file as the page has it, and entry points as an installed package has them."""
    page = (Path(__file__).parents[2] / "docs/extending.md").read_text(encoding="utf-8")
    section = page.split("\n## A judge\n")[1]
    site = tmp_path / "site"
    info = site / "my_judges-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "my_judges.py").write_text(section.split("```python\n")[1].split("```")[0])
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-judges\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[strop.judges]\nlength = my_judges:LENGTH\n")
    line = ["groupeval", "judge", str(run), "--judge", "length", "--settings", "least=8", "--json"]
    places = [str(site), str(Path(strop.__file__).parents[1])]
    done = warm_processes.run(
        [sys.executable, "-m", "strop", *line],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["judge"] == {"kind": "length", "version": "1", "least": 8}
    assert "length" not in JUDGES  # it is that process's alone
    assert len(Series.open(run).verdicts()) == 2
