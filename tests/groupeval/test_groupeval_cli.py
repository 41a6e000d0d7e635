"""The verbs plan, judge and show as a user types them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pools import jsonl, texts
from scripted_server import Action, agree, serving

from strop.cli.main import run as command

Called = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Called:
    def called(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = command(["groupeval", *map(str, arguments)])
        return code, *capsys.readouterr()

    return called


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    return jsonl(tmp_path / "pool.jsonl", [{"text": text} for text in texts(16)])


@pytest.fixture
def run(call: Called, pool: Path, tmp_path: Path) -> Path:
    assert call("plan", pool, "-o", tmp_path / "run")[0] == 0
    return tmp_path / "run"


def refused(result: tuple[int, str, str], *told: str) -> None:
    code, out, err = result
    assert (code, out) == (1, "")
    assert err.count("strop: ") == 1
    for words in told:
        assert words in err


def test_a_plan_is_frozen(call: Called, pool: Path, run: Path) -> None:
    code, out, err = call("plan", pool, "-o", run, "--json")
    assert code == 0
    assert json.loads(out)["new"] is False
    assert json.loads(out)["cells"] == {"pool": 16}
    assert "next: strop groupeval judge" in err
    refused(call("plan", pool, "-o", run, "--seed", 1), "another plan", "seed: 0 there, 1 now")
    refused(call("plan", pool, "-o", run.parent), "holds files but no GroupEval run")


def test_a_rest_is_left_out_and_said_in_groups(call: Called, pool: Path, tmp_path: Path) -> None:
    code, out, err = call("plan", pool, "-o", tmp_path / "new", "--first", 12)
    assert code == 0
    assert "note: pool: 8 of 12 outputs are used, in groups of 8; the last 4 are left out" in err
    assert "2 groups to judge under webtext-v1" in out
    assert "sheet" not in out + err


def test_bad_flags_are_told(call: Called, pool: Path, run: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    refused(call("plan", pool, "-o", new, "--profile", "webtext"), "no profile called 'webtext'")
    refused(call("plan", pool, "-o", new, "--first", 7), "fewer than one group")
    refused(call("plan", pool, "-o", new, "--field", "x"), "no field 'x'", "--field text")
    refused(call("plan", pool, "-o", new, "--seed", -1), "--seed")
    refused(call("plan", pool, "-o", new, "--partition", "x"), "no partition called")
    refused(call("judge", run), "There is no default model", "--offline")
    refused(call("judge", run, "--model", "m"), "There is no default model")
    refused(call("judge", tmp_path, "--offline"), "holds no GroupEval plan")
    refused(call("judge", run, "--offline", "--model", "m"), "neither a model nor an address")
    refused(call("judge", run, "--offline", "--features", "x"), "no kind of features")
    refused(call("judge", run, "--offline", "--repeats", 0), "--repeats")
    assert not new.exists()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("localhost:8000/v1", "cannot be used"),
        ("ftp://host/v1", "cannot be used"),
        ("http://user:sesame@host/v1", "more than an address"),
        ("http://host/v1?key=sesame", "more than an address"),
    ],
)
def test_urls_with_keys_or_without_sense_are_refused(
    call: Called, run: Path, url: str, told: str
) -> None:
    result = call("judge", run, "--base-url", url, "--model", "m")
    refused(result, told)
    assert "sesame" not in result[2]
    assert not list(run.glob("series/*"))


def test_offline_then_show(call: Called, run: Path) -> None:
    code, out, err = call("judge", run, "--offline", "--features", "ngrams", "--json")
    assert code == 0
    document = json.loads(out)
    assert document["complete"] is True
    assert (document["judgments"], document["asked"]) == (4, 4)
    assert document["name"] == "offline-v2/ngrams"
    assert f"next: strop groupeval score {run}" in err
    shown = json.loads(call("show", run, "--json")[1])
    assert shown["series"][0]["judgments"] == 4
    assert call("judge", run, "--offline", "--features", "ngrams")[0] == 0  # nothing is left to do


@pytest.mark.slow
def test_sentence_embeddings_make_another_judge(call: Called, run: Path) -> None:
    code, out, _ = call("judge", run, "--offline", "--features", "minilm", "--json")
    document = json.loads(out)
    assert (code, document["complete"]) == (0, True)
    assert len(document["judge"]["weights_sha256"]) == 64
    other = json.loads(call("judge", run, "--offline", "--features", "ngrams", "--json")[1])
    assert other["series"] != document["series"]


def test_failures_are_shown_and_asked_again(call: Called, run: Path) -> None:
    broken = [True]

    def script(body: dict[str, Any], _: int) -> Action:
        return Action("I would rather not.") if broken[0] else agree(body)

    with serving(script) as served:
        line = ["judge", run, "--base-url", served.url, "--model", "m"]
        code, out, err = call(*line)
        assert code == 2
        assert "0 of 4" in out
        assert "failed: not_json" in out
        assert "run the same command again" in err
        _, out, _ = call("show", run, "--failures")
        assert out.count("not_json, after 4 replies") == 4
        assert "I would rather not." in out
        broken[0] = False
        code, out, _ = call(*line, "--json")
        assert code == 0
        assert json.loads(out)["failures"] == {}
    assert "not_json" not in call("show", run, "--failures")[1]


def test_costs_are_told_before_capped_and_summed(call: Called, run: Path, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("m: {input: 1.0, output: 10.0}\n")
    with serving(lambda body, _: agree(body)) as served:
        line = ["judge", run, "--base-url", served.url, "--model", "m", "--json"]
        _, out, _ = call(*line, "--dry-run")
        before = json.loads(out)
        assert before["calls"] == 4
        assert before["cost"] is None
        assert served.requests == []
        assert not list(run.glob("series/*"))
        code, out, err = call(*line, "--max-cost", 1)
        assert code == 1
        assert "no price for 'm'" in err
        code, out, _ = call(*line, "--prices", prices, "--max-calls", 4)
        assert code == 2
        document = json.loads(out)
        assert document["failures"] == {"budget_exhausted": 1}
        assert document["calls"] == served.received == 4  # one of them settles the form
        assert document["cost"] == pytest.approx(4 * 0.002)
        _, out, _ = call(*line, "--prices", prices, "--dry-run")
        assert json.loads(out)["cost"] == pytest.approx(0.002)  # from what the server counted
    for content in ("m: 3\n", "- m\n", "m: {input: x, output: 1}\n", "m: {input: -1, output: 1}\n"):
        prices.write_text(content)
        assert call(*line, "--prices", prices)[0] == 1
    assert call(*line, "--prices", tmp_path / "none.yaml")[0] == 1


def test_the_key_comes_from_the_environment_and_is_written_nowhere(
    call: Called, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sesame-open")
    with serving(lambda body, _: agree(body)) as served:
        options = ["--base-url", served.url, "--model", "m", "--key-env", "MY_KEY"]
        result = call("judge", run, *options)
    assert result[0] == 0
    assert served.keys == {"Bearer sesame-open"}
    assert "sesame" not in result[1] + result[2]
    for path in run.rglob("*"):
        assert not path.is_file() or b"sesame" not in path.read_bytes()


def test_the_command_line_loads_nothing_heavy() -> None:
    program = (
        "import sys, strop.cli.main as m; m.build();"
        "import strop.groupeval as g, strop.groupeval.offline;"
        "[getattr(g, name) for name in g.__all__];"
        "print([n for n in ('torch', 'transformers', 'openai', 'pyarrow', 'jsonschema', 'scipy')"
        " if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


@pytest.mark.parametrize("features", ["ngrams", "auto"])
def test_the_offline_judge_needs_no_torch(run: Path, features: str) -> None:
    """The same in an empty environment is slow: test_base_install.py."""
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['transformers', 'tokenizers'], None));"
        "import importlib.util as u; found = u.find_spec;"
        "u.find_spec = lambda name, *more: None if name == 'torch' else found(name, *more);"
        "from strop.cli.main import run;"
        f"code = run(['groupeval', 'judge', {str(run)!r}, '--offline', '--features',"
        f" {features!r}]);"
        "sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
