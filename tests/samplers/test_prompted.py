"""Every sampler, dense and fast: given tokens never change, and only the response is handed out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from test_trace import BLOCKS, FORMS, LONELY, models, spec_of, up_to_the_end

from strop import SamplerSpec, TabularDenoiser
from strop.errors import UserError
from strop.pool import Output
from strop.prompts import Canvas, Canvases
from strop.records import SAMPLERS
from strop.samplers import dense_batch, fast
from strop.samplers.decoders import LITERAL

__all__ = ["models"]  # a fixture of its neighbour

N = 4  # every prompt once, and the first of them again in the next batch
GAPS = Canvases(
    (
        Canvas("gap", (11, None, None, 12, None, 13, None, None)),
        Canvas("prefix", (14, 15, 16, 17, None, None, None, None)),
        Canvas("longer", (11, 12, None, None, None, None, None, None, 18, None)),
    )
)
PREFIXES = Canvases(
    (
        Canvas("short", (11, 12, *[None] * 6)),
        Canvas("long", (14, 15, 16, 17, *[None] * 6)),
        Canvas("again", (18, 19, *[None] * 6)),
    )
)


def drawn(
    model: Any, spec: SamplerSpec, canvases: Canvases, n: int = N, size: int = 3, **more: Any
) -> list[Output]:
    """Outputs 0 .. n - 1, as a cell of this batch size draws them."""
    if SAMPLERS[spec.name].causal:
        spec = spec.model_copy(update={"steps": canvases.length})
    if spec.implementation == "dense":
        found = [
            dense_batch(
                model,
                spec,
                seed=3,
                first=first,
                count=min(size, n - first),
                length=0,
                canvases=canvases,
                **more,
            )
            for first in range(0, n, size)
        ]
        return [one for batch in found for one in batch]
    job = {"seed": 3, "outputs": range(n), "slots": size, "length": 0, "canvases": canvases}
    return sorted(fast(model, spec, **job, **more), key=lambda one: one.index)


class Watched:
    """A model that looks at everything it is shown."""

    def __init__(self, model: Any, canvases: Canvases) -> None:
        self._model, self._rows, self.seen = model, canvases.prompts, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def _look(self, ids: torch.Tensor) -> None:
        for row in ids.tolist():
            self.seen += 1
            assert any(
                len(row) == len(one.given)
                and all(t in (None, x) for t, x in zip(one.given, row, strict=True))
                for one in self._rows
            ), "a given token is not in its place"

    def hidden(self, ids: torch.Tensor, sigma: Any) -> Any:
        self._look(ids)
        return self._model.hidden(ids, sigma)

    def read(self, ids: torch.Tensor, memory: Any) -> Any:
        return self._model.read(ids, memory)


@pytest.mark.parametrize(("name", "form", "precision"), FORMS)
def test_given_tokens_never_change(
    models: dict[str, Any], name: str, form: str, precision: str
) -> None:
    causal = SAMPLERS[name].causal
    literal = form == "dense" and name in LITERAL
    gaps = not causal and not literal and SAMPLERS[name].gaps
    canvases = GAPS if gaps else PREFIXES  # the public codes know no gaps
    model = Watched(models[SAMPLERS[name].family], canvases)
    spec = spec_of(name, form, precision)
    if SAMPLERS[name].with_prompts is not None:
        with pytest.raises(UserError, match="duo-held"):
            drawn(model, spec, canvases)
        return
    told: list[Any] = []
    size = 1 if name in LONELY else 3
    outputs = drawn(model, spec, canvases, size=size, on_step=lambda *step: told.append(step))
    assert [one.index for one in outputs] == list(range(N))
    other_ways = causal or name.endswith("literal") or "dllm" in name or name == "diffusion-gemma"
    assert model.seen > 0 or other_ways
    for one in outputs:
        canvas = canvases.prompt_of(one.index)
        assert len(one.ids) == len(canvas.open)
        assert one.changed is not None
        assert len(one.changed) == len(one.ids)
        assert (one.ids < model.vocab_size).all()
        assert one.leftover_masks == 0 or literal
        known = np.full(len(one.ids), -1)
        for _, number, places, tokens in (step for step in told if step[0] == one.index):
            known[places] = tokens
            assert (one.changed[places] >= number).all()
        seen = one.changed > 0
        told_of = seen & up_to_the_end(model, name, one.ids)
        assert (known[told_of] == one.ids[told_of]).all(), "positions are those of the response"
        assert seen.all() or SAMPLERS[name].family == "duo" or literal


@pytest.mark.parametrize(
    "name", [name for name, one in SAMPLERS.items() if one.fast and one.with_prompts is None]
)
def test_an_output_does_not_depend_on_its_neighbours(models: dict[str, Any], name: str) -> None:
    """In float64: a coarse clock may well see the last bits of a matrix product."""
    canvases = GAPS if SAMPLERS[name].gaps and not SAMPLERS[name].causal else PREFIXES
    model, spec = models[SAMPLERS[name].family], spec_of(name, "fast", "float64")
    together = drawn(model, spec, canvases, n=7, size=8)
    for i in (0, 2, 6):
        alone = drawn(model, spec, canvases, n=i + 1, size=1)[i]
        assert alone.ids.tolist() == together[i].ids.tolist()


@pytest.mark.parametrize(
    "name",  # blocks begin at the prompt's first token, so that a longer one moves their edges
    [n for n, s in SAMPLERS.items() if s.family == "mdlm" and s.fast and n not in BLOCKS],
)
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_a_prompt_of_another_length_leaves_the_random_numbers_alone(
    name: str, precision: str
) -> None:
    """Independent positions: the response can depend on the prompt through its addresses only."""
    law = np.full((3,) * 6, 3.0**-6)
    model = TabularDenoiser(law)
    spec = SamplerSpec(name=name, steps=4, precision=precision)  # type: ignore[arg-type]
    found = [
        drawn(model, spec, Canvases((Canvas("0", given),)))
        for given in [(0, None, None), (0, 1, 2, None, None), (None, 1, None, 0)]
    ]
    mixed = Canvases((Canvas("0", (0, None, None)), Canvas("1", (1, None, None, 1))))
    found += [drawn(model, spec, mixed, size=size) for size in (1, 8)]
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            assert one.ids.tolist() == other.ids.tolist()
            assert one.changed is not None
            assert other.changed is not None
            assert one.changed.tolist() == other.changed.tolist()


def test_a_causal_model_reads_the_prompt_first(models: dict[str, Any]) -> None:
    """Greedy: the response is the best continuation of the prompt, token by token."""
    model = models["ar"]
    for form in ("dense", "fast"):
        spec = SamplerSpec(name="autoregressive", temperature=0, implementation=form)  # type: ignore[arg-type]
        for one in drawn(model, spec, PREFIXES, n=3):
            row = [t for t in PREFIXES.prompt_of(one.index).given if t is not None]
            for token in one.ids.tolist():
                scores, _ = model.read(torch.tensor([row]), None)
                assert token == int(scores.argmax())
                row.append(token)
            assert one.nfe == 6


def test_a_sampler_that_changes_given_tokens_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a plug-in that takes back whatever is visible."""
    from strop.samplers.machinery import start

    monkeypatch.setattr(start.Start, "opened", lambda self, _: torch.ones(self.open.shape) > 0)
    spec = SamplerSpec(name="remdm-rescale", steps=20, eta=1.0, implementation="dense")
    with pytest.raises(UserError, match="has changed tokens"):
        drawn(
            TabularDenoiser(np.full((3,) * 4, 3.0**-4)),
            spec,
            Canvases((Canvas("0", (1, 2, None, None)),)),
            n=200,
            size=200,
        )
