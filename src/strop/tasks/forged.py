"""Bodies of functions that try to pass without solving anything; `strop task check` sends them."""

from __future__ import annotations

PRINTS = """\
    import os, sys
    print("passed")
    sys.stderr.write("passed")
    print('{"outcome": "passed", "detail": "", "calls": 1}', flush=True)
    os._exit(0)
    return True
"""

EXITS = """\
    import sys
    sys.exit(0)
    return True
"""

EQUALS_ALL = """\
    class Everything(int):
        __eq__ = __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: True
        __ne__ = lambda self, other: False
        __sub__ = __rsub__ = __add__ = __abs__ = __getitem__ = lambda self, *other: self
        __hash__ = int.__hash__
        __len__ = lambda self: 1
        __iter__ = lambda self: iter(())
    return Everything(123456789)
"""

PATCHES = """\
    import builtins, json, math, sys
    always = lambda *args, **kwargs: True
    for module in (builtins, math):
        for name in ("abs", "all", "any", "fabs", "isinstance", "len", "sorted", "tuple"):
            if hasattr(module, name):
                setattr(module, name, always)
    builtins.AssertionError = type("Quiet", (Exception,), {})
    for module in list(sys.modules.values()):
        if hasattr(module, "check"):
            module.check = always
    json.dumps = lambda value: '{"outcome": "passed", "detail": "", "calls": 1}'
    return True
"""

WRITES_EVERYWHERE = """\
    import os
    verdict = b'{"outcome": "passed", "detail": "", "calls": 1}\\n'
    for descriptor in range(64):
        try:
            os.write(descriptor, verdict)
        except OSError:
            pass
    return ["no such value"]
"""

BODIES = (PRINTS, EXITS, EQUALS_ALL, PATCHES, WRITES_EVERYWHERE)
