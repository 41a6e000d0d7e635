"""Where a served model is: `server:URL#MODEL`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from strop.errors import UserError

SERVER = "server:"


@dataclass(frozen=True)
class ServerAddress:
    """A model behind a URL."""

    base_url: str
    model: str

    @classmethod
    def parse(cls, source: str) -> ServerAddress:
        """From `server:URL#MODEL`."""
        url, _, model = source.removeprefix(SERVER).partition("#")
        if not url or not model:
            raise UserError(
                "The address of a served model is not complete.",
                where=source.split("@")[-1],
                expected="server:URL#MODEL, e.g. server:http://127.0.0.1:8000/v1#NAME",
                fix="write the model as the server names it behind a #",
            )
        return cls(check_url(url), model)

    def __str__(self) -> str:
        return f"{SERVER}{self.base_url}#{self.model}"


def is_served(source: object) -> bool:
    """Whether a checkpoint's name means a server."""
    return isinstance(source, str) and source.startswith(SERVER)


def check_url(url: str) -> str:
    """A base URL that can be written down: no key in it, and the same spelling every time."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(
            "The base URL cannot be used.",
            where="`base_url`",
            got=url.split("@")[-1],
            expected="http://HOST:PORT/v1 or https://HOST/v1",
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UserError(
            "The base URL carries more than an address.",
            where="`base_url`",
            got="a user, a password or a query",
            expected="the address alone: keys come from the environment and are never written",
            fix="export OPENAI_API_KEY=..., or name another variable with `key_env`",
        )
    return url.rstrip("/")
