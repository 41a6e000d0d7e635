"""A checkpoint as log p(clean token | visible tokens): one file per family, one contract.

The names load on first use: code that only shows texts reads the tokenizer without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.registry import loader

if TYPE_CHECKING:
    from strop.denoisers.base import CausalModel, Denoiser, Model
    from strop.denoisers.load import load_denoiser, load_model
    from strop.denoisers.tabular import MarkovDenoiser, TabularDenoiser

__all__ = [
    "CausalModel",
    "Denoiser",
    "MarkovDenoiser",
    "Model",
    "TabularDenoiser",
    "load_denoiser",
    "load_model",
]

__getattr__ = loader(__name__)
