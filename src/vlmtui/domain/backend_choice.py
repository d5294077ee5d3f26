"""Which kind of engine runs a model, as a person writes it: `vllm`, `transformers`, `vllm==0.23.0`."""

from __future__ import annotations

import re

import msgspec

from vlmtui.domain.engine import (
    DEFAULT_BACKEND,
    PINNED_BACKEND,
    REMOTE_BACKEND,
    TRANSFORMERS_BACKEND,
    BackendName,
    LoadSpec,
    PinnedVersion,
)
from vlmtui.errors import ErrorKind, VlmtuiError

_TITLES = {DEFAULT_BACKEND: "vLLM", TRANSFORMERS_BACKEND: "Transformers"}
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_VERSION = re.compile(r"\d{1,6}(\.\d{1,6}){1,3}")


class BackendChoice(msgspec.Struct, frozen=True):
    """A kind of engine; for `pinned` also the version of vLLM."""

    backend: BackendName = DEFAULT_BACKEND
    pinned: PinnedVersion | None = None

    @staticmethod
    def of(spec: LoadSpec) -> BackendChoice:
        """Return the kind of engine that a spec names."""
        return BackendChoice(spec.backend, spec.pinned)

    @property
    def text(self) -> str:
        """The form that `read_backend` reads."""
        return f"vllm=={self.pinned}" if self.pinned is not None else self.backend

    @property
    def title(self) -> str:
        """The name for people: `vLLM`, `Transformers`, `vLLM 0.23.0`."""
        return f"vLLM {self.pinned}" if self.pinned is not None else _TITLES.get(self.backend, self.backend)


def read_backend(text: str) -> BackendChoice:
    """Parse `vllm`, `transformers`, `vllm==X.Y.Z`, or the name of a backend that another package offers.

    Raises VlmtuiError(BAD_USAGE)."""
    name, equals, version = text.strip().partition("==")
    if equals:
        if name.strip() == DEFAULT_BACKEND and _VERSION.fullmatch(version.strip()):
            return BackendChoice(PINNED_BACKEND, version.strip())
    elif name == REMOTE_BACKEND:
        raise VlmtuiError(ErrorKind.BAD_USAGE, "A server is not a backend here.", hint="Use --engine ADDRESS.")
    elif name != PINNED_BACKEND and _NAME.fullmatch(name):
        return BackendChoice(name)
    message = f"{text!r} is not a backend."
    raise VlmtuiError(ErrorKind.BAD_USAGE, message, hint="Write vllm, transformers, or vllm==0.23.0.")
