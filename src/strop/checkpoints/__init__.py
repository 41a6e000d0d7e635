"""Reading files that others wrote: hub layouts, training files, pickles made inert.

Nothing here knows a network's arithmetic; `strop.denoisers` turns what is read into models.
"""
