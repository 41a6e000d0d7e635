"""The search for a sampler's settings: what may be tried, who is given outputs, who proposes.

It needs no network: the caller passes a function that measures candidates, so that a search can be
replayed from existing outputs. `strop.tuning.search` has one that draws.
"""
