"""A side as it is named: its kind, its settings, its space, and what a message says of them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from made_runs import cell_spec, made_cell, output
from strop.comparing import outputs as module
from strop.comparing.outputs import (
    SPACE,
    Named,
    SideOutputs,
    errors_at,
    is_causal,
    named,
    sampler_spec,
    seed_of,
    wants_vendi,
)
from strop.errors import UserError
from strop.rng import derive_seed
from strop.spec import SamplerSpec
from strop.verbs.compare import STUDY
from strop.verbs.study import Ask

MODEL: Any = SimpleNamespace(spec=SimpleNamespace(family="mdlm", sha256="0123456789abcdef" * 4))


def filed(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_what_is_said_with_flags() -> None:
    usual = Named("checkpoint", "a/b", {}, SPACE, "`a`")
    assert SPACE == ("temperature=0.7:1.1:0.05",)
    assert named("a/b", [], [], "a") == usual
    assert usual.tunable
    found = named("a/b", ["eta=0.1", "name=remdm-cap"], ["temperature=0.8,0.9"], "b")
    sampler = {"eta": 0.1, "name": "remdm-cap"}
    assert found == Named("checkpoint", "a/b", sampler, ("temperature=0.8,0.9",), "`b`")


@pytest.mark.parametrize("name", ["side.yaml", "side.YML"])
def test_what_a_file_says_and_flags_say_otherwise(tmp_path: Path, name: str) -> None:
    text = "checkpoint: a/b\nsampler: {eta: 0.1, top_p: 0.9}\nspace: ['eta=0.1,0.2']\n"
    file = filed(tmp_path / name, text)
    sampler = {"eta": 0.1, "top_p": 0.9}
    assert named(file, [], [], "a") == Named("checkpoint", "a/b", sampler, ("eta=0.1,0.2",), file)
    found = named(file, ["eta=0.3"], ["top_p=0.8,1"], "a")
    assert found == Named("checkpoint", "a/b", {"eta": 0.3, "top_p": 0.9}, ("top_p=0.8,1",), file)
    pool = filed(tmp_path / name, "pool: some/run@cell\n")
    assert named(pool, [], [], "a") == Named("pool", "some/run@cell", {}, SPACE, pool)
    assert not named(pool, [], [], "a").tunable
    assert named(filed(tmp_path / name, "texts: x.jsonl"), [], [], "a").kind == "texts"


@pytest.mark.parametrize(
    "text",
    [
        "- checkpoint",
        "checkpoint: a\npool: b",
        "sampler: {}",
        "checkpoint: a\nother: 1",
        "checkpoint: 3",
        "checkpoint: a\nspace: eta",
        "checkpoint: a\nsampler: [eta]",
    ],
)
def test_a_file_that_does_not_describe_one_side(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match="does not describe one side") as caught:
        named(filed(tmp_path / "side.yaml", text), [], [], "a")
    assert caught.value.where == str(tmp_path / "side.yaml")


def test_a_file_that_is_no_yaml_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not YAML") as caught:
        named(filed(tmp_path / "side.yaml", "a: [b\nc"), [], [], "a")
    assert str(caught.value.got).startswith("while parsing")
    assert "\n" not in str(caught.value.got)
    with pytest.raises(UserError, match="no such file of a side"):
        named(str(tmp_path / "none.yaml"), [], [], "a")


@pytest.mark.parametrize(
    ("settings", "space", "what", "where"),
    [
        (["eta=0.1:0.2"], [], "has one value", "`a`"),
        (["eta=0.1,0.2"], [], "has one value", "`a`"),
        (["eta"], [], "cannot be read", "`a`"),
        ([], ["eta"], "cannot be read", "`a_space`"),
        (["steps=4"], [], "Steps are the budget", "`a`"),
        ([], ["steps=4:8"], "Steps are the budget", "`a_space`"),
    ],
)
def test_what_cannot_be_is_told_where_it_was_said(
    settings: list[str], space: list[str], what: str, where: str
) -> None:
    with pytest.raises(UserError, match=what) as caught:
        named("a/b", settings, space, "a")
    assert caught.value.where == where


def test_steps_and_axes_of_a_file_are_told_at_the_file(tmp_path: Path) -> None:
    for text, what in (("space: [eta]", "cannot be read"), ("sampler: {steps: 4}", "budget")):
        file = filed(tmp_path / "side.yaml", f"checkpoint: a\n{text}")
        with pytest.raises(UserError, match=what) as caught:
            named(file, [], [], "a")
        assert caught.value.where == file


def test_a_pool_has_nothing_to_set(tmp_path: Path) -> None:
    file = filed(tmp_path / "texts.jsonl", "")
    assert named(file, [], [], "a") == Named("texts", file, {}, SPACE, "`a`")
    for settings, space in ((["eta=0.1"], []), ([], ["eta=0.1,0.2"])):
        with pytest.raises(UserError, match="no sampler to set") as caught:
            named(file, settings, space, "b")
        assert (caught.value.where, caught.value.got) == ("`b`", file)


def test_the_kind_of_what_is_named(tmp_path: Path) -> None:
    made_cell(tmp_path / "run", cell_spec(4), [output(0, [1, 2, 3, 4])])
    assert module._kind(str(tmp_path / "run")) == "pool"
    assert module._kind(f"{tmp_path / 'run'}@anything") == "pool"
    (tmp_path / "folder").mkdir()
    assert module._kind(str(tmp_path / "folder")) == "checkpoint"
    (tmp_path / "folder" / "x.txt").write_text("words")
    assert module._kind(str(tmp_path / "folder")) == "texts"
    assert module._kind("a/b@c") == "checkpoint"
    with pytest.raises(UserError, match="no such file"):
        module._kind(str(tmp_path / "none.CSV"))
    mark = {"kind": "training", "format": 1, "strop": "1", "owner": "train", "asked": {}}
    (tmp_path / "folder" / "strop.json").write_text(json.dumps(mark))
    assert module._kind(str(tmp_path / "folder")) == "checkpoint"
    (tmp_path / "folder" / "strop.json").write_text(json.dumps(mark | {"kind": "study"}))
    with pytest.raises(UserError, match="that of a study, not a run"):
        module._kind(str(tmp_path / "folder"))


def test_messages_name_the_side() -> None:
    with pytest.raises(UserError) as caught, errors_at("`b`"):
        raise UserError(
            "SamplerSpec.eta is odd.", where="there", got="1", expected="2", fix="mend it"
        )
    error = caught.value
    told = (error.what, error.where, error.got, error.expected, error.fix)
    assert told == ("eta is odd.", "`b`", "1", "2", "mend it")


# ---------------------------------------------------------------- settings of a side


def test_a_setting_at_a_budget() -> None:
    assert sampler_spec("mdlm", "ancestral", 4, {"temperature": 0.9}) == SamplerSpec(
        steps=4, temperature=0.9
    )
    plain = sampler_spec("mdlm", "ancestral-uncached", 8, {"temperature": 0.5})
    assert plain == SamplerSpec(
        name="ancestral-uncached", steps=8, implementation="dense", temperature=0.5
    )
    # What writes one token after the other has no steps.
    causal = sampler_spec("ar", "autoregressive", 4, {"top_p": 0.9})
    assert causal == SamplerSpec(name="autoregressive", top_p=0.9)
    with pytest.raises(UserError, match="does not fit") as caught:
        sampler_spec("mdlm", "autoregressive", 4, {})
    assert caught.value.where == "`a`, `b`"


def side(tmp_path: Path, sampler: dict[str, Any], **values: Any) -> Any:
    ask = Ask(STUDY, tmp_path, ("", ""), {"n": 8, "seed": 3, "length": 5, "vendi": "off", **values})
    return SideOutputs(ask, Named("checkpoint", "a", sampler, (), "`a`"), MODEL, "by")  # type: ignore[arg-type]


def test_a_sides_sampler_is_the_published_one_or_the_familys(tmp_path: Path) -> None:
    assert side(tmp_path, {}).spec(4) == SamplerSpec(steps=4)
    mine = side(tmp_path, {"name": "remdm-cap", "eta": 0.1, "temperature": 0.9})
    assert mine.spec(4) == sampler_spec("mdlm", "remdm-cap", 4, {"eta": 0.1, "temperature": 0.9})
    assert mine.spec(8, temperature=0.5).temperature == 0.5
    with pytest.raises(UserError) as caught:
        side(tmp_path, {"top_p": 7}).spec(4)
    assert caught.value.where == "`a`"


def test_sides_of_one_checkpoint_share_their_cells(tmp_path: Path) -> None:
    folder = side(tmp_path, {}).run
    assert folder.path == tmp_path / "runs" / "0123456789abcdef"
    assert (folder.kind, folder.owner) == ("run", "compare")


def test_a_point_is_drawn_once_by_numbers_of_its_temperature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []

    class Bench:
        def __init__(self, *given: Any, **how: Any) -> None:
            drawn.append((given, how))

        def cells(self, wanted: Any) -> Any:
            drawn.append(wanted)
            return ["the cell"]

    monkeypatch.setattr("strop.tuning.search.Bench", Bench)
    one = side(tmp_path, {})
    monkeypatch.setattr(one, "_point", lambda *given: given)
    spec = one.spec(4, temperature=0.9)
    assert one.at(spec) == one.at(spec) == ("the cell", 0.9)
    how = {"seed": derive_seed(3, "compare", 900_000), "length": 5, "progress": one._ask.progress}
    [(given, made), wanted] = drawn
    assert (given[0], given[1].path, given[2], made) == (MODEL, one.run.path, "by", how)
    assert wanted == [(spec, 8)]
    assert seed_of(3, 0.9) == how["seed"]


def test_who_writes_one_token_after_the_other(tmp_path: Path) -> None:
    one = side(tmp_path, {})
    assert not is_causal(one)
    one.model = SimpleNamespace(spec=SimpleNamespace(family="ar"))
    assert is_causal(one)
    assert one.spec(4) == SamplerSpec(name="autoregressive")
    one.model = None
    assert is_causal(one) is False


def test_whether_outputs_are_embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {}
    for there in (True, False):
        monkeypatch.setattr(
            "strop.measure.embeddings.embedder_available", lambda there=there: there
        )
        for word in ("on", "off", "auto"):
            wanted[word, there] = wants_vendi(side(tmp_path, {}, vendi=word)._ask)
    assert wanted == {
        ("on", True): True, ("off", True): False, ("auto", True): True,
        ("on", False): True, ("off", False): False, ("auto", False): False,
    }  # fmt: skip


def test_what_is_embedded_is_the_text_of_the_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def embed(texts: list[str], *, device: str) -> np.ndarray:
        calls.append((texts, device))
        return np.ones((len(texts), 2))

    monkeypatch.setattr("strop.measure.embeddings.embed", embed)
    one = side(tmp_path, {}, vendi="on", device="cpu")
    monkeypatch.setattr(Ask, "evaluator", SimpleNamespace(decode=lambda row: str(row)))
    columns = {
        "ids": np.array([[1, 2]] * 2),
        "nats": np.ones((2, 2)),
        "kept_bytes": np.array([3, 3]),
        "source_bytes": np.array([4, 4]),
    }
    found = one._point_of("s", 0.5, columns, ["a", "b"], 2.0, 3.0)
    assert found.kept == 0.75
    row = found.row("A", 4, 1)
    assert calls == [(["[1]", "[1]"], "cpu")]
    named_so = ("side", "steps", "setting", "temperature", "outputs", "left_out", "kept", "calls")
    assert [row[key] for key in named_so] == ["A", 4, "s", 0.5, 2, 0.0, 0.75, 2.0]
    assert (row["seconds"], row["perplexity"], row["entropy"]) == (3.0, pytest.approx(np.e), 0.0)
    nothing = {**columns, "kept_bytes": np.zeros(2), "source_bytes": np.zeros(2)}
    assert one._point_of("s", None, nothing, [], None, None).kept == 0.0
