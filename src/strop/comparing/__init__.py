"""Is a generator better than another, or only sharper? The rules, over plain arrays.

`compare` takes two sides, each the outputs of one generator at several temperatures, and returns
three layers (as published, tuned, at equal sharpness) and a verdict. Nothing here draws, scores or
reads files: `strop.verbs.compare` does. The rules, how often they were right, and when not to trust
them: docs/compare.md.
"""
