"""`vlmtui ask`: one question, one answer."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from vlmtui.bootstrap import Application, build
from vlmtui.cli.interrupts import run_interruptible
from vlmtui.cli.output import LoadLine, is_tty, note, print_json, print_warnings, stay_note, write_answer
from vlmtui.domain.attachment import Attachment, VideoSampling
from vlmtui.domain.conversation import Turn, system_turn, user_turn
from vlmtui.domain.engine import (
    Cancelled,
    Delta,
    EngineReady,
    Failed,
    Finished,
    GenerateRequest,
    LoadFailed,
    LoadProgress,
)
from vlmtui.engine.interface import Engine
from vlmtui.engine.session import Answer, make_request, run_turn
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.registry.engine_values import with_engine_args
from vlmtui.registry.match import Model, resolve, with_trust
from vlmtui.registry.routes import closed
from vlmtui.ui.text import visible

_SETTINGS = ("model", "keep_alive", "system_prompt", "temperature", "top_p", "max_tokens", "seed")


@dataclass(frozen=True, slots=True)
class Asking:
    """All that is known before an engine is needed."""

    application: Application
    model: Model
    request: GenerateRequest
    keep_alive_given: bool
    as_json: bool


def ask(arguments: argparse.Namespace) -> int:
    """Raises VlmtuiError before anything is loaded when the question or a file is not fit."""
    application = build({name: getattr(arguments, name) for name in _SETTINGS})
    print_warnings(application.registry.warnings)
    model = resolve(application.registry, application.settings.model)
    model = with_engine_args(model, arguments.engine_arg)
    model = allowed(model, trust=arguments.trust_remote_code)
    question = read_question(arguments.question)
    attachments = [_stage(application, model, kind, path) for kind, path in arguments.media or ()]
    request = make_request(
        model.family,
        _turns(application.settings.system_prompt, question, attachments),
        application.settings.sampling.over(model.family.sampling),
    )
    asking = Asking(application, model, request, arguments.keep_alive is not None, arguments.json)
    return run_interruptible(lambda: _ask(asking))


async def _ask(asking: Asking) -> int:
    started = time.monotonic()
    async with opened(asking) as engine:
        load_s = time.monotonic() - started
        answer = await _stream(engine, asking)
        if asking.as_json:
            print_json(as_json(asking.model, answer, load_s))
        if answer.failure is not None:
            raise answer.failure.error()
    return 0


@asynccontextmanager
async def opened(asking: Asking) -> AsyncIterator[Engine]:
    """A ready engine. One that was started here and is still loading when it ends (Ctrl+C) is ended with it."""
    settings = asking.application.settings
    host = asking.application.host
    engine = await host.open(asking.model.spec, client="ask", keep_alive_s=settings.keep_alive_s)
    try:
        await _load(engine)
        if engine.attached and asking.keep_alive_given:
            await engine.set_keep_alive(settings.keep_alive_s)
        yield engine
    finally:
        if engine.info is None and not engine.attached:
            if is_tty(sys.stderr):
                note(f"Ending the load of {engine.spec.name}…")
            await engine.shutdown()
        else:
            await _leave(engine, asking)


async def _load(engine: Engine) -> None:
    async with LoadLine(engine.spec.name, sys.stderr).running() as line:
        async for event in engine.load():
            match event:
                case LoadProgress():
                    line.show(event)
                case EngineReady():
                    return
                case LoadFailed(failure=failure):
                    raise failure.error()


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


async def _stream(engine: Engine, asking: Asking) -> Answer:
    """The answer, printed as it comes unless JSON is wanted. An answer that breaks off keeps what was printed."""
    answer = Answer(asking.request.request_id)
    try:
        async for event, current in run_turn(engine, asking.request):
            answer = current
            if isinstance(event, Delta) and not asking.as_json:
                write_answer(event.text)
    finally:
        if answer.outcome is None:
            await engine.cancel(answer.request_id)
        if not asking.as_json and answer.text and not answer.text.endswith("\n"):
            write_answer("\n")
    return answer


def as_json(model: Model, answer: Answer, load_s: float) -> dict[str, object]:
    """What `--json` prints. `load_s`: seconds until the engine was ready to be asked; next to nothing when it ran."""
    outcome = answer.outcome
    timings = answer.timings
    return {
        "model": model.spec.name,
        "answer": answer.text,
        "finish_reason": _finish_reason(answer),
        "usage": {
            "prompt_tokens": answer.usage.prompt_tokens,
            "completion_tokens": answer.usage.completion_tokens,
            "image_tokens": answer.usage.image_tokens,
        },
        "timings": {
            "load_s": _milliseconds(load_s),
            "ttft_s": _milliseconds(timings.ttft_s if timings else None),
            "total_s": _milliseconds(timings.total_s if timings else None),
        },
        "prompt": answer.prompt.prompt if answer.prompt else None,
        "stop": outcome.stop if isinstance(outcome, Finished) else None,
    }


def _milliseconds(seconds: float | None) -> float | None:
    """The seconds, as exact as the clock is worth."""
    return None if seconds is None else round(seconds, 3)


def _finish_reason(answer: Answer) -> str:
    match answer.outcome:
        case Finished(finish_reason=reason):
            return reason
        case Cancelled():
            return "cancelled"
        case Failed() | None:
            return "failed"


def read_question(given: str) -> str:
    """The question, from stdin for `-`. Raises VlmtuiError where there is none."""
    if given == "-":
        try:
            given = sys.stdin.buffer.read().decode().rstrip("\n")
        except UnicodeDecodeError as error:
            raise bad_input("The question on stdin is not UTF-8 text.", detail=str(error)) from error
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise bad_input("The question is not valid text in this terminal's encoding.", detail=str(error)) from error
    if not given.strip():
        raise VlmtuiError(ErrorKind.BAD_USAGE, "The question is empty.")
    return given


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


def _stage(application: Application, model: Model, kind: str, path: str) -> Attachment:
    """Check and store a file of the kind that was said. Raises VlmtuiError naming it."""
    store = application.paths.media
    if kind == "image":
        from vlmtui.media.images import stage_image

        return stage_image(Path(path), store)
    from vlmtui.media.stage import stage

    attachment = stage(Path(path), store, sampling=VideoSampling(num_frames=model.spec.num_frames))
    if attachment.modality != "video":
        raise bad_input(f"{visible(attachment.name)} is a picture, not a video.", hint="Attach it with --image.")
    return attachment


def _turns(system: str, question: str, attachments: list[Attachment]) -> list[Turn]:
    asked = user_turn(question, attachments)
    return [system_turn(system), asked] if system else [asked]
