"""A checkpoint as log p(clean token | visible tokens): one file per family, one contract."""
