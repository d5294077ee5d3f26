"""A hosted engine for the server's tests: says what it is asked to, one word a token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future

from vlmtui.domain.capabilities import ALL
from vlmtui.domain.conversation import ChatPrompt
from vlmtui.domain.engine import EngineInfo, LoadSpec
from vlmtui.domain.generation import Delta, EngineEvent, Finished, PromptReady, Request, Timings, Usage

SPEC = LoadSpec(model="m", name="test")
INFO = EngineInfo(
    spec=SPEC,
    architecture="A",
    engine="vLLM",
    engine_version="0",
    device="cpu",
    dtype="float32",
    max_model_len=100,
    has_chat_template=True,
    limits={"image": 1},
    load_s=0.0,
    capabilities=ALL,
)


class EchoEngine:
    """Repeats the last turn's text. `fail` as a text raises; `wait` gives one word and then hangs until cancelled;
    `hold` goes on when `released` says so."""

    def __init__(self, released: Callable[[], bool] = lambda: True) -> None:
        self.info = INFO
        self.released = released
        self._death: Future[None] = Future()
        self.aborted: list[str] = []
        self.ended = False

    async def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        assert isinstance(request.prompt, ChatPrompt)
        text = request.prompt.turns[-1].text
        if text == "fail":
            raise ValueError("CUDA out of memory.")
        yield PromptReady(request_id=request.request_id, prompt=text, token_ids=(1, 2, 3), media=())
        for word in text.split(" "):
            yield Delta(request_id=request.request_id, text=f"{word} ", tokens=1)
            while word == "hold" and not self.released():
                await asyncio.sleep(0.01)
            if word == "wait":
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.aborted.append(request.request_id)
                    raise
        yield Finished(request_id=request.request_id, finish_reason="stop", usage=Usage(), timings=Timings())

    async def died(self) -> None:
        await asyncio.wrap_future(self._death)

    def die(self) -> None:
        """Die, from any thread."""
        self._death.set_result(None)

    async def shutdown(self) -> None:
        self.ended = True
