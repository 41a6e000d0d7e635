"""Looking a checkpoint over: does it load, as what, and does something come out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from strop.denoisers import load_model
from strop.denoisers.didi import Discriminator
from strop.denoisers.network import NetworkDenoiser
from strop.draw import sample
from strop.pool import Pool
from strop.records.record import SAMPLERS, default_sampler, reads_as
from strop.spec.generator import SamplerSpec

LENGTH, STEPS = 32, 4


@dataclass(frozen=True)
class CheckedModel:
    """The result of checking a checkpoint."""

    source: str
    family: str
    weights: str
    """`ema`, `raw` or `released`."""
    parameters: dict[str, int]
    """Numbers of each network in it; their shapes are those that the family needs."""
    shape: dict[str, Any]
    pool: Pool
    """Two short outputs by the family's own sampler."""


def check_model(
    source: str | os.PathLike[str],
    *,
    revision: str | None = None,
    weights: Literal["ema", "raw"] | None = None,
    family: str | None = None,
    device: str = "auto",
) -> CheckedModel:
    """Load a checkpoint, compare its shapes with the family's, draw two short outputs."""
    denoiser = load_model(source, revision=revision, weights=weights, family=family, device=device)
    networks = _networks(denoiser)
    name = _sampler(denoiser.spec.family, networks)
    spec = SamplerSpec(name=name) if SAMPLERS[name].causal else SamplerSpec(name=name, steps=STEPS)
    pool = sample(denoiser, spec, n=2, length=min(LENGTH, denoiser.length))
    return CheckedModel(
        source=denoiser.source,
        family=denoiser.spec.family,
        weights=denoiser.spec.weights,
        parameters={
            name: sum(p.numel() for p in network.parameters()) for name, network in networks.items()
        },
        shape=dict(denoiser.spec.shape),
        pool=pool,
    )


def _sampler(family: str, networks: Iterable[str]) -> str:
    """The family's own sampler, or its first that needs no network that is missing."""
    of_family = [name for name, record in SAMPLERS.items() if record.family == reads_as(family)]
    for name in (default_sampler(family), *of_family):
        if set(SAMPLERS[name].needs) <= set(networks):
            return name
    return default_sampler(family)


def _networks(denoiser: Any) -> dict[str, Any]:
    """The networks of a denoiser by name; a known law has none."""
    main = getattr(denoiser, "network", None)
    networks: dict[str, Any] = {} if main is None else {"network": main}
    base, judge = getattr(denoiser, "base", None), getattr(denoiser, "_discriminator", None)
    if isinstance(base, NetworkDenoiser):
        networks["base"] = base.network
    if isinstance(judge, Discriminator):
        networks["discriminator"] = judge
    return networks
