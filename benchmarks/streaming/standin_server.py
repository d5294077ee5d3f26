"""A stand-in server of an OpenAI-compatible API and of ollama's, for chat programs of others.

`python -m benchmarks.streaming.standin_server FILE` listens on a free port of this machine, and writes the port into
FILE. Questions and answers are those of `benchmarks.streaming.engine`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from benchmarks.streaming.engine import QUESTION, tokens, write_note

MODEL = "standin"
_JSON, _EVENTS, _LINES = "application/json", "text/event-stream", "application/x-ndjson"


async def answer(question: str) -> AsyncGenerator[str, None]:
    """Yield the tokens of an answer at the pace that the question asks for; notes when they were."""
    came, found = time.monotonic(), QUESTION.findall(question)
    if not found:
        yield "Hello."
        return
    count, rate, name = int(found[-1][0]), int(found[-1][1]), found[-1][2]
    first = last = 0.0
    for number, token in enumerate(tokens(count, name)):
        if rate:
            await asyncio.sleep(max(0.0, came + number / rate - time.monotonic()))
        elif number % 20 == 0:
            await asyncio.sleep(0)
        last = time.monotonic()
        first = first or last
        yield token
    write_note(name, came, first, last)


def question_of(body: dict[str, Any]) -> str:
    """Return the text of the last message."""
    content = (body.get("messages") or [{"content": ""}])[-1].get("content") or ""
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


def _chunk(delta: dict[str, str], end: str | None = None) -> dict[str, object]:
    choice = {"index": 0, "delta": delta, "finish_reason": end}
    return {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": MODEL, "choices": [choice]}


async def _openai(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    if not body.get("stream"):
        text = "".join([token async for token in answer(question_of(body))])
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        whole = {"id": "1", "object": "chat.completion", "created": 0, "model": MODEL, "choices": [choice]}
        _send(writer, {**whole, "usage": usage})
        return
    _head(writer, _EVENTS)
    _piece(writer, f"data: {json.dumps(_chunk({'role': 'assistant', 'content': ''}))}\n\n")
    async for token in answer(question_of(body)):
        _piece(writer, f"data: {json.dumps(_chunk({'content': token}))}\n\n")
        await writer.drain()
    _piece(writer, f"data: {json.dumps(_chunk({}, 'stop'))}\n\ndata: [DONE]\n\n")
    _piece(writer, "")


async def _ollama(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    _head(writer, _LINES)
    common = {"model": MODEL, "created_at": "2026-01-01T00:00:00Z"}
    async for token in answer(question_of(body)):
        line = {**common, "message": {"role": "assistant", "content": token}, "done": False}
        _piece(writer, json.dumps(line) + "\n")
        await writer.drain()
    ended = {**common, "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}
    _piece(writer, json.dumps(ended) + "\n")
    _piece(writer, "")


def _head(writer: asyncio.StreamWriter, kind: str) -> None:
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())


def _piece(writer: asyncio.StreamWriter, text: str) -> None:
    data = text.encode()
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _send(writer: asyncio.StreamWriter, value: object) -> None:
    data = json.dumps(value).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {_JSON}\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while line := await reader.readline():
            path, length = line.split()[1].decode(), 0
            while (header := await reader.readline()) not in (b"\r\n", b""):
                name, _, value = header.decode().partition(":")
                length = int(value) if name.lower() == "content-length" else length
            body = json.loads(await reader.readexactly(length) or b"{}")
            if path.endswith("/chat/completions"):
                await _openai(body, writer)
            elif path == "/api/chat":
                await _ollama(body, writer)
            elif path == "/api/tags":
                _send(writer, {"models": [{"name": MODEL, "model": MODEL, "size": 1, "details": {}}]})
            else:
                _send(writer, {"object": "list", "data": [{"id": MODEL, "object": "model"}], "capabilities": []})
            await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    Path(sys.argv[1]).write_text(str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
