"""strop.groupeval.run: from texts in memory to scores in one call, as the commands would."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pools import texts
from scripted_server import Action, agree, serving

import strop
from strop.cli.main import run as command
from strop.errors import UserError
from strop.groupeval import Series, load_judgments, run, score

SIDES = {"a": texts(16), "b": texts(16)[::-1]}


def test_a_served_judge_answers_from_python(tmp_path: Path) -> None:
    with serving(lambda body, _: agree(body)) as served:
        result = run(SIDES, base_url=served.url, model="m", out=tmp_path / "ge", seed=3)
        assert isinstance(result, strop.Result)
        assert len(served.requests) == 8
        run(SIDES, base_url=served.url, model="m", out=tmp_path / "ge", seed=3)
    assert len(served.requests) == 8  # the same call asks for nothing that is there
    assert not result.incomplete
    series = Series.open(tmp_path / "ge")
    assert result.asked["series"] == series.id
    assert series.plan.cells == {"a": 16, "b": 16}
    expected = score(load_judgments(str(tmp_path / "ge")))["cells"]
    counted = ("n_exact_copies", "n_near_copies", "copied_share")  # of the texts, not of verdicts
    assert expected == {
        name: {key: value for key, value in cell.items() if key not in counted}
        for name, cell in result.value["cells"].items()
    }
    assert all(cell["n_exact_copies"] == 0 for cell in result.value["cells"].values())
    assert result.value["cells"]["b"]["geq"].value == 7.5  # 1 + 2 + 1 + 2 of 8
    assert "7.5" in result.to_csv()
    assert (result.sentence or "").startswith("Judged by m: a has GEQ 7.50 [7.50, 7.50] and GED ")
    assert str(tmp_path / "ge") in result.notes[-1]


def test_the_command_plans_and_judges_the_same(tmp_path: Path) -> None:
    """One series: who began in Python goes on in the terminal."""
    with serving(lambda body, _: agree(body)) as served:
        run(SIDES, base_url=served.url, model="m", out=tmp_path / "ge")
        line = ["judge", str(tmp_path / "ge"), "--base-url", served.url, "--model", "m"]
        assert command(["groupeval", *line]) == 0
    assert len(served.requests) == 8


def test_it_runs_beside_a_loop_as_a_notebook_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def cell() -> Any:
        return run(texts(8), base_url=served.url, model="m")

    with serving(lambda body, _: agree(body)) as served:
        result = asyncio.run(cell())
    assert result.value["cells"]["texts"]["n_groups"] == 2
    (made,) = tmp_path.iterdir()  # named by what is judged, since nobody named it
    assert result.asked["run"] == made.name
    assert Series.open(made).plan.hash.startswith(made.name.removeprefix("groupeval-"))


def test_what_is_missing_is_said_and_not_raised(tmp_path: Path) -> None:
    with serving(
        lambda body, _: agree(body) if len(served.requests) == 1 else Action(refusal="no")
    ) as served:
        result = run(texts(16), base_url=served.url, model="m", out=tmp_path / "ge")
    assert result.incomplete
    assert result.missing == "1 of 4 groups have a verdict: 3 refused"
    assert result.value["cells"]["texts"]["n_groups"] == 1


def test_the_offline_judge_and_wrong_texts(tmp_path: Path) -> None:
    result = run(texts(8), offline=True, features="ngrams", out=tmp_path / "ge")
    assert result.value["judge"]["kind"] == "offline"
    for wrong, told in (
        ("a.jsonl", "not a list"),
        ({"a": [3] * 8}, "'text 1' is not a text"),
        ({"a": [*texts(7), float("nan")]}, "'text 8' is not a text"),
        ([], "no texts"),
    ):
        with pytest.raises(UserError, match=told):
            run(wrong, offline=True, out=tmp_path / "new")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="no default model"):
        run(texts(8), out=tmp_path / "ge")
