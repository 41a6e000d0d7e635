"""One record per sampler and per family: what a name promises, and where its code is.

The names load on first use: importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.registry import loader

if TYPE_CHECKING:
    from strop.records.record import (
        FAMILIES,
        SAMPLERS,
        Family,
        Finish,
        Implementation,
        Noise,
        Nucleus,
        Precision,
        Sampler,
        default_sampler,
        diffusion_families,
        reads_as,
    )

__all__ = [
    "FAMILIES",
    "SAMPLERS",
    "Family",
    "Finish",
    "Implementation",
    "Noise",
    "Nucleus",
    "Precision",
    "Sampler",
    "default_sampler",
    "diffusion_families",
    "reads_as",
]

__getattr__ = loader(__name__)
