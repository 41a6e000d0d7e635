"""ReMDM (Wang et al. 2025) on a masked denoiser, as the public code does it: tokens are revised.

Every update draws one categorical outcome at every position. A masked position offers token v the
weight p(v) a and staying masked the weight b; a visible one keeps its token with weight 1 - sigma
and is masked again with weight sigma. a, b and sigma are the schedule's (`remdm_rates`). The
prediction is kept while nothing changes, and what is masked at the end is filled by the finish.
"""

from __future__ import annotations

import torch
from torch import Tensor

from strop.samplers.machinery.dense import DenseRun
from strop.samplers.remdm_rates import remdm_rates, unsure_first

__all__ = ["remdm"]


def remdm(run: DenseRun) -> Tensor:
    """Any of the four schedules; the public code casts to the draw's precision at the draw."""
    rates, mask_id = remdm_rates(run.spec, run.grid), run.denoiser.mask_id
    ids, prediction = run.start(), None
    confidence = torch.zeros(ids.shape, dtype=torch.float64, device=ids.device)
    for k, noise in enumerate(run.grid.sigmas()[:-1]):
        if prediction is None:
            prediction = run.log_probs(ids, noise).exp()
        visible = ids != mask_id
        back = torch.full(ids.shape, rates.back[k], dtype=torch.float64, device=ids.device)
        if rates.by_confidence:
            back *= unsure_first(confidence, visible)
        # A visible token's own probability is one and all others are zero.
        factor = torch.where(visible, 1 - back, rates.token[k])
        weights = prediction * factor[..., None].to(prediction.dtype)
        weights[..., mask_id] = torch.where(visible, back, rates.mask[k]).to(prediction.dtype)
        moved = run.draw(weights.to(run.dtype))
        drawn = prediction.gather(-1, moved[..., None])[..., 0].double()
        confidence = torch.where(visible, confidence, drawn)
        if run.denoiser.time_conditioned or not moved.equal(ids):
            prediction = None
        ids = moved
    return run.public_finish(ids)
