"""The default evaluator is for embedded checkpoints; elsewhere one must be named."""

from __future__ import annotations

from pathlib import Path

import pytest
from called import Called

import strop
from strop import verbs
from strop.cli.main import run
from strop.errors import UserError
from strop.verbs.study import find
from tiny_models import write_checkpoint

TINY = "embedded:tales-tiny"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_checkpoint(tmp_path_factory.mktemp("own") / "model"))


@pytest.mark.parametrize(
    "words",
    [
        ["audit"],
        ["tune"],
        ["tune", "--objective", "entropy", "--constraint", "perplexity<=100"],
        ["compare", TINY],
        ["power"],
        ["study", "frontier"],
        ["study", "collapse"],
    ],
)
def test_a_checkpoint_of_ones_own_needs_a_named_evaluator(
    own: str, tmp_path: Path, call: Called, words: list[str]
) -> None:
    flags = [one for one in words if one.startswith("--") or "<" in one or one == "entropy"]
    names = [one for one in words if one not in flags]
    code, found, _ = call(*names, own, *flags, "-o", tmp_path / "run")
    assert code == 1
    assert found["error"]["where"] == "--evaluator"
    assert found["error"]["got"] == own
    assert "--evaluator gpt2" in found["error"]["fix"]
    assert not (tmp_path / "run").exists()  # before anything is drawn


def test_a_source_that_is_no_checkpoint_is_told_first(tmp_path: Path, call: Called) -> None:
    folder = tmp_path / "mine" / "checkpoints" / "step-00000020"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    code, found, _ = call("audit", tmp_path / "mine", "-o", tmp_path / "run")
    assert code == 1
    assert found["error"]["fix"] == f"pass the newest: {folder}"
    code, found, _ = call("compare", TINY, tmp_path / "mime", "-o", tmp_path / "run")
    assert code == 1
    assert found["error"]["fix"] == f"did you mean {tmp_path / 'mine'}?"


def test_a_named_one_and_embedded_checkpoints_pass(own: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    audit, tune = find("audit"), find("tune")
    assert audit.ask(out, [TINY])["evaluator"] == "embedded:tales-ar"
    assert audit.ask(out, [own], evaluator="gpt2")["evaluator"] == "gpt2"
    assert audit.ask(out, [own], evaluator="embedded:tales-ar")["evaluator"] == "embedded:tales-ar"
    tune.ask(out, [own], objective="entropy", constraint=["repetition<=0.5"])
    # The paper's own evaluator stands where the paper has one.
    assert find("cross-model").ask(out)["evaluator"] == "gpt2-large"


def test_a_run_knows_its_checkpoint(own: str, tmp_path: Path, call: Called) -> None:
    mine, tales = tmp_path / "mine", tmp_path / "tales"
    for source, out in ((own, mine), (TINY, tales)):
        strop.sample(source, steps=(1,), n=2, length=8, out=str(out))
    code, found, _ = call("score", mine, "--vendi", "off")
    assert (code, found["error"]["where"]) == (1, "--evaluator")
    assert call("score", mine, "--evaluator", "none")[0] == 0
    assert find("power").ask(tmp_path / "p", [str(tales)])["evaluator"] == "embedded:tales-ar"
    with pytest.raises(UserError, match="fairy tales"):
        find("power").ask(tmp_path / "p", [str(mine)])
    side = tmp_path / "side.yaml"
    side.write_text(f"pool: {tales}\n")
    find("compare").ask(tmp_path / "c", [TINY, str(side)])
    side.write_text(f"pool: {mine}\n")
    with pytest.raises(UserError, match="fairy tales"):
        find("compare").ask(tmp_path / "c", [TINY, str(side)])


def test_texts_of_anybody_need_one_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": "Stocks fell."}\n' * 2)
    assert run(["score", str(texts)]) == 1
    assert "--evaluator gpt2" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["sharpened", "exact-output"])
def test_an_evaluator_that_is_not_there_is_told_before_anything_is_drawn(
    tmp_path: Path, name: str
) -> None:
    """One evaluator, and the last of several."""
    named = "no/such/one" if name == "sharpened" else ("embedded:tales-ar", "no/such/one")
    sources = (TINY,) if name == "sharpened" else (f"MDLM-Small={TINY}", f"DUO={TINY}")
    with pytest.raises(UserError, match="no such evaluator"):
        verbs.run(name, out=tmp_path / "x", sources=sources, steps=(2,), n=8, evaluator=named)
    assert not list((tmp_path / "x").rglob("*.parquet"))
