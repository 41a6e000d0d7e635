"""Exact laws on small targets: the paper's finite-step theory, executable. No torch.

The verbs of `strop theory` are functions here: `strop.theory.pair(s=0.9, c=0.25)`. Below them,
`target` and `denoiser` hold laws as arrays over outputs and visible sets, `reveal` the rounds,
`sampler` the mixture over paths; `accounting` is Theorem 1, `temperature` Theorem 2 and
Proposition 1, `two_bits` Proposition 2; `verification` checks all of them. `document` reads JSON
problems.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.registry import loader

if TYPE_CHECKING:
    from strop.verbs.calls import theory_account as account
    from strop.verbs.calls import theory_collisions as collisions
    from strop.verbs.calls import theory_derivative as derivative
    from strop.verbs.calls import theory_figure as figure
    from strop.verbs.calls import theory_markov as markov
    from strop.verbs.calls import theory_pair as pair
    from strop.verbs.calls import theory_study as study
    from strop.verbs.calls import theory_verify as verify

__all__ = ["account", "collisions", "derivative", "figure", "markov", "pair", "study", "verify"]

__getattr__ = loader(__name__)
