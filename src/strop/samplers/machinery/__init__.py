"""What the samplers are made of: the reveal grid, the categorical draw, and the loops over outputs.

The algorithms themselves are the files of the folder above.
"""
