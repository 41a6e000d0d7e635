"""The real harness on embedded models and local tasks; nothing is fetched."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from harness_tasks import choosing, evaluated, generating, responses

import strop
from small_harness import small_harness
from strop import SamplerSpec, UserError
from strop.assets import embedded_path
from strop.cli.main import run

pytest.importorskip("lm_eval")

QUESTIONS = ["Once upon a time there was", "The old king said to his", "The little dog [[3]] ran"]
CHOICES = [("Once upon a", ["time", "house of the"]), ("The king and the ", ["queen", "was"])]


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No hub, no data of other runs, and tasks of these tests only."""
    import datasets.config

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    with small_harness():
        yield


def cut(text: str) -> str:
    return text.partition(".")[0]


def test_answers_are_those_of_strop_sample_whatever_the_batch(tmp_path: Path) -> None:
    generating(tmp_path, "tales", QUESTIONS, says={"max_gen_toks": 24}, repeats=2)
    arguments = {"pretrained": "embedded:tales", "temperature": 0.7, "steps": 6, "seed": 3}
    with pytest.warns(UserWarning, match="model argument temperature=0.7 holds"):
        found = evaluated(tmp_path, "tales", model_args=arguments)
    model = strop.load_model("embedded:tales")
    spec = SamplerSpec(temperature=0.7, steps=6)
    escaped = [text.replace("[[", "\\[[") for text in QUESTIONS]
    pool = strop.draw.sample(model, spec, prompts=escaped, length=24, per_prompt=2, seed=3)
    wanted = [cut(text.partition("<|endoftext|>")[0]) for text in pool.texts or []]
    rows = responses(found, "tales")
    assert [row[0][0] for row in rows] + [row[0][1] for row in rows] == wanted
    assert len({*wanted}) == 6
    assert any("." in text for text in pool.texts or [])  # something was there to cut
    assert found["config"]["strop_checkpoint"]["sha256"] == model.spec.sha256
    with pytest.warns(UserWarning, match="holds"):
        alone = evaluated(tmp_path, "tales", model_args=arguments, batch_size=1)
    assert responses(alone, "tales") == rows


def test_generation_arguments_count(tmp_path: Path) -> None:
    generating(tmp_path, "tales", QUESTIONS[:1])
    model = strop.load_model("embedded:tales-ar")
    plain = {"pretrained": "embedded:tales-ar"}
    found = evaluated(tmp_path, "tales", model_args=plain)
    spec = SamplerSpec(name="autoregressive", temperature=0.0)
    text = strop.draw.sample(model, spec, prompts=QUESTIONS[:1], length=12).texts[0]  # pyright: ignore[reportOptionalSubscript]
    assert responses(found, "tales") == [[[cut(text)]]]
    drawn = "do_sample=true,temperature=0.9,seed=8,max_gen_toks=20"
    found = evaluated(tmp_path, "tales", model_args=plain, gen_kwargs=drawn)
    spec = SamplerSpec(name="autoregressive", temperature=0.9)
    text = strop.draw.sample(model, spec, prompts=QUESTIONS[:1], length=20, seed=8).texts[0]  # pyright: ignore[reportOptionalSubscript]
    assert responses(found, "tales") == [[[cut(text)]]]


def test_a_causal_model_says_the_exact_loglikelihood(tmp_path: Path) -> None:
    choosing(tmp_path, "picks", CHOICES)
    found = evaluated(tmp_path, "picks", model_args={"pretrained": "embedded:tales-ar"})
    model: Any = strop.load_model("embedded:tales-ar")
    for (question, choices), row in zip(CHOICES, responses(found, "picks"), strict=True):
        given = model.codec.encode(question.rstrip())
        for choice, [(score, greedy)] in zip(choices, row, strict=True):
            whole = model.codec.encode(f"{question} {choice}")
            assert whole[: len(given)] == given
            law = torch.log_softmax(model.network(input_ids=torch.tensor([whole])).logits[0], -1)
            rows, tokens = law[len(given) - 1 : -1], torch.tensor(whole[len(given) :])
            wanted = float(rows.gather(1, tokens[:, None]).sum())
            assert float(score) == pytest.approx(wanted, abs=1e-3)
            assert str(greedy) == str(rows.argmax(-1).tolist() == tokens.tolist())
    assert found["results"]["picks"]["acc,none"] in (0.0, 0.5, 1.0)


def test_a_masked_model_estimates_it_and_the_seed_counts(tmp_path: Path) -> None:
    choosing(tmp_path, "picks", CHOICES)
    from strop.interop.likelihood import monte_carlo
    from strop.interop.lm_eval import StropLM

    scores = {}
    for seed in (0, 1):
        arguments = {"pretrained": "embedded:tales-tiny", "mc_num": 4, "seed": seed}
        scores[seed] = responses(evaluated(tmp_path, "picks", model_args=arguments), "picks")
    lm: Any = StropLM("embedded:tales-tiny", mc_num=4)
    pair = lm._pair(CHOICES[0][0], " house of the")
    assert len(pair.response) > 1
    wanted = monte_carlo(lm.model, pair, samples=4, seed=0, batch_size=None)
    assert float(scores[0][0][1][0][0]) == pytest.approx(wanted, abs=1e-4)
    assert scores[0][0][1] != scores[1][0][1]
    with pytest.raises(UserError, match="for causal models"):
        lm.loglikelihood_rolling([])


def test_long_texts_are_read_in_windows_by_causal_models() -> None:
    from lm_eval.api.instance import Instance

    from strop.interop.lm_eval import StropLM

    lm: Any = StropLM("embedded:sums-ar")
    text = "Tom has 3 apples. " * 20
    ids = lm.codec.encode(text)
    assert len(ids) > lm.model.length
    found = lm.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, (text,), 0)])
    # Disjoint windows; each but the first begins with the last token of the one before.
    size, wanted = lm.model.length - 1, 0.0
    for start in range(0, len(ids), size):
        end = min(start + size, len(ids))
        first = max(0, end - size)
        whole = ([lm.model.start_id, *ids])[first : end + 1]
        law = torch.log_softmax(lm.model.network(input_ids=torch.tensor([whole])).logits[0], -1)
        for place in range(start, end):
            wanted += float(law[place - first, ids[place]])
    assert found[0] == pytest.approx(wanted, rel=1e-4)


def test_the_checkpoints_chat_template_is_used(tmp_path: Path) -> None:
    place = tmp_path / "chatty"
    shutil.copytree(embedded_path("embedded:tales-ar"), place)
    config = json.loads((place / "tokenizer_config.json").read_text())
    turns = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    config["chat_template"] = turns + "{% if add_generation_prompt %}assistant:{% endif %}"
    (place / "tokenizer_config.json").write_text(json.dumps(config))
    generating(tmp_path, "tales", QUESTIONS[:2])
    found = evaluated(
        tmp_path, "tales", model_args={"pretrained": str(place)}, apply_chat_template=True
    )
    model = strop.load_model(place)
    spec = SamplerSpec(name="autoregressive", temperature=0.0)
    pool = strop.draw.sample(model, spec, prompts=QUESTIONS[:2], length=12, chat=True)
    assert responses(found, "tales") == [[[cut(text)]] for text in pool.texts or []]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "name no checkpoint"),
        ({"pretrained": "embedded:tales", "temprature": 1}, "did you mean 'temperature'"),
        ({"pretrained": "embedded:tales", "max_batch_size": 4}, "not searched for"),
        ({"pretrained": "embedded:tales", "bos": "sometimes"}, "sometimes"),
        ({"pretrained": "embedded:tales", "mc_num": 0}, "mc_num"),
        ({"pretrained": "embedded:tales", "batch_size": "auto:4"}, "batch_size"),
    ],
)
def test_what_a_model_cannot_be_is_refused(arguments: dict[str, Any], told: str) -> None:
    from strop.interop.lm_eval import StropLM

    with pytest.raises(UserError) as caught:
        StropLM.create_from_arg_obj(arguments)
    assert told in str(caught.value)


def test_cached_answers_cannot_be_mixed_up(tmp_path: Path) -> None:
    generating(tmp_path, "tales", QUESTIONS[:1])
    arguments = {"pretrained": "embedded:tales", "steps": 4}
    with pytest.raises(UserError, match="knows neither the checkpoint nor its settings"):
        evaluated(tmp_path, "tales", model_args=arguments, use_cache=str(tmp_path / "answers"))


def test_what_does_not_fit_is_refused_not_cut(tmp_path: Path) -> None:
    choosing(tmp_path, "picks", [("The king " * 200, ["queen", "was"])])
    with pytest.raises(UserError, match="do not fit"):
        evaluated(tmp_path, "picks", model_args={"pretrained": "embedded:tales"})


# What counts of an answer


@pytest.fixture(scope="module")
def sums() -> Any:
    from strop.interop.lm_eval import StropLM

    return StropLM("embedded:sums-ar", length=8)


def test_nothing_after_the_first_end_token_counts(sums: Any) -> None:
    encode, ends = sums.codec.encode, sums._ends
    assert ends
    before, after = encode("7+5=12"), encode("\n*2=24")
    for end in ends:
        assert sums._text([*before, end, *after]) == "7+5=12"
        assert sums._text([*before, end]) == "7+5=12"
        assert sums._text([*before, end, *after, end, *after]) == "7+5=12"
        assert sums._text([end, *after]) == ""
    assert sums._text([*before, *after]) == "7+5=12\n*2=24"
    assert sums._text([]) == ""


@pytest.mark.parametrize(
    ("ids", "ends", "kept"),
    [
        ([1, 2, 3], [], [1, 2, 3]),
        ([1, 2, 3], [9], [1, 2, 3]),
        ([1, 2, 3], [3], [1, 2]),
        ([1, 2, 3], [1], []),
        ([1, 2, 3, 2], [3, 2], [1]),
        ([1, 2, 3, 2], (2, 3), [1]),
    ],
)
def test_up_to_the_first_of_several_ends(ids: list[int], ends: Any, kept: list[int]) -> None:
    from strop.denoisers.tokenizer import up_to_end

    assert up_to_end(ids, iter(ends)) == kept


@pytest.mark.parametrize(
    ("until", "kept"),
    [
        ([], "one, two; three"),
        (["; "], "one, two"),
        (["; ", ", "], "one"),
        ([", ", "; "], "one"),
        (["o"], ""),
        (["four"], "one, two; three"),
        ("three", "one, two; "),
        (["", "two"], "one, "),
    ],
)
def test_up_to_the_first_of_several_stop_strings(until: Any, kept: str) -> None:
    from strop.interop.harness_settings import Settings

    wanted = Settings("autoregressive", {}).of({"until": until}, "task")
    assert wanted.cut("one, two; three") == kept


def test_answers_belong_to_their_requests_whatever_their_order(sums: Any) -> None:
    """Of two tasks and two settings, mixed up; the second time a request is asked it is drawn."""
    from lm_eval.api.instance import Instance

    def asked(task: str, text: str, **says: Any) -> Instance:
        return Instance("generate_until", {}, (text, says), 0, metadata=(task, 0, 1))

    questions = [f"Tom has {n} eggs. He finds {n} more." for n in (3, 9, 14)]
    warm = {"do_sample": True, "temperature": 1.0}
    mine = [asked("a", text, **warm) for text in questions]
    plain = [asked("b", text, until="=") for text in questions]
    drawn, greedy = sums.generate_until(mine), sums.generate_until(plain)
    assert len({*drawn}) == 3
    assert all("=" not in text for text in greedy)
    mixed = [mine[0], plain[2], mine[1], plain[0], plain[1], mine[2]]
    expected = [drawn[0], greedy[2], drawn[1], greedy[0], greedy[1], drawn[2]]
    assert sums.generate_until(mixed) == expected
    # Asked twice, output r P + p: the first time as before, the second time another draw.
    twice = sums.generate_until([mine[0], mine[0], mine[1], mine[1], mine[2], mine[2]])
    assert twice[::2] == drawn
    assert twice[1::2] != drawn


def test_a_pair_is_cut_where_the_context_ends(sums: Any) -> None:
    encode = sums.codec.encode
    for context, blanks, continuation in (
        ("7+5=", "", "12"),
        ("Tom has", "", " 3"),
        ("A", "  ", "b"),
    ):
        found = sums._pair(context + blanks, continuation)
        opening = len(found.context) - len(encode(context))
        assert opening >= 0
        assert list(found.context[opening:]) == encode(context)
        assert (
            list(found.response) == encode(context + blanks + continuation)[len(encode(context)) :]
        )


# The command


def told(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = run(["lm-eval", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_prints_the_table_and_writes_results(tmp_path: Path, capsys) -> None:
    generating(tmp_path, "tales", QUESTIONS)
    code, out, err = told(
        capsys,
        *("--tasks", "tales", "--include-path", tmp_path, "--limit", 2),
        *("--model-args", "pretrained=embedded:sums-ar,temperature=0.5,seed=2,length=6"),
        *("-o", tmp_path / "results", "--log-samples", "--", "--predict_only"),
    )
    assert code == 0, err
    assert "|tales" in out
    assert "the task asks for temperature=0.0, but the model argument temperature=0.5" in err
    [file] = (tmp_path / "results").rglob("results_*.json")
    config = json.loads(file.read_text())["config"]
    assert config["strop_seed"] == 2
    assert config["strop_sampler"]["temperature"] == 0.5
    [samples] = (tmp_path / "results").rglob("samples_tales_*.jsonl")
    assert len(samples.read_text().splitlines()) == 2


ARGUMENTS = ("--tasks", "tales", "--model-args", "pretrained=embedded:sums-ar,temperature=1")


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("--gen-kwargs", "temperature=0.5"), "given twice"),
        (("--", "--use_cache", "x"), "--use_cache is not passed on"),
        (("--", "--use_c=x"), "--use_cache is not passed on"),
        (("--", "-c", "x"), "--use_cache is not passed on"),
        (("--", "--seed", "3"), "--fewshot-seed"),
        (("--", "--model", "hf"), "it is strop's"),
        (("--", "--nothing"), "lm-eval has refused"),
        ((), "lm-eval has refused"),  # there is no such task
    ],
)
def test_what_the_command_refuses(words: tuple[str, ...], fault: str, capsys) -> None:
    code, _, err = told(capsys, *ARGUMENTS, *words)
    assert code == 1
    assert fault in err
    assert "Traceback" not in err


def test_without_the_extra_the_command_says_how_to_get_it(capsys, monkeypatch) -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] == "lm_eval" or name == "strop.interop.lm_eval":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    code, _, err = told(capsys, *ARGUMENTS)
    assert code == 1
    assert "pip install 'strop[lm-eval]'" in err
