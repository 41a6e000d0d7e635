"""What holds where model arguments and generation arguments speak, and what is refused."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from strop import UserError
from strop.interop.harness_settings import Settings

GSM8K = {"until": ["Question:"], "do_sample": False, "temperature": 0.0}


def held(said: dict[str, Any], asked: dict[str, Any], sampler: str = "ancestral") -> Any:
    return Settings(sampler, said).of(asked, "a task")


def test_who_says_nothing_gets_the_greedy_answer_of_256_tokens() -> None:
    found = held({}, {})
    assert (found.spec.temperature, found.length, found.seed, found.until) == (0.0, 256, 0, ())


def test_a_task_is_heard_where_the_user_says_nothing() -> None:
    asked = {"temperature": 0.5, "do_sample": True, "top_p": 0.9, "max_gen_toks": 7, "seed": 4}
    found = held({"steps": 8}, {**asked, "until": "."})
    assert (found.spec.temperature, found.spec.top_p, found.spec.steps) == (0.5, 0.9, 8)
    assert (found.length, found.seed, found.until) == (7, 4, (".",))
    assert held({}, {"do_sample": True}).spec.temperature == 1.0
    assert held({}, {"temperature": 0.3}).spec.temperature == 0.3


def test_a_model_argument_holds_and_the_difference_is_told_once() -> None:
    settings = Settings("ancestral", {"temperature": 1.0, "gen_length": 9, "seed": 2})
    with pytest.warns(UserWarning, match="model argument") as told:
        found = settings.of({**GSM8K, "max_gen_toks": 7}, "gsm8k")
    assert (found.spec.temperature, found.length, found.seed) == (1.0, 9, 2)
    assert sorted(str(one.message) for one in told) == [
        "gsm8k: the task asks for length=7, but the model argument length=9 holds",
        "gsm8k: the task asks for temperature=0.0, but the model argument temperature=1.0 holds",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert settings.of({**GSM8K, "max_gen_toks": 7}, "gsm8k").key == found.key
        # What agrees is nothing to tell.
        assert Settings("ancestral", {"temperature": 0}).of(GSM8K, "gsm8k").length == 256


def test_do_sample_alone_is_overruled_with_a_word() -> None:
    with pytest.warns(UserWarning, match="asks for temperature=0.0"):
        assert held({"temperature": 0.7}, {"do_sample": False}).spec.temperature == 0.7


@pytest.mark.parametrize(
    ("said", "asked", "told"),
    [
        ({}, {"do_sample": False, "temperature": 0.7}, "contradict"),
        ({}, {"do_sample": True, "temperature": 0.0}, "contradict"),
        ({}, {"do_sample": "no"}, "do_sample"),
        ({}, {"until": [1]}, "until"),
        ({}, {"top_k": 50}, "no field called 'top_k'"),
        ({}, {"repetition_penalty": 1.2}, "repetition_penalty"),
        ({}, {"stop": ["."]}, "no field called 'stop'"),
        ({}, {"max_gen_toks": 7, "max_new_tokens": 8}, "given twice"),
        ({}, {"max_gen_toks": 0}, "length"),
        ({"temprature": 1}, {}, "did you mean 'temperature'"),
        ({"max_gen_toks": 7, "length": 8}, {}, "given twice"),
        ({"seed": -1}, {}, "seed"),
    ],
)
def test_what_cannot_be_is_refused(said: Any, asked: Any, told: str) -> None:
    with pytest.raises(UserError) as caught:
        held(said, asked)
    assert told in str(caught.value)


def test_the_samplers_own_settings_count_and_neutral_filters_say_nothing() -> None:
    found = held({"block_length": 8}, {"remasking": "random", "top_k": 0}, "llada")
    assert found.spec.settings["block_length"] == 8
    assert found.spec.settings["remasking"] == "random"
    assert held({}, {"top_k": 3}, "dream").spec.settings["top_k"] == 3
    plain = held({}, {})
    assert held({}, {"top_k": -1, "num_beams": 1, "repetition_penalty": 1.0}).key == plain.key


def test_a_text_ends_before_the_first_stop_string() -> None:
    found = held({}, {"until": ["\n\n", "Q:", ""]})
    assert found.cut("a Q: b\n\nc") == "a "
    assert found.cut("a\n\nQ:") == "a"
    assert found.cut("a\nb") == "a\nb"
