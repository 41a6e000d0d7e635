"""Other people's harnesses over strop's generators, each an extra of its own."""
