"""A checkpoint as log p(clean token | visible tokens): one file per family, one contract."""

from strop.denoisers.base import Denoiser
from strop.denoisers.load import load_denoiser
from strop.denoisers.markov import MarkovDenoiser
from strop.denoisers.tabular import TabularDenoiser

__all__ = ["Denoiser", "MarkovDenoiser", "TabularDenoiser", "load_denoiser"]
