"""The real guardian and the real server of a worker, around an engine whose core is a process that says words.

python -m tests.torture.worker --socket S --spec F --log L --keep-alive SECONDS|none
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

from tests.support.scripted_engine import prompt_text, scripted_info, scripted_prompt
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import Delta, EngineEvent, Finished, RenderRequest, Request, Timings, Usage
from vlmtui.worker import guardian, serve
from vlmtui.worker.backends.contract import Backend, Report

WORD_S = 0.03
"""Seconds from one word to the next."""
_QUESTION = re.compile(r"say \d+ \w+")
MARKER = "marker.json"
"""A file of the model's folder with its version, which every answer then ends with."""
_CORE = "import sys, time\nfor line in sys.stdin:\n    print(line.strip(), flush=True)\n"


def said(question: str) -> list[str]:
    """The whole answer to `say COUNT NAME`, a word a token."""
    _, count, name = question.split()
    return [f"{name}-{number} " for number in range(int(count))]


class Talker:
    """A hosted engine. Each word goes through the core and back; where the core is dead, so is the engine."""

    def __init__(self, spec: LoadSpec, core: asyncio.subprocess.Process) -> None:
        self.info = scripted_info(spec)
        self._core = core
        marker = Path(spec.model) / MARKER
        self._version = [f"version-{json.loads(marker.read_bytes())['version']}"] if marker.exists() else []
        self._turn = asyncio.Lock()

    @classmethod
    async def load(cls, spec: LoadSpec, report: Report) -> Talker:
        pipe = asyncio.subprocess.PIPE
        core = await asyncio.create_subprocess_exec(sys.executable, "-c", _CORE, stdin=pipe, stdout=pipe)
        (Path.cwd() / "core.pid").write_text(str(core.pid))
        return cls(spec, core)

    async def died(self) -> None:
        await self._core.wait()

    async def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        yield scripted_prompt(request)
        if not isinstance(request, RenderRequest):
            for word in said(_QUESTION.findall(prompt_text(request.prompt))[-1]) + self._version:
                await asyncio.sleep(WORD_S)
                await self._through_core(word)
                yield Delta(request_id=request.request_id, text=word, tokens=1)
        yield Finished(request_id=request.request_id, finish_reason="stop", usage=Usage(), timings=Timings())

    async def shutdown(self) -> None:
        if self._core.returncode is None:
            self._core.kill()

    async def _through_core(self, word: str) -> None:
        assert self._core.stdin is not None
        assert self._core.stdout is not None
        async with self._turn:
            self._core.stdin.write(f"{word}\n".encode())
            if not await self._core.stdout.readline():
                await asyncio.Event().wait()  # as with vLLM, the server is who notices that the core is dead


if __name__ == "__main__":
    if "--guardian" in sys.argv:
        sys.exit(serve.main(sys.argv[1:], Backend(title="Talker", load=Talker.load)))
    sys.exit(guardian.main(sys.argv[1:], server="tests.torture.worker"))
