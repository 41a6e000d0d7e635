"""A judge behind an address: how its question is put to the client that all servers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strop.groupeval.payload import Messages
from strop.groupeval.profile import Profile
from strop.served.address import ServerAddress
from strop.served.client import Client, Patience, Reply, Trouble
from strop.served.cost import Tab
from strop.spec import JudgeSpec


class Endpoint:
    """A judge's server. The form of the request is the judge's; `form.py` settles it."""

    def __init__(
        self, judge: JudgeSpec, profile: Profile, key: str | None, patience: Patience
    ) -> None:
        self._client = Client(ServerAddress(judge.base_url or "", judge.model or ""), key, patience)
        self._judge, self._profile = judge, profile

    async def close(self) -> None:
        """Let the connections go."""
        await self._client.close()

    async def ask(
        self, messages: Messages, tab: Tab, hopeless: Callable[[Trouble], bool] = lambda _: False
    ) -> Reply:
        """The reply to one question; `tab` hears of every request."""
        judge = self._judge
        body: dict[str, Any] = {"messages": messages, **(judge.decoding or {})}
        shape = _response_format(judge.response_format, self._profile)
        if shape is not None:
            body["response_format"] = shape
        told = {"format": judge.response_format}
        return await self._client.ask(body, tab, hopeless, told)


def _response_format(name: str | None, profile: Profile) -> dict[str, Any] | None:
    if name == "json_schema":
        schema = {"name": "verdict", "strict": True, "schema": profile.schema}
        return {"type": "json_schema", "json_schema": schema}
    return {"type": "json_object"} if name == "json_object" else None
