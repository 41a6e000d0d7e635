"""The posterior study as a command: what it writes, how it continues, what it refuses."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from strop import verbs
from strop.cli.main import run
from strop.denoisers import load_denoiser
from strop.errors import UserError
from strop.instruments import posterior
from strop.measure.guard import read_rows
from strop.verbs.posterior import short_names
from tiny_models import write_checkpoint

TAUS = "0.9,1.0,1.1"


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    """24 rows of the tiny vocabulary, eight tokens each."""
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    ids = np.random.default_rng(0).integers(0, 11, (24, 8)).tolist()
    path.write_text("".join(json.dumps({"ids": row}) + "\n" for row in ids))
    return path


@pytest.fixture(scope="module")
def wider(tmp_path_factory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("wider") / "wider", hidden_dim=32)


def study(rows: Path, out: Path, *checkpoints: Path, **changes) -> dict:
    settings = {"steps": (2, 8), "temperature": (0.9, 1.0, 1.1), "levels": 4, "profile_n": 6}
    sources = [str(c) for c in checkpoints]
    result = verbs.run(
        "posterior", sources=sources, out=out, held_out=rows, **{**settings, **changes}
    )
    return result.document()


def test_command(checkpoint, wider, rows, tmp_path, capsys):
    out = tmp_path / "out"
    args = ["study", "posterior", str(checkpoint), str(wider), "--held-out", str(rows)]
    args += ["--steps", "2,8", "--temperature", TAUS, "--levels", "4", "-o", str(out)]
    assert run([*args, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    stored = json.loads((out / "result.json").read_text())
    assert stored["study"] == "posterior"
    assert printed["losses"] == stored["losses"]
    assert len(stored["losses"]) == 2 * 2 * 2  # checkpoints, budgets, estimators
    assert len(stored["differences"]) == 2 * 2
    at_one = {
        (one["checkpoint"], one["steps"], one["estimator"]): at["loss"]["value"]
        for one in stored["losses"]
        for at in one["temperatures"]
        if at["temperature"] == 1
    }
    for one in stored["differences"]:
        cell = one["steps"], one["estimator"]
        moved = at_one[one["later"], *cell] - at_one[one["earlier"], *cell]
        assert one["difference"]["value"] == pytest.approx(moved)
    assert len(stored["profile"]["levels"]) == 2 * 4
    for grid in stored["profile"]["grids"]:
        masses = [float(mass) for mass in grid["masses"].split(",")]
        assert len(masses) == grid["steps"]
        assert sum(masses) == pytest.approx(1)
        losses = [
            one["loss"]["value"]
            for one in stored["profile"]["levels"]
            if one["checkpoint"] == grid["checkpoint"]
        ]
        seen = np.cumsum([0, *masses[:-1]])
        price = float(np.interp(seen, np.arange(4) / 4, losses) @ masses)
        assert grid["price"] == pytest.approx(price)
        assert grid["price"] <= grid["equal"] + 1e-12
    with open(out / "table.csv") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 8 * 3
    first = stored["losses"][0]["temperatures"][0]
    assert float(lines[0]["minus_one"]) == first["minus_one"]["value"]
    for kind in ("svg", "png"):
        assert (out / f"posterior.{kind}").stat().st_size > 1000
    assert not list((out / "parts").iterdir())
    assert len(list((out / "cells").iterdir())) == 2 * 3
    assert run(args) == 0  # from disk
    text = capsys.readouterr()
    assert "0.9 minus 1" in text.out
    assert "Differences between checkpoints" in text.out
    assert "sequences, " not in text.err.replace("24 sequences, where", "")  # nothing measured
    assert "next: strop study cost" in text.err


def test_numbers_are_those_of_the_contexts(checkpoint, rows, tmp_path):
    """Means from the public pieces, without the study's tables and bootstrap."""
    from strop.instruments.posterior import deployed_contexts, measure

    result = study(rows, tmp_path / "a", checkpoint, draws=2)
    denoiser = load_denoiser(str(checkpoint))
    ids = read_rows(rows, denoiser, length=8, most=512).ids
    draws = [
        measure(
            denoiser,
            ids,
            deployed_contexts(8, seed=0, sequences=np.arange(24), length=8, draw=d),
            (0.9, 1.0, 1.1),
        )
        for d in range(2)
    ]
    means = {k: np.mean([getattr(one, k) for one in draws], axis=0) for k in ("masked", "target")}
    apart = {k: np.stack([one[:, 1], one[:, 0] - one[:, 1]]).var(1) for k, one in means.items()}
    for estimator, values in means.items():
        row = next(r for r in result["losses"] if r["steps"] == 8 and r["estimator"] == estimator)
        ratios = [row["variance_ratio"], row["contrast_variance_ratio"]]
        assert ratios == pytest.approx((apart["target"] / apart["masked"]).tolist())
        for k, at in enumerate(row["temperatures"]):
            loss = at["loss"]
            assert loss["value"] == pytest.approx(values[:, k].mean(), abs=1e-12)
            difference = (values[:, k] - values[:, 1]).mean()
            assert at["minus_one"]["value"] == pytest.approx(difference, abs=1e-12)
            assert loss["low"] <= loss["value"] <= loss["high"]
        assert row["optimum"] == (0.9, 1.0, 1.1)[values.mean(axis=0).argmin()]
        assert sum(at["optimum_share"] for at in row["temperatures"]) == pytest.approx(1)


def test_an_interrupted_study_ends_like_an_uninterrupted_one(
    checkpoint, rows, tmp_path, monkeypatch
):
    whole = study(rows, tmp_path / "whole", checkpoint)
    monkeypatch.setattr(posterior, "BLOCK_TOKENS", 32)  # blocks of four sequences
    calls, real = 0, posterior.measure

    def stops(*args):
        nonlocal calls
        calls += 1
        if calls == 9:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(posterior, "measure", stops)
    with pytest.raises(KeyboardInterrupt):
        study(rows, tmp_path / "cut", checkpoint)
    assert len(list((tmp_path / "cut" / "parts").iterdir())) == 2  # the second budget's
    assert len(list((tmp_path / "cut" / "cells").iterdir())) == 1
    calls = 100
    again = study(rows, tmp_path / "cut", checkpoint)
    assert calls - 100 == 4 + 2 * 4  # what was on disk was not measured again
    for one, other in zip(whole["losses"], again["losses"], strict=True):
        for at, same in zip(one["temperatures"], other["temperatures"], strict=True):
            # The size of a network batch moves float32's last digits.
            assert at["loss"]["value"] == pytest.approx(same["loss"]["value"], abs=1e-5)


def test_contexts_are_shared_across_checkpoints(checkpoint, wider, rows, tmp_path):
    import pyarrow.parquet as pq

    study(rows, tmp_path / "a", checkpoint, wider, steps=(8,), levels=0)
    tables = [
        pq.read_table(path, use_threads=False) for path in (tmp_path / "a" / "cells").iterdir()
    ]
    assert len(tables) == 2
    for column in ("sequence", "round", "hidden", "target_position"):
        assert tables[0][column].to_pylist() == tables[1][column].to_pylist()
    assert tables[0]["masked_1.0"].to_pylist() != tables[1]["masked_1.0"].to_pylist()


def test_other_settings_are_other_cells(checkpoint, rows, tmp_path):
    first = study(rows, tmp_path / "a", checkpoint, levels=0)
    more = study(rows, tmp_path / "a", checkpoint, levels=0, steps=(2, 8, 16))
    assert [r["loss"] for r in _at_one(first)] == [r["loss"] for r in _at_one(more)][:2]
    other = study(rows, tmp_path / "a", checkpoint, levels=0, seed=1)
    assert [r["loss"] for r in _at_one(first)] != [r["loss"] for r in _at_one(other)]


def _at_one(result: dict) -> list[dict]:
    return [
        at
        for row in result["losses"]
        if row["estimator"] == "masked"
        for at in row["temperatures"]
        if at["temperature"] == 1.0
    ]


def test_another_tokenizer_is_refused(checkpoint, tmp_path):
    other = write_checkpoint(tmp_path / "other", mask_id=0)
    text = tmp_path / "text.jsonl"
    text.write_text('{"ids": [1, 2, 3, 4, 5, 6, 7, 8]}\n{"ids": [0, 2, 3, 4, 5, 6, 7, 8]}\n')
    with pytest.raises(UserError, match="not a clean token"):
        study(text, tmp_path / "out", checkpoint, other)


def test_damaged_cells_are_told(checkpoint, rows, tmp_path):
    study(rows, tmp_path / "a", checkpoint, levels=0)
    for cell in (tmp_path / "a" / "cells").iterdir():
        cell.write_bytes(b"nothing")
    with pytest.raises(UserError, match="damaged"):
        study(rows, tmp_path / "a", checkpoint, levels=0)
    assert study(rows, tmp_path / "a", checkpoint, levels=0, force=True)["losses"]


def test_a_foreign_directory_is_left_alone(checkpoint, rows, tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match="holds files but no study"):
        study(rows, tmp_path, checkpoint)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "result.json").write_text('{"format": 1, "study": "cost"}')
    with pytest.raises(UserError, match="holds files but no study"):
        study(rows, tmp_path / "b", checkpoint, force=True)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "empty"),
        ("no json\n", "not JSON"),
        ("[1, 2]\n", "long enough"),
        ("{}\n", "cannot be read"),
        ('{"ids": ["a"]}\n', "cannot be read"),
        ('{"text": 3}\n', "cannot be read"),
        ('{"ids": [1, 2, 3, 4, 5, 6, 7, 11]}\n', "not a clean token"),
        ('{"ids": [1, 2, 3, 4, 5, 6, 7, 99]}\n', "not a clean token"),
    ],
)
def test_bad_rows(content, told, checkpoint, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match=told):
        read_rows(path, load_denoiser(str(checkpoint)), length=8, most=4)


def test_ids_count_only_if_they_decode_to_the_text(checkpoint, bare_checkpoint, tmp_path):
    denoiser, bare = load_denoiser(str(checkpoint)), load_denoiser(str(bare_checkpoint))
    assert denoiser.codec is not None
    path = tmp_path / "rows.jsonl"
    ids = [0, 1, 2, 9]
    good = {"text": denoiser.codec.decode(ids), "ids": ids}
    path.write_text(json.dumps(good) + "\n" + json.dumps({"text": "the", "ids": [5]}) + "\n")
    found = read_rows(path, denoiser, length=1, most=4)
    assert found.ids.tolist() == [[0], [0]]  # the second row's text was read
    assert (found.retokenised, found.short) == (1, 0)
    assert read_rows(path, denoiser, length=4, most=4).ids.tolist() == [ids]
    path.write_text('{"text": "the"}\n')
    with pytest.raises(UserError, match="no tokenizer"):
        read_rows(path, bare, length=1, most=4)


@pytest.mark.parametrize(
    "wrong",
    [
        ["--steps", "0"],
        ["--steps", "x"],
        ["--temperature", "0.9"],
        ["--temperature", "0,1"],
        ["--sharpened", "0.7"],
        ["-n", "1"],
        ["--draws", "0"],
        ["--levels", "-1"],
        ["--length", "9"],
        ["--seed", "-1"],
        ["--held-out", "missing.jsonl"],
    ],
)
def test_wrong_flags(wrong, checkpoint, rows, tmp_path, capsys):
    args = ["study", "posterior", str(checkpoint), "--held-out", str(rows), "-o", str(tmp_path)]
    assert run([*args, *wrong, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["error"]["kind"] == "UserError"


def test_a_checkpoint_twice(checkpoint, rows, tmp_path):
    with pytest.raises(UserError, match="once"):
        study(rows, tmp_path / "a", checkpoint, checkpoint)


def test_short_names():
    assert short_names(["runs/a/final", "runs/b/final"]) == ["a/final", "b/final"]
    assert short_names(["x/early", "x/late/"]) == ["early", "late"]
    assert short_names(["owner/name"]) == ["name"]
