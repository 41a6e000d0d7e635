"""GroupEval: quality and diversity of any set of texts, judged in groups. Runs without torch."""
