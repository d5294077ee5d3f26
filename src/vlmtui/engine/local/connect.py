"""Connects to a worker: opens the socket, exchanges greetings, checks the protocol version."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from shlex import quote

from vlmtui.engine.local.client import EndWorker, WorkerClient
from vlmtui.engine.local.line_socket import LineSocket
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.protocol.codec import decode_worker_message, encode
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.protocol.messages import PROTOCOL_VERSION, Hello, Refused, Welcome
from vlmtui.protocol.peer import require_own_peer

_FOREIGN_HINT = "Nothing was sent to it. Remove that file, and check who can write to its folder."


async def connect(
    endpoint: Endpoint,
    *,
    client: str,
    attached: bool,
    timeout_s: float,
    answer_timeout_s: float,
    end: EndWorker,
    name: str = "--all",
) -> WorkerClient:
    """Connect to the worker of an endpoint and exchange greetings within `timeout_s` seconds.

    `answer_timeout_s` applies to later answers. `name` is the model's name, for the hint on how to stop the worker.
    Raises OSError if nothing listens, VlmtuiError(PROTOCOL) for a worker of another version, VlmtuiError(ENGINE_BUSY)
    for one that does not answer, and VlmtuiError(FOREIGN_PEER), before anything is sent, for another user's process.
    """
    async with AsyncExitStack() as cleanup:
        try:
            async with asyncio.timeout(timeout_s):
                socket = await LineSocket.open(endpoint.socket)
                cleanup.callback(socket.close)
                require_own_peer(socket.transport, place=str(endpoint.socket), hint=_FOREIGN_HINT)
                socket.post(encode(Hello(version=PROTOCOL_VERSION, client=client, pid=os.getpid())))
                welcome = await _greeting(socket, name)
        except TimeoutError as error:
            raise VlmtuiError(
                ErrorKind.ENGINE_BUSY,
                "The worker is running but does not answer.",
                detail=f"no greeting within {timeout_s:g} s on {endpoint.socket}",
                hint=f"`vlmtui stop {quote(name)}` ends it.",
            ) from error
        cleanup.pop_all()
        return WorkerClient(endpoint, socket, welcome, attached=attached, answer_timeout_s=answer_timeout_s, end=end)


async def _greeting(socket: LineSocket, name: str) -> Welcome:
    line = await socket.first_line()
    if line is None:
        raise ConnectionResetError("the worker closed the connection")
    hint = f"The worker was started by another version of vlmtui. Stop it with `vlmtui stop {quote(name)}`."
    try:
        message = decode_worker_message(line)
    except VlmtuiError as error:
        text = "Can't read the worker's greeting."
        raise VlmtuiError(error.kind, text, detail=error.detail, hint=hint) from error
    match message:
        case Welcome(version=version) if version == PROTOCOL_VERSION:
            return message
        case Welcome(version=version):
            text = f"The worker uses protocol version {version}, this vlmtui version {PROTOCOL_VERSION}."
            raise VlmtuiError(ErrorKind.PROTOCOL, text, hint=hint)
        case Refused(failure=failure):
            raise VlmtuiError(failure.kind, failure.message, detail=failure.detail, hint=failure.hint or hint)
        case _:
            text = "The worker's first message is not a greeting."
            raise VlmtuiError(ErrorKind.PROTOCOL, text, detail=type(message).__name__, hint=hint)
