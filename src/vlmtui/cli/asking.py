"""What every way to ask shares: what is known before an engine is needed, the engine, and asking several at once."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

import msgspec

from vlmtui.bootstrap import Application, build
from vlmtui.cli.output import LoadLine, is_tty, note, print_warnings, stay_note, write_answer
from vlmtui.domain.engine import Delta, EngineInfo, EngineReady, GenerateRequest, LoadFailed, LoadProgress
from vlmtui.engine.interface import Engine
from vlmtui.engine.session import Answer, PromptMode, run_turn
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.engine_values import with_engine_args
from vlmtui.registry.match import Model, resolve, with_trust
from vlmtui.registry.routes import closed

_SETTINGS = ("model", "keep_alive", "system_prompt", "temperature", "top_p", "max_tokens", "seed")


class Asking(msgspec.Struct, frozen=True):
    """All that is known before an engine is needed."""

    application: Application
    model: Model
    keep_alive_given: bool
    as_json: bool


class Asked(msgspec.Struct, frozen=True):
    """One of the requests that are sent at the same time."""

    mode: PromptMode
    request: GenerateRequest
    label: str = ""
    """How it is told from the others; empty where it is alone."""
    seed: int | None = None
    """With `temperature`: where a fan-out gave it one of its own."""
    temperature: float | None = None


def prepare(arguments: argparse.Namespace, model_name: str | None = None) -> Asking:
    """Raises VlmtuiError where the model cannot be used. `model_name` is asked where the command line names none."""
    given = {name: getattr(arguments, name) for name in _SETTINGS}
    application = build({**given, "model": arguments.model or model_name})
    print_warnings(application.registry.warnings)
    model = resolve(application.registry, application.settings.model)
    model = with_engine_args(model, arguments.engine_arg)
    model = allowed(model, trust=arguments.trust_remote_code)
    return Asking(application, model, arguments.keep_alive is not None, arguments.json)


def allowed(model: Model, *, trust: bool) -> Model:
    """The model as it may be started.

    Raises VlmtuiError, before anything is downloaded, where the installed vLLM cannot run it, or where its repository's
    own code would have to run and nobody said that it may.
    """
    if error := closed(model.family):
        raise error
    if model.family.trust_remote_code and not trust:
        raise VlmtuiError(
            ErrorKind.REMOTE_CODE_REFUSED,
            f"{model.spec.name} needs Python code of its own repository to run on this machine.",
            hint="Read that code, and then allow it with --trust-remote-code.",
        )
    return with_trust(model) if trust else model


@asynccontextmanager
async def opened(asking: Asking) -> AsyncIterator[tuple[Engine, EngineInfo, float]]:
    """A ready engine, what it is, and the seconds until it was ready to be asked; next to nothing when it ran.

    One that was started here and is still loading when it ends (Ctrl+C) is ended with it.
    """
    started = time.monotonic()
    settings = asking.application.settings
    host = asking.application.host
    engine = await host.open(asking.model.spec, client="ask", keep_alive_s=settings.keep_alive_s)
    try:
        info = await _load(engine)
        if engine.attached and asking.keep_alive_given:
            await engine.set_keep_alive(settings.keep_alive_s)
        yield engine, info, time.monotonic() - started
    finally:
        if engine.info is None and not engine.attached:
            if is_tty(sys.stderr):
                note(f"Ending the load of {engine.spec.name}…")
            await engine.shutdown()
        else:
            await _leave(engine, asking)


async def answers_of(engine: Engine, asked: Sequence[Asked], *, show: bool) -> list[Answer]:
    """Ask all at the same time. With `show` the answers are streamed to stdout, one after the other, the first as it
    comes. An answer that breaks off keeps what was printed."""
    pieces: list[asyncio.Queue[str | None]] = [asyncio.Queue() for _ in asked]
    tasks = [asyncio.create_task(_answer(engine, one.request, queue)) for one, queue in zip(asked, pieces, strict=True)]
    try:
        for one, queue in zip(asked, pieces, strict=True):
            if show:
                await _show(one.label, queue, is_first=one is asked[0])
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _answer(engine: Engine, request: GenerateRequest, pieces: asyncio.Queue[str | None]) -> Answer:
    answer = Answer(request.request_id)
    try:
        async with aclosing(run_turn(engine, request)) as events:
            async for event, current in events:
                answer = current
                if isinstance(event, Delta):
                    pieces.put_nowait(event.text)
    finally:
        pieces.put_nowait(None)
        if answer.outcome is None:
            await engine.cancel(answer.request_id)
    return answer


async def _show(label: str, pieces: asyncio.Queue[str | None], *, is_first: bool) -> None:
    if label:
        write_answer(("" if is_first else "\n") + f"== {label} ==\n")
    last = ""
    try:
        while (piece := await pieces.get()) is not None:
            last = piece or last
            write_answer(piece)
    finally:
        if last and not last.endswith("\n"):
            write_answer("\n")


async def _load(engine: Engine) -> EngineInfo:
    async with LoadLine(engine.spec.name, sys.stderr).running() as line:
        async for event in engine.load():
            match event:
                case LoadProgress():
                    line.show(event)
                case EngineReady(info=info):
                    return info
                case LoadFailed(failure=failure):
                    raise failure.error()
    raise VlmtuiError(ErrorKind.INTERNAL, "The engine's load ended without a word.")


async def _leave(engine: Engine, asking: Asking) -> None:
    """Disconnect, and say how long the model stays. Where it is to go at once, wait until it has gone."""
    try:
        status = await engine.status()
    except VlmtuiError:
        await engine.close()
        return
    if status.keep_alive_s == 0 and status.clients <= 1:
        await engine.shutdown()
        return
    await engine.close()
    if is_tty(sys.stderr) or not asking.as_json:
        note(stay_note(engine.spec.name, status.keep_alive_s))
