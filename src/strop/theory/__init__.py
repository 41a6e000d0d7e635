"""Exact laws on small targets: the paper's finite-step theory, executable. No torch.

`target` and `denoiser` hold laws as arrays over outputs and visible sets, `reveal` the rounds,
`sampler` the mixture over paths; `accounting` is Theorem 1, `temperature` Theorem 2, `collapse`
and `pair` the two propositions, `verify` checks all of them. `document` reads JSON problems.
"""
