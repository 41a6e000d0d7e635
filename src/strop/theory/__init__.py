"""Exact laws on small targets: the paper's finite-step theory, executable. No torch.

The verbs of `strop theory` are functions here: `strop.theory.pair(s=0.9, c=0.25)`. Below them,
`target` holds laws and denoisers as arrays over outputs and visible sets, `sampler` the rounds and
the mixture over paths; `accounting` is Theorem 1, `temperature` Theorem 2 and Propositions 1 and 2;
`verification` checks all of them. `document` reads JSON problems.
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
