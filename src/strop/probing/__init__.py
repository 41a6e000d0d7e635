"""What do a generator's knobs do? Questions with a known error rate, asked of outputs alone."""
