"""Functions from denoisers and pools to numbers."""
