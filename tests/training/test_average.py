"""Averaged weights and the schedule, against hand computations."""

import math

import pytest
import torch
from torch import nn
from toy import config

from strop.training.optimizers import averaged, decay_at, is_kept, learning_rate, share_done
from strop.training.spec import read_spec


def test_average_follows_the_public_decay():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    average = averaged(model, 0.5)
    expected, values = 1.0, [3.0, -2.0, 0.5, 4.0, 4.0, 4.0, 9.0, 1.0, 2.0, 6.0, 5.0]
    for n, value in enumerate(values, 1):
        nn.init.constant_(model.weight, value)
        average.update_parameters(model)
        decay = min(0.5, (1 + n) / (10 + n))  # 2/11, 3/12, 4/13, ..., then .5 from n = 8
        expected = decay * expected + (1 - decay) * value
        assert float(average.module.weight) == pytest.approx(expected, rel=1e-6)


def test_decay_warms_up_to_its_limit():
    assert decay_at(0.9999, 1) == pytest.approx(2 / 11)
    assert decay_at(0.9999, 89_989) < 0.9999
    assert decay_at(0.9999, 10**6) == 0.9999


def test_average_does_not_move_with_the_model():
    model = nn.Linear(2, 2)
    average = averaged(model, 0.9)
    before = average.module.weight.clone()
    with torch.no_grad():
        model.weight.add_(1.0)
    assert torch.equal(average.module.weight, before)


def test_learning_rate():
    spec = read_spec(config(steps=100, warmup=10, lr=1.0))
    assert [learning_rate(spec, k, k / 100) for k in (0, 5, 10, 99)] == [0.0, 0.5, 1.0, 1.0]
    spec = read_spec(
        config(steps=100, warmup=0, lr=1.0, decay="linear", decay_from=0.5, decay_to=0.2)
    )
    assert learning_rate(spec, 50, 0.5) == 1.0
    assert learning_rate(spec, 75, 0.75) == pytest.approx(0.6)
    assert learning_rate(spec, 100, 1.0) == pytest.approx(0.2)
    spec = read_spec(config(steps=100, warmup=0, lr=1.0, decay="cosine"))
    assert learning_rate(spec, 25, 0.25) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))


def test_minutes_set_the_schedule():
    spec = read_spec(config(steps=None, minutes=2))
    assert share_done(spec, 7, 30) == 0.25
    assert share_done(spec, 7, 500) == 1.0
    both = read_spec(config(steps=10, minutes=2))
    assert share_done(both, 9, 30) == 0.9


def test_what_is_kept():
    spec = read_spec(config(steps=100, keep_steps=[7], keep_every=50, keep_shares=[0.1]))
    kept = [k for k in range(1, 101) if is_kept(spec, k, (k - 1) / 100, k / 100)]
    assert kept == [7, 10, 50, 100]
