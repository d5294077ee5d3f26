"""The backends (kinds of engine) of a worker, by name. A backend is imported only when it is used.

`docs/backends.md` tells how to add a backend.
"""

from __future__ import annotations

import importlib.util
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

import msgspec

from vlmtui.domain.engine import DEFAULT_BACKEND
from vlmtui.errors import ErrorKind, VlmtuiError

if TYPE_CHECKING:
    from vlmtui.worker.backends.contract import Backend

ENTRY_POINTS = "vlmtui.backends"
"""The entry-point group by which another package offers a backend: `name = "module:BACKEND"`."""


INSTALL_HINT = "`vlmtui engines install` installs vLLM for this machine; `vlmtui engines add` uses an existing one."


class Bundled(msgspec.Struct, frozen=True):
    entry_point: str
    """`module:NAME` of its `Backend`."""
    needs: str
    """The import name of the package that it requires."""
    missing: str
    """The error message if that package is not installed."""
    hint: str


_HTTP_MISSING = "The HTTP client that servers need is not installed."
_HTTP_HINT = "Install vlmtui again: httpx2 is one of its dependencies."
_SERVED = Bundled("vlmtui.worker.backends.served.engine:BACKEND", "httpx2", _HTTP_MISSING, _HTTP_HINT)
BUNDLED = {
    "pinned": _SERVED,
    "served": _SERVED,
    "vllm": Bundled(
        "vlmtui.worker.backends.vllm.engine:BACKEND",
        "vllm",
        "No engine is installed, so no model can run.",
        INSTALL_HINT,
    ),
    "transformers": Bundled(
        "vlmtui.worker.backends.transformers.engine:BACKEND",
        "transformers",
        "No engine is installed, so no model can run.",
        "`vlmtui engines install` installs vLLM for this machine, and Transformers with it.",
    ),
    "remote": Bundled("vlmtui.worker.backends.remote.engine:BACKEND", "httpx2", _HTTP_MISSING, _HTTP_HINT),
}


def has_transformers() -> bool:
    """Return whether this interpreter can run models in Transformers, with or without vLLM."""
    return all(importlib.util.find_spec(package) is not None for package in ("transformers", "torch"))


def no_vllm() -> VlmtuiError:
    """Return the error NO_ENGINE for a model that needs vLLM, with a hint if Transformers is installed."""
    lacking = BUNDLED[DEFAULT_BACKEND]
    if not has_transformers():
        return VlmtuiError(ErrorKind.NO_ENGINE, lacking.missing, hint=lacking.hint)
    hint = f"{INSTALL_HINT} Transformers is here: `--backend transformers` runs a model in it."
    return VlmtuiError(ErrorKind.NO_ENGINE, "vLLM is not installed.", hint=hint)


def require_backend(name: str) -> None:
    """Raise VlmtuiError(NO_ENGINE) if the backend is unknown, or the package that it needs is not installed.

    Does not import the backend.
    """
    bundled = BUNDLED.get(name)
    if bundled is None:
        _entry_point(name)
    elif importlib.util.find_spec(bundled.needs) is None:
        if name == DEFAULT_BACKEND:
            raise no_vllm()
        raise VlmtuiError(ErrorKind.NO_ENGINE, bundled.missing, hint=bundled.hint)


def load_backend(name: str) -> Backend:
    """Import a backend by its name. Raises VlmtuiError(NO_ENGINE) if it is unknown or cannot be imported."""
    from vlmtui.worker.backends.contract import Backend

    require_backend(name)
    bundled = BUNDLED.get(name)
    point = EntryPoint(name, bundled.entry_point, ENTRY_POINTS) if bundled is not None else _entry_point(name)
    try:
        found = point.load()
    except (ImportError, AttributeError) as error:
        message = f"The backend {name!r} cannot be imported."
        raise VlmtuiError(ErrorKind.NO_ENGINE, message, detail=f"{point.value}: {error}") from error
    if not isinstance(found, Backend):
        message = f"{name!r} is not a backend: {point.value} is not a Backend."
        raise VlmtuiError(ErrorKind.NO_ENGINE, message, detail=repr(found))
    return found


def _entry_point(name: str) -> EntryPoint:
    offered = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in offered:
        known = ", ".join(sorted({*BUNDLED, *offered}))
        raise VlmtuiError(ErrorKind.NO_ENGINE, f"Unknown backend: {name!r}.", hint=f"Available: {known}.")
    return offered[name]
