"""The checks of `strop theory verify`: one module per group of statements.

Each module lists its checks in `CHECKS`; a check makes cases and judges one case at a time.
"""
