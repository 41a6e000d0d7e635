"""The search for a sampler's settings: what may be tried, who is given outputs, who proposes.

It knows no network: whoever asks brings a function that measures candidates, so that a search can
be replayed from outputs that are there. `strop.tuning.search` brings one that draws.
"""
