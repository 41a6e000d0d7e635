"""strop view: the page of run directories in a browser, while they are written."""

from __future__ import annotations

import socket
from pathlib import Path

from strop.errors import UserError
from strop.verbs.ls import find
from strop.verbs.parameters import argument
from strop.verbs.verb import Ask, Parameter, Result, Verb

HOST, PORT, TRIED = "127.0.0.1", 8111, 20
"""Where it listens, and how many ports after the usual one are tried."""


def _run(ask: Ask) -> Result:
    paths = _folders(ask["folders"])
    import uvicorn

    from strop.page.live.guarded import new_token
    from strop.page.live.server import Listener, Server, Viewer

    listening = _listening_socket(ask["port"])
    port, token = listening.getsockname()[1], new_token()
    address = f"http://{HOST}:{port}/{token}/"
    server = Server(Viewer(paths), token, port)
    print(address, flush=True)
    ask.note("this page is for this machine alone; Ctrl-C ends it, and disturbs no run")
    if not ask["no_open"]:
        import webbrowser

        webbrowser.open(address)
    config = uvicorn.Config(
        server.app, log_level="warning", access_log=False, ws="none", server_header=False,
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    with listening:
        Listener(config, server).run(sockets=[listening])
    return Result(silent=True)


def _folders(given: tuple[str, ...] | None) -> list[Path]:
    """What is to be shown: what was named, or all that `strop ls` finds below the current place."""
    paths = [Path(folder) for folder in given or ()] or [
        Path(folder.run) for folder in find(Path())
    ]
    if not paths:
        raise UserError(
            "There is nothing to show below the current directory.",
            where=Path.cwd(),
            expected="a directory that strop made, such as runs/first",
            fix="strop sample -n 4 -o runs/first",
        )
    for path in paths:
        if not path.exists():
            raise UserError("There is no such directory.", where=path, fix="strop ls")
        if path.is_file() and path.suffix != ".jsonl":
            raise UserError(
                "This is a file; a view reads run directories.",
                where=path,
                expected="a directory that strop made, or a .jsonl of judgments",
                fix="strop ls",
            )
    paths = [shown for path in paths for shown in _run_folders(path)]
    return list({path.resolve(): path for path in paths}.values())


def _run_folders(path: Path) -> list[Path]:
    """A directory that strop made, or those that lie below one that it did not make."""
    if path.is_file():
        return [path]
    below = [Path(found_run.run) for found_run in find(path)]
    if not below:
        raise UserError(
            "There is nothing to show in this directory.",
            where=path,
            expected="a directory that strop made, or one with such directories in it",
            fix="strop ls",
        )
    return below


def _listening_socket(port: int | None) -> socket.socket:
    """A socket of this machine alone: at the port that was asked for, or the first free one."""
    refused: OSError | None = None
    for wanted in [port] if port is not None else [*range(PORT, PORT + TRIED), 0]:
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, wanted))
            listening.listen()  # a browser that is faster than the server waits
            return listening
        except OSError as error:
            listening.close()
            refused = error
    raise UserError(
        "This port cannot be used.",
        where="`port`",
        got=f"{port}: {refused.strerror if refused else ''}",
        fix="leave `port` out to take the first free one, or name another",
    )


VERB = Verb(
    name="view",
    help="Show FOLDER... in a browser, and what is under way there.\n\nA server on this machine "
    "alone; it prints its address, and changes nothing in a folder but the ratings that you give.",
    parameters=(
        argument(
            "folders",
            "FOLDER...",
            "As for `strop report`, or directories of such; by default all below this directory.",
            kind="many",
            required=False,
        ),
        Parameter(
            "port", "Of 127.0.0.1; by default the first free one from 8111.", kind="int", most=2**16
        ),
        Parameter.flag("no_open", "Print the address only."),
    ),
    run=_run,
    json=False,
    examples=("strop view runs/audit", "strop view runs/a runs/b --port 8200 --no-open"),
)
