"""What ships with the package: tokenizers, embedded models, frozen profiles."""
