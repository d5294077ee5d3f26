"""The names of a server's tokens do not hold up an answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from vlmtui.errors import ErrorKind
from vlmtui.worker.backends.remote import bodies
from vlmtui.worker.backends.remote.bodies import TokenTexts
from vlmtui.worker.backends.remote.http_api import ServerApi, Unanswered


class Stopped:
    """A server that answers nothing until it goes on."""

    stall_s = 0.05

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.is_stopped = True

    async def post(self, path: str, body: dict[str, Any], *, seconds: float) -> dict[str, str]:
        (token,) = body["tokens"]
        self.asked.append(token)
        if self.is_stopped:
            raise Unanswered(ErrorKind.NO_NETWORK, f"nothing within {seconds:g} s")
        return {"prompt": f" word{token}"}


async def test_a_server_that_stands_still_is_asked_once_for_hundreds_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(bodies, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    server = Stopped()
    texts = TokenTexts(cast(ServerApi, server), "shapes")
    for token in range(300):
        assert await texts.entries([token]) == {}
    assert server.asked == [0]
    server.is_stopped = False
    clock[0] += 11 * server.stall_s
    assert {one: told.text for one, told in (await texts.entries([7, 8])).items()} == {7: " word7", 8: " word8"}
