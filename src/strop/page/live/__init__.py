"""`strop view`: the page of some folders in a browser, from a server on this machine.

`viewer.py` makes the pages, `watch.py` says what is under way in the folders, `paged.py` hands out
outputs a few at a time, `ratings.py` keeps what a person says of them; `guarded.py` says who may
ask, and `server.py` answers.
"""
