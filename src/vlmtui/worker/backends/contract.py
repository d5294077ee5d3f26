"""What a backend is: how an engine of its kind is loaded, what a loaded one can be asked, how its failures are told."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from vlmtui.domain.engine import EngineInfo, LoadSpec, LoadStage
from vlmtui.domain.generation import EngineEvent, GenerateRequest
from vlmtui.errors import ErrorKind, VlmtuiError


class HostedEngine(Protocol):
    """A loaded engine. All methods belong to the event loop that it was loaded in."""

    info: EngineInfo
    """What it says of itself, its capabilities included. `load_s` is filled in by the server."""

    def generate(self, request: GenerateRequest) -> AsyncGenerator[EngineEvent, None]:
        """PromptReady, Deltas, then Finished; for `only_render` PromptReady and Finished.

        The server measures the times, and counts the tokens of the events where Finished holds no usage. Raises for a
        failure, with a VlmtuiError or whatever `explain_request` can explain. Cancelling the task aborts the request.
        It is only given what `info.capabilities` promises."""
        ...

    async def died(self) -> None:
        """Return once the engine has died by itself; never, where it cannot."""
        ...

    async def shutdown(self) -> None:
        """End the engine's processes."""
        ...


class LoadStep(msgspec.Struct, frozen=True):
    """How far a load is. `fraction` (0..1) belongs to the stage; None where the stage has no measure."""

    stage: LoadStage
    detail: str = ""
    fraction: float | None = None


Report = Callable[[LoadStep], object]
"""Tells how far a load is. May be called from the engine's thread."""
Load = Callable[[LoadSpec, Report], Awaitable[HostedEngine]]
"""Loads an engine; may block its event loop for as long as it likes. Raises whatever `explain_load` can explain."""


def no_progress(line: str) -> LoadStep | None:
    """For a backend whose log says nothing of how far a load is."""
    return None


def explain_load(error: BaseException, log: Sequence[str], *, name: str) -> VlmtuiError:
    """What to tell about a load that failed, where nothing is known of the backend's own failures."""
    if isinstance(error, VlmtuiError):
        return error
    hint = "The log of the load tells more."
    return VlmtuiError(ErrorKind.INTERNAL, f"{name} could not be loaded.", detail=chain_text(error), hint=hint)


def explain_request(error: BaseException, log: Sequence[str]) -> VlmtuiError:
    """What to tell about a request that failed, where nothing is known of the backend's own failures."""
    if isinstance(error, VlmtuiError):
        return error
    return VlmtuiError(ErrorKind.INTERNAL, "The request failed.", detail=chain_text(error))


def explain_death(log: Iterable[str]) -> VlmtuiError:
    """What to tell about an engine that died, where nothing is known of the backend's own failures."""
    detail = "\n".join(list(log)[-_DETAIL_LINES:])
    return VlmtuiError(ErrorKind.ENGINE_DIED, "The engine died.", detail=detail)


def chain_text(error: BaseException) -> str:
    """The messages of an exception and of what caused it, the innermost last."""
    texts: list[str] = []
    current: BaseException | None = error
    while current is not None and len(texts) < _CHAIN_MAX:
        text = str(current).strip()
        texts.append(f"{type(current).__name__}: {text}" if text else type(current).__name__)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return "\n".join(texts)


_DETAIL_LINES = 12
_CHAIN_MAX = 8


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of engine. `title` and `load` are what every backend has; the rest has plain defaults."""

    title: str
    """What people call it, `vLLM`."""
    load: Load
    read_progress: Callable[[str], LoadStep | None] = no_progress
    """How far a load is, by a line of the worker's log; None where the line says nothing about it."""
    explain_load: Callable[..., VlmtuiError] = explain_load
    """`(error, log, name=…)`: what to tell about a load that failed. `log`: the newest lines of the worker's log."""
    explain_request: Callable[[BaseException, Sequence[str]], VlmtuiError] = explain_request
    """What to tell about a request that failed, perhaps because the engine died."""
    explain_death: Callable[[Iterable[str]], VlmtuiError] = explain_death
    """What to tell about an engine that died, by the worker's log."""


def unavailable(error: VlmtuiError) -> Backend:
    """A backend whose every load fails with this error."""

    async def load(spec: LoadSpec, report: Report) -> HostedEngine:
        raise error

    return Backend(title="none", load=load)
