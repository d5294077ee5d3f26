"""The kinds of engine that a worker can host, by name. None is imported before it is chosen.

`docs/backends.md` tells how to add one.
"""

from __future__ import annotations

import importlib.util
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

import msgspec

from vlmtui.errors import ErrorKind, VlmtuiError

if TYPE_CHECKING:
    from vlmtui.worker.backends.contract import Backend

ENTRY_POINTS = "vlmtui.backends"
"""The group of entry points by which a package of one's own offers a backend: its name, and `module:BACKEND`."""


class Bundled(msgspec.Struct, frozen=True):
    """A backend of vlmtui's own."""

    place: str
    """`module:NAME` of its `Backend`."""
    needs: str
    """The package that it cannot do without, by the name that it is imported under."""
    missing: str
    """What to say where that is not installed."""
    hint: str


BUNDLED = {
    "vllm": Bundled(
        "vlmtui.worker.backends.vllm.backend:BACKEND",
        "vllm",
        "No engine is installed, so no model can be run.",
        "`vlmtui engines install` installs vLLM for this machine; `vlmtui engines add` names one that is there.",
    )
}


def require(name: str) -> None:
    """Raise VlmtuiError(NO_ENGINE) where there is no such backend, or what it needs is not installed.

    Imports nothing of it.
    """
    bundled = BUNDLED.get(name)
    if bundled is None:
        _entry_point(name)
    elif importlib.util.find_spec(bundled.needs) is None:
        raise VlmtuiError(ErrorKind.NO_ENGINE, bundled.missing, hint=bundled.hint)


def backend_of(name: str) -> Backend:
    """The backend of that name, imported. Raises VlmtuiError(NO_ENGINE) as `require` does, and for one that cannot be
    imported."""
    from vlmtui.worker.backends.contract import Backend

    require(name)
    bundled = BUNDLED.get(name)
    point = EntryPoint(name, bundled.place, ENTRY_POINTS) if bundled is not None else _entry_point(name)
    try:
        found = point.load()
    except (ImportError, AttributeError) as error:
        message = f"The backend {name!r} cannot be imported."
        raise VlmtuiError(ErrorKind.NO_ENGINE, message, detail=f"{point.value}: {error}") from error
    if not isinstance(found, Backend):
        message = f"The backend {name!r} is none: {point.value} is no Backend."
        raise VlmtuiError(ErrorKind.NO_ENGINE, message, detail=repr(found))
    return found


def _entry_point(name: str) -> EntryPoint:
    offered = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in offered:
        known = ", ".join(sorted({*BUNDLED, *offered}))
        raise VlmtuiError(ErrorKind.NO_ENGINE, f"No backend is called {name!r}.", hint=f"There are: {known}.")
    return offered[name]
