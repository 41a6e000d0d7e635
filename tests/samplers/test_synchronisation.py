"""How often the plain ancestral samplers make the host wait for the device.

A device that is slow to answer costs nothing as long as it is not asked: in the float64 law only a
finished sequence is, in the float32 law every draw is, once. `remote` counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from remote import DEVICE, Remote, Watch

from strop.samplers import fast
from strop.samplers.ancestral import RevealFirst
from strop.samplers.machinery.packed import FastDraw, packed
from strop.spec import CheckpointSpec, SamplerSpec

LENGTH, STEPS, OUTPUTS, SLOTS = 24, 40, 7, 3


class There:
    """A denoiser on the device; a fixed law at every position."""

    time_conditioned, codec, source, device = False, None, "there", DEVICE
    spec = CheckpointSpec(family="mdlm", sha256="there", shape={})
    vocab_size, mask_id, length = 9, 8, LENGTH

    def __init__(self) -> None:
        rows = torch.randn(LENGTH, 9, generator=torch.Generator().manual_seed(0))
        self._rows = rows.to(DEVICE, non_blocking=True)
        self.calls = self.draws = 0

    def hidden(self, ids: torch.Tensor, sigma: torch.Tensor | None) -> torch.Tensor:  # noqa: ARG002
        self.calls += 1
        return torch.zeros((*ids.shape, 1), device=ids.device)

    def logits(self, hidden: Any, sequence: torch.Tensor, position: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        self.draws += 1
        return self._rows[position]

    def log_probs(self, ids: torch.Tensor, sigma: torch.Tensor | None = None) -> torch.Tensor:
        raise NotImplementedError


def job(model: Any, spec: SamplerSpec) -> dict[str, Any]:
    return {"seed": 1, "outputs": range(OUTPUTS), "slots": SLOTS, "length": LENGTH}


def waits(spec: SamplerSpec) -> tuple[list[str], There]:
    with Watch() as watch:
        model = There()
        done = list(fast(model, spec, **job(model, spec)))  # type: ignore[arg-type]
    assert len(done) == OUTPUTS
    assert all((one.ids < 8).all() for one in done)
    return watch.waits, model


CASES: list[dict[str, Any]] = [
    {"steps": STEPS},
    {"steps": STEPS, "temperature": 0.7, "top_p": 0.9},
    {"steps": STEPS, "temperature": 0.0},
    {"grid": (0.5, 0.3, 0.2), "finish": "greedy"},
    {"name": "ancestral-remdm", "steps": STEPS, "top_p": 0.9},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_float64_law_waits_only_for_finished_sequences(case: dict[str, Any]) -> None:
    """And once after the first draw, whether the weights are sound."""
    found, model = waits(SamplerSpec(**case))
    assert found[0] == "_local_scalar_dense"
    assert set(found[1:]) == {"download"}
    assert len(found) - 1 <= OUTPUTS < model.draws


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_float32_law_waits_once_a_draw(case: dict[str, Any]) -> None:
    found, model = waits(SamplerSpec(**case, precision="float32"))
    assert set(found) == {"_local_scalar_dense", "download"}
    assert found.count("_local_scalar_dense") == 1
    assert found.count("download") <= model.draws + OUTPUTS


def test_a_law_that_looks_at_its_tokens_is_noticed() -> None:
    """The control: the same law, asking every round what came out."""

    class Curious(RevealFirst):
        def draw(self, logits: Any, rows: Any, packed: Any) -> Any:
            return super().draw(logits, rows, packed).cpu().numpy()

    spec = SamplerSpec(steps=STEPS)
    with Watch() as watch:
        model = There()
        list(packed(Curious)(FastDraw(model, spec, **job(model, spec))))  # type: ignore[arg-type]
    assert watch.waits.count("download") >= model.draws > 3 * OUTPUTS


@pytest.mark.parametrize(
    ("act", "wait"),
    [
        (lambda x: x.sum().item(), "_local_scalar_dense"),
        (lambda x: bool((x > 0).any()), "_local_scalar_dense"),
        (lambda x: torch.nonzero(x), "nonzero"),
        (lambda x: x[x > 0], "boolean index"),
        (lambda x: x.__setitem__(x > 0, torch.zeros((), device=DEVICE)), "boolean index"),
        (lambda x: x.cpu().numpy(), "download"),
        (lambda x: x.equal(x), "equal"),
        (lambda x: x[torch.tensor([0, 1])], "upload"),
        (lambda x: x.copy_(torch.ones(3)), "upload"),
        (lambda _: torch.ones(3).to(DEVICE), "upload"),
    ],
)
def test_every_kind_of_wait_is_counted(act: Any, wait: str) -> None:
    with Watch() as watch:
        x = torch.arange(3.0).to(DEVICE, non_blocking=True)
        assert isinstance(x, Remote)
        y = (x * 2)[1:].exp_()
        assert watch.waits == []
        act(x)
        assert wait in watch.waits
        before = len(watch.waits)
        assert np.allclose(y.cpu().numpy(), np.exp([2, 4]))
        assert len(watch.waits) == before + 1


@pytest.mark.parametrize("act", [lambda x: x.numpy(), lambda x: x.tolist()])
def test_the_ways_around_fail(act: Any) -> None:
    with Watch():
        x = torch.arange(3.0).to(DEVICE, non_blocking=True)
        with pytest.raises((RuntimeError, TypeError)):
            act(x)
