"""Examples at the end of a verb's `--help`."""

from __future__ import annotations


def examples(*commands: str) -> str:
    """Commands as an epilog: `app.command("sample", epilog=examples("strop sample -o runs/x"))`.

    A blank line between them keeps typer from joining lines.
    """
    return "\n\n".join([f"Example{'s' if len(commands) > 1 else ''}:", *commands])
