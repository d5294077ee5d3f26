"""The interface of a backend: loading an engine, using it, and explaining its failures."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import Protocol, runtime_checkable

import msgspec

from vlmtui.domain.engine import EngineInfo, LoadSpec, LoadStage
from vlmtui.domain.generation import EngineEvent, Request
from vlmtui.domain.metrics import EngineMetrics
from vlmtui.errors import ErrorKind, VlmtuiError, causes_of
from vlmtui.worker.hf.failures import FailureRule, classify

CPU_NICENESS = 5
"""Added to the niceness of an engine on the CPU, so that the app and the terminal stay responsive."""
DELTA_S = 1 / 20
"""The least seconds between two deltas of an answer. The screen shows ten frames a second."""


class HostedEngine(Protocol):
    """A loaded engine. Call its methods only in the event loop in which it was loaded."""

    info: EngineInfo
    """Facts about the engine, including its capabilities. The server fills in `load_s`."""

    def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        """Yield PromptReady, Deltas, then Finished; for a RenderRequest only PromptReady and Finished.

        Cancelling the task aborts the request. Raises VlmtuiError, or an exception that `explain_request` can explain.
        The worker's server only passes requests that `info.capabilities` allows, measures the times, and counts tokens
        if Finished has no usage."""
        ...

    async def died(self) -> None:
        """Wait until the engine has died by itself."""
        ...

    async def shutdown(self) -> None:
        """End the engine's processes."""
        ...


@runtime_checkable
class TellsMetrics(Protocol):
    """An engine that also reports metrics."""

    async def metrics(self) -> EngineMetrics:
        """Return the engine's present metrics. Raises VlmtuiError."""
        ...


class LoadStep(msgspec.Struct, frozen=True):
    """Load progress. `fraction` (0..1) is the progress within the stage, None if unknown."""

    stage: LoadStage
    detail: str = ""
    fraction: float | None = None


Report = Callable[[LoadStep], object]
"""Reports load progress. May be called from the engine's thread."""
Load = Callable[[LoadSpec, Report], Awaitable[HostedEngine]]
"""Loads an engine; may block the event loop. Raises exceptions that `explain_load` can explain."""


class ProcessEnded(Exception):
    """A process of the engine has ended by itself; the message has its exit code or signal."""


LoadAgain = Callable[[LoadSpec, Report, ProcessEnded, Sequence[str]], Awaitable[HostedEngine]]
"""Loads again with a changed setting, if the log lines show one that would work; otherwise raises the given error."""


def explain_load(
    error: BaseException, log: Sequence[str], *, name: str, rules: Iterable[FailureRule] = ()
) -> VlmtuiError:
    """Explain a failed load by the first rule that matches the exception's text."""
    if isinstance(error, VlmtuiError):
        return error
    text = chain_text(error)
    hint = "See the log of the load."
    unknown = VlmtuiError(ErrorKind.INTERNAL, f"{name} could not be loaded.", detail=text, hint=hint)
    return classify(text, rules, detail=text) or unknown


def explain_request(error: BaseException, log: Sequence[str] = (), *, rules: Iterable[FailureRule] = ()) -> VlmtuiError:
    """Explain a failed request by the first rule that matches the exception's text."""
    if isinstance(error, VlmtuiError):
        return error
    text = chain_text(error)
    return classify(text, rules, detail=text) or VlmtuiError(ErrorKind.INTERNAL, "The request failed.", detail=text)


def explain_death(log: Iterable[str]) -> VlmtuiError:
    """The default explanation of an engine's death, with the newest log lines as detail."""
    detail = "\n".join(list(log)[-_DETAIL_LINES:])
    return VlmtuiError(ErrorKind.ENGINE_DIED, "The engine died.", detail=detail)


def chain_text(error: BaseException) -> str:
    """Return the messages of an exception and its causes, one per line, the innermost last."""
    found = ((type(one).__name__, str(one).strip()) for one in islice(causes_of(error), _CHAIN_MAX))
    return "\n".join(f"{name}: {text}" if text else name for name, text in found)


_DETAIL_LINES = 12
_CHAIN_MAX = 8


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of engine. Only `title` and `load` are required."""

    title: str
    load: Load
    load_again: LoadAgain | None = None
    """Called once after `load` has raised ProcessEnded."""
    read_progress: Callable[[str], LoadStep | None] = lambda line: None
    """Returns the load progress that a line of the worker's log reports, or None."""
    explain_load: Callable[..., VlmtuiError] = explain_load
    """`(error, log, name=…)`: explains a failed load. `log`: the newest lines of the worker's log."""
    explain_request: Callable[[BaseException, Sequence[str]], VlmtuiError] = explain_request
    """Explains a failed request. If the engine died during it, the cause is in the log."""
    explain_death: Callable[[Iterable[str]], VlmtuiError] = explain_death
    """Explains an engine's death from the worker's log."""
    computes_here: bool = True
    """True if processes of the worker compute the answers: they have hung if they use no CPU during a request.
    False: the backend itself limits the time without an event."""
    computes_in_worker: bool = False
    """True if threads of the worker's own process compute the answers; False: its child processes do."""
