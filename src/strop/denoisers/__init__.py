"""A checkpoint as log p(clean token | visible tokens): one file per family, one contract."""

from strop.denoisers.base import CausalModel, Denoiser, Model
from strop.denoisers.load import load_denoiser, load_model
from strop.denoisers.markov import MarkovDenoiser
from strop.denoisers.tabular import TabularDenoiser

__all__ = [
    "CausalModel",
    "Denoiser",
    "MarkovDenoiser",
    "Model",
    "TabularDenoiser",
    "load_denoiser",
    "load_model",
]
