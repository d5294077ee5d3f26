"""A real backend, the smallest there is: it streams the prompt back, word by word, and knows no tokens.

It is loaded by its name, `LoadSpec(backend="echo")`, through an entry point: see `offer_echo`. The word `wait` of a
prompt waits until the request is cancelled; `hold` until the file that the engine argument `release` names is there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from vlmtui.domain.capabilities import Capabilities
from vlmtui.domain.conversation import ChatPrompt, MessagesPrompt, Prompt, RawPrompt
from vlmtui.domain.engine import EngineInfo, LoadSpec, LoadStage
from vlmtui.domain.generation import Delta, EngineEvent, Finished, PromptReady, Request, Timings, Usage
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.backends.contract import Backend, LoadStep, Report

_ROOT = Path(__file__).parents[2]
_CAPABILITIES = Capabilities(raw_prompts=True, cancel=True)


def offer_echo(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the backend: what a package of one's own says in its `pyproject.toml` stands in a folder on the path, of
    this process and of every worker that it starts."""
    about = folder / "vlmtui_echo-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: vlmtui-echo\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[vlmtui.backends]\necho = tests.worker.echo_backend:BACKEND\n")
    monkeypatch.syspath_prepend(folder)
    for place in (_ROOT, folder):
        monkeypatch.setenv("PYTHONPATH", str(place), prepend=os.pathsep)


class Echo:
    """A loaded engine."""

    def __init__(self, spec: LoadSpec) -> None:
        self._release = Path(str(spec.engine_args.get("release", "/")))
        self.info = EngineInfo(
            spec=spec,
            architecture="Echo",
            engine="Echo",
            engine_version="1",
            device="cpu",
            dtype="none",
            max_model_len=1000,
            has_chat_template=False,
            limits={"image": 2},
            load_s=0.0,
            engine_args=dict(spec.engine_args),
            capabilities=_CAPABILITIES,
        )

    async def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        text = _text(request.prompt)
        yield PromptReady(request_id=request.request_id, prompt=text, token_ids=(), media=())
        words = text.split()
        for word in words:
            yield Delta(request_id=request.request_id, text=f"{word} ", tokens=1)
            while word == "hold" and not self._release.exists():
                await asyncio.sleep(0.01)
            if word == "wait":
                await asyncio.Event().wait()
            if word == "fail":
                raise ZeroDivisionError("a failure of Echo's own")
        usage = Usage(prompt_tokens=len(words), completion_tokens=len(words))
        yield Finished(request_id=request.request_id, finish_reason="stop", usage=usage, timings=Timings())

    async def died(self) -> None:
        await asyncio.Event().wait()

    async def shutdown(self) -> None:
        return


def _text(prompt: Prompt) -> str:
    match prompt:
        case ChatPrompt(turns=turns):
            return turns[-1].text
        case RawPrompt(text=text):
            return text
        case MessagesPrompt():
            raise AssertionError("the server keeps from a backend what it does not promise")


async def load(spec: LoadSpec, report: Report) -> Echo:
    report(LoadStep(LoadStage.WEIGHTS, "there are none", 1.0))
    if spec.engine_args.get("broken"):
        raise VlmtuiError(ErrorKind.WEIGHTS_MISSING, "Echo was told to break.")
    return Echo(spec)


BACKEND = Backend(title="Echo", load=load)
